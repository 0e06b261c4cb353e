//! The rows of the dispatch on a real control plane, all at once.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use billhook_extension::{Actuator, ActuatorError, Cluster, Context, Controller, Outcome, client};
use billhook_testkit::control_plane::{ControlPlane, Options, User};
use k8s_openapi::{
    api::core::v1::Namespace, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams},
    core::DynamicObject,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    lab::{GROUP, Running, create, definition, resource},
    rows::{Row, rows, seen},
};

/// How long a controller may take for all rows.
const LIMIT: Duration = Duration::from_secs(60);

/// An actuator that records its calls by namespace, and fails in some of them.
#[derive(Clone, Default)]
struct Recorder {
    fails: BTreeSet<String>,
    log: Arc<Mutex<BTreeMap<String, Vec<String>>>>,
}

impl Recorder {
    fn call(&self, method: &str, record: &DynamicObject) -> Result<Outcome, ActuatorError> {
        let namespace = record.metadata.namespace.clone().unwrap();
        self.log.lock().unwrap().entry(namespace.clone()).or_default().push(format!("{method} a"));
        if self.fails.contains(&namespace) {
            // No second call during the test.
            return Err(ActuatorError::new("AccessDenied").retry_after(Duration::from_secs(3600)));
        }
        Ok(Outcome::done())
    }

    fn calls(&self, namespace: &str) -> Vec<String> {
        self.log.lock().unwrap().get(namespace).cloned().unwrap_or_default()
    }
}

impl Actuator for Recorder {
    type Object = DynamicObject;

    async fn reconcile(&self, _: &Context, record: &DynamicObject, _: &Cluster) -> Result<Outcome, ActuatorError> {
        self.call("reconcile", record)
    }

    async fn delete(&self, _: &Context, record: &DynamicObject, _: &Cluster) -> Result<Outcome, ActuatorError> {
        self.call("delete", record)
    }

    async fn force_delete(&self, _: &Context, record: &DynamicObject, _: &Cluster) -> Result<Outcome, ActuatorError> {
        self.call("force_delete", record)
    }

    async fn migrate(&self, _: &Context, record: &DynamicObject, _: &Cluster) -> Result<Outcome, ActuatorError> {
        self.call("migrate", record)
    }

    async fn restore(&self, _: &Context, record: &DynamicObject, _: &Cluster) -> Result<Outcome, ActuatorError> {
        self.call("restore", record)
    }
}

fn records(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &resource("DNSRecord", "dnsrecords"))
}

/// Defines a kind, and waits until it is served.
async fn define(client: &Client, kind: &str, plural: &str, scope: &str) {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    create(&definitions, definition(kind, plural, scope)).await;
    let objects: Api<DynamicObject> = Api::all_with(client.clone(), &resource(kind, plural));
    let begun = Instant::now();
    while let Err(error) = objects.list(&Default::default()).await {
        assert!(begun.elapsed() < LIMIT, "{kind}: {error}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Creates the objects of a row in a namespace of its own.
async fn give(client: &Client, row: &Row, namespace: &str) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    create(&namespaces, json!({"metadata": {"name": namespace}})).await;
    let version = format!("{GROUP}/v1alpha1");
    let clusters: Api<DynamicObject> = Api::all_with(client.clone(), &resource("Cluster", "clusters"));
    let cluster = json!({
        "apiVersion": version, "kind": "Cluster", "metadata": {"name": namespace}, "spec": {"shoot": row.shoot()},
    });
    create(&clusters, cluster).await;
    let records = records(client, namespace);
    let mut metadata = row.metadata();
    metadata["name"] = json!("a");
    let record = json!({"apiVersion": version, "kind": "DNSRecord", "metadata": metadata, "spec": {"type": "local"}});
    create(&records, record).await;
    if row.last.is_some() {
        let status = Patch::Merge(json!({"status": row.status()}));
        records.patch_status("a", &PatchParams::default(), &status).await.unwrap();
    }
    if row.deleted {
        records.delete("a", &DeleteParams::default()).await.unwrap();
    }
}

#[tokio::test]
async fn rows_of_the_dispatch_on_a_real_control_plane() {
    let control_plane = ControlPlane::start(&Options::default().without_controller_manager()).unwrap();
    let client = client(control_plane.client_config(User::Admin).await.unwrap()).unwrap();
    define(&client, "DNSRecord", "dnsrecords", "Namespaced").await;
    define(&client, "Cluster", "clusters", "Cluster").await;
    let rows: Vec<_> = rows().into_iter().enumerate().map(|(n, row)| (format!("row-{n}"), row)).collect();
    let mut recorder = Recorder::default();
    for (namespace, row) in &rows {
        give(&client, row, namespace).await;
        if row.fails {
            recorder.fails.insert(namespace.clone());
        }
    }
    let kind = resource("DNSRecord", "dnsrecords");
    let controller = Controller::of_kind(client.clone(), recorder.clone(), &kind).kind_type("local");
    let running = Running::start(controller);
    let begun = Instant::now();
    let seen = async |namespace: &str| {
        let object = records(&client, namespace).get_opt("a").await.unwrap();
        let object: Option<Value> = object.map(|object| serde_json::to_value(object).unwrap());
        seen(&recorder.calls(namespace), object.as_ref())
    };
    for (namespace, row) in &rows {
        while seen(namespace).await != row.expected() && begun.elapsed() < LIMIT {
            sleep(Duration::from_millis(50)).await;
        }
    }
    running.stop().await;
    // Again, because a row that expects nothing was met from the start.
    for (namespace, row) in &rows {
        assert_eq!(seen(namespace).await, row.expected(), "{}", row.name);
    }
}
