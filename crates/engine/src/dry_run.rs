//! Dry runs on the server: every request of a plan passes admission, and none takes effect.

use std::collections::BTreeMap;

use billhook_cluster::DeleteOptions;
use billhook_objects::{Manifest, ObjectKey};
use billhook_plan::{ApplyAction, ApplyTask, Plan, Work};
use futures::{FutureExt as _, StreamExt as _};

use crate::{
    Clusters,
    write::{self, How},
};

/// How many requests are sent concurrently.
const AT_ONCE: usize = 64;

/// Sends every request of a plan with `dryRun=All` and returns why the server rejects it, or none if it accepts it.
///
/// The server rejects objects whose kind or namespace the plan itself creates, since it does not know them yet. Patches are
/// skipped, since they depend on requests before them.
pub async fn dry_run(
    plan: &Plan,
    clusters: &Clusters,
    manifests: &BTreeMap<ObjectKey, Manifest>,
    force_conflicts: bool,
) -> Vec<(ObjectKey, Option<String>)> {
    let how = &How { field_manager: plan.field_manager(), force_conflicts, dry_run: true };
    let mut requests = Vec::new();
    for node in &plan.nodes {
        let Some(cluster) = clusters.get(node.cluster.as_deref()) else { continue };
        match &node.work {
            Work::Delete(work) => requests.extend(work.objects.iter().map(|task| {
                let options =
                    DeleteOptions { uid: Some(task.uid.clone()), propagation: work.propagation, dry_run: true };
                let resource = &plan.queries[task.query].resource;
                async move {
                    let answer = cluster.delete(resource, &task.object, &options).await;
                    (task.object.clone(), answer.err().map(|error| error.message()))
                }
                .boxed()
            })),
            Work::Apply(work) => {
                let sent = |task: &&ApplyTask| !matches!(task.action, ApplyAction::Await | ApplyAction::Unchanged);
                let written = work.objects.iter().filter(sent).filter_map(|t| Some((t, manifests.get(&t.object)?)));
                requests.extend(written.map(|(task, manifest)| {
                    async move {
                        let answer = write::apply(cluster, task, manifest, how).await;
                        (task.object.clone(), answer.err().map(|error| error.message()))
                    }
                    .boxed()
                }));
            }
            Work::Patch(_) => {}
        }
    }
    futures::stream::iter(requests).buffered(AT_ONCE).collect().await
}
