//! A `ClusterVersion` as it was read, and the patch that publishes a status to it.

use serde_json::{Map, Value, json};

use super::{Condition, Facts, GROUP, KIND, VERSION};

/// The type of the condition that is removed when there is nothing to say.
pub(super) const UPGRADEABLE: &str = "Upgradeable";

/// A `ClusterVersion` as it was read or last written.
#[derive(Clone, Debug, PartialEq)]
pub struct Live {
    name: String,
    version: Value,
    pub(super) generation: Value,
    pub(super) status: Value,
    /// Whether the condition [`UPGRADEABLE`], if there is one, is the field manager's.
    owns_upgradeable: bool,
    /// Whether other field managers have set fields of the status.
    is_shared: bool,
}

impl Live {
    /// Takes what is needed of an object, whose status this field manager publishes.
    pub fn read(object: &Value, manager: &str) -> Self {
        let metadata = &object["metadata"];
        let key = format!("k:{}", json!({"type": UPGRADEABLE}));
        let entries = metadata["managedFields"].as_array().into_iter().flatten();
        let of_status = entries.filter(|entry| entry["fieldsV1"].get("f:status").is_some());
        let is_ours = |entry: &&Value| {
            entry["manager"] == manager && entry["operation"] == "Apply" && entry["subresource"] == "status"
        };
        let (ours, others): (Vec<&Value>, Vec<&Value>) = of_status.partition(is_ours);
        Self {
            name: metadata["name"].as_str().unwrap_or_default().to_owned(),
            version: metadata["resourceVersion"].clone(),
            generation: metadata["generation"].clone(),
            status: object["status"].clone(),
            owns_upgradeable: ours.iter().any(|of| {
                let conditions = &of["fieldsV1"]["f:status"]["f:conditions"];
                // A schema that does not make the list a map makes it one value, which has one owner.
                conditions.get(&key).is_some() || *conditions == json!({})
            }),
            is_shared: !others.is_empty(),
        }
    }

    /// Returns whether other field managers have set fields of the status, so that publishing it may be a conflict.
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Returns the object to apply to the subresource `status`, or nothing if that would change nothing. `now` is the time in
    /// RFC 3339 of the conditions whose status changes.
    pub fn patch(&self, facts: &Facts<'_>, now: &str) -> Option<Value> {
        let status = self.wanted(facts, now);
        self.differs(&status).then(|| {
            // What another process has published since is not overwritten.
            let metadata = json!({"name": self.name, "resourceVersion": self.version});
            json!({"apiVersion": format!("{GROUP}/{VERSION}"), "kind": KIND, "metadata": metadata, "status": status})
        })
    }

    /// Takes over that a patch was applied, which made this version of the object.
    pub fn patched(&mut self, patch: &Value, version: String) {
        let published = &patch["status"];
        let is_published = |kind: &Value| elements(&published["conditions"]).iter().any(|of| of["type"] == *kind);
        let is_kept = |of: &&Value| {
            let is_removed = self.owns_upgradeable && of["type"] == UPGRADEABLE;
            !is_published(&of["type"]) && !is_removed
        };
        let others = elements(&self.status["conditions"]).iter().filter(is_kept);
        let conditions: Vec<Value> = elements(&published["conditions"]).iter().chain(others).cloned().collect();
        let mut fields: Map<String, Value> = self.status.as_object().cloned().unwrap_or_default();
        fields.extend(published.as_object().cloned().unwrap_or_default());
        fields.insert("conditions".to_owned(), conditions.into());
        self.owns_upgradeable = is_published(&UPGRADEABLE.into());
        (self.status, self.version) = (fields.into(), version.into());
    }

    fn wanted(&self, facts: &Facts<'_>, now: &str) -> Value {
        let is_kept = self.owns_upgradeable && facts.deleting.is_none();
        let kept = self.condition(UPGRADEABLE).filter(|_| is_kept).cloned();
        let conditions = facts.conditions().into_iter().map(|of| self.dated(&of, now)).chain(kept);
        let mut status = json!({
            "conditions": conditions.collect::<Vec<_>>(),
            "desired": {"version": facts.version, "image": ""},
            "history": facts.entries(),
            "observedGeneration": self.generation,
            "versionHash": facts.fingerprint,
        });
        // The field is required, and nothing is known about updates.
        if self.status["availableUpdates"].is_null() {
            status["availableUpdates"] = Value::Null;
        }
        status
    }

    /// Returns a condition with the time when its status changed.
    fn dated(&self, condition: &Condition, now: &str) -> Value {
        let mut dated = json!(condition);
        let before = self.condition(condition.kind).filter(|before| before["status"] == condition.status);
        let since = before.map(|before| before["lastTransitionTime"].clone()).filter(Value::is_string);
        dated["lastTransitionTime"] = since.unwrap_or_else(|| now.into());
        dated
    }

    fn condition(&self, kind: &str) -> Option<&Value> {
        elements(&self.status["conditions"]).iter().find(|of| of["type"] == kind)
    }

    fn differs(&self, wanted: &Value) -> bool {
        let conditions = elements(&wanted["conditions"]);
        let changed = |of: &Value| self.condition(of["type"].as_str().unwrap_or_default()) != Some(of);
        let is_published = self.owns_upgradeable && self.condition(UPGRADEABLE).is_some();
        let removes = is_published && conditions.iter().all(|of| of["type"] != UPGRADEABLE);
        removes || conditions.iter().any(changed) || !is_within(wanted, &self.status, "conditions")
    }
}

/// Returns whether all fields but one, and their fields, have the same values in another object. Other managers may have set more.
fn is_within(wanted: &Value, found: &Value, except: &str) -> bool {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => wanted
            .iter()
            .filter(|(name, _)| *name != except)
            .all(|(name, value)| found.get(name).is_some_and(|found| is_within(value, found, ""))),
        _ => wanted == found,
    }
}

fn elements(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}
