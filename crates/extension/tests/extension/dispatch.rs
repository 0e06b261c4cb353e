//! The rows of the dispatch, each against an API server: what is called, and what the object looks like afterwards.

use billhook_extension::Outcome;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    lab::{Behaviour, Lab, Recorder, Running, seconds},
    rows::{OPERATION, rows, seen},
};

#[tokio::test(start_paused = true)]
async fn rows_of_the_dispatch() {
    for row in rows() {
        let lab = Lab::start().await;
        lab.record("a", &json!({"metadata": row.metadata()}), &row.status()).await;
        if row.deleted {
            lab.delete("a").await;
        }
        lab.shoot(row.shoot()).await;
        let behaviour = if row.fails { Behaviour::Fail("AccessDenied") } else { Behaviour::Succeed };
        let methods = ["reconcile", "delete", "force_delete", "migrate", "restore"];
        let recorder = Recorder::new(&methods.map(|method| (method, behaviour.clone())));
        let running = Running::start(lab.controller("extension", recorder.clone()));
        // Shorter than the first pause.
        sleep(seconds(1) / 2).await;
        running.stop().await;
        assert_eq!(seen(&recorder.log(), lab.stored("a").as_ref()), row.expected(), "{}", row.name);
    }
}

#[tokio::test(start_paused = true)]
async fn the_status_at_the_start_keeps_the_last_error_and_sets_no_generation() {
    let lab = Lab::start().await;
    let status = json!({
        "observedGeneration": 0,
        "lastOperation": {"type": "Reconcile", "state": "Error", "progress": 50},
        "lastError": {"description": "old", "codes": ["ERR_INFRA_DEPENDENCIES"]},
    });
    lab.record("a", &json!({}), &status).await;
    let recorder = Recorder::new(&[("reconcile", Behaviour::Steps(2))]);
    let running = Running::start(lab.controller("extension", recorder.clone()));
    lab.until("it starts", || lab.last("a") == "Reconcile Processing 1").await;
    let stored = lab.stored("a").unwrap();
    assert_eq!(
        (&stored["status"]["observedGeneration"], &stored["status"]["lastError"]["description"]),
        (&json!(0), &json!("old"))
    );
    lab.until("it succeeds", || lab.last("a") == "Reconcile Succeeded 100").await;
    let stored = lab.stored("a").unwrap();
    assert_eq!(stored["status"]["observedGeneration"], 1);
    assert!(stored["status"].get("lastError").is_none());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn objects_that_are_not_ours_get_no_request() {
    let lab = Lab::start().await;
    lab.record("type", &json!({"spec": {"type": "other"}}), &Value::Null).await;
    lab.record("class", &json!({"spec": {"class": "garden"}}), &Value::Null).await;
    let recorder = Recorder::default();
    let running = Running::start(lab.controller("extension", recorder.clone()));
    sleep(seconds(5)).await;
    let log = lab.sandbox.faults().log("extension");
    assert!(log.iter().all(|request| !request.verb.writes()), "{log:?}");
    running.stop().await;
    // A controller of the class garden needs no Cluster.
    let running = Running::start(lab.controller("garden", recorder.clone()).class("garden"));
    lab.until("it is reconciled", || lab.last("class") == "Create Succeeded 100").await;
    assert_eq!(recorder.log(), ["reconcile class"]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_waits_for_its_cluster_and_for_a_shoot_that_has_not_failed() {
    let lab = Lab::start().await;
    lab.shoot(json!({"status": {"lastOperation": {"state": "Failed"}}})).await;
    lab.record("a", &json!({}), &Value::Null).await;
    let recorder = Recorder::default();
    let running = Running::start(lab.controller("extension", recorder.clone()));
    sleep(seconds(60)).await;
    assert!(recorder.log().is_empty());
    lab.shoot(json!({"status": {"lastOperation": {"state": "Processing"}}})).await;
    lab.until("it is reconciled", || lab.last("a") == "Create Succeeded 100").await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_is_a_configuration_problem() {
    let lab = Lab::start().await;
    lab.record("a", &json!({"spec": {"name": {"no": "string"}}}), &Value::Null).await;
    lab.record("b", &json!({}), &Value::Null).await;
    let recorder = Recorder::default();
    let running = Running::start(lab.controller("extension", recorder.clone()));
    lab.until("both are handled", || lab.last("a") == "Create Error 50" && lab.last("b") == "Create Succeeded 100")
        .await;
    assert_eq!(recorder.log(), ["reconcile b"]);
    let status = lab.stored("a").unwrap()["status"].clone();
    assert_eq!(status["lastError"]["codes"], json!(["ERR_CONFIGURATION_PROBLEM"]));
    let text = status["lastError"]["description"].as_str().unwrap();
    assert!(
        text.starts_with("Failed to reconcile the DNSRecord: the DNSRecord cannot be read: invalid type: map"),
        "{text}"
    );
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_outcome_is_part_of_the_status() {
    #[derive(Clone)]
    struct Zone;
    impl billhook_extension::Actuator for Zone {
        type Object = kube::core::DynamicObject;
        async fn reconcile(
            &self,
            _: &billhook_extension::Context,
            object: &Self::Object,
            cluster: &billhook_extension::Cluster,
        ) -> Result<Outcome, billhook_extension::ActuatorError> {
            assert_eq!(object.types.as_ref().unwrap().kind, "DNSRecord");
            assert_eq!(cluster.name(), "shoot--a");
            Ok(Outcome::done().description("1 record").status(json!({"zone": "z", "old": null})))
        }
        async fn delete(
            &self,
            _: &billhook_extension::Context,
            _: &Self::Object,
            _: &billhook_extension::Cluster,
        ) -> Result<Outcome, billhook_extension::ActuatorError> {
            Ok(Outcome::done())
        }
    }
    let lab = Lab::start().await;
    lab.record("a", &json!({}), &json!({"old": "x"})).await;
    let client = lab.sandbox.client(billhook_sandbox::User::admin(), "extension");
    let kind = crate::lab::resource("DNSRecord", "dnsrecords");
    let controller = billhook_extension::Controller::of_kind(client, Zone, &kind).kind_type("local");
    let running = Running::start(controller);
    lab.until("it is reconciled", || lab.last("a") == "Create Succeeded 100").await;
    let status = lab.stored("a").unwrap()["status"].clone();
    assert_eq!((&status["zone"], status.get("old")), (&json!("z"), None));
    assert_eq!(status["lastOperation"]["description"], "Successfully reconciled the DNSRecord: 1 record");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_dns_record_says_whether_it_was_ever_created() {
    let lab = Lab::start().await;
    lab.record("a", &json!({}), &json!({"conditions": [{"type": "Other", "status": "True"}]})).await;
    lab.record("b", &json!({}), &Value::Null).await;
    let recorder = Recorder::new(&[("reconcile", Behaviour::Fail("wrong key"))]);
    let running = Running::start(lab.controller("extension", recorder.clone()));
    let created = |name: &str| {
        let status = lab.stored(name).unwrap()["status"].clone();
        let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default().into_iter();
        conditions.find(|condition| condition["type"] == "Created").map(|condition| condition["status"].clone())
    };
    let reconcile = || json!({"metadata": {"annotations": {OPERATION: "reconcile"}}});
    lab.until("both fail", || lab.last("a") == "Create Error 50" && lab.last("b") == "Create Error 50").await;
    assert_eq!((created("a"), created("b")), (Some(json!("False")), Some(json!("False"))));
    assert_eq!(lab.stored("a").unwrap()["status"]["conditions"][0]["type"], "Other");

    // What was never created is deleted without the key.
    recorder.set("delete", Behaviour::Fail("wrong key"));
    recorder.set("force_delete", Behaviour::Fail("wrong key"));
    lab.delete("b").await;
    lab.until("it is gone", || lab.is_gone("b")).await;
    assert!(!recorder.has("delete b") && !recorder.has("force_delete b"), "{:?}", recorder.log());

    // What was created once counts as created, whatever happens later.
    recorder.set("reconcile", Behaviour::Succeed);
    lab.until("it is created", || lab.last("a") == "Create Succeeded 100").await;
    assert_eq!(created("a"), Some(json!("True")));
    recorder.set("reconcile", Behaviour::Fail("wrong key"));
    lab.patch("a", reconcile()).await;
    lab.until("it fails", || lab.last("a") == "Reconcile Error 50").await;
    assert_eq!(created("a"), Some(json!("True")));
    lab.delete("a").await;
    lab.until("its deletion fails", || lab.last("a") == "Delete Error 50").await;
    assert!(recorder.has("delete a") && !lab.is_gone("a"));
    running.stop().await;
}
