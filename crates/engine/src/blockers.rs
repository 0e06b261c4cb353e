//! Finds what blocks the objects that are left: finalizers and who set them, the conditions of a Namespace or CRD.

use std::{collections::HashMap, time::Duration};

use billhook_objects::{ObjectKey, wellknown};
use billhook_plan::{ApplyWork, DeleteWork, Node, PatchWork, Resource, Work};
use futures::StreamExt as _;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::{Blocker, Left, node::Context};

/// How many objects are read for their blockers. If more are left, the first ones usually show the cause.
const MAX_READ: usize = 100;
/// How many objects are read at a time.
const AT_ONCE: usize = 16;
/// The time limit for reading all objects: the user has waited for a time limit already, or has pressed Ctrl-C.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// Turns what a node left into [`Left`], reading the objects whose blockers the node itself does not know.
pub(crate) async fn explain(
    context: &Context<'_>,
    node: &Node,
    left: Vec<(ObjectKey, Option<Blocker>)>,
    until: Instant,
) -> Vec<Left> {
    let cluster = context.clusters.get(node.cluster.as_deref());
    let unknown = left.iter().filter(|(_, blocker)| blocker.is_none()).take(MAX_READ);
    let reads = unknown.map(|(key, _)| async move {
        let read = cluster?.get(resource(context, &node.work, key)?, key);
        Some((key, timeout_at(until, read).await.ok()?.ok()?))
    });
    // Collected, because the compiler cannot prove a future `Send` that holds these closures across an await.
    let reads: Vec<_> = reads.collect();
    let read: HashMap<_, _> =
        futures::stream::iter(reads).buffered(AT_ONCE).filter_map(std::future::ready).collect().await;
    let left_of = |(key, blocker): &(ObjectKey, Option<Blocker>)| {
        let blockers = match (blocker, read.get(key)) {
            (Some(blocker), _) => vec![blocker.clone()],
            // It was deleted meanwhile.
            (None, Some(None)) => return None,
            (None, Some(Some(object))) => blockers(object),
            (None, None) => vec![Blocker::Unconfirmed],
        };
        Some(Left { object: key.clone(), group: node.title.clone(), blockers })
    };
    left.iter().filter_map(left_of).collect()
}

fn resource<'a>(context: &Context<'a>, work: &'a Work, key: &ObjectKey) -> Option<&'a Resource> {
    match work {
        Work::Delete(DeleteWork { objects, collections, .. }) => {
            let task = objects.iter().find(|task| task.object == *key).map(|task| task.query);
            let query = task.or_else(|| {
                let of_kind = |query: usize| context.plan.queries[query].resource.kind == key.kind;
                collections.iter().map(|collection| collection.query).find(|query| of_kind(*query))
            })?;
            Some(&context.plan.queries[query].resource)
        }
        Work::Apply(ApplyWork { objects }) => {
            objects.iter().find(|task| task.object == *key).map(|task| &task.resource)
        }
        Work::Patch(PatchWork { objects }) => {
            objects.iter().find(|task| task.object == *key).map(|task| &task.resource)
        }
    }
}

/// Returns what an object's metadata and status say about its deletion.
pub(crate) fn blockers(object: &Value) -> Vec<Blocker> {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let list = |path: &str| object.pointer(path).and_then(Value::as_array).into_iter().flatten();
    let metadata = list("/metadata/finalizers").filter_map(Value::as_str).map(|finalizer| Blocker::Finalizer {
        finalizer: finalizer.to_owned(),
        manager: manager_of(object, finalizer),
    });
    // Every namespace has `kubernetes`; the conditions explain what its controller waits for.
    let spec = list("/spec/finalizers").filter_map(Value::as_str).filter(|f| *f != wellknown::NAMESPACE_FINALIZER);
    let spec = spec.map(|finalizer| Blocker::Finalizer { finalizer: finalizer.to_owned(), manager: None });
    let is_blocking = |condition: &&Value| {
        let r#type = text(condition, "type");
        (r#type.starts_with("Namespace") || r#type == "Terminating") && text(condition, "status") == "True"
    };
    let conditions = list("/status/conditions").filter(is_blocking).map(|condition| Blocker::Condition {
        condition: text(condition, "type"),
        message: text(condition, "message"),
    });
    let found: Vec<_> = metadata.chain(spec).chain(conditions).collect();
    if found.is_empty() { vec![Blocker::Unconfirmed] } else { found }
}

/// Returns the field manager whose `managedFields` entry owns a finalizer (`f:metadata.f:finalizers.v:"NAME"`).
fn manager_of(object: &Value, finalizer: &str) -> Option<String> {
    let entries = object.pointer("/metadata/managedFields")?.as_array()?;
    let owned = format!("v:{}", Value::from(finalizer));
    let owns = |entry: &&Value| {
        entry.pointer("/fieldsV1/f:metadata/f:finalizers").is_some_and(|finalizers| finalizers.get(&owned).is_some())
    };
    entries.iter().find(owns)?.get("manager")?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn finalizers_are_named_with_the_manager_that_set_them() {
        let object = json!({"metadata": {
        "finalizers": ["a.example/x", "b.example/y"],
        "managedFields": [
            {"manager": "kubectl", "fieldsV1": {"f:metadata": {"f:labels": {}}}},
            {"manager": "operator", "fieldsV1": {"f:metadata": {"f:finalizers": {".": {}, "v:\"a.example/x\"": {}}}}}
        ]}});
        let found: Vec<_> = blockers(&object).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["finalizer a.example/x (set by operator)", "finalizer b.example/y"]);
    }

    #[test]
    fn the_true_conditions_of_a_namespace_are_its_blockers() {
        let object = json!({"metadata": {}, "spec": {"finalizers": ["kubernetes"]}, "status": {"conditions": [
            {"type": "NamespaceContentRemaining", "status": "True", "message": "Some resources are remaining: pods. has 1 resource instances"},
            {"type": "NamespaceDeletionContentFailure", "status": "False", "message": "fine"}]}});
        let found: Vec<_> = blockers(&object).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["NamespaceContentRemaining: Some resources are remaining: pods. has 1 resource instances"]);
        assert_eq!(blockers(&json!({"metadata": {}})), [Blocker::Unconfirmed]);
    }
}
