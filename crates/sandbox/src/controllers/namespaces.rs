//! The namespace controller, which empties namespaces that are being deleted and reports what remains.
//!
//! Like the real one, it does not watch the content but checks it again after a while.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::Value;

use super::objects::{Next, Step, edit_status, id, load, objects, writer};
use crate::{
    conditions::{self, Condition},
    conversion, discovery,
    kinds::{Kind, ResourceId},
    object::is_deleting,
    state::State,
    status::ApiError,
    verbs::{DeleteOptions, Propagation, delete, update},
};

const CONTROLLER: &str = "namespace-controller";
const FINALIZER: &str = "kubernetes";
/// The estimated seconds until finalizers are removed.
const FINALIZERS_TAKE: u64 = 15;

/// Empties a namespace and removes its finalizer.
pub(super) fn sync(state: &mut State, name: &str) -> Step {
    let namespace_id = id("", "namespaces", "", name);
    let Some(namespace) = load(state, &namespace_id) else { return Ok(Next::Done) };
    if !is_deleting(&namespace) {
        return Ok(Next::Done);
    }
    edit_status(state, &namespace_id, CONTROLLER, |object| object["status"]["phase"] = "Terminating".into())?;
    if namespace["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty) {
        return Ok(Next::Done);
    }
    let mut sweep = Sweep::new(state, name, &namespace);
    sweep.run(state);
    let now = state.clock.text();
    let conditions = sweep.conditions();
    // The conditions are informational, so a failure to write them is ignored.
    let _unwritten = edit_status(state, &namespace_id, CONTROLLER, |object| {
        for (name, (status, reason, message)) in &conditions {
            let condition = Condition { name, status: *status, reason, message };
            conditions::set(&mut object["status"], &condition, &now);
        }
    });
    if sweep.failed() {
        return Ok(Next::Retry);
    }
    if sweep.estimate > 0 {
        return Ok(Next::After(Duration::from_secs(sweep.estimate / 2 + 1)));
    }
    finalize(state, name)
}

/// Removes the controller's finalizer from a namespace.
fn finalize(state: &mut State, name: &str) -> Step {
    let (Some(kind), Some(mut namespace)) =
        (state.kinds.find("", "namespaces"), load(state, &id("", "namespaces", "", name)))
    else {
        return Ok(Next::Done);
    };
    let writer = writer(kind, CONTROLLER).subresource("finalize");
    if let Some(finalizers) = namespace["spec"]["finalizers"].as_array_mut() {
        finalizers.retain(|finalizer| finalizer != FINALIZER);
    }
    update(state, &writer, "", name, namespace)?;
    Ok(Next::Done)
}

/// One pass over the content of a namespace.
struct Sweep<'a> {
    namespace: &'a str,
    /// The seconds since the namespace was marked for deletion.
    since: u64,
    /// The estimated seconds until the content is deleted.
    estimate: u64,
    undiscovered: Option<String>,
    refused: Vec<String>,
    remaining: BTreeMap<ResourceId, usize>,
    finalizers: BTreeMap<String, usize>,
}

impl<'a> Sweep<'a> {
    fn new(state: &State, name: &'a str, namespace: &Value) -> Self {
        let deleted = namespace["metadata"]["deletionTimestamp"].as_str().and_then(|text| text.parse().ok());
        let since = deleted.map_or(0, |deleted: jiff::Timestamp| state.clock.now().duration_since(deleted).as_secs());
        Self {
            namespace: name,
            since: u64::try_from(since).unwrap_or(0),
            estimate: 0,
            undiscovered: undiscovered(&discovery::dead_group_versions(state)),
            refused: Vec::new(),
            remaining: BTreeMap::new(),
            finalizers: BTreeMap::new(),
        }
    }

    fn failed(&self) -> bool {
        self.undiscovered.is_some() || !self.refused.is_empty()
    }

    /// Deletes the content. Until all Pods are deleted, it deletes only Pods.
    fn run(&mut self, state: &mut State) {
        let kinds: Vec<_> = state.kinds.iter().filter(|kind| kind.namespaced && !kind.review).cloned().collect();
        let (pods, others): (Vec<_>, Vec<_>) = kinds.iter().partition(|kind| kind.is("", "pods"));
        for kind in pods {
            self.delete_all(state, kind);
        }
        if !self.remaining.is_empty() {
            // In this case the conditions do not report the Pods.
            self.remaining.clear();
            self.finalizers.clear();
            return;
        }
        for kind in others {
            self.delete_all(state, kind);
        }
    }

    fn delete_all(&mut self, state: &mut State, kind: &Arc<Kind>) {
        let estimate = if kind.is("", "pods") { self.grace_of_pods(state) } else { 0 };
        match self.delete_kind(state, kind) {
            Ok(()) => {}
            Err(error) => {
                self.estimate = self.estimate.max(estimate);
                self.refused.push(error.message);
                return;
            }
        }
        let (mut remaining, mut held) = (0, false);
        for object in state.store.list(kind.table(), Some(self.namespace)) {
            remaining += 1;
            for finalizer in &object.finalizers {
                held = true;
                *self.finalizers.entry(finalizer.to_string()).or_default() += 1;
            }
        }
        if remaining == 0 {
            return;
        }
        self.remaining.insert(kind.id.clone(), remaining);
        if estimate > 0 {
            self.estimate = self.estimate.max(estimate);
        } else if held {
            self.estimate = self.estimate.max(FINALIZERS_TAKE);
        } else {
            let version = kind.versions.first().map_or("", |version| &version.name);
            self.refused.push(format!(
                "unexpected items still remain in namespace: {} for gvr: {}/{version}, Resource={}",
                self.namespace,
                kind.group(),
                kind.id.plural
            ));
        }
    }

    /// Deletes the objects of a kind until a deletion fails.
    fn delete_kind(&self, state: &mut State, kind: &Arc<Kind>) -> Result<(), ApiError> {
        if state.store.is_corrupt(kind.table(), Some(self.namespace), None) {
            return Err(ApiError::undecodable());
        }
        let objects: Vec<_> = state.store.list(kind.table(), Some(self.namespace)).cloned().collect();
        // The real one deletes the collection in the preferred version, for which the API server lists it in that version.
        let preferred = kind.versions.iter().position(|version| version.served).unwrap_or_default();
        conversion::readable(state, kind, preferred, &objects)?;
        let names: Vec<_> = objects.iter().map(|object| object.name.clone()).collect();
        let mut writer = writer(kind, CONTROLLER);
        writer.version = preferred;
        let options = DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
        for name in names {
            match delete(state, &writer, self.namespace, &name, &options) {
                Err(error) if error.code != http::StatusCode::NOT_FOUND => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the longest grace period of running Pods; 0 once it is over.
    fn grace_of_pods(&self, state: &State) -> u64 {
        let grace = |pod: Value| match pod["status"]["phase"].as_str() {
            Some("Succeeded" | "Failed") => None,
            _ => pod["spec"]["terminationGracePeriodSeconds"].as_u64(),
        };
        let pods = objects(state, "", "pods", self.namespace);
        let longest = pods.iter().filter_map(|pod| grace(pod.value())).max().unwrap_or(0);
        if self.since >= longest { 0 } else { longest }
    }

    /// Returns the status, reason and message of each condition.
    fn conditions(&self) -> [(&'static str, (bool, &'static str, String)); 5] {
        let outcome = |failure: Option<(&'static str, String)>, reason, message: &str| match failure {
            Some((reason, message)) => (true, reason, message),
            None => (false, reason, message.to_owned()),
        };
        let discovery = self.undiscovered.clone().map(|message| ("DiscoveryFailed", message));
        let content = refused(&self.refused).map(|message| ("ContentDeletionFailed", message));
        let remaining: Vec<_> = self
            .remaining
            .iter()
            .map(|(id, count)| format!("{}.{} has {count} resource instances", id.plural, id.group))
            .collect();
        let remaining = listed("Some resources are remaining", remaining).map(|text| ("SomeResourcesRemain", text));
        let finalizers: Vec<_> = self
            .finalizers
            .iter()
            .map(|(finalizer, count)| format!("{finalizer} in {count} resource instances"))
            .collect();
        let finalizers = listed("Some content in the namespace has finalizers remaining", finalizers)
            .map(|text| ("SomeFinalizersRemain", text));
        let deleted = "All content successfully deleted, may be waiting on finalization";
        [
            (
                "NamespaceDeletionDiscoveryFailure",
                outcome(discovery, "ResourcesDiscovered", "All resources successfully discovered"),
            ),
            (
                "NamespaceDeletionGroupVersionParsingFailure",
                outcome(None, "ParsedGroupVersions", "All legacy kube types successfully parsed"),
            ),
            ("NamespaceDeletionContentFailure", outcome(content, "ContentDeleted", deleted)),
            ("NamespaceContentRemaining", outcome(remaining, "ContentRemoved", "All content successfully removed")),
            (
                "NamespaceFinalizersRemaining",
                outcome(finalizers, "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
            ),
        ]
    }
}

fn listed(what: &str, mut parts: Vec<String>) -> Option<String> {
    parts.sort();
    (!parts.is_empty()).then(|| format!("{what}: {}", parts.join(", ")))
}

pub(super) fn refused(messages: &[String]) -> Option<String> {
    let mut sorted = messages.to_vec();
    sorted.sort();
    let count = sorted.len();
    (count > 0).then(|| format!("Failed to delete all resource types, {count} remaining: {}", sorted.join(", ")))
}

/// Returns the message about group versions without a backend.
pub(super) fn undiscovered(dead: &[(String, String)]) -> Option<String> {
    let stale = |(group, version): &(String, String)| {
        format!("{group}/{version}: stale GroupVersion discovery: {group}/{version}")
    };
    let mut groups: Vec<_> = dead.iter().map(stale).collect();
    groups.sort();
    let count = groups.len();
    let all = groups.join(", ");
    (count > 0).then(|| {
        format!(
            "Discovery failed for some groups, {count} failing: unable to retrieve the complete list of server APIs: {all}"
        )
    })
}
