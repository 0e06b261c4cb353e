//! Writes one object: by the update strategy of its task, or by deleting and creating it again.

use billhook_cluster::{Applied, Change, Cluster, DeleteAnswer, DeleteOptions, Error, Known, WriteOptions};
use billhook_objects::{Manifest, ObjectKey, Uid};
use billhook_plan::{Annotations, ApplyTask, Resource};
use billhook_policy::UpdateStrategy;
use futures::StreamExt as _;

use tokio::time::sleep;

use crate::{
    queries::by_name,
    retry::{conflict_pause, is_recreated},
};

/// How the objects of a plan are written.
#[derive(Clone, Debug)]
pub(crate) struct How {
    /// The manager that owns the written fields.
    pub field_manager: String,
    pub force_conflicts: bool,
    pub dry_run: bool,
}

impl How {
    fn options<'a>(&'a self, task: &'a ApplyTask) -> WriteOptions<'a> {
        WriteOptions {
            strategy: task.strategy,
            expected: task.uid.as_ref(),
            field_manager: &self.field_manager,
            adopt: task.adopt,
            takes_over: &task.takes_over,
            annotate_before_create: &task.annotate_before_create,
            force_conflicts: self.force_conflicts,
            dry_run: self.dry_run,
        }
    }

    /// Returns how the object of a task is created.
    fn creation<'a>(&'a self, task: &'a ApplyTask) -> WriteOptions<'a> {
        WriteOptions { expected: None, takes_over: &[], adopt: false, ..self.options(task) }
    }
}

/// Returns how to address an object: it is written in the version of its manifest; the plan's resource may have another one.
fn resource(task: &ApplyTask, manifest: &Manifest) -> Resource {
    Resource { version: manifest.api_version.version().to_owned(), ..task.resource.clone() }
}

/// Writes an object by the update strategy of its task, if it is as the plan saw it. A dry run that is rejected as invalid tells
/// whether the object could be recreated, if the plan lets it.
pub(crate) async fn apply(
    cluster: &Cluster,
    task: &ApplyTask,
    manifest: &Manifest,
    how: &How,
) -> Result<Applied, Error> {
    let resource = resource(task, manifest);
    let written = cluster.write(&resource, &task.object, manifest.json(), &how.options(task)).await;
    match written {
        Err(error) if how.dry_run && is_recreated(task, error.kind()) => {
            try_creation(cluster, task, manifest, how).await
        }
        written => written,
    }
}

/// Creates an object from its manifest once it is gone. One that is not being deleted yet, because its update was rejected as
/// invalid, is deleted before. Returns nothing if its annotations do not let it be deleted any more. `waits` is told when the wait
/// begins, and why.
///
/// Every step can be repeated: after a crash, or a failure that is retried, an object that is gone is only created. The object
/// is deleted in the version in which its annotations were read, and only if the API server would accept its replacement.
pub(super) async fn recreate(
    cluster: &Cluster,
    task: &ApplyTask,
    manifest: &Manifest,
    how: &How,
    waits: impl Fn(&str),
) -> Result<Option<Applied>, Error> {
    let (resource, object) = (resource(task, manifest), &task.object);
    let annotations = Annotations::of_manifest(manifest);
    let mut conflicts = 0;
    // Who creates an object of this name meanwhile is found by the creation.
    while let Some(found) =
        cluster.get_meta(&resource, object).await?.filter(|found| Some(&found.uid) == task.uid.as_ref())
    {
        if found.deleting {
            waits("it is being deleted, and is created again once it is gone");
        } else {
            let Some(propagation) = found.annotations.with(&annotations).recreation(&object.kind) else {
                return Ok(None);
            };
            try_creation(cluster, task, manifest, how).await?;
            let options = DeleteOptions {
                uid: Some(found.uid.clone()),
                resource_version: found.resource_version,
                propagation,
                ..DeleteOptions::default()
            };
            if cluster.delete(&resource, object, &options).await? == DeleteAnswer::Changed {
                conflicts += 1;
                sleep(conflict_pause(conflicts)).await;
                continue;
            }
            waits("it was deleted because its update is invalid, and is created again once it is gone");
        }
        until_gone(cluster, &resource, object, &found.uid).await;
        break;
    }
    cluster.write(&resource, object, manifest.json(), &how.creation(task)).await.map(Some)
}

/// Asks the API server by a dry run whether it would accept an object as a new one. The name of the object exists, so that
/// another one takes its place.
async fn try_creation(cluster: &Cluster, task: &ApplyTask, manifest: &Manifest, how: &How) -> Result<Applied, Error> {
    let uid = task.uid.as_ref().map(Uid::as_str).unwrap_or_default();
    let other = ObjectKey { name: format!("billhook-{uid}"), ..task.object.clone() };
    let mut new = manifest.value();
    new["metadata"]["name"] = other.name.as_str().into();
    let options = WriteOptions { strategy: UpdateStrategy::Update, dry_run: true, ..how.creation(task) };
    match cluster.write(&resource(task, manifest), &other, &new.to_string(), &options).await {
        Ok(mut applied) => {
            if let Some(object) = &mut applied.object {
                object["metadata"]["name"] = task.object.name.as_str().into();
            }
            Ok(applied)
        }
        Err(error) => {
            let message = error.message();
            Err(error.because(format!(
                "the update is invalid, and the object is not recreated because the API server would reject it: {message}"
            )))
        }
    }
}

/// Waits until the API server has confirmed that an object is gone.
async fn until_gone(cluster: &Cluster, resource: &Resource, object: &ObjectKey, uid: &Uid) {
    for query in by_name([(object, resource)], None) {
        let objects = vec![(object.namespace.clone(), object.name.clone(), uid.clone())];
        let mut changes = cluster.watch(&query, Known { resource_version: None, objects });
        while let Some(change) = changes.next().await {
            match change {
                Change::Gone { uid: gone, .. } if gone == *uid => break,
                Change::KindGone => break,
                _ => {}
            }
        }
    }
}
