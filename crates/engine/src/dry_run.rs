//! Dry runs on the server: every request of a plan passes admission, and none takes effect.

use std::collections::{BTreeMap, BTreeSet};

use billhook_cluster::DeleteOptions;
use billhook_objects::{GroupKind, Manifest, ObjectKey, ResourceType, Schema, wellknown};
use billhook_plan::{ApplyAction, ApplyTask, DeleteTask, Plan, Step, Work};
use futures::{FutureExt as _, StreamExt as _};
use serde::Serialize;

use crate::{
    Clusters,
    node::WINDOW,
    write::{self, How},
};

/// How many of an object's violations of its schema are named.
const NAMED: usize = 10;

/// Whether a change of a plan would be accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DryRunAnswer {
    /// The object.
    pub object: ObjectKey,
    /// Whether nothing rejects the change.
    pub accepted: bool,
    /// Why it is rejected: by the server, or by the schema of the object's CRD.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Why the server was not asked; none if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_checked: Option<NotChecked>,
}

/// Why the server cannot check a creation before the release is deployed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum NotChecked {
    /// The release contains the CRD of its kind, which the server does not serve yet. The object is validated by the schema
    /// of the CRD.
    NoDefinition {
        /// Whether the schema has CEL rules, which are not evaluated.
        has_rules: bool,
    },
    /// The release or the operation creates its Namespace, which does not exist yet.
    NoNamespace,
}

impl DryRunAnswer {
    fn new(object: &ObjectKey, message: Option<String>, not_checked: Option<NotChecked>) -> Self {
        Self { object: object.clone(), accepted: message.is_none(), message, not_checked }
    }
}

/// Sends every request of a plan with `dryRun=All` and returns whether the server would accept it.
///
/// The server cannot check what depends on other changes of the plan. Objects of kinds in `not_served`, which the release's
/// own CRDs define, are validated by the schemas of these CRDs; objects in namespaces that the plan creates are only marked;
/// patches are skipped.
pub async fn dry_run(
    plan: &Plan,
    clusters: &Clusters,
    manifests: &BTreeMap<ObjectKey, Manifest>,
    not_served: &BTreeSet<GroupKind>,
    force_conflicts: bool,
) -> Vec<DryRunAnswer> {
    let mut unchecked = Unchecked::new(plan, manifests, not_served);
    let how = &How { field_manager: plan.field_manager(), force_conflicts, dry_run: true };
    let mut requests = Vec::new();
    for node in &plan.nodes {
        let Some(cluster) = clusters.get(node.cluster.as_deref()) else { continue };
        let deletes: Vec<_> = match &node.work {
            Work::Delete(work) => {
                let resource = |task: &DeleteTask| &plan.queries[task.query].resource;
                work.objects.iter().map(|t| (&t.object, resource(t), &t.uid, work.propagation)).collect()
            }
            work => {
                let steps = work.steps().iter().filter_map(Step::delete);
                steps.map(|step| (&step.object, &step.resource, &step.uid, step.propagation)).collect()
            }
        };
        requests.extend(deletes.into_iter().map(|(object, resource, uid, propagation)| {
            let options =
                DeleteOptions { uid: Some(uid.clone()), propagation, dry_run: true, ..DeleteOptions::default() };
            async move {
                let answer = cluster.delete(resource, object, &options).await;
                DryRunAnswer::new(object, answer.err().map(|error| error.message()), None)
            }
            .boxed()
        }));
        let sent = |task: &&ApplyTask| {
            !matches!(task.action, ApplyAction::Await | ApplyAction::Unchanged | ApplyAction::Recreate)
        };
        let written = node.work.apply_tasks().filter(sent).filter_map(|t| Some((t, manifests.get(&t.object)?)));
        requests.extend(written.map(|(task, manifest)| {
            if let Some(answer) = unchecked.answer(manifest) {
                return std::future::ready(answer).boxed();
            }
            async move {
                let answer = write::apply(cluster, task, manifest, how).await;
                DryRunAnswer::new(&task.object, answer.err().map(|error| error.message()), None)
            }
            .boxed()
        }));
    }
    futures::stream::iter(requests).buffered(WINDOW).collect().await
}

/// What the server cannot check yet.
pub(crate) struct Unchecked<'a> {
    /// The kinds that it does not serve, each with its CRD.
    definitions: BTreeMap<GroupKind, &'a Manifest>,
    /// The schemas that were needed so far, by kind and version; none if the CRD does not have the version.
    schemas: BTreeMap<(GroupKind, String), Option<Schema>>,
    /// The namespaces that the plan creates.
    namespaces: BTreeSet<&'a str>,
}

impl<'a> Unchecked<'a> {
    pub(crate) fn new(
        plan: &'a Plan,
        manifests: &'a BTreeMap<ObjectKey, Manifest>,
        not_served: &BTreeSet<GroupKind>,
    ) -> Self {
        let crds =
            manifests.values().filter(|manifest| !not_served.is_empty() && manifest.key.kind == wellknown::crd());
        let definitions = crds.filter_map(|crd| Some((ResourceType::from_crd(&crd.value())?.kind, crd)));
        let created = plan.apply_tasks().filter(|task| task.action == ApplyAction::Create);
        let namespaces = created.map(|task| &task.object).filter(|key| key.kind == wellknown::namespace());
        Self {
            definitions: definitions.filter(|(kind, _)| not_served.contains(kind)).collect(),
            schemas: BTreeMap::new(),
            namespaces: plan.namespaces.iter().map(String::as_str).chain(namespaces.map(|key| &*key.name)).collect(),
        }
    }

    /// Returns the answer for an object that the server cannot check.
    pub(crate) fn answer(&mut self, manifest: &Manifest) -> Option<DryRunAnswer> {
        let key = &manifest.key;
        if let Some(crd) = self.definitions.get(&key.kind) {
            let version = manifest.api_version.version();
            let schema = self.schemas.entry((key.kind.clone(), version.to_owned()));
            let schema = schema.or_insert_with(|| Schema::from_crd(&crd.value(), version)).as_mut();
            let has_rules = schema.as_ref().is_some_and(|schema| schema.has_rules());
            let problems = schema.map(|schema| schema.problems(&manifest.value())).unwrap_or_default();
            let message = (!problems.is_empty()).then(|| listed(&problems));
            return Some(DryRunAnswer::new(key, message, Some(NotChecked::NoDefinition { has_rules })));
        }
        let is_new = key.namespace.as_deref().is_some_and(|namespace| self.namespaces.contains(namespace));
        is_new.then(|| DryRunAnswer::new(key, None, Some(NotChecked::NoNamespace)))
    }
}

fn listed(problems: &[String]) -> String {
    let more = problems.len().saturating_sub(NAMED);
    let named = problems[..problems.len() - more].join("; ");
    if more > 0 { format!("{named}; and {more} more") } else { named }
}
