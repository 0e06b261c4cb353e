//! The rules about what is deleted together with what, and in which order.

use std::collections::{HashMap, HashSet};

use billhook_objects::{GroupKind, ObjectKey};
use serde_json::Value;

use super::{Finding, Lint, left_out, text};
use crate::read::Entry;

/// The objects that are deleted together with others.
struct Cascades<'a> {
    namespaces: HashMap<&'a str, &'a ObjectKey>,
    definitions: Vec<(Definition, &'a ObjectKey)>,
}

impl<'a> Cascades<'a> {
    fn of(lint: &Lint<'a>) -> Self {
        let keys = || lint.new.deleted().map(|entry| &entry.manifest.key);
        let namespaces =
            keys().filter(|key| key.kind.is("", "Namespace")).map(|key| (key.name.as_str(), key)).collect();
        let bodies = Bodies::of(lint);
        let definitions = lint.new.deleted().filter_map(|entry| Some((bodies.definition(entry)?, &entry.manifest.key)));
        Self { namespaces, definitions: definitions.collect() }
    }

    /// Returns the namespace or CRD with which an object is deleted.
    fn cause(&self, object: &ObjectKey) -> Option<&'a ObjectKey> {
        let namespace = object.namespace.as_deref().and_then(|namespace| self.namespaces.get(namespace).copied());
        let definition = || self.definitions.iter().find(|(found, _)| found.defines(&object.kind)).map(|(_, key)| *key);
        namespace.or_else(definition)
    }
}

/// Finds objects whose namespace or CRD is deleted, too.
pub(super) fn redundant(lint: &Lint<'_>) -> Vec<Finding> {
    let cascades = Cascades::of(lint);
    let found = lint.new.deleted().filter_map(|entry| Some((entry, cascades.cause(&entry.manifest.key)?)));
    found.map(|(entry, because)| text::delete_redundant(entry, because)).collect()
}

/// Finds objects of the old payload that nothing applies or deletes any more.
pub(super) fn dropped(lint: &Lint<'_>) -> Vec<Finding> {
    let Some(old) = lint.old else { return Vec::new() };
    let cascades = Cascades::of(lint);
    let counting: HashSet<_> = lint.new.counting().map(|(entry, _)| &entry.manifest.key).collect();
    let dropped = old.applied().filter(|entry| {
        let object = &entry.manifest.key;
        !counting.contains(object) && cascades.cause(object).is_none()
    });
    dropped.map(|entry| text::dropped(entry, left_out(lint.new, &entry.manifest.key))).collect()
}

/// Finds operators that are deleted while their operands remain: the last workload of a component that still has CRDs, or
/// resources of these. A workload is also deleted with its namespace.
pub(super) fn operands(lint: &Lint<'_>) -> Vec<Finding> {
    let bodies = Bodies::of(lint);
    let mut operands: HashMap<&str, Vec<&ObjectKey>> = HashMap::new();
    let mut workloads: HashSet<&str> = HashSet::new();
    let definitions: Vec<_> =
        lint.new.counting().filter_map(|(entry, _)| bodies.definition(entry).zip(component(entry))).collect();
    for entry in lint.new.applied() {
        let (Some(component), object) = (component(entry), &entry.manifest.key) else { continue };
        if is_workload(&object.kind) {
            workloads.insert(component);
        }
        let is_resource = || definitions.iter().any(|(found, of)| *of == component && found.defines(&object.kind));
        if is_definition(&object.kind) || is_resource() {
            operands.entry(component).or_default().push(object);
        }
    }
    let deleted = lint.new.deleted().filter(|entry| {
        is_workload(&entry.manifest.key.kind) || bodies.workload_in(&entry.manifest.key, component(entry))
    });
    let found = deleted.filter_map(|entry| {
        let component = component(entry).filter(|component| !workloads.contains(component))?;
        Some(text::operand_missing(entry, component, operands.get(component)?))
    });
    found.collect()
}

/// Finds rights that are deleted before those who use them.
pub(super) fn rights(lint: &Lint<'_>) -> Vec<Finding> {
    let bodies = Bodies::of(lint);
    let position: HashMap<&ObjectKey, usize> =
        (0..).zip(lint.new.counting()).map(|(at, (entry, _))| (&entry.manifest.key, at)).collect();
    let is_later = |rights: &Entry, user: &Entry| {
        let later = position.get(&user.manifest.key) > position.get(&rights.manifest.key);
        // Different components of one level are deleted side by side.
        let side_by_side = match (&rights.step, &user.step) {
            (Some(rights), Some(user)) => rights.level == user.level && rights.component != user.component,
            _ => false,
        };
        later && !side_by_side
    };
    let deleted_users: Vec<_> =
        lint.new.deleted().filter_map(|entry| Some((entry, bodies.accounts_used(entry)?))).collect();
    let remaining: Vec<_> =
        lint.new.applied().filter_map(|entry| Some((entry, bodies.accounts_used(entry)?))).collect();
    let mut found = Vec::new();
    for entry in lint.new.deleted() {
        let accounts = bodies.accounts_with(entry);
        let uses = |used: &Used| accounts.iter().any(|account| used.uses(account));
        let later = deleted_users.iter().find(|(user, used)| uses(used) && is_later(entry, user));
        found.extend(later.map(|(user, _)| text::rights_first(entry, &user.manifest.key, false)));
        // Fewer rights may be the purpose, but a workload without its ServiceAccount cannot run.
        if entry.manifest.key.kind.is("", "ServiceAccount") {
            let user = remaining.iter().find(|(_, used)| uses(used));
            found.extend(user.map(|(user, _)| text::rights_first(entry, &user.manifest.key, true)));
        }
    }
    found
}

fn component(entry: &Entry) -> Option<&str> {
    entry.step.as_ref().map(|step| &*step.component)
}

fn is_workload(kind: &GroupKind) -> bool {
    kind.group == "apps" && matches!(kind.kind.as_str(), "Deployment" | "DaemonSet" | "StatefulSet")
}

fn is_definition(kind: &GroupKind) -> bool {
    kind.is("apiextensions.k8s.io", "CustomResourceDefinition")
}

/// What a CRD defines.
struct Definition {
    group: String,
    plural: String,
    kind: Option<String>,
}

impl Definition {
    fn defines(&self, kind: &GroupKind) -> bool {
        let named = || {
            // A delete manifest may contain nothing but the name of the CRD.
            let singular = kind.kind.to_lowercase();
            let stem = singular.strip_suffix('y').map(|stem| format!("{stem}ies"));
            [format!("{singular}s"), format!("{singular}es"), singular].contains(&self.plural)
                || stem == Some(self.plural.clone())
        };
        self.group == kind.group && self.kind.as_ref().map_or_else(named, |found| *found == kind.kind)
    }
}

/// A ServiceAccount, by namespace and name.
type Account = (String, String);

/// The ServiceAccounts that a deleted object uses.
enum Used {
    /// Those of a workload.
    One(Account),
    /// Those of everything in a namespace.
    Namespace(String),
}

impl Used {
    fn uses(&self, account: &Account) -> bool {
        match self {
            Self::One(used) => used == account,
            Self::Namespace(namespace) => *namespace == account.0,
        }
    }
}

/// The contents of manifests. A delete manifest may contain nothing but a name; then those of the old payload count.
struct Bodies<'a> {
    old: HashMap<&'a ObjectKey, &'a Entry>,
    /// The bindings of both payloads.
    bindings: Vec<&'a Entry>,
}

impl<'a> Bodies<'a> {
    fn of(lint: &Lint<'a>) -> Self {
        let old = || lint.old.into_iter().flat_map(|old| old.counting()).map(|(entry, _)| entry);
        let all = old().chain(lint.new.counting().map(|(entry, _)| entry));
        let bindings = all.filter(|entry| is_rbac(entry, &["RoleBinding", "ClusterRoleBinding"])).collect();
        Self { old: old().map(|entry| (&entry.manifest.key, entry)).collect(), bindings }
    }

    /// Returns a field of a manifest, or of the one in the old payload.
    fn field(&self, entry: &Entry, pointer: &str) -> Option<Value> {
        let read = |entry: &Entry| entry.manifest.value().pointer_mut(pointer).map(Value::take);
        read(entry).or_else(|| read(self.old.get(&entry.manifest.key)?))
    }

    fn text(&self, entry: &Entry, pointer: &str) -> Option<String> {
        self.field(entry, pointer)?.as_str().map(str::to_owned)
    }

    fn definition(&self, entry: &Entry) -> Option<Definition> {
        let object = &entry.manifest.key;
        let (plural, group) = object.name.split_once('.').filter(|_| is_definition(&object.kind))?;
        let kind = self.text(entry, "/spec/names/kind");
        Some(Definition { group: group.to_owned(), plural: plural.to_owned(), kind })
    }

    /// Returns whether this is the namespace of a workload that the component had in the old payload.
    fn workload_in(&self, object: &ObjectKey, of: Option<&str>) -> bool {
        object.kind.is("", "Namespace")
            && self.old.iter().any(|(key, entry)| {
                is_workload(&key.kind) && key.namespace.as_ref() == Some(&object.name) && component(entry) == of
            })
    }

    fn accounts_used(&self, entry: &Entry) -> Option<Used> {
        let object = &entry.manifest.key;
        if object.kind.is("", "Namespace") && entry.annotations.delete.is_some() {
            return Some(Used::Namespace(object.name.clone()));
        }
        let namespace = object.namespace.clone().filter(|_| is_workload(&object.kind))?;
        let name = self.text(entry, "/spec/template/spec/serviceAccountName");
        Some(Used::One((namespace, name.unwrap_or_else(|| "default".to_owned()))))
    }

    /// Returns the ServiceAccounts that lose rights when an object is deleted.
    fn accounts_with(&self, entry: &Entry) -> Vec<Account> {
        let object = &entry.manifest.key;
        if object.kind.is("", "ServiceAccount") {
            return object.namespace.clone().map(|namespace| (namespace, object.name.clone())).into_iter().collect();
        }
        if is_rbac(entry, &["RoleBinding", "ClusterRoleBinding"]) {
            return self.subjects(entry);
        }
        if !is_rbac(entry, &["Role", "ClusterRole"]) {
            return Vec::new();
        }
        let binds = |binding: &&&Entry| {
            let of_namespace = object.namespace.is_none() || object.namespace == binding.manifest.key.namespace;
            let named = |pointer, expected: &str| self.text(binding, pointer).as_deref() == Some(expected);
            of_namespace && named("/roleRef/kind", &object.kind.kind) && named("/roleRef/name", &object.name)
        };
        self.bindings.iter().filter(binds).flat_map(|binding| self.subjects(binding)).collect()
    }

    fn subjects(&self, binding: &Entry) -> Vec<Account> {
        let Some(Value::Array(subjects)) = self.field(binding, "/subjects") else { return Vec::new() };
        let accounts = subjects.iter().filter(|subject| subject["kind"] == "ServiceAccount");
        let account = |subject: &Value| {
            let namespace = subject["namespace"].as_str().or(binding.manifest.key.namespace.as_deref())?;
            Some((namespace.to_owned(), subject["name"].as_str()?.to_owned()))
        };
        accounts.filter_map(account).collect()
    }
}

fn is_rbac(entry: &Entry, kinds: &[&str]) -> bool {
    let kind = &entry.manifest.key.kind;
    kind.group == "rbac.authorization.k8s.io" && kinds.contains(&kind.kind.as_str())
}
