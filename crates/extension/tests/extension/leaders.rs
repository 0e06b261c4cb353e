//! Several replicas, restarts, and the end of leadership.

use billhook_sandbox::faults::{Fault, Moment, Requests};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::lab::{Behaviour, FINALIZER, Lab, NAMESPACE, Recorder, Running, create, seconds};

fn replica(lab: &Lab, name: &str, recorder: &Recorder) -> Running {
    Running::start(lab.controller(name, recorder.clone()).leader_election(NAMESPACE, "extension", name))
}

async fn deleted(lab: &Lab, name: &str) {
    lab.record(name, &json!({"metadata": {"finalizers": [FINALIZER]}}), &Value::Null).await;
    lab.delete(name).await;
}

/// Returns how many writes a client has sent, apart from those of its Lease.
fn writes(lab: &Lab, client: &str) -> usize {
    let log = lab.sandbox.faults().log(client);
    log.iter().filter(|request| request.verb.writes() && !request.target.starts_with("leases")).count()
}

#[tokio::test(start_paused = true)]
async fn only_the_leader_works() {
    let lab = Lab::start().await;
    let (a, b) = (Recorder::default(), Recorder::default());
    let first = replica(&lab, "a", &a);
    let holder = || lab.sandbox.object("coordination.k8s.io", "leases", NAMESPACE, "extension");
    lab.until("a leads", || holder().is_some_and(|lease| lease["spec"]["holderIdentity"] == "a")).await;
    let second = replica(&lab, "b", &b);
    for name in ["x", "y", "z"] {
        lab.record(name, &json!({}), &Value::Null).await;
        lab.until("it is reconciled", || lab.last(name) == "Create Succeeded 100").await;
    }
    assert_eq!((a.log().len(), b.log().len()), (3, 0));
    first.stop().await;
    // It released the Lease, so that nobody waits until it expires.
    lab.record("later", &json!({}), &Value::Null).await;
    lab.until("it is reconciled", || lab.last("later") == "Create Succeeded 100").await;
    assert_eq!(b.log(), ["reconcile later"]);
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn two_controllers_without_election_converge() {
    let lab = Lab::start().await;
    let (a, b) = (Recorder::default(), Recorder::default());
    let both = [Running::start(lab.controller("a", a.clone())), Running::start(lab.controller("b", b.clone()))];
    for name in ["x", "y"] {
        lab.record(name, &json!({"metadata": {"finalizers": ["other.example/y"]}}), &Value::Null).await;
    }
    lab.until("both are reconciled", || ["x", "y"].iter().all(|name| lab.last(name).ends_with("Succeeded 100"))).await;
    sleep(seconds(10)).await;
    for name in ["x", "y"] {
        let finalizers = lab.stored(name).unwrap()["metadata"]["finalizers"].clone();
        assert_eq!(finalizers, json!(["other.example/y", FINALIZER]));
        lab.patch(name, json!({"metadata": {"finalizers": [FINALIZER]}})).await;
        lab.delete(name).await;
    }
    lab.until("both are gone", || lab.is_gone("x") && lab.is_gone("y")).await;
    for controller in both {
        controller.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_successor_continues() {
    for (behaviour, operation) in [("delete", "Delete"), ("reconcile", "Create")] {
        let lab = Lab::start().await;
        if behaviour == "delete" {
            deleted(&lab, "a").await;
        } else {
            lab.record("a", &json!({}), &Value::Null).await;
        }
        let recorder = Recorder::new(&[(behaviour, Behaviour::Hang)]);
        let first = Running::start(lab.controller("first", recorder.clone()));
        lab.until("it starts", || lab.last("a") == format!("{operation} Processing 1")).await;
        first.stop().await;
        lab.until("it is cancelled", || recorder.has(&format!("{behaviour} a: cancelled"))).await;
        assert_eq!(lab.last("a"), format!("{operation} Processing 1"), "nothing was written at the end");
        recorder.set(behaviour, Behaviour::Succeed);
        let second = Running::start(lab.controller("second", recorder.clone()));
        lab.until("it ends", || lab.is_gone("a") || lab.last("a") == "Create Succeeded 100").await;
        second.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_its_lease_writes_nothing_once_another_one_may_lead() {
    let lab = Lab::start().await;
    create(&lab.config_maps(NAMESPACE), json!({"metadata": {"name": "written"}})).await;
    deleted(&lab, "x").await;
    lab.force().await;
    let (a, b) = (Recorder::new(&[("force_delete", Behaviour::Write)]), Recorder::default());
    let first = replica(&lab, "a", &a);
    lab.until("it writes", || writes(&lab, "a") > 5).await;
    let second = replica(&lab, "b", &b);
    let leases = Requests::of("a").resource("coordination.k8s.io", "leases");
    lab.sandbox.faults().inject(Fault::broken(Moment::Before).on(leases));
    lab.until("the other one works", || b.has("force_delete x")).await;
    let sent = writes(&lab, "a");
    assert!(a.has("force_delete x: cancelled"));
    lab.until("it is gone", || lab.is_gone("x")).await;
    sleep(seconds(60)).await;
    assert_eq!(writes(&lab, "a"), sent);
    // It waits for its turn, and gets it when the other one has ended.
    lab.sandbox.faults().clear();
    second.stop().await;
    lab.record("later", &json!({}), &Value::Null).await;
    lab.until("it works again", || a.has("reconcile later")).await;
    first.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_seed_without_the_kind_ends_the_controller() {
    let sandbox = billhook_sandbox::Sandbox::start(billhook_sandbox::Options::default());
    let client = sandbox.client(billhook_sandbox::User::admin(), "extension");
    let controller = |types: &[&str]| {
        let controller = billhook_extension::Controller::new(client.clone(), Recorder::default());
        Running::start(types.iter().fold(controller, |controller, kind| controller.kind_type(*kind)))
    };
    let error = controller(&["local"]).ended().await.unwrap_err();
    let text =
        "the seed does not serve DNSRecord of extensions.gardener.cloud/v1alpha1: install its CustomResourceDefinition";
    assert_eq!(error.to_string(), text);
    let error = controller(&[]).ended().await.unwrap_err();
    assert!(error.to_string().starts_with("the controller of DNSRecord handles no type"), "{error}");
}
