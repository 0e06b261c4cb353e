//! A real payload, installed, updated with deletions, updated without the manifests of what was deleted, and deleted: on a
//! sandbox and on a real control plane. What is expected of the objects comes from an independent reading of the files.

#[path = "payload/folder.rs"]
mod folder;
#[path = "payload/program.rs"]
mod program;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use billhook_objects::{GroupKind, ObjectKey, Uid};
use billhook_sandbox::actors::{self, Script};
use billhook_sandbox::{Options, Sandbox, User};
use billhook_testkit::scenario::{Admin, Observer};
use kube::Client;
use serde_json::json;

use folder::Folder;
use program::{Program, Ran};

/// The namespace of the record, and that of the operator.
const RECORDS: &str = "openshift-cluster-version";
const OPERATOR: &str = "openshift-machine-api";

/// The value of the label that the objects of the release carry.
const LABEL: &str = "payload.openshift-cluster-version";

/// The kinds that the payload uses and does not define, and the namespaces.
const GIVEN: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clusteroperators.config.openshift.io}
spec:
  group: config.openshift.io
  scope: Cluster
  names: {kind: ClusterOperator, plural: clusteroperators}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: servicemonitors.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {kind: ServiceMonitor, plural: servicemonitors}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: openshift-cluster-version}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: openshift-machine-api}}
";

/// What 4.20.1 deletes: an operator with its parts, and CRDs of two other run levels. In the order of the payload.
const DELETED: [(&str, &str, &str, &str); 12] = [
    ("apiextensions.k8s.io", "CustomResourceDefinition", "", "imagecontentpolicies.config.openshift.io"),
    ("apiextensions.k8s.io", "CustomResourceDefinition", "", "clusterautoscalers.autoscaling.openshift.io"),
    ("rbac.authorization.k8s.io", "ClusterRole", "", "cluster-autoscaler-operator"),
    ("rbac.authorization.k8s.io", "Role", OPERATOR, "cluster-autoscaler-operator"),
    ("rbac.authorization.k8s.io", "RoleBinding", OPERATOR, "cluster-autoscaler-operator"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding", "", "cluster-autoscaler-operator"),
    ("", "ServiceAccount", OPERATOR, "cluster-autoscaler-operator"),
    ("", "Service", OPERATOR, "cluster-autoscaler-operator"),
    ("monitoring.coreos.com", "ServiceMonitor", OPERATOR, "cluster-autoscaler-operator"),
    ("apps", "Deployment", OPERATOR, "cluster-autoscaler-operator"),
    ("config.openshift.io", "ClusterOperator", "", "cluster-autoscaler"),
    ("apiextensions.k8s.io", "CustomResourceDefinition", "", "machineosbuilds.machineconfiguration.openshift.io"),
];

/// What every version only creates.
const CREATE_ONLY: (&str, &str, &str, &str) =
    ("networking.k8s.io", "NetworkPolicy", OPERATOR, "cluster-autoscaler-operator-default-deny");

fn key((group, kind, namespace, name): (&str, &str, &str, &str)) -> ObjectKey {
    ObjectKey::new(GroupKind::new(group, kind), Some(namespace).filter(|text| !text.is_empty()), name)
}

/// Returns how messages name an object.
fn shown(object: &ObjectKey) -> String {
    let kind = object.kind.kind.to_lowercase();
    let namespace = object.namespace.iter().map(|namespace| format!("{namespace}/"));
    format!("{kind} \"{}{}\"", namespace.collect::<String>(), object.name)
}

#[test]
fn a_real_payload_on_a_sandbox() -> Result<()> {
    let Some(files) = Folder::read()? else { return Ok(()) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    runtime.block_on(async {
        let sandbox = Sandbox::start(Options::default());
        let client = |name| sandbox.client(User::admin(), name);
        play(&files, client(""), client("billhook")).await
    })
}

#[test]
fn a_real_payload_on_a_control_plane() -> Result<()> {
    let Some(files) = Folder::read()? else { return Ok(()) };
    let control_plane = super::shared()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = Client::try_from(control_plane.client_config(super::User::Admin).await?)?;
        play(&files, client.clone(), client).await
    })
}

/// Plays the life of the payload as the program, beside another client that stands for the operator.
async fn play(files: &Folder, other: Client, client: Client) -> Result<()> {
    let deleted = DELETED.map(key);
    let v20 = files.annotated(&[key(CREATE_ONLY)], "release.openshift.io/create-only")?;
    let v20_1 = v20.annotated(&deleted, "release.openshift.io/delete")?;
    let v21 = v20.without(&deleted);
    let life =
        Life { admin: Admin::new(other.clone(), OPERATOR), program: Program::new(client, RECORDS)?, files: &v20 };
    for (name, files) in [("v20", &v20), ("v20.1", &v20_1), ("v21", &v21)] {
        files.write(&life.program.path(name))?;
    }
    ensure!(files.len() == 148 && v20.counting().len() == 78, "another payload: {} files", files.len());
    life.admin.create(GIVEN).await?;
    for namespace in [RECORDS, OPERATOR] {
        for (kind, name) in [("ServiceAccount", "default"), ("ConfigMap", "kube-root-ca.crt")] {
            life.admin.wait(&key(("", kind, namespace, name)), |_| true).await.ok();
        }
    }
    let report = Script::ReportStatus {
        kind: "ClusterOperator.config.openshift.io".to_owned(),
        status: json!({
            "conditions": [{"type": "Available", "status": "True"}, {"type": "Degraded", "status": "False"}],
            "versions": [{"name": "operator", "version": "0.0.1-snapshot"}],
        }),
        after: Duration::ZERO,
    };
    tokio::select! {
        () = actors::run(other, report, |_| true) => unreachable!("it never ends"),
        played = life.steps(&deleted) => played,
    }
}

/// The payload on a cluster.
struct Life<'a> {
    admin: Admin,
    program: Program,
    files: &'a Folder,
}

impl Life<'_> {
    async fn steps(&self, deleted: &[ObjectKey]) -> Result<()> {
        let before: BTreeSet<ObjectKey> = self.admin.everything().await?.into_keys().collect();
        self.has(&BTreeSet::new()).await.context("before the installation")?;
        let all: BTreeSet<ObjectKey> = self.files.counting().into_iter().map(|(_, key)| key).collect();
        let ran = self.program.run("payload apply v20 --version 4.20.0").await;
        ran.exits(&[0]).context("the installation")?;
        let installed = self.has(&all).await.context("after the installation")?;
        self.unchanged("payload apply v20 --version 4.20.0").await.context("4.20.0 again")?;

        self.delete_some(deleted).await.context("the update to 4.20.1")?;
        let rest: BTreeSet<ObjectKey> = all.iter().filter(|key| !deleted.contains(key)).cloned().collect();
        let updated = self.has(&rest).await.context("after the update to 4.20.1")?;
        ensure!(updated.iter().all(|(key, uid)| installed.get(key) == Some(uid)), "objects were replaced: {updated:?}");
        self.completes(deleted).await.context("the pass after the update to 4.20.1")?;
        self.unchanged("payload apply v20.1 --version 4.20.1").await.context("4.20.1 again")?;
        self.history(&["4.20.1", "4.20.0"]).await?;

        let ran = self.program.run("payload apply v21 --version 4.21.0").await;
        ran.exits(&[0]).context("the update to 4.21.0")?;
        ensure!(!ran.stderr.contains("warning") && !ran.stderr.contains("Delete"), "{}", ran.shown());
        let updated_again = self.has(&rest).await.context("after the update to 4.21.0")?;
        ensure!(updated_again == updated, "objects were replaced: {updated_again:?}");
        self.unchanged("payload apply v21 --version 4.21.0").await.context("4.21.0 again")?;
        self.history(&["4.21.0", "4.20.1", "4.20.0"]).await?;

        self.delete_all(&rest).await.context("the deletion")?;
        self.has(&BTreeSet::new()).await.context("after the deletion")?;
        self.nothing_new(&before).await
    }

    /// Updates to the version that deletes objects, and checks the messages and the order of the requests.
    async fn delete_some(&self, deleted: &[ObjectKey]) -> Result<()> {
        let kinds = deleted.iter().map(|key| key.kind.clone()).collect();
        let observer = Observer::of_kinds(&self.admin, kinds).await?;
        let ran = self.program.run("payload apply v20.1 --version 4.20.1").await;
        // The CRDs may still be terminating.
        ran.exits(&[0, 3])?;
        let requested: Vec<String> =
            deleted.iter().map(|key| format!("Delete requested for {}.", shown(key))).collect();
        ensure!(ran.lines("Delete requested for") == requested, "expected {requested:#?}: {}", ran.shown());
        let fates = observer.fates(deleted.iter()).await?;
        let marked: Vec<u64> = deleted.iter().filter_map(|key| Some(fates.get(key)?.touched)).collect();
        ensure!(
            marked.len() == deleted.len() && marked.is_sorted_by(|a, b| a < b),
            "deleted in another order: {fates:#?}"
        );
        Ok(())
    }

    /// Checks that the next pass verifies the deletions.
    async fn completes(&self, deleted: &[ObjectKey]) -> Result<()> {
        let ran = self.program.run("payload apply v20.1 --version 4.20.1").await;
        ran.exits(&[0])?;
        let completed = |key: &ObjectKey| format!("Delete of {} completed.", shown(key));
        let expected: BTreeSet<String> = deleted.iter().map(completed).collect();
        let found: BTreeSet<String> = ran.lines("Delete").into_iter().map(str::to_owned).collect();
        ensure!(found == expected, "expected {expected:#?}: {}", ran.shown());
        Ok(())
    }

    /// Repeats an apply: it writes nothing, and lists each kind once.
    async fn unchanged(&self, line: &str) -> Result<()> {
        for _ in 0..2 {
            let ran = self.program.run(line).await;
            ran.is_quiet()?;
            ensure!(!ran.stderr.contains("Delete"), "{}", ran.shown());
        }
        Ok(())
    }

    /// Checks that these versions were completed, the newest first, and that nothing is being deleted.
    async fn history(&self, versions: &[&str]) -> Result<()> {
        let ran: Ran = self.program.run("payload status -o json").await;
        ran.exits(&[0])?;
        let status: serde_json::Value = serde_json::from_str(&ran.stdout)?;
        let found = status["history"].as_array().context("no history")?;
        let shown: Vec<_> = found.iter().map(|entry| (entry["version"].clone(), entry["state"].clone())).collect();
        let expected: Vec<_> = versions.iter().map(|version| (json!(version), json!("Completed"))).collect();
        ensure!(shown == expected, "{}", ran.shown());
        let deletes = status["deletions"].as_array().is_some_and(|deletions| !deletions.is_empty());
        ensure!(!deletes && status.get("upgradeable").is_none(), "{}", ran.shown());
        Ok(())
    }

    /// Deletes the release: each run level is gone before the next lower one is touched.
    async fn delete_all(&self, objects: &BTreeSet<ObjectKey>) -> Result<()> {
        let observer = Observer::of_kinds(&self.admin, objects.iter().map(|key| key.kind.clone()).collect()).await?;
        let ran = self.program.run("delete payload --yes").await;
        ran.exits(&[0])?;
        let fates = observer.fates(objects.iter()).await?;
        let mut levels: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for (level, key) in self.files.counting() {
            let Some(fate) = fates.get(&key) else { continue };
            let (touched, gone) = levels.entry(level).or_insert((u64::MAX, 0));
            *touched = fate.touched.min(*touched);
            *gone = fate.gone.unwrap_or(u64::MAX).max(*gone);
        }
        ensure!(levels.len() > 5, "{levels:?}");
        let in_order = levels.values().rev().is_sorted_by(|higher, lower| higher.1 < lower.0);
        ensure!(in_order, "first marked and last gone by run level: {levels:?}");
        Ok(())
    }

    /// Checks that the release has exactly these objects, and returns their UIDs.
    async fn has(&self, expected: &BTreeSet<ObjectKey>) -> Result<BTreeMap<ObjectKey, Uid>> {
        let all = self.admin.everything().await?;
        let ours = all.into_iter().filter(|(_, object)| {
            object
                .metadata
                .labels
                .as_ref()
                .and_then(|labels| labels.get("billhook.dev/release"))
                .is_some_and(|l| l == LABEL)
        });
        // The record is not an object of the release.
        let ours = ours.filter(|(key, _)| !key.name.starts_with("billhook."));
        let uids: BTreeMap<ObjectKey, Uid> =
            ours.filter_map(|(key, object)| Some((key, Uid::new(object.metadata.uid?)))).collect();
        let found: BTreeSet<ObjectKey> = uids.keys().cloned().collect();
        let (more, fewer): (Vec<_>, Vec<_>) =
            (found.difference(expected).collect(), expected.difference(&found).collect());
        ensure!(more.is_empty() && fewer.is_empty(), "unexpected: {more:?}; missing: {fewer:?}");
        Ok(uids)
    }

    /// Checks that the cluster has no object that it did not have before. What Kubernetes created for the objects of the release
    /// is deleted a moment after them.
    async fn nothing_new(&self, before: &BTreeSet<ObjectKey>) -> Result<()> {
        let mut new = Vec::new();
        for _ in 0..100 {
            let all = self.admin.everything().await?;
            new = all.into_keys().filter(|key| !before.contains(key)).collect();
            if new.is_empty() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        anyhow::bail!("left behind: {new:?}")
    }
}
