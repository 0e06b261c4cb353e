//! What the stages of a cleaning need: objects that are created too late, repetitions of rejected requests, namespaces that do not
//! exist, snapshots.

use std::time::Duration;

use billhook_plan::Operation;

use super::*;
use crate::delete::force::remaining;

/// Starts a node that began at the second 100 by the server's clock.
fn start<'a>(plan: &'a Plan, expected: &str) -> Deletion<'a> {
    let Work::Delete(work) = &plan.nodes[0].work else { unreachable!("the node deletes") };
    let mut machine = Machine::new(plan, 0, work, None);
    machine.ignore_later(Some(100));
    let mut deletion = Deletion(machine);
    deletion.on(Input::Start, expected);
    deletion
}

/// The watch shows an object that was created at a time.
fn created(object: &str, at: i64) -> Observed {
    Observed { created_at: Some(at), ..observed(object) }
}

#[test]
fn objects_that_are_created_too_late_are_ignored_and_listed() {
    let plan = plan("a-1", json!({"collections": [{"query": 0}], "newObjects": "60s"}));
    let mut deletion = start(&plan, "watch 0; delete a-1");
    deletion.on(deleted("a-1", DeleteAnswer::Done), "");
    let shown = |found: Observed| Input::Change(0, Change::Present(found));
    for (object, at, effects) in [
        ("b-1", 99, "b appeared; delete b-1"),
        ("c-1", 160, "c appeared; delete c-1"),
        ("d-1", 161, "Ignored"),
        ("d-1", 161, ""),
        ("e-1", 300, "Ignored"),
        // It was not created too late, but it was seen late.
        ("f-1", 130, "f appeared; delete f-1"),
    ] {
        let found: Vec<_> = deletion.0.on(shown(created(object, at))).map(|effect| text(&effect)).collect();
        let found = found.join("; ");
        assert!(
            if effects == "Ignored" { found.starts_with("Ignored") } else { found == effects },
            "{object}: {found}"
        );
    }
    // One of them is deleted by others.
    deletion.on(gone("e-1"), "");
    for object in ["b-1", "c-1", "f-1"] {
        deletion.on(deleted(object, DeleteAnswer::Done), "");
        deletion.on(gone(object), &format!("{object} is gone"));
    }
    deletion.on(gone("a-1"), "a-1 is gone; list 0");
    let listed = Answer::List(0, Ok(vec![created("d-1", 161)]));
    deletion.on(Input::Answer(listed), "");
    assert!(deletion.0.has_ended());
    let result = deletion.0.into_result();
    assert_eq!((result.status, result.gone.len()), (Status::Done, 4));
    assert_eq!(result.ignored, [key("d-1")]);
}

#[test]
fn without_a_limit_every_new_object_is_deleted() {
    let plan = plan("a-1", json!({"collections": [{"query": 0}]}));
    let mut deletion = start(&plan, "watch 0; delete a-1");
    deletion.on(Input::Change(0, Change::Present(created("b-1", 1_000_000))), "b appeared; delete b-1");
}

#[test]
fn a_rejected_request_is_repeated_as_the_plan_says() {
    let plan = plan("a-1", json!({"retries": ["5s", "5s"]}));
    let mut deletion = start(&plan, "watch 0; delete a-1");
    let again = || Input::Due(Timer::Retry(key("a-1"), Uid::new("a-1")));
    // A failure that may pass is retried besides.
    deletion.on(refused("a-1", ErrorKind::Unreachable), "a is refused for now; retry a-1 in 500ms");
    deletion.on(again(), "delete a-1");
    deletion.on(refused("a-1", ErrorKind::Refused), "retry a-1 in 5s");
    deletion.on(again(), "delete a-1");
    deletion.on(refused("a-1", ErrorKind::Forbidden), "retry a-1 in 5s");
    deletion.on(again(), "delete a-1");
    deletion.on(refused("a-1", ErrorKind::Refused), "");
    deletion.ended(Status::Failed, &["a: request failed: no"]);
}

#[test]
fn finalizers_are_removed_once_the_grace_has_passed_and_not_a_second_earlier() {
    // A `deletionTimestamp` is up to a second before the true time of the deletion.
    for (grace, age, expected) in
        [(300, 299.0, 2.0), (300, 300.0, 1.0), (300, 301.0, 0.0), (300, 302.0, 0.0), (0, 0.0, 0.0), (0, -300.0, 0.0)]
    {
        let found = remaining(Duration::from_secs(grace), Some(age));
        assert_eq!(found, Duration::from_secs_f64(expected), "{grace} {age}");
    }
}

fn due(timer: fn(ObjectKey, Uid) -> Timer, object: &str) -> Input {
    Input::Due(timer(key(object), Uid::new(object)))
}

/// The answer to whether the namespace of all objects exists.
fn looked_up(exists: Result<bool, Failure>) -> Input {
    Input::Answer(Answer::Namespace("ns".to_owned(), exists))
}

#[test]
fn objects_whose_namespace_does_not_exist_are_not_waited_for() {
    let rest = json!({"collections": [{"query": 0}], "force": {"after": "0s"}});
    let plan = Plan { operation: Operation::Clean, ..plan("a-1 b-1", rest) };
    let mut deletion = start(&plan, "watch 0; delete a-1; delete b-1");
    deletion.on(accepted("a-1 x"), "a has x; force a-1 in 0ns; look in 10s");
    deletion.on(accepted("b-1 y"), "b has y; force b-1 in 0ns");
    deletion.on(due(Timer::Force, "a-1"), "remove x of a-1");
    deletion.on(removed("a-1", Ok(RemoveAnswer::Gone)), "look up ns");
    deletion.on(due(Timer::Force, "b-1"), "remove y of b-1");
    // The answer to the first question will do.
    deletion.on(removed("b-1", Ok(RemoveAnswer::Gone)), "");
    deletion.on(looked_up(Ok(false)), "a is stranded; b is stranded; list 0");
    // The watch lists again after a gap.
    deletion.on(present("a-1 deleting x"), "");
    deletion.on(listed(&["a-1 deleting x", "b-1 deleting y"]), "");
    assert!(deletion.0.has_ended());
    let result = deletion.0.into_result();
    assert_eq!((result.status, result.left.len(), result.gone.len()), (Status::Done, 0, 0));
    let causes: Vec<_> = result.kept.iter().map(|kept| (&kept.object.name[..], &kept.cause)).collect();
    assert_eq!(causes, [("a", &UncoveredCause::NamespaceGone), ("b", &UncoveredCause::NamespaceGone)]);
}

#[test]
fn the_namespaces_of_held_objects_are_looked_up_again_and_again() {
    let rest = json!({"collections": [{"query": 0}]});
    let cleaned = Plan { operation: Operation::Clean, ..plan("a-1 b-1", rest.clone()) };
    let mut deletion = start(&cleaned, "watch 0; delete a-1; delete b-1");
    deletion.on(accepted("a-1 x"), "a has x; look in 10s");
    deletion.on(accepted("b-1"), "b is deleting");
    for answer in [Ok(true), Err(failure(ErrorKind::Timeout)), Err(failure(ErrorKind::Forbidden))] {
        deletion.on(Input::Due(Timer::Look), "look up ns; look in 10s");
        deletion.on(looked_up(answer), "");
    }
    deletion.on(Input::Due(Timer::Look), "look up ns; look in 10s");
    // `b` has no finalizers, so that nothing keeps it.
    deletion.on(looked_up(Ok(false)), "a is stranded");
    deletion.on(gone("b-1"), "b-1 is gone; list 0");
    // Its namespace was created again, and its controller has removed the finalizer.
    deletion.on(gone("a-1"), "a-1 is gone");
    deletion.on(listed(&[]), "");
    deletion.ended(Status::Done, &[]);

    let deleted = plan("a-1", rest);
    let mut deletion = Deletion::start(&deleted, "watch 0; delete a-1");
    deletion.on(accepted("a-1 x"), "a has x");
}

#[test]
fn a_volume_snapshot_content_is_annotated_after_the_grace_period() {
    const DELETED: &str = "@snapshot.storage.kubernetes.io/volumesnapshot-being-deleted=yes";
    const CREATED: &str = "@snapshot.storage.kubernetes.io/volumesnapshot-being-created=yes";
    let plan = plan("content-1 a-1", json!({"releaseSnapshots": "5m", "force": {"after": "1h"}}));
    let mut deletion = start(&plan, "watch 0; watch 5; delete content-1; delete a-1");
    deletion.on(accepted("a-1 x"), "a has x; force a-1 in 3600s");
    deletion.on(accepted("content-1 x"), "content has x; force content-1 in 3600s; release content-1 in 300s");
    let released = |answer| Input::Answer(Answer::ReleaseSnapshot(key("content-1"), Uid::new("content-1"), answer));
    deletion.on(due(Timer::ReleaseSnapshot, "content-1"), "release content-1");
    deletion.on(released(Ok(true)), "content is released");
    deletion.on(present(&format!("content-1 deleting {DELETED} x")), "");
    // The sidecar was about to take the snapshot.
    deletion.on(present(&format!("content-1 deleting {DELETED} {CREATED} x")), "release content-1");
    deletion.on(released(Err(failure(ErrorKind::Timeout))), "content is refused for now; force content-1 in 15s");
    deletion.on(due(Timer::ForceAgain, "content-1"), "release content-1");
    deletion.on(released(Ok(false)), "");
    // After an hour, its finalizers are removed.
    deletion.on(due(Timer::Force, "content-1"), "remove x of content-1");
}
