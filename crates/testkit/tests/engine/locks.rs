//! The lock of a release, with the sandbox as the server: its times are those of its own clock.

#![expect(clippy::panic, reason = "helpers of tests")]

use std::time::Duration;

use billhook_cluster::{Begun, Cluster, HeldLease, HeldLock, Holder, LeaseOptions, Options, TakeOver};
use billhook_objects::ReleaseName;
use billhook_plan::{Inventory, Locked};
use billhook_sandbox::{
    Options as SandboxOptions, Sandbox, User,
    faults::{Fault, Moment, Requests},
};
use futures::FutureExt as _;
use http::Request;
use k8s_openapi::{
    ByteString,
    api::core::v1::{Namespace, Secret},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    client::Body,
};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn release() -> ReleaseName {
    ReleaseName::new("default", "web").unwrap()
}

fn holder(name: &str, lease: Option<HeldLease>) -> Holder {
    Holder::new(name, 1, lease)
}

struct Server(Sandbox);

impl Server {
    fn start() -> Self {
        Self(Sandbox::start(SandboxOptions::default()))
    }

    fn cluster(&self, name: &str) -> Cluster {
        Cluster::from_client(self.0.client(User::admin(), name), Options::default())
    }

    /// Tries to start an operation on the release.
    async fn begin(&self, holder: &Holder, may_vanish: bool) -> Begun {
        begin(&self.cluster("a"), holder, may_vanish).await
    }

    async fn held(&self, holder: &Holder) -> HeldLock {
        match self.begin(holder, false).await {
            Begun::Held(lock) => lock,
            Begun::Locked(locked) => panic!("{locked}"),
        }
    }

    async fn refused(&self, holder: &Holder) -> Locked {
        match self.begin(holder, false).await {
            Begun::Held(_) => panic!("it is not locked"),
            Begun::Locked(locked) => locked,
        }
    }

    fn head(&self) -> Value {
        let secret = self.0.object("", "secrets", "default", "billhook.web").unwrap();
        let head: ByteString = serde_json::from_value(secret["data"]["head"].clone()).unwrap();
        serde_json::from_slice(&head.0).unwrap()
    }
}

async fn begin(cluster: &Cluster, holder: &Holder, may_vanish: bool) -> Begun {
    let store = cluster.inventory();
    let stored = store.load(&release()).await.unwrap();
    let (mut inventory, token) = match stored {
        Some(stored) => (stored.inventory, Some(stored.token)),
        None => (Inventory::new(release()), None),
    };
    store.begin(&mut inventory, token, (holder, "apply"), may_vanish).await.unwrap()
}

fn is_held(lock: &mut HeldLock) -> bool {
    lock.lost().now_or_never().is_none()
}

#[tokio::test(start_paused = true)]
async fn a_lock_expires_without_renewals_and_not_before() {
    let server = Server::start();
    drop(server.held(&holder("alice@laptop", None)).await);
    let bob = holder("bob@ci", None);
    let locked = server.refused(&bob).await;
    assert_eq!((&*locked.holder, &*locked.operation), ("alice@laptop", "apply"));
    assert!(locked.expires_in.is_some_and(|left| left > seconds(28) && left <= seconds(30)), "{locked:?}");
    sleep(seconds(28)).await;
    server.refused(&bob).await;
    sleep(seconds(3)).await;
    let mut lock = server.held(&bob).await;
    assert!(is_held(&mut lock));
}

#[tokio::test(start_paused = true)]
async fn the_age_of_a_lock_counts_from_the_read() {
    let server = Server::start();
    drop(server.held(&holder("alice", None)).await);
    let (store, bob) = (server.cluster("b").inventory(), holder("bob", None));
    let mut stored = store.load(&release()).await.unwrap().unwrap();
    // A user thinks about the plan meanwhile.
    sleep(seconds(31)).await;
    let begun = store.begin(&mut stored.inventory, Some(stored.token), (&bob, "delete"), false).await.unwrap();
    assert!(matches!(begun, Begun::Held(_)), "{begun:?}");
}

/// The lock that was read has expired, but its holder has renewed it since: the write that would replace it is rejected.
#[tokio::test(start_paused = true)]
async fn a_lock_that_was_renewed_since_it_was_read_is_not_replaced() {
    let server = Server::start();
    let mut lock = server.held(&holder("alice", None)).await;
    let (store, bob) = (server.cluster("b").inventory(), holder("bob", None));
    let mut stored = store.load(&release()).await.unwrap().unwrap();
    let head = store.head(&release()).await.unwrap();
    sleep(seconds(45)).await;
    let begun = store.begin(&mut stored.inventory, Some(stored.token), (&bob, "apply"), false).await.unwrap();
    assert!(matches!(&begun, Begun::Locked(locked) if locked.holder == "alice"), "{begun:?}");
    let begun = store.lock(&release(), head, (&bob, "forget")).await.unwrap();
    assert!(matches!(&begun, Begun::Locked(locked) if locked.holder == "alice"), "{begun:?}");
    assert!(is_held(&mut lock));
    assert_eq!(server.head()["lock"]["holder"], "alice");
}

#[tokio::test(start_paused = true)]
async fn a_holder_renews_its_lock_and_nobody_else_starts() {
    let server = Server::start();
    let mut lock = server.held(&holder("alice", None)).await;
    let before = server.head();
    for _ in 0..30 {
        sleep(seconds(10)).await;
        assert!(is_held(&mut lock));
        server.refused(&holder("bob", None)).await;
    }
    let after = server.head();
    assert_eq!(after["lock"]["renewals"], 30);
    assert_eq!(after["revision"], before["revision"]);
    let store = server.cluster("a").inventory();
    let mut inventory = store.load(&release()).await.unwrap().unwrap().inventory;
    store.save(&mut inventory, lock.end().await).await.unwrap();
    assert!(server.head()["lock"].is_null());
    server.held(&holder("bob", None)).await;
}

#[tokio::test(start_paused = true)]
async fn other_changes_of_the_secret_do_not_end_a_lock() {
    let server = Server::start();
    let mut lock = server.held(&holder("alice", None)).await;
    let secrets: Api<Secret> = Api::namespaced(server.0.client(User::admin(), ""), "default");
    for n in 0..5 {
        let patch = json!({"metadata": {"annotations": {"backup.example/at": n.to_string()}}});
        let patch = Patch::Merge(patch);
        secrets.patch("billhook.web", &PatchParams::default(), &patch).await.unwrap();
        sleep(seconds(10)).await;
        assert!(is_held(&mut lock));
    }
    // An answer that is lost is no loss of the lock.
    server.0.faults().inject(Fault::broken(Moment::After).on(Requests::of("a").writes()).nth(1));
    sleep(seconds(60)).await;
    assert!(is_held(&mut lock));
}

#[tokio::test(start_paused = true)]
async fn a_disconnected_holder_stops_before_its_lock_expires() {
    let server = Server::start();
    let mut lock = server.held(&holder("alice", None)).await;
    sleep(seconds(61)).await;
    server.0.faults().inject(Fault::broken(Moment::Before).on(Requests::of("a")));
    timeout(seconds(20), lock.lost()).await.unwrap();
    let cluster = server.cluster("b").fenced(lock.fence());
    let error = cluster.version().await.unwrap_err();
    assert!(error.message().contains("the lock of the release was lost"), "{error}");
    server.0.faults().clear();
    server.refused(&holder("bob", None)).await;
    sleep(seconds(15)).await;
    server.held(&holder("bob", None)).await;
    assert!(lock.end().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_lost_with_its_record() {
    for may_vanish in [false, true] {
        let server = Server::start();
        let Begun::Held(mut lock) = server.begin(&holder("alice", None), may_vanish).await else { panic!() };
        server.cluster("").inventory().forget(&release()).await.unwrap();
        sleep(seconds(11)).await;
        assert!(!is_held(&mut lock));
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_goes_on_when_the_namespace_of_the_record_is_deleted() {
    for may_vanish in [false, true] {
        let server = Server::start();
        let namespaces: Api<Namespace> = Api::all(server.0.client(User::admin(), ""));
        let shop = Namespace {
            metadata: ObjectMeta { name: Some("shop".into()), ..Default::default() },
            ..Default::default()
        };
        namespaces.create(&PostParams::default(), &shop).await.unwrap();
        let (store, release) = (server.cluster("a").inventory(), ReleaseName::new("shop", "web").unwrap());
        let (alice, mut inventory) = (holder("alice", None), Inventory::new(release.clone()));
        let begun = store.begin(&mut inventory, None, (&alice, "delete"), may_vanish).await.unwrap();
        let Begun::Held(mut lock) = begun else { panic!() };
        namespaces.delete("shop", &DeleteParams::default()).await.unwrap();
        sleep(seconds(120)).await;
        assert!(store.load(&release).await.unwrap().is_none());
        assert_eq!(is_held(&mut lock), may_vanish);
        namespaces.create(&PostParams::default(), &shop).await.unwrap();
        sleep(seconds(11)).await;
        assert!(!is_held(&mut lock), "another operation may start now");
    }
}

#[tokio::test(start_paused = true)]
async fn a_live_lock_is_taken_over_and_its_holder_notices() {
    let server = Server::start();
    let mut lock = server.held(&holder("alice", None)).await;
    sleep(seconds(65)).await;
    let (store, bob) = (server.cluster("b").inventory(), holder("bob", None));
    let TakeOver::Taken(taken) = store.take_over(&release(), &bob).await.unwrap() else { panic!() };
    let wait = taken.wait;
    assert!(&*taken.from.holder == "alice" && wait > seconds(14) && wait <= seconds(18), "{wait:?}");
    server.refused(&holder("carol", None)).await;
    server.refused(&bob).await;
    timeout(seconds(11), lock.lost()).await.unwrap();
    assert!(taken.wait().await.unwrap());
    let mut lock = server.held(&bob).await;
    assert!(is_held(&mut lock));
    // A lock that nobody holds need not be waited for.
    let free = store.take_over(&release(), &bob).await.unwrap();
    assert!(matches!(free, TakeOver::Free), "{free:?}");
}

#[tokio::test(start_paused = true)]
async fn of_two_that_take_a_lock_over_the_second_one_has_it() {
    let server = Server::start();
    let _lock = server.held(&holder("alice", None)).await;
    let (store, bob, carol) = (server.cluster("b").inventory(), holder("bob", None), holder("carol", None));
    let TakeOver::Taken(first) = store.take_over(&release(), &bob).await.unwrap() else { panic!() };
    sleep(seconds(5)).await;
    let TakeOver::Taken(second) = store.take_over(&release(), &carol).await.unwrap() else { panic!() };
    assert!(second.wait >= first.wait - seconds(5), "{:?} after {:?}", second.wait, first.wait);
    assert!(!first.wait().await.unwrap());
    assert!(second.wait().await.unwrap());
    server.held(&carol).await;
}

/// A lock with a Lease is owned by whoever holds that next, and a released Lease is no lock; but the former holder of the lock
/// may go on, whatever becomes of the one that took it over.
#[tokio::test(start_paused = true)]
async fn nothing_starts_before_the_former_holder_of_a_lock_has_stopped() {
    let server = Server::start();
    let options = |identity| LeaseOptions::new("default", "billhook-payload-web", identity);
    let leadership = server.cluster("one").acquire(&options("one")).await;
    let (one, two) = (holder("one", Some(options("one").held())), holder("two", Some(options("two").held())));
    let mut lock = server.held(&holder("alice", None)).await;
    let store = server.cluster("b").inventory();
    let TakeOver::Taken(first) = store.take_over(&release(), &one).await.unwrap() else { panic!() };
    assert!(first.wait > seconds(20), "{:?}", first.wait);
    drop(first);
    sleep(seconds(5)).await;
    let (alice, bob) = (is_held(&mut lock), holder("bob", None));
    for next in [&one, &two, &bob] {
        server.refused(next).await;
    }
    leadership.release().await;
    for next in [&one, &two, &bob] {
        server.refused(next).await;
    }
    let TakeOver::Taken(second) = store.take_over(&release(), &two).await.unwrap() else { panic!() };
    assert!(alice && second.wait > seconds(16) && second.wait <= seconds(22), "{:?}", second.wait);
    drop(second);
    sleep(seconds(18)).await;
    assert!(!is_held(&mut lock));
    sleep(seconds(7)).await;
    server.held(&one).await;
}

#[tokio::test(start_paused = true)]
async fn without_times_of_the_server_a_lock_counts_as_live() {
    let server = Server::start();
    drop(server.held(&holder("alice", None)).await);
    sleep(seconds(3600)).await;
    let client = server.0.client(User::admin(), "b");
    let service = tower::service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move {
            let mut answer = client.send(request).await?;
            answer.headers_mut().remove(http::header::DATE);
            Ok::<_, kube::Error>(answer)
        }
    });
    let cluster = Cluster::from_client(Client::new(service, "default"), Options::default());
    let bob = holder("bob", None);
    let Begun::Locked(locked) = begin(&cluster, &bob, false).await else { panic!() };
    assert_eq!(locked.expires_in, None);
    let taken = cluster.inventory().take_over(&release(), &bob).await.unwrap();
    let TakeOver::Taken(taken) = taken else { panic!("{taken:?}") };
    assert!(taken.wait >= seconds(20) && matches!(begin(&cluster, &bob, false).await, Begun::Locked(_)));
    assert!(taken.wait().await.unwrap());
    assert!(matches!(begin(&cluster, &bob, false).await, Begun::Held(_)));
}

#[tokio::test(start_paused = true)]
async fn a_controller_holds_its_locks_by_its_lease() {
    let server = Server::start();
    let options = |identity| LeaseOptions::new("default", "billhook-controller", identity);
    let leadership = server.cluster("controller").acquire(&options("one")).await;
    let (one, two) = (holder("one", Some(options("one").held())), holder("two", Some(options("two").held())));
    let bob = holder("bob", None);
    let mut lock = server.held(&one).await;
    sleep(seconds(600)).await;
    assert!(is_held(&mut lock) && server.head()["lock"]["renewals"] == 0, "the Lease is renewed instead");
    let locked = server.refused(&bob).await;
    assert_eq!(locked.lease.as_deref(), Some("default/billhook-controller"));
    let refused = server.cluster("b").inventory().take_over(&release(), &bob).await.unwrap();
    assert!(matches!(refused, TakeOver::Refused(_)), "{refused:?}");
    // The same controller, and its successor, continue at once.
    server.held(&one).await;
    server.held(&two).await;
    server.held(&one).await;
    // Its death is noticed by the age of the Lease.
    drop(leadership);
    sleep(seconds(20)).await;
    server.refused(&bob).await;
    sleep(seconds(20)).await;
    drop(server.held(&bob).await);
    // A released Lease is no lock.
    sleep(seconds(31)).await;
    let leadership = server.cluster("controller").acquire(&options("one")).await;
    server.held(&one).await;
    server.refused(&bob).await;
    leadership.release().await;
    server.held(&bob).await;
}
