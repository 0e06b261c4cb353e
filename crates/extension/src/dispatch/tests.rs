use serde_json::{Value, json};

use super::*;
use crate::object::{OPERATION, tests::object};

const DELETED: &str = "2026-01-01T00:00:00Z";

/// The Cluster of a Shoot in this state, with or without the force-deletion annotation.
fn cluster(state: &str, force: bool) -> Cluster {
    let annotations = if force { json!({"confirmation.gardener.cloud/force-deletion": "true"}) } else { json!({}) };
    let shoot = json!({"metadata": {"annotations": annotations}, "status": {"lastOperation": {"state": state}}});
    serde_json::from_value(json!({"metadata": {"name": "shoot--a"}, "spec": {"shoot": shoot}})).unwrap()
}

fn annotated(operation: &str) -> Value {
    json!({"metadata": {"annotations": {OPERATION: operation}}})
}

fn deleting() -> Value {
    json!({"metadata": {"deletionTimestamp": DELETED}})
}

fn last(operation: &str, state: &str) -> Value {
    json!({"status": {"lastOperation": {"type": operation, "state": state}}})
}

fn without_finalizer() -> Value {
    json!({"metadata": {"finalizers": ["other/y"]}})
}

/// Joins changes of an object.
fn all(changes: &[Value]) -> Value {
    let mut joined = json!({});
    for change in changes {
        for (part, fields) in change.as_object().unwrap() {
            for (field, value) in fields.as_object().unwrap() {
                joined[part][field] = value.clone();
            }
        }
    }
    joined
}

fn run(action: Action, operation: OperationType) -> Step {
    Step::Run(Run { action, operation, add_finalizer: false })
}

fn adding(action: Action, operation: OperationType) -> Step {
    Step::Run(Run { action, operation, add_finalizer: true })
}

#[track_caller]
fn check(row: &str, changes: &[Value], cluster: &Cluster, strip: bool, step: Step) {
    assert_eq!(decide(&object(&all(changes)), cluster, DNS_RECORD, "own/x"), Decision { strip, step }, "{row}");
}

use Action as A;
use OperationType as O;

#[test]
fn a_failed_shoot_is_skipped() {
    let (failed, skip) = (cluster("Failed", false), Step::Skip(Skip::ShootFailed));
    for (row, changes) in [
        ("new", vec![]),
        ("deleted", vec![deleting()]),
        ("reconcile, whose annotation remains", vec![annotated("reconcile")]),
        ("migrate", vec![annotated("migrate")]),
        ("restore", vec![annotated("restore")]),
    ] {
        check(row, &changes, &failed, false, skip);
    }
    check("deleted by force", &[deleting()], &cluster("Failed", true), false, skip);
    for state in ["Error", "Processing", "Pending", "Aborted", "Succeeded"] {
        check(state, &[], &cluster(state, false), false, run(A::Reconcile, O::Create));
    }
    check("no Shoot", &[], &Cluster::default(), false, run(A::Reconcile, O::Create));
}

#[test]
fn the_operation_type_has_an_order() {
    let normal = cluster("Processing", false);
    for (row, changes, operation) in [
        ("the annotation migrate", vec![annotated("migrate")], O::Migrate),
        ("migrate beats delete", vec![annotated("migrate"), deleting()], O::Migrate),
        ("migrate beats an unfinished restore", vec![annotated("migrate"), last("Restore", "Error")], O::Migrate),
        ("delete", vec![deleting()], O::Delete),
        ("delete beats an unfinished create", vec![deleting(), last("Create", "Error")], O::Delete),
        ("delete beats an unfinished migrate", vec![deleting(), last("Migrate", "Error")], O::Delete),
        ("the annotation restore", vec![annotated("restore"), last("Migrate", "Succeeded")], O::Restore),
        ("restore beats an unfinished create", vec![annotated("restore"), last("Create", "Processing")], O::Restore),
        ("no last operation", vec![], O::Create),
        ("a create in progress", vec![last("Create", "Processing")], O::Create),
        ("a create that failed", vec![last("Create", "Error")], O::Create),
        ("a migrate that failed", vec![last("Migrate", "Error")], O::Migrate),
        ("a restore that failed", vec![last("Restore", "Error")], O::Restore),
        ("a create that succeeded", vec![last("Create", "Succeeded")], O::Reconcile),
        ("a restore that succeeded", vec![last("Restore", "Succeeded")], O::Reconcile),
        ("a reconcile that failed", vec![last("Reconcile", "Error")], O::Reconcile),
        ("a reconcile that succeeded", vec![last("Reconcile", "Succeeded")], O::Reconcile),
        ("a delete that failed, of an object that lives", vec![last("Delete", "Error")], O::Reconcile),
        ("an unknown operation", vec![last("Else", "Error")], O::Reconcile),
    ] {
        let action = match operation {
            O::Create | O::Reconcile => A::Reconcile,
            O::Delete => A::Delete,
            O::Migrate => A::Migrate,
            O::Restore => A::Restore,
        };
        check(row, &changes, &normal, false, run(action, operation));
    }
    let both = [annotated("restore"), deleting()];
    check("delete beats restore", &both, &normal, false, run(A::Delete, O::Delete));
    let both = [annotated("reconcile"), deleting()];
    check("delete beats reconcile", &both, &normal, true, run(A::Delete, O::Delete));
}

#[test]
fn a_migrated_object_is_skipped_unless_it_is_migrated_again_or_restored() {
    let (normal, skip) = (cluster("Processing", false), Step::Skip(Skip::Migrated));
    let migrated = last("Migrate", "Succeeded");
    check("nothing else", std::slice::from_ref(&migrated), &normal, false, skip);
    check("deleted", &[migrated.clone(), deleting()], &normal, false, skip);
    check("deleted by force", &[migrated.clone(), deleting()], &cluster("Error", true), false, skip);
    check("reconcile", &[migrated.clone(), annotated("reconcile")], &normal, true, skip);
    check("migrate", &[migrated.clone(), annotated("migrate")], &normal, false, run(A::Migrate, O::Migrate));
    check("restore", &[migrated, annotated("restore")], &normal, false, run(A::Restore, O::Restore));
}

#[test]
fn an_object_is_force_deleted_if_its_shoot_is() {
    let (normal, force) = (cluster("Error", false), cluster("Error", true));
    check("without the annotation", &[deleting()], &normal, false, run(A::Delete, O::Delete));
    check("with the annotation", &[deleting()], &force, false, run(A::ForceDelete, O::Delete));
    check("of an object without a Cluster", &[deleting()], &Cluster::default(), false, run(A::Delete, O::Delete));
    let failed = [deleting(), last("Delete", "Error")];
    check("after a failure: the finalizer is still there", &failed, &force, false, run(A::ForceDelete, O::Delete));
    check("an object that is not deleted", &[], &force, false, run(A::Reconcile, O::Create));
    let migrating = [annotated("migrate"), deleting()];
    check("migrate beats it", &migrating, &force, false, run(A::Migrate, O::Migrate));
    let restoring = [annotated("restore"), deleting()];
    check("it beats restore", &restoring, &force, false, run(A::ForceDelete, O::Delete));
}

#[test]
fn an_object_without_our_finalizer() {
    let (normal, force) = (cluster("Error", false), cluster("Error", true));
    let skip = Step::Skip(Skip::NoFinalizer);
    check("deleted", &[without_finalizer(), deleting()], &normal, false, skip);
    check("deleted by force", &[without_finalizer(), deleting()], &force, false, skip);
    let asked = [without_finalizer(), deleting(), annotated("reconcile")];
    // The changes of metadata are joined by field, so that all three apply.
    check("deleted, reconcile", &asked, &normal, true, skip);
    check("new", &[without_finalizer()], &normal, false, adding(A::Reconcile, O::Create));
    let restoring = [without_finalizer(), annotated("restore")];
    check("restore", &restoring, &normal, false, adding(A::Restore, O::Restore));
    let migrating = [without_finalizer(), annotated("migrate")];
    check("migrate needs none", &migrating, &normal, false, run(A::Migrate, O::Migrate));
}

#[test]
fn operation_annotations() {
    let (normal, force) = (cluster("Processing", false), cluster("Error", true));
    let wait = Step::Skip(Skip::WaitForState);
    check("wait-for-state", &[annotated("wait-for-state")], &normal, false, wait);
    check("wait-for-state, deleted", &[annotated("wait-for-state"), deleting()], &force, false, wait);
    let failed = cluster("Failed", false);
    check("wait-for-state, failed Shoot", &[annotated("wait-for-state")], &failed, false, wait);
    check("reconcile is removed first", &[annotated("reconcile")], &normal, true, run(A::Reconcile, O::Create));
    check("migrate remains", &[annotated("migrate")], &normal, false, run(A::Migrate, O::Migrate));
    check("restore remains", &[annotated("restore")], &normal, false, run(A::Restore, O::Restore));
    check("another value is no operation", &[annotated("maintain")], &normal, false, run(A::Reconcile, O::Create));
}

#[test]
fn a_dns_record_that_was_never_created_is_released() {
    let created = |status: &str| json!({"status": {"conditions": [{"type": "Created", "status": status}]}});
    let (normal, force) = (cluster("Error", false), cluster("Error", true));
    for cluster in [&normal, &force] {
        check("never created", &[deleting(), created("False")], cluster, false, Step::Release);
    }
    check("created", &[deleting(), created("True")], &normal, false, run(A::Delete, O::Delete));
    check("unknown", &[deleting(), created("Unknown")], &force, false, run(A::ForceDelete, O::Delete));
    check("not deleted", &[created("False")], &normal, false, run(A::Reconcile, O::Create));
    let migrating = [annotated("migrate"), deleting(), created("False")];
    check("migrate beats it", &migrating, &normal, false, run(A::Migrate, O::Migrate));
    let without = [without_finalizer(), deleting(), created("False")];
    // The changes of metadata are joined by field.
    check("without our finalizer", &without, &normal, false, Step::Skip(Skip::NoFinalizer));
    let other = object(&all(&[deleting(), created("False")]));
    let decision = decide(&other, &normal, "Infrastructure", "own/x");
    assert_eq!(decision.step, run(A::Delete, O::Delete), "the condition means nothing for other kinds");
}
