//! Tests of the controllers under a paused clock.

mod definitions;
mod garbage;
mod namespaces;
mod others;
mod workloads;

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    conditions,
    controllers::{
        bootstrap,
        objects::{id, objects},
        run_due,
    },
    options::Options,
    state::State,
    store::ObjectId,
    verbs::{DeleteOptions, Propagation, Writer, create, delete, update},
};

/// A cluster whose time the test advances.
struct World {
    state: State,
}

impl World {
    fn new() -> Self {
        Self::with(Options::default())
    }

    fn with(options: Options) -> Self {
        let start = "2026-01-01T00:00:00Z".parse().expect("a time");
        let mut state = State::new(options.start(start));
        bootstrap(&mut state);
        Self { state }
    }

    fn writer(&self, group: &str, plural: &str) -> Writer {
        Writer::controller(self.state.kinds.find(group, plural).expect("a kind"), "test")
    }

    /// Creates an object of a known kind.
    fn create(&mut self, object: Value) -> Value {
        let api_version = object["apiVersion"].as_str().expect("a version");
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let kind = self.state.kinds.by_kind(group, object["kind"].as_str().expect("a kind")).expect("a kind").clone();
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        create(&mut self.state, &Writer::controller(&kind, "test"), &namespace, object).expect("created").object
    }

    /// Creates a ConfigMap in the namespace `default` with blocking owners and finalizers.
    fn config_map(&mut self, name: &str, owners: &[&Value], finalizers: &[&str]) -> Value {
        let references: Vec<Value> = owners.iter().map(|owner| reference(owner, true)).collect();
        self.create(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": name, "namespace": "default", "ownerReferences": references, "finalizers": finalizers,
            },
        }))
    }

    fn delete(&mut self, of: &ObjectId, propagation: Option<Propagation>) {
        let writer = self.writer(&of.resource.group, &of.resource.plural);
        let options = DeleteOptions { propagation, ..DeleteOptions::default() };
        delete(&mut self.state, &writer, &of.namespace, &of.name, &options).expect("deleted");
    }

    fn edit(&mut self, of: &ObjectId, subresource: Option<&str>, change: impl FnOnce(&mut Value)) {
        let mut writer = self.writer(&of.resource.group, &of.resource.plural);
        writer.subresource = subresource.map(str::to_owned);
        let mut object = self.get(of).expect("the object");
        change(&mut object);
        update(&mut self.state, &writer, &of.namespace, &of.name, object).expect("updated");
    }

    fn release(&mut self, of: &ObjectId) {
        self.edit(of, None, |object| object["metadata"]["finalizers"] = json!([]));
    }

    fn get(&self, of: &ObjectId) -> Option<Value> {
        self.state.store.get_id(of).map(|stored| stored.value())
    }

    fn has(&self, of: &ObjectId) -> bool {
        self.get(of).is_some()
    }

    fn names(&self, group: &str, plural: &str, namespace: &str) -> Vec<String> {
        let objects = objects(&self.state, group, plural, namespace);
        objects.iter().map(|object| object.name.to_string()).collect()
    }

    /// Advances the clock and does the work that becomes due.
    async fn pass(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while let Some(next) = self.state.controllers.next().filter(|next| *next <= end) {
            tokio::time::advance(next.saturating_duration_since(Instant::now())).await;
            run_due(&mut self.state, Instant::now());
        }
        tokio::time::advance(end.saturating_duration_since(Instant::now())).await;
    }

    async fn settle(&mut self) {
        self.pass(Duration::from_millis(200)).await;
    }

    fn condition(&self, of: &ObjectId, name: &str) -> Option<(String, String, String)> {
        let object = self.get(of)?;
        let condition = conditions::find(&object, name)?;
        let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        Some((text("status"), text("reason"), text("message")))
    }
}

fn reference(owner: &Value, blocks: bool) -> Value {
    json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "blockOwnerDeletion": blocks,
    })
}

fn map(name: &str) -> ObjectId {
    id("", "configmaps", "default", name)
}

fn expected_condition(status: &str, reason: &str, message: &str) -> Option<(String, String, String)> {
    Some((status.to_owned(), reason.to_owned(), message.to_owned()))
}
