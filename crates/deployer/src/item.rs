//! An item that is being worked on: its object as the API server has it, and the changes made to it.

use std::{borrow::Cow, sync::Arc, time::Duration};

use billhook_cluster::{Applied, Error, ErrorKind, Patch, PatchKind};
use billhook_objects::{ObjectKey, ReleaseName};
use billhook_plan::{Operation, Plan, Resource};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    api::{self, DeployItem, DeployItemStatus, ErrorCode, FINALIZER, OPERATION, Phase, has_finalizer},
    configuration::time_limit,
    crashes,
    error::ItemFailure,
    events::{self, RunEvents, Severity},
    fair::FairSlot,
    halt::Halt,
    known::KnownItem,
    progress::{CONDITION, Report},
    shared::Shared,
    status::status_patch,
    trigger::Trigger,
};

/// How often a write of the phase is repeated because other clients have changed the item.
const MAX_CONFLICTS: usize = 5;

/// The time after which the first status of a new item is written: most work ends sooner.
const PAUSE: Duration = Duration::from_secs(1);

/// An item that is being worked on.
pub(crate) struct Item {
    pub shared: Arc<Shared>,
    pub namespace: String,
    pub name: String,
    /// The object at the start of the work. Until it was read, it is as the controller keeps it.
    pub object: Arc<DeployItem>,
    /// Whether the configuration in the object is missing.
    is_partial: bool,
    /// Whether no deployer has worked on the item yet.
    is_new: bool,
    /// The status on the API server; `None` if the object has no status yet.
    sent: Option<DeployItemStatus>,
    /// The status with changes that may not have been sent yet.
    pub status: DeployItemStatus,
    /// The version that our last write returned.
    pub version: Option<String>,
    /// The finalizers of the object in that version.
    finalizers: Vec<String>,
    /// When the item's time limit is reached.
    pub deadline: Option<Instant>,
    /// Without a time limit: until when mistakes of people are retried, which somebody may be correcting.
    pub patience: Option<Instant>,
    /// How many attempts have failed before this one.
    pub failed: u32,
    /// Stops the work.
    pub(crate) halt: Halt,
    /// The slots for the rendered chart.
    pub(crate) rendered: Option<FairSlot>,
    /// Whether another client has finished the job, or the item is another one of the same name: the object is no longer ours.
    is_over: bool,
    /// A status that is sent unless a later one replaces it soon.
    later: Option<Later>,
}

/// A status that is sent after [`PAUSE`]. Dropping it stops that.
struct Later {
    status: DeployItemStatus,
    replaced: CancellationToken,
    sending: JoinSet<Option<Applied>>,
}

impl Item {
    /// Starts the work on an item of which the controller knows only a part.
    pub(crate) fn of_known(shared: Arc<Shared>, known: &KnownItem, failed: u32, halt: Halt) -> Self {
        Self { is_partial: true, ..Self::new(shared, Arc::new(known.to_object()), failed, halt) }
    }

    pub(crate) fn new(shared: Arc<Shared>, object: Arc<DeployItem>, failed: u32, halt: Halt) -> Self {
        Self {
            shared,
            namespace: object.metadata.namespace.clone().unwrap_or_default(),
            name: object.metadata.name.clone().unwrap_or_default(),
            sent: object.status.clone(),
            status: object.status.clone().unwrap_or_default(),
            finalizers: object.metadata.finalizers.clone().unwrap_or_default(),
            is_partial: false,
            is_new: is_new(&object),
            object,
            version: None,
            deadline: None,
            patience: None,
            failed,
            halt,
            rendered: None,
            is_over: false,
            later: None,
        }
    }

    /// Returns the name of the release under which the item's objects are recorded.
    pub(crate) fn release(&self) -> ReleaseName {
        ReleaseName::of_deploy_item(&self.namespace, &self.name)
    }

    /// Returns the name of the first Secret of the item's record.
    pub(crate) fn record_name(&self) -> String {
        format!("billhook.{}", self.release().name())
    }

    /// Returns whether no deployer has worked on the item yet.
    pub(crate) fn is_new(&self) -> bool {
        self.is_new
    }

    /// Reads the object, unless it was read already. Returns whether it is still the same item.
    pub(crate) async fn load(&mut self) -> Result<bool, Error> {
        if !self.is_partial {
            return Ok(true);
        }
        let live = self.shared.home.get(&deploy_items(), &self.key()).await?;
        let live = live.and_then(|live| serde_json::from_value::<DeployItem>(live).ok());
        let Some(live) = live.filter(|live| live.metadata.uid == self.object.metadata.uid) else { return Ok(false) };
        (self.sent, self.status) = (live.status.clone(), live.status.clone().unwrap_or_default());
        self.is_new = is_new(&live);
        self.finalizers = live.metadata.finalizers.clone().unwrap_or_default();
        self.version.clone_from(&live.metadata.resource_version);
        (self.object, self.is_partial) = (Arc::new(live), false);
        Ok(true)
    }

    /// Returns the current operation on the item.
    pub(crate) fn operation(&self) -> Operation {
        match self.status.phase {
            Some(Phase::Deleting) => Operation::Delete,
            _ => Operation::Apply,
        }
    }

    /// Starts to measure a part of the work, and returns a function that records its duration. The parts are `prepare`
    /// (computing the plan), `run` (the work of the engine or of helm) and `check` (custom readiness checks and exports).
    pub(crate) fn measure(&self, part: &'static str) -> impl FnOnce() + use<> {
        let operation = self.operation();
        let (metrics, begun) = (self.shared.metrics.clone(), Instant::now());
        move || metrics.took(operation, part, begun.elapsed())
    }

    /// Returns what triggers the work on the item.
    pub(crate) fn trigger(&self) -> Trigger {
        self.shared.options.mode.trigger(&self.object)
    }

    /// Returns a recorder of the Kubernetes Events of one run.
    pub(crate) fn events(&self) -> RunEvents {
        self.shared.events.run(Arc::new(events::Item::from(&*self.object)))
    }

    /// Reports the notes of the item's plan, with those on what the item's time limit prevents: as Kubernetes Events, and in a
    /// condition that the next update writes.
    pub(crate) fn warn(&mut self, plan: &mut Plan) {
        if let Some(limit) = time_limit(&self.object) {
            billhook_plan::warn_of_limit(plan, limit);
        }
        let now = self.now();
        for warning in self.status.warn(&plan.notes, now) {
            self.record(Severity::Warning, warning.reason(), &warning.message());
        }
    }

    /// Records a Kubernetes Event.
    pub(crate) fn record(&self, severity: Severity, reason: impl Into<Cow<'static, str>>, message: &str) {
        self.shared.events.record(&Arc::new(events::Item::from(&*self.object)), severity, reason, message);
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.shared.options.now)()
    }

    /// Changes the status and sends the difference, if there is one. If the request fails, the change is discarded, so that
    /// a later update does not report work that this one was to precede.
    ///
    /// Once another client has finished the job, or the item is another one, the work is stopped and nothing is sent any more.
    pub(crate) async fn update(&mut self, change: impl FnOnce(&mut DeployItemStatus)) -> Result<(), ItemFailure> {
        self.settle().await;
        let mut status = self.status.clone();
        change(&mut status);
        let Some(patch) = status_patch(self.sent.as_ref(), &status).filter(|_| !self.is_over) else { return Ok(()) };
        self.patch_status(patch).await?;
        self.status.clone_from(&status);
        self.sent = Some(status);
        Ok(())
    }

    /// Changes the status, and sends the difference after a while, unless a later update does it sooner.
    pub(crate) fn update_later(&mut self, change: impl FnOnce(&mut DeployItemStatus)) {
        change(&mut self.status);
        let Some(mut patch) = status_patch(self.sent.as_ref(), &self.status) else { return };
        patch["metadata"] = json!({ "resourceVersion": self.newest() });
        let (home, key, replaced) = (self.shared.home.clone(), self.key(), CancellationToken::new());
        let (stop, mut sending) = (replaced.clone(), JoinSet::new());
        sending.spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = stop.cancelled() => return None,
            }
            let patch = Patch { subresource: Some("status"), kind: PatchKind::Merge, body: &patch };
            // If it fails, the next update writes the status.
            home.patch(&deploy_items(), &key, &patch).await.ok().flatten()
        });
        self.later = Some(Later { status: self.status.clone(), replaced, sending });
    }

    /// Stops the sending of a status, or waits for it if it has begun.
    async fn settle(&mut self) {
        let Some(mut later) = self.later.take() else { return };
        later.replaced.cancel();
        if let Some(Ok(Some(applied))) = later.sending.join_next().await {
            (self.version, self.finalizers) = (Some(applied.resource_version), applied.finalizers);
            self.sent = Some(later.status);
        }
    }

    /// Patches the status, unless another client has finished the item's job, as Landscaper does to interrupt it, or the item
    /// is another one of the same name. Every patch names the version: one that does not would return the version of a change
    /// that nobody has looked at.
    async fn patch_status(&mut self, mut patch: Value) -> Result<(), ItemFailure> {
        for _ in 0..MAX_CONFLICTS {
            patch["metadata"] = json!({ "resourceVersion": self.newest() });
            match self.patch(Some("status"), patch.clone()).await {
                Err(error) if matches!(error.kind(), ErrorKind::Conflict(_)) => {}
                written => return Ok(written?),
            }
            let (resource, key) = (deploy_items(), self.key());
            let Some(live) = self.shared.home.get(&resource, &key).await? else { return Ok(()) };
            let Ok(live) = serde_json::from_value::<DeployItem>(live) else { break };
            // The dispatcher ignores what the watch still reports of the time before.
            self.version = live.metadata.resource_version;
            let job = self.status.job_id.as_deref().filter(|_| self.trigger() == Trigger::Jobs);
            let is_finished = job.is_some() && live.status.is_some_and(|live| live.job_id_finished.as_deref() == job);
            if is_finished || live.metadata.uid != self.object.metadata.uid {
                self.is_over = true;
                self.halt.token.cancel();
                return Ok(());
            }
            self.finalizers = live.metadata.finalizers.unwrap_or_default();
        }
        let problem = format!("write the status of {}: other clients keep changing the item", self.key());
        Err(ItemFailure::new("RequestFailed", problem, ErrorCode::InternalProblem).transient())
    }

    /// Returns whether the work has ended because another client has finished the job, or the item is gone.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Writes a progress report to the status.
    pub(crate) async fn report(&mut self, report: Report) -> Result<(), ItemFailure> {
        let now = self.now();
        self.update(|status| status.report(&report, now)).await
    }

    /// Ends our condition after another client has finished the job, as Landscaper does to interrupt it. The rest of the status is
    /// that client's.
    pub(crate) async fn end_condition(&mut self) -> Result<(), ItemFailure> {
        let (resource, key, job) = (deploy_items(), self.key(), self.status.job_id.as_deref());
        let Some(live) = self.shared.home.get(&resource, &key).await? else { return Ok(()) };
        let Ok(live) = serde_json::from_value::<DeployItem>(live) else { return Ok(()) };
        let Some(status) = live.status.filter(|_| live.metadata.uid == self.object.metadata.uid) else { return Ok(()) };
        let runs = status.conditions.iter().any(|known| known.r#type == CONDITION && known.status == "True");
        if job.is_none() || status.job_id_finished.as_deref() != job || !runs {
            return Ok(());
        }
        let mut ended = status.clone();
        let message = "another client has finished the job".to_owned();
        ended.report(&Report { running: false, reason: "Interrupted", message }, self.now());
        let Some(mut patch) = status_patch(Some(&status), &ended) else { return Ok(()) };
        patch["metadata"] = json!({ "resourceVersion": live.metadata.resource_version });
        Ok(self.patch(Some("status"), patch).await?)
    }

    /// Writes the annotation of an item that may have killed a controller, or removes it.
    pub(crate) async fn annotate_crashes(&mut self, value: Option<String>) -> Result<(), ItemFailure> {
        if self.is_over {
            return Ok(());
        }
        let metadata = json!({ "annotations": { crashes::ANNOTATION: value }, "resourceVersion": self.newest() });
        Ok(self.patch(None, json!({ "metadata": metadata })).await?)
    }

    /// Removes the operation annotation, because its operation is done or about to be done.
    pub(crate) async fn remove_operation(&mut self) -> Result<(), ItemFailure> {
        self.update_metadata(false, true).await
    }

    /// Adds our finalizer and removes the operation annotation, each if requested, in one request.
    pub(crate) async fn update_metadata(
        &mut self,
        add_finalizer: bool,
        remove_operation: bool,
    ) -> Result<(), ItemFailure> {
        let mut metadata = serde_json::Map::new();
        if add_finalizer && self.finalizers.iter().all(|name| name != FINALIZER) {
            let finalizers = self.finalizers.iter().map(String::as_str);
            metadata.insert("finalizers".to_owned(), finalizers.chain([FINALIZER]).collect());
        }
        if remove_operation {
            metadata.insert("annotations".to_owned(), json!({ OPERATION: null }));
        }
        if metadata.is_empty() || self.is_over {
            return Ok(());
        }
        self.settle().await;
        // The version prevents the patch from overwriting a finalizer or operation that another client has just set.
        metadata.insert("resourceVersion".to_owned(), json!(self.newest()));
        Ok(self.patch(None, json!({ "metadata": metadata })).await?)
    }

    /// Removes our finalizer, so that the API server can delete the item.
    pub(crate) async fn remove_finalizer(&mut self) -> Result<(), ItemFailure> {
        self.settle().await;
        if self.is_over {
            return Ok(());
        }
        let rest: Vec<&String> = self.finalizers.iter().filter(|finalizer| *finalizer != FINALIZER).collect();
        let patch = json!({ "metadata": { "finalizers": rest, "resourceVersion": self.newest() } });
        Ok(self.patch(None, patch).await?)
    }

    fn key(&self) -> ObjectKey {
        ObjectKey::new(deploy_items().kind, Some(&self.namespace), &self.name)
    }

    /// Returns the newest known version of the object.
    fn newest(&self) -> Option<&String> {
        self.version.as_ref().or(self.object.metadata.resource_version.as_ref())
    }

    /// Patches the item. Succeeds if the item no longer exists.
    async fn patch(&mut self, subresource: Option<&str>, body: Value) -> Result<(), Error> {
        let key = self.key();
        let patch = Patch { subresource, kind: PatchKind::Merge, body: &body };
        let patched = match self.is_partial {
            // The configuration is read with the first write.
            true => self.shared.home.patch_and_read(&deploy_items(), &key, &patch).await,
            false => self.shared.home.patch(&deploy_items(), &key, &patch).await,
        };
        match patched {
            Ok(Some(applied)) => {
                let whole = applied.object.and_then(|object| serde_json::from_value::<DeployItem>(object).ok());
                if let Some(whole) = whole {
                    (self.object, self.is_partial) = (Arc::new(whole), false);
                }
                (self.version, self.finalizers) = (Some(applied.resource_version), applied.finalizers);
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Returns whether no deployer has written a status or added our finalizer.
fn is_new(object: &DeployItem) -> bool {
    let untouched = |status: &DeployItemStatus| status.deployer.is_none() && status.provider_status.is_none();
    object.status.as_ref().is_none_or(untouched) && !has_finalizer(object)
}

/// Returns the resource of DeployItems.
pub(crate) fn deploy_items() -> Resource {
    api::resource("DeployItem", "deployitems")
}
