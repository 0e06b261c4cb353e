//! What a pass publishes to a `ClusterVersion`: once when it starts and once when it has ended, if anything changed.

use std::collections::BTreeSet;

use billhook_engine::{Clusters, PreparedApply, Status, Summary};
use billhook_objects::ObjectKey;
use billhook_payload::{
    State,
    cluster_version::{Facts, Progress, fingerprint},
};
use billhook_plan::{AppliedVersion, Failures, begin_version, complete_version};

use super::{failures::Words, pass::Passes};
use crate::{commands::payload::publish::Publication, error::CommandError, session::Interrupts};

/// The publication of one pass.
pub(super) struct Published<'a> {
    publication: Publication<'a>,
    clusters: &'a Clusters,
    /// The history as the record has it during the pass.
    history: Vec<AppliedVersion>,
    state: State,
    has_overrides: bool,
    fingerprint: String,
}

impl<'a> Published<'a> {
    /// Publishes that a pass starts, if the command publishes.
    pub(super) async fn begin(
        passes: &'a Passes<'_>,
        interrupts: &mut Interrupts,
        clusters: &'a Clusters,
        prepared: &PreparedApply,
        (words, deleting): (&Words<'_>, &BTreeSet<&ObjectKey>),
        number: u64,
    ) -> Result<Option<Self>, CommandError> {
        let Some(publisher) = &passes.publisher else { return Ok(None) };
        let version = passes.args.version.as_str();
        let mut history = prepared.history.clone();
        // What failed in a pass over another version says nothing about this one.
        let is_same = history.first().is_some_and(|last| last.version == version);
        let failures = if is_same { words.recorded(&prepared.failures) } else { Vec::new() };
        let state = passes.state(&history);
        begin_version(&mut history, version, &clusters.now);
        let has_overrides = !passes.settings.overrides.is_empty();
        let fingerprint = fingerprint(&passes.content.payload, &passes.content.decisions);
        let facts = Facts {
            history: &history,
            state,
            failures: &failures,
            progress: None,
            deleting: &owned(deleting),
            has_overrides,
            fingerprint: &fingerprint,
        };
        // A pass that another operation keeps from starting must not publish anything. Later passes have the rights of the first
        // one.
        let facts = (!prepared.is_locked()).then_some(&facts);
        let publication = publisher.begin(interrupts, clusters, facts, number == 0).await?;
        Ok(Some(Self { publication, clusters, history, state, has_overrides, fingerprint }))
    }

    /// Publishes what a pass came to.
    pub(super) async fn end(
        mut self,
        interrupts: &mut Interrupts,
        words: &Words<'_>,
        summary: &Summary,
        deleting: &BTreeSet<&ObjectKey>,
    ) -> Result<(), CommandError> {
        // Another operation on the release publishes its own state.
        if summary.lock_lost {
            return Ok(());
        }
        if summary.status == Status::Done {
            complete_version(&mut self.history, &self.clusters.now);
        }
        let mut failures = words.recorded(&Failures::of(summary.failures()));
        if failures.is_empty() && summary.status == Status::Failed {
            failures.push(summary.record_error.clone().unwrap_or_else(|| "the pass failed".to_owned()));
        }
        let is_cut = matches!(summary.status, Status::Interrupted | Status::TimedOut);
        let total = words.total();
        let progress = is_cut.then(|| Progress { done: total.saturating_sub(summary.left.len()), total });
        let facts = Facts {
            history: &self.history,
            state: self.state,
            failures: &failures,
            progress,
            deleting: &owned(deleting),
            has_overrides: self.has_overrides,
            fingerprint: &self.fingerprint,
        };
        self.publication.end(interrupts, &facts, is_cut).await
    }
}

fn owned(objects: &BTreeSet<&ObjectKey>) -> Vec<ObjectKey> {
    objects.iter().map(|&object| object.clone()).collect()
}
