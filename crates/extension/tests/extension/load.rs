//! How many requests a controller sends.

use billhook_sandbox::{Verb, faults::Logged};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::lab::{Behaviour, Lab, NAMESPACE, Recorder, Running, seconds};

const OBJECTS: usize = 200;

/// Returns the requests of the controller after the first ones, without those of its Lease.
fn requests(lab: &Lab, after: usize) -> Vec<Logged> {
    let log = lab.sandbox.faults().log("extension");
    log[after..].iter().filter(|request| !request.target.starts_with("leases")).cloned().collect()
}

#[tokio::test(start_paused = true)]
async fn two_hundred_objects_take_three_requests_each_and_none_when_idle() {
    let lab = Lab::start().await;
    let recorder = Recorder::new(&[("reconcile", Behaviour::Steps(0))]);
    let controller = lab.controller("extension", recorder.clone()).concurrency(7);
    let running = Running::start(controller.leader_election(NAMESPACE, "extension", "x"));
    for n in 0..OBJECTS {
        lab.record(&format!("r{n}"), &json!({}), &Value::Null).await;
    }
    let settled =
        |operation: &str| (0..OBJECTS).all(|n| lab.last(&format!("r{n}")) == format!("{operation} Succeeded 100"));
    lab.until("all are created", || settled("Create")).await;
    sleep(seconds(1)).await;

    // A steady reconcile: gardenlet asks for it.
    let before = lab.sandbox.faults().log("extension").len();
    for n in 0..OBJECTS {
        let annotations = json!({"gardener.cloud/operation": "reconcile", "gardener.cloud/timestamp": "1"});
        lab.patch(&format!("r{n}"), json!({"metadata": {"annotations": annotations}})).await;
    }
    lab.until("all are reconciled", || settled("Reconcile")).await;
    sleep(seconds(1)).await;
    let sent = requests(&lab, before);
    assert!(sent.iter().all(|request| request.verb == Verb::Patch), "{sent:?}");
    assert_eq!(sent.len(), 3 * OBJECTS);
    assert_eq!(recorder.log().len(), 2 * OBJECTS);
    assert!(recorder.most() <= 7, "{}", recorder.most());

    // Idle, for less than the life of a watch.
    let before = lab.sandbox.faults().log("extension").len();
    sleep(seconds(200)).await;
    let idle = requests(&lab, before);
    assert!(idle.iter().all(|request| request.verb == Verb::Watch) && idle.len() <= 2, "{idle:?}");
    // An hour: the server ends each of the two watches every 290 s.
    sleep(seconds(3600)).await;
    let idle = requests(&lab, before);
    assert!(idle.iter().all(|request| request.verb == Verb::Watch) && idle.len() <= 28, "{}", idle.len());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn slots_limit_calls_that_take_time() {
    let lab = Lab::start().await;
    for n in 0..20 {
        lab.record(&format!("r{n}"), &json!({}), &Value::Null).await;
    }
    let recorder = Recorder::new(&[("reconcile", Behaviour::Steps(3))]);
    let running = Running::start(lab.controller("extension", recorder.clone()).concurrency(4));
    lab.until("all are created", || (0..20).all(|n| lab.last(&format!("r{n}")) == "Create Succeeded 100")).await;
    assert_eq!(recorder.most(), 4);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn probes_and_metrics_are_served() {
    use billhook_extension::Monitor;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let lab = Lab::start().await;
    lab.record("a", &json!({}), &Value::Null).await;
    let monitor = Monitor::new();
    let running = Running::start(lab.controller("extension", Recorder::default()).monitor(&monitor));
    lab.until("it is created", || lab.last("a") == "Create Succeeded 100").await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = tokio::spawn(async move { monitor.serve(listener, async { drop(stopped.await) }).await });
    for (path, expected) in [
        ("/healthz", "ok"),
        ("/readyz", "ok"),
        (
            "/metrics",
            "billhook_extension_calls_total{kind=\"DNSRecord\",type=\"local\",action=\"reconcile\",result=\"succeeded\"} 1",
        ),
    ] {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.0 200") && answer.contains(expected), "{path}: {answer}");
    }
    drop(stop);
    server.await.unwrap().unwrap();
    running.stop().await;
}
