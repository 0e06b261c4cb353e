//! Waits for objects whose deletion was requested earlier.

use billhook_engine::{Waited, until_gone};
use billhook_objects::GroupKind;
use tokio::time::{Instant, sleep};

use super::*;

const CRD: &str = r#"{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "gears.g.example"}, "spec": {"group": "g.example", "scope": "Namespaced",
    "names": {"kind": "Gear", "plural": "gears"}, "versions": [{"name": "v1", "served": true, "storage": true,
    "schema": {"openAPIV3Schema": {"type": "object"}}}]}}"#;

impl World {
    /// Returns the API of another client for a kind of the target.
    pub(crate) fn api(&self, group: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
        let version = kube::api::GroupVersionKind::gvk(group, "v1", kind);
        let resource = ApiResource::from_gvk_with_plural(&version, plural);
        let client = self.target.client(User::admin(), "");
        if matches!(kind, "Namespace" | "CustomResourceDefinition") {
            Api::all_with(client, &resource)
        } else {
            Api::namespaced_with(client, "default", &resource)
        }
    }

    fn crds(&self) -> Api<DynamicObject> {
        self.api("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions")
    }

    /// Creates a ConfigMap that a finalizer keeps, and requests its deletion.
    async fn held(&self, name: &str) -> (ObjectKey, Uid) {
        let uid = self.given(name, json!({})).await;
        self.patch(name, json!({"metadata": {"finalizers": ["a.example/x"]}})).await;
        self.admin().delete(name, &DeleteParams::default()).await.unwrap();
        (key(name), uid)
    }

    async fn release(&self, name: &str) {
        self.patch(name, json!({"metadata": {"finalizers": null}})).await;
    }

    /// Creates a CRD and an instance that a finalizer keeps, and requests the deletion of the instance.
    async fn gear(&self) -> (ObjectKey, Uid) {
        self.crds().create(&PostParams::default(), &serde_json::from_str(CRD).unwrap()).await.unwrap();
        sleep(Duration::from_secs(5)).await;
        let gears = self.api("g.example", "Gear", "gears");
        let gear = json!({"apiVersion": "g.example/v1", "kind": "Gear",
                          "metadata": {"name": "g", "finalizers": ["a.example/x"]}});
        let made = gears.create(&PostParams::default(), &serde_json::from_value(gear).unwrap()).await.unwrap();
        gears.delete("g", &DeleteParams::default()).await.unwrap();
        (
            ObjectKey::new(GroupKind::new("g.example", "Gear"), Some("default"), "g"),
            Uid::new(made.metadata.uid.unwrap()),
        )
    }

    async fn wait_for(&self, objects: &[(ObjectKey, Uid)]) -> (Waited, Duration) {
        self.wait_while(objects, Duration::from_secs(100), async {}).await
    }

    /// Waits for objects while `work` is done.
    async fn wait_while(
        &self,
        objects: &[(ObjectKey, Uid)],
        limit: Duration,
        work: impl Future<Output = ()>,
    ) -> (Waited, Duration) {
        let (begun, stop) = (Instant::now(), CancellationToken::new());
        let waited = async {
            let waited = until_gone(&self.clusters, objects.to_vec(), Some(begun + limit), &stop).await.unwrap();
            (waited, begun.elapsed())
        };
        tokio::join!(waited, work).0
    }

    fn sent(&self, verb: Verb) -> usize {
        self.target.faults().log(CLIENT).iter().filter(|request| request.verb == verb).count()
    }
}

fn done() -> Waited {
    Waited { status: Status::Done, remaining: Vec::new() }
}

fn forbid(world: &World, verbs: &[Verb]) {
    for verb in verbs {
        let message = "configmaps is forbidden: User \"a\" cannot do that";
        let fault = Fault::refuse(http::StatusCode::FORBIDDEN, "Forbidden", message);
        world.target.faults().inject(fault.on(Requests::of(CLIENT).verb(*verb).resource("", "configmaps")));
    }
}

#[tokio::test(start_paused = true)]
async fn it_ends_with_the_last_object() {
    let world = World::new();
    let objects = [world.held("a").await, world.held("b").await];
    let work = async {
        sleep(Duration::from_secs(5)).await;
        world.release("a").await;
        sleep(Duration::from_secs(5)).await;
        world.release("b").await;
    };
    let (waited, took) = world.wait_while(&objects, Duration::from_secs(100), work).await;
    assert_eq!((waited, took.as_secs()), (done(), 10));
    assert_eq!(world.sent(Verb::Watch), 1, "both share a watch");
    assert!(world.writes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_is_gone_already_is_not_waited_for() {
    let world = World::new();
    let uid = world.given("a", json!({})).await;
    world.admin().delete("a", &DeleteParams::default()).await.unwrap();
    assert_eq!(world.wait_for(&[(key("a"), uid)]).await, (done(), Duration::ZERO));
    let sent = world.target.faults().count(CLIENT);
    assert_eq!(world.wait_for(&[]).await.0, done());
    assert_eq!(world.target.faults().count(CLIENT), sent, "nothing to wait for needs no request");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_recreated_is_gone() {
    // Before it waits, and while it does.
    let world = World::new();
    let (a, uid) = world.held("a").await;
    world.release("a").await;
    world.given("a", json!({})).await;
    assert_eq!(world.wait_for(&[(a, uid)]).await, (done(), Duration::ZERO));
    let objects = [world.held("b").await];
    let work = async {
        sleep(Duration::from_secs(5)).await;
        world.release("b").await;
        world.given("b", json!({})).await;
    };
    let (waited, took) = world.wait_while(&objects, Duration::from_secs(100), work).await;
    assert_eq!((waited, took.as_secs()), (done(), 5));
}

#[tokio::test(start_paused = true)]
async fn an_object_whose_kind_is_gone_is_gone() {
    // The kind is deleted, and with it the object once its finalizer is removed.
    let world = World::new();
    let objects = [world.gear().await, world.held("a").await];
    let work = async {
        sleep(Duration::from_secs(5)).await;
        world.crds().delete("gears.g.example", &DeleteParams::default()).await.unwrap();
        sleep(Duration::from_secs(5)).await;
        let free = json!({"metadata": {"finalizers": null}});
        let gears = world.api("g.example", "Gear", "gears");
        gears.patch("g", &PatchParams::default(), &Patch::Merge(free)).await.unwrap();
        sleep(Duration::from_secs(20)).await;
        world.release("a").await;
    };
    let (waited, took) = world.wait_while(&objects, Duration::from_secs(100), work).await;
    assert_eq!((waited, took.as_secs()), (done(), 30));
    // It was not served from the start.
    assert_eq!(world.wait_for(&objects[..1]).await, (done(), Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn reads_replace_a_watch_that_is_forbidden() {
    for verbs in [&[Verb::Watch][..], &[Verb::Watch, Verb::List]] {
        let world = World::new();
        let objects = [world.held("a").await, world.held("b").await];
        forbid(&world, verbs);
        let work = async {
            sleep(Duration::from_secs(5)).await;
            world.release("a").await;
            world.release("b").await;
            world.given("b", json!({})).await;
        };
        let (waited, took) = world.wait_while(&objects, Duration::from_secs(100), work).await;
        assert_eq!(waited, done(), "{verbs:?}");
        assert!((5..8).contains(&took.as_secs()), "{verbs:?}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_and_a_cancellation_leave_the_rest() {
    let world = World::new();
    let objects = [world.held("b").await, world.held("a").await, world.held("c").await];
    let work = async {
        sleep(Duration::from_secs(5)).await;
        world.release("b").await;
    };
    let (waited, took) = world.wait_while(&objects, Duration::from_secs(20), work).await;
    let remaining = || vec![key("a"), key("c")];
    assert_eq!(waited, Waited { status: Status::TimedOut, remaining: remaining() });
    assert_eq!(took.as_secs(), 20);
    let (begun, stop) = (Instant::now(), CancellationToken::new());
    let cancel = async {
        sleep(Duration::from_secs(3)).await;
        stop.cancel();
    };
    let (waited, ()) = tokio::join!(until_gone(&world.clusters, objects, None, &stop), cancel);
    assert_eq!(waited.unwrap(), Waited { status: Status::Interrupted, remaining: remaining() });
    assert_eq!(begun.elapsed().as_secs(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_waited_out() {
    let world = World::new();
    let objects = [world.held("a").await];
    let work = async {
        sleep(Duration::from_secs(5)).await;
        let unavailable = Fault::unavailable().on(Requests::of(CLIENT));
        world.target.faults().inject(unavailable);
        world.target.faults().inject(Fault::cut_after_events(0).on(Requests::of(CLIENT)));
        world.release("a").await;
        sleep(Duration::from_secs(20)).await;
        world.target.faults().clear();
    };
    let (waited, took) = world.wait_while(&objects, Duration::from_secs(100), work).await;
    assert_eq!(waited, done());
    assert!(took < Duration::from_secs(60), "{took:?}");
}

/// While the API of its group is unavailable, nothing is known about an object; the others are waited for meanwhile.
#[tokio::test(start_paused = true)]
async fn an_unavailable_api_proves_nothing() {
    let world = World::new();
    let service = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.far.example"}, "spec": {"group": "far.example", "version": "v1",
        "groupPriorityMinimum": 100, "versionPriority": 100, "service": {"namespace": "default", "name": "far"}}});
    let services = ApiResource::from_gvk_with_plural(
        &kube::api::GroupVersionKind::gvk("apiregistration.k8s.io", "v1", "APIService"),
        "apiservices",
    );
    let services: Api<DynamicObject> = Api::all_with(world.target.client(User::admin(), ""), &services);
    services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
    sleep(Duration::from_secs(5)).await;
    let far = ObjectKey::new(GroupKind::new("far.example", "Star"), None, "s");
    let objects = [(far.clone(), Uid::new("1")), world.held("a").await];
    let work = async {
        sleep(Duration::from_secs(10)).await;
        world.release("a").await;
    };
    let (waited, _) = world.wait_while(&objects, Duration::from_secs(60), work).await;
    assert_eq!(waited, Waited { status: Status::TimedOut, remaining: vec![far] });
    let work = async {
        sleep(Duration::from_secs(10)).await;
        services.delete("v1.far.example", &DeleteParams::default()).await.unwrap();
    };
    let (waited, took) = world.wait_while(&objects[..1], Duration::from_secs(60), work).await;
    assert_eq!(waited, done());
    assert!((10..30).contains(&took.as_secs()), "{took:?}");
}
