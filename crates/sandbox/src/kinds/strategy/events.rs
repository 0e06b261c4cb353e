//! Events, which core and `events.k8s.io` serve under different names of their fields and store as one resource.

use std::sync::LazyLock;

use serde_json::Value;

use super::{
    Kind,
    fields::{is_unset, text},
};
use crate::{kinds::ResourceId, status::Cause};

const GROUP: &str = "events.k8s.io";
const API_VERSION: &str = "events.k8s.io/v1";

/// The fields of core's Events that have other names in `events.k8s.io`.
const NAMES: [(&str, &str); 7] = [
    ("count", "deprecatedCount"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("involvedObject", "regarding"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
];

static CORE: LazyLock<ResourceId> = LazyLock::new(|| ResourceId::new("", "events"));

impl Kind {
    fn is_new_event(&self) -> bool {
        self.is(GROUP, "events")
    }

    /// Returns the resource under which the objects are stored.
    pub(crate) fn table(&self) -> &ResourceId {
        if self.is_new_event() { &CORE } else { &self.id }
    }

    /// Returns the `apiVersion` in which objects are stored.
    pub(crate) fn stored_api_version(&self) -> String {
        if self.is_new_event() {
            return "v1".to_owned();
        }
        self.api_version(self.versions.get(self.storage).map_or("", |version| &version.name))
    }

    /// Returns whether the versions of the kind differ in more than their names.
    pub(crate) fn converts(&self) -> bool {
        self.crd.as_ref().map_or_else(|| self.is_new_event(), |crd| crd.webhook.is_some())
    }

    /// Converts an object to another version without a webhook.
    pub(crate) fn convert(&self, object: &mut Value, to: &str) {
        if let Some(fields) = object.as_object_mut().filter(|_| self.is_new_event()) {
            for (core, new) in NAMES {
                let (from, to) = if to == API_VERSION { (core, new) } else { (new, core) };
                if let Some(value) = fields.remove(from) {
                    fields.insert(to.to_owned(), value);
                }
            }
        }
        object["apiVersion"] = to.into();
    }

    /// Returns the name of a field of a selector in the stored object.
    pub(crate) fn stored_field(&self, field: &str) -> String {
        let first = field.split('.').next().unwrap_or_default();
        match NAMES.iter().find(|(_, new)| *new == first && self.is_new_event()) {
            Some((core, _)) => field.replacen(first, core, 1),
            None => field.to_owned(),
        }
    }
}

/// Checks a new Event of `events.k8s.io`. Errors name the fields of core, as in Kubernetes.
pub(super) fn validate(event: &Value, wrong: &mut Vec<Cause>) {
    let unset = |field: &str| is_unset(&event[field]);
    for field in ["reportingController", "reportingInstance", "action", "reason"] {
        if unset(field) && !unset("eventTime") {
            wrong.push(Cause::required(field, ""));
        }
    }
    if unset("eventTime") {
        wrong.push(Cause::required("eventTime", ""));
    }
    let kind = text(event, "type");
    if !matches!(kind, "Normal" | "Warning") {
        wrong.push(Cause::invalid("type", &"".into(), &format!("has invalid value: {kind}")));
    }
    for (field, core) in [("deprecatedFirstTimestamp", "firstTimestamp"), ("deprecatedLastTimestamp", "lastTimestamp")]
    {
        if !unset(field) {
            wrong.push(Cause::invalid(core, &"".into(), "needs to be unset"));
        }
    }
    if event["deprecatedCount"].as_i64().unwrap_or_default() != 0 {
        wrong.push(Cause::invalid("count", &"".into(), "needs to be unset"));
    }
    let source = &event["deprecatedSource"];
    if !is_unset(&source["component"]) || !is_unset(&source["host"]) {
        wrong.push(Cause::invalid("source", &"".into(), "needs to be unset"));
    }
}
