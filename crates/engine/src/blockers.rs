//! Finds what blocks the objects that are left: finalizers and who set them, the conditions of a Namespace or CRD.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use billhook_cluster::{Cluster, Error};
use billhook_objects::{GroupKind, ObjectKey, wellknown};
use billhook_plan::{ApplyWork, DeleteWork, Node, PatchWork, Resource, Step, Work};
use futures::StreamExt as _;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::{Blocker, Left, dependents, node::Context};

/// How many objects are read for their blockers at most.
const MAX_READ: usize = 500;
/// How many objects of one kind with the same finalizers are read: enough to find who sets these.
const SAMPLE: usize = 3;
/// How many objects are read at a time.
const AT_ONCE: usize = 16;
/// The time limit for reading all objects: the user has waited for a time limit already, or has pressed Ctrl-C.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// What was last seen of what keeps objects.
type Seen = BTreeMap<ObjectKey, Vec<Blocker>>;

/// Turns what a node left into [`Left`]. The objects whose blockers the node does not know are read, unless the watch shows
/// that finalizers hold them: of these, a few are read for the managers of the finalizers.
pub(crate) async fn explain(
    context: &Context<'_>,
    node: &Node,
    left: Vec<(ObjectKey, Option<Blocker>)>,
    seen: &Seen,
    until: Instant,
) -> Vec<Left> {
    let cluster = context.clusters.get(node.cluster.as_deref());
    let chosen = to_read(&left, seen);
    let reads = chosen.into_iter().map(|key| async move {
        let read = look(cluster?, resource(context, &node.work, key)?, key);
        Some((key, timeout_at(until, read).await.ok()?.ok()?))
    });
    // Collected, because the compiler cannot prove a future `Send` that holds these closures across an await.
    let reads: Vec<_> = reads.collect();
    let read: HashMap<_, _> =
        futures::stream::iter(reads).buffered(AT_ONCE).filter_map(std::future::ready).collect().await;
    let blockers = |looked: Looked| match looked.blockers {
        none if none.is_empty() => vec![Blocker::Unconfirmed],
        blockers => blockers,
    };
    let read: HashMap<_, _> = read.into_iter().map(|(key, found)| (key, found.map(blockers))).collect();
    let managers = managers(&read);
    let left_of = |(key, blocker): &(ObjectKey, Option<Blocker>)| {
        let blockers = match (blocker, read.get(key)) {
            (Some(blocker), _) => vec![blocker.clone()],
            // It was deleted meanwhile.
            (None, Some(None)) => return None,
            (None, Some(Some(blockers))) => blockers.clone(),
            (None, None) => match seen.get(key) {
                Some(seen) => seen.iter().map(|blocker| with_manager(key, blocker, &managers)).collect(),
                None => vec![Blocker::Unconfirmed],
            },
        };
        Some(Left { object: key.clone(), group: node.title.clone(), blockers })
    };
    left.iter().filter_map(left_of).collect()
}

/// Returns the objects to read: those whose blockers are not known, and a sample of those that finalizers hold.
fn to_read<'a>(left: &'a [(ObjectKey, Option<Blocker>)], seen: &'a Seen) -> Vec<&'a ObjectKey> {
    let mut samples: HashMap<_, usize> = HashMap::new();
    let mut chosen = Vec::new();
    for (key, _) in left.iter().filter(|(_, blocker)| blocker.is_none()) {
        let is_finalizer = |blocker: &Blocker| matches!(blocker, Blocker::Finalizer { .. });
        if let Some(blockers) = seen.get(key).filter(|blockers| blockers.iter().all(is_finalizer)) {
            let read = samples.entry((&key.kind, blockers)).or_default();
            *read += 1;
            if *read > SAMPLE {
                continue;
            }
        }
        chosen.push(key);
    }
    chosen.truncate(MAX_READ);
    chosen
}

/// The manager of a finalizer on the objects of a kind; none if it differs between the objects that were read.
type Managers<'a> = HashMap<(&'a GroupKind, &'a str), Option<&'a str>>;

fn managers<'a>(read: &'a HashMap<&'a ObjectKey, Option<Vec<Blocker>>>) -> Managers<'a> {
    let mut managers = Managers::new();
    for (key, blockers) in read {
        for blocker in blockers.iter().flatten() {
            if let Blocker::Finalizer { finalizer, manager } = blocker {
                let known = managers.entry((&key.kind, finalizer)).or_insert(manager.as_deref());
                *known = known.filter(|known| manager.as_deref() == Some(known));
            }
        }
    }
    managers
}

fn with_manager(key: &ObjectKey, blocker: &Blocker, managers: &Managers<'_>) -> Blocker {
    match blocker {
        Blocker::Finalizer { finalizer, manager: None } => {
            let manager = managers.get(&(&key.kind, finalizer.as_str())).copied().flatten();
            Blocker::Finalizer { finalizer: finalizer.clone(), manager: manager.map(str::to_owned) }
        }
        other => other.clone(),
    }
}

/// What an object says about its deletion and its creation.
pub(crate) struct Looked {
    /// What keeps it from being gone; nothing if it gives no reason.
    pub blockers: Vec<Blocker>,
    /// The field manager that created it.
    pub creator: Option<String>,
}

impl Looked {
    pub fn at(object: &Value) -> Self {
        let mut blockers = blockers(object);
        blockers.retain(|blocker| *blocker != Blocker::Unconfirmed);
        Self { blockers, creator: creator(object) }
    }
}

/// Reads what an object says about its deletion and its creation, and which dependents it waits for; none if it is gone.
pub(crate) async fn look(cluster: &Cluster, resource: &Resource, key: &ObjectKey) -> Result<Option<Looked>, Error> {
    let Some(object) = cluster.get(resource, key).await? else { return Ok(None) };
    let mut looked = Looked::at(&object);
    looked.blockers.extend(dependents::remaining(cluster, key, &object).await);
    Ok(Some(looked))
}

/// Returns the field manager that created an object: that of its oldest `managedFields` entry.
fn creator(object: &Value) -> Option<String> {
    let entries = object.pointer("/metadata/managedFields")?.as_array()?;
    let oldest = entries.iter().min_by_key(|entry| entry["time"].as_str())?;
    oldest["manager"].as_str().map(str::to_owned)
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
        Work::Patch(PatchWork { objects, .. }) => {
            objects.iter().find(|task| task.object == *key).map(|task| &task.resource)
        }
        Work::Sequence(work) => work.steps.iter().find(|step| step.object() == key).and_then(Step::resource),
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
    let error = object.pointer("/status/lastError").filter(|_| is_extension(object)).map(|error| Blocker::LastError {
        description: text(error, "description"),
        codes: error["codes"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect(),
    });
    let found: Vec<_> = metadata.chain(spec).chain(error).chain(conditions).collect();
    let node = object.pointer("/spec/nodeName").and_then(Value::as_str).filter(|_| object["kind"] == "Pod");
    if let (true, Some(node)) = (found.is_empty(), node) {
        return vec![Blocker::Node { node: node.to_owned() }];
    }
    if found.is_empty() { vec![Blocker::Unconfirmed] } else { found }
}

/// The API group of Gardener's extension objects, whose status tells why their last operation failed.
pub(crate) const EXTENSIONS: &str = "extensions.gardener.cloud";

fn is_extension(object: &Value) -> bool {
    let group = object["apiVersion"].as_str().and_then(|version| version.split_once('/'));
    group.is_some_and(|(group, _)| group == EXTENSIONS)
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
    fn the_last_error_of_an_extension_object_is_a_blocker() {
        let object = |group: &str, codes: Value| {
            json!({
                "apiVersion": format!("{group}/v1alpha1"),
                "metadata": {"finalizers": ["a.example/x"]},
                "status": {"lastError": {"description": "no access", "codes": codes}},
            })
        };
        let found = |object: &Value| blockers(object).iter().map(ToString::to_string).collect::<Vec<_>>();
        let codes = json!(["ERR_INFRA_UNAUTHORIZED", "ERR_INFRA_DEPENDENCIES"]);
        let with_codes = "last error: no access (ERR_INFRA_UNAUTHORIZED, ERR_INFRA_DEPENDENCIES)";
        assert_eq!(found(&object(EXTENSIONS, codes.clone())), ["finalizer a.example/x", with_codes]);
        assert_eq!(found(&object(EXTENSIONS, Value::Null)), ["finalizer a.example/x", "last error: no access"]);
        // What other kinds mean by such a field is unknown.
        assert_eq!(found(&object("other.example", codes)), ["finalizer a.example/x"]);
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
