//! The default force deletion, for actuators that declare what belongs to an object.

use std::panic::AssertUnwindSafe;

use billhook_cluster::{DeleteAnswer, DeleteOptions, RemoveAnswer};
use futures::FutureExt as _;
use tokio::time::timeout;

use crate::{
    actuator::{Actuator, Outcome, SeedObject},
    context::Context,
    error::ActuatorError,
    gardener::Cluster,
};

/// How often a removal starts again because another client has changed or recreated the object.
const TRIES: usize = 5;

/// See [`Actuator::force_delete`].
pub(crate) async fn force_delete<A: Actuator + ?Sized>(
    actuator: &A,
    context: &Context,
    object: &A::Object,
    cluster: &Cluster,
) -> Result<Outcome, ActuatorError> {
    let grace = context.force_delete_grace;
    let delete = AssertUnwindSafe(async { actuator.delete(context, object, cluster).await }).catch_unwind();
    let deleted = match timeout(grace, delete).await {
        Ok(Ok(Ok(outcome))) => Ok(outcome),
        Ok(Ok(Err(error))) => Err(error.after("delete failed")),
        Ok(Err(_panic)) => Err(ActuatorError::new("delete panicked")),
        Err(_) => Err(ActuatorError::new(format!("delete did not end within {grace:?}"))),
    };
    let outcome = match &deleted {
        Ok(outcome) => outcome.clone(),
        Err(problem) => {
            let mut orphaned = actuator.external(object, cluster);
            if orphaned.is_empty() {
                orphaned.push("whatever delete has not removed outside the seed".to_owned());
            }
            Outcome { description: problem.to_string(), orphaned, ..Outcome::default() }
        }
    };
    // First, because `delete` may find the rest by these objects: after a crash, the next one would find nothing.
    context.report_orphaned(&outcome).await;
    let mut rejected = Vec::new();
    for owned in actuator.seed_objects(object, cluster) {
        rejected.extend(context.remove_by_force(&owned).await.err());
    }
    if rejected.is_empty() {
        return Ok(outcome);
    }
    Err(ActuatorError::joined(deleted.err().into_iter().chain(rejected)))
}

impl Context {
    /// Reports what an outcome names as orphaned, in the log and in an Event, which outlives the object.
    ///
    /// The controller does this after each successful call, and the default [`Actuator::force_delete`] before it removes
    /// anything. One of your own calls this before it removes what tells where the rest is: if the process ended after that,
    /// the next call could not name it any more. Does nothing in a context made by [`Context::new`].
    pub async fn report_orphaned(&self, outcome: &Outcome) {
        if let Some(subject) = self.subject.as_ref().filter(|_| !outcome.orphaned.is_empty()) {
            subject.report_orphaned(&self.seed, &outcome.text()).await;
        }
    }

    /// Deletes an object of the seed and removes all of its finalizers. Succeeds if the object or its kind does not exist.
    /// The finalizers of a Namespace's content are not removed.
    ///
    /// # Errors
    ///
    /// When the API server rejects a request or does not answer.
    pub async fn remove_by_force(&self, object: &SeedObject) -> Result<(), ActuatorError> {
        let (resource, key) = (&object.resource, object.key());
        for _ in 0..TRIES {
            let Some(mut found) = self.seed.get_meta(resource, &key).await? else { return Ok(()) };
            if !found.deleting {
                let options = DeleteOptions { uid: Some(found.uid.clone()), ..DeleteOptions::default() };
                match self.seed.delete(resource, &key, &options).await? {
                    DeleteAnswer::Accepted { finalizers, deletion: true, .. } => {
                        (found.deleting, found.finalizers) = (true, finalizers);
                    }
                    DeleteAnswer::OtherUid | DeleteAnswer::Changed => continue,
                    DeleteAnswer::Accepted { .. } | DeleteAnswer::Done | DeleteAnswer::NotFound => return Ok(()),
                }
            }
            let finalizers = found.finalizers.clone();
            if self.seed.remove_finalizers(resource, &found, &finalizers).await? != RemoveAnswer::Changed {
                return Ok(());
            }
        }
        Err(ActuatorError::new(format!("failed to remove {object}: other clients keep changing it")))
    }
}
