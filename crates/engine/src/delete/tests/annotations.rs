//! Objects whose annotations keep them, or give them a force stage of their own.

use std::time::Duration;

use super::*;

/// Returns a plan that deletes `NAME-N NAME-N` in version 1, with these annotations of the first.
fn annotated(objects: &str, rest: Value, annotations: Value) -> Plan {
    let mut plan = plan(objects, rest);
    let Work::Delete(work) = &mut plan.nodes[0].work else { unreachable!("the node deletes") };
    for task in &mut work.objects {
        task.resource_version = "1".to_owned();
    }
    work.objects[0].annotations = serde_json::from_value(annotations).unwrap();
    plan
}

fn force_stage(object: &str) -> Input {
    Input::Due(Timer::Force(key(object), Uid::new(object)))
}

fn finalize(object: &str, after: u64) -> Input {
    Input::Due(Timer::Finalize(key(object), Uid::new(object), Duration::from_secs(after)))
}

/// Returns the version that the next DELETE among these effects has as its precondition.
fn version_of_delete(machine: &mut Machine<'_>, input: Input) -> Option<String> {
    machine.on(input).find_map(|effect| match effect {
        Effect::Send(Request::Delete(_, _, _, version)) => Some(version),
        _ => None,
    })
}

#[test]
fn an_object_that_is_annotated_in_time_is_kept() {
    let names: Vec<_> = (0..65).map(|n| format!("n{n:02}-1")).collect();
    let plan = annotated(&names.join(" "), json!({}), json!({}));
    let Work::Delete(work) = &plan.nodes[0].work else { unreachable!("the node deletes") };
    let mut machine = Machine::new(&plan, 0, work, Some(LABEL));
    let sent = machine.on(Input::Start).filter(|effect| matches!(effect, Effect::Send(_))).count();
    assert_eq!(sent, 64);
    // The last one waits for its turn.
    assert_eq!(machine.on(present("n64-1 ours @keep-object=true")).count(), 0);
    let effects: Vec<_> = machine.on(deleted("n00-1", DeleteAnswer::NotFound)).map(|effect| text(&effect)).collect();
    assert_eq!(effects, ["n00-1 is gone", "n64 is kept"]);
    for name in &names[1..64] {
        assert!(!machine.has_ended(), "{name}");
        machine.on(deleted(name, DeleteAnswer::NotFound)).for_each(drop);
    }
    let result = machine.into_result();
    assert_eq!((result.status, result.left.len(), result.gone.len()), (Status::Done, 0, 64));
    let kept: Vec<_> = result.kept.iter().map(|kept| format!("{}: {}", kept.object.name, kept.reason())).collect();
    assert_eq!(kept, ["n64: it is annotated with keep-object"]);
}

#[test]
fn an_object_that_has_changed_is_read_before_it_is_deleted() {
    let plan = annotated("a-1 b-1", json!({}), json!({}));
    let mut deletion = Deletion::start(&plan, "watch 0; delete a-1; delete b-1");
    deletion.on(deleted("a-1", DeleteAnswer::Changed), "read a");
    deletion.on(read("a-1", Some("a-1 ours @mode=Ignore")), "a is kept");
    deletion.on(deleted("b-1", DeleteAnswer::Changed), "read b");
    deletion.on(read("b-1", Some("b-1 ours @keep-object=false")), "delete b-1");
    deletion.on(deleted("b-1", DeleteAnswer::Done), "");
    deletion.on(gone("b-1"), "b-1 is gone");
    let result = deletion.0.into_result();
    assert_eq!(result.kept.iter().map(|kept| kept.reason()).collect::<Vec<_>>(), ["it is annotated with mode=Ignore"]);
}

#[test]
fn an_object_that_keeps_changing_is_only_deleted_in_the_version_that_was_read() {
    let plan = annotated("a-1", json!({}), json!({}));
    let Work::Delete(work) = &plan.nodes[0].work else { unreachable!("the node deletes") };
    let mut machine = Machine::new(&plan, 0, work, Some(LABEL));
    let mut versions = vec![version_of_delete(&mut machine, Input::Start).unwrap()];
    let found = |version: &str, text: &str| Observed { resource_version: version.to_owned(), ..observed(text) };
    let read = |object: Observed| Input::Answer(Answer::Read(key("a-1"), Uid::new("a-1"), Ok(Some(object))));
    let effects = |machine: &mut Machine<'_>, input| machine.on(input).map(|effect| text(&effect)).collect::<Vec<_>>();
    for version in ["2", "3", "4", "5"] {
        let next = effects(&mut machine, deleted("a-1", DeleteAnswer::Changed));
        if version == "5" {
            // From now on it waits before each read.
            assert_eq!(next, ["read a in 1s"]);
            assert_eq!(effects(&mut machine, Input::Due(Timer::Read(key("a-1")))), ["read a"]);
        } else {
            assert_eq!(next, ["read a"]);
        }
        versions.push(version_of_delete(&mut machine, read(found(version, "a-1 ours"))).unwrap());
        // A watch that is behind the read changes nothing.
        assert!(
            effects(&mut machine, Input::Change(0, Change::Present(found("1", "a-1 ours @keep-object=true"))))
                .is_empty()
        );
    }
    assert_eq!(versions, ["1", "2", "3", "4", "5"]);
    effects(&mut machine, deleted("a-1", DeleteAnswer::Changed));
    effects(&mut machine, Input::Due(Timer::Read(key("a-1"))));
    assert_eq!(effects(&mut machine, read(found("6", "a-1 ours @keep-object=true"))), ["a is kept"]);
    assert!(machine.has_ended());
}

#[test]
fn what_was_read_is_deleted_before_what_waits() {
    let names: Vec<_> = (0..66).map(|n| format!("n{n:02}-1")).collect();
    let plan = annotated(&names.join(" "), json!({}), json!({}));
    let Work::Delete(work) = &plan.nodes[0].work else { unreachable!("the node deletes") };
    let mut machine = Machine::new(&plan, 0, work, Some(LABEL));
    machine.on(Input::Start).for_each(drop);
    // Two wait for their turn; the first of them gets that of a read that is not sent before.
    let mut on = |input| machine.on(input).map(|effect| text(&effect)).collect::<Vec<_>>();
    assert_eq!(on(deleted("n00-1", DeleteAnswer::Changed)), ["read n00"]);
    assert_eq!(on(read("n00-1", Some("n00-1 ours"))), ["delete n00-1"]);
    assert_eq!(on(deleted("n01-1", DeleteAnswer::NotFound)), ["n01-1 is gone", "delete n64-1"]);
}

#[test]
fn what_another_client_deletes_of_the_kept_objects_is_not_forced() {
    let force = json!({"force": {"after": "5m"}, "retries": ["5s"]});
    let plan = annotated("a-1 b-1 c-1", force, json!({"billhook.dev/keep-object": "true"}));
    let mut deletion = Deletion::start(&plan, "watch 0; a is kept; delete b-1; delete c-1");
    deletion.on(present("a-1 deleting @keep-object=true x"), "");
    deletion.on(present("a-1 deleting x"), "");
    // One that was annotated after its DELETE was rejected is kept, too.
    deletion.on(refused("b-1", ErrorKind::Refused), "b is refused for now; retry b-1 in 5s");
    deletion.on(present("b-1 deleting @keep-object=true x"), "b is kept");
    // Our own DELETE was accepted before the annotation appeared.
    deletion.on(accepted("c-1 x"), "c has x; force c-1 in 300s");
    deletion.on(gone("c-1"), "c-1 is gone");
    deletion.ended(Status::Done, &[]);
}

#[test]
fn an_object_that_may_not_be_read_is_deleted_by_what_is_known() {
    let plan = annotated("a-1 b-1", json!({}), json!({}));
    let mut deletion = Deletion::start(&plan, "watch 0; delete a-1; delete b-1");
    let unreadable =
        |name: &str| Input::Answer(Answer::Read(key(name), Uid::new(name), Err(failure(ErrorKind::Forbidden))));
    deletion.on(deleted("a-1", DeleteAnswer::Changed), "read a");
    deletion.on(unreadable("a-1"), "delete a-1");
    deletion.on(deleted("b-1", DeleteAnswer::Changed), "read b");
    // The watch has shown the change meanwhile.
    deletion.on(present("b-1 ours @keep-object=true"), "");
    deletion.on(unreadable("b-1"), "b is kept");
    deletion.on(deleted("a-1", DeleteAnswer::NotFound), "a-1 is gone");
    deletion.ended(Status::Done, &[]);
}

#[test]
fn what_the_run_has_written_counts_as_seen() {
    let plan = annotated("a-1 b-1", json!({}), json!({}));
    let Work::Delete(work) = &plan.nodes[0].work else { unreachable!("the node deletes") };
    // Another client has annotated one of them after the plan was made and before it was patched.
    let patched = |name: &str, annotations: Value| crate::node::AppliedObject {
        object: key(name),
        uid: Uid::new(name),
        resource_version: "7".to_owned(),
        annotations: serde_json::from_value(annotations).unwrap(),
        fingerprint: None,
        changed: true,
    };
    let kept = json!({"billhook.dev/keep-object": "true"});
    let written = [("a-1", json!({})), ("b-1", kept)].map(|(name, all)| (key(name), patched(name, all)));
    let mut machine = Machine::new(&plan, 0, work, Some(LABEL)).after(written.into());
    let effects: Vec<_> = machine.on(Input::Start).collect();
    let versions = effects.iter().filter_map(|effect| match effect {
        Effect::Send(Request::Delete(key, _, _, version)) => Some(format!("{key} {version}")),
        _ => None,
    });
    assert_eq!(versions.collect::<Vec<_>>(), [format!("{} 7", key("a-1"))]);
    assert!(effects.iter().any(|effect| text(effect) == "b is kept"));
}

#[test]
fn an_annotation_removes_all_finalizers_after_its_time() {
    let after = json!({"resources.gardener.cloud/finalize-deletion-after": "1h"});
    let plan = annotated("a-1 b-1", json!({}), after);
    let mut deletion = Deletion::start(&plan, "watch 0; delete a-1; delete b-1");
    let answer = DeleteAnswer::Accepted { finalizers: vec!["x".into()], deletion: true, deleted_at: Some(7) };
    deletion.on(deleted("a-1", answer), "a has x; finalize a-1 in 3600s since 7");
    deletion.on(accepted("b-1 x"), "b has x");
    deletion.on(finalize("a-1", 3600), "remove x of a-1");
    deletion.on(removed("a-1", Ok(RemoveAnswer::Removed(vec!["x".into()]))), "a lost x");
    deletion.on(gone("a-1"), "a-1 is gone");
    // Another client annotates an object that is being deleted.
    let late = Observed { deleted_at: Some(8), ..observed("b-1 deleting @finalize-deletion-after=5s x") };
    deletion.on(Input::Change(0, Change::Present(late)), "finalize b-1 in 5s since 8");
    deletion.on(finalize("b-1", 5), "remove x of b-1");
    deletion.continues();
}

#[test]
fn only_the_newest_time_of_an_annotation_counts() {
    let after = json!({"billhook.dev/finalize-deletion-after": "1h"});
    let plan = annotated("a-1", json!({}), after);
    let mut deletion = Deletion::start(&plan, "watch 0; delete a-1");
    deletion.on(accepted("a-1 x"), "a has x; finalize a-1 in 3600s");
    deletion.on(present("a-1 deleting @finalize-deletion-after=2h x"), "finalize a-1 in 7200s");
    deletion.on(finalize("a-1", 3600), "");
    deletion.on(present("a-1 deleting x"), "");
    deletion.on(finalize("a-1", 7200), "");
    deletion.on(present("a-1 deleting @finalize-deletion-after=1s x"), "finalize a-1 in 1s");
    deletion.on(finalize("a-1", 1), "remove x of a-1");
    // The object is held by another finalizer when the annotation is removed.
    deletion.on(present("a-1 deleting y"), "a waits for [finalizer y]");
    deletion.on(removed("a-1", Ok(RemoveAnswer::Changed)), "read a");
    deletion.on(read("a-1", Some("a-1 deleting y")), "");
    deletion.continues();
}

#[test]
fn the_force_stages_of_group_and_annotation_are_independent() {
    let force = json!({"force": {"after": "5m", "finalizers": ["x"]}});
    let plan = annotated("a-1 b-1", force, json!({"billhook.dev/finalize-deletion-after": "1h"}));
    let mut deletion = Deletion::start(&plan, "watch 0; delete a-1; delete b-1");
    deletion.on(accepted("a-1 x y"), "a has x,y; force a-1 in 300s; finalize a-1 in 3600s");
    deletion.on(force_stage("a-1"), "remove x of a-1");
    let failed = || removed("a-1", Err(failure(ErrorKind::Timeout)));
    deletion.on(failed(), "a is refused for now; force a-1 in 15s");
    deletion.on(Input::Due(Timer::ForceAgain(key("a-1"), Uid::new("a-1"))), "remove x of a-1");
    deletion.on(removed("a-1", Ok(RemoveAnswer::Removed(vec!["x".into()]))), "a lost x");
    deletion.on(finalize("a-1", 3600), "remove y of a-1");
    // The stage of the group has not begun for an object whose annotation has an earlier time.
    deletion.on(accepted("b-1 x y"), "b has x,y; force b-1 in 300s");
    deletion.on(present("b-1 deleting @finalize-deletion-after=1m x y"), "finalize b-1 in 60s");
    deletion.on(finalize("b-1", 60), "remove x,y of b-1");
    let failed = || removed("b-1", Err(failure(ErrorKind::Timeout)));
    deletion.on(failed(), "b is refused for now; force b-1 in 15s");
    deletion.on(present("b-1 deleting x y"), "");
    // The annotation is gone, and the stage of the group has not begun yet.
    deletion.on(Input::Due(Timer::ForceAgain(key("b-1"), Uid::new("b-1"))), "");
    deletion.continues();
}

#[test]
fn some_finalizers_are_never_removed() {
    let after = json!({"billhook.dev/finalize-deletion-after": "1s"});
    let plan = annotated("a-1", json!({}), after);
    let mut deletion = Deletion::start(&plan, "watch 0; delete a-1");
    deletion.on(accepted("a-1 orphan foregroundDeletion x"), "a has orphan,foregroundDeletion,x; finalize a-1 in 1s");
    deletion.on(finalize("a-1", 1), "remove foregroundDeletion,x of a-1");
}

#[test]
fn a_collection_is_empty_without_the_objects_that_are_kept() {
    let collections = json!({"collections": [{"query": 0, "labelSelector": {"matchLabels": {"extra": "yes"}}}]});
    let plan = plan("", collections);
    let mut deletion = Deletion::start(&plan, "watch 0; list 0");
    deletion.on(present("a-1 extra @keep-object=true"), "");
    deletion.on(listed(&[]), "");
    deletion.ended(Status::Done, &[]);
}
