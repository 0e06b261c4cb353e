//! The decisions of a deletion, each as a line of input and the effects that it must have.

mod annotations;
mod clean;
mod confirmations;
mod failures;
mod force;
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
