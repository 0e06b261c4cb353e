//! Service accounts, storage in use, initial objects, the queue and APIServices.

use super::*;
use crate::controllers::{
    ControllerSet,
    queue::Queue,
    work::{Task, Work},
};

#[tokio::test(start_paused = true)]
async fn service_accounts_are_recreated() {
    let mut world = World::new();
    let account = id("", "serviceaccounts", "default", "default");
    let before = world.get(&account).expect("there from the beginning");
    world.delete(&account, None);
    world.settle().await;
    let after = world.get(&account).expect("there again");
    assert_ne!(before["metadata"]["uid"], after["metadata"]["uid"]);
}

fn pod(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": node, "containers": [{"name": "a", "image": "a"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        },
    })
}

#[tokio::test(start_paused = true)]
async fn claims_remain_while_a_pod_on_a_node_uses_them() {
    let mut world = World::new();
    let claim = id("", "persistentvolumeclaims", "default", "data");
    world.create(json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }));
    world.create(pod("pending", ""));
    world.create(pod("running", "node"));
    world.settle().await;
    let protected = json!(["kubernetes.io/pvc-protection"]);
    assert_eq!(world.get(&claim).expect("there")["metadata"]["finalizers"], protected);
    world.delete(&claim, None);
    world.pass(Duration::from_secs(60)).await;
    assert!(world.has(&claim));
    let running = id("", "pods", "default", "running");
    let writer = world.writer("", "pods");
    let now = DeleteOptions { grace: Some(0), ..DeleteOptions::default() };
    delete(&mut world.state, &writer, "default", "running", &now).expect("deleted");
    world.settle().await;
    assert!(!world.has(&running) && !world.has(&claim), "a pod without a node does not use the claim");
}

#[tokio::test(start_paused = true)]
async fn volumes_remain_while_they_are_bound() {
    let mut world = World::new();
    let volume = id("", "persistentvolumes", "", "disk");
    world.create(json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk"},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/disk"}},
    }));
    world.edit(&volume, Some("status"), |object| object["status"] = json!({"phase": "Bound"}));
    world.settle().await;
    world.delete(&volume, None);
    world.pass(Duration::from_secs(60)).await;
    assert!(world.has(&volume));
    world.edit(&volume, Some("status"), |object| object["status"] = json!({"phase": "Released"}));
    world.settle().await;
    assert!(!world.has(&volume));
}

#[tokio::test(start_paused = true)]
async fn initial_objects_are_reproducible_and_cause_no_work() {
    let all = |world: &World| world.state.store.all().map(|stored| stored.value()).collect::<Vec<_>>();
    let world = World::new();
    assert_eq!(world.state.controllers.next(), None);
    assert_eq!(all(&world), all(&World::new()));
    assert_eq!(all(&world).len(), 23);
    let edit = world.get(&id("rbac.authorization.k8s.io", "clusterroles", "", "edit")).expect("a role");
    assert_eq!(edit["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-admin"], "true");
}

#[tokio::test(start_paused = true)]
async fn the_queue_contains_each_item_once_at_its_earliest_time() {
    let (mut queue, start) = (Queue::default(), Instant::now());
    let at = |milliseconds| start + Duration::from_millis(milliseconds);
    let work = |name| Work::new(Task::Claim, "default", name);
    queue.add(work("b"), at(5));
    queue.add(work("a"), at(5));
    queue.add(work("c"), at(9));
    queue.add(work("c"), at(1));
    queue.add(work("b"), at(7));
    assert_eq!(queue.take(at(0)), None);
    let order: Vec<_> = std::iter::from_fn(|| queue.take(at(100))).map(|work| work.name).collect();
    assert_eq!(order, ["c", "b", "a"].map(Box::from));
    let mut delays = Vec::new();
    for _ in 0..20 {
        queue.retry(work("a"), start);
        delays.push(queue.next().expect("an item").saturating_duration_since(start).as_millis());
        queue.take(at(10_000_000));
    }
    assert_eq!(delays[..4], [5, 10, 20, 40]);
    assert_eq!(delays[19], 1_000_000);
    queue.forget(&work("a"));
    queue.retry(work("a"), start);
    assert_eq!(queue.next(), Some(at(5)));
}

#[tokio::test(start_paused = true)]
async fn api_services_report_what_is_missing() {
    let mut world = World::new();
    let api_service = id("apiregistration.k8s.io", "apiservices", "", "v1.away.example.com");
    world.create(json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.away.example.com"},
        "spec": {
            "group": "away.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10,
            "service": {"namespace": "default", "name": "away", "port": 443}, "insecureSkipTLSVerify": true,
        },
    }));
    let reason = async |world: &mut World| {
        world.settle().await;
        let conditions = &world.get(&api_service).expect("there")["status"]["conditions"];
        let [condition] = conditions.as_array().expect("a list").as_slice() else { panic!("{conditions}") };
        assert_eq!((&condition["type"], &condition["status"]), (&json!("Available"), &json!("False")));
        condition["reason"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(reason(&mut world).await, "ServiceNotFound");
    world.create(json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "away", "namespace": "default"},
        "spec": {"ports": [{"port": 443}]},
    }));
    assert_eq!(reason(&mut world).await, "EndpointsNotFound");
    world.create(json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "away", "namespace": "default", "labels": {"kubernetes.io/service-name": "away"}},
        "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"name": "", "port": 443}],
    }));
    assert_eq!(reason(&mut world).await, "FailedDiscoveryCheck");
}

#[test]
fn initial_objects_differ_only_in_uids_and_times() {
    let made = |seed, start: &str| {
        let mut state = State::new(Options::default().seed(seed).start(start.parse().expect("a time")));
        bootstrap(&mut state);
        state
    };
    let (one, other) = (made(1, "2026-01-01T00:00:00Z"), made(2, "2027-01-01T00:00:00Z"));
    let newest = |object: &Value| object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok());
    assert_eq!(one.store.all().filter_map(|object| newest(&object.value())).max(), Some(one.store.revision()));
    for (mine, theirs) in one.store.all().zip(other.store.all()) {
        assert_eq!(one.store.find_uid(&mine.uid).map(|id| &id.name), Some(&mine.name));
        let (mine, mut theirs) = (mine.value(), theirs.value());
        assert_ne!(mine["metadata"]["uid"], theirs["metadata"]["uid"]);
        assert_eq!(mine["metadata"]["creationTimestamp"], "2026-01-01T00:00:00Z");
        for field in ["uid", "creationTimestamp"] {
            theirs["metadata"][field] = mine["metadata"][field].clone();
        }
        assert_eq!(mine, theirs);
    }
}

#[tokio::test(start_paused = true)]
async fn controllers_can_be_left_out() {
    let accounts = |world: &World| world.names("", "serviceaccounts", "shop").len();
    for (set, expected) in [("none", 0), ("job-controller", 0), ("serviceaccount-controller", 1), ("all", 1)] {
        let mut world = World::with(Options::default().controllers(set.parse().expect("a choice")));
        world.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}));
        world.settle().await;
        assert_eq!(accounts(&world), expected, "{set}");
        assert_eq!(world.names("", "serviceaccounts", "default").len(), expected, "{set}");
    }
}

#[tokio::test(start_paused = true)]
async fn definitions_are_served_by_a_bare_server() {
    let mut world = World::with(Options::default().controllers(ControllerSet::none()));
    world.create(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    }));
    world.settle().await;
    assert!(world.state.kinds.find("example.com", "widgets").is_some());
}

#[tokio::test(start_paused = true)]
async fn budgets_count_healthy_pods() {
    let mut world = World::new();
    for name in ["a", "b", "c"] {
        world.create(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }));
        let ready = json!([{"type": "Ready", "status": "True"}]);
        world.edit(&id("", "pods", "default", name), Some("status"), |pod| pod["status"]["conditions"] = ready);
    }
    world.create(json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}},
    }));
    world.settle().await;
    let budget = id("policy", "poddisruptionbudgets", "default", "web");
    let numbers = |world: &World| {
        let status = world.get(&budget).expect("the budget")["status"].clone();
        ["currentHealthy", "desiredHealthy", "expectedPods", "disruptionsAllowed", "observedGeneration"]
            .map(|field| status[field].as_i64())
    };
    assert_eq!(numbers(&world), [3, 2, 3, 1, 1].map(Some));
    assert_eq!(world.condition(&budget, "DisruptionAllowed"), expected_condition("True", "SufficientPods", ""));
    world.delete(&id("", "pods", "default", "a"), None);
    world.settle().await;
    assert_eq!(numbers(&world), [2, 2, 2, 0, 1].map(Some));
    assert_eq!(world.condition(&budget, "DisruptionAllowed"), expected_condition("False", "InsufficientPods", ""));
}
