//! Who may write a kind, by the roles in the cluster: the accounts of its controllers.

use std::collections::BTreeSet;

use billhook_objects::Resource;
use serde_json::Value;

use crate::{
    Fact, ObjectRef,
    case::{Case, Priority},
    kinds, object,
};

/// A ServiceAccount, and the binding that gives it rights.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Grant {
    pub(crate) namespace: String,
    pub(crate) account: String,
    pub(crate) fact: Fact,
}

/// Who may update or patch objects of some API groups by roles that name these groups. Administrators, who may do everything,
/// are not among them.
pub(crate) struct Writers {
    pub(crate) accounts: Vec<Grant>,
    /// Whether users or groups may, too: their programs may run anywhere.
    pub(crate) others: bool,
    /// Whether users are among these. Groups are people's.
    pub(crate) users: bool,
    /// The ClusterRoles that nobody holds.
    pub(crate) unbound: Vec<ObjectRef>,
    /// Whether all roles and bindings are known.
    pub(crate) complete: bool,
}

/// Looks for the writers of the kinds of these groups, in a namespace or in all.
///
/// A role that names a group belongs to a program that knows it.
pub(crate) fn writers(case: &Case<'_>, groups: &[String], plural: Option<&str>, namespace: Option<&str>) -> Writers {
    let mut found = Writers { accounts: Vec::new(), others: false, users: false, unbound: Vec::new(), complete: true };
    let roles = case.list(&kinds::CLUSTER_ROLE, None, Priority::Controller);
    let bindings = case.list(&kinds::CLUSTER_ROLE_BINDING, None, Priority::Controller);
    found.complete = roles.is_complete() && bindings.is_complete();
    let cluster_roles: BTreeSet<&str> = granting(roles.items(), groups, plural);
    for binding in bindings.items() {
        found.add(binding, &kinds::CLUSTER_ROLE_BINDING, &|kind, name| {
            kind == "ClusterRole" && cluster_roles.contains(name)
        });
    }
    let bound: BTreeSet<_> =
        bindings.items().iter().filter_map(|binding| object::text(binding, "/roleRef/name")).collect();
    // Roles that are parts of others have no bindings of their own.
    let is_part = |role: &Value| {
        role.pointer("/metadata/labels")
            .and_then(Value::as_object)
            .is_some_and(|labels| labels.keys().any(|key| key.contains("aggregate-to-")))
    };
    let is_unbound = |role: &&Value| {
        cluster_roles.contains(object::name(role)) && !bound.contains(object::name(role)) && !is_part(role)
    };
    found.unbound = roles
        .items()
        .iter()
        .filter(is_unbound)
        .map(|role| kinds::CLUSTER_ROLE.named(None, object::name(role)))
        .collect();
    if let Some(namespace) = namespace {
        let roles = case.list(&kinds::ROLE, Some(namespace), Priority::Controller);
        let bindings = case.list(&kinds::ROLE_BINDING, Some(namespace), Priority::Controller);
        found.complete &= roles.is_complete() && bindings.is_complete();
        let own: BTreeSet<&str> = granting(roles.items(), groups, plural);
        let grants = |kind: &str, name: &str| match kind {
            "Role" => own.contains(name),
            _ => cluster_roles.contains(name),
        };
        bindings.items().iter().for_each(|binding| found.add(binding, &kinds::ROLE_BINDING, &grants));
    }
    found.accounts.sort();
    found
}

/// Returns the names of the roles that name one of the groups and let their holders write.
fn granting<'a>(roles: &'a [Value], groups: &[String], plural: Option<&str>) -> BTreeSet<&'a str> {
    let grants = |rule: &Value| {
        // A finalizer is removed from the object itself: rights to a subresource are not enough.
        let resource = |known: &str| known == "*" || plural.map_or(!known.contains('/'), |plural| plural == known);
        object::texts(rule, "/apiGroups").any(|group| groups.iter().any(|known| known == group))
            && object::texts(rule, "/resources").any(resource)
            && object::texts(rule, "/verbs").any(|verb| ["*", "update", "patch"].contains(&verb))
    };
    roles.iter().filter(|role| object::list(role, "/rules").any(grants)).map(object::name).collect()
}

/// A binding that lets an account write a kind, and the role that it grants.
pub(crate) struct Right {
    pub(crate) binding: ObjectRef,
    pub(crate) role: ObjectRef,
}

/// Returns by which bindings an account may write objects of a kind in a namespace, those of administrators included.
pub(crate) fn rights(
    case: &Case<'_>,
    account: &(String, String),
    resource: &Resource,
    namespace: Option<&str>,
) -> Vec<Right> {
    let list = |kind, namespace| case.list(kind, namespace, Priority::Controller).items();
    let roles = list(&kinds::CLUSTER_ROLE, None);
    let mut found =
        rights_of(list(&kinds::CLUSTER_ROLE_BINDING, None), &kinds::CLUSTER_ROLE_BINDING, account, &|binding| {
            let role = role_of(binding, roles, resource)?;
            Some(kinds::CLUSTER_ROLE.named(None, role))
        });
    if namespace.is_some() {
        let own = list(&kinds::ROLE, namespace);
        found.extend(rights_of(list(&kinds::ROLE_BINDING, namespace), &kinds::ROLE_BINDING, account, &|binding| {
            match object::text(binding, "/roleRef/kind") {
                Some("Role") => Some(kinds::ROLE.named(namespace, role_of(binding, own, resource)?)),
                _ => Some(kinds::CLUSTER_ROLE.named(None, role_of(binding, roles, resource)?)),
            }
        }));
    }
    found
}

fn rights_of(
    bindings: &[Value],
    kind: &kinds::Builtin,
    (namespace, account): &(String, String),
    role: &dyn Fn(&Value) -> Option<ObjectRef>,
) -> Vec<Right> {
    let is_subject = |subject: &Value| {
        let text = |pointer| object::text(subject, pointer).unwrap_or_default();
        match text("/kind") {
            "ServiceAccount" => text("/name") == account && text("/namespace") == namespace,
            "Group" => {
                ["system:serviceaccounts", "system:authenticated", &format!("system:serviceaccounts:{namespace}")]
                    .contains(&text("/name"))
            }
            _ => false,
        }
    };
    let of_account = bindings.iter().filter(|binding| object::list(binding, "/subjects").any(is_subject));
    let right = |binding: &Value| {
        let name = kind.named(object::namespace(binding), object::name(binding));
        Some(Right { binding: name, role: role(binding)? })
    };
    of_account.filter_map(right).collect()
}

/// Returns the name of the role of a binding, if it lets its holders write a kind.
fn role_of<'a>(binding: &'a Value, roles: &[Value], resource: &Resource) -> Option<&'a str> {
    let grants = |rule: &Value| {
        let among = |pointer: &str, wanted: &[&str]| object::texts(rule, pointer).any(|known| wanted.contains(&known));
        among("/apiGroups", &["*", &resource.kind.group])
            && among("/resources", &["*", &resource.plural])
            && among("/verbs", &["*", "update", "patch"])
    };
    let name = object::text(binding, "/roleRef/name")?;
    let role = roles.iter().find(|role| object::name(role) == name)?;
    object::list(role, "/rules").any(grants).then_some(name)
}

impl Writers {
    fn add(&mut self, binding: &Value, kind: &kinds::Builtin, grants: &dyn Fn(&str, &str) -> bool) {
        let text = |pointer| object::text(binding, pointer).unwrap_or_default();
        if !grants(text("/roleRef/kind"), text("/roleRef/name")) {
            return;
        }
        let reference = kind.named(object::namespace(binding), object::name(binding));
        for subject in object::list(binding, "/subjects") {
            let name = object::text(subject, "/name").unwrap_or_default();
            if object::text(subject, "/kind") != Some("ServiceAccount") {
                let is_own = name.starts_with("system:");
                self.others |= !is_own;
                self.users |= !is_own && object::text(subject, "/kind") == Some("User");
                continue;
            }
            let namespace = object::text(subject, "/namespace").unwrap_or_default();
            let value = format!("{} to ServiceAccount {namespace}/{name}", text("/roleRef/name"));
            let fact = Fact::new(&reference, "roleRef", value);
            self.accounts.push(Grant { namespace: namespace.to_owned(), account: name.to_owned(), fact });
        }
    }
}
