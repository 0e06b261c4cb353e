//! `payload apply --cluster-version NAME`: publishes the state of a payload to a `ClusterVersion`.

use std::time::Duration;

use billhook_engine::{Clusters, PublishError, StatusTarget};
use billhook_objects::{GroupKind, ObjectKey, ReleaseName};
use billhook_payload::cluster_version::{Facts, GROUP, KIND, Live, PLURAL, VERSION};
use billhook_plan::Resource;
use tokio::time::timeout;

use crate::{
    error::{CommandError, Exit},
    session::{Interrupts, timestamp},
};

/// How long a status may take to be published after an interruption.
const LAST_WRITE: Duration = Duration::from_secs(10);

/// The `ClusterVersion` of a payload.
pub(super) struct Publisher {
    target: StatusTarget,
}

/// A `ClusterVersion` during a pass.
pub(super) struct Publication<'a> {
    publisher: &'a Publisher,
    clusters: &'a Clusters,
    live: Live,
}

impl Publisher {
    /// Publishes as the field manager of the release, so that two releases do not overwrite each other's status.
    pub(super) fn new(name: &str, release: &ReleaseName) -> Self {
        let kind = GroupKind::new(GROUP, KIND);
        let key = ObjectKey::new(kind.clone(), None, name);
        let resource = Resource { kind, version: VERSION.to_owned(), plural: PLURAL.to_owned(), namespaced: false };
        Self { target: StatusTarget { resource, key, field_manager: release.field_manager() } }
    }

    /// Reads the `ClusterVersion`, and publishes that a pass starts, if there are facts about that. If it changes nothing, `check`
    /// asks for the right to publish later.
    pub(super) async fn begin<'a>(
        &'a self,
        interrupts: &mut Interrupts,
        clusters: &'a Clusters,
        facts: Option<&Facts<'_>>,
        check: bool,
    ) -> Result<Publication<'a>, CommandError> {
        let work = async {
            let live = Live::read(&self.target.read(clusters).await?, &self.target.field_manager);
            let mut publication = Publication { publisher: self, clusters, live };
            if let Some(facts) = facts
                && !publication.publish(facts).await?
                && check
            {
                self.target.check(clusters).await?;
            }
            Ok(publication)
        };
        tokio::select! {
            begun = work => begun.map_err(|error| self.failed(&error, "nothing was applied")),
            () = interrupts.next() => Err(CommandError::new(Exit::Unfinished, "interrupted; nothing was applied")),
        }
    }

    fn failed(&self, error: &PublishError, consequence: &str) -> CommandError {
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
            PublishError::Failed(error) => {
                let unreachable = *error.kind() == billhook_cluster::ErrorKind::Unreachable;
                CommandError { unreachable, ..failed }
            }
        }
    }
}

impl Publication<'_> {
    /// Publishes what a pass came to. `is_cut` tells whether it was interrupted or reached its time limit: then not much time
    /// is left.
    pub(super) async fn end(
        mut self,
        interrupts: &mut Interrupts,
        facts: &Facts<'_>,
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
            published = timeout(limit, self.publish(facts)) => match published {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(error)) => Err(publisher.failed(&error, "the pass itself has ended as reported")),
                Err(_) => Err(unpublished("timed out")),
            },
            () = interrupts.next() => Err(unpublished("interrupted")),
        }
    }

    /// Publishes facts, and returns whether that was needed.
    async fn publish(&mut self, facts: &Facts<'_>) -> Result<bool, PublishError> {
        let now = timestamp();
        let now = now.round(jiff::Unit::Second).unwrap_or(now).to_string();
        let Some(patch) = self.live.patch(facts, &now) else { return Ok(false) };
        self.publisher.target.publish(self.clusters, &patch).await?;
        self.live.patched(&patch);
        Ok(true)
    }
}
