//! The force stage.

use super::*;

#[test]
fn the_force_stage_removes_finalizers_after_its_delay() {
    let plan = plan("a-1", json!({"force": {"after": "5m", "finalizers": ["x", "y"]}}));
    let mut deletion = Deletion::start(&plan, "watch 0; delete a-1");
    deletion.on(accepted("a-1 x y z"), "a has x,y,z; force a-1 in 300s");
    deletion.on(present("a-1 deleting y z"), "a waits for [finalizer y, finalizer z]");
    deletion.on(Input::Due(Timer::Force(key("a-1"), Uid::new("a-1"))), "remove y of a-1");
    // It appears again while the request is in flight, and needs another request.
    deletion.on(present("a-1 deleting x y z"), "a waits for [finalizer y, finalizer z, finalizer x]");
    deletion.on(removed("a-1", Ok(RemoveAnswer::Removed(vec!["y".into()]))), "a lost y; remove x of a-1");
    deletion.on(removed("a-1", Ok(RemoveAnswer::Changed)), "read a");
    deletion.on(
        Input::Answer(Answer::Read(key("a-1"), Uid::new("a-1"), Err(failure(ErrorKind::Timeout)))),
        "a is refused for now; read a in 15s",
    );
    deletion.on(Input::Due(Timer::Read(key("a-1"))), "read a");
    deletion.on(read("a-1", Some("a-1 deleting x")), "a waits for [finalizer x]; remove x of a-1");
    // The message is the same, so it is not reported again.
    deletion.on(removed("a-1", Err(failure(ErrorKind::Forbidden))), "force a-1 in 15s");
    deletion.on(Input::Due(Timer::Force(key("a-1"), Uid::new("a-1"))), "remove x of a-1");
    deletion.on(removed("a-1", Ok(RemoveAnswer::Gone)), "");
    deletion.continues();
    deletion.on(gone("a-1"), "a-1 is gone");
    deletion.ended(Status::Done, &[]);
}

#[test]
fn a_finalizer_is_removed_unless_another_client_depends_on_it() {
    const CRD: &str = wellknown::CRD_CLEANUP_FINALIZER;
    // The finalizers of the policy, its delay, those of the object, and those that are removed.
    let table = [
        (json!([]), "5m", "x y", "x,y"),
        (json!(["x"]), "5m", "x y", "x"),
        (json!(["z"]), "5m", "x y", ""),
        (json!([]), "5m", CRD, ""),
        (json!([CRD, "x"]), "0s", &format!("{CRD} x"), "x"),
        (json!(["orphan"]), "5m", "orphan", ""),
        (json!([]), "5m", "foregroundDeletion", "foregroundDeletion"),
        (json!([]), "0s", "foregroundDeletion x", "x"),
        (json!(["foregroundDeletion"]), "0s", "foregroundDeletion", "foregroundDeletion"),
    ];
    for (finalizers, after, present, expected) in table {
        let plan = plan("a-1", json!({"force": {"after": after, "finalizers": finalizers}}));
        let mut deletion = Deletion::start(&plan, "watch 0; delete a-1");
        let delay = if after == "0s" { "0ns" } else { "300s" };
        let comma = present.replace(' ', ",");
        deletion.on(accepted(&format!("a-1 {present}")), &format!("a has {comma}; force a-1 in {delay}"));
        let expected = if expected.is_empty() { String::new() } else { format!("remove {expected} of a-1") };
        deletion.on(Input::Due(Timer::Force(key("a-1"), Uid::new("a-1"))), &expected);
    }
}

#[test]
fn the_force_stage_of_a_replacement_has_its_own_delay() {
    let plan = plan("a-1", json!({"force": {"after": "5m"}}));
    let mut deletion = Deletion::start(&plan, "watch 0; delete a-1");
    deletion.on(accepted("a-1 x"), "a has x; force a-1 in 300s");
    deletion.on(Input::Due(Timer::Force(key("a-1"), Uid::new("a-1"))), "remove x of a-1");
    deletion.on(gone("a-1"), "a-1 is gone");
    deletion.on(present("a-2 ours"), "a appeared; delete a-2");
    deletion.on(accepted("a-2 x"), "a has x; force a-2 in 300s");
    // Both are about the former object.
    deletion.on(removed("a-1", Ok(RemoveAnswer::Removed(vec!["x".into()]))), "a lost x");
    deletion.on(Input::Due(Timer::Force(key("a-1"), Uid::new("a-1"))), "");
    deletion.on(Input::Due(Timer::Force(key("a-2"), Uid::new("a-2"))), "remove x of a-2");
}

#[test]
fn the_force_stage_of_a_crd_frees_its_instances() {
    let finalizer = wellknown::CRD_CLEANUP_FINALIZER;
    let plan = plan("crd-1", json!({"force": {"after": "0s"}}));
    let mut deletion = Deletion::start(&plan, "watch 2; delete crd-1");
    let effects = format!("crd has {finalizer}; force crd-1 in 0ns; look in 10s");
    deletion.on(accepted(&format!("crd-1 {finalizer}")), &effects);
    deletion.on(Input::Due(Timer::Force(key("crd-1"), Uid::new("crd-1"))), "list and watch 3");
    // Its instances are no members: the group neither deletes them nor reports them gone nor waits for them.
    deletion.on(present("widget-1 x"), "");
    deletion.on(present("widget-1 deleting x"), "force widget-1 in 0ns");
    deletion.on(Input::Due(Timer::Force(key("widget-1"), Uid::new("widget-1"))), "remove x of widget-1");
    deletion.on(removed("widget-1", Ok(RemoveAnswer::Removed(vec!["x".into()]))), "widget lost x");
    deletion.on(gone("widget-1"), "");
    deletion.on(present(&format!("crd-1 deleting {finalizer}")), "");
    deletion.continues();
    deletion.on(gone("crd-1"), "crd-1 is gone");
    deletion.ended(Status::Done, &[]);
}
