//! The decisions of a deletion, each as a line of input and the effects that it must have.

mod annotations;
mod clean;
mod interleavings;
mod reads;
mod waiting;

use billhook_cluster::{Change, DeleteAnswer, ErrorKind, RemoveAnswer};
use billhook_objects::{GroupKind, Labels, ObjectKey, Uid, wellknown};
use billhook_plan::{Annotations, Observed, Plan, UncoveredCause, Work};
use serde_json::{Value, json};

use super::{
    machine::Machine,
    messages::{Answer, Effect, Input, Request, Timer},
};
use crate::{Blocker, Event, RefusedBy, Status, retry::Failure};

const LABEL: &str = "shop.ns";

/// A machine, and inputs about objects that are written `NAME-N`: the UID of the Nth object of that name.
struct Deletion<'a>(Machine<'a>);

impl<'a> Deletion<'a> {
    /// Starts the deletion of a plan's only node.
    fn start(plan: &'a Plan, expected: &str) -> Self {
        let Work::Delete(work) = &plan.nodes[0].work else { unreachable!("the node deletes") };
        let mut deletion = Self(Machine::new(plan, 0, work, Some(LABEL)));
        deletion.on(Input::Start, expected);
        deletion
    }

    /// Checks the effects of an input.
    #[track_caller]
    fn on(&mut self, input: Input, expected: &str) {
        assert!(!self.0.has_ended(), "the node has ended already");
        let effects: Vec<_> = self.0.on(input).map(|effect| text(&effect)).collect();
        assert_eq!(effects.join("; "), expected);
    }

    /// Checks that the node has not ended.
    #[track_caller]
    fn continues(&self) {
        assert!(!self.0.has_ended(), "the node has ended");
    }

    /// Checks how the node has ended, and what is left.
    #[track_caller]
    fn ended(self, status: Status, left: &[&str]) {
        assert!(self.0.has_ended(), "the node has not ended");
        let result = self.0.into_result();
        assert_eq!(result.status, status);
        let blocker = |blocker: Option<Blocker>| blocker.map(|b| format!(": {b}")).unwrap_or_default();
        let found: Vec<_> = result.left.into_iter().map(|(key, b)| format!("{}{}", key.name, blocker(b))).collect();
        assert_eq!(found, left);
    }
}

/// Makes a plan that deletes the objects of `NAME-N NAME-N`. Query 0 is about ConfigMaps, 1 about Namespaces, 2 about
/// CRDs, 3 about Widgets, 4 about Pods and 5 about VolumeSnapshotContents.
fn plan(objects: &str, rest: Value) -> Plan {
    let query = |kind: GroupKind| {
        let namespaced = kind.kind != "Namespace" && kind.kind != "CustomResourceDefinition";
        let resource =
            json!({"group": kind.group, "kind": kind.kind, "version": "v1", "plural": "x", "namespaced": namespaced});
        json!({"resource": resource, "select": "all"})
    };
    let task = |name: &str| {
        let key = key(name);
        let (query, instances) = match key.kind.kind.as_str() {
            "ConfigMap" => (0, None),
            "Namespace" => (1, None),
            "Pod" => (4, None),
            "VolumeSnapshotContent" => (5, None),
            _ => (2, Some(3)),
        };
        json!({"object": key, "uid": name, "query": query, "instances": instances})
    };
    let mut work =
        json!({"objects": objects.split_whitespace().map(task).collect::<Vec<_>>(), "propagation": "Background"});
    for (name, value) in rest.as_object().into_iter().flatten() {
        work[name] = value.clone();
    }
    let kinds = ["a", "namespace", "crd", "widget", "pod", "content"].map(kind_of);
    serde_json::from_value(json!({
        "format": 1, "operation": "delete", "uncovered": [], "notes": [], "queries": kinds.map(query),
        "nodes": [{"title": "objects", "after": [], "work": {"delete": work}, "barrier": "gone"}],
    }))
    .unwrap()
}

fn kind_of(name: &str) -> GroupKind {
    match name {
        name if name.starts_with("namespace") => wellknown::namespace(),
        "pod" => wellknown::pod(),
        "crd" => wellknown::crd(),
        "widget" => GroupKind::new("a.example", "Widget"),
        "content" => wellknown::volume_snapshot_content(),
        _ => GroupKind::new("", "ConfigMap"),
    }
}

fn key(object: &str) -> ObjectKey {
    let (name, _) = object.split_once('-').unwrap();
    ObjectKey::new(
        kind_of(name),
        (!(name.starts_with("namespace") || matches!(name, "crd" | "content"))).then_some("ns"),
        name,
    )
}

/// What a list or watch shows of `NAME-N [deleting] [ours] [extra] [@ANNOTATION=VALUE…] [FINALIZER…]`.
fn observed(text: &str) -> Observed {
    let mut words = text.split_whitespace();
    let uid = words.next().unwrap();
    let key = key(uid);
    let mut found = Observed {
        namespace: key.namespace,
        name: key.name,
        uid: Uid::new(uid),
        resource_version: String::new(),
        labels: Labels::default(),
        created_at: None,
        finalizers: Vec::new(),
        deleting: false,
        deleted_at: None,
        owners: Vec::new(),
        annotations: Annotations::default(),
        tracked: None,
        ready: false,
    };
    for word in words {
        match word {
            "deleting" => found.deleting = true,
            "ours" => found.labels.insert(wellknown::RELEASE_LABEL, LABEL),
            "extra" => found.labels.insert("extra", "yes"),
            annotation if let Some((name, value)) = annotation.strip_prefix('@').and_then(|a| a.split_once('=')) => {
                let key = if name.contains('/') { name.to_owned() } else { format!("billhook.dev/{name}") };
                found.annotations = found.annotations.with(&serde_json::from_value(json!({key: value})).unwrap());
            }
            finalizer => found.finalizers.push(finalizer.to_owned()),
        }
    }
    found
}

/// The query of an object's kind.
fn query(object: &str) -> usize {
    match key(object).name.as_str() {
        name if name.starts_with("namespace") => 1,
        "crd" => 2,
        "widget" => 3,
        "pod" => 4,
        "content" => 5,
        _ => 0,
    }
}

fn present(text: &str) -> Input {
    Input::Change(query(text), Change::Present(observed(text)))
}

fn gone(object: &str) -> Input {
    let ObjectKey { namespace, name, .. } = key(object);
    Input::Change(query(object), Change::Gone { namespace, name, uid: Uid::new(object) })
}

fn deleted(object: &str, answer: DeleteAnswer) -> Input {
    Input::Answer(Answer::Delete(key(object), Uid::new(object), Ok(answer)))
}

/// The API server has accepted a DELETE of `NAME-N [FINALIZER…]`, which now carries a `deletionTimestamp`.
fn accepted(text: &str) -> Input {
    let found = observed(text);
    deleted(
        found.uid.as_str(),
        DeleteAnswer::Accepted { finalizers: found.finalizers, deletion: true, deleted_at: None },
    )
}

fn refused(object: &str, kind: ErrorKind) -> Input {
    Input::Answer(Answer::Delete(key(object), Uid::new(object), Err(failure(kind))))
}

fn failure(kind: ErrorKind) -> Failure {
    let is_lost = matches!(kind, ErrorKind::Timeout | ErrorKind::Unreachable);
    let by = RefusedBy::Server;
    Failure { message: "no".to_owned(), kind, by, is_transient: is_lost, retry_after: None, is_unknown: is_lost }
}

fn removed(object: &str, answer: Result<RemoveAnswer, Failure>) -> Input {
    Input::Answer(Answer::Remove(key(object), Uid::new(object), answer))
}

fn read(object: &str, found: Option<&str>) -> Input {
    Input::Answer(Answer::Read(key(object), Uid::new(object), Ok(found.map(observed))))
}

fn listed(found: &[&str]) -> Input {
    Input::Answer(Answer::List(0, Ok(found.iter().map(|text| observed(text)).collect())))
}

fn text(effect: &Effect) -> String {
    match effect {
        Effect::Send(request) => match request {
            Request::Delete(_, uid, query, _) => {
                assert_eq!(*query, self::query(uid.as_str()));
                format!("delete {uid}")
            }
            Request::EndGrace(_, uid, _) => format!("end grace of {uid}"),
            Request::Look(key, ..) => format!("look at {}", key.name),
            Request::Namespace(name) => format!("look up {name}"),
            Request::ReleaseSnapshot(_, uid, _) => format!("release {uid}"),
            Request::RemoveFinalizers { uid, remove, .. } => format!("remove {} of {uid}", remove.join(",")),
            Request::FinalizeNamespace(_, uid, remove) => format!("finalize {} of {uid}", remove.join(",")),
            Request::Read(key, ..) => format!("read {}", key.name),
            Request::ReadNamespace(_, uid, _) => format!("read namespace {uid}"),
            Request::List(index) => format!("list {index}"),
        },
        Effect::Watch { query, from_snapshot: true } => format!("watch {query}"),
        Effect::Watch { query, from_snapshot: false } => format!("list and watch {query}"),
        Effect::Timer(timer, after) => match timer {
            Timer::Retry(_, uid) => format!("retry {uid} in {after:?}"),
            Timer::Force(_, uid) | Timer::ForceAgain(_, uid) => format!("force {uid} in {after:?}"),
            Timer::Finalize(_, uid, _) => format!("finalize {uid} in {after:?}"),
            Timer::ReleaseSnapshot(_, uid) => format!("release {uid} in {after:?}"),
            Timer::Again(_, uid) => format!("delete {uid} in {after:?}"),
            Timer::Confirm(_, uid) => format!("confirm {uid} in {after:?}"),
            Timer::Unreadable(key) => format!("give up {} in {after:?}", key.name),
            Timer::Look => format!("look in {after:?}"),
            Timer::Read(key) => format!("read {} in {after:?}", key.name),
            Timer::List(index) => format!("list {index} in {after:?}"),
            Timer::Grace => format!("stop in {after:?}"),
        },
        Effect::ForceAfter { timer, after, deleted_at } => {
            let since = deleted_at.map(|at| format!(" since {at}")).unwrap_or_default();
            let (what, uid) = match timer {
                Timer::Force(_, uid) => ("force", uid),
                Timer::Finalize(_, uid, _) => ("finalize", uid),
                Timer::ReleaseSnapshot(_, uid) => ("release", uid),
                _ => unreachable!("no force stage"),
            };
            format!("{what} {uid} in {after:?}{since}")
        }
        Effect::Emit(event) => match event {
            Event::Blocked { object, blockers, .. } => {
                let blockers: Vec<_> = blockers.iter().map(ToString::to_string).collect();
                format!("{} waits for [{}]", object.name, blockers.join(", "))
            }
            Event::GracePeriodEnded { object, .. } => format!("{} has no grace", object.name),
            Event::Deleting { object, finalizers, .. } if finalizers.is_empty() => {
                format!("{} is deleting", object.name)
            }
            Event::Deleting { object, finalizers, .. } => format!("{} has {}", object.name, finalizers.join(",")),
            Event::Gone { uid, .. } => format!("{uid} is gone"),
            Event::Appeared { object, .. } => format!("{} appeared", object.name),
            Event::Recreated { object, .. } => format!("{} remains", object.name),
            Event::Kept { object, cause: UncoveredCause::NamespaceGone, .. } => format!("{} is stranded", object.name),
            Event::Kept { object, .. } => format!("{} is kept", object.name),
            Event::SnapshotReleased { object, .. } => format!("{} is released", object.name),
            Event::FinalizersRemoved { object, finalizers, .. } => {
                format!("{} lost {}", object.name, finalizers.join(","))
            }
            Event::Refused { object, retried: true, .. } => format!("{} is refused for now", object.name),
            Event::Refused { object, .. } => format!("{} is refused", object.name),
            Event::ListFailed { reason, retried, .. } => {
                format!("{}{}", reason.replace(':', " cannot be listed:"), if *retried { "" } else { ", for good" })
            }
            Event::ServerAway { .. } => "away".to_owned(),
            Event::ServerBack { .. } => "back".to_owned(),
            other => format!("{other:?}"),
        },
    }
}

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
fn an_object_of_another_group_remains() {
    let plan = plan("a-1", json!({}));
    let mut deletion = Deletion::start(&plan, "watch 0; delete a-1");
    deletion.on(present("b-1 ours"), "");
    deletion.on(deleted("a-1", DeleteAnswer::NotFound), "a-1 is gone");
    deletion.ended(Status::Done, &[]);
}

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
