//! What confirms that objects are gone, and that collections are empty.

use super::*;

#[test]
fn a_node_ends_only_when_the_api_server_has_confirmed_each_object() {
    let plan = plan("a-1 b-1 c-1", json!({}));
    let mut deletion = Deletion::start(&plan, "watch 0; delete a-1; delete b-1; delete c-1");
    // Neither success nor a deletionTimestamp confirms anything.
    deletion.on(deleted("a-1", DeleteAnswer::Done), "");
    deletion
        .on(deleted("b-1", DeleteAnswer::Accepted { finalizers: Vec::new(), deletion: false, deleted_at: None }), "");
    deletion.on(accepted("c-1 x"), "c has x");
    deletion.on(present("c-1 deleting"), "c waits for []");
    deletion.on(gone("b-1"), "b-1 is gone");
    deletion.on(gone("a-1"), "a-1 is gone");
    // Another object of the name, or a repetition, confirms nothing.
    deletion.on(gone("c-2"), "");
    deletion.on(gone("a-1"), "");
    deletion.continues();
    deletion.on(gone("c-1"), "c-1 is gone");
    deletion.ended(Status::Done, &[]);
}

#[test]
fn a_404_confirms_an_object_but_the_node_waits_for_requests_in_flight() {
    let plan = plan("a-1 b-1", json!({}));
    let mut deletion = Deletion::start(&plan, "watch 0; delete a-1; delete b-1");
    deletion.on(deleted("a-1", DeleteAnswer::NotFound), "a-1 is gone");
    deletion.on(gone("b-1"), "b-1 is gone");
    deletion.continues();
    deletion.on(deleted("b-1", DeleteAnswer::Done), "");
    deletion.ended(Status::Done, &[]);
}

#[test]
fn a_group_without_objects_ends_at_once() {
    let plan = plan("", json!({}));
    Deletion::start(&plan, "").ended(Status::Done, &[]);
}

#[test]
fn a_kind_that_is_not_served_any_more_confirms_its_objects() {
    let plan = plan("a-1 b-1 namespace-1", json!({"collections": [{"query": 0}]}));
    let mut deletion = Deletion::start(&plan, "watch 0; watch 1; delete a-1; delete b-1; delete namespace-1");
    for object in ["a-1", "b-1", "namespace-1"] {
        deletion.on(deleted(object, DeleteAnswer::Done), "");
    }
    deletion.on(Input::Change(0, Change::KindGone), "a-1 is gone; b-1 is gone");
    deletion.on(gone("namespace-1"), "namespace-1 is gone");
    deletion.ended(Status::Done, &[]);
}

#[test]
fn a_replacement_is_deleted_only_if_it_carries_the_label_of_the_release() {
    let plan = plan("a-1", json!({}));
    let mut deletion = Deletion::start(&plan, "watch 0; delete a-1");
    deletion.on(deleted("a-1", DeleteAnswer::OtherUid), "a-1 is gone; read a");
    deletion.on(read("a-1", Some("a-2 ours")), "a appeared; delete a-2");
    deletion.on(gone("a-2"), "a-2 is gone");
    // The watch shows the next replacement, which another client owns, and shows it again.
    deletion.on(present("a-3"), "a remains");
    deletion.on(present("a-3"), "");
    deletion.on(deleted("a-2", DeleteAnswer::OtherUid), "");
    deletion.ended(Status::Done, &[]);
}

#[test]
fn a_name_that_cannot_be_read_is_read_again() {
    let plan = plan("a-1", json!({}));
    let mut deletion = Deletion::start(&plan, "watch 0; delete a-1");
    deletion.on(deleted("a-1", DeleteAnswer::OtherUid), "a-1 is gone; read a");
    let unanswered = Answer::Read(key("a-1"), Uid::new("a-1"), Err(failure(ErrorKind::Timeout)));
    deletion.on(Input::Answer(unanswered), "a is refused for now; read a in 15s");
    deletion.continues();
    deletion.on(Input::Due(Timer::Read(key("a-1"))), "read a");
    deletion.on(read("a-1", None), "");
    deletion.ended(Status::Done, &[]);
}

#[test]
fn a_read_that_is_older_than_the_watch_confirms_nothing() {
    let plan = plan("a-1", json!({}));
    let mut deletion = Deletion::start(&plan, "watch 0; delete a-1");
    deletion.on(deleted("a-1", DeleteAnswer::OtherUid), "a-1 is gone; read a");
    deletion.on(gone("a-2"), "");
    deletion.on(present("a-3 ours"), "a appeared; delete a-3");
    deletion.on(read("a-1", Some("a-2 ours")), "");
    deletion.on(deleted("a-3", DeleteAnswer::NotFound), "a-3 is gone");
    deletion.ended(Status::Done, &[]);
}

#[test]
fn a_watch_that_is_behind_a_read_confirms_nothing() {
    let plan = plan("a-1", json!({}));
    let mut deletion = Deletion::start(&plan, "watch 0; delete a-1");
    deletion.on(deleted("a-1", DeleteAnswer::OtherUid), "a-1 is gone; read a");
    deletion.on(read("a-1", Some("a-3 ours")), "a appeared; delete a-3");
    deletion.on(present("a-2 ours"), "read a");
    deletion.on(read("a-3", Some("a-3 ours")), "confirm a-3 in 2s");
    deletion.on(accepted("a-3"), "a is deleting");
    deletion.on(present("a-2 ours"), "read a");
    deletion.on(read("a-3", Some("a-4")), "a-3 is gone; a remains");
    deletion.ended(Status::Done, &[]);
}

#[test]
fn a_collection_is_listed_until_it_is_empty() {
    let plan = plan("a-1", json!({"collections": [{"query": 0, "excluded": [{"names": ["kept"]}]}]}));
    let mut deletion = Deletion::start(&plan, "watch 0; delete a-1");
    deletion.on(deleted("a-1", DeleteAnswer::NotFound), "a-1 is gone; list 0");
    // The watch shows an object that the list, sent before, does not contain: the list proves nothing.
    deletion.on(present("b-1"), "b appeared; delete b-1");
    deletion.on(present("kept-1"), "");
    deletion.on(listed(&[]), "");
    deletion.on(deleted("b-1", DeleteAnswer::NotFound), "b-1 is gone; list 0");
    deletion.on(listed(&["c-1"]), "c appeared; delete c-1");
    deletion.on(deleted("c-1", DeleteAnswer::Done), "confirm c-1 in 2s");
    deletion.on(gone("c-1"), "c-1 is gone; list 0");
    let failed = |kind| Input::Answer(Answer::List(0, Err(failure(kind))));
    deletion.on(failed(ErrorKind::Other), "ConfigMap cannot be listed: no; list 0 in 15s");
    deletion.continues();
    deletion.on(Input::Due(Timer::List(0)), "list 0");
    deletion.on(failed(ErrorKind::Other), "list 0 in 15s");
    deletion.on(Input::Due(Timer::List(0)), "list 0");
    deletion.on(listed(&[]), "");
    deletion.ended(Status::Done, &[]);
}

#[test]
fn an_object_of_another_group_remains() {
    let plan = plan("a-1", json!({}));
    let mut deletion = Deletion::start(&plan, "watch 0; delete a-1");
    deletion.on(present("b-1 ours"), "");
    deletion.on(deleted("a-1", DeleteAnswer::NotFound), "a-1 is gone");
    deletion.ended(Status::Done, &[]);
}
