use std::{cell::RefCell, time::Duration};

use billhook_engine::{ApplyResult, Blocker, EVENT_FORMAT, Event, Left, RefusedBy, Status, Summary};
use billhook_objects::{GroupKind, ObjectKey, Uid};
use billhook_plan::{Operation, Uncovered, UncoveredCause};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use super::{CONDITION, HoldCounts, ItemProgress, Pace, Report, Reports, while_running};

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(GroupKind::new("", "ConfigMap"), Some("a"), name)
}

fn started(operation: Operation, nodes: &[(&str, usize)]) -> Event {
    let nodes = nodes.iter().map(|(title, objects)| ((*title).to_owned(), *objects)).collect();
    Event::Started { format: EVENT_FORMAT, operation, release: None, nodes, goals: Vec::new(), notes: Vec::new() }
}

fn node_started(node: usize, objects: usize) -> Event {
    Event::NodeStarted { node, title: String::new(), objects }
}

fn node_finished(node: usize, objects: usize) -> Event {
    Event::NodeFinished { node, title: String::new(), status: Status::Done, objects, elapsed_ms: 0 }
}

fn deleting(name: &str, finalizers: &[&str]) -> Event {
    Event::Deleting { node: 1, object: key(name), finalizers: finalizers.iter().map(|f| (*f).to_owned()).collect() }
}

fn gone(name: &str) -> Event {
    Event::Gone { node: 1, object: key(name), uid: Uid::new("u") }
}

fn refused(name: &str, message: &str) -> Event {
    Event::Refused { node: 1, object: key(name), message: message.to_owned(), retried: true }
}

fn waiting(name: &str, reason: &str) -> Event {
    Event::Waiting { node: 1, object: key(name), reason: reason.to_owned() }
}

fn applied(name: &str) -> Event {
    Event::Applied { node: 1, object: key(name), result: ApplyResult::Created }
}

fn ready(name: &str) -> Event {
    Event::Ready { node: 1, object: key(name) }
}

fn removed(name: &str, finalizer: &str) -> Event {
    Event::FinalizersRemoved { node: 1, object: key(name), finalizers: vec![finalizer.to_owned()] }
}

fn left(name: &str, blockers: &[Blocker]) -> Left {
    Left { object: key(name), group: "g".to_owned(), blockers: blockers.to_vec() }
}

fn folded(events: &[Event]) -> ItemProgress {
    let mut progress = ItemProgress::default();
    events.iter().for_each(|event| progress.fold(event));
    progress
}

/// The second of two groups of a run, which holds `objects`.
fn second(operation: Operation, objects: usize, events: &[Event]) -> ItemProgress {
    let mut all = vec![started(operation, &[("crds", 1), ("namespaced-resources", objects)])];
    all.extend([node_started(0, 1), node_finished(0, 1), node_started(1, objects)]);
    all.extend_from_slice(events);
    folded(&all)
}

fn check(progress: &ItemProgress, reason: &str, message: &str) {
    assert_eq!((progress.reason(), progress.message().as_str()), (reason, message));
}

const GROUP: &str = "group 2 of 2, namespaced-resources: ";

#[test]
fn a_deletion_tells_what_remains_and_what_holds_it_up() {
    let check = |objects, events: &[Event], reason: &str, message: &str| {
        check(&second(Operation::Delete, objects, events), reason, &format!("{GROUP}{message}"));
    };
    check(2, &[], "Deleting", "0 of 2 gone, 2 left");
    check(2, &[deleting("b", &[]), gone("c")], "Deleting", "1 of 2 gone, 1 left");
    check(1, &[gone("b")], "Deleting", "1 of 1 gone");
    let held = deleting("b", &["x.example/y"]);
    let message = "1 of 3 gone, 2 left: ConfigMap/a/b held by finalizer x.example/y";
    check(3, &[held.clone(), gone("c")], "WaitingForFinalizers", message);
    let twice = [deleting("b", &["x.example/y", "z"]), removed("b", "z")];
    check(1, &twice, "WaitingForFinalizers", "0 of 1 gone, 1 left: ConfigMap/a/b held by finalizer x.example/y");
    check(1, &[held.clone(), removed("b", "x.example/y")], "Deleting", "0 of 1 gone, 1 left");
    let message =
        "0 of 2 gone, 2 left: ConfigMap/a/b held by finalizer x.example/y; ConfigMap/a/c failed, retrying: not now";
    check(2, &[held, refused("c", "not\nnow")], "Refused", message);
    check(1, &[refused("b", "not now"), deleting("b", &[])], "Deleting", "0 of 1 gone, 1 left");
    check(1, &[Event::Appeared { node: 1, object: key("n") }], "Deleting", "0 of 2 gone, 2 left");
    let recreated = [refused("b", "x"), gone("b"), Event::Recreated { node: 1, object: key("b") }];
    check(1, &recreated, "Deleting", "1 of 1 gone");
}

#[test]
fn only_the_first_few_objects_are_named() {
    let events: Vec<_> = (0..1000).map(|n| deleting(&format!("o{n:04}"), &["f"])).collect();
    let progress = second(Operation::Delete, 1000, &events);
    let first = "ConfigMap/a/o0000 held by finalizer f; ConfigMap/a/o0001 held by finalizer f; \
                 ConfigMap/a/o0002 held by finalizer f; and 997 more";
    check(&progress, "WaitingForFinalizers", &format!("{GROUP}0 of 1000 gone, 1000 left: {first}"));
}

#[test]
fn a_deployment_tells_what_is_applied_and_what_is_not_ready() {
    let check = |objects, events: &[Event], reason: &str, message: &str| {
        check(&second(Operation::Apply, objects, events), reason, &format!("{GROUP}{message}"));
    };
    check(2, &[applied("b")], "Applying", "1 of 2 applied");
    check(2, &[applied("b"), refused("c", "no")], "Refused", "1 of 2 applied: ConfigMap/a/c failed, retrying: no");
    let both = [applied("b"), applied("c")];
    let unready = [&both[..], &[waiting("b", "0 of 1 replicas")]].concat();
    let message = "2 of 2 applied, 1 not ready: ConfigMap/a/b (0 of 1 replicas)";
    check(2, &unready, "WaitingForReadiness", message);
    check(2, &[&unready[..], &[ready("b")]].concat(), "Applying", "2 of 2 applied");
    let message = "1 of 2 ready, 1 not ready: ConfigMap/a/c (not seen yet)";
    check(2, &[ready("b"), waiting("c", "not seen yet")], "WaitingForReadiness", message);
    check(2, &[gone("b")], "Deleting", "1 of 2 gone, 1 left");
}

#[test]
fn there_is_a_message_before_and_between_groups() {
    check(&ItemProgress::default(), "Preparing", "computing the plan");
    check(&folded(&[started(Operation::Delete, &[("g", 1)])]), "Preparing", "computing the plan");
    let between = folded(&[started(Operation::Delete, &[("g", 0)]), node_started(0, 0), node_finished(0, 0)]);
    check(&between, "Deleting", "group 1 of 1, g: 0 of 0 gone");
}

#[test]
fn an_unavailable_api_server_is_in_the_message_until_it_recovers() {
    let away = Event::ServerAway { cluster: Some("t".to_owned()), reason: "timeout".to_owned() };
    let back = Event::ServerBack { cluster: Some("t".to_owned()) };
    let message = format!("{GROUP}0 of 1 gone, 1 left; the API server of target t is unavailable: timeout");
    check(&second(Operation::Delete, 1, std::slice::from_ref(&away)), "ServerAway", &message);
    check(&second(Operation::Delete, 1, &[away, back]), "Deleting", &format!("{GROUP}0 of 1 gone, 1 left"));
}

#[test]
fn the_end_tells_what_was_done_or_what_remains_and_why() {
    let check = |operation, summary: Summary, reason: &str, message: &str| {
        check(&folded(&[started(operation, &[("g", 1)]), Event::Finished(Box::new(summary))]), reason, message);
    };
    let uncovered = vec![Uncovered { object: key("s"), cause: UncoveredCause::NoGroup, deleted_with: None }];
    let done = Summary { gone: 3, uncovered, ..Summary::new(Status::Done) };
    check(Operation::Delete, done, "Succeeded", "3 gone, 1 kept");
    let done = Summary { applied: 2, unchanged: 4, gone: 1, ..Summary::new(Status::Done) };
    check(Operation::Apply, done, "Succeeded", "2 applied, 4 unchanged, 1 gone");
    check(Operation::Apply, Summary::new(Status::Done), "Succeeded", "nothing to do");
    let finalizer = Blocker::Finalizer { finalizer: "x.example/y".to_owned(), manager: Some("m".to_owned()) };
    let over = Summary {
        left: vec![left("b", std::slice::from_ref(&finalizer)), left("c", &[Blocker::NotStarted])],
        ..Summary::new(Status::TimedOut)
    };
    let message = "time limit reached: 2 objects left: ConfigMap/a/b: finalizer x.example/y (set by m); \
                   1 in groups that were not started";
    check(Operation::Delete, over, "TimedOut", message);
    let failed = Summary {
        left: vec![left("b", &[Blocker::Refused { message: "no".to_owned(), by: RefusedBy::Rights }])],
        record_error: Some("conflict".to_owned()),
        ..Summary::new(Status::Failed)
    };
    let message = "failed: 1 object not done: ConfigMap/a/b: request failed: no; release record not written: conflict";
    check(Operation::Apply, failed, "Failed", message);
    check(Operation::Delete, Summary::new(Status::Interrupted), "Interrupted", "interrupted: 0 objects left");
}

#[test]
fn holds_are_counted_until_their_group_ends() {
    let events = [deleting("b", &["f"]), deleting("c", &["f"]), refused("d", "no"), waiting("e", "soon")];
    let progress = second(Operation::Delete, 4, &events);
    assert_eq!(progress.hold_counts(), HoldCounts { finalizer: 2, readiness: 1, refused: 1 });
    let ended = second(Operation::Delete, 4, &[&events[..], &[node_finished(1, 4)]].concat());
    assert_eq!(ended.hold_counts(), HoldCounts::default());
}

#[test]
fn a_condition_keeps_its_transition_time_while_its_status_is_the_same() {
    let report = |running| Report { running, reason: "Deleting", message: "m".to_owned() };
    let at = |second| jiff::Timestamp::from_second(second).unwrap();
    let first = report(true).condition(&[], at(1));
    assert_eq!((first.r#type.as_str(), first.status.as_str()), (CONDITION, "True"));
    let second = report(true).condition(std::slice::from_ref(&first), at(2));
    assert_eq!((second.last_transition_time.0, second.last_update_time.0), (at(1), at(2)));
    let third = report(false).condition(std::slice::from_ref(&second), at(3));
    assert_eq!((third.status.as_str(), third.last_transition_time.0), ("False", at(3)));
}

/// Runs something that takes `takes` milliseconds and emits each event after so many milliseconds. Returns when each report
/// was written, with its message, and how long it all took.
async fn paced(takes: u64, events: &[(u64, Event)], write_takes: u64) -> (Vec<(u128, String)>, u128) {
    let begun = Instant::now();
    let (sender, receiver) = watch::channel(second(Operation::Delete, 9, &[]));
    let run = async {
        for (at, event) in events {
            tokio::time::sleep_until(begun + Duration::from_millis(*at)).await;
            sender.send_modify(|progress| progress.fold(event));
        }
        tokio::time::sleep_until(begun + Duration::from_millis(takes)).await;
    };
    let written = RefCell::new(Vec::new());
    let write = |report: Report| {
        written.borrow_mut().push((begun.elapsed().as_millis(), report.message.replace(GROUP, "")));
        sleep(Duration::from_millis(write_takes))
    };
    let pace = Pace { first: Duration::from_secs(2), every: Duration::from_secs(5) };
    while_running(run, Reports::new(receiver, pace), write).await;
    let took = begun.elapsed().as_millis();
    (written.into_inner(), took)
}

#[tokio::test(start_paused = true)]
async fn a_short_run_writes_no_progress() {
    let (written, took) = paced(1900, &[(10, gone("b")), (1000, gone("c"))], 0).await;
    assert_eq!((written, took), (Vec::new(), 1900));
}

#[tokio::test(start_paused = true)]
async fn a_long_run_writes_changes_at_the_pace() {
    let events: Vec<_> = [100, 3000, 4000, 20_000].iter().map(|at| (*at, gone(&format!("o{at}")))).collect();
    let (written, _) = paced(60_000, &events, 50).await;
    let expected = [(2000, "1 of 9 gone, 8 left"), (7000, "3 of 9 gone, 6 left"), (20_000, "4 of 9 gone, 5 left")];
    assert_eq!(written, expected.map(|(at, message)| (at, message.to_owned())));
}

#[tokio::test(start_paused = true)]
async fn the_end_waits_for_a_write_in_progress() {
    let (written, took) = paced(2100, &[], 1000).await;
    assert_eq!((written.len(), took), (1, 3000));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_after_the_end() {
    let (written, took) = paced(9000, &[(1000, Event::Finished(Box::new(Summary::new(Status::Done))))], 0).await;
    assert_eq!((written, took), (Vec::new(), 9000));
}
