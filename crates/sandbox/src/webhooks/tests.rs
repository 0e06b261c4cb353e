//! Tests of requests that wait for webhooks, whose answers the tests give.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tokio::time::{Instant, advance};

use crate::{
    controllers::{bootstrap, run_due},
    kinds::ResourceId,
    options::Options,
    selector::Selector,
    state::State,
    status::ApiError,
    verbs::{DeleteOptions, Writer, create, delete_collection, update},
    webhooks::{Answer, Call, Memory, Reply},
};

/// A server with webhooks on loopback, and a request.
struct World {
    state: State,
    memory: Memory,
}

impl World {
    /// Registers webhooks for all operations on ConfigMaps and Pods.
    fn new(configurations: &str, webhooks: &[Value]) -> Self {
        let start = "2026-01-01T00:00:00Z".parse().expect("a time");
        let mut state = State::new(Options::default().start(start));
        bootstrap(&mut state);
        let rule = json!({
            "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps", "pods"], "operations": ["*"],
        });
        let webhook = |(index, changes): (usize, &Value)| {
            let mut webhook = json!({
                "name": format!("{index}.example.com"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "clientConfig": {"url": format!("https://127.0.0.1:1/{index}")}, "rules": [rule], "timeoutSeconds": 7,
            });
            for (field, value) in changes.as_object().into_iter().flatten() {
                webhook[field] = value.clone();
            }
            webhook
        };
        let webhooks: Vec<_> = webhooks.iter().enumerate().map(webhook).collect();
        let resource = ResourceId::new("admissionregistration.k8s.io", configurations);
        state.store.put(&resource, json!({"metadata": {"name": "c", "uid": "c"}, "webhooks": webhooks}));
        Self { state, memory: Memory::default() }
    }

    fn writer(&self, group: &str, plural: &str) -> Writer {
        Writer::controller(self.state.kinds.find(group, plural).expect("a kind"), "test")
    }

    /// Takes a step of the request and returns its result and the reviews for whose answers it waits.
    fn attempt<T>(&mut self, act: impl FnOnce(&mut State) -> Result<T, ApiError>) -> (Result<T, ApiError>, Vec<Call>) {
        *self.state.memory.get_mut() = std::mem::take(&mut self.memory);
        let result = act(&mut self.state);
        self.memory = std::mem::take(self.state.memory.get_mut());
        (result, self.memory.take_wanted())
    }

    /// Takes steps until the request is done, with the answers of `webhook` to reviews. Returns the number of steps.
    fn finish<T>(
        &mut self,
        mut act: impl FnMut(&mut State) -> Result<T, ApiError>,
        mut webhook: impl FnMut(&mut State, &Value) -> Value,
    ) -> (Result<T, ApiError>, usize) {
        for steps in 1..20 {
            let (result, calls) = self.attempt(&mut act);
            if calls.is_empty() {
                return (result, steps);
            }
            for call in calls {
                let answer = webhook(&mut self.state, &review(&call));
                self.memory.learn(vec![(call, answered(answer))]);
            }
        }
        panic!("the request never ends")
    }

    fn names(&self, plural: &str) -> Vec<String> {
        let resource = ResourceId::new("", plural);
        let objects = self.state.store.list(&resource, Some("default"));
        objects.map(|object| object.name.to_string()).collect()
    }
}

fn review(call: &Call) -> Value {
    serde_json::from_str(&call.review).expect("a review")
}

fn answered(mut response: Value) -> Answer {
    response["uid"] = "u".into();
    let review = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
    Ok(Reply { uid: "u".to_owned(), review })
}

fn allow(_state: &mut State, _review: &Value) -> Value {
    json!({"allowed": true})
}

fn config_map(metadata: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
}

#[tokio::test(start_paused = true)]
async fn a_step_without_answers_has_no_effect() {
    let mut world = World::new("validatingwebhookconfigurations", &[json!({}), json!({})]);
    let writer = world.writer("", "configmaps");
    let make = |state: &mut State| create(state, &writer, "default", config_map(json!({"generateName": "a-"})));
    let before = world.state.store.revision();
    let (result, calls) = world.attempt(make);
    assert!(result.is_err() && calls.len() == 2 && world.state.store.revision() == before);
    let first = review(&calls[0]);
    assert_eq!((calls[0].url.as_str(), calls[0].seconds), ("https://127.0.0.1:1/0?timeout=7s", 7));

    // The repetition creates the object that the webhooks have seen, although time has passed.
    advance(Duration::from_secs(3)).await;
    let answers = calls.into_iter().map(|call| (call, answered(json!({"allowed": true})))).collect();
    world.memory.learn(answers);
    let (result, calls) = world.attempt(make);
    assert!(calls.is_empty());
    let created = result.expect("created").object;
    for field in ["uid", "name", "creationTimestamp"] {
        assert_eq!(created["metadata"][field], first["request"]["object"]["metadata"][field], "{field}");
    }
    // Another request creates another object.
    let (other, _) = world.finish(make, allow);
    assert_ne!(other.expect("created").object["metadata"]["uid"], created["metadata"]["uid"]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_does_not_apply_to_another_object() {
    let mut world = World::new("validatingwebhookconfigurations", &[json!({})]);
    let writer = world.writer("", "configmaps");
    let (made, _) = world.finish(|state| create(state, &writer, "default", config_map(json!({"name": "a"}))), allow);
    made.expect("created");
    // While the webhook is called, another client changes the object.
    let mut changes = 0;
    let (result, steps) = world.finish(
        |state| {
            let mut wanted = config_map(json!({"name": "a"}));
            wanted["data"] = json!({"by": "me"});
            update(state, &writer, "default", "a", wanted)
        },
        |state, review| {
            let seen = &review["request"]["oldObject"]["data"]["change"];
            assert_eq!(*seen, if changes > 0 { json!(changes.to_string()) } else { Value::Null });
            if changes < 2 {
                changes += 1;
                let id = ResourceId::new("", "configmaps");
                let mut object = state.store.get(&id, "default", "a").expect("the object").value();
                object["data"] = json!({"change": changes.to_string()});
                state.put(&id, object);
            }
            json!({"allowed": true})
        },
    );
    assert_eq!((result.expect("updated").object["data"].clone(), steps), (json!({"by": "me"}), 4));
}

#[tokio::test(start_paused = true)]
async fn mutating_webhooks_see_what_earlier_ones_changed() {
    let again = json!({"reinvocationPolicy": "IfNeeded"});
    let mut world = World::new("mutatingwebhookconfigurations", &[again.clone(), json!({}), again]);
    let writer = world.writer("", "configmaps");
    let mut called = Vec::new();
    let (result, _) = world.finish(
        |state| {
            create(state, &writer, "default", config_map(json!({"generateName": "a-", "annotations": {"seen": ""}})))
        },
        |_, review| {
            let metadata = &review["request"]["object"]["metadata"];
            assert_eq!((&metadata["uid"], &metadata["name"]), (&Value::Null, &Value::Null));
            let seen = format!("{}x", metadata["annotations"]["seen"].as_str().expect("a text"));
            called.push(seen.len());
            let patch = json!([{"op": "replace", "path": "/metadata/annotations/seen", "value": seen}]);
            json!({"allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(patch.to_string())})
        },
    );
    let object = result.expect("created").object;
    // The first one is called again because later ones have changed the object, the last one because the first one has.
    assert_eq!((object["metadata"]["annotations"]["seen"].as_str(), called), (Some("xxxxx"), vec![1, 2, 3, 4, 5]));
    assert!(object["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("a-")));
    assert!(object["metadata"]["uid"].is_string());
}

#[tokio::test(start_paused = true)]
async fn the_deletion_of_a_collection_continues() {
    let mut world = World::new("validatingwebhookconfigurations", &[json!({})]);
    let writer = world.writer("", "configmaps");
    for name in ["a", "b", "c"] {
        let (made, _) =
            world.finish(|state| create(state, &writer, "default", config_map(json!({"name": name}))), allow);
        made.expect("created");
    }
    let mut asked = Vec::new();
    let (options, selector) = (DeleteOptions::default(), Selector::default());
    let (result, _) = world.finish(
        |state| delete_collection(state, &writer, Some("default"), &selector, &options),
        |_, review| {
            let name = review["request"]["oldObject"]["metadata"]["name"].as_str().expect("a name").to_owned();
            asked.push(name.clone());
            json!({"allowed": name != "c"})
        },
    );
    let message = "admission webhook \"0.example.com\" denied the request without explanation";
    assert_eq!(result.expect_err("denied").message, message);
    assert_eq!((asked, world.names("configmaps")), (["a", "b", "c"].map(str::to_owned).to_vec(), vec!["c".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn controllers_wait_for_webhooks() {
    let mut world = World::new("validatingwebhookconfigurations", &[json!({})]);
    let writer = world.writer("apps", "replicasets");
    let set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web"},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    });
    create(&mut world.state, &writer, "default", set).expect("created");
    let mut calls = 0;
    for _ in 0..10 {
        advance(Duration::from_millis(10)).await;
        run_due(&mut world.state, Instant::now());
        for mut waiting in std::mem::take(&mut world.state.controllers.waiting) {
            let wanted = waiting.memory.take_wanted();
            calls += wanted.len();
            waiting.memory.learn(wanted.into_iter().map(|call| (call, answered(json!({"allowed": true})))).collect());
            world.state.controllers.resume(waiting, Instant::now());
        }
    }
    // One review for each Pod.
    assert_eq!((world.names("pods").len(), calls), (2, 2));
}
