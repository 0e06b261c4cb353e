//! Builds the nodes of a deployment: the policy's groups, the classes of the rest, and the wait for readiness.

use std::collections::{BTreeMap, HashMap};

use billhook_objects::{GroupKind, ReleaseName, wellknown::FIELD_MANAGER};
use billhook_policy::{DeploymentGroup, ManifestPolicy, ResourceClass, UpdateStrategy, WaitFor};

use crate::{
    ApplyAction, ApplyTask, ApplyWork, Barrier, Counts, Directives, Node, NoteKind, PatchTask, Plan, Resource, Tracked,
    Uncovered, UncoveredCause, UncoveredNote, Work, groups::is_crd,
};

use super::{
    deployment::Deployment,
    existing::Existing,
    pruning::Kept,
    stages::{Stage, group_of_class},
    wait::is_ready_when_created,
};

/// The resources of the kinds and versions that manifests have, each looked up once.
pub(super) type Resources<'a> = HashMap<(&'a GroupKind, &'a str), Resource>;

impl Deployment<'_> {
    pub(super) fn append_nodes(&self, stages: Vec<Stage<'_>>, existing: &Existing<'_>, plan: &mut Plan) {
        let mut resources = Resources::new();
        let (mut awaited, mut patches) = (Vec::new(), Vec::new());
        for stage in stages {
            let ready = stage.group.wait_for == WaitFor::Ready;
            let mut tasks = Vec::with_capacity(stage.members.len());
            for at in stage.members {
                let Some(task) = self.task(at, ready, existing, &mut resources) else { continue };
                let skips = existing.treatment(at).skip_health_check;
                if !task.wait && !skips && self.is_awaited(&task.object.kind) {
                    let (action, strategy) = (ApplyAction::Await, UpdateStrategy::default());
                    let uid = task.left().cloned();
                    awaited.push(ApplyTask { action, wait: true, strategy, uid, recreate: None, ..task.clone() });
                }
                patches.extend(self.patch(at, &task, existing));
                tasks.push(task);
            }
            append_node(plan, &stage.group, tasks);
        }
        let ready = DeploymentGroup { wait_for: WaitFor::Ready, ..group_of_class("ready", ResourceClass::Empty) };
        append_node(plan, &ready, awaited);
        plan.append_patches("patches after deployment", patches);
    }

    /// Appends the nodes of a pruning: the old objects are deleted once the new ones are applied, and ready if awaited.
    pub(super) fn append_pruning(&self, pruning: Plan, plan: &mut Plan) {
        let queries = plan.queries.len();
        for mut node in pruning.nodes {
            if let Work::Delete(work) = &mut node.work {
                work.collections.iter_mut().for_each(|collection| collection.query += queries);
                for task in &mut work.objects {
                    task.query += queries;
                    task.instances.iter_mut().for_each(|instances| *instances += queries);
                }
            }
            plan.append(node);
        }
        plan.queries.extend(pruning.queries);
        plan.uncovered.extend(pruning.uncovered);
        plan.unmanaged.extend(pruning.unmanaged);
        plan.unmanaged.sort_unstable();
        plan.notes.extend(pruning.notes);
        let mut not_pruned = Counts::default();
        for Kept { object, needed } in &self.kept {
            if *needed {
                plan.uncovered.push(Uncovered::new(object, UncoveredCause::Needed));
                plan.notes.push(NoteKind::Uncovered(UncoveredNote::Needed { object: object.clone() }).into());
            } else {
                not_pruned.add(&object.kind);
            }
        }
        if not_pruned.total() > 0 {
            plan.notes.push(NoteKind::Uncovered(UncoveredNote::NotPruned { counts: not_pruned }).into());
        }
        plan.uncovered.sort_by(|a, b| a.object.cmp(&b.object));
    }

    /// Returns the patch that an object gets after the deployment; none if the object remains unchanged.
    pub(super) fn patch(&self, at: usize, task: &ApplyTask, existing: &Existing<'_>) -> Option<PatchTask> {
        let manifest = self.request.manifests.get(at)?;
        let patch = self.request.directives.get(&task.object)?.patch_after.clone()?;
        let resource = Resource { version: manifest.api_version.version().to_owned(), ..task.resource.clone() };
        let uid = existing.objects.get(&task.object).map(|object| object.uid.clone());
        let object = task.object.clone();
        (task.action != ApplyAction::Unchanged).then(|| PatchTask::new(object, resource, uid, patch))
    }

    pub(super) fn task<'s>(
        &'s self,
        at: usize,
        ready: bool,
        existing: &Existing<'_>,
        resources: &mut Resources<'s>,
    ) -> Option<ApplyTask> {
        let manifest = self.request.manifests.get(at)?;
        let (kind, version) = (&manifest.key.kind, manifest.api_version.version());
        let resource = match resources.get(&(kind, version)) {
            Some(resource) => resource.clone(),
            None => {
                let resource = Resource::of(self.catalog().get(kind)?, Some(version));
                resources.entry((kind, version)).or_insert(resource).clone()
            }
        };
        // A CRD is always Established before the next node starts, since later objects may be its instances.
        let treatment = existing.treatment(at);
        let wait = is_crd(kind) || (ready && !treatment.skip_health_check && !is_ready_when_created(kind));
        let action = (*existing.actions.get(at)?)?;
        let Directives { policy, adopt, leave_others, annotate_before_create, .. } =
            self.directives(&manifest.key).into_owned();
        let seen = |when: bool| existing.objects.get(&manifest.key).filter(|_| when);
        let is_written = action != ApplyAction::Unchanged;
        let existing_uid = is_written || policy == ManifestPolicy::Immutable || treatment.ignore;
        let adopts = action == ApplyAction::Adopt;
        let is_former = |manager: &&String| {
            let release = ReleaseName::of_field_manager(manager).filter(|_| adopts);
            *manager == FIELD_MANAGER || release.is_some_and(|release| self.gone.contains(&release.label_value()))
        };
        let formers = |tracked: &Tracked| tracked.managers.iter().filter(is_former).cloned().collect();
        let strategy = if is_written { self.request.strategy } else { UpdateStrategy::default() };
        Some(ApplyTask {
            object: manifest.key.clone(),
            resource,
            action,
            wait,
            health: None,
            resource_version: seen(action == ApplyAction::Update).map(|object| object.resource_version.clone()),
            strategy,
            annotate_before_create: if is_written { annotate_before_create } else { BTreeMap::new() },
            uid: seen(existing_uid).map(|object| object.uid.clone()),
            adopt: action == ApplyAction::Create
                && (self.request.adopt || adopt)
                && !treatment.ignore
                && !matches!(policy, ManifestPolicy::Immutable | ManifestPolicy::Fallback),
            leave_others: leave_others && action == ApplyAction::Create,
            takes_over: seen(is_written && strategy == UpdateStrategy::ServerSide)
                .and_then(|object| object.tracked.as_ref().map(formers))
                .unwrap_or_default(),
            recreate: treatment.recreate.filter(|_| action == ApplyAction::Update),
        })
    }
}

fn append_node(plan: &mut Plan, group: &DeploymentGroup, objects: Vec<ApplyTask>) {
    if objects.is_empty() {
        return;
    }
    let waits = objects.iter().any(|task| task.wait);
    plan.append(Node {
        title: group.title.clone(),
        path: group.path.clone(),
        after: Vec::new(),
        cluster: None,
        work: Work::Apply(ApplyWork { objects }),
        barrier: if waits { Barrier::Ready } else { Barrier::Requested },
        timeout: group.timeout,
    });
}
