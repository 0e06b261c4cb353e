//! Deletion of namespaces.

use super::*;

fn shop() -> ObjectId {
    id("", "namespaces", "", "shop")
}

fn world() -> World {
    let mut world = World::new();
    world.create(json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"},
        "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
    }));
    world.state.put(&shop().resource.clone(), {
        let mut namespace = world.get(&shop()).expect("the namespace");
        namespace["status"] = json!({"phase": "Active"});
        namespace["spec"] = json!({"finalizers": ["kubernetes"]});
        namespace
    });
    world
}

fn in_shop(plural: &str, name: &str) -> ObjectId {
    id("", plural, "shop", name)
}

fn content(kind: &str, name: &str, finalizers: &[&str]) -> Value {
    json!({
        "apiVersion": "v1", "kind": kind,
        "metadata": {"name": name, "namespace": "shop", "finalizers": finalizers},
    })
}

#[tokio::test(start_paused = true)]
async fn namespaces_are_emptied_after_five_seconds() {
    let mut world = world();
    world.create(content("ConfigMap", "a", &[]));
    world.settle().await;
    assert!(world.has(&in_shop("serviceaccounts", "default")));
    world.delete(&shop(), None);
    world.pass(Duration::from_millis(4900)).await;
    assert!(world.has(&in_shop("configmaps", "a")));
    assert_eq!(world.get(&shop()).expect("there")["status"]["phase"], "Terminating");
    world.pass(Duration::from_millis(200)).await;
    assert!(!world.has(&in_shop("configmaps", "a")) && !world.has(&shop()));
    assert_eq!(world.names("", "serviceaccounts", "shop"), Vec::<String>::new(), "the account is not recreated");
    // The last change of the conditions causes one more pass.
    world.pass(Duration::from_secs(5)).await;
    assert_eq!(world.state.controllers.next(), None);
}

#[tokio::test(start_paused = true)]
async fn conditions_report_what_holds_a_namespace() {
    let mut world = world();
    world.create(content("ConfigMap", "free", &[]));
    world.create(content("ConfigMap", "held", &["x/y"]));
    world.create(content("Secret", "held", &["x/y", "x/z"]));
    world.delete(&shop(), None);
    world.pass(Duration::from_secs(6)).await;
    assert!(!world.has(&in_shop("configmaps", "free")));
    let check = |world: &World, name, status, reason, message| {
        assert_eq!(world.condition(&shop(), name), expected_condition(status, reason, message));
    };
    for (name, status, reason, message) in [
        ("NamespaceDeletionDiscoveryFailure", "False", "ResourcesDiscovered", "All resources successfully discovered"),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            "False",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        (
            "NamespaceDeletionContentFailure",
            "False",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        (
            "NamespaceContentRemaining",
            "True",
            "SomeResourcesRemain",
            "Some resources are remaining: configmaps. has 1 resource instances, secrets. has 1 resource instances",
        ),
        (
            "NamespaceFinalizersRemaining",
            "True",
            "SomeFinalizersRemain",
            "Some content in the namespace has finalizers remaining: x/y in 2 resource instances, x/z in 1 resource instances",
        ),
    ] {
        check(&world, name, status, reason, message);
    }
    world.release(&in_shop("secrets", "held"));
    world.release(&in_shop("configmaps", "held"));
    // The content is not watched. Writing the conditions after 5 s causes a pass after 10 s.
    world.pass(Duration::from_millis(3900)).await;
    assert!(world.has(&shop()));
    world.pass(Duration::from_millis(200)).await;
    assert!(!world.has(&shop()));
}

#[tokio::test(start_paused = true)]
async fn held_namespaces_are_checked_every_eight_seconds() {
    let mut world = world();
    world.create(content("ConfigMap", "held", &["x/y"]));
    world.delete(&shop(), None);
    world.pass(Duration::from_millis(10_100)).await;
    for _ in 0..5 {
        let next = world.state.controllers.next().expect("something to do");
        let until = next.saturating_duration_since(Instant::now());
        assert!((7800..=8000).contains(&until.as_millis()), "{until:?}");
        world.pass(Duration::from_secs(8)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn pods_are_deleted_first() {
    let mut world = world();
    let mut pod = content("Pod", "a", &["x/y"]);
    pod["spec"] = json!({"containers": [{"name": "a", "image": "a"}]});
    world.create(pod);
    world.create(content("ConfigMap", "a", &[]));
    world.delete(&shop(), None);
    world.pass(Duration::from_secs(60)).await;
    assert!(world.has(&in_shop("configmaps", "a")));
    world.release(&in_shop("pods", "a"));
    world.pass(Duration::from_secs(10)).await;
    assert!(!world.has(&shop()));
}

#[tokio::test(start_paused = true)]
async fn finalizers_hold_an_empty_namespace() {
    let mut world = world();
    world.edit(&shop(), None, |object| object["metadata"]["finalizers"] = json!(["x/y"]));
    world.delete(&shop(), None);
    world.pass(Duration::from_secs(60)).await;
    let namespace = world.get(&shop()).expect("held");
    assert!(namespace["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty));
    assert_eq!(
        world.condition(&shop(), "NamespaceContentRemaining"),
        expected_condition("False", "ContentRemoved", "All content successfully removed")
    );
    world.release(&shop());
    assert!(!world.has(&shop()));
}

#[tokio::test(start_paused = true)]
async fn finalizing_a_namespace_early_leaves_its_content() {
    let mut world = world();
    world.create(content("ConfigMap", "held", &["x/y"]));
    world.delete(&shop(), None);
    world.pass(Duration::from_secs(6)).await;
    world.edit(&shop(), Some("finalize"), |object| object["spec"]["finalizers"] = json!([]));
    world.pass(Duration::from_secs(60)).await;
    assert!(!world.has(&shop()) && world.has(&in_shop("configmaps", "held")));
}

#[test]
fn failures_are_reported_with_the_texts_of_kubernetes() {
    use crate::controllers::namespaces::{refused, undiscovered};

    assert_eq!((undiscovered(&[]), refused(&[])), (None, None));
    let dead = |group: &str| (group.to_owned(), "v1beta1".to_owned());
    assert_eq!(
        undiscovered(&[dead("z.example.com"), dead("metrics.k8s.io")]).expect("a message"),
        "Discovery failed for some groups, 2 failing: unable to retrieve the complete list of server APIs: \
         metrics.k8s.io/v1beta1: stale GroupVersion discovery: metrics.k8s.io/v1beta1, \
         z.example.com/v1beta1: stale GroupVersion discovery: z.example.com/v1beta1"
    );
    let messages = ["b is forbidden".to_owned(), "a is forbidden".to_owned()];
    let expected = "Failed to delete all resource types, 2 remaining: a is forbidden, b is forbidden";
    assert_eq!(refused(&messages).as_deref(), Some(expected));
}
