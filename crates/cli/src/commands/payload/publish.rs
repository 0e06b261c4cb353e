//! `payload apply --cluster-version NAME`: publishes the state of a payload to a `ClusterVersion`.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use billhook_engine::{Clusters, PublishError, StatusTarget, recorded};
use billhook_objects::{GroupKind, ObjectKey, ReleaseName};
use billhook_payload::cluster_version::{Facts, GROUP, KIND, Live, PLURAL, VERSION};
use billhook_plan::Resource;
use tokio::time::timeout;

use crate::{
    clock::now,
    error::{CommandError, Exit},
    session::Interrupts,
};

/// How long a status may take to be published after an interruption, or after a pass that did not start.
pub(super) const LAST_WRITE: Duration = Duration::from_secs(10);

/// How often a status is published while other clients change the object.
const TRIES: usize = 4;

/// The `ClusterVersion` of a payload.
pub(super) struct Publisher {
    target: StatusTarget,
    release: ReleaseName,
    /// Whether something was published, or the right to do so was confirmed.
    is_confirmed: AtomicBool,
}

/// A `ClusterVersion` during a pass.
pub(super) struct Publication<'a> {
    publisher: &'a Publisher,
    live: Live,
}

/// Why a pass may publish.
#[derive(Clone, Copy, Debug)]
pub(super) enum Basis {
    /// It has locked the release.
    Lock,
    /// No other pass has started since this write of the record.
    Revision(u64),
}

impl Publisher {
    /// Publishes as the field manager of the release, so that two releases do not overwrite each other's status.
    pub(super) fn new(name: &str, release: &ReleaseName) -> Self {
        let kind = GroupKind::new(GROUP, KIND);
        let key = ObjectKey::new(kind.clone(), None, name);
        let resource = Resource { kind, version: VERSION.to_owned(), plural: PLURAL.to_owned(), namespaced: false };
        let target = StatusTarget { resource, key, field_manager: release.field_manager() };
        Self { target, release: release.clone(), is_confirmed: AtomicBool::new(false) }
    }

    /// Reads the `ClusterVersion`.
    pub(super) async fn read(&self, clusters: &Clusters) -> Result<Publication<'_>, PublishError> {
        Ok(Publication { publisher: self, live: self.live(clusters).await? })
    }

    async fn live(&self, clusters: &Clusters) -> Result<Live, PublishError> {
        Ok(Live::read(&self.target.read(clusters).await?, &self.target.field_manager))
    }

    /// Returns the error of a command that cannot publish, with the consequence.
    pub(super) fn failed(&self, error: &PublishError, consequence: &str) -> CommandError {
        let name = &self.target.key.name;
        let problem = format!("the status cannot be published to the {KIND} {name}: {error}; {consequence}");
        let failed = CommandError::new(Exit::Failed, problem);
        match error {
            PublishError::NotServed(_) | PublishError::Missing(_) => failed.hint(
                "create the ClusterVersion, or omit --cluster-version and clusterVersion in the config file",
            ),
            PublishError::Forbidden { .. } => failed.hint(format!(
                "grant the verb get for {PLURAL} and the verb patch for {PLURAL}/status in the API group {GROUP}"
            )),
            PublishError::Owned { .. } => failed.hint(
                "publish to a ClusterVersion whose status no other program writes; billhook never takes over its fields",
            ),
            PublishError::Changed(_) => failed,
            PublishError::Failed(error) => {
                let unreachable = *error.kind() == billhook_cluster::ErrorKind::Unreachable;
                CommandError { unreachable, ..failed }
            }
        }
    }
}

impl Publication<'_> {
    /// Confirms that facts can be published, before anything is changed, unless that is known.
    pub(super) async fn check(&self, clusters: &Clusters, facts: &Facts<'_>) -> Result<(), PublishError> {
        let Self { publisher: Publisher { target, is_confirmed, .. }, live } = self;
        if is_confirmed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let checked = match live.patch(facts, &now()).filter(|_| live.is_shared()) {
            Some(patch) => target.publish(clusters, &patch, true).await.map(drop),
            None => target.check(clusters).await,
        };
        match checked {
            Ok(()) => is_confirmed.store(true, Ordering::Relaxed),
            // It will be read again.
            Err(PublishError::Changed(_)) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Publishes that a pass starts. If that changes nothing, confirms that it could.
    pub(super) async fn start(
        &mut self,
        clusters: &Clusters,
        facts: &Facts<'_>,
        basis: Basis,
    ) -> Result<(), PublishError> {
        self.publish(clusters, facts, basis).await?;
        self.check(clusters, facts).await
    }

    /// Publishes what a pass came to. `is_cut` tells whether it was interrupted or reached its time limit: then not much time
    /// is left.
    pub(super) async fn end(
        mut self,
        (interrupts, clusters): (&mut Interrupts, &Clusters),
        facts: &Facts<'_>,
        basis: Basis,
        is_cut: bool,
    ) -> Result<(), CommandError> {
        let publisher = self.publisher;
        let limit = if is_cut { LAST_WRITE } else { Duration::MAX };
        let unpublished = |why: &str| {
            let name = &publisher.target.key.name;
            let problem = format!("{why}: what the pass came to is not published to the {KIND} {name}");
            CommandError::new(Exit::Failed, problem).hint("run the same command again to publish it")
        };
        tokio::select! {
            published = timeout(limit, self.publish(clusters, facts, basis)) => match published {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) => Err(publisher.failed(&error, "the pass itself has ended as reported")),
                Err(_) => Err(unpublished("timed out")),
            },
            () = interrupts.next() => Err(unpublished("interrupted")),
        }
    }

    /// Publishes facts if they differ from what is published, unless another pass has started since. The record of the release
    /// is read after the object: so either that pass is seen there, or what it publishes makes this write a conflict.
    pub(super) async fn publish(
        &mut self,
        clusters: &Clusters,
        facts: &Facts<'_>,
        basis: Basis,
    ) -> Result<(), PublishError> {
        let Publisher { target, release, is_confirmed } = self.publisher;
        let now = now();
        for attempt in 0..TRIES {
            if attempt > 0 {
                self.live = self.publisher.live(clusters).await?;
            }
            let Some(patch) = self.live.patch(facts, &now) else { return Ok(()) };
            if let Basis::Revision(revision) = basis
                && recorded(clusters, release).await?.is_none_or(|now| now.revision != revision)
            {
                return Ok(());
            }
            match target.publish(clusters, &patch, false).await {
                Ok(version) => {
                    self.live.patched(&patch, version);
                    is_confirmed.store(true, Ordering::Relaxed);
                    return Ok(());
                }
                Err(PublishError::Changed(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(PublishError::Changed(target.key.clone()))
    }
}
