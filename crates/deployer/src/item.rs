//! One item that is worked on: its object as the server has it, and the changes made to it.

use std::sync::Arc;

use billhook_cluster::{Patch, PatchKind};
use billhook_objects::{GroupKind, ObjectKey};
use billhook_plan::{Operation, Resource};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    api::{self, DeployItem, DeployItemStatus, FINALIZER, OPERATION, Phase},
    controller::Shared,
    error::ItemFailure,
    events::{self, RunEvents, Severity},
    progress::Report,
    status::status_patch,
    trigger::Trigger,
};

/// An item that is worked on.
pub(crate) struct Item {
    pub shared: Arc<Shared>,
    pub namespace: String,
    pub name: String,
    /// The object as it was when the work began.
    pub object: Arc<DeployItem>,
    /// The status as the server has it; none where the object has none yet.
    sent: Option<DeployItemStatus>,
    /// The status as it is to be.
    pub status: DeployItemStatus,
    /// The version that our last write returned.
    pub version: Option<String>,
    /// The finalizers that the object had in that version.
    finalizers: Vec<String>,
    /// When the time of the item is over.
    pub deadline: Option<Instant>,
}

impl Item {
    pub(crate) fn new(shared: Arc<Shared>, object: Arc<DeployItem>) -> Self {
        Self {
            shared,
            namespace: object.metadata.namespace.clone().unwrap_or_default(),
            name: object.metadata.name.clone().unwrap_or_default(),
            sent: object.status.clone(),
            status: object.status.clone().unwrap_or_default(),
            finalizers: object.metadata.finalizers.clone().unwrap_or_default(),
            object,
            version: None,
            deadline: None,
        }
    }

    /// Whether no deployer has ever worked on the item.
    pub(crate) fn is_new(&self) -> bool {
        self.object.status.as_ref().is_none_or(|status| status.deployer.is_none() && status.provider_status.is_none())
    }

    /// What is being done with the item.
    pub(crate) fn operation(&self) -> Operation {
        match self.status.phase {
            Some(Phase::Deleting) => Operation::Delete,
            _ => Operation::Apply,
        }
    }

    /// Measures how long a part of the work takes: `prepare` until there is a plan, `run` until it is carried out (by the
    /// engine or by helm), `check` for custom readiness and exports.
    pub(crate) fn measure(&self, part: &'static str) -> impl FnOnce() + use<> {
        let operation = self.operation();
        let (metrics, begun) = (self.shared.metrics.clone(), Instant::now());
        move || metrics.took(operation, part, begun.elapsed())
    }

    /// Who says when there is work on the item.
    pub(crate) fn trigger(&self) -> Trigger {
        self.shared.options.mode.trigger(&self.object)
    }

    /// The Kubernetes Events of a run.
    pub(crate) fn events(&self) -> RunEvents {
        self.shared.events.run(Arc::new(events::Item::from(&*self.object)))
    }

    /// A Kubernetes Event.
    pub(crate) fn record(&self, severity: Severity, reason: &'static str, message: &str) {
        self.shared.events.record(&Arc::new(events::Item::from(&*self.object)), severity, reason, message);
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.shared.options.now)()
    }

    /// Changes the status and sends what has changed in it; nothing is sent where nothing has. A change that cannot be
    /// sent is not made: a later one must not say that the work is done because an earlier one could not.
    pub(crate) async fn update(&mut self, change: impl FnOnce(&mut DeployItemStatus)) -> Result<(), ItemFailure> {
        let mut status = self.status.clone();
        change(&mut status);
        let Some(patch) = status_patch(self.sent.as_ref(), &status) else { return Ok(()) };
        self.patch(Some("status"), patch).await?;
        self.status.clone_from(&status);
        self.sent = Some(status);
        Ok(())
    }

    /// Says in the status how far the work is.
    pub(crate) async fn report(&mut self, report: Report) -> Result<(), ItemFailure> {
        let now = self.now();
        self.update(|status| status.report(&report, now)).await
    }

    /// Removes the operation annotation: what it asks for is done, or about to be.
    pub(crate) async fn forget_operation(&mut self) -> Result<(), ItemFailure> {
        self.take_up(false, true).await
    }

    /// Adds our finalizer and removes the operation annotation, as far as either is wanted, in one request.
    pub(crate) async fn take_up(&mut self, finalizer: bool, operation: bool) -> Result<(), ItemFailure> {
        let mut metadata = serde_json::Map::new();
        if finalizer && self.finalizers.iter().all(|name| name != FINALIZER) {
            let finalizers = self.finalizers.iter().map(String::as_str);
            metadata.insert("finalizers".to_owned(), finalizers.chain([FINALIZER]).collect());
        }
        if operation {
            metadata.insert("annotations".to_owned(), json!({ OPERATION: null }));
        }
        if metadata.is_empty() {
            return Ok(());
        }
        // Neither a finalizer nor an operation that somebody else has just set must be overwritten.
        metadata.insert("resourceVersion".to_owned(), json!(self.newest()));
        self.patch(None, json!({ "metadata": metadata })).await
    }

    /// Removes our finalizer: the item may go.
    pub(crate) async fn let_go(&mut self) -> Result<(), ItemFailure> {
        let rest: Vec<&String> = self.finalizers.iter().filter(|finalizer| *finalizer != FINALIZER).collect();
        let patch = json!({ "metadata": { "finalizers": rest, "resourceVersion": self.newest() } });
        self.patch(None, patch).await
    }

    /// The newest version that is known of the object.
    fn newest(&self) -> Option<&String> {
        self.version.as_ref().or(self.object.metadata.resource_version.as_ref())
    }

    /// Patches the item; one that is gone meanwhile is no error.
    async fn patch(&mut self, subresource: Option<&str>, body: Value) -> Result<(), ItemFailure> {
        let key = ObjectKey::new(deploy_items().kind, Some(&self.namespace), &self.name);
        let patch = Patch { subresource, kind: PatchKind::Merge, body: &body };
        match self.shared.home.patch(&deploy_items(), &key, &patch).await {
            Ok(Some(applied)) => {
                (self.version, self.finalizers) = (Some(applied.resource_version), applied.finalizers);
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// How to talk to DeployItems.
pub(crate) fn deploy_items() -> Resource {
    Resource {
        kind: GroupKind::new(api::GROUP, "DeployItem"),
        version: api::VERSION.into(),
        plural: "deployitems".into(),
        namespaced: true,
    }
}
