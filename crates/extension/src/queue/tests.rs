use serde_json::{Value, json};

use super::*;
use crate::object::tests::object;

/// A queue, and the effects of its inputs as texts.
struct Lab {
    queue: Queue,
}

fn key(name: &str) -> Key {
    Key { namespace: Some("shoot--a".to_owned()), name: name.to_owned() }
}

fn cluster(force: bool, state: &str) -> Box<Cluster> {
    let annotations = if force { json!({"confirmation.gardener.cloud/force-deletion": "true"}) } else { json!({}) };
    let shoot = json!({"metadata": {"annotations": annotations}, "status": {"lastOperation": {"state": state}}});
    serde_json::from_value(json!({"metadata": {"name": "shoot--a"}, "spec": {"shoot": shoot}})).unwrap()
}

fn deleting(version: &str) -> Value {
    json!({"metadata": {"resourceVersion": version, "deletionTimestamp": "2026-01-01T00:00:00Z"}})
}

fn version(version: &str) -> Value {
    json!({"metadata": {"resourceVersion": version}})
}

impl Lab {
    fn new(concurrency: usize) -> Self {
        let rules = Rules {
            kind: "DNSRecord".to_owned(),
            finalizer: "own/x".to_owned(),
            kind_types: vec!["local".to_owned()],
            classes: vec!["shoot".to_owned()],
            mode: Mode { generations: false },
            concurrency,
        };
        let mut lab = Self { queue: Queue::new(rules) };
        lab.on(Input::Cluster(cluster(false, "Processing")));
        lab
    }

    fn on(&mut self, input: Input) -> Vec<String> {
        let text = |effect: &Effect| match effect {
            Effect::Start(start) => {
                let action = start.decision.action().map_or("nothing", Action::name);
                format!("{action} {}", start.object.key.name)
            }
            Effect::Cancel(key) => format!("cancel {}", key.name),
            Effect::SetTimer(key, pause) => format!("pause {} {pause:?}", key.name),
            Effect::ClearTimer(key) => format!("no pause {}", key.name),
        };
        self.queue.on(input).iter().map(text).collect()
    }

    fn see(&mut self, name: &str, changes: &Value) -> Vec<String> {
        let mut changes = changes.clone();
        changes["metadata"]["name"] = json!(name);
        self.on(Input::Object(Box::new(object(&changes))))
    }

    fn end(&mut self, name: &str, version: &str, result: EndResult) -> Vec<String> {
        let end = End { version: Some(version.to_owned()), stripped: false, result };
        self.on(Input::Ended(key(name), end))
    }

    fn fail(&mut self, name: &str, version: &str) -> Vec<String> {
        self.end(name, version, EndResult::Failed { pause: None })
    }
}

const NOTHING: [&str; 0] = [];

#[test]
fn our_own_writes_ask_for_nothing() {
    let mut lab = Lab::new(1);
    assert_eq!(lab.see("a", &json!({})), ["reconcile a"]);
    assert_eq!(lab.see("a", &version("2")), NOTHING);
    assert_eq!(lab.end("a", "3", EndResult::Done), NOTHING);
    assert_eq!(lab.see("a", &version("3")), NOTHING);
}

fn annotated(version: &str) -> Value {
    let annotations = json!({"gardener.cloud/operation": "reconcile"});
    json!({"metadata": {"resourceVersion": version, "annotations": annotations}})
}

#[test]
fn versions_older_than_our_last_write_are_ignored() {
    let mut lab = Lab::new(1);
    assert_eq!(lab.see("a", &annotated("1")), ["reconcile a"]);
    assert_eq!(lab.end("a", "4", EndResult::Done), NOTHING);
    assert_eq!(lab.see("a", &annotated("3")), NOTHING);
    assert_eq!(lab.see("a", &version("4")), NOTHING);
    assert_eq!(lab.see("a", &annotated("5")), ["reconcile a"]);
}

#[test]
fn an_annotation_that_cannot_be_removed_is_retried_with_pauses() {
    let migrated = json!({"lastOperation": {"type": "Migrate", "state": "Succeeded"}});
    for (status, started) in [(Value::Null, "reconcile a"), (migrated, "nothing a")] {
        let mut object = annotated("1");
        object["status"] = status;
        let mut lab = Lab::new(1);
        assert_eq!(lab.see("a", &object), [started]);
        for pause in ["1s", "2s", "4s"] {
            assert_eq!(lab.fail("a", "1"), [format!("pause a {pause}")]);
            assert_eq!(lab.see("a", &object), NOTHING);
            assert_eq!(lab.on(Input::Timer(key("a"))), [started]);
        }
    }
}

#[test]
fn the_same_annotation_asks_again_after_it_was_removed() {
    // By another client, while the object pauses.
    let mut lab = Lab::new(1);
    assert_eq!(lab.see("a", &annotated("1")), ["reconcile a"]);
    assert_eq!(lab.fail("a", "1"), ["pause a 1s"]);
    assert_eq!(lab.see("a", &version("2")), NOTHING);
    assert_eq!(lab.see("a", &annotated("3")), ["no pause a", "reconcile a"]);
    // By our attempt, although no watch event shows the object without it.
    assert_eq!(lab.see("a", &annotated("9")), NOTHING);
    let end = End { version: Some("5".to_owned()), stripped: true, result: EndResult::Done };
    assert_eq!(lab.on(Input::Ended(key("a"), end)), ["reconcile a"]);
}

#[test]
fn an_outdated_attempt_starts_again_with_the_next_version() {
    let mut lab = Lab::new(1);
    assert_eq!(lab.see("a", &version("1")), ["reconcile a"]);
    let outdated = End { version: None, stripped: false, result: EndResult::Outdated };
    assert_eq!(lab.on(Input::Ended(key("a"), outdated.clone())), NOTHING);
    assert_eq!(lab.see("a", &version("2")), ["reconcile a"]);
    // The newer version may be known already.
    assert_eq!(lab.see("a", &version("3")), NOTHING);
    assert_eq!(lab.on(Input::Ended(key("a"), outdated)), ["reconcile a"]);
}

#[test]
fn pauses_double_until_something_asks() {
    let mut lab = Lab::new(1);
    assert_eq!(lab.see("a", &version("1")), ["reconcile a"]);
    for pause in ["1s", "2s", "4s", "8s", "16s", "32s", "64s", "120s", "120s"] {
        assert_eq!(lab.fail("a", "1"), [format!("pause a {pause}")]);
        assert_eq!(lab.on(Input::Timer(key("a"))), ["reconcile a"]);
    }
    assert_eq!(lab.fail("a", "1"), ["pause a 120s"]);
    // The status is ours.
    assert_eq!(lab.see("a", &version("2")), NOTHING);
    let generation = json!({"metadata": {"resourceVersion": "3", "generation": 2}});
    assert_eq!(lab.see("a", &generation), ["no pause a", "reconcile a"]);
    assert_eq!(lab.fail("a", "3"), ["pause a 1s"]);
    let pause = Some(Duration::from_secs(7));
    assert_eq!(lab.on(Input::Timer(key("a"))), ["reconcile a"]);
    assert_eq!(lab.end("a", "3", EndResult::Failed { pause }), ["pause a 7s"]);
}

#[test]
fn the_pause_of_an_actuator_has_limits() {
    let mut lab = Lab::new(1);
    assert_eq!(lab.see("a", &version("1")), ["reconcile a"]);
    for (set, pause) in [(Duration::ZERO, "1s"), (Duration::from_secs(600), "600s"), (Duration::MAX, "3600s")] {
        let failed = EndResult::Failed { pause: Some(set) };
        assert_eq!(lab.end("a", "1", failed), [format!("pause a {pause}")]);
        assert_eq!(lab.on(Input::Timer(key("a"))), ["reconcile a"]);
    }
}

#[test]
fn what_changes_during_an_attempt_is_tried_right_after_it() {
    for result in [EndResult::Done, EndResult::Failed { pause: None }] {
        let mut lab = Lab::new(1);
        assert_eq!(lab.see("a", &version("1")), ["reconcile a"]);
        assert_eq!(lab.see("a", &deleting("3")), NOTHING, "a reconcile is not cancelled by a deletion");
        assert_eq!(lab.end("a", "3", result), ["delete a"]);
    }
}

#[test]
fn force_deletion_cancels_what_runs() {
    let force = || Input::Cluster(cluster(true, "Error"));
    // A deletion, and a reconcile of an object that is deleted meanwhile.
    let mut lab = Lab::new(1);
    assert_eq!(lab.see("a", &deleting("1")), ["delete a"]);
    assert_eq!(lab.on(force()), ["cancel a"]);
    assert_eq!(lab.on(force()), NOTHING, "once");
    assert_eq!(lab.end("a", "1", EndResult::Cancelled), ["force-delete a"]);
    assert_eq!(lab.on(force()), NOTHING, "a force deletion is not cancelled");
    assert_eq!(lab.fail("a", "1"), ["pause a 1s"]);

    let mut lab = Lab::new(1);
    assert_eq!(lab.see("a", &version("1")), ["reconcile a"]);
    assert_eq!(lab.on(force()), NOTHING, "the object is not deleted");
    assert_eq!(lab.see("a", &deleting("2")), ["cancel a"]);
    assert_eq!(lab.end("a", "2", EndResult::Cancelled), ["force-delete a"]);
}

#[test]
fn force_deletion_does_not_wait_for_a_retry() {
    let mut lab = Lab::new(1);
    assert_eq!(lab.see("a", &deleting("1")), ["delete a"]);
    assert_eq!(lab.fail("a", "1"), ["pause a 1s"]);
    assert_eq!(lab.on(Input::Cluster(cluster(true, "Error"))), ["no pause a", "force-delete a"]);
    assert_eq!(lab.end("a", "1", EndResult::Done), NOTHING);
}

#[test]
fn force_deletion_does_not_wait_for_deletions_that_hang() {
    let mut lab = Lab::new(1);
    assert_eq!(lab.see("a", &deleting("1")), ["delete a"]);
    let mut other = deleting("1");
    other["metadata"]["namespace"] = json!("shoot--b");
    let mut shoot: Value = json!({"metadata": {"name": "shoot--b"}, "spec": {"shoot": {}}});
    lab.on(Input::Cluster(serde_json::from_value(shoot.clone()).unwrap()));
    assert_eq!(lab.see("b", &other), NOTHING, "all slots are taken");
    shoot["spec"]["shoot"]["metadata"]["annotations"]["confirmation.gardener.cloud/force-deletion"] = json!("1");
    assert_eq!(lab.on(Input::Cluster(serde_json::from_value(shoot).unwrap())), ["force-delete b"]);
    assert_eq!(lab.fail("a", "1"), ["pause a 1s"], "b does not wait for the slot any more");
}

#[test]
fn slots_are_limited() {
    let mut lab = Lab::new(2);
    let started: Vec<_> = ["a", "b", "c", "d"].iter().flat_map(|name| lab.see(name, &version("1"))).collect();
    assert_eq!(started, ["reconcile a", "reconcile b"]);
    assert_eq!(lab.queue.waiting(), 2);
    assert_eq!(lab.on(Input::Gone(key("c"))), NOTHING);
    assert_eq!(lab.queue.waiting(), 1);
    assert_eq!(lab.end("a", "1", EndResult::Done), ["reconcile d"]);
    assert_eq!(lab.fail("b", "1"), ["pause b 1s"]);
    assert_eq!(lab.queue.waiting(), 0);
}

#[test]
fn an_object_whose_cluster_disappears_while_it_waits_for_a_slot_waits_again() {
    let mut lab = Lab::new(1);
    assert_eq!(lab.see("a", &version("1")), ["reconcile a"]);
    assert_eq!(lab.see("b", &version("1")), NOTHING);
    assert_eq!(lab.on(Input::ClusterGone("shoot--a".to_owned())), NOTHING);
    assert_eq!(lab.end("a", "1", EndResult::Done), NOTHING);
    assert_eq!(lab.on(Input::Cluster(cluster(false, "Processing"))), ["reconcile b"]);
}

#[test]
fn an_object_waits_for_its_cluster_and_for_a_shoot_that_has_not_failed() {
    let mut lab = Lab::new(1);
    lab.on(Input::ClusterGone("shoot--a".to_owned()));
    assert_eq!(lab.see("a", &version("1")), NOTHING);
    assert_eq!(lab.on(Input::Cluster(cluster(false, "Failed"))), NOTHING);
    assert_eq!(lab.see("a", &version("2")), NOTHING);
    assert_eq!(lab.on(Input::Cluster(cluster(false, "Processing"))), ["reconcile a"]);
    // A Shoot that fails while the object pauses.
    assert_eq!(lab.fail("a", "2"), ["pause a 1s"]);
    assert_eq!(lab.on(Input::Cluster(cluster(false, "Failed"))), NOTHING);
    assert_eq!(lab.on(Input::Timer(key("a"))), NOTHING);
    assert_eq!(lab.on(Input::Cluster(cluster(false, "Processing"))), ["reconcile a"]);
}

#[test]
fn an_object_that_is_gone_or_recreated_is_forgotten() {
    let mut lab = Lab::new(1);
    assert_eq!(lab.see("a", &deleting("1")), ["delete a"]);
    assert_eq!(lab.on(Input::Gone(key("a"))), ["cancel a"]);
    assert_eq!(lab.end("a", "1", EndResult::Cancelled), NOTHING);
    assert!(lab.queue.entries.is_empty());

    assert_eq!(lab.see("a", &deleting("2")), ["delete a"]);
    let recreated = json!({"metadata": {"resourceVersion": "3", "uid": "2"}});
    assert_eq!(lab.see("a", &recreated), ["cancel a"]);
    assert_eq!(lab.end("a", "2", EndResult::Cancelled), ["reconcile a"]);
    assert_eq!(lab.fail("a", "3"), ["pause a 1s"]);
    assert_eq!(lab.on(Input::Gone(key("a"))), ["no pause a"]);
    assert_eq!(lab.on(Input::Timer(key("a"))), NOTHING);
}

#[test]
fn objects_of_other_types_and_classes_are_left_alone() {
    let mut lab = Lab::new(1);
    assert_eq!(lab.see("a", &json!({"spec": {"type": "other"}})), NOTHING);
    assert_eq!(lab.see("a", &json!({"spec": {"class": "seed"}})), NOTHING);
    assert!(lab.queue.entries.is_empty());
    assert_eq!(lab.see("a", &version("2")), ["reconcile a"]);
    let other = json!({"metadata": {"resourceVersion": "3"}, "spec": {"type": "other"}});
    assert_eq!(lab.see("a", &other), ["cancel a"], "its type has changed");
}

#[test]
fn a_deleted_object_is_worked_on_when_it_no_longer_waits_for_its_state() {
    let mut lab = Lab::new(1);
    let mut waiting = deleting("1");
    waiting["metadata"]["annotations"] = json!({"gardener.cloud/operation": "wait-for-state"});
    assert_eq!(lab.see("a", &waiting), NOTHING);
    assert_eq!(lab.see("a", &deleting("2")), ["delete a"]);
}

#[test]
fn an_annotation_is_removed_even_if_nothing_else_is_done() {
    let mut lab = Lab::new(1);
    let mut migrated = json!({"status": {"lastOperation": {"type": "Migrate", "state": "Succeeded"}}});
    assert_eq!(lab.see("a", &migrated), NOTHING);
    migrated["metadata"] = json!({"resourceVersion": "2", "annotations": {"gardener.cloud/operation": "reconcile"}});
    assert_eq!(lab.see("a", &migrated), ["nothing a"]);
    assert_eq!(lab.end("a", "3", EndResult::Done), NOTHING);
}
