//! When an object asks for work: pure functions of what was considered last and what is seen now.
//!
//! The rules are those of Gardener's predicates (gardener/gardener, extensions/pkg/predicate/default.go). A change of the
//! status alone never asks for work, because the controller itself writes it.

use crate::{
    dispatch::Action,
    gardener::Cluster,
    object::{DEFAULT_CLASS, ExtensionObject, Key, WAIT_FOR_STATE},
};

/// What of an object and its Cluster can ask for work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    uid: String,
    generation: i64,
    /// The operation annotation, until it is removed.
    operation: Option<String>,
    /// Whether the operation annotation asks to wait.
    waits: bool,
    timestamp: Option<String>,
    deleting: bool,
    shoot_generation: Option<i64>,
}

/// What was considered last, and which method of the actuator was called for it, if any.
#[derive(Clone, Debug)]
pub(crate) struct Considered {
    pub(crate) request: Request,
    pub(crate) action: Option<Action>,
}

impl Request {
    pub(crate) fn of(object: &ExtensionObject, cluster: &Cluster) -> Self {
        let is_operation = |operation: &&String| matches!(operation.as_str(), "reconcile" | "migrate" | "restore");
        Self {
            uid: object.uid.clone(),
            generation: object.generation,
            operation: object.operation.as_ref().filter(is_operation).cloned(),
            waits: object.operation.as_deref() == Some(WAIT_FOR_STATE),
            timestamp: object.timestamp.clone(),
            deleting: object.deleting,
            shoot_generation: cluster.shoot().and_then(|shoot| shoot.metadata().generation),
        }
    }

    /// Notes that the operation annotation was removed.
    pub(crate) fn forget_operation(&mut self) {
        self.operation = None;
    }
}

/// How a controller is triggered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mode {
    /// Whether every new generation of an object or of its Shoot asks for work, and not only an operation annotation.
    pub(crate) generations: bool,
}

impl Mode {
    /// Returns whether an object asks for work that was not considered yet. `next` is the method that would be called now,
    /// `retrying` whether the object waits for a retry, which any change makes prompt.
    pub(crate) fn asks(
        self,
        before: Option<&Considered>,
        object: &ExtensionObject,
        request: &Request,
        next: Option<Action>,
        retrying: bool,
    ) -> bool {
        let Some(before) = before.filter(|before| before.request.uid == request.uid) else {
            return self.generations || request.operation.is_some() || object.deleting || !object.is_settled();
        };
        let (was, now) = (&before.request, request);
        let asked_again = now.timestamp != was.timestamp;
        let operation = now.operation.is_some() && (now.operation != was.operation || asked_again);
        let deletion = now.deleting && (!was.deleting || asked_again);
        // As after a restart, when it would be seen for the first time.
        let released = was.waits && !now.waits && (object.deleting || !object.is_settled());
        let force = next == Some(Action::ForceDelete) && before.action != Some(Action::ForceDelete);
        let generation = (self.generations || retrying) && now.generation != was.generation;
        let shoot = self.generations && now.shoot_generation != was.shoot_generation;
        operation || deletion || released || force || generation || shoot
    }
}

/// Returns the name of the Cluster that an object belongs to, as Gardener does; none for objects of the garden, of a seed, or
/// of a cluster-scoped kind.
pub(crate) fn cluster_name(object: &ExtensionObject) -> Option<&str> {
    let Key { namespace, .. } = &object.key;
    namespace.as_deref().filter(|namespace| object.class == DEFAULT_CLASS && *namespace != "garden")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::object::{OPERATION, tests::object};

    fn shoot(generation: i64) -> Cluster {
        let shoot = json!({"metadata": {"generation": generation}});
        serde_json::from_value(json!({"metadata": {"name": "shoot--a"}, "spec": {"shoot": shoot}})).unwrap()
    }

    fn annotated(operation: &str, timestamp: &str) -> Value {
        json!({"metadata": {"annotations": {OPERATION: operation, "gardener.cloud/timestamp": timestamp}}})
    }

    fn settled() -> Value {
        json!({"status": {"lastOperation": {"type": "Reconcile", "state": "Succeeded"}}})
    }

    fn deleting(timestamp: &str) -> Value {
        let annotations = json!({"gardener.cloud/timestamp": timestamp});
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "annotations": annotations}})
    }

    #[test]
    fn an_object_that_is_seen_for_the_first_time() {
        for (row, changes, annotations, generations) in [
            ("new", json!({}), true, true),
            ("settled", settled(), false, true),
            ("failed", json!({"status": {"lastOperation": {"type": "Create", "state": "Error"}}}), true, true),
            ("settled, of another uid than before", settled(), false, true),
        ] {
            let object = object(&changes);
            let request = Request::of(&object, &shoot(1));
            let other = Considered { request: Request { uid: "other".into(), ..request.clone() }, action: None };
            for (mode, expected) in [(false, annotations), (true, generations)] {
                let asks = |before| Mode { generations: mode }.asks(before, &object, &request, None, false);
                assert_eq!((asks(None), asks(Some(&other))), (expected, expected), "{row}, {mode}");
            }
        }
        for changes in [annotated("reconcile", "1"), annotated("restore", "1"), deleting("1")] {
            let mut changes = changes;
            changes["status"] = settled()["status"].clone();
            let object = object(&changes);
            let request = Request::of(&object, &shoot(1));
            assert!(Mode { generations: false }.asks(None, &object, &request, None, false), "{changes}");
        }
    }

    #[test]
    fn a_change() {
        let generation = |generation: i64| json!({"metadata": {"generation": generation}});
        // Before, after, and whether it asks: by annotations, while it waits for a retry, by generations.
        for (row, before, after, expected) in [
            ("nothing", json!({}), json!({}), [false, false, false]),
            ("the status", json!({}), settled(), [false, false, false]),
            ("a label", json!({}), json!({"metadata": {"labels": {"a": "b"}}}), [false, false, false]),
            ("the generation", generation(1), generation(2), [false, true, true]),
            ("reconcile", json!({}), annotated("reconcile", "1"), [true; 3]),
            ("migrate", json!({}), annotated("migrate", "1"), [true; 3]),
            ("migrate, seen before", annotated("migrate", "1"), annotated("migrate", "1"), [false; 3]),
            ("migrate, asked again", annotated("migrate", "1"), annotated("migrate", "2"), [true; 3]),
            ("restore after migrate", annotated("migrate", "1"), annotated("restore", "1"), [true; 3]),
            ("wait-for-state", json!({}), annotated("wait-for-state", "1"), [false; 3]),
            ("the annotation is gone", annotated("migrate", "1"), json!({}), [false; 3]),
            ("wait-for-state is gone", annotated("wait-for-state", "1"), json!({}), [true; 3]),
            ("wait-for-state is gone, deleted", annotated("wait-for-state", "1"), deleting("1"), [true; 3]),
            ("wait-for-state is gone, settled", annotated("wait-for-state", "1"), settled(), [false; 3]),
            ("deletion", json!({}), deleting("1"), [true; 3]),
            ("deletion, seen before", deleting("1"), deleting("1"), [false; 3]),
            ("deletion, asked again", deleting("1"), deleting("2"), [true; 3]),
        ] {
            let (before, after) = (object(&before), object(&after));
            let considered = Considered { request: Request::of(&before, &shoot(1)), action: None };
            let request = Request::of(&after, &shoot(1));
            let asks =
                |generations, retrying| Mode { generations }.asks(Some(&considered), &after, &request, None, retrying);
            assert_eq!([asks(false, false), asks(false, true), asks(true, false)], expected, "{row}");
        }
    }

    #[test]
    fn a_change_of_the_shoot() {
        let object = object(&deleting("1"));
        let was = |action| Considered { request: Request::of(&object, &shoot(1)), action };
        let request = Request::of(&object, &shoot(2));
        let asks = |before: &Considered, generations, next| {
            Mode { generations }.asks(Some(before), &object, &request, Some(next), false)
        };
        assert!(!asks(&was(Some(Action::Delete)), false, Action::Delete));
        assert!(asks(&was(Some(Action::Delete)), true, Action::Delete), "a new generation of the Shoot");
        assert!(asks(&was(Some(Action::Delete)), false, Action::ForceDelete), "the force-deletion annotation");
        assert!(asks(&was(None), false, Action::ForceDelete));
        assert!(!asks(&was(Some(Action::ForceDelete)), false, Action::ForceDelete), "which was considered");
    }

    #[test]
    fn objects_of_the_garden_and_of_seeds_belong_to_no_cluster() {
        for (changes, expected) in [
            (json!({}), Some("shoot--a")),
            (json!({"spec": {"class": "seed"}}), None),
            (json!({"spec": {"class": "garden"}}), None),
            (json!({"metadata": {"namespace": "garden"}}), None),
            (json!({"metadata": {"namespace": null}}), None),
        ] {
            assert_eq!(cluster_name(&object(&changes)), expected, "{changes}");
        }
    }
}
