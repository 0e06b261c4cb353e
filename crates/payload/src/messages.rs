//! The messages about deletions and failures, word for word as the cluster-version operator has them.

use billhook_objects::ObjectKey;

/// Returns how messages name an object: `configmap "namespace/name"`.
pub fn resource(object: &ObjectKey) -> String {
    let kind = object.kind.kind.to_lowercase();
    match &object.namespace {
        Some(namespace) => format!("{kind} \"{namespace}/{}\"", object.name),
        None => format!("{kind} \"{}\"", object.name),
    }
}
