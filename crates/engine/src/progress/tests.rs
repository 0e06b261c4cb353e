use billhook_objects::{GroupKind, ObjectKey, Uid};
use billhook_plan::Operation;

use super::{Hold, NodeProgress, NodeState, Progress};
use crate::{ApplyResult, Blocker, EVENT_FORMAT, Event, Goal, Status};

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(GroupKind::new("", "ConfigMap"), Some("a"), name)
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn started(operation: Operation, nodes: usize) -> Event {
    let nodes = (0..nodes).map(|node| (format!("n{node}"), 3)).collect();
    let release = Some("a/web".to_owned());
    Event::Started { format: EVENT_FORMAT, operation, release, nodes, goals: Vec::new(), notes: Vec::new() }
}

fn node_started(node: usize) -> Event {
    Event::NodeStarted { node, title: String::new(), objects: 3 }
}

fn node_finished(node: usize, status: Status) -> Event {
    Event::NodeFinished { node, title: String::new(), status, objects: 0, elapsed_ms: 7 }
}

fn applied(name: &str, result: ApplyResult) -> Event {
    Event::Applied { node: 0, object: key(name), result }
}

fn ready(name: &str) -> Event {
    Event::Ready { node: 0, object: key(name) }
}

fn waiting(name: &str) -> Event {
    Event::Waiting { node: 0, object: key(name), reason: "0 of 1".to_owned() }
}

fn deleting(name: &str, finalizers: &[&str]) -> Event {
    Event::Deleting { node: 0, object: key(name), finalizers: names(finalizers) }
}

fn gone(name: &str) -> Event {
    Event::Gone { node: 0, object: key(name), uid: Uid::new("u") }
}

fn removed(name: &str, finalizers: &[&str]) -> Event {
    Event::FinalizersRemoved { node: 0, object: key(name), finalizers: names(finalizers) }
}

fn refused(name: &str, retried: bool) -> Event {
    Event::Refused { node: 0, object: key(name), message: "no".to_owned(), retried }
}

fn workload_failed(name: &str) -> Event {
    Event::Failed { node: 0, object: key(name), reason: "no".to_owned() }
}

fn folded(events: &[Event]) -> Progress {
    let mut progress = Progress::default();
    events.iter().for_each(|event| progress.fold(event));
    progress
}

/// The first node of a run in which these events happened.
fn node(operation: Operation, events: &[Event]) -> NodeProgress {
    let events = [&[started(operation, 1), node_started(0)], events].concat();
    folded(&events).nodes.remove(0)
}

fn finalizer(name: &str) -> Blocker {
    Blocker::Finalizer { finalizer: name.to_owned(), manager: None }
}

fn blocked(name: &str, blockers: &[Blocker]) -> Event {
    Event::Blocked { node: 0, object: key(name), blockers: blockers.to_vec() }
}

fn finalizers(names: &[&str]) -> Hold {
    Hold::Finalizers(self::names(names))
}

fn not_ready() -> Hold {
    Hold::NotReady("0 of 1".to_owned())
}

fn failed(retried: bool, finalizers: &[&str]) -> Hold {
    Hold::Refused { message: "no".to_owned(), retried, finalizers: names(finalizers) }
}

/// What happens, the operation and its events; the goal, how many of how many objects have reached it, and the holds.
type Case<'a> = (&'a str, Operation, &'a [Event], (Goal, usize, usize), &'a [(&'a str, Hold)]);

#[test]
fn events_of_a_node_change_its_goal_count_and_holds() {
    use ApplyResult::{Configured, Created, Patched, Unchanged};
    use Operation::{Apply, Delete};
    let recreated = Event::Recreated { node: 0, object: key("b") };
    let appeared = Event::Appeared { node: 0, object: key("n") };
    let cases: &[Case<'_>] = &[
        ("a deletion counts gone objects", Delete, &[], (Goal::Gone, 0, 3), &[]),
        ("finalizers hold", Delete, &[deleting("b", &["f"])], (Goal::Gone, 0, 3), &[("b", finalizers(&["f"]))]),
        ("no finalizers, no hold", Delete, &[deleting("b", &[])], (Goal::Gone, 0, 3), &[]),
        (
            "a finalizer that was removed holds nothing",
            Delete,
            &[deleting("b", &["f", "g"]), blocked("b", &[finalizer("g")])],
            (Goal::Gone, 0, 3),
            &[("b", finalizers(&["g"]))],
        ),
        ("nothing blocks any more", Delete, &[deleting("b", &["f"]), blocked("b", &[])], (Goal::Gone, 0, 3), &[]),
        (
            "a condition blocks",
            Delete,
            &[deleting("b", &[]), blocked("b", &[finalizer("f"), Blocker::Unconfirmed])],
            (Goal::Gone, 0, 3),
            &[("b", Hold::Blocked(vec![finalizer("f"), Blocker::Unconfirmed]))],
        ),
        ("gone ends a hold", Delete, &[deleting("b", &["f"]), gone("b")], (Goal::Gone, 1, 3), &[]),
        (
            "one hold ends",
            Delete,
            &[deleting("b", &["f"]), gone("c")],
            (Goal::Gone, 1, 3),
            &[("b", finalizers(&["f"]))],
        ),
        (
            "some finalizers removed",
            Delete,
            &[deleting("b", &["f", "g"]), removed("b", &["f"])],
            (Goal::Gone, 0, 3),
            &[("b", finalizers(&["g"]))],
        ),
        ("all removed", Delete, &[deleting("b", &["f"]), removed("b", &["f"])], (Goal::Gone, 0, 3), &[]),
        ("removed from an instance of a CRD", Delete, &[removed("i", &["f"])], (Goal::Gone, 0, 3), &[]),
        (
            "a failed removal keeps the finalizers",
            Delete,
            &[deleting("b", &["f", "g"]), refused("b", true)],
            (Goal::Gone, 0, 3),
            &[("b", failed(true, &["f", "g"]))],
        ),
        (
            "a retried removal succeeds",
            Delete,
            &[deleting("b", &["f", "g"]), refused("b", true), removed("b", &["f"])],
            (Goal::Gone, 0, 3),
            &[("b", finalizers(&["g"]))],
        ),
        ("a failure for good holds", Delete, &[refused("b", false)], (Goal::Gone, 0, 3), &[("b", failed(false, &[]))]),
        (
            "the last failure counts",
            Delete,
            &[refused("b", true), refused("b", false)],
            (Goal::Gone, 0, 3),
            &[("b", failed(false, &[]))],
        ),
        ("a retried DELETE succeeds", Delete, &[refused("b", true), deleting("b", &[])], (Goal::Gone, 0, 3), &[]),
        ("another client recreated it", Delete, &[refused("b", true), gone("b"), recreated], (Goal::Gone, 1, 3), &[]),
        ("an object appeared", Delete, &[gone("b"), appeared], (Goal::Gone, 1, 4), &[]),
        ("a patch before the deletion", Delete, &[applied("b", Patched)], (Goal::Patched, 1, 3), &[]),
        ("an apply counts applied objects", Apply, &[], (Goal::Applied, 0, 3), &[]),
        (
            "each result counts",
            Apply,
            &[applied("b", Created), applied("c", Unchanged), applied("d", Configured)],
            (Goal::Applied, 3, 3),
            &[],
        ),
        ("applied on retry", Apply, &[refused("b", true), applied("b", Created)], (Goal::Applied, 1, 3), &[]),
        (
            "not ready after the apply",
            Apply,
            &[applied("b", Created), waiting("b")],
            (Goal::Applied, 1, 3),
            &[("b", not_ready())],
        ),
        ("ready", Apply, &[applied("b", Created), waiting("b"), ready("b")], (Goal::Applied, 1, 3), &[]),
        (
            "nothing applied: readiness counts",
            Apply,
            &[ready("b"), waiting("c")],
            (Goal::Ready, 1, 3),
            &[("c", not_ready())],
        ),
        (
            "a failure before the first apply is no wait",
            Apply,
            &[refused("b", true)],
            (Goal::Applied, 0, 3),
            &[("b", failed(true, &[]))],
        ),
        (
            "a workload failed for good",
            Apply,
            &[applied("b", Created), waiting("b"), workload_failed("b")],
            (Goal::Applied, 1, 3),
            &[("b", Hold::Failed("no".to_owned()))],
        ),
        (
            "an awaited workload failed for good",
            Apply,
            &[workload_failed("b")],
            (Goal::Ready, 0, 3),
            &[("b", Hold::Failed("no".to_owned()))],
        ),
        ("an update prunes", Apply, &[deleting("b", &[]), gone("b")], (Goal::Gone, 1, 3), &[]),
    ];
    for (what, operation, events, expected, held) in cases {
        let node = node(*operation, events);
        assert_eq!((node.goal, node.reached(), node.total), *expected, "{what}");
        let found: Vec<_> = node.held.iter().map(|(object, hold)| (&*object.name, hold.clone())).collect();
        assert_eq!(found, *held, "{what}");
    }
}

#[test]
fn nodes_start_and_end() {
    let mut progress = folded(&[started(Operation::Delete, 2)]);
    assert_eq!((progress.deletes(), progress.release.as_deref()), (true, Some("a/web")));
    assert_eq!(progress.current(), None);
    let mut current = |event: Event| {
        progress.fold(&event);
        progress.current().map(|(index, node)| (index, node.state))
    };
    assert_eq!(current(node_started(0)), Some((0, NodeState::Running)));
    let ended = |status| NodeState::Ended { status, elapsed_ms: 7 };
    assert_eq!(current(node_finished(0, Status::Done)), Some((0, ended(Status::Done))));
    assert_eq!(current(node_started(1)), Some((1, NodeState::Running)));
    assert_eq!(current(node_finished(1, Status::TimedOut)), Some((1, ended(Status::TimedOut))));
}

#[test]
fn nodes_of_an_apply_that_delete_or_patch_say_so_before_their_first_event() {
    let Event::Started { format, operation, release, nodes, .. } = started(Operation::Apply, 3) else { unreachable!() };
    let goals = vec![Goal::Applied, Goal::Patched, Goal::Gone];
    let begun = Event::Started { format, operation, release, nodes, goals: goals.clone(), notes: Vec::new() };
    let progress = folded(&[begun]);
    assert_eq!(progress.nodes.iter().map(|node| node.goal).collect::<Vec<_>>(), goals);
    let old = r#"{"event":"started","format":1,"operation":"apply","nodes":[["a",1]]}"#;
    assert_eq!(folded(&[serde_json::from_str(old).unwrap()]).nodes[0].goal, Goal::Applied);
}

#[test]
fn results_of_all_nodes_are_added() {
    let second = Event::Applied { node: 1, object: key("c"), result: ApplyResult::Created };
    let unknown = Event::Applied { node: 2, object: key("d"), result: ApplyResult::Created };
    let adopted = applied("d", ApplyResult::Adopted);
    let created = applied("b", ApplyResult::Created);
    let progress = folded(&[started(Operation::Apply, 2), created, second, unknown, adopted]);
    let applied: Vec<_> = progress.applied().into_iter().collect();
    assert_eq!(applied, [(ApplyResult::Created, 2), (ApplyResult::Adopted, 1)]);
}

#[test]
fn an_api_server_is_unavailable_until_it_is_back() {
    let away =
        |cluster: Option<&str>| Event::ServerAway { cluster: cluster.map(str::to_owned), reason: "timeout".into() };
    let back = Event::ServerBack { cluster: None };
    let progress = folded(&[away(None), away(Some("t")), back]);
    let unavailable: Vec<_> = progress.unavailable.into_iter().collect();
    assert_eq!(unavailable, [(Some("t".to_owned()), "timeout".to_owned())]);
}

#[test]
fn a_failed_object_and_a_rejected_request_are_different_events() {
    let object = r#"{"group":"","kind":"ConfigMap","namespace":"a","name":"b"}"#;
    for (event, json) in [
        (workload_failed("b"), format!(r#"{{"event":"failed","node":0,"object":{object},"reason":"no"}}"#)),
        (
            refused("b", false),
            format!(r#"{{"event":"refused","node":0,"object":{object},"message":"no","retried":false}}"#),
        ),
    ] {
        assert_eq!(serde_json::to_string(&event).unwrap(), json);
        assert_eq!(serde_json::from_str::<Event>(&json).unwrap(), event);
    }
}

#[test]
fn a_sequence_counts_its_steps_whatever_they_do() {
    let mut start = started(Operation::Apply, 1);
    if let Event::Started { goals, .. } = &mut start {
        goals.push(Goal::Done);
    }
    let after = |events: &[Event]| {
        let node = folded(&[&[start.clone(), node_started(0)], events].concat()).nodes.remove(0);
        (node.goal, node.reached(), node.held.len())
    };
    let steps = [applied("a", ApplyResult::Created), waiting("a"), ready("a"), deleting("b", &["f"]), gone("c")];
    assert_eq!(after(&[]), (Goal::Done, 0, 0));
    assert_eq!(after(&steps[..2]), (Goal::Done, 1, 1));
    // What is being deleted is not waited for.
    assert_eq!(after(&steps[..4]), (Goal::Done, 2, 0));
    assert_eq!(after(&steps), (Goal::Done, 3, 0));
}
