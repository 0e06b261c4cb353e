//! What the machine knows, does and says while it waits.

use std::time::Duration;

use super::*;
use crate::{blockers::Looked, delete::force::remaining};

fn due(timer: Timer) -> Input {
    Input::Due(timer)
}

fn force(object: &str) -> Input {
    due(Timer::Force(key(object), Uid::new(object)))
}

fn looked(object: &str, found: Value) -> Input {
    Input::Answer(Answer::Look(key(object), Uid::new(object), Ok(Some(Looked::at(&found)))))
}

fn stopped(object: &str, is_unknown: bool) -> Input {
    let failure = Failure { is_unknown, ..failure(ErrorKind::Stopped) };
    Input::Answer(Answer::Delete(key(object), Uid::new(object), Err(failure)))
}

/// A Namespace with conditions of these types, `False` unless they begin with `!`.
fn namespace(conditions: &str) -> Value {
    let condition = |text: &str| match text.strip_prefix('!') {
        Some(name) => json!({"type": name, "status": "True", "message": "m"}),
        None => json!({"type": text, "status": "False"}),
    };
    let conditions: Vec<_> = conditions.split_whitespace().map(condition).collect();
    json!({"spec": {"finalizers": ["kubernetes", "x"]}, "status": {"conditions": conditions}})
}

#[test]
fn a_force_stage_starts_after_the_deletion_timestamp_and_never_too_early() {
    // How long the stage waits, and the age of the deletionTimestamp, in seconds.
    for (after, age, expected) in [
        (300, None, 300.0),
        (300, Some(0.0), 300.0),
        (300, Some(-0.9), 300.0),
        (300, Some(1.0), 300.0),
        (300, Some(61.0), 240.0),
        (300, Some(3600.0), 0.0),
        // The end of a Pod's grace period is in the future.
        (300, Some(-30.0), 330.0),
        (0, Some(-30.0), 0.0),
        (0, None, 0.0),
        (300, Some(f64::NAN), 300.0),
        (300, Some(f64::INFINITY), 300.0),
    ] {
        let found = remaining(Duration::from_secs(after), age);
        assert_eq!(found, Duration::from_secs_f64(expected), "{after} {age:?}");
    }
}

#[test]
fn the_deletion_timestamp_is_that_of_the_answer_or_of_the_watch() {
    let plan = plan("a-1 b-1", json!({"force": {"after": "5m"}}));
    let mut deletion = Deletion::start(&plan, "watch 0; delete a-1; delete b-1");
    let answer = DeleteAnswer::Accepted { finalizers: vec!["x".into()], deletion: true, deleted_at: Some(7) };
    deletion.on(deleted("a-1", answer), "a has x; force a-1 in 300s since 7");
    let found = Observed { deleted_at: Some(8), ..observed("b-1 deleting x") };
    deletion.on(Input::Change(0, Change::Present(found)), "b has x; force b-1 in 300s since 8");
}

#[test]
fn requests_of_the_force_stage_wait_for_their_turn_and_are_not_sent_after_ctrl_c() {
    let names: Vec<_> = (0..70).map(|n| format!("n{n:02}-1")).collect();
    let plan = plan(&names.join(" "), json!({"force": {"after": "5m"}}));
    let Work::Delete(work) = &plan.nodes[0].work else { unreachable!("the node deletes") };
    let mut machine = Machine::new(&plan, 0, work, Some(LABEL));
    let mut send = |input: Input| machine.on(input).filter(|effect| matches!(effect, Effect::Send(_))).count();
    assert_eq!(send(Input::Start), 64);
    for (at, name) in names.iter().enumerate() {
        assert_eq!(send(accepted(&format!("{name} x"))), usize::from(at < 6));
    }
    let forced: usize = names.iter().map(|name| send(force(name))).sum();
    assert_eq!(forced, 64);
    let answer = |name: &str| removed(name, Ok(RemoveAnswer::Removed(vec!["x".into()])));
    assert_eq!(send(answer(&names[0])), 1);
    assert_eq!(send(Input::Stop), 0);
    for name in &names[1..65] {
        assert_eq!(send(answer(name)), 0);
    }
    assert!(machine.has_ended());
    let result = machine.into_result();
    assert_eq!((result.status, result.finalizers_removed.len(), result.left.len()), (Status::Interrupted, 65, 70));
}

#[test]
fn a_request_that_ctrl_c_kept_from_being_sent_did_not_fail() {
    let plan = plan("a-1 b-1 c-1", json!({}));
    let mut deletion = Deletion::start(&plan, "watch 0; delete a-1; delete b-1; delete c-1");
    deletion.on(Input::Stop, "stop in 2s");
    deletion.on(deleted("a-1", DeleteAnswer::NotFound), "a-1 is gone");
    deletion.on(stopped("b-1", false), "");
    // The answer to an earlier try was lost, so it may have taken effect.
    deletion.on(stopped("c-1", true), "");
    deletion.ended(Status::Interrupted, &["b: request not sent, or not answered in time", "c"]);
}

#[test]
fn a_delete_whose_answer_was_lost_was_requested_even_if_its_retry_was_never_sent() {
    for (is_unknown, left) in [(true, "a"), (false, "a: request not sent, or not answered in time")] {
        let plan = plan("a-1", json!({}));
        let mut deletion = Deletion::start(&plan, "watch 0; delete a-1");
        let lost = Failure { is_unknown, ..failure(ErrorKind::Timeout) };
        let answer = Input::Answer(Answer::Delete(key("a-1"), Uid::new("a-1"), Err(lost)));
        deletion.on(answer, "a is refused for now; retry a-1 in 500ms");
        deletion.on(due(Timer::Retry(key("a-1"), Uid::new("a-1"))), "delete a-1");
        deletion.on(Input::Stop, "stop in 2s");
        deletion.on(stopped("a-1", false), "");
        deletion.ended(Status::Interrupted, &[left]);
    }
}

#[test]
fn the_force_stage_of_an_instance_counts_from_its_own_deletion() {
    let plan = plan("crd-1", json!({"force": {"after": "5m"}}));
    let mut deletion = Deletion::start(&plan, "watch 2; delete crd-1");
    deletion.on(accepted("crd-1 x"), "crd has x; force crd-1 in 300s; look in 10s");
    deletion.on(force("crd-1"), "list and watch 3; remove x of crd-1");
    let instance = Observed { deleted_at: Some(7), ..observed("widget-1 deleting x") };
    deletion.on(Input::Change(3, Change::Present(instance)), "force widget-1 in 300s since 7");
    deletion.on(present("widget-1 deleting x y"), "");
    deletion.on(force("widget-1"), "remove x,y of widget-1");
    deletion
        .on(removed("widget-1", Ok(RemoveAnswer::Removed(vec!["x".into()]))), "widget lost x; remove y of widget-1");
    // Another instance of the name has its own time.
    deletion.on(gone("widget-1"), "");
    deletion.on(present("widget-2 deleting x"), "force widget-2 in 300s");
    deletion.on(force("widget-1"), "");
}

#[test]
fn the_grace_period_of_a_pod_is_ended_only_if_the_policy_says_so() {
    for (end, expected) in [(false, "remove x of pod-1"), (true, "end grace of pod-1")] {
        let plan = plan("pod-1", json!({"force": {"after": "5m", "endGracePeriod": end}}));
        let mut deletion = Deletion::start(&plan, "watch 4; delete pod-1");
        deletion.on(accepted("pod-1 x"), "pod has x; force pod-1 in 300s");
        deletion.on(force("pod-1"), expected);
        if end {
            let answer = DeleteAnswer::Accepted { finalizers: vec!["x".into()], deletion: true, deleted_at: None };
            let answer = Answer::EndGrace(key("pod-1"), Uid::new("pod-1"), Ok(answer));
            deletion.on(Input::Answer(answer), "pod has no grace; remove x of pod-1");
            deletion.on(present("pod-1 deleting x"), "");
            deletion.on(removed("pod-1", Ok(RemoveAnswer::Removed(vec!["x".into()]))), "pod lost x");
        }
    }
    // Other kinds have no grace period.
    let plan = plan("a-1", json!({"force": {"after": "5m", "endGracePeriod": true}}));
    let mut deletion = Deletion::start(&plan, "watch 0; delete a-1");
    deletion.on(accepted("a-1 x"), "a has x; force a-1 in 300s");
    deletion.on(force("a-1"), "remove x of a-1");
}

#[test]
fn a_namespace_is_finalized_only_when_all_was_seen_and_is_gone_or_the_policy_names_its_finalizer() {
    const EMPTY: &str = "NamespaceDeletionDiscoveryFailure NamespaceDeletionGroupVersionParsingFailure \
                         NamespaceDeletionContentFailure NamespaceContentRemaining NamespaceFinalizersRemaining";
    let table = [
        (json!([]), EMPTY.to_owned(), "finalize kubernetes,x of namespace-1"),
        (json!(["x"]), EMPTY.to_owned(), "finalize x of namespace-1"),
        (json!([]), EMPTY.replace("NamespaceContentRemaining", "!NamespaceContentRemaining"), ""),
        (json!([]), EMPTY.replace("NamespaceDeletionDiscoveryFailure", "!NamespaceDeletionDiscoveryFailure"), ""),
        (json!([]), EMPTY.replace("NamespaceDeletionDiscoveryFailure", ""), ""),
        (json!([]), String::new(), ""),
        (json!(["kubernetes"]), "!NamespaceContentRemaining".to_owned(), "finalize kubernetes of namespace-1"),
        (json!(["kubernetes"]), String::new(), "finalize kubernetes of namespace-1"),
    ];
    for (finalizers, conditions, expected) in table {
        let plan = plan("namespace-1", json!({"force": {"after": "5m", "finalizers": finalizers}}));
        let mut deletion = Deletion::start(&plan, "watch 1; delete namespace-1");
        deletion.on(accepted("namespace-1"), "namespace is deleting; force namespace-1 in 300s; look in 10s");
        deletion.on(force("namespace-1"), "read namespace namespace-1");
        let answer =
            Answer::ReadNamespace(key("namespace-1"), Uid::new("namespace-1"), Ok(Some(namespace(&conditions))));
        let failing = conditions.split_whitespace().find_map(|name| name.strip_prefix('!'));
        let held = match failing {
            Some(name) => format!("namespace waits for [finalizer x, {name}: m]"),
            None => "namespace waits for [finalizer x]".to_owned(),
        };
        let effects = if expected.is_empty() { held } else { format!("{held}; {expected}") };
        deletion.on(Input::Answer(answer), &effects);
        if expected.is_empty() {
            // The next change of its status reads it again.
            deletion.on(present("namespace-1 deleting"), "read namespace namespace-1");
        }
    }
}

#[test]
fn what_keeps_a_namespace_is_read_at_intervals_and_reported_when_it_changes() {
    let plan = plan("namespace-1 a-1", json!({}));
    let mut deletion = Deletion::start(&plan, "watch 0; watch 1; delete namespace-1; delete a-1");
    deletion.on(accepted("namespace-1"), "namespace is deleting; look in 10s");
    deletion.on(accepted("a-1 x"), "a has x");
    deletion.on(due(Timer::Look), "look at namespace; look in 10s");
    let remaining = || looked("namespace-1", namespace("!NamespaceContentRemaining"));
    deletion.on(remaining(), "namespace waits for [finalizer x, NamespaceContentRemaining: m]");
    deletion.on(remaining(), "");
    deletion.on(due(Timer::Look), "look at namespace; look in 10s");
    let failed = Answer::Look(key("namespace-1"), Uid::new("namespace-1"), Err(failure(ErrorKind::Forbidden)));
    deletion.on(Input::Answer(failed), "");
    deletion.on(due(Timer::Look), "look at namespace; look in 10s");
    deletion.on(looked("namespace-1", json!({})), "namespace waits for []");
    deletion.on(gone("namespace-1"), "namespace-1 is gone");
    deletion.on(due(Timer::Look), "");
    // The watch shows the finalizers of other objects.
    deletion.on(present("a-1 deleting y"), "a waits for [finalizer y]");
    deletion.on(Input::Deadline, "");
    deletion.ended(Status::TimedOut, &["a"]);
}

#[test]
fn few_objects_are_looked_at_each_time_and_those_first_that_have_changed() {
    let names: Vec<_> = (0..20).map(|n| format!("namespace{n:02}-1")).collect();
    let plan = plan(&names.join(" "), json!({}));
    let Work::Delete(work) = &plan.nodes[0].work else { unreachable!("the node deletes") };
    let mut machine = Machine::new(&plan, 0, work, Some(LABEL));
    let mut look = |input: Input| {
        let effects = machine.on(input).map(|effect| text(&effect));
        effects
            .filter_map(|text| text.strip_prefix("look at namespace").map(str::to_owned))
            .collect::<Vec<_>>()
            .join(" ")
    };
    look(Input::Start);
    names.iter().for_each(|name| drop(look(accepted(name))));
    assert_eq!(look(due(Timer::Look)), "00 01 02 03 04 05 06 07");
    assert_eq!(look(present("namespace05-1 deleting")), "");
    assert_eq!(look(due(Timer::Look)), "05 08 09 10 11 12 13 14");
    assert_eq!(look(due(Timer::Look)), "15 16 17 18 19 00 01 02");
}

#[test]
fn an_object_that_is_recreated_again_and_again_is_deleted_less_and_less_often() {
    let plan = plan("a-1 b-1", json!({}));
    let mut deletion = Deletion::start(&plan, "watch 0; delete a-1; delete b-1");
    deletion.on(accepted("b-1 x"), "b has x");
    deletion.on(deleted("a-1", DeleteAnswer::NotFound), "a-1 is gone");
    deletion.on(present("a-2 ours"), "a appeared; delete a-2");
    deletion.on(deleted("a-2", DeleteAnswer::NotFound), "a-2 is gone");
    let again = "a appeared; a waits for [recreated 2 times by another client]; look at a; delete a-3 in 1s";
    deletion.on(present("a-3 ours"), again);
    let created = json!({"metadata": {"managedFields": [{"manager": "late", "time": "2026-01-01T00:00:02Z"},
        {"manager": "operator", "time": "2026-01-01T00:00:01Z"}]}});
    deletion.on(looked("a-3", created), "a waits for [recreated 2 times by operator]");
    deletion.on(due(Timer::Again(key("a-3"), Uid::new("a-3"))), "delete a-3");
    deletion.on(deleted("a-3", DeleteAnswer::NotFound), "a-3 is gone");
    for (number, pause) in [(4, 2), (5, 4), (6, 8), (7, 16), (8, 30), (9, 30)] {
        let name = format!("a-{number}");
        let again =
            format!("a appeared; a waits for [recreated {} times by operator]; delete {name} in {pause}s", number - 1);
        deletion.on(present(&format!("{name} ours")), &again);
        deletion.on(due(Timer::Again(key(&name), Uid::new(name.as_str()))), &format!("delete {name}"));
        deletion.on(deleted(&name, DeleteAnswer::NotFound), &format!("{name} is gone"));
    }
    deletion.on(present("a-10 ours"), "a appeared; a waits for [recreated 9 times by operator]; delete a-10 in 30s");
    deletion.on(Input::Deadline, "");
    deletion.ended(Status::TimedOut, &["a: recreated 9 times by operator", "b"]);
}
