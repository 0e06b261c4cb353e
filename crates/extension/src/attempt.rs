//! One attempt on one object: the writes before the call of the actuator, the call, and the writes after it.
//!
//! Every write carries the version that was last seen. Before the call, an object that has changed is dispatched again; after
//! it, it is read again, so that the result is not lost. A steady reconcile takes three requests: the status at the start, the
//! finalizer and the operation annotation together, and the status at the end.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use billhook_cluster::{Error, Patch, PatchKind};
use billhook_objects::ObjectKey;
use billhook_plan::Resource;
use futures::FutureExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    actuator::{Actuator, Outcome},
    context::Context,
    created,
    dispatch::{Action, Decision, Run, Step},
    error::{ActuatorError, ErrorCode},
    events::Subject,
    gardener::Cluster,
    monitor::Reporter,
    object::{ExtensionObject, OPERATION},
    queue::{End, EndResult, Start},
    status::StatusOf,
};

/// How often a write after the call is repeated because other clients have changed the object.
const TRIES: usize = 10;

/// What all attempts on objects of a kind share.
pub(crate) struct Worker<A> {
    pub(crate) actuator: Arc<A>,
    pub(crate) context: Context,
    pub(crate) resource: Resource,
    pub(crate) finalizer: String,
    /// The time limit of a call of the actuator.
    pub(crate) time_limit: Duration,
    pub(crate) monitor: Reporter,
}

/// Why an attempt stopped early.
enum Stop {
    /// Another client has changed the object before the actuator was called.
    Outdated,
    /// The object is gone.
    Gone,
    Failed(Error),
}

struct Attempt<'a, A> {
    worker: &'a Worker<A>,
    context: Context,
    /// The object as far as it is known, with our writes.
    object: ExtensionObject,
    /// The version that the last write returned.
    version: Option<String>,
    /// Whether the operation annotation was removed.
    stripped: bool,
}

impl<A: Actuator> Worker<A> {
    /// Carries out an attempt. Cancelling it stops the call of the actuator, not the writes before and after.
    pub(crate) async fn attempt(&self, start: Start, cancel: CancellationToken) -> End {
        let Start { object, cluster, decision } = start;
        let key = object.key.clone();
        let context = self.context.about(Subject::new(&self.resource, &object));
        let object = ExtensionObject::clone(&object);
        let mut attempt = Attempt { worker: self, context, object, version: None, stripped: false };
        let result = match attempt.run(decision, &cluster, &cancel).await {
            Ok(result) => result,
            Err(Stop::Gone) => EndResult::Done,
            Err(Stop::Outdated) => EndResult::Outdated,
            Err(Stop::Failed(error)) => {
                tracing::warn!(kind = %self.resource.kind, object = %key, %error, "a request failed; retrying");
                EndResult::Failed { pause: None }
            }
        };
        End { version: attempt.version, stripped: attempt.stripped, result }
    }
}

impl<A: Actuator> Attempt<'_, A> {
    async fn run(
        &mut self,
        decision: Decision,
        cluster: &Cluster,
        cancel: &CancellationToken,
    ) -> Result<EndResult, Stop> {
        let Worker { resource, monitor, .. } = self.worker;
        let (kind, key) = (&resource.kind.kind, self.object.key.clone());
        let run = match decision.step {
            Step::Run(run) => run,
            Step::Release => {
                self.prepare(decision).await?;
                return self.release(cluster).await;
            }
            Step::Skip(skip) => {
                self.prepare(decision).await?;
                tracing::info!(%kind, object = %key, "nothing to do: {skip}");
                return Ok(EndResult::Done);
            }
        };
        let (status, generation) = (StatusOf { kind, run }, self.object.generation);
        // Before the annotation is removed: whoever continues after a crash finds the one or the other.
        self.write_status(false, |_| status.processing(Timestamp::now())).await?;
        self.prepare(decision).await?;
        tracing::info!(%kind, object = %key, action = run.action.name(), "starting");
        let begun = Instant::now();
        let called = self.call(run.action, cluster, cancel).await;
        let result = match &called {
            None => "cancelled",
            Some(Err(_)) => "failed",
            Some(Ok(_)) => "succeeded",
        };
        monitor.called(run.action, result, begun.elapsed());
        match called {
            None => {
                tracing::info!(%kind, object = %key, action = run.action.name(), "cancelled");
                Ok(EndResult::Cancelled)
            }
            Some(Err(error)) => {
                tracing::warn!(%kind, object = %key, action = run.action.name(), codes = ?error.codes(), %error, "failed");
                self.write_status(true, |object| {
                    let now = Timestamp::now();
                    let mut patch = status.failed(&error, generation, now);
                    created::add(&mut patch, &status, object, false, now);
                    patch
                })
                .await?;
                Ok(EndResult::Failed { pause: error.pause() })
            }
            Some(Ok(outcome)) => {
                self.finish(run, &status, &outcome, generation).await?;
                tracing::info!(%kind, object = %key, action = run.action.name(), "succeeded");
                Ok(EndResult::Done)
            }
        }
    }

    /// Adds our finalizer and removes the operation annotation, as decided, in one request.
    async fn prepare(&mut self, decision: Decision) -> Result<(), Stop> {
        let add_finalizer = matches!(decision.step, Step::Run(Run { add_finalizer: true, .. }));
        if !add_finalizer && !decision.strip {
            return Ok(());
        }
        let finalizer = &self.worker.finalizer;
        self.write_metadata(false, |object| {
            let mut metadata = json!({});
            if decision.strip {
                metadata["annotations"] = json!({ OPERATION: null });
            }
            if add_finalizer {
                metadata["finalizers"] = object.finalizers.iter().chain([finalizer]).cloned().collect();
            }
            Some(metadata)
        })
        .await?;
        if decision.strip {
            (self.object.operation, self.stripped) = (None, true);
        }
        Ok(())
    }

    /// Calls the actuator; none if it was cancelled.
    async fn call(
        &self,
        action: Action,
        cluster: &Cluster,
        cancel: &CancellationToken,
    ) -> Option<Result<Outcome, ActuatorError>> {
        if cancel.is_cancelled() {
            return None;
        }
        let (Worker { actuator, time_limit, .. }, context) = (self.worker, &self.context);
        let call = async {
            let object = match self.typed() {
                Ok(object) => object,
                // Its Shoot is deleted nevertheless.
                Err(error) if action == Action::ForceDelete => {
                    let outcome = Outcome::done().description(error.to_string());
                    return Ok(outcome.orphaned("whatever belongs to it"));
                }
                Err(error) => return Err(error),
            };
            match action {
                Action::Reconcile => actuator.reconcile(context, &object, cluster).await,
                Action::Delete => actuator.delete(context, &object, cluster).await,
                Action::ForceDelete => actuator.force_delete(context, &object, cluster).await,
                Action::Migrate => actuator.migrate(context, &object, cluster).await,
                Action::Restore => actuator.restore(context, &object, cluster).await,
            }
        };
        let limited = timeout(*time_limit, AssertUnwindSafe(call).catch_unwind());
        tokio::select! {
            biased;
            called = limited => Some(match called {
                Ok(Ok(result)) => result,
                Ok(Err(_panic)) => Err(ActuatorError::new("the actuator panicked, which is a bug of the extension")),
                Err(_) => Err(ActuatorError::new(format!("the actuator did not end within {time_limit:?}"))),
            }),
            () = cancel.cancelled() => None,
        }
    }

    /// Returns the object in the actuator's type, with what was written so far.
    fn typed(&self) -> Result<A::Object, ActuatorError> {
        let ExtensionObject { value, resource_version, finalizers, operation, .. } = &self.object;
        let resource = &self.worker.resource;
        let mut value = value.clone();
        value["apiVersion"] = json!(resource.api_version().to_string());
        value["kind"] = json!(resource.kind.kind);
        value["metadata"]["resourceVersion"] = json!(resource_version);
        value["metadata"]["finalizers"] = json!(finalizers);
        if let Some(annotations) = value.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut)
            && operation.is_none()
        {
            annotations.remove(OPERATION);
        }
        serde_json::from_value(value).map_err(|error| {
            let text = format!("the {} cannot be read: {error}", resource.kind.kind);
            ActuatorError::new(text).code(ErrorCode::ConfigurationProblem)
        })
    }

    /// Reports what is orphaned, then the success, and after that removes what asked for the operation: our finalizer, or the
    /// annotation.
    async fn finish(
        &mut self,
        run: Run,
        status: &StatusOf<'_>,
        outcome: &Outcome,
        generation: i64,
    ) -> Result<(), Stop> {
        // First, because the object may be gone before its status is written.
        self.context.report_orphaned(outcome).await;
        let text = outcome.text();
        self.write_status(true, |object| {
            let now = Timestamp::now();
            let mut patch = status.succeeded(&outcome.status, &text, generation, now);
            created::add(&mut patch, status, object, true, now);
            patch
        })
        .await?;
        let (finalizer, annotation) = match run.action {
            Action::Reconcile => return Ok(()),
            Action::Delete | Action::ForceDelete => (true, None),
            Action::Migrate => (true, Some("migrate")),
            Action::Restore => (false, Some("restore")),
        };
        self.end(finalizer, annotation).await
    }

    /// Removes what belongs to an object for which nothing was ever created outside of the seed, and our finalizer.
    async fn release(&mut self, cluster: &Cluster) -> Result<EndResult, Stop> {
        let Worker { actuator, context, resource, .. } = self.worker;
        // For an object that cannot be read, the actuator was never called.
        let owned = self.typed().map(|object| actuator.seed_objects(&object, cluster)).unwrap_or_default();
        for object in &owned {
            if let Err(error) = context.remove_by_force(object).await {
                tracing::warn!(kind = %resource.kind.kind, object = %self.object.key, %error, "failed; retrying");
                return Ok(EndResult::Failed { pause: error.pause() });
            }
        }
        self.end(true, None).await?;
        tracing::info!(kind = %resource.kind.kind, object = %self.object.key, "released: it was never created");
        Ok(EndResult::Done)
    }

    /// Removes our finalizer, or the annotation with this value.
    async fn end(&mut self, finalizer: bool, annotation: Option<&str>) -> Result<(), Stop> {
        let ours = &self.worker.finalizer;
        self.write_metadata(true, |object| {
            let mut metadata = serde_json::Map::new();
            if finalizer && object.has(ours) {
                let others = object.finalizers.iter().filter(|other| *other != ours);
                metadata.insert("finalizers".to_owned(), others.cloned().collect());
            }
            // Another request may have replaced ours meanwhile.
            if annotation.is_some() && object.operation.as_deref() == annotation {
                metadata.insert("annotations".to_owned(), json!({ OPERATION: null }));
            }
            (!metadata.is_empty()).then_some(Value::Object(metadata))
        })
        .await
    }

    /// Writes the status that follows from the object as it is.
    async fn write_status(&mut self, read_again: bool, status: impl Fn(&Value) -> Value) -> Result<(), Stop> {
        self.write(Some("status"), read_again, |object| Some(json!({ "status": status(&object.value) }))).await
    }

    async fn write_metadata(
        &mut self,
        read_again: bool,
        metadata: impl Fn(&ExtensionObject) -> Option<Value>,
    ) -> Result<(), Stop> {
        self.write(None, read_again, |object| Some(json!({ "metadata": metadata(object)? }))).await
    }

    /// Sends a merge patch under the version that was last seen, unless there is nothing to write. If another client has
    /// changed the object, it is read again and the patch is made anew, or the attempt is outdated.
    async fn write(
        &mut self,
        subresource: Option<&str>,
        read_again: bool,
        patch: impl Fn(&ExtensionObject) -> Option<Value>,
    ) -> Result<(), Stop> {
        let Worker { context, resource, .. } = self.worker;
        let key = ObjectKey::new(resource.kind.clone(), self.object.key.namespace.as_deref(), &self.object.key.name);
        let mut tries = 1;
        loop {
            let Some(mut body) = patch(&self.object) else { return Ok(()) };
            body["metadata"]["resourceVersion"] = json!(self.object.resource_version);
            let patch = Patch { subresource, kind: PatchKind::Merge, body: &body };
            match context.seed.patch(resource, &key, &patch).await {
                Ok(Some(applied)) => {
                    self.object.finalizers = applied.finalizers;
                    self.object.resource_version.clone_from(&applied.resource_version);
                    self.version = Some(applied.resource_version);
                    return Ok(());
                }
                Ok(None) => return Err(Stop::Gone),
                Err(error) if error.code() != Some(409) || tries == TRIES => return Err(Stop::Failed(error)),
                Err(error) => {
                    let found = context.seed.get(resource, &key).await.map_err(Stop::Failed)?.ok_or(Stop::Gone)?;
                    // An object that cannot be read has been replaced by something else.
                    let found: ExtensionObject = serde_json::from_value(found).map_err(|_| Stop::Gone)?;
                    if found.uid != self.object.uid {
                        return Err(Stop::Gone);
                    }
                    // No conflict of versions: a webhook rejects the write with this status.
                    if found.resource_version == self.object.resource_version {
                        return Err(Stop::Failed(error));
                    }
                    if !read_again {
                        tracing::debug!(kind = %resource.kind, object = %self.object.key, "changed by another client");
                        return Err(Stop::Outdated);
                    }
                    self.object = found;
                }
            }
            tries += 1;
        }
    }
}
