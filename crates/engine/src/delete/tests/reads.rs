//! Objects that no watch shows, and names that may not be read.

use super::*;

fn due(timer: Timer) -> Input {
    Input::Due(timer)
}

fn confirm(object: &str) -> Input {
    due(Timer::Confirm(key(object), Uid::new(object)))
}

fn unreadable(object: &str) -> Input {
    unanswered(object, ErrorKind::Forbidden)
}

fn unanswered(object: &str, kind: ErrorKind) -> Input {
    Input::Answer(Answer::Read(key(object), Uid::new(object), Err(failure(kind))))
}

/// Starts a deletion in which a read finds `a-2` in place of `a-1`, and no watch shows it.
fn found_by_a_read(plan: &Plan) -> Deletion<'_> {
    let mut deletion = Deletion::start(plan, "watch 0; delete a-1");
    deletion.on(deleted("a-1", DeleteAnswer::OtherUid), "a-1 is gone; read a");
    deletion.on(read("a-1", Some("a-2 ours")), "a appeared; delete a-2");
    deletion
}

#[test]
fn an_object_that_no_watch_shows_is_read_until_it_is_gone() {
    let plan = plan("a-1", json!({}));
    // It is removed at once.
    let mut deletion = found_by_a_read(&plan);
    deletion.on(deleted("a-2", DeleteAnswer::Done), "confirm a-2 in 2s");
    deletion.on(confirm("a-2"), "read a");
    deletion.on(read("a-2", None), "a-2 is gone");
    deletion.ended(Status::Done, &[]);
    // It is held for a while, and a read fails.
    let mut deletion = found_by_a_read(&plan);
    deletion.on(accepted("a-2 x"), "a has x; confirm a-2 in 2s");
    deletion.on(confirm("a-2"), "read a");
    deletion.on(read("a-2", Some("a-2 deleting y")), "a waits for [finalizer y]; confirm a-2 in 4s");
    deletion.on(confirm("a-2"), "read a");
    deletion.on(unanswered("a-2", ErrorKind::Timeout), "a is refused for now; read a in 15s");
    deletion.on(due(Timer::Read(key("a-2"))), "read a");
    deletion.on(read("a-2", Some("a-2 deleting y")), "confirm a-2 in 8s");
    deletion.on(confirm("a-2"), "read a");
    // Again another object has the name.
    deletion.on(read("a-2", Some("a-3")), "a-2 is gone; a remains");
    deletion.ended(Status::Done, &[]);
    // What a list found is read, too.
    let plan = self::plan("", json!({"collections": [{"query": 0}]}));
    let mut deletion = Deletion::start(&plan, "watch 0; list 0");
    deletion.on(listed(&["a-1"]), "a appeared; delete a-1");
    deletion.on(deleted("a-1", DeleteAnswer::Done), "confirm a-1 in 2s");
    deletion.on(confirm("a-1"), "read a");
    deletion.on(read("a-1", None), "a-1 is gone; list 0");
    deletion.on(listed(&[]), "");
    deletion.ended(Status::Done, &[]);
}

#[test]
fn an_object_that_a_watch_shows_is_not_read() {
    let plan = plan("a-1", json!({}));
    // Before or after the answer to its DELETE.
    let mut deletion = found_by_a_read(&plan);
    deletion.on(present("a-2 ours"), "");
    deletion.on(deleted("a-2", DeleteAnswer::Done), "");
    deletion.on(gone("a-2"), "a-2 is gone");
    deletion.ended(Status::Done, &[]);
    let mut deletion = found_by_a_read(&plan);
    deletion.on(deleted("a-2", DeleteAnswer::Done), "confirm a-2 in 2s");
    deletion.on(present("a-2 ours"), "");
    deletion.on(confirm("a-2"), "");
    deletion.on(gone("a-2"), "a-2 is gone");
    deletion.ended(Status::Done, &[]);
    // After Ctrl-C nothing is read.
    let mut deletion = found_by_a_read(&plan);
    deletion.on(accepted("a-2 x"), "a has x; confirm a-2 in 2s");
    deletion.on(Input::Stop, "stop in 2s");
    deletion.ended(Status::Interrupted, &["a"]);
}

#[test]
fn reads_wait_for_their_turn() {
    let names: Vec<_> = (0..70).map(|n| format!("n{n:02}-1")).collect();
    let plan = plan("", json!({"collections": [{"query": 0}]}));
    let Work::Delete(work) = &plan.nodes[0].work else { unreachable!("the node deletes") };
    let mut machine = Machine::new(&plan, 0, work, Some(LABEL));
    let mut send = |input: Input| machine.on(input).filter(|effect| matches!(effect, Effect::Send(_))).count();
    assert_eq!(send(Input::Start), 1);
    let texts: Vec<_> = names.iter().map(String::as_str).collect();
    assert_eq!(send(listed(&texts)), 64);
    assert_eq!(names.iter().map(|name| send(deleted(name, DeleteAnswer::Done))).sum::<usize>(), 6);
    assert_eq!(names.iter().map(|name| send(confirm(name))).sum::<usize>(), 64);
    assert_eq!(send(read(&names[0], None)), 1);
    // A watch that shows the others in time saves their reads.
    assert_eq!(names[65..].iter().map(|name| send(gone(name))).sum::<usize>(), 0);
    assert_eq!(names[1..64].iter().map(|name| send(read(name, None))).sum::<usize>(), 0);
    assert_eq!(send(read(&names[64], None)), 1, "the list that confirms that there is nothing else");
}

#[test]
fn an_object_that_no_watch_shows_and_may_not_be_read_is_not_confirmed() {
    let plan = plan("a-1", json!({}));
    let mut deletion = found_by_a_read(&plan);
    deletion.on(deleted("a-2", DeleteAnswer::Done), "confirm a-2 in 2s");
    deletion.on(confirm("a-2"), "read a");
    deletion.on(unreadable("a-2"), "give up a in 2s");
    deletion.on(due(Timer::Unreadable(key("a-2"))), "a is refused");
    deletion.ended(Status::Failed, &["a: request failed: no"]);
}

#[test]
fn a_missing_right_to_read_what_changed_is_reported_unless_the_watch_shows_the_change() {
    let plan = plan("a-1 b-1", json!({"force": {"after": "5m"}}));
    let start = || {
        let mut deletion = Deletion::start(&plan, "watch 0; delete a-1; delete b-1");
        deletion.on(deleted("b-1", DeleteAnswer::NotFound), "b-1 is gone");
        deletion.on(accepted("a-1 x"), "a has x; force a-1 in 300s");
        deletion.on(due(Timer::Force(key("a-1"), Uid::new("a-1"))), "remove x of a-1");
        deletion
    };
    let conflict = || removed("a-1", Ok(RemoveAnswer::Changed));
    let give_up = || due(Timer::Unreadable(key("a-1")));
    let mut deletion = start();
    deletion.on(conflict(), "read a");
    deletion.on(unreadable("a-1"), "give up a in 2s");
    deletion.on(give_up(), "a is refused");
    deletion.ended(Status::Failed, &["a: request failed: no"]);
    // The watch shows the change in time, or even that the object is gone.
    let mut deletion = start();
    deletion.on(conflict(), "read a");
    deletion.on(unreadable("a-1"), "give up a in 2s");
    deletion.on(present("a-1 deleting y"), "a waits for [finalizer y]; remove y of a-1");
    deletion.on(give_up(), "");
    deletion.on(conflict(), "read a");
    deletion.on(unreadable("a-1"), "give up a in 2s");
    deletion.on(gone("a-1"), "a-1 is gone");
    deletion.ended(Status::Done, &[]);
    // The watch has shown it before the answer: there is nothing to read.
    let mut deletion = start();
    deletion.on(present("a-1 deleting y"), "a waits for [finalizer y]");
    deletion.on(conflict(), "remove y of a-1");
    // The read fails after the watch has shown that the object is gone.
    deletion.on(conflict(), "read a");
    deletion.on(gone("a-1"), "a-1 is gone");
    deletion.on(unreadable("a-1"), "");
    deletion.ended(Status::Done, &[]);
}

#[test]
fn the_answer_of_an_outdated_read_does_not_end_a_newer_one() {
    let plan = plan("a-1", json!({}));
    let mut deletion = Deletion::start(&plan, "watch 0; delete a-1");
    deletion.on(deleted("a-1", DeleteAnswer::OtherUid), "a-1 is gone; read a");
    deletion.on(present("a-2 ours"), "a appeared; delete a-2");
    deletion.on(deleted("a-2", DeleteAnswer::OtherUid), "a-2 is gone; read a");
    deletion.on(unanswered("a-2", ErrorKind::Timeout), "a is refused for now; read a in 15s");
    deletion.on(read("a-1", Some("a-2 ours")), "");
    deletion.continues();
    deletion.on(due(Timer::Read(key("a-2"))), "read a");
    deletion.on(read("a-2", None), "");
    deletion.ended(Status::Done, &[]);
}

#[test]
fn a_name_that_may_not_be_read_after_a_conflict_is_not_confirmed() {
    let plan = plan("a-1", json!({}));
    let start = || {
        let mut deletion = Deletion::start(&plan, "watch 0; delete a-1");
        deletion.on(deleted("a-1", DeleteAnswer::OtherUid), "a-1 is gone; read a");
        deletion.on(unreadable("a-1"), "give up a in 2s");
        deletion.continues();
        deletion
    };
    let mut deletion = start();
    deletion.on(due(Timer::Unreadable(key("a-1"))), "a is refused");
    assert!(deletion.0.has_ended());
    let result = deletion.0.into_result();
    assert_eq!((result.status, result.gone.len()), (Status::Failed, 0));
    assert!(matches!(&result.left[..], [(_, Some(Blocker::Refused { .. }))]), "{:?}", result.left);
    // The watch may show it in time.
    let mut deletion = start();
    deletion.on(present("a-2 ours"), "a appeared; delete a-2");
    deletion.on(due(Timer::Unreadable(key("a-1"))), "");
    deletion.on(gone("a-2"), "a-2 is gone");
    deletion.on(deleted("a-2", DeleteAnswer::Done), "");
    deletion.ended(Status::Done, &[]);
    // A limit does not confirm anything either.
    let mut deletion = start();
    deletion.on(Input::Deadline, "");
    deletion.ended(Status::TimedOut, &["a: deletion requested, not yet confirmed by the API server"]);
}
