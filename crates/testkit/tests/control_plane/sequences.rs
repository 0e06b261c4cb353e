//! A graph of tasks on a real API server: its order, a deletion that a finalizer delays, and how a later apply verifies it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use billhook_cluster::{Cluster, Holder, Options};
use billhook_engine::{
    ApplyInput, Clusters, DeploymentOrder, GraphOf, RunOptions, Status, Summary, apply, prepare_apply,
};
use billhook_objects::{Manifest, ReleaseName, yaml};
use billhook_plan::{DeletionState, Plan, StepAction, TaskGraph, TaskNode, TaskStep};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio_util::sync::CancellationToken;

const NAMESPACE: &str = "sequences";

/// A CRD, an instance of it, and two ConfigMaps.
const MANIFESTS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gears.sequences.example}
spec:
  group: sequences.example
  scope: Namespaced
  names: {kind: Gear, plural: gears}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
---
{apiVersion: sequences.example/v1, kind: Gear, metadata: {name: g}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: b}}
";

fn graph(deleted: &[usize]) -> TaskGraph {
    let step = |manifest: usize| match deleted.contains(&manifest) {
        true => TaskStep { manifest, action: StepAction::Delete },
        false => TaskStep { manifest, action: StepAction::Apply { wait: false } },
    };
    let node = |title: &str, after: Vec<usize>, steps: &[usize]| TaskNode {
        title: title.to_owned(),
        after,
        steps: steps.iter().map(|manifest| step(*manifest)).collect(),
    };
    let nodes = vec![node("gears", vec![], &[0, 1]), node("a", vec![], &[2]), node("b", vec![0, 1], &[3])];
    TaskGraph { nodes, deletes: true, ..TaskGraph::default() }
}

async fn pass(clusters: &Clusters, deleted: &[usize]) -> Result<(Plan, Summary)> {
    let documents = yaml::parse(MANIFESTS).ok().context("the manifests are YAML")?;
    let manifests = documents.into_iter().flat_map(|document| Manifest::from_document(document, &"f".into()));
    let input = ApplyInput {
        order: DeploymentOrder::Graph(fixed(graph(deleted))),
        version: Some("1".to_owned()),
        ..ApplyInput::new(ReleaseName::new(NAMESPACE, "web").context("a name")?, manifests.flatten().collect())
    };
    let prepared = prepare_apply(clusters, input).await?;
    let plan = prepared.plan.clone();
    let options = RunOptions {
        timeout: Some(Duration::from_secs(60)),
        stop: CancellationToken::new(),
        sink: Arc::new(|_| {}),
        force_conflicts: false,
    };
    Ok((plan, apply(clusters, prepared, &options).await?))
}

#[test]
fn a_graph_runs_in_order_and_verifies_its_deletions() -> Result<()> {
    let control_plane = super::shared()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = Client::try_from(control_plane.client_config(super::User::Admin).await?)?;
        let namespace = json!({"metadata": {"name": NAMESPACE}});
        let namespace: Namespace = serde_json::from_value(namespace)?;
        Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
        let clusters = Clusters {
            own: Cluster::from_client(client.clone(), Options::default()),
            records: None,
            targets: BTreeMap::new(),
            now: "2026-01-01T00:00:00Z".to_owned(),
            holder: Holder::new("test", 1, None),
        };
        let maps: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);

        let summary = pass(&clusters, &[]).await?.1;
        ensure!((summary.status, summary.applied) == (Status::Done, 4), "{summary:?}");
        let revision = |map: &ConfigMap| map.metadata.resource_version.as_ref()?.parse::<u64>().ok();
        let (a, b) = (maps.get("a").await?, maps.get("b").await?);
        ensure!(revision(&a) < revision(&b), "{a:?} {b:?}");
        let patches = summary.requests.get("patch").copied();
        let summary = pass(&clusters, &[]).await?.1;
        ensure!((summary.status, summary.unchanged) == (Status::Done, 4), "{summary:?}");
        ensure!(summary.requests.get("patch").copied() == patches, "{summary:?}");

        let guarded = json!({"metadata": {"finalizers": ["sequences.example/guard"]}});
        maps.patch("a", &PatchParams::default(), &Patch::Merge(guarded)).await?;
        let (plan, summary) = pass(&clusters, &[1, 2]).await?;
        ensure!(summary.status == Status::Done && summary.requested.len() == 2, "{plan:?} {summary:?}");
        let (plan, summary) = pass(&clusters, &[1, 2]).await?;
        let states: Vec<_> = plan.requested_deletions.iter().map(|deletion| deletion.state).collect();
        let waits = matches!(states[..], [DeletionState::NotFound, DeletionState::Deleting { deleted_at: Some(_) }]);
        ensure!(waits && summary.requested.is_empty(), "{states:?}");

        let free = json!({"metadata": {"finalizers": null}});
        maps.patch("a", &PatchParams::default(), &Patch::Merge(free)).await?;
        let plan = pass(&clusters, &[1, 2]).await?.0;
        let found: Vec<_> = plan.requested_deletions.iter().map(|d| (d.state, d.recorded)).collect();
        ensure!(found == [(DeletionState::NotFound, false), (DeletionState::NotFound, true)], "{found:?}");
        let plan = pass(&clusters, &[1, 2]).await?.0;
        ensure!(plan.requested_deletions.iter().all(|d| d.deleted_before.is_some() && !d.recorded), "{plan:?}");
        Ok(())
    })
}

/// Returns a graph that does not depend on the history.
fn fixed(graph: TaskGraph) -> GraphOf {
    Box::new(move |_| graph)
}
