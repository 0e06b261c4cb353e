//! References of an object to others that it needs for its cleanup: credentials, accounts, parents.

use billhook_objects::{GroupKind, ResourceType, Scope};
use serde_json::Value;

use crate::{
    Fact, ObjectRef,
    case::{Case, Priority},
    kinds, object,
};

/// How many references are followed.
const MAX: usize = 4;
/// How deep in `spec` they are looked for.
const DEPTH: usize = 4;

/// A reference, and where it is.
struct Reference {
    path: String,
    target: ObjectRef,
}

/// Returns the objects that the `spec` of an object names and that do not exist.
pub(crate) fn missing(case: &Case<'_>, reference: &ObjectRef, value: &Value) -> Vec<Vec<Fact>> {
    let mut found = Vec::new();
    if let Some(spec) = value.get("spec") {
        walk(case, reference, spec, "spec", 0, &mut found);
    }
    found.truncate(MAX);
    let is_missing = |found: &Reference| case.get_metadata(&found.target, Priority::Detail).is_missing();
    let facts = |found: Reference| {
        vec![Fact::new(reference, found.path, found.target.to_string()), Fact::missing(&found.target)]
    };
    found.into_iter().filter(is_missing).map(facts).collect()
}

fn walk(case: &Case<'_>, owner: &ObjectRef, value: &Value, path: &str, depth: usize, found: &mut Vec<Reference>) {
    if depth > DEPTH {
        return;
    }
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let path = format!("{path}.{key}");
                match target(case, owner, key, value) {
                    Some(target) => found.push(Reference { path, target }),
                    None => walk(case, owner, value, &path, depth + 1, found),
                }
            }
        }
        Value::Array(items) => {
            let key = path.rsplit('.').next().unwrap_or(path).trim_end_matches('s');
            for (index, item) in items.iter().enumerate() {
                let path = format!("{path}[{index}]");
                match target(case, owner, key, item) {
                    Some(target) => found.push(Reference { path, target }),
                    None => walk(case, owner, item, &path, depth + 1, found),
                }
            }
        }
        _ => {}
    }
}

/// Returns what a field refers to, by its name and the kinds that the cluster serves.
fn target(case: &Case<'_>, owner: &ObjectRef, key: &str, value: &Value) -> Option<ObjectRef> {
    let own = owner.namespace.as_deref();
    if let Some(name) = value.as_str().filter(|name| !name.is_empty()) {
        // A plain `secretName` may be what the controller itself creates and deletes.
        return match key {
            "serviceAccountName" | "serviceAccount" => own.map(|_| kinds::SERVICE_ACCOUNT.named(own, name)),
            _ => named(sibling(case, owner, key)?, own, name),
        };
    }
    let stem = key.strip_suffix("Ref").or_else(|| key.strip_suffix("Reference"))?;
    let name = object::text(value, "/name")?;
    let namespace = object::text(value, "/namespace").or(own);
    let kind = object::text(value, "/kind").map_or_else(|| capitalized(stem), str::to_owned);
    let group = object::text(value, "/apiVersion").and_then(|version| version.split_once('/')).map(|(group, _)| group);
    let group = group.or_else(|| object::text(value, "/apiGroup")).or_else(|| object::text(value, "/group"));
    let served = match group {
        Some(group) => case.catalog.get(&GroupKind::new(group, &kind)),
        None => related(case, owner, &kind).or_else(|| builtin(case, &kind)).or_else(|| case.kind_named(&kind)),
    };
    named(served?, namespace, name)
}

/// Returns the kind of the same API group that a field such as `project` or `clusterName` names: `AppProject`, `Cluster`.
fn sibling<'a>(case: &Case<'a>, owner: &ObjectRef, key: &str) -> Option<&'a ResourceType> {
    let stem = key.strip_suffix("Name").unwrap_or(key);
    let wanted = capitalized(stem);
    let group = owner.api_version.group();
    let mut kinds = case.catalog.iter().filter(|kind| kind.kind.group == group && kind.kind.kind.ends_with(&wanted));
    kinds.next().filter(|kind| !group.is_empty() && stem.len() >= 4 && kind.kind != owner.group_kind())
}

/// Returns a kind of the same product: one group is part of the other.
fn related<'a>(case: &Case<'a>, owner: &ObjectRef, name: &str) -> Option<&'a ResourceType> {
    let own = owner.api_version.group();
    case.catalog.iter().find(|kind| {
        let group = kind.kind.group.as_str();
        kind.kind.kind == name && !group.is_empty() && (own.ends_with(group) || group.ends_with(own))
    })
}

/// Returns the kind of a field such as `credentialsSecretRef`.
fn builtin<'a>(case: &Case<'a>, name: &str) -> Option<&'a ResourceType> {
    let kind = ["Secret", "ConfigMap", "ServiceAccount"].into_iter().find(|kind| name.ends_with(kind))?;
    case.catalog.get(&GroupKind::new("", kind))
}

fn named(kind: &ResourceType, namespace: Option<&str>, name: &str) -> Option<ObjectRef> {
    let namespace = namespace.filter(|_| kind.scope == Scope::Namespaced);
    if kind.scope == Scope::Namespaced && namespace.is_none() {
        return None;
    }
    Some(ObjectRef::new(kind.api_version(None), kind.kind.kind.clone(), namespace, name))
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}
