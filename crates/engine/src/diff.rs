//! What an apply would change, object by object: the live object beside the server's answer to the same write with
//! `dryRun=All`.

mod shown;

use std::collections::BTreeMap;

use billhook_cluster::{Cluster, Error};
use billhook_objects::{Manifest, ObjectKey, Uid, wellknown};
use billhook_plan::{ApplyAction, ApplyTask, DeleteTask, Plan, Resource, Step, Work};
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    Clusters, DryRunAnswer, PreparedApply, RefusedBy,
    dry_run::Unchecked,
    node::WINDOW,
    write::{self, How},
};

/// How often an object is compared while other clients change it between its read and the dry run.
const TRIES: u32 = 4;

/// An object that an apply would change.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectDiff {
    /// The object.
    pub object: ObjectKey,
    /// The name of the cluster that the object is in; none for the release's own.
    pub cluster: Option<String>,
    /// What the apply would do with it.
    pub action: DiffAction,
    /// How it would change.
    pub change: DiffChange,
}

/// What an apply would do with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DiffAction {
    /// Create it.
    Create,
    /// Update it.
    Update,
    /// Take it over from no release, and update it.
    Adopt,
    /// Delete it, because the new version does not contain it.
    Prune,
}

/// How an object would change. Neither state has fields that only the server sets, and values of Secrets are masked.
#[derive(Clone, Debug, PartialEq)]
pub enum DiffChange {
    /// The two states differ.
    Differs {
        /// The object now; none if it does not exist.
        live: Option<Value>,
        /// The object after the apply; none if it is then deleted.
        applied: Option<Value>,
        /// Whether the server has checked the write. It cannot check objects whose namespace or kind the release itself
        /// creates; `applied` is then the manifest.
        checked: bool,
    },
    /// A request failed, or the server rejects the write.
    Failed {
        /// The server's message.
        message: String,
        /// Which part of the API server rejected it.
        by: RefusedBy,
    },
}

impl From<Error> for DiffChange {
    fn from(error: Error) -> Self {
        Self::Failed { message: error.message(), by: RefusedBy::of(&error) }
    }
}

/// Compares the objects of a plan with what they would be after it, and passes on those that differ, in the order of the
/// plan. Changes nothing. Sends no request for an object that the plan leaves unchanged.
pub async fn diff(
    prepared: &PreparedApply,
    clusters: &Clusters,
    force_conflicts: bool,
    mut found: impl FnMut(ObjectDiff),
) {
    let (plan, manifests) = (&prepared.plan, &prepared.manifests);
    plan.namespaces.iter().map(|name| new_namespace(name)).for_each(&mut found);
    let patches = plan.patch_tasks().map(|task| (&task.object, &task.patch)).collect();
    let unchecked = Unchecked::new(plan, manifests, &prepared.not_served);
    let how = How { field_manager: plan.field_manager(), force_conflicts, dry_run: true };
    let mut context = Context { plan, manifests, patches, unchecked, how: &how };
    let mut comparisons = Vec::new();
    for node in &plan.nodes {
        let Some(cluster) = clusters.get(node.cluster.as_deref()) else { continue };
        comparisons.extend(context.objects(&node.work, node.cluster.as_deref(), cluster));
    }
    let mut compared = futures::stream::iter(comparisons).buffered(WINDOW);
    while let Some(object) = compared.next().await {
        object.into_iter().for_each(&mut found);
    }
}

/// What all objects of a plan share.
struct Context<'a> {
    plan: &'a Plan,
    manifests: &'a BTreeMap<ObjectKey, Manifest>,
    /// The patches of objects after the deployment.
    patches: BTreeMap<&'a ObjectKey, &'a Value>,
    unchecked: Unchecked<'a>,
    how: &'a How,
}

impl<'a> Context<'a> {
    /// Returns the comparisons of a node's objects.
    fn objects(
        &mut self,
        work: &'a Work,
        name: Option<&'a str>,
        cluster: &'a Cluster,
    ) -> Vec<BoxFuture<'a, Option<ObjectDiff>>> {
        let tasks = work.apply_tasks().filter_map(|task| Some((task, action(task.action)?)));
        let manifests = self.manifests;
        let written = tasks.filter_map(|(task, action)| Some((task, action, manifests.get(&task.object)?)));
        let mut objects: Vec<_> =
            written.map(|(task, action, manifest)| self.applied(cluster, task, action, manifest)).collect();
        match work {
            Work::Delete(work) => {
                let queries = &self.plan.queries;
                let found = work.objects.iter().filter_map(|task| Some((task, &queries.get(task.query)?.resource)));
                let pruned = |(task, resource): (&'a DeleteTask, &'a Resource)| {
                    pruned(cluster, name, (&task.object, &task.uid), resource).boxed()
                };
                objects.extend(found.map(pruned));
            }
            Work::Sequence(work) => {
                let deleted = work.steps.iter().filter_map(Step::delete);
                objects.extend(deleted.map(|s| pruned(cluster, name, (&s.object, &s.uid), &s.resource).boxed()));
            }
            // Patches of objects that are pruned make no difference, and the others are part of their objects.
            Work::Apply(_) | Work::Patch(_) => {}
        }
        objects
    }

    fn applied(
        &mut self,
        cluster: &'a Cluster,
        task: &'a ApplyTask,
        action: DiffAction,
        manifest: &'a Manifest,
    ) -> BoxFuture<'a, Option<ObjectDiff>> {
        let patch = self.patches.get(&task.object).copied();
        let (unchecked, how) = (self.unchecked.answer(manifest), self.how);
        async move {
            let is_deleted = task.action == ApplyAction::Recreate;
            let checked = unchecked.is_none() && !is_deleted;
            let states = match unchecked {
                None if is_deleted => Ok((None, manifest.value())),
                None => states(cluster, task, manifest, how).await.map_err(DiffChange::from),
                Some(DryRunAnswer { message: Some(message), .. }) => {
                    Err(DiffChange::Failed { message, by: RefusedBy::Server })
                }
                Some(_) => Ok((None, manifest.value())),
            };
            let states = states.map(|(live, mut applied)| {
                if let Some(patch) = patch {
                    json_patch::merge(&mut applied, patch);
                }
                (live, Some(applied))
            });
            object_diff(&task.object, None, action, checked, states)
        }
        .boxed()
    }
}

/// Reads an object, and writes it in a dry run. If it changes in between, both are done again: the difference would also
/// contain what another client did.
async fn states(
    cluster: &Cluster,
    task: &ApplyTask,
    manifest: &Manifest,
    how: &How,
) -> Result<(Option<Value>, Value), Error> {
    let resource = Resource { version: manifest.api_version.version().to_owned(), ..task.resource.clone() };
    let mut attempt = 1;
    loop {
        let live = match task.action {
            ApplyAction::Create => None,
            _ => cluster.get(&resource, &task.object).await?,
        };
        let answer = write::apply(cluster, task, manifest, how).await?;
        // The dry run of a recreation has no version.
        let is_new = answer.resource_version.is_empty();
        let same = |live: &Value| is_new || live["metadata"]["resourceVersion"] == answer.resource_version.as_str();
        if attempt == TRIES || live.as_ref().is_none_or(same) {
            return Ok((live, answer.object.unwrap_or_default()));
        }
        attempt += 1;
    }
}

async fn pruned(
    cluster: &Cluster,
    name: Option<&str>,
    (object, uid): (&ObjectKey, &Uid),
    resource: &Resource,
) -> Option<ObjectDiff> {
    let live = cluster.get(resource, object).await;
    // Another object of this name would not be deleted.
    let planned = |live: &Value| live["metadata"]["uid"] == uid.as_str();
    let states = live.map(|live| (live.filter(planned), None)).map_err(DiffChange::from);
    object_diff(object, name, DiffAction::Prune, true, states)
}

/// Returns what differs between two states as they are shown; none if nothing does.
fn object_diff(
    object: &ObjectKey,
    cluster: Option<&str>,
    action: DiffAction,
    checked: bool,
    states: Result<(Option<Value>, Option<Value>), DiffChange>,
) -> Option<ObjectDiff> {
    let change = match states {
        Err(failed) => failed,
        Ok((live, applied)) => {
            let (live, applied) = shown::shown(&object.kind, live, applied);
            if live == applied {
                return None;
            }
            DiffChange::Differs { live, applied, checked }
        }
    };
    Some(ObjectDiff { object: object.clone(), cluster: cluster.map(str::to_owned), action, change })
}

fn new_namespace(name: &str) -> ObjectDiff {
    let applied = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    ObjectDiff {
        object: ObjectKey::new(wellknown::namespace(), None, name),
        cluster: None,
        action: DiffAction::Create,
        change: DiffChange::Differs { live: None, applied: Some(applied), checked: false },
    }
}

fn action(action: ApplyAction) -> Option<DiffAction> {
    match action {
        ApplyAction::Create | ApplyAction::Recreate => Some(DiffAction::Create),
        ApplyAction::Update => Some(DiffAction::Update),
        ApplyAction::Adopt => Some(DiffAction::Adopt),
        ApplyAction::Unchanged | ApplyAction::Await => None,
    }
}
