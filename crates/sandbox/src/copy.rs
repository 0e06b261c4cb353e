//! Copies of other clusters: objects that are stored as they are there, as if the server had been started on their etcd.

use serde_json::Value;

use crate::{
    controllers,
    kinds::ResourceId,
    object::{meta, metadata_mut, text},
    sandbox::Sandbox,
    state::State,
};

const CRD: (&str, &str) = ("apiextensions.k8s.io", "customresourcedefinitions");

impl Sandbox {
    /// Stores the objects of another cluster as they are there: with their UIDs, times, owners, finalizers and status, also if they
    /// are being deleted. Nothing is defaulted or validated, and no webhook is asked. An object replaces one with its name.
    ///
    /// The kinds of CustomResourceDefinitions that are Established there are served at once. Returns the positions of the objects
    /// that cannot be stored, because their kind is not served here.
    pub fn copy(&self, objects: &[Value]) -> Vec<usize> {
        let mut state = self.shared.lock();
        let is_definition =
            |object: &Value| (group_of(object), text(object, "kind")) == (CRD.0, "CustomResourceDefinition");
        let (first, others): (Vec<usize>, Vec<usize>) = (0..objects.len()).partition(|at| is_definition(&objects[*at]));
        let mut left = Vec::new();
        for at in first.into_iter().chain(others) {
            if !store(&mut state, &objects[at]) {
                left.push(at);
            }
        }
        drop(state);
        self.shared.wake();
        left.sort_unstable();
        left
    }
}

/// Stores an object, unless its kind is not served.
fn store(state: &mut State, object: &Value) -> bool {
    let Some(kind) = state.kinds.by_kind(group_of(object), text(object, "kind")).cloned() else { return false };
    if kind.review || meta(object, "uid").is_empty() || kind.namespaced == meta(object, "namespace").is_empty() {
        return false;
    }
    let mut object = object.clone();
    object["apiVersion"] = kind.stored_api_version().into();
    metadata_mut(&mut object).remove("resourceVersion");
    let (resource, name) = (kind.table().clone(), meta(&object, "name").to_owned());
    state.put(&resource, object);
    if resource == ResourceId::new(CRD.0, CRD.1) {
        controllers::serve_definition(state, &name);
    }
    true
}

fn group_of(object: &Value) -> &str {
    text(object, "apiVersion").split_once('/').map_or("", |(group, _)| group)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::{Options, User};

    fn definition() -> Value {
        let names = json!({"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"});
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.a.example", "uid": "crd", "generation": 1},
            "spec": {"group": "a.example", "scope": "Namespaced", "names": names, "versions": [{"name": "v1", "served": true,
                "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
            "status": {"acceptedNames": names, "storedVersions": ["v1"],
                "conditions": [{"type": "NamesAccepted", "status": "True"}, {"type": "Established", "status": "True"}]},
        })
    }

    #[tokio::test(start_paused = true)]
    async fn objects_are_stored_as_they_are() {
        let sandbox = Sandbox::start(Options::default());
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "spec": {"finalizers": ["kubernetes"]},
            "metadata": {"name": "n", "uid": "n", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
        let widget = json!({"apiVersion": "a.example/v1", "kind": "Widget", "spec": {"size": 3},
            "metadata": {"name": "w", "namespace": "n", "uid": "w", "finalizers": ["a.example/x"], "resourceVersion": "9"}});
        let other = json!({"apiVersion": "b.example/v1", "kind": "Other", "metadata": {"name": "o", "namespace": "n", "uid": "o"}});
        let broken = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"}});
        assert_eq!(sandbox.copy(&[widget, other, namespace, broken, definition()]), [1, 3]);
        let widget = || sandbox.object("a.example", "widgets", "n", "w").expect("the widget");
        assert_eq!((&widget()["metadata"]["uid"], &widget()["spec"]["size"]), (&json!("w"), &json!(3)));
        assert_ne!(widget()["metadata"]["resourceVersion"], "9");
        // What was being deleted there is continued here.
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(widget()["metadata"]["deletionTimestamp"].is_string());
        let _client = sandbox.client(User::admin(), "");
    }
}
