//! What a pass publishes to a `ClusterVersion`, if anything changed: once when it starts and once when it has ended, or that it
//! could not start.

use std::collections::BTreeSet;

use billhook_engine::{Clusters, PreparedApply, PublishError, Starting, Status, Summary, recorded};
use billhook_objects::ObjectKey;
use billhook_payload::{
    State,
    cluster_version::{Facts, Progress, TaskError, fingerprint},
    preconditions::CHECK_FAILED,
};
use billhook_plan::{AppliedVersion, Failures, begin_version};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{failures::Words, passes::Passes};
use crate::{
    commands::payload::publish::{Basis, LAST_WRITE, Publication},
    error::{CommandError, Exit},
    session::Interrupts,
};

/// The publication of one pass.
pub(super) struct Published<'a> {
    publication: Publication<'a>,
    known: Known<'a>,
}

/// What is known of a pass.
struct Known<'a> {
    passes: &'a Passes<'a>,
    /// The history as the record has it.
    history: Vec<AppliedVersion>,
    state: State,
    failures: Vec<TaskError>,
    progress: Option<Progress>,
    awaited: Vec<ObjectKey>,
    /// The objects that are being deleted, if that is known.
    deleting: Option<Vec<ObjectKey>>,
    fingerprint: String,
    /// The number of the write that made the record.
    revision: u64,
}

impl<'a> Published<'a> {
    /// Reads the `ClusterVersion`, if the command publishes. That comes before the record is read.
    pub(super) async fn read(passes: &'a Passes<'a>, clusters: &Clusters) -> Result<Option<Self>, PublishError> {
        let Some(publisher) = &passes.publisher else { return Ok(None) };
        let known = Known {
            passes,
            history: Vec::new(),
            state: passes.state(&[]),
            failures: Vec::new(),
            progress: None,
            awaited: Vec::new(),
            deleting: None,
            fingerprint: fingerprint(&passes.content.payload, &passes.content.decisions),
            revision: 0,
        };
        Ok(Some(Self { publication: publisher.read(clusters).await?, known }))
    }

    /// Takes over what is planned, and confirms that it can be published. What a pass that another operation keeps from starting
    /// may publish does not matter.
    pub(super) async fn plan(
        &mut self,
        clusters: &Clusters,
        prepared: &PreparedApply,
        (words, deleting): (&Words<'_>, &BTreeSet<&ObjectKey>),
    ) -> Result<(), PublishError> {
        let Self { publication, known } = self;
        let version = known.passes.args.version.as_str();
        known.history.clone_from(&prepared.history);
        known.state = known.passes.state(&known.history);
        // What failed in a pass over another version says nothing about this one.
        if known.history.first().is_some_and(|last| last.version == version) {
            known.failures = words.recorded(&prepared.failures);
        }
        begin_version(&mut known.history, version, &clusters.now);
        known.deleting = Some(owned(deleting));
        known.revision = prepared.revision();
        match prepared.is_locked() {
            true => Ok(()),
            false => publication.check(clusters, &known.facts()).await,
        }
    }

    /// Publishes that the pass starts, unless it is stopped meanwhile.
    pub(super) async fn start(&mut self, starting: &Starting, stop: &CancellationToken) -> Result<(), PublishError> {
        let basis = if starting.is_locked { Basis::Lock } else { Basis::Revision(self.known.revision) };
        let facts = self.known.facts();
        tokio::select! {
            started = self.publication.start(&starting.clusters, &facts, basis) => started,
            () = stop.cancelled() => Ok(()),
        }
    }

    /// Publishes what the pass came to.
    pub(super) async fn end(
        mut self,
        (interrupts, clusters): (&mut Interrupts, &Clusters),
        words: &Words<'_>,
        summary: &Summary,
        deleting: &BTreeSet<&ObjectKey>,
    ) -> Result<(), CommandError> {
        // Another operation on the release publishes its own state.
        let Some(recorded) = summary.recorded.clone().filter(|_| !summary.lock_lost) else { return Ok(()) };
        let is_cut = matches!(summary.status, Status::Interrupted | Status::TimedOut);
        let total = words.total();
        let known = &mut self.known;
        (known.history, known.revision) = (recorded.history, recorded.revision);
        known.failures = words.recorded(&Failures::of(summary.failures()));
        if known.failures.is_empty() && summary.status == Status::Failed {
            known.failures.push(TaskError::new(summary.record_error.as_deref().unwrap_or("the pass failed")));
        }
        known.progress = is_cut.then(|| Progress { done: total.saturating_sub(summary.left.len()), total });
        known.awaited = summary.awaited().cloned().collect();
        known.deleting = Some(owned(deleting));
        let (facts, basis) = (self.known.facts(), Basis::Revision(self.known.revision));
        self.publication.end((interrupts, clusters), &facts, basis, is_cut).await
    }

    /// Publishes that the pass did not start, with what the record says. An interruption is no failure, and a command that is
    /// refused changes nothing. If this fails, too, the error that has kept the pass from starting is the one to report.
    pub(super) async fn refused(mut self, (interrupts, clusters): (&mut Interrupts, &Clusters), error: &CommandError) {
        let Known { passes, .. } = self.known;
        let is_refused = matches!(error.exit, Exit::Refused | Exit::Input) && passes.args.watch.is_none();
        if is_refused || error.exit == Exit::Unfinished || error.is_overtaken || error.unreachable {
            return;
        }
        let publish = async {
            let Some(recorded) = recorded(clusters, &passes.release).await? else { return Ok(()) };
            let known = &mut self.known;
            known.state = passes.state(&recorded.history);
            known.history = recorded.history;
            known.failures = vec![task_error(error)];
            self.publication.publish(clusters, &self.known.facts(), Basis::Revision(recorded.revision)).await
        };
        tokio::select! {
            published = timeout(LAST_WRITE, publish) => if let Ok(Err(error)) = published {
                passes.session.printer.warn(&format!("the error is not published: {error}"));
            },
            () = interrupts.next() => {}
        }
    }
}

impl Known<'_> {
    fn facts(&self) -> Facts<'_> {
        Facts {
            version: &self.passes.args.version,
            history: &self.history,
            state: self.state,
            failures: &self.failures,
            progress: self.progress,
            awaited: &self.awaited,
            deleting: self.deleting.as_deref(),
            has_overrides: !self.passes.settings.overrides.is_empty(),
            fingerprint: &self.fingerprint,
        }
    }
}

/// Returns what is published of an error.
fn task_error(error: &CommandError) -> TaskError {
    let message = error.text();
    match message.starts_with(CHECK_FAILED) {
        true => TaskError { reason: CHECK_FAILED.to_owned(), ..TaskError::new(message) },
        false => TaskError::new(message),
    }
}

fn owned(objects: &BTreeSet<&ObjectKey>) -> Vec<ObjectKey> {
    objects.iter().map(|&object| object.clone()).collect()
}
