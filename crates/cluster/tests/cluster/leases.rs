//! Leader election: several candidates, and a server that keeps one Lease.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use billhook_cluster::{Cluster, ErrorKind, Leadership, LeaseOptions, NotHeld};
use futures::FutureExt as _;
use serde_json::{Value, json};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use crate::fake::{Answer, Log, Req, cluster, missing, ok, status};

const STEP: Duration = Duration::from_millis(100);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The Lease, and how it answers each candidate.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    lease: Option<Value>,
    version: u64,
    /// The trouble of candidates; the others have none.
    trouble: Vec<(&'static str, Trouble)>,
}

#[derive(Clone, Copy)]
enum Trouble {
    /// Requests have no effect and get no answer.
    Silence,
    /// The connection is refused.
    Refused,
    /// Writes are carried out, but their answers are lost.
    AnswersLost,
    /// Writes are forbidden.
    ReadOnly,
}

impl Server {
    fn candidate(&self, name: &'static str) -> (Cluster, LeaseOptions, Log) {
        let server = self.clone();
        let (cluster, log) = cluster(move |req| server.serve(name, &req));
        (cluster, LeaseOptions::new("a", "l", name), log)
    }

    fn trouble(&self, name: &'static str, trouble: Trouble) {
        self.0.lock().unwrap().trouble.push((name, trouble));
    }

    /// Returns the `spec` of the Lease.
    fn spec(&self) -> Value {
        self.0.lock().unwrap().lease.as_ref().map_or(Value::Null, |lease| lease["spec"].clone())
    }

    /// Changes the Lease as another client.
    fn edit(&self, edit: impl FnOnce(&mut Option<Value>)) {
        let mut state = self.0.lock().unwrap();
        edit(&mut state.lease);
        state.version += 1;
        let version = state.version.to_string();
        if let Some(lease) = &mut state.lease {
            lease["metadata"]["resourceVersion"] = json!(version);
        }
    }

    fn serve(&self, name: &str, req: &Req) -> Answer {
        let trouble = self.0.lock().unwrap().trouble.iter().find(|(who, _)| *who == name).map(|(_, trouble)| *trouble);
        match trouble {
            None => self.answer(req),
            Some(Trouble::Silence) => Answer::Hang,
            Some(Trouble::Refused) => Answer::Refused,
            Some(Trouble::AnswersLost | Trouble::ReadOnly) if req.method == "GET" => self.answer(req),
            Some(Trouble::ReadOnly) => status(403, "Forbidden", "User \"a\" cannot create resource \"leases\""),
            Some(Trouble::AnswersLost) => {
                self.answer(req);
                Answer::Reset
            }
        }
    }

    fn answer(&self, req: &Req) -> Answer {
        let lease = self.0.lock().unwrap().lease.clone();
        let version = lease.as_ref().map(|lease| lease["metadata"]["resourceVersion"].clone());
        match (req.method.as_str(), lease) {
            ("GET", Some(lease)) => ok(lease),
            ("GET" | "PUT", None) => missing("leases", "l"),
            ("POST", Some(_)) => status(409, "AlreadyExists", "leases \"l\" already exists"),
            ("PUT", Some(_)) if version.as_ref() != Some(&req.body["metadata"]["resourceVersion"]) => {
                status(409, "Conflict", "the object has been modified")
            }
            ("POST" | "PUT", _) => {
                self.edit(|lease| *lease = Some(req.body.clone()));
                ok(self.0.lock().unwrap().lease.clone().unwrap())
            }
            (method, _) => panic!("{method}"),
        }
    }
}

fn acquire((cluster, options, _): &(Cluster, LeaseOptions, Log)) -> JoinHandle<Leadership> {
    let (cluster, options) = (cluster.clone(), options.clone());
    tokio::spawn(async move { cluster.acquire(&options).await })
}

/// Returns whether the Lease is held now.
fn is_held(leadership: &mut Leadership) -> bool {
    leadership.lost().now_or_never().is_none()
}

/// Runs the clock until the second candidate leads, and checks at every step that the first does not meanwhile.
async fn succeeds(first: &mut Leadership, second: &JoinHandle<Leadership>, within: Duration) -> Duration {
    assert!(is_held(first));
    let start = Instant::now();
    while !second.is_finished() {
        assert!(start.elapsed() < within, "no candidate took it over");
        sleep(STEP).await;
        assert!(!(is_held(first) && second.is_finished()), "both hold it after {:?}", start.elapsed());
    }
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn one_of_two_candidates_leads_and_the_other_waits() {
    let server = Server::default();
    let (a, b) = (server.candidate("a"), server.candidate("b"));
    let mut first = a.0.acquire(&a.1).await;
    let second = acquire(&b);
    sleep(seconds(3600)).await;
    assert!(is_held(&mut first) && !second.is_finished());
    assert!(b.2.lines().iter().all(|line| line.starts_with("GET ")), "a waiting candidate does not write");
    let (renewals, reads) = (a.2.lines().len(), a.2.lines().iter().filter(|line| line.starts_with("GET ")).count());
    assert!((1700..=1810).contains(&renewals) && reads == 1, "a renewal is one request: {renewals}, {reads}");
    let spec = server.spec();
    assert_eq!((&spec["holderIdentity"], &spec["leaseDurationSeconds"]), (&json!("a"), &json!(15)));
    assert_eq!(spec["leaseTransitions"], 0);
    let time = spec["renewTime"].as_str().unwrap();
    assert!(time.len() == "2026-01-01T00:00:00.000000Z".len() && time.ends_with('Z'), "{time}");
    second.abort();
}

#[tokio::test(start_paused = true)]
async fn a_disconnected_leader_stops_before_another_one_leads() {
    for trouble in [Trouble::Silence, Trouble::Refused, Trouble::AnswersLost] {
        let server = Server::default();
        let (a, b) = (server.candidate("a"), server.candidate("b"));
        let mut first = a.0.acquire(&a.1).await;
        let second = acquire(&b);
        sleep(seconds(61)).await;
        server.trouble("a", trouble);
        let took = succeeds(&mut first, &second, seconds(40)).await;
        assert!(took > seconds(13), "{took:?}");
        assert_eq!(server.spec()["leaseTransitions"], 1);
        // A late answer does not restore it.
        server.0.lock().unwrap().trouble.clear();
        for _ in 0..600 {
            sleep(STEP).await;
            assert!(!is_held(&mut first));
        }
        assert!(is_held(&mut second.await.unwrap()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_without_renewals_loses_the_lease_at_the_deadline() {
    let server = Server::default();
    let a = server.candidate("a");
    let mut leadership = a.0.acquire(&a.1).await;
    sleep(seconds(61)).await;
    let renewed = *a.2.times().last().unwrap();
    server.trouble("a", Trouble::Silence);
    leadership.lost().await;
    assert!(!is_held(&mut leadership));
    let lost = a.2.now();
    assert!(lost >= renewed + seconds(10) && lost <= renewed + seconds(10) + Duration::from_millis(2), "{lost:?}");
    timeout(seconds(1), leadership.lost()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn another_writer_of_the_lease_does_not_end_a_leadership() {
    let server = Server::default();
    let a = server.candidate("a");
    let mut leadership = a.0.acquire(&a.1).await;
    for _ in 0..30 {
        server.edit(|lease| lease.as_mut().unwrap()["metadata"]["annotations"] = json!({"backup": "yes"}));
        sleep(seconds(2)).await;
        assert!(is_held(&mut leadership));
    }
    assert_eq!(server.0.lock().unwrap().lease.as_ref().unwrap()["metadata"]["annotations"]["backup"], "yes");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_another_client_reassigns_is_lost_at_once() {
    for holder in ["b", ""] {
        let server = Server::default();
        let a = server.candidate("a");
        let mut leadership = a.0.acquire(&a.1).await;
        server.edit(|lease| lease.as_mut().unwrap()["spec"]["holderIdentity"] = json!(holder));
        timeout(seconds(3), leadership.lost()).await.unwrap();
        assert_eq!(server.spec()["holderIdentity"], holder, "it is not overwritten");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_is_recreated_by_its_holder() {
    let server = Server::default();
    let (a, b) = (server.candidate("a"), server.candidate("b"));
    let mut first = a.0.acquire(&a.1).await;
    let second = acquire(&b);
    for _ in 0..20 {
        sleep(Duration::from_millis(3300)).await;
        server.edit(|lease| *lease = None);
        // The other candidate reads more often than the holder renews, and does not take a Lease that it knows to be held.
        sleep(Duration::from_millis(3300)).await;
        assert!(is_held(&mut first) && !second.is_finished());
        assert_eq!(server.spec()["holderIdentity"], "a");
    }
    server.trouble("a", Trouble::Refused);
    server.edit(|lease| *lease = None);
    succeeds(&mut first, &second, seconds(40)).await;
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_free_at_once() {
    let server = Server::default();
    let (a, b) = (server.candidate("a"), server.candidate("b"));
    let first = a.0.acquire(&a.1).await;
    sleep(seconds(5)).await;
    server.edit(|lease| lease.as_mut().unwrap()["metadata"]["labels"] = json!({"a": "b"}));
    first.release().await;
    let spec = server.spec();
    assert_eq!((&spec["holderIdentity"], &spec["leaseDurationSeconds"]), (&json!(""), &json!(1)));
    let start = Instant::now();
    let mut second = b.0.acquire(&b.1).await;
    assert!(is_held(&mut second) && start.elapsed() < seconds(1));
    sleep(seconds(20)).await;
    assert_eq!(server.spec()["holderIdentity"], "b", "the first one no longer renews it");
}

#[tokio::test(start_paused = true)]
async fn a_candidate_learns_why_it_waits_and_may_give_up() {
    let server = Server::default();
    let (a, b) = (server.candidate("a"), server.candidate("b"));
    let first = a.0.acquire(&a.1).await;
    let mut holders = Vec::new();
    let third_try = |why: NotHeld<'_>| {
        let NotHeld::ByAnother(holder) = why else { panic!("{why:?}") };
        holders.push(holder.to_owned());
        (holders.len() == 3).then_some("given up")
    };
    assert_eq!(b.0.acquire_unless(&b.1, third_try).await.unwrap_err(), "given up");
    assert_eq!(holders, ["a"; 3]);
    first.release().await;
    server.trouble("b", Trouble::ReadOnly);
    let start = Instant::now();
    let forbidden = |why: NotHeld<'_>| match why {
        NotHeld::Failed(error) => Some(error.kind().clone()),
        NotHeld::ByAnother(holder) => panic!("{holder:?} has released it"),
    };
    assert_eq!(b.0.acquire_unless(&b.1, forbidden).await.unwrap_err(), ErrorKind::Forbidden);
    assert_eq!(start.elapsed(), Duration::ZERO, "a failure is not repeated");
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_another_holder_is_not_released() {
    let server = Server::default();
    let a = server.candidate("a");
    let leadership = a.0.acquire(&a.1).await;
    server.edit(|lease| lease.as_mut().unwrap()["spec"]["holderIdentity"] = json!("b"));
    leadership.release().await;
    assert_eq!(server.spec()["holderIdentity"], "b");
    // Without an answer it ends nevertheless.
    let server = Server::default();
    let a = server.candidate("a");
    let leadership = a.0.acquire(&a.1).await;
    server.trouble("a", Trouble::Silence);
    timeout(seconds(11), leadership.release()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_holder_died_is_taken_over_after_its_duration() {
    let server = Server::default();
    let (a, b) = (server.candidate("a"), server.candidate("b"));
    drop(a.0.acquire(&a.1).await);
    sleep(seconds(3600)).await;
    let start = Instant::now();
    let second = b.0.acquire(&b.1).await;
    // It does not matter how long ago: b has only just started to watch the Lease.
    assert!(start.elapsed() >= seconds(15) && start.elapsed() < seconds(20), "{:?}", start.elapsed());
    drop(second);
    server.edit(|lease| lease.as_mut().unwrap()["spec"]["leaseDurationSeconds"] = json!(60));
    let start = Instant::now();
    let first = a.0.acquire(&a.1).await;
    assert!(start.elapsed() >= seconds(60) && start.elapsed() < seconds(65), "{:?}", start.elapsed());
    drop(first);
    let start = Instant::now();
    a.0.acquire(&a.1).await;
    assert!(start.elapsed() < seconds(1), "a Lease of this identity is acquired at once");
}

#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "the times in a Lease are those of the wall clock")]
async fn a_lease_has_the_time_of_its_renewal() {
    let server = Server::default();
    let (cluster, options, _) = server.candidate("a");
    let _leadership = cluster.acquire(&options).await;
    let renewed: jiff::Timestamp = server.spec()["renewTime"].as_str().unwrap().parse().unwrap();
    let now = jiff::Timestamp::try_from(std::time::SystemTime::now()).unwrap();
    assert!(now.duration_since(renewed) < jiff::SignedDuration::from_secs(15), "{renewed}");
}
