//! CustomResourceDefinitions.

use super::*;
use crate::verbs::is_terminating;

fn definition(plural: &str, kind: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, "listKind": format!("{kind}List"), "singular": kind.to_lowercase()},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

fn of(name: &str) -> ObjectId {
    id("apiextensions.k8s.io", "customresourcedefinitions", "", &format!("{name}.example.com"))
}

fn widget(namespace: &str) -> ObjectId {
    id("example.com", "widgets", namespace, "a")
}

async fn world(finalizers: &[&str]) -> World {
    let mut world = World::new();
    world.create(definition("widgets", "Widget"));
    world.settle().await;
    for namespace in ["default", "kube-public"] {
        world.create(json!({
            "apiVersion": "example.com/v1", "kind": "Widget",
            "metadata": {"name": "a", "namespace": namespace, "finalizers": finalizers},
        }));
    }
    world
}

#[tokio::test(start_paused = true)]
async fn kinds_are_served_once_names_are_accepted() {
    let world = world(&[]).await;
    assert_eq!(
        world.condition(&of("widgets"), "NamesAccepted"),
        expected_condition("True", "NoConflicts", "no conflicts found")
    );
    let accepted = "the initial names have been accepted";
    assert_eq!(
        world.condition(&of("widgets"), "Established"),
        expected_condition("True", "InitialNamesAccepted", accepted)
    );
    let definition = world.get(&of("widgets")).expect("there");
    assert_eq!(definition["status"]["acceptedNames"]["singular"], "widget");
    assert_eq!(definition["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(world.state.controllers.next(), None);
}

#[tokio::test(start_paused = true)]
async fn definitions_wait_for_names_in_use() {
    let mut world = world(&[]).await;
    world.create(definition("gadgets", "Widget"));
    world.settle().await;
    let in_use = "\"WidgetList\" is already in use";
    assert_eq!(
        world.condition(&of("gadgets"), "NamesAccepted"),
        expected_condition("False", "ListKindConflict", in_use)
    );
    let not_all = "not all names are accepted";
    assert_eq!(world.condition(&of("gadgets"), "Established"), expected_condition("False", "NotAccepted", not_all));
    assert!(world.state.kinds.find("example.com", "gadgets").is_none());
    world.delete(&of("widgets"), None);
    world.pass(Duration::from_secs(1)).await;
    assert_eq!(
        world.condition(&of("gadgets"), "NamesAccepted"),
        expected_condition("True", "NoConflicts", "no conflicts found")
    );
    assert!(world.state.kinds.find("example.com", "gadgets").is_some());
}

#[tokio::test(start_paused = true)]
async fn instances_are_deleted_with_their_definition() {
    let mut world = world(&[]).await;
    let kind = world.state.kinds.find("example.com", "widgets").expect("served").clone();
    assert!(!is_terminating(&world.state, &kind));
    world.delete(&of("widgets"), None);
    assert!(is_terminating(&world.state, &kind));
    let pending = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    assert_eq!(
        world.condition(&of("widgets"), "Terminating"),
        expected_condition("True", "InstanceDeletionPending", pending)
    );
    world.settle().await;
    assert!(!world.has(&of("widgets")) && !world.has(&widget("default")) && !world.has(&widget("kube-public")));
    assert!(world.state.kinds.find("example.com", "widgets").is_none());
    assert_eq!(world.state.controllers.next(), None);
    world.create(definition("widgets", "Widget"));
    world.settle().await;
    assert!(world.state.kinds.find("example.com", "widgets").is_some());
}

#[tokio::test(start_paused = true)]
async fn instances_with_finalizers_hold_their_definition() {
    let mut world = world(&["x/y"]).await;
    world.delete(&of("widgets"), None);
    world.pass(Duration::from_secs(30)).await;
    let in_progress = "CustomResource deletion is in progress";
    assert_eq!(
        world.condition(&of("widgets"), "Terminating"),
        expected_condition("True", "InstanceDeletionInProgress", in_progress)
    );
    assert!(world.get(&widget("default")).expect("held")["metadata"]["deletionTimestamp"].is_string());
    // The deletion is repeated after a minute and polled every five seconds.
    world.pass(Duration::from_secs(3600)).await;
    assert_eq!(
        world.condition(&of("widgets"), "Terminating"),
        expected_condition("True", "InstanceDeletionInProgress", in_progress)
    );
    world.release(&widget("default"));
    world.pass(Duration::from_secs(30)).await;
    assert!(world.has(&of("widgets")));
    world.release(&widget("kube-public"));
    world.pass(Duration::from_secs(6)).await;
    assert!(!world.has(&of("widgets")));
    assert_eq!(world.state.controllers.next(), None);
}

#[tokio::test(start_paused = true)]
async fn other_finalizers_hold_a_definition_without_instances() {
    let mut world = world(&[]).await;
    world.edit(&of("widgets"), None, |object| object["metadata"]["finalizers"] = json!(["x/y"]));
    world.delete(&of("widgets"), None);
    world.pass(Duration::from_secs(60)).await;
    let definition = world.get(&of("widgets")).expect("held");
    assert_eq!(definition["metadata"]["finalizers"], json!(["x/y"]));
    let removed = expected_condition("False", "InstanceDeletionCompleted", "removed all instances");
    assert_eq!(world.condition(&of("widgets"), "Terminating"), removed);
    assert!(world.state.kinds.find("example.com", "widgets").is_some());
    world.release(&of("widgets"));
    world.settle().await;
    assert!(world.state.kinds.find("example.com", "widgets").is_none());
}

#[tokio::test(start_paused = true)]
async fn owners_of_unknown_kinds_are_checked_once_these_are_served() {
    let mut world = World::new();
    world.create(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": "child", "namespace": "default",
            "ownerReferences": [{"apiVersion": "example.com/v1", "kind": "Widget", "name": "a", "uid": "nobody"}],
        },
    }));
    world.pass(Duration::from_secs(60)).await;
    assert!(world.has(&map("child")), "an unknown kind may be served later");
    world.create(definition("widgets", "Widget"));
    world.pass(Duration::from_secs(1000)).await;
    assert!(!world.has(&map("child")));
}
