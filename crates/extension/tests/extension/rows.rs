//! The rows of the dispatch as data: an object and its Shoot, and what is expected of a controller.

use serde_json::{Value, json};

pub const FINALIZER: &str = "extensions.gardener.cloud/dnsrecord";
pub const OPERATION: &str = "gardener.cloud/operation";
const OTHER: &str = "other.example/y";
const BOTH: &[&str] = &[FINALIZER, OTHER];

/// A row: an object, and what is expected of it.
#[derive(Default)]
pub struct Row {
    pub name: &'static str,
    /// The operation annotation.
    pub operation: Option<&'static str>,
    pub finalizers: &'static [&'static str],
    /// Type and state of the last operation.
    pub last: Option<(&'static str, &'static str)>,
    pub deleted: bool,
    /// The state of the Shoot's last operation.
    pub shoot: Option<&'static str>,
    /// The force-deletion annotation.
    pub force: Option<&'static str>,
    pub fails: bool,
    pub calls: &'static [&'static str],
    /// Type, state and progress of the last operation at the end; none if the object is gone.
    pub ends: Option<&'static str>,
    pub keeps: &'static [&'static str],
    pub annotation: Option<&'static str>,
}

impl Row {
    /// Returns the metadata of the object besides its name.
    pub fn metadata(&self) -> Value {
        let mut metadata = json!({"finalizers": self.finalizers});
        if let Some(operation) = self.operation {
            metadata["annotations"] = json!({OPERATION: operation});
        }
        metadata
    }

    /// Returns the status of the object; null if it has none.
    pub fn status(&self) -> Value {
        let last = self.last.map(|(operation, state)| json!({"lastOperation": {"type": operation, "state": state}}));
        last.unwrap_or_default()
    }

    /// Returns the Shoot in the Cluster.
    pub fn shoot(&self) -> Value {
        let mut shoot = json!({"metadata": {}});
        if let Some(value) = self.force {
            shoot["metadata"]["annotations"] = json!({"confirmation.gardener.cloud/force-deletion": value});
        }
        if let Some(state) = self.shoot {
            shoot["status"] = json!({"lastOperation": {"state": state}});
        }
        shoot
    }

    /// Returns what [`seen`] must return at the end.
    pub fn expected(&self) -> Value {
        let codes = if self.fails { json!(["ERR_INFRA_UNAUTHORIZED"]) } else { Value::Null };
        let left = self.ends.map(|last| {
            json!({
                "last": last, "finalizers": self.keeps, "annotation": self.annotation, "codes": codes,
                "observed": !self.calls.is_empty(),
            })
        });
        json!({"calls": self.calls, "left": left})
    }
}

/// Returns what has happened: the calls of the actuator, and what is left of the object.
pub fn seen(calls: &[String], object: Option<&Value>) -> Value {
    let left = object.map(|object| {
        let (metadata, status) = (&object["metadata"], &object["status"]);
        let observed = &status["observedGeneration"];
        json!({
            "last": last_operation(object),
            "finalizers": metadata["finalizers"].as_array().cloned().unwrap_or_default(),
            "annotation": metadata["annotations"][OPERATION],
            "codes": status["lastError"]["codes"],
            "observed": !observed.is_null() && *observed == metadata["generation"],
        })
    });
    json!({"calls": calls, "left": left})
}

/// Returns type, state and progress of the last operation.
pub fn last_operation(object: &Value) -> String {
    let last = &object["status"]["lastOperation"];
    match last["type"].as_str() {
        Some(operation) => format!("{operation} {} {}", last["state"].as_str().unwrap_or("?"), last["progress"]),
        None => String::new(),
    }
}

/// Returns the rows of the dispatch.
pub fn rows() -> Vec<Row> {
    let row = Row::default;
    vec![
        Row { name: "new", calls: &["reconcile a"], ends: Some("Create Succeeded 100"), keeps: &[FINALIZER], ..row() },
        Row {
            name: "new, with the finalizer of another",
            finalizers: &[OTHER],
            calls: &["reconcile a"],
            ends: Some("Create Succeeded 100"),
            keeps: &[OTHER, FINALIZER],
            ..row()
        },
        Row {
            name: "new, fails",
            fails: true,
            calls: &["reconcile a"],
            ends: Some("Create Error 50"),
            keeps: &[FINALIZER],
            ..row()
        },
        Row {
            name: "a create that failed is continued",
            last: Some(("Create", "Error")),
            calls: &["reconcile a"],
            ends: Some("Create Succeeded 100"),
            keeps: &[FINALIZER],
            ..row()
        },
        Row {
            name: "a reconcile that was interrupted",
            last: Some(("Reconcile", "Processing")),
            calls: &["reconcile a"],
            ends: Some("Reconcile Succeeded 100"),
            keeps: &[FINALIZER],
            ..row()
        },
        Row {
            name: "settled",
            last: Some(("Reconcile", "Succeeded")),
            ends: Some("Reconcile Succeeded null"),
            ..row()
        },
        Row {
            name: "the annotation reconcile is removed",
            operation: Some("reconcile"),
            last: Some(("Create", "Succeeded")),
            calls: &["reconcile a"],
            ends: Some("Reconcile Succeeded 100"),
            keeps: &[FINALIZER],
            ..row()
        },
        Row {
            name: "the annotation reconcile is removed before a failure",
            operation: Some("reconcile"),
            last: Some(("Create", "Succeeded")),
            fails: true,
            calls: &["reconcile a"],
            ends: Some("Reconcile Error 50"),
            keeps: &[FINALIZER],
            ..row()
        },
        Row {
            name: "wait-for-state",
            operation: Some("wait-for-state"),
            ends: Some(""),
            annotation: Some("wait-for-state"),
            ..row()
        },
        Row {
            name: "wait-for-state beats delete",
            operation: Some("wait-for-state"),
            finalizers: BOTH,
            deleted: true,
            ends: Some(""),
            keeps: BOTH,
            annotation: Some("wait-for-state"),
            ..row()
        },
        Row { name: "a failed Shoot", shoot: Some("Failed"), ends: Some(""), ..row() },
        Row {
            name: "a failed Shoot, deleted by force",
            shoot: Some("Failed"),
            force: Some("true"),
            finalizers: BOTH,
            deleted: true,
            ends: Some(""),
            keeps: BOTH,
            ..row()
        },
        Row { name: "deleted", finalizers: &[FINALIZER], deleted: true, calls: &["delete a"], ..row() },
        Row {
            name: "deleted, with the finalizer of another",
            finalizers: BOTH,
            deleted: true,
            calls: &["delete a"],
            ends: Some("Delete Succeeded 100"),
            keeps: &[OTHER],
            ..row()
        },
        Row {
            name: "deleted, fails",
            finalizers: BOTH,
            deleted: true,
            fails: true,
            calls: &["delete a"],
            ends: Some("Delete Error 50"),
            keeps: BOTH,
            ..row()
        },
        Row {
            name: "deleted, without our finalizer",
            finalizers: &[OTHER],
            deleted: true,
            ends: Some(""),
            keeps: &[OTHER],
            ..row()
        },
        Row {
            name: "deleted by force",
            finalizers: BOTH,
            deleted: true,
            force: Some("T"),
            calls: &["force_delete a"],
            ends: Some("Delete Succeeded 100"),
            keeps: &[OTHER],
            ..row()
        },
        Row {
            name: "deleted by force, fails: the finalizer remains",
            finalizers: BOTH,
            deleted: true,
            force: Some("1"),
            fails: true,
            calls: &["force_delete a"],
            ends: Some("Delete Error 50"),
            keeps: BOTH,
            ..row()
        },
        Row {
            name: "deleted by force, without our finalizer",
            finalizers: &[OTHER],
            deleted: true,
            force: Some("true"),
            ends: Some(""),
            keeps: &[OTHER],
            ..row()
        },
        Row {
            name: "an annotation that Go does not parse is no force",
            finalizers: BOTH,
            deleted: true,
            force: Some("yes"),
            calls: &["delete a"],
            ends: Some("Delete Succeeded 100"),
            keeps: &[OTHER],
            ..row()
        },
        Row {
            name: "force, of an object that is not deleted",
            force: Some("true"),
            calls: &["reconcile a"],
            ends: Some("Create Succeeded 100"),
            keeps: &[FINALIZER],
            ..row()
        },
        Row {
            name: "migrate",
            operation: Some("migrate"),
            finalizers: BOTH,
            last: Some(("Reconcile", "Succeeded")),
            calls: &["migrate a"],
            ends: Some("Migrate Succeeded 100"),
            keeps: &[OTHER],
            ..row()
        },
        Row {
            name: "migrate beats delete",
            operation: Some("migrate"),
            finalizers: BOTH,
            deleted: true,
            force: Some("true"),
            calls: &["migrate a"],
            ends: Some("Migrate Succeeded 100"),
            keeps: &[OTHER],
            ..row()
        },
        Row {
            name: "migrate, fails: annotation and finalizer remain",
            operation: Some("migrate"),
            finalizers: &[FINALIZER],
            fails: true,
            calls: &["migrate a"],
            ends: Some("Migrate Error 50"),
            keeps: &[FINALIZER],
            annotation: Some("migrate"),
            ..row()
        },
        Row { name: "migrated", last: Some(("Migrate", "Succeeded")), ends: Some("Migrate Succeeded null"), ..row() },
        Row {
            name: "migrated, deleted",
            finalizers: BOTH,
            last: Some(("Migrate", "Succeeded")),
            deleted: true,
            ends: Some("Migrate Succeeded null"),
            keeps: BOTH,
            ..row()
        },
        Row {
            name: "migrated, reconcile: only the annotation is removed",
            operation: Some("reconcile"),
            last: Some(("Migrate", "Succeeded")),
            ends: Some("Migrate Succeeded null"),
            ..row()
        },
        Row {
            name: "restore",
            operation: Some("restore"),
            last: Some(("Migrate", "Succeeded")),
            calls: &["restore a"],
            ends: Some("Restore Succeeded 100"),
            keeps: &[FINALIZER],
            ..row()
        },
        Row {
            name: "restore, fails: the annotation remains",
            operation: Some("restore"),
            fails: true,
            calls: &["restore a"],
            ends: Some("Restore Error 50"),
            keeps: &[FINALIZER],
            annotation: Some("restore"),
            ..row()
        },
        Row {
            name: "a restore that was interrupted",
            last: Some(("Restore", "Processing")),
            calls: &["restore a"],
            ends: Some("Restore Succeeded 100"),
            keeps: &[FINALIZER],
            ..row()
        },
        Row {
            name: "delete beats restore",
            operation: Some("restore"),
            finalizers: BOTH,
            deleted: true,
            calls: &["delete a"],
            ends: Some("Delete Succeeded 100"),
            keeps: &[OTHER],
            annotation: Some("restore"),
            ..row()
        },
    ]
}
