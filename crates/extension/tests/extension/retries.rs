//! Failures of the actuator and of requests, and other clients that write at the same time.

use billhook_sandbox::{
    Verb,
    faults::{Fault, Moment, Requests},
};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::lab::{Behaviour, FINALIZER, Lab, Recorder, Running, seconds};

#[tokio::test(start_paused = true)]
async fn pauses_grow_until_the_object_changes() {
    let lab = Lab::start().await;
    lab.record("a", &json!({}), &Value::Null).await;
    let recorder = Recorder::new(&[("reconcile", Behaviour::Fail("no"))]);
    let begun = Instant::now();
    let running = Running::start(lab.controller("extension", recorder.clone()));
    lab.until("five tries fail", || recorder.log().len() == 5).await;
    let elapsed = begun.elapsed();
    assert!(elapsed >= seconds(15) && elapsed < seconds(16), "1 + 2 + 4 + 8 s: {elapsed:?}");
    sleep(seconds(5)).await;
    recorder.set("reconcile", Behaviour::Succeed);
    let changed = Instant::now();
    lab.patch("a", json!({"spec": {"name": "x"}})).await;
    lab.until("it succeeds", || lab.last("a") == "Create Succeeded 100").await;
    assert!(changed.elapsed() < seconds(1), "{:?}", changed.elapsed());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_or_a_hang_is_a_failure_of_one_object() {
    for (behaviour, text) in [
        (Behaviour::Panic, "the actuator panicked, which is a bug of the extension"),
        (Behaviour::Hang, "the actuator did not end within 180s"),
    ] {
        let lab = Lab::start().await;
        lab.record("a", &json!({}), &Value::Null).await;
        let recorder = Recorder::new(&[("reconcile", behaviour)]);
        let running = Running::start(lab.controller("extension", recorder.clone()));
        lab.until("it fails", || lab.last("a") == "Create Error 50").await;
        let status = lab.stored("a").unwrap()["status"].clone();
        assert_eq!(status["lastError"]["description"], format!("Failed to reconcile the DNSRecord: {text}"));
        recorder.set("reconcile", Behaviour::Succeed);
        lab.until("it succeeds", || lab.last("a") == "Create Succeeded 100").await;
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_changes_before_the_call_is_dispatched_again() {
    let lab = Lab::start().await;
    let first = Requests::of("extension").verb(Verb::Patch);
    lab.sandbox.faults().inject(Fault::delay(seconds(2)).on(first).nth(1));
    lab.record("a", &json!({"metadata": {"finalizers": ["other.example/y"]}}), &Value::Null).await;
    let recorder = Recorder::default();
    let running = Running::start(lab.controller("extension", recorder.clone()));
    sleep(seconds(1)).await;
    // The finalizer that is on its way must not get onto an object that is being deleted.
    lab.delete("a").await;
    sleep(seconds(30)).await;
    assert!(recorder.log().is_empty(), "{:?}", recorder.log());
    assert_eq!(lab.stored("a").unwrap()["metadata"]["finalizers"], json!(["other.example/y"]));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_rejection_with_the_status_of_a_conflict_is_retried_with_pauses() {
    let lab = Lab::start().await;
    lab.record("a", &json!({"metadata": {"finalizers": [FINALIZER]}}), &Value::Null).await;
    lab.delete("a").await;
    let fault = Fault::refuse(http::StatusCode::CONFLICT, "Conflict", "denied by a webhook");
    lab.sandbox.faults().inject(fault.on(Requests::of("extension").verb(Verb::Patch)));
    let running = Running::start(lab.controller("extension", Recorder::default()));
    sleep(seconds(40)).await;
    let log = lab.sandbox.faults().log("extension");
    let tries = log.iter().filter(|request| request.verb == Verb::Patch).count();
    assert_eq!(tries, 6, "after 1 + 2 + 4 + 8 + 16 s");
    // The force-deletion annotation ends the pause of 32 s.
    lab.sandbox.faults().clear();
    lab.force().await;
    sleep(seconds(1)).await;
    assert!(lab.is_gone("a"));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn finalizers_that_others_set_meanwhile_remain() {
    let lab = Lab::start().await;
    lab.record("a", &json!({"metadata": {"finalizers": [FINALIZER, "first.example/x"]}}), &Value::Null).await;
    let recorder = Recorder::new(&[("delete", Behaviour::Steps(2))]);
    let running = Running::start(lab.controller("extension", recorder.clone()));
    lab.until("it is created", || lab.last("a") == "Create Succeeded 100").await;
    lab.delete("a").await;
    lab.until("the deletion starts", || recorder.has("delete a")).await;
    // An object that is being deleted gets no new finalizers, but may lose some, and labels.
    lab.patch("a", json!({"metadata": {"labels": {"a": "b"}}})).await;
    lab.until("it succeeds", || lab.last("a") == "Delete Succeeded 100").await;
    lab.until("ours is removed", || lab.stored("a").unwrap()["metadata"]["finalizers"] == json!(["first.example/x"]))
        .await;
    assert_eq!(lab.stored("a").unwrap()["metadata"]["labels"]["a"], "b");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_is_asked_for_during_another_one_follows_it() {
    let lab = Lab::start().await;
    let annotate = |operation: &'static str, timestamp: &'static str| {
        let annotations = json!({"gardener.cloud/operation": operation, "gardener.cloud/timestamp": timestamp});
        json!({"metadata": {"annotations": annotations}})
    };
    lab.record("a", &annotate("restore", "1"), &Value::Null).await;
    let recorder = Recorder::new(&[("restore", Behaviour::Steps(2))]);
    let running = Running::start(lab.controller("extension", recorder.clone()));
    lab.until("it starts", || recorder.has("restore a")).await;
    lab.patch("a", annotate("reconcile", "2")).await;
    lab.until("it is reconciled", || lab.last("a") == "Reconcile Succeeded 100").await;
    assert_eq!(recorder.log(), ["restore a", "reconcile a"]);
    assert_eq!(lab.stored("a").unwrap()["metadata"]["annotations"].get("gardener.cloud/operation"), None);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn every_write_may_fail_or_lose_its_answer() {
    let faults = [
        Fault::internal_error(),
        Fault::unavailable(),
        Fault::timeout(),
        Fault::too_many_requests(1),
        Fault::broken(Moment::Before),
        Fault::broken(Moment::After),
    ];
    for fault in faults {
        for nth in 1..=6 {
            let lab = Lab::start().await;
            lab.record("a", &json!({}), &Value::Null).await;
            let writes = Requests::of("extension").writes();
            lab.sandbox.faults().inject(fault.clone().on(writes).nth(nth));
            let recorder = Recorder::default();
            let running = Running::start(lab.controller("extension", recorder.clone()));
            lab.until("it is created", || lab.last("a") == "Create Succeeded 100").await;
            assert_eq!(lab.stored("a").unwrap()["metadata"]["finalizers"], json!([FINALIZER]), "{fault:?} {nth}");
            lab.delete("a").await;
            lab.until("it is gone", || lab.is_gone("a")).await;
            running.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_is_killed_at_any_request_is_continued() {
    for (operation, last, ours, ends) in [
        ("reconcile", "Reconcile", true, "Reconcile Succeeded 100"),
        ("migrate", "Reconcile", false, "Migrate Succeeded 100"),
        ("restore", "Migrate", true, "Restore Succeeded 100"),
    ] {
        let mut crashed = true;
        let mut nth = 0;
        while crashed {
            nth += 1;
            for moment in [Moment::Before, Moment::After] {
                let lab = Lab::start().await;
                let annotations = json!({"gardener.cloud/operation": operation});
                let finalizers = if last == "Migrate" { json!([]) } else { json!([FINALIZER]) };
                let object = json!({"metadata": {"annotations": annotations, "finalizers": finalizers}});
                lab.record("a", &object, &json!({"lastOperation": {"type": last, "state": "Succeeded"}})).await;
                let fault = Fault::crash(moment).on(Requests::of("extension").writes()).nth(nth);
                lab.sandbox.faults().inject(fault);
                let ended = || {
                    let metadata = lab.stored("a").unwrap()["metadata"].clone();
                    let is_asked = metadata["annotations"].get("gardener.cloud/operation").is_some();
                    let has_ours = metadata["finalizers"].as_array().is_some_and(|all| all.contains(&json!(FINALIZER)));
                    lab.last("a") == ends && !is_asked && has_ours == ours
                };
                let recorder = Recorder::default();
                let running = Running::start(lab.controller("extension", recorder.clone()));
                tokio::select! {
                    () = lab.sandbox.faults().crashed("extension") => {}
                    () = lab.until("it ends", ended) => sleep(seconds(1)).await,
                }
                crashed = timeout(seconds(1), lab.sandbox.faults().crashed("extension")).await.is_ok();
                running.kill();
                let running = Running::start(lab.controller("successor", recorder.clone()));
                lab.until(&format!("{operation}, killed {moment:?} write {nth}"), ended).await;
                sleep(seconds(5)).await;
                assert!(ended() && recorder.has(&format!("{operation} a")), "killed {moment:?} write {nth}");
                running.stop().await;
            }
        }
        assert!(nth > 3, "{operation}: {nth}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_seed_is_waited_out() {
    let lab = Lab::start().await;
    let recorder = Recorder::default();
    let running = Running::start(lab.controller("extension", recorder.clone()));
    lab.record("a", &json!({}), &Value::Null).await;
    lab.until("it is created", || lab.last("a") == "Create Succeeded 100").await;
    lab.delete("a").await;
    lab.sandbox.take_away(seconds(600));
    sleep(seconds(600)).await;
    lab.until("it is gone", || lab.is_gone("a")).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_annotations_every_generation_is_reconciled() {
    let lab = Lab::start().await;
    lab.record("a", &json!({}), &json!({"lastOperation": {"type": "Reconcile", "state": "Succeeded"}})).await;
    let recorder = Recorder::default();
    let running = Running::start(lab.controller("extension", recorder.clone()).ignore_operation_annotation(true));
    lab.until("it is reconciled after the start", || recorder.log().len() == 1).await;
    lab.patch("a", json!({"spec": {"name": "x"}})).await;
    lab.until("it is reconciled after a change", || recorder.log().len() == 2).await;
    lab.patch("a", json!({"metadata": {"labels": {"a": "b"}}})).await;
    lab.shoot(json!({"status": {"x": 1}})).await;
    sleep(seconds(60)).await;
    assert_eq!(recorder.log().len(), 2);
    lab.shoot(json!({"metadata": {"generation": 2}})).await;
    lab.until("it is reconciled after a change of the Shoot", || recorder.log().len() == 3).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn fields_of_the_status_that_others_write_meanwhile_remain() {
    let lab = Lab::start().await;
    lab.record("a", &json!({}), &Value::Null).await;
    let recorder = Recorder::new(&[("reconcile", Behaviour::Steps(3))]);
    let running = Running::start(lab.controller("extension", recorder.clone()));
    lab.until("it starts", || recorder.has("reconcile a")).await;
    let patch = Patch::Merge(json!({"status": {"state": {"id": 1}}}));
    lab.records().patch_status("a", &PatchParams::default(), &patch).await.unwrap();
    lab.until("it succeeds", || lab.last("a") == "Create Succeeded 100").await;
    assert_eq!(lab.stored("a").unwrap()["status"]["state"]["id"], 1);
    assert_eq!(recorder.log(), ["reconcile a"]);
    running.stop().await;
}
