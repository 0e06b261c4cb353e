//! Kubernetes Events, for what must remain readable when the object is gone.

use std::time::Duration;

use billhook_cluster::Cluster as Seed;
use billhook_objects::GroupKind;
use billhook_plan::Resource;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::{sync::Mutex, time::timeout};

use crate::{
    object::{ExtensionObject, Key},
    status::{clip, time},
};

/// The longest message of an Event, in bytes.
const MESSAGE: usize = 1024;
/// How much of the object's name is in the name of the Event, in bytes, so that the UID fits into it, too.
const NAME: usize = 200;
/// How long an Event may take. It must not keep the work waiting.
const LIMIT: Duration = Duration::from_secs(5);

/// An object that is worked on, as far as an Event refers to it.
#[derive(Debug)]
pub(crate) struct Subject {
    kind: Resource,
    key: Key,
    uid: String,
    /// What was reported last.
    reported: Mutex<Option<String>>,
}

impl Subject {
    pub(crate) fn new(kind: &Resource, object: &ExtensionObject) -> Self {
        Self { kind: kind.clone(), key: object.key.clone(), uid: object.uid.clone(), reported: Mutex::default() }
    }

    /// Logs what the object leaves behind, and writes an Event, one for each object. A failure of that is logged only. Does
    /// nothing if it was just reported. This needs the right to create `events`.
    pub(crate) async fn report_orphaned(&self, seed: &Seed, message: &str) {
        let mut reported = self.reported.lock().await;
        if reported.as_deref() == Some(message) {
            return;
        }
        tracing::warn!(kind = %self.kind.kind, object = %self.key, "{message}");
        // Events about cluster-scoped objects are in the namespace default.
        let namespace = self.key.namespace.as_deref().unwrap_or("default");
        let event = self.event(namespace, message, Timestamp::now()).to_string();
        match timeout(LIMIT, seed.create(&events(), Some(namespace), &event)).await {
            Ok(Ok(_)) => {}
            // An earlier attempt has written it.
            Ok(Err(error)) if error.code() == Some(409) => {}
            Ok(Err(error)) => tracing::warn!(object = %self.key, %error, "failed to write an Event"),
            Err(_) => tracing::warn!(object = %self.key, "failed to write an Event within {LIMIT:?}"),
        }
        *reported = Some(message.to_owned());
    }

    fn event(&self, namespace: &str, message: &str, now: Timestamp) -> Value {
        let Self { kind, key, uid, .. } = self;
        json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": { "name": format!("{}.{uid}", clip(&key.name, NAME)), "namespace": namespace },
            "involvedObject": {
                "apiVersion": kind.api_version().to_string(),
                "kind": kind.kind.kind,
                "name": key.name,
                "namespace": key.namespace,
                "uid": uid,
            },
            "type": "Warning",
            "reason": "Orphaned",
            "message": clip(message, MESSAGE),
            "source": { "component": "billhook-extension" },
            "firstTimestamp": time(now),
            "lastTimestamp": time(now),
            "count": 1,
        })
    }
}

fn events() -> Resource {
    Resource { kind: GroupKind::new("", "Event"), version: "v1".into(), plural: "events".into(), namespaced: true }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::tests::object;

    #[test]
    fn long_texts_are_clipped() {
        let kind = Resource { kind: GroupKind::new("g", "K"), ..events() };
        let long = object(&json!({"metadata": {"name": "n".repeat(253), "uid": "u".repeat(36)}}));
        let event = Subject::new(&kind, &long).event("shoot--a", &"ä".repeat(600), Timestamp::UNIX_EPOCH);
        assert_eq!(event["metadata"]["name"].as_str().unwrap().len(), NAME + 1 + 36);
        assert_eq!(event["involvedObject"]["name"].as_str().unwrap().len(), 253);
        assert_eq!(event["message"].as_str().unwrap().len(), MESSAGE);
    }
}
