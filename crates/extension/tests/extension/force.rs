//! Force deletion: when it starts, what it cancels, and what the default does.

use std::time::Duration;

use billhook_sandbox::faults::{Fault, Moment, Requests};
use kube::api::DeleteParams;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::lab::{Behaviour, FINALIZER, Lab, NAMESPACE, Recorder, Running, create, seconds};

const OTHER: &str = "other.example/y";

/// Creates a record with our finalizer that is being deleted.
async fn deleted(lab: &Lab, name: &str) {
    deleted_with(lab, name, &[FINALIZER]).await;
}

async fn deleted_with(lab: &Lab, name: &str, finalizers: &[&str]) {
    lab.record(name, &json!({"metadata": {"finalizers": finalizers}, "spec": {"name": "www"}}), &Value::Null).await;
    lab.delete(name).await;
}

/// Creates a ConfigMap with a finalizer that nobody removes.
async fn config_map(lab: &Lab, namespace: &str, name: &str) {
    create(&lab.config_maps(namespace), json!({"metadata": {"name": name, "finalizers": [OTHER]}})).await;
}

#[tokio::test(start_paused = true)]
async fn the_annotation_cancels_a_deletion_at_every_await() {
    const STEPS: usize = 4;
    // At the start of each pause, in the middle of it, and during the request after it.
    for at in 0..=STEPS * 4 {
        let lab = Lab::start().await;
        let slow = Requests::of("extension").verb(billhook_sandbox::Verb::Get).resource("", "configmaps");
        lab.sandbox.faults().inject(Fault::delay(seconds(1)).on(slow));
        deleted(&lab, "a").await;
        let recorder = Recorder::new(&[("delete", Behaviour::Steps(STEPS))]);
        let running = Running::start(lab.controller("extension", recorder.clone()));
        lab.until("the deletion starts", || recorder.has("delete a")).await;
        sleep(Duration::from_millis(500 * u64::try_from(at).unwrap() + 3)).await;
        let ended = lab.is_gone("a");
        let annotated = Instant::now();
        lab.force().await;
        lab.until("it is gone", || lab.is_gone("a")).await;
        if ended {
            assert_eq!(recorder.log(), ["delete a"], "at {at}");
        } else {
            assert_eq!(recorder.log(), ["delete a", "delete a: cancelled", "force_delete a"], "at {at}");
            let latency = recorder.time("force_delete a") - annotated;
            assert!(latency < seconds(1), "at {at}: {latency:?}");
        }
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_annotation_does_not_wait_for_a_retry() {
    let lab = Lab::start().await;
    deleted(&lab, "a").await;
    let recorder = Recorder::new(&[("delete", Behaviour::Fail("authentication failed"))]);
    let running = Running::start(lab.controller("extension", recorder.clone()));
    lab.until("some tries fail", || recorder.log().len() == 6).await;
    let codes = || lab.stored("a").unwrap()["status"]["lastError"]["codes"].clone();
    lab.until("the code is reported", || codes() == json!(["ERR_INFRA_UNAUTHENTICATED"])).await;
    sleep(seconds(5)).await;
    assert_eq!(recorder.log().len(), 6, "it pauses");
    let annotated = Instant::now();
    lab.force().await;
    lab.until("it is gone", || lab.is_gone("a")).await;
    assert!(annotated.elapsed() < seconds(1), "{:?}", annotated.elapsed());
    assert_eq!(recorder.log().last().unwrap(), "force_delete a");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_annotation_cancels_a_reconcile_of_a_deleted_object() {
    let lab = Lab::start().await;
    lab.record("a", &json!({}), &Value::Null).await;
    let recorder = Recorder::new(&[("reconcile", Behaviour::Hang)]);
    let running = Running::start(lab.controller("extension", recorder.clone()));
    lab.until("it starts", || recorder.has("reconcile a")).await;
    lab.force().await;
    sleep(seconds(5)).await;
    assert_eq!(recorder.log(), ["reconcile a"], "the object is not deleted yet");
    lab.delete("a").await;
    lab.until("it is gone", || lab.is_gone("a")).await;
    assert_eq!(recorder.log(), ["reconcile a", "reconcile a: cancelled", "force_delete a"]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_force_deletion_that_fails_keeps_the_finalizer_until_it_succeeds() {
    let lab = Lab::start().await;
    deleted(&lab, "a").await;
    lab.force().await;
    let recorder = Recorder::new(&[("force_delete", Behaviour::Fail("no"))]);
    let running = Running::start(lab.controller("extension", recorder.clone()));
    lab.until("it fails", || recorder.log().len() == 4).await;
    lab.until("the error is written", || lab.last("a") == "Delete Error 50").await;
    assert_eq!(lab.stored("a").unwrap()["metadata"]["finalizers"], json!([FINALIZER]));
    recorder.set("force_delete", Behaviour::Succeed);
    lab.until("it is gone", || lab.is_gone("a")).await;
    assert!(recorder.log().iter().all(|line| line == "force_delete a"), "{:?}", recorder.log());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn other_shoots_are_not_touched() {
    let lab = Lab::start().await;
    lab.namespace("shoot--b").await;
    lab.cluster("shoot--b", json!({})).await;
    let records = kube::Api::<kube::core::DynamicObject>::namespaced_with(
        lab.admin.clone(),
        "shoot--b",
        &crate::lab::resource("DNSRecord", "dnsrecords"),
    );
    let object = json!({
        "apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "DNSRecord",
        "metadata": {"name": "a", "namespace": "shoot--b", "finalizers": [FINALIZER]}, "spec": {"type": "local"},
    });
    create(&records, object).await;
    records.delete("a", &DeleteParams::default()).await.unwrap();
    config_map(&lab, "shoot--b", "dns-a").await;
    config_map(&lab, NAMESPACE, "dns-a").await;
    deleted(&lab, "a").await;
    let recorder = Recorder::new(&[("delete", Behaviour::Hang)]).with_default_force();
    let running = Running::start(lab.controller("extension", recorder.clone()));
    lab.until("both deletions start", || recorder.log().len() == 2).await;
    let stored = || lab.sandbox.object("extensions.gardener.cloud", "dnsrecords", "shoot--b", "a").unwrap();
    lab.until("both are in progress", || stored()["status"]["lastOperation"]["state"] == "Processing").await;
    // The Cluster objects have no namespace; only that of the Shoot changes from here on, because the test patches it.
    let listing = || {
        let mut others = lab.others();
        others.retain(|other| !other.starts_with("\"Cluster\""));
        others
    };
    let before = listing();
    lab.force().await;
    lab.until("it is gone", || lab.is_gone("a")).await;
    assert_eq!(listing(), before);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_default_deletes_gracefully_if_it_can() {
    let lab = Lab::start().await;
    deleted(&lab, "a").await;
    lab.force().await;
    let recorder = Recorder::default().with_default_force();
    let running = Running::start(lab.controller("extension", recorder.clone()));
    lab.until("it is gone", || lab.is_gone("a")).await;
    assert_eq!(recorder.log(), ["delete a"]);
    assert!(orphans(&lab).is_empty());
    running.stop().await;
}

/// Returns the messages of the Events about orphans.
fn orphans(lab: &Lab) -> Vec<String> {
    let objects = lab.sandbox.objects().into_iter();
    let events = objects.filter(|object| object["kind"] == "Event" && object["reason"] == "Orphaned");
    events.map(|event| event["message"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn the_default_removes_seed_objects_and_names_what_is_orphaned() {
    for (behaviour, problem, within) in [
        (Behaviour::Fail("key revoked"), "delete failed: key revoked", seconds(1)),
        (Behaviour::Panic, "delete panicked", seconds(1)),
        (Behaviour::Hang, "delete did not end within 30s", seconds(31)),
    ] {
        let lab = Lab::start().await;
        deleted_with(&lab, "a", &[FINALIZER, OTHER]).await;
        config_map(&lab, NAMESPACE, "dns-a").await;
        config_map(&lab, NAMESPACE, "dns-b").await;
        lab.force().await;
        let recorder = Recorder::new(&[("delete", behaviour)]).with_default_force();
        let running = Running::start(lab.controller("extension", recorder.clone()));
        let begun = Instant::now();
        lab.until("it succeeds", || lab.last("a") == "Delete Succeeded 100").await;
        assert!(begun.elapsed() < within, "{:?}", begun.elapsed());
        let text = format!("{problem}; orphaned: DNS record www");
        let stored = lab.stored("a").unwrap();
        let description = &stored["status"]["lastOperation"]["description"];
        assert_eq!(*description, format!("Successfully force-deleted the DNSRecord: {text}"));
        lab.until("the finalizer is removed", || lab.stored("a").unwrap()["metadata"]["finalizers"] == json!([OTHER]))
            .await;
        assert_eq!(orphans(&lab), [text]);
        let exists = |name: &str| lab.sandbox.object("", "configmaps", NAMESPACE, name).is_some();
        assert!(!exists("dns-a") && exists("dns-b"));
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_default_fails_if_the_seed_rejects_a_removal() {
    let lab = Lab::start().await;
    deleted(&lab, "a").await;
    config_map(&lab, NAMESPACE, "dns-a").await;
    // Without a finalizer, so that no patch is needed.
    create(&lab.config_maps(NAMESPACE), json!({"metadata": {"name": "none"}})).await;
    lab.force().await;
    let rejected = Requests::of("extension").verb(billhook_sandbox::Verb::Patch).resource("", "configmaps");
    let fault = Fault::refuse(http::StatusCode::FORBIDDEN, "Forbidden", "User \"extension\" cannot patch configmaps");
    lab.sandbox.faults().inject(fault.on(rejected));
    let recorder = Recorder::new(&[("delete", Behaviour::Fail("x"))]).with_default_force();
    let running = Running::start(lab.controller("extension", recorder.clone()));
    lab.until("it fails", || lab.last("a") == "Delete Error 50").await;
    let status = lab.stored("a").unwrap()["status"]["lastError"].clone();
    let text = status["description"].as_str().unwrap();
    assert!(text.contains("delete failed: x; ") && text.contains("cannot patch configmaps"), "{status}");
    assert!(lab.sandbox.object("", "configmaps", NAMESPACE, "none").is_none(), "the others are removed");
    assert_eq!(status.get("codes"), None, "a missing right of the extension is no problem of the Shoot's credentials");
    lab.sandbox.faults().clear();
    lab.until("it is gone", || lab.is_gone("a")).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn orphans_of_an_object_that_disappears_meanwhile_are_reported() {
    let lab = Lab::start().await;
    deleted(&lab, "a").await;
    lab.force().await;
    let recorder = Recorder::new(&[("force_delete", Behaviour::Vanish)]);
    let running = Running::start(lab.controller("extension", recorder.clone()));
    lab.until("the Event is written", || !orphans(&lab).is_empty()).await;
    assert!(lab.is_gone("a"));
    assert_eq!(orphans(&lab), ["orphaned: DNS record"]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_is_deleted_by_force() {
    let lab = Lab::start().await;
    let metadata = json!({"finalizers": [FINALIZER]});
    lab.record("a", &json!({"metadata": metadata, "spec": {"name": {"no": "string"}}}), &Value::Null).await;
    lab.delete("a").await;
    let recorder = Recorder::default().with_default_force();
    let running = Running::start(lab.controller("extension", recorder.clone()));
    lab.until("it fails", || lab.last("a") == "Delete Error 50").await;
    lab.force().await;
    lab.until("it is gone", || lab.is_gone("a")).await;
    assert!(recorder.log().is_empty());
    let [text] = &*orphans(&lab) else { panic!("one Event: {:?}", orphans(&lab)) };
    assert!(text.starts_with("the DNSRecord cannot be read: ") && text.ends_with("; orphaned: whatever belongs to it"));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_bug_of_the_controller_is_survived() {
    let lab = Lab::start().await;
    deleted(&lab, "a").await;
    let recorder = Recorder::new(&[("delete", Behaviour::HangAndPanic)]);
    let running = Running::start(lab.controller("extension", recorder.clone()));
    lab.until("the deletion starts", || recorder.has("delete a")).await;
    let annotated = Instant::now();
    lab.force().await;
    lab.until("it is gone", || lab.is_gone("a")).await;
    assert!(annotated.elapsed() >= seconds(1), "it starts again after a pause: {:?}", annotated.elapsed());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_is_killed_at_any_request_is_continued() {
    let mut crashed = true;
    let mut nth = 0;
    while crashed {
        nth += 1;
        for moment in [Moment::Before, Moment::After] {
            let lab = Lab::start().await;
            deleted(&lab, "a").await;
            config_map(&lab, NAMESPACE, "dns-a").await;
            lab.force().await;
            let fault = Fault::crash(moment).on(Requests::of("extension").writes()).nth(nth);
            lab.sandbox.faults().inject(fault);
            let recorder = Recorder::new(&[("delete", Behaviour::FailIfNoted("x"))]).with_default_force();
            let running = Running::start(lab.controller("extension", recorder.clone()));
            tokio::select! {
                () = lab.sandbox.faults().crashed("extension") => {}
                () = lab.until("it is gone", || lab.is_gone("a")) => sleep(seconds(1)).await,
            }
            crashed = timeout(seconds(1), lab.sandbox.faults().crashed("extension")).await.is_ok();
            running.kill();
            let running = Running::start(lab.controller("successor", recorder.clone()));
            lab.until("it is gone", || lab.is_gone("a")).await;
            let left = lab.sandbox.object("", "configmaps", NAMESPACE, "dns-a");
            assert!(left.is_none(), "killed {moment:?} write {nth}: {left:?}");
            assert!(!orphans(&lab).is_empty(), "killed {moment:?} write {nth}: no Event names the orphans");
            running.stop().await;
        }
    }
    assert!(nth > 5, "status, Event, DELETE, finalizers, status, finalizer: {nth}");
}
