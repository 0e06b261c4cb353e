//! Garbage collection.

use super::*;

#[tokio::test(start_paused = true)]
async fn dependents_are_deleted_with_their_owner() {
    for (propagation, child_is_left) in [
        (None, false),
        (Some(Propagation::Background), false),
        (Some(Propagation::Foreground), false),
        (Some(Propagation::Orphan), true),
    ] {
        let mut world = World::new();
        let mother = world.config_map("mother", &[], &[]);
        world.config_map("son", &[&mother], &[]);
        world.config_map("daughter", &[&mother], &[]);
        world.settle().await;
        world.delete(&map("daughter"), propagation);
        world.settle().await;
        assert!(world.has(&map("mother")) && !world.has(&map("daughter")), "{propagation:?}");
        world.delete(&map("mother"), propagation);
        world.settle().await;
        assert!(!world.has(&map("mother")), "{propagation:?}");
        let son = world.get(&map("son"));
        assert_eq!(son.is_some(), child_is_left, "{propagation:?}");
        assert!(son.is_none_or(|son| son["metadata"]["ownerReferences"].is_null()));
        assert_eq!(world.state.controllers.next(), None, "{propagation:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn background_deletes_the_owner_first_and_foreground_the_dependents() {
    let mut world = World::new();
    let mother = world.config_map("mother", &[], &[]);
    world.config_map("son", &[&mother], &["x/y"]);
    world.delete(&map("mother"), Some(Propagation::Background));
    assert!(!world.has(&map("mother")) && world.has(&map("son")));
    world.settle().await;
    assert!(world.get(&map("son")).expect("held")["metadata"]["deletionTimestamp"].is_string());

    let mother = world.config_map("stepmother", &[], &[]);
    world.config_map("stepson", &[&mother], &["x/y"]);
    world.delete(&map("stepmother"), Some(Propagation::Foreground));
    world.pass(Duration::from_secs(3600)).await;
    let mother = world.get(&map("stepmother")).expect("waiting");
    assert_eq!(mother["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    assert!(world.get(&map("stepson")).expect("held")["metadata"]["deletionTimestamp"].is_string());
    world.release(&map("stepson"));
    world.settle().await;
    assert!(!world.has(&map("stepmother")) && !world.has(&map("stepson")));
}

#[tokio::test(start_paused = true)]
async fn foreground_waits_only_for_blocking_dependents() {
    let mut world = World::new();
    let mother = world.config_map("mother", &[], &[]);
    world.create(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": "son", "namespace": "default", "finalizers": ["x/y"], "ownerReferences": [reference(&mother, false)],
        },
    }));
    world.delete(&map("mother"), Some(Propagation::Foreground));
    world.settle().await;
    assert!(!world.has(&map("mother")));
    assert!(world.get(&map("son")).expect("held")["metadata"]["deletionTimestamp"].is_string());
}

#[tokio::test(start_paused = true)]
async fn foreground_deletion_is_recursive() {
    let mut world = World::new();
    let mother = world.config_map("mother", &[], &[]);
    let son = world.config_map("son", &[&mother], &[]);
    world.config_map("grandson", &[&son], &["x/y"]);
    world.delete(&map("mother"), Some(Propagation::Foreground));
    world.settle().await;
    let son = world.get(&map("son")).expect("waiting");
    assert_eq!(son["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    world.release(&map("grandson"));
    world.settle().await;
    assert_eq!(world.names("", "configmaps", "default"), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn cyclic_owners_are_deleted() {
    let mut world = World::new();
    let one = world.config_map("one", &[], &[]);
    let two = world.config_map("two", &[&one], &[]);
    world.edit(&map("one"), None, |object| object["metadata"]["ownerReferences"] = json!([reference(&two, true)]));
    world.settle().await;
    world.delete(&map("one"), Some(Propagation::Foreground));
    world.settle().await;
    assert_eq!(world.names("", "configmaps", "default"), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn dependents_remain_while_one_owner_exists() {
    for propagation in [Propagation::Background, Propagation::Foreground] {
        let mut world = World::new();
        let (one, two) = (world.config_map("one", &[], &[]), world.config_map("two", &[], &[]));
        world.config_map("child", &[&one, &two], &[]);
        world.delete(&map("one"), Some(propagation));
        world.settle().await;
        let child = world.get(&map("child")).expect("owned by another");
        assert_eq!(child["metadata"]["ownerReferences"], json!([reference(&two, true)]));
        assert!(!world.has(&map("one")));
        world.delete(&map("two"), Some(propagation));
        world.settle().await;
        assert!(!world.has(&map("child")));
    }
}

#[tokio::test(start_paused = true)]
async fn dependents_of_missing_owners_are_collected() {
    let check = async |change: fn(&mut Value), is_left: bool| {
        let mut world = World::new();
        let owner = world.config_map("owner", &[], &[]);
        let mut reference = reference(&owner, false);
        change(&mut reference);
        world.create(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "child", "namespace": "default", "ownerReferences": [reference]},
        }));
        world.pass(Duration::from_secs(60)).await;
        assert_eq!(world.has(&map("child")), is_left, "{reference}");
        assert!(world.has(&map("owner")));
    };
    check(|_| {}, true).await;
    check(|reference| reference["uid"] = "nobody".into(), false).await;
    check(|reference| reference["name"] = "other".into(), false).await;
    check(|reference| reference["kind"] = "Secret".into(), false).await;
    // The version of an owner does not matter.
    check(|reference| reference["apiVersion"] = "v9".into(), true).await;
    // A kind that is unknown may be served later.
    check(|reference| reference["kind"] = "Widget".into(), true).await;
}

#[tokio::test(start_paused = true)]
async fn owners_in_other_namespaces_are_invalid() {
    let mut world = World::new();
    let owner = world.config_map("owner", &[], &[]);
    world.create(json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "child", "namespace": "kube-public", "ownerReferences": [reference(&owner, false)]},
    }));
    world.create(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": [],
        "metadata": {"name": "child", "ownerReferences": [reference(&owner, false)]},
    }));
    world.settle().await;
    assert!(!world.has(&id("", "configmaps", "kube-public", "child")));
    let role = id("rbac.authorization.k8s.io", "clusterroles", "", "child");
    assert!(world.has(&role), "a cluster-scoped object cannot have a namespaced owner, and remains");
    let uid = owner["metadata"]["uid"].as_str().expect("a UID");
    let message = |event: Value| event["message"].as_str().map(str::to_owned);
    let events = |namespace| objects(&world.state, "", "events", namespace);
    let messages: Vec<_> = events("kube-public").iter().filter_map(|event| message(event.value())).collect();
    let expected = format!(
        "ownerRef [v1/ConfigMap, namespace: kube-public, name: owner, uid: {uid}] does not exist in namespace \"kube-public\""
    );
    assert_eq!(messages, [expected]);
    assert_eq!(events("default")[0].value()["reason"], "OwnerRefInvalidNamespace");
    world.delete(&map("owner"), None);
    world.settle().await;
    assert!(world.has(&role));
}

#[tokio::test(start_paused = true)]
async fn stale_finalizers_block_deletion() {
    // The cases of the Kubernetes blog on finalizers: nothing happens until the finalizer is removed.
    let mut world = World::new();
    let mother = world.config_map("mother", &[], &["kubernetes"]);
    world.config_map("son", &[&mother], &[]);
    world.delete(&map("mother"), None);
    world.pass(Duration::from_secs(600)).await;
    assert!(world.has(&map("mother")) && world.has(&map("son")), "a held owner keeps its dependents");
    world.release(&map("mother"));
    world.settle().await;
    assert!(!world.has(&map("mother")) && !world.has(&map("son")));
}

#[tokio::test(start_paused = true)]
async fn many_dependents_are_deleted_at_once() {
    let mut world = World::new();
    let mother = world.config_map("mother", &[], &[]);
    for child in 0..300 {
        world.config_map(&format!("child-{child}"), &[&mother], &[]);
    }
    world.settle().await;
    world.delete(&map("mother"), Some(Propagation::Foreground));
    world.settle().await;
    assert_eq!(world.names("", "configmaps", "default"), Vec::<String>::new());
}
