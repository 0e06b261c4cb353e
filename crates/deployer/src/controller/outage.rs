//! Helm and the Lease: outages of the home API while a scripted helm runs, with two replicas and a paused clock.

use std::{
    os::unix::process::ExitStatusExt as _,
    process::{ExitStatus, Output},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use billhook_charts::Helm;
use billhook_cluster::Options;
use billhook_sandbox::{
    Sandbox, User,
    faults::{Fault, Moment, Requests},
};
use futures::FutureExt as _;
use kube::{Api, Client};
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until};

use super::*;
use crate::{
    api::{DeployItem, KUBERNETES_CLUSTER, Phase},
    dispatcher::crowd::{charts, create, packed},
    metrics::Metrics,
    mode::Mode,
    shard::Shard,
    target::{Connect, ConnectionRules},
};

/// How long helm needs for the release.
const HELM: Duration = Duration::from_secs(60);
/// The renew deadline, after which a leader stops.
const DEADLINE: Duration = Duration::from_secs(10);
/// The lease duration, after which another replica may take over.
const LEASE: Duration = Duration::from_secs(15);

/// A run of `helm upgrade`.
#[derive(Clone, Debug)]
struct Run {
    replica: &'static str,
    begun: Instant,
    ended: Option<Instant>,
    /// Whether it ended by itself.
    complete: bool,
}

type Runs = Arc<Mutex<Vec<Run>>>;

/// Notes the end of a run, also if it is killed.
struct Running(Runs, usize);

impl Running {
    fn start(runs: &Runs, replica: &'static str) -> Self {
        let mut all = runs.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(Run { replica, begun: Instant::now(), ended: None, complete: false });
        Self(Arc::clone(runs), all.len() - 1)
    }

    fn complete(self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[self.1].complete = true;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[self.1].ended = Some(Instant::now());
    }
}

/// A home cluster and another one as the target, two replicas, and an item with a release.
struct World {
    home: Sandbox,
    client: Client,
    runs: Runs,
    begun: Instant,
}

impl World {
    /// Starts the replica `own`, which leads, then `other`, and returns when helm runs.
    async fn start() -> Self {
        let home = Sandbox::start(billhook_sandbox::Options::default());
        let target = Sandbox::start(billhook_sandbox::Options::default().seed(1));
        let client = home.client(User::admin(), "test");
        for crd in crate::crds::definitions().unwrap() {
            create(&client, crd).await;
        }
        sleep(Duration::from_secs(5)).await;
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "a",
            "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } }],
            "clusters": [{ "name": "a", "cluster": { "server": "http://10.0.0.1" } }],
            "users": [{ "name": "a", "user": {} }],
        });
        let spec = json!({ "type": KUBERNETES_CLUSTER, "config": { "kubeconfig": kubeconfig } });
        let metadata = json!({ "namespace": "default", "name": "target" });
        let api_version = "landscaper.gardener.cloud/v1alpha1";
        create(&client, json!({ "apiVersion": api_version, "kind": "Target", "metadata": metadata, "spec": spec }))
            .await;
        let world = Self { home, client, runs: Runs::default(), begun: Instant::now() };
        let installed = Arc::new(AtomicBool::new(false));
        for replica in ["own", "other"] {
            let options = world.options(replica, &target, helm(replica, &world.runs, &installed));
            let home = Cluster::from_client(world.home.client(User::admin(), replica), Options::default());
            tokio::spawn(Controller::new(home, options).run(CancellationToken::new()));
            sleep(Duration::from_secs(5)).await;
        }
        for item in charts("default", "target", "shop", &packed(), true, 1) {
            create(&world.client, item).await;
        }
        while world.runs().is_empty() {
            sleep(Duration::from_millis(100)).await;
        }
        world
    }

    fn options(&self, replica: &str, target: &Sandbox, helm: Helm) -> ControllerOptions {
        let (begun, target, own) = (self.begun, target.clone(), replica.to_owned());
        let connect: Connect =
            Arc::new(move |_, options| Ok(Cluster::from_client(target.client(User::admin(), own.as_str()), options)));
        ControllerOptions {
            mode: Mode::Standalone,
            namespaces: Vec::new(),
            namespace_selector: None,
            identity: replica.to_owned(),
            shard: Shard::default(),
            connect,
            now: Arc::new(move || Timestamp::UNIX_EPOCH + jiff::SignedDuration::try_from(begun.elapsed()).unwrap()),
            helm,
            target_selectors: Vec::new(),
            connections: ConnectionRules::default(),
            metrics: Metrics::new(),
            leader_election: Some(LeaseOptions::new("default", "billhook-controller", replica)),
            max_items: 100,
            grace: Duration::ZERO,
        }
    }

    fn runs(&self) -> Vec<Run> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the holder of the Lease, how often it has changed, and when it was renewed.
    fn lease(&self) -> (String, i64, Instant) {
        let lease = self.home.object("coordination.k8s.io", "leases", "default", "billhook-controller").unwrap();
        let spec = &lease["spec"];
        let renewed: Timestamp = spec["renewTime"].as_str().unwrap().parse().unwrap();
        let renewed = Duration::try_from(renewed.duration_since(Timestamp::UNIX_EPOCH)).unwrap();
        let text = |field: &str| spec[field].as_str().unwrap().to_owned();
        (text("holderIdentity"), spec["leaseTransitions"].as_i64().unwrap(), self.begun + renewed)
    }

    async fn until_succeeded(&self) {
        let items: Api<DeployItem> = Api::namespaced(self.client.clone(), "default");
        let begun = Instant::now();
        loop {
            sleep(Duration::from_secs(1)).await;
            let status = items.get("helm-shop-0").await.ok().and_then(|item| item.status);
            if status.as_ref().is_some_and(|status| status.phase == Some(Phase::Succeeded)) {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(300), "{status:?} {:?}", self.runs());
        }
    }
}

/// Returns a helm that notes its runs, and shares the record of the release with that of the other replica.
fn helm(replica: &'static str, runs: &Runs, installed: &Arc<AtomicBool>) -> Helm {
    let (runs, installed) = (Arc::clone(runs), Arc::clone(installed));
    Helm::scripted(move |arguments| {
        let (runs, installed) = (Arc::clone(&runs), Arc::clone(&installed));
        async move {
            let output = |code: i32, stdout: &str, stderr: &str| Output {
                status: ExitStatus::from_raw(code << 8),
                stdout: stdout.into(),
                stderr: stderr.into(),
            };
            match arguments[0].as_str() {
                "version" => output(0, "v4.0.0", ""),
                "upgrade" => {
                    let running = Running::start(&runs, replica);
                    sleep(HELM).await;
                    running.complete();
                    installed.store(true, Ordering::Relaxed);
                    output(0, "", "")
                }
                "get" if installed.load(Ordering::Relaxed) => {
                    output(0, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}", "")
                }
                "get" => output(1, "", "Error: release: not found"),
                other => panic!("helm {other}"),
            }
        }
        .boxed()
    })
}

/// Asserts that helm ran once and to its end, and that nobody else has led.
async fn ran_once(world: &World) {
    world.until_succeeded().await;
    let runs = world.runs();
    let [run] = runs.as_slice() else { panic!("{runs:?}") };
    assert!(run.complete && run.replica == "own", "{run:?}");
    assert_eq!(run.ended.unwrap() - run.begun, HELM);
    let (holder, transitions, _) = world.lease();
    assert_eq!((holder.as_str(), transitions), ("own", 0));
}

/// A renewal is sent every 2 s, also after one that failed. So an outage of less than 6 s never keeps all of those from the server
/// that are sent within the renew deadline of 10 s.
#[tokio::test(start_paused = true)]
async fn helm_outlives_an_outage_that_is_shorter_than_the_fence() {
    // It begins at several times between two renewals, or shortly before helm ends, so that its result cannot be written at first.
    for milliseconds in [20_000, 20_700, 21_300, 21_900, 57_900, 58_600] {
        let world = World::start().await;
        let begun = world.runs()[0].begun;
        sleep_until(begun + Duration::from_millis(milliseconds)).await;
        world.home.take_away(Duration::from_millis(5_900));
        ran_once(&world).await;
    }
}

#[tokio::test(start_paused = true)]
async fn helm_outlives_short_outages_one_after_another() {
    let world = World::start().await;
    for _ in 0..5 {
        world.home.take_away(Duration::from_millis(5_900));
        sleep(Duration::from_secs(9)).await;
    }
    ran_once(&world).await;
}

/// Asserts that the helm of the first leader ended exactly when its fence went down, and the next one began later.
async fn handed_over(world: &World, renewed: Instant, to: &str) {
    world.until_succeeded().await;
    let runs = world.runs();
    let [first, second] = runs.as_slice() else { panic!("{runs:?}") };
    assert_eq!((first.replica, first.complete, second.replica, second.complete), ("own", false, to, true));
    let lived = first.ended.unwrap() - renewed;
    // Timers have a resolution of a millisecond.
    assert!(lived >= DEADLINE && lived <= DEADLINE + Duration::from_millis(2), "helm ended after {lived:?}");
    assert!(second.begun > first.ended.unwrap());
}

#[tokio::test(start_paused = true)]
async fn helm_ends_with_the_fence_in_a_longer_outage() {
    let world = World::start().await;
    sleep(Duration::from_secs(20)).await;
    world.home.take_away(Duration::from_secs(40));
    let (_, _, renewed) = world.lease();
    sleep_until(renewed + DEADLINE - Duration::from_millis(1)).await;
    assert_eq!(world.runs()[0].ended, None);
    sleep(Duration::from_secs(40)).await;
    let (holder, ..) = world.lease();
    let to = if holder == "own" { "own" } else { "other" };
    handed_over(&world, renewed, to).await;
}

/// Only the leader is cut off: the other replica takes over as soon as it may. Its requests fail at once, or are never answered.
#[tokio::test(start_paused = true)]
async fn nobody_starts_helm_again_before_that_of_a_partitioned_leader_has_ended() {
    for fault in [Fault::broken(Moment::Before), Fault::unavailable(), Fault::crash(Moment::Before)] {
        let world = World::start().await;
        sleep(Duration::from_secs(20)).await;
        let (_, _, before) = world.lease();
        let own = Requests::of("own");
        world.home.faults().inject(fault.on(own.clone()));
        world.home.faults().cut_watches(&own);
        let (_, _, renewed) = world.lease();
        assert_eq!(before, renewed);
        handed_over(&world, renewed, "other").await;
        let second = world.runs()[1].begun;
        assert!(second >= renewed + LEASE, "{:?}", second - renewed);
        let (holder, transitions, _) = world.lease();
        assert_eq!((holder.as_str(), transitions), ("other", 1));
    }
}
