//! The nodes of a deployment: the policy's groups, the classes of the rest, and the wait for readiness.

use std::collections::{BTreeMap, HashMap};

use billhook_objects::GroupKind;
use billhook_policy::{DeploymentGroup, ManifestPolicy, Members, ResourceClass, UpdateStrategy, WaitFor};

use crate::{
    ApplyAction, ApplyTask, ApplyWork, Barrier, Directives, Node, NoteCode, PatchTask, PatchWork, Plan, Resource, Wait,
    Work,
    delete::{info, warning},
    error::Problems,
    groups::{Matcher, Verdict, is_crd, place},
};

use super::{Scene, labels, own::Live};

/// Kinds that are ready as soon as they exist: nothing in their status says more.
const READY_WHEN_CREATED: [(&str, &str); 25] = [
    ("", "ConfigMap"),
    ("", "Endpoints"),
    ("", "LimitRange"),
    ("", "PodTemplate"),
    ("", "ResourceQuota"),
    ("", "Secret"),
    ("", "Service"),
    ("", "ServiceAccount"),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
    ("coordination.k8s.io", "Lease"),
    ("discovery.k8s.io", "EndpointSlice"),
    ("networking.k8s.io", "Ingress"),
    ("networking.k8s.io", "IngressClass"),
    ("networking.k8s.io", "NetworkPolicy"),
    ("node.k8s.io", "RuntimeClass"),
    ("rbac.authorization.k8s.io", "ClusterRole"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
    ("rbac.authorization.k8s.io", "Role"),
    ("rbac.authorization.k8s.io", "RoleBinding"),
    ("scheduling.k8s.io", "PriorityClass"),
    ("storage.k8s.io", "CSIDriver"),
    ("storage.k8s.io", "StorageClass"),
];

/// Pods, and what makes Pods.
const WORKLOADS: [(&str, &str); 6] = [
    ("", "Pod"),
    ("", "ReplicationController"),
    ("apps", "DaemonSet"),
    ("apps", "Deployment"),
    ("apps", "ReplicaSet"),
    ("apps", "StatefulSet"),
];

/// A group of a deployment, and which manifests (by index) are in it.
pub(super) struct Stage<'a> {
    pub(super) group: std::borrow::Cow<'a, DeploymentGroup>,
    pub(super) members: Vec<usize>,
}

impl Stage<'_> {
    pub(super) fn place(&self) -> &str {
        place(&self.group.path, &self.group.title)
    }
}

impl Scene<'_> {
    pub(super) fn add_nodes(&self, live: &Live<'_>, plan: &mut Plan, problems: &mut Problems) {
        let stages = self.stages(plan, problems);
        self.check_order(&stages, live, problems);
        let mut resources: HashMap<(&GroupKind, &str), Resource> = HashMap::new();
        let (mut awaited, mut patches) = (Vec::new(), Vec::new());
        for stage in stages {
            let ready = stage.group.wait_for == WaitFor::Ready;
            let mut tasks = Vec::with_capacity(stage.members.len());
            for at in stage.members {
                let Some(task) = self.task(at, ready, live, &mut resources) else { continue };
                if !task.wait && self.is_awaited(&task.object.kind) {
                    let (action, strategy) = (ApplyAction::Await, UpdateStrategy::default());
                    awaited.push(ApplyTask { action, wait: true, strategy, ..task.clone() });
                }
                patches.extend(self.patch(at, &task, live));
                tasks.push(task);
            }
            add_node(plan, &stage.group, tasks);
        }
        let ready = DeploymentGroup { wait_for: WaitFor::Ready, ..group("ready", ResourceClass::Empty) };
        add_node(plan, &ready, awaited);
        plan.add_patches("after deployment", patches);
    }

    /// Whether the end of the deployment waits for objects of this kind.
    fn is_awaited(&self, kind: &GroupKind) -> bool {
        match self.request.wait {
            Wait::Nothing => false,
            Wait::Workloads => is_among(kind, &WORKLOADS),
            Wait::All => !is_ready_when_created(kind),
        }
    }

    /// The patch that an object gets once all is deployed; none where the object is left as it is.
    fn patch(&self, at: usize, task: &ApplyTask, live: &Live<'_>) -> Option<PatchTask> {
        let manifest = self.request.manifests.get(at)?;
        let patch = self.request.directives.get(&task.object)?.patch_after.clone()?;
        let resource = Resource { version: manifest.api_version.version().to_owned(), ..task.resource.clone() };
        let uid = live.existing.get(&task.object).map(|object| object.uid.clone());
        let object = task.object.clone();
        (task.action != ApplyAction::Unchanged).then_some(PatchTask { object, resource, uid, patch })
    }

    fn task<'s>(
        &'s self,
        at: usize,
        ready: bool,
        live: &Live<'_>,
        resources: &mut HashMap<(&'s GroupKind, &'s str), Resource>,
    ) -> Option<ApplyTask> {
        let manifest = self.request.manifests.get(at)?;
        let (kind, version) = (&manifest.key.kind, manifest.api_version.version());
        let resource = match resources.get(&(kind, version)) {
            Some(resource) => resource.clone(),
            None => {
                let resource = Resource::of(self.catalog.get(kind)?, Some(version));
                resources.entry((kind, version)).or_insert(resource).clone()
            }
        };
        // A CRD is always Established before anything follows it (contract, `deploymentGroups`).
        let wait = is_crd(kind) || (ready && !is_ready_when_created(kind));
        let action = (*live.actions.get(at)?)?;
        let Directives { policy, annotate_before_create, .. } = self.directives(&manifest.key).into_owned();
        let seen = |when: bool| live.existing.get(&manifest.key).filter(|_| when);
        let is_left = action == ApplyAction::Unchanged && policy == ManifestPolicy::Immutable;
        let is_written = action != ApplyAction::Unchanged;
        Some(ApplyTask {
            object: manifest.key.clone(),
            resource,
            action,
            wait,
            resource_version: seen(action == ApplyAction::Update).map(|object| object.resource_version.clone()),
            strategy: if is_written { self.request.strategy } else { UpdateStrategy::default() },
            annotate_before_create: if is_written { annotate_before_create } else { BTreeMap::new() },
            uid: seen(is_left).map(|object| object.uid.clone()),
        })
    }

    /// Every object into the first group that has it; the rest by class, after the last group.
    fn stages(&self, plan: &mut Plan, problems: &mut Problems) -> Vec<Stage<'_>> {
        let classes = [ResourceClass::Crds, ResourceClass::ClusterScoped, ResourceClass::Namespaced];
        let groups = self.request.policy.deployment.iter().map(std::borrow::Cow::Borrowed);
        let rest = classes.map(|class| std::borrow::Cow::Owned(group(class.as_str(), class)));
        let mut stages: Vec<Stage<'_>> = groups.chain(rest).map(|group| Stage { group, members: Vec::new() }).collect();
        let members = self.members(&stages, plan, problems);
        for (stage, members) in stages.iter_mut().zip(members) {
            stage.members = members;
            stage.members.sort_unstable_by_key(|at| self.request.manifests.get(*at).map(|manifest| &manifest.key));
        }
        stages
    }

    fn members<'s>(&'s self, stages: &'s [Stage<'s>], plan: &mut Plan, problems: &mut Problems) -> Vec<Vec<usize>> {
        let resolve = |stage: &'s Stage<'s>| {
            let DeploymentGroup { members, excluded, .. } = stage.group.as_ref();
            Matcher::resolve(members, excluded, self.catalog, stage.place(), problems)
        };
        let matchers: Vec<Matcher<'_>> = stages.iter().map(resolve).collect();
        let not_served = matchers.iter().flat_map(|matcher| &matcher.not_served);
        plan.notes.extend(not_served.map(|message| warning(NoteCode::NotServed, message.clone())));
        let needs_labels = stages.iter().any(|stage| selects_labels(&stage.group));
        let mut members = vec![Vec::new(); stages.len()];
        for (at, manifest) in self.request.manifests.iter().enumerate() {
            let labels = if needs_labels { labels(manifest) } else { BTreeMap::new() };
            let first = matchers.iter().position(|matcher| matcher.judge(&manifest.key, &labels) == Verdict::Member);
            if let Some(stage) = first.and_then(|first| members.get_mut(first)) {
                stage.push(at);
            }
        }
        for ((stage, members), matcher) in stages.iter().zip(&members).zip(&matchers) {
            if members.is_empty() && matcher.has_entries() {
                let message = format!("{} ({}) matches nothing", stage.place(), stage.group.title);
                plan.notes.push(info(NoteCode::Order, message));
            }
        }
        members
    }
}

fn selects_labels(group: &DeploymentGroup) -> bool {
    let resources = if let Members::Resources(resources) = &group.members { resources.as_slice() } else { &[] };
    resources.iter().chain(&group.excluded).any(|selector| !selector.label_selector.is_empty())
}

fn group(title: &str, class: ResourceClass) -> DeploymentGroup {
    DeploymentGroup {
        title: title.to_owned(),
        path: String::new(),
        members: Members::Class(class),
        excluded: Vec::new(),
        wait_for: WaitFor::Exists,
        timeout: None,
    }
}

fn add_node(plan: &mut Plan, group: &DeploymentGroup, objects: Vec<ApplyTask>) {
    if objects.is_empty() {
        return;
    }
    let waits = objects.iter().any(|task| task.wait);
    plan.nodes.push(Node {
        title: group.title.clone(),
        path: group.path.clone(),
        after: plan.nodes.len().checked_sub(1).into_iter().collect(),
        cluster: None,
        work: Work::Apply(ApplyWork { objects }),
        barrier: if waits { Barrier::Ready } else { Barrier::Requested },
        timeout: group.timeout,
    });
}

impl Plan {
    /// Appends a node that patches objects, behind all that is there.
    pub(crate) fn add_patches(&mut self, title: &str, objects: Vec<PatchTask>) {
        if objects.is_empty() {
            return;
        }
        self.nodes.push(Node {
            title: title.to_owned(),
            path: String::new(),
            after: self.nodes.len().checked_sub(1).into_iter().collect(),
            cluster: None,
            work: Work::Patch(PatchWork { objects }),
            barrier: Barrier::Requested,
            timeout: None,
        });
    }
}

fn is_ready_when_created(kind: &GroupKind) -> bool {
    is_among(kind, &READY_WHEN_CREATED)
}

fn is_among(kind: &GroupKind, kinds: &[(&str, &str)]) -> bool {
    kinds.iter().any(|(group, name)| kind.is(group, name))
}
