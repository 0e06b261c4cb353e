//! Two sandboxes for tests: the item's target cluster, and another target named `edge`.

use std::{collections::BTreeMap, time::Duration};

use billhook_cluster::{Cluster, Holder, Options};
use billhook_engine::Clusters;
use billhook_objects::{ApiVersion, JsonPath};
use billhook_plan::Catalogs;
use billhook_policy::{Operator, Requirement, TypedReference};
use billhook_sandbox::{Sandbox, User};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams};
use serde_json::{Value, json};

pub(crate) struct Lab {
    pub(crate) clusters: Clusters,
    pub(crate) catalogs: Catalogs,
    sandbox: Sandbox,
    own: kube::Client,
    edge: kube::Client,
}

impl Lab {
    pub(crate) async fn new() -> Self {
        let [own, edge] = [0, 1].map(|seed| Sandbox::start(billhook_sandbox::Options::default().seed(seed)));
        let cluster = |of: &Sandbox| Cluster::from_client(of.client(User::admin(), "billhook"), Options::default());
        let clusters = Clusters {
            own: cluster(&own),
            records: None,
            targets: BTreeMap::from([("edge".to_owned(), cluster(&edge))]),
            now: "2026-01-01T00:00:00Z".to_owned(),
            holder: Holder::new("test", 1, None),
        };
        // Only the catalog of the item's own target is known.
        let catalogs = Catalogs::own(clusters.own.catalog().await.unwrap());
        let client = |of: &Sandbox| of.client(User::admin(), "");
        Self { clusters, catalogs, own: client(&own), edge: client(&edge), sandbox: own }
    }

    /// Makes the item's target cluster unavailable for a time.
    pub(crate) fn take_away(&self, time: Duration) {
        self.sandbox.take_away(time);
    }

    /// Applies an object in the item's target cluster.
    pub(crate) async fn put(&self, object: Value) {
        put(&self.own, object).await;
    }

    /// Applies an object in the target `edge`.
    pub(crate) async fn put_at_edge(&self, object: Value) {
        put(&self.edge, object).await;
    }

    pub(crate) async fn delete(&self, object: &Value) {
        let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        api(&self.own, &object).delete(&object.metadata.name.unwrap(), &DeleteParams::default()).await.unwrap();
    }
}

async fn put(client: &kube::Client, object: Value) {
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let name = object.metadata.name.clone().unwrap();
    let params = PatchParams::apply("other").force();
    api(client, &object).patch(&name, &params, &Patch::Apply(&object)).await.unwrap();
}

fn api(client: &kube::Client, object: &DynamicObject) -> Api<DynamicObject> {
    let types = object.types.clone().unwrap();
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types).unwrap());
    match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// Returns a ConfigMap in namespace `default` with the label `app: a`.
pub(crate) fn config(name: &str, data: Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "a"}},
        "data": data,
    })
}

/// Returns the definition of the cluster-scoped kind Widget.
pub(crate) fn widgets() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.a.example"},
        "spec": {
            "group": "a.example",
            "scope": "Cluster",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    })
}

pub(crate) fn widget(name: &str, size: u32) -> Value {
    json!({"apiVersion": "a.example/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": size}})
}

/// Returns a reference to an object in namespace `default`, or to a Widget. `kind` may be any name of the kind.
pub(crate) fn reference(kind: &str, name: &str) -> TypedReference {
    let (api_version, namespace) = if kind == "widgets" { ("a.example/v1", None) } else { ("v1", Some("default")) };
    TypedReference {
        api_version: ApiVersion::parse(api_version).unwrap(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        namespace: namespace.map(str::to_owned),
    }
}

pub(crate) fn path(text: &str) -> JsonPath {
    JsonPath::parse(text).unwrap()
}

pub(crate) fn requirement(json_path: &str, operator: Operator, values: Value) -> Requirement {
    let Value::Array(values) = values else { panic!("{values} is not a list") };
    Requirement { json_path: path(json_path), operator, values }
}

/// Checks that a future is `Send`, as the tasks of the controller require.
pub(crate) fn assert_send<F: Future + Send>(future: F) -> F {
    future
}
