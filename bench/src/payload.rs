//! Release payloads: a real one is installed and applied again, and a large one is planned and applied.
//!
//! The floor sends the requests of the graph that `payload plan` prints. Which of the documents these are is read from the files
//! again, so that nothing is left out by both.

mod counting;
mod timing;

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cases::{Case, Sizes};
use crate::graph::{Graph, Node, Step};
use crate::lab::Lab;
use crate::progress;
use crate::samples::Samples;
use crate::workload::{any, crd};

pub(crate) use counting::count;
pub(crate) use timing::time;

/// The namespace of the records, and of the objects of the large payload.
const NAMESPACE: &str = "payloads";
/// The namespace of the operator in the real payload, which does not contain it.
const OPERATOR: &str = "openshift-machine-api";
/// The version of all payloads.
const VERSION: &str = "4.20.0";

/// A payload in a folder, with the requests of its installation.
#[derive(Debug)]
struct Payload {
    name: &'static str,
    folder: PathBuf,
    /// The file with the graph, for the floor.
    file: PathBuf,
    graph: Graph,
}

/// What `payload plan -o json` prints, as far as it is used.
#[derive(Deserialize)]
struct Printed {
    nodes: Vec<PrintedNode>,
    manifests: Vec<Manifest>,
}

#[derive(Deserialize)]
struct PrintedNode {
    after: Vec<usize>,
    manifests: Vec<usize>,
}

#[derive(Deserialize)]
struct Manifest {
    file: String,
    object: Key,
}

#[derive(Deserialize)]
struct Key {
    kind: String,
    namespace: Option<String>,
    name: String,
}

/// Returns the folder of the real payload, or why it cannot be measured.
fn fixture() -> Result<PathBuf, String> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/fixtures");
    let root = std::env::var_os("BILLHOOK_FIXTURES").map_or_else(|| PathBuf::from(beside), PathBuf::from);
    let folder = root.join("openshift-payload");
    match folder.is_dir() {
        true => Ok(folder),
        false => Err(format!("{} does not exist, see BILLHOOK_FIXTURES", folder.display())),
    }
}

impl Payload {
    /// Prepares the real payload: its namespace, and the kinds that it uses and does not define.
    async fn real(lab: &Lab, program: &Path, folder: PathBuf) -> Result<Self> {
        lab.namespaces(&[NAMESPACE, OPERATOR]).await?;
        lab.define(given()).await?;
        Self::of(lab, program, "payload", folder).await
    }

    /// Writes a payload of ConfigMaps: two components in each run level.
    async fn large(lab: &Lab, program: &Path, sizes: &Sizes) -> Result<Self> {
        lab.namespaces(&[NAMESPACE]).await?;
        let folder = lab.path("large");
        std::fs::create_dir_all(&folder).context("failed to create a folder")?;
        for at in 0..sizes.payload {
            let file = format!("0000_{:02}_component-{}_{at:05}.json", at * 90 / sizes.payload, at % 2);
            let object = json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {
                    "name": format!("large-{at:05}"),
                    "namespace": NAMESPACE,
                    "annotations": {"include.release.openshift.io/self-managed-high-availability": "true"},
                },
                "data": {"number": at.to_string(), "text": "a value of some length, as settings have it"},
            });
            std::fs::write(folder.join(file), object.to_string()).context("failed to write a manifest")?;
        }
        Self::of(lab, program, "payload-large", folder).await
    }

    async fn of(lab: &Lab, program: &Path, name: &'static str, folder: PathBuf) -> Result<Self> {
        let mut args = plan_of(&folder);
        args.extend(["-o", "json"].map(OsString::from));
        let printed = lab.billhook(program, args, false).await?.stdout;
        let printed: Printed = serde_json::from_str(&printed).context("failed to read what `payload plan` printed")?;
        let graph = graph(&folder, printed)?;
        let file = lab.write(&format!("{name}.json"), &serde_json::to_string(&graph)?)?;
        Ok(Self { name, folder, file, graph })
    }

    /// Returns the arguments that plan it.
    fn plan(&self) -> Vec<OsString> {
        plan_of(&self.folder)
    }

    /// Returns the arguments that apply it.
    fn apply(&self) -> Vec<OsString> {
        let mut args = ["payload", "apply", "--version", VERSION, "--name", self.name, "-n", NAMESPACE]
            .map(OsString::from)
            .to_vec();
        args.push(self.folder.clone().into_os_string());
        args
    }

    /// Returns the arguments that delete it.
    fn delete(&self) -> Vec<OsString> {
        ["delete", self.name, "-n", NAMESPACE, "--yes"].map(OsString::from).to_vec()
    }
}

fn plan_of(folder: &Path) -> Vec<OsString> {
    let mut args = ["payload", "plan", "--version", VERSION, "--state", "initializing"].map(OsString::from).to_vec();
    args.push(folder.as_os_str().to_owned());
    args
}

/// Returns the requests of a plan, with the documents of the files.
fn graph(folder: &Path, printed: Printed) -> Result<Graph> {
    let mut files: BTreeMap<&str, VecDeque<Value>> = BTreeMap::new();
    let mut steps = Vec::new();
    for Manifest { file, object } in &printed.manifests {
        if !files.contains_key(file.as_str()) {
            files.insert(file, documents(&folder.join(Path::new(file).file_name().context("a file name")?))?);
        }
        let body = files.get_mut(file.as_str()).and_then(VecDeque::pop_front);
        let body = body.with_context(|| format!("{file} has fewer documents than the plan"))?;
        ensure!(
            body["kind"] == *object.kind && body["metadata"]["name"] == *object.name,
            "{file}: the plan has {} {} in place of {}",
            object.kind,
            object.name,
            body["metadata"]
        );
        steps.push(Some(step(object, body)?));
    }
    ensure!(files.values().all(VecDeque::is_empty), "the plan does not have all documents");
    let node = |node: PrintedNode| {
        let taken = node.manifests.into_iter().map(|at| steps.get_mut(at)?.take());
        let steps: Option<Vec<Step>> = taken.collect();
        Some(Node { after: node.after, steps: steps? })
    };
    let nodes: Option<Vec<Node>> = printed.nodes.into_iter().map(node).collect();
    Ok(Graph { nodes: nodes.context("the plan has a manifest twice")? })
}

fn documents(file: &Path) -> Result<VecDeque<Value>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))?;
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(&text).with_context(|| format!("failed to read {}", file.display()))?;
    Ok(documents.into_iter().filter(|document| document["kind"].is_string()).collect())
}

fn step(object: &Key, body: Value) -> Result<Step> {
    let version = body["apiVersion"].as_str().context("a manifest without apiVersion")?;
    let root = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    let namespace = object.namespace.as_ref().map(|name| format!("/namespaces/{name}")).unwrap_or_default();
    let kind = object.kind.to_lowercase();
    let plural = match kind.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None => format!("{kind}s"),
    };
    let condition = match object.kind.as_str() {
        "CustomResourceDefinition" => Some("Established"),
        "ClusterOperator" => Some("Available"),
        _ => None,
    };
    let (path, condition) = (format!("{root}{namespace}/{plural}"), condition.map(str::to_owned));
    Ok(Step { path, name: object.name.clone(), body, condition })
}

/// Returns the CRDs of the kinds that the real payload does not define, with the paths of their lists. No operator runs, so a
/// ClusterOperator is available by default.
fn given() -> [(Value, String); 2] {
    let mut operator = any();
    operator["properties"]["status"] = any();
    operator["properties"]["status"]["properties"]["conditions"] = json!({
        "type": "array",
        "items": any(),
        // Its versions are those of the manifest, because there is no subresource.
        "default": [{"type": "Available", "status": "True"}, {"type": "Degraded", "status": "False"}],
    });
    let given = |group: &str, kind: &str, scope: &str, schema: &Value| {
        (crd(group, kind, scope, schema), format!("/apis/{group}/v1/{}s", kind.to_lowercase()))
    };
    [
        given("config.openshift.io", "ClusterOperator", "Cluster", &operator),
        given("monitoring.coreos.com", "ServiceMonitor", "Namespaced", &any()),
    ]
}

/// The payloads whose cases are selected.
struct Selected {
    real: bool,
    large: bool,
}

impl Selected {
    fn of(selected: &[Case]) -> Self {
        let is_any = |cases: &[Case]| cases.iter().any(|case| selected.contains(case));
        Self {
            real: is_any(&[Case::PayloadInstall, Case::PayloadUnchanged]),
            large: is_any(&[Case::PayloadPlan, Case::PayloadMany]),
        }
    }

    /// Prepares the real payload; none if it is not selected or does not exist, which is reported.
    async fn prepare_real(&self, lab: &Lab, program: &Path, samples: &mut Samples) -> Result<Option<Payload>> {
        if !self.real {
            return Ok(None);
        }
        match fixture() {
            Ok(folder) => Payload::real(lab, program, folder).await.map(Some),
            Err(reason) => {
                let skipped = format!("the real payload: {reason}");
                if !samples.skipped.contains(&skipped) {
                    progress(&skipped);
                    samples.skipped.push(skipped);
                }
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_have_the_paths_of_their_kinds() {
        let path = |kind: &str, namespace: Option<&str>, version: &str| {
            let namespace = namespace.map(str::to_owned);
            let object = Key { kind: kind.to_owned(), namespace, name: "a".to_owned() };
            step(&object, json!({"apiVersion": version})).map(|step| (step.path, step.condition)).unwrap()
        };
        assert_eq!(path("ConfigMap", Some("n"), "v1"), ("/api/v1/namespaces/n/configmaps".to_owned(), None));
        let policies = "/apis/networking.k8s.io/v1/namespaces/n/networkpolicies".to_owned();
        assert_eq!(path("NetworkPolicy", Some("n"), "networking.k8s.io/v1"), (policies, None));
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions".to_owned();
        let established = Some("Established".to_owned());
        assert_eq!(path("CustomResourceDefinition", None, "apiextensions.k8s.io/v1"), (definitions, established));
    }

    #[test]
    fn the_graph_has_the_documents_of_the_files_in_the_order_of_the_plan() {
        let folder = tempfile::tempdir().unwrap();
        let object = |name: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n");
        std::fs::write(folder.path().join("a.yaml"), ["# License", &object("one"), &object("two")].join("\n---\n"))
            .unwrap();
        let printed = |last: &str| {
            let manifest = |name: &str| json!({"file": "old/a.yaml", "object": {"kind": "ConfigMap", "name": name}});
            let nodes = json!([{"after": [], "manifests": [1]}, {"after": [0], "manifests": []}]);
            serde_json::from_value(json!({"nodes": nodes, "manifests": [manifest("one"), manifest(last)]})).unwrap()
        };
        let graph = super::graph(folder.path(), printed("two")).unwrap();
        let names: Vec<Vec<&str>> =
            graph.nodes.iter().map(|node| node.steps.iter().map(|step| step.name.as_str()).collect()).collect();
        assert_eq!(names, [vec!["two"], vec![]]);
        assert!(super::graph(folder.path(), printed("z")).is_err());
    }
}
