//! Requests that fail, interruptions and outages.

use super::*;

#[test]
fn a_refusal_is_final_or_retried_by_its_kind() {
    let table = [
        (ErrorKind::Forbidden, false),
        (ErrorKind::Denied, false),
        (ErrorKind::Refused, false),
        (ErrorKind::Invalid, false),
        (ErrorKind::Conflict(Vec::new()), true),
        (ErrorKind::NotServed, true),
        (ErrorKind::Webhook, true),
        (ErrorKind::Timeout, true),
        (ErrorKind::Unreachable, true),
        (ErrorKind::Other, true),
    ];
    for (kind, retried) in table {
        let plan = plan("a-1", json!({}));
        let mut deletion = Deletion::start(&plan, "watch 0; delete a-1");
        if !retried {
            deletion.on(refused("a-1", kind), "a is refused");
            deletion.ended(Status::Failed, &["a: request failed: no"]);
            continue;
        }
        deletion.on(refused("a-1", kind.clone()), "a is refused for now; retry a-1 in 500ms");
        deletion.on(Input::Due(Timer::Retry(key("a-1"), Uid::new("a-1"))), "delete a-1");
        // The same message is reported once, and the pause grows.
        deletion.on(refused("a-1", kind), "retry a-1 in 1s");
        deletion.on(Input::Due(Timer::Retry(key("a-1"), Uid::new("a-1"))), "delete a-1");
        deletion.on(deleted("a-1", DeleteAnswer::NotFound), "a-1 is gone");
        deletion.ended(Status::Done, &[]);
    }
}

#[test]
fn a_node_fails_once_only_refused_objects_remain() {
    let plan = plan("a-1 b-1", json!({}));
    let mut deletion = Deletion::start(&plan, "watch 0; delete a-1; delete b-1");
    deletion.on(refused("a-1", ErrorKind::Refused), "a is refused");
    deletion.on(accepted("b-1 x"), "b has x");
    deletion.continues();
    deletion.on(gone("b-1"), "b-1 is gone");
    deletion.ended(Status::Failed, &["a: request failed: no"]);
}

#[test]
fn an_object_that_another_client_deletes_needs_no_retry() {
    let plan = plan("a-1", json!({}));
    let mut deletion = Deletion::start(&plan, "watch 0; delete a-1");
    deletion.on(refused("a-1", ErrorKind::Webhook), "a is refused for now; retry a-1 in 500ms");
    deletion.on(present("a-1 deleting x"), "a has x");
    deletion.on(Input::Due(Timer::Retry(key("a-1"), Uid::new("a-1"))), "");
    deletion.on(gone("a-1"), "a-1 is gone");
    deletion.ended(Status::Done, &[]);
}

#[test]
fn a_delete_that_took_effect_although_its_answer_was_lost_is_not_repeated() {
    let plan = plan("a-1", json!({"force": {"after": "5m"}}));
    let mut deletion = Deletion::start(&plan, "watch 0; delete a-1");
    deletion.on(present("a-1 deleting x"), "a has x; force a-1 in 300s");
    deletion.on(refused("a-1", ErrorKind::Timeout), "");
    deletion.on(present("a-1 deleting x"), "");
    deletion.on(gone("a-1"), "a-1 is gone");
    deletion.ended(Status::Done, &[]);
}

#[test]
fn a_collection_that_cannot_be_listed_is_left_to_the_watch() {
    for (kind, expected) in
        [(ErrorKind::Forbidden, "ConfigMap cannot be listed: no, for good"), (ErrorKind::NotServed, "")]
    {
        let plan = plan("", json!({"collections": [{"query": 0}]}));
        let mut deletion = Deletion::start(&plan, "watch 0; list 0");
        deletion.on(Input::Answer(Answer::List(0, Err(failure(kind)))), expected);
        deletion.ended(Status::Done, &[]);
    }
}

#[test]
fn nothing_is_sent_after_ctrl_c_but_answers_are_processed() {
    let names: Vec<_> = (0..66).map(|n| format!("n{n:02}-1")).collect();
    let plan = plan(&names.join(" "), json!({"force": {"after": "0s"}}));
    let deletes: Vec<_> = names[..64].iter().map(|name| format!("delete {name}")).collect();
    let mut deletion = Deletion::start(&plan, &format!("watch 0; {}", deletes.join("; ")));
    deletion.on(deleted("n00-1", DeleteAnswer::NotFound), "n00-1 is gone; delete n64-1");
    deletion.on(Input::Stop, "stop in 2s");
    deletion.on(accepted("n01-1 x"), "n01 has x; force n01-1 in 0ns");
    deletion.on(Input::Due(Timer::Force(key("n01-1"), Uid::new("n01-1"))), "");
    deletion.on(deleted("n02-1", DeleteAnswer::OtherUid), "n02-1 is gone");
    for name in &names[3..65] {
        deletion.continues();
        deletion.on(deleted(name, DeleteAnswer::NotFound), &format!("{name} is gone"));
    }
    // Nothing tells which object has the name n02.
    let unknown = "n02: deletion requested, not yet confirmed by the API server";
    deletion.ended(Status::Interrupted, &[unknown, "n01", "n65: request not sent, or not answered in time"]);
}

#[test]
fn a_missing_answer_delays_the_end_until_a_deadline() {
    for (input, expected, status) in
        [(Input::Deadline, "", Status::TimedOut), (Input::Due(Timer::Grace), "", Status::Interrupted)]
    {
        let plan = plan("a-1", json!({}));
        let mut deletion = Deletion::start(&plan, "watch 0; delete a-1");
        deletion.on(input, expected);
        deletion.ended(status, &["a"]);
    }
}

#[test]
fn an_outage_is_reported_once_for_all_watches() {
    let plan = plan("a-1 namespace-1", json!({}));
    let mut deletion = Deletion::start(&plan, "watch 0; watch 1; delete a-1; delete namespace-1");
    let away = || Change::Away("no".to_owned());
    deletion.on(Input::Change(0, away()), "away");
    deletion.on(Input::Change(1, away()), "");
    deletion.on(Input::Change(0, Change::Back), "");
    deletion.on(Input::Change(1, Change::Back), "back");
    deletion.on(Input::Change(1, Change::Back), "");
}
