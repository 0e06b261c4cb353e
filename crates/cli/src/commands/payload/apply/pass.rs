//! One pass over the graph of a payload.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use billhook_engine::{
    ApplyInput, Clusters, DeploymentOrder, MissingNamespaces, ObjectState, PreparedApply, PublishError, ReleaseStatus,
    RunOptions, Starting, Unowned, Unrecorded, release_status,
};
use billhook_objects::{GroupKind, ObjectKey, Uid};
use billhook_payload::{Outcome, State, deletion_policy, graph, preconditions};
use billhook_plan::{AppliedVersion, ApplyAction, ApplyTask, DeletionState, Directives, RequestedDeletion};
use billhook_policy::ManifestPolicy;
use serde::Serialize;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{content::Content, failures::Words, passes::Passes, published::Published, told::Told};
use crate::{
    commands::{
        operate::{self, RunFlags},
        payload::{entries, status},
    },
    error::{CommandError, Exit},
    render::count,
    session::{Interrupts, interrupted},
};

/// One pass of a command.
pub(super) struct Turn {
    /// The number of the pass, from 0.
    pub(super) number: u64,
    pub(super) deadline: Option<Instant>,
    /// Stops the pass: no new requests are sent.
    pub(super) halt: CancellationToken,
    /// Whether groups that succeed are not mentioned.
    pub(super) quiet: bool,
}

/// What a pass came to.
pub(super) struct Passed {
    pub(super) end: End,
    pub(super) tally: Tally,
    /// Why that is not published.
    pub(super) unpublished: Option<CommandError>,
}

/// A pass that is about to start.
struct Ready<'a> {
    prepared: PreparedApply,
    remaining: Option<Duration>,
    published: Option<Published<'a>>,
}

/// How a pass ended.
pub(super) enum End {
    /// With this exit code, and nothing is being deleted.
    Final(Exit),
    /// Every manifest succeeded, and these objects are still being deleted.
    Pending(Vec<(ObjectKey, Uid)>),
}

/// The number of manifests by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) succeeded: usize,
    pub(super) failed: usize,
    pub(super) not_run: usize,
}

impl Passes<'_> {
    /// Makes one pass over the graph.
    pub(super) async fn pass(
        &self,
        interrupts: &mut Interrupts,
        clusters: &Clusters,
        turn: Turn,
    ) -> Result<Passed, CommandError> {
        let (session, args) = (self.session, self.args);
        let sent_before = if turn.number == 0 { BTreeMap::new() } else { clusters.requests() };
        let Ready { mut prepared, remaining, mut published } = self.ready(interrupts, clusters, &turn).await?;
        let state = self.state(&prepared.history);
        let deletions = std::mem::take(&mut prepared.plan.requested_deletions);
        if prepared.is_lost() {
            self.warn_of_lost_record(&deletions);
        }
        let words = Words::new(&self.content.payload, &self.content.decisions, &deletions);
        let requested: BTreeMap<ObjectKey, Uid> =
            prepared.plan.delete_steps().map(|step| (step.object.clone(), step.uid.clone())).collect();
        if state == State::Reconciling {
            self.tell_order(&prepared, turn.number);
        }
        let mut deleting = being_deleted(&deletions);
        let told = Told::new(session, &deletions, state, sent_before);
        let flags = RunFlags {
            timeout: remaining,
            force_conflicts: args.force_conflicts,
            quiet: turn.quiet,
            halt: turn.halt,
            ..RunFlags::default()
        };
        let work = async |mut options: RunOptions| {
            options.sink = told.tap(options.sink);
            let announce =
                async |starting: Starting| self.announce(turn.number, &mut published, starting, &options.stop).await;
            billhook_engine::apply_announced(clusters, prepared, &options, announce).await
        };
        let ran = operate::carry_out(session, interrupts, flags, work).await;
        if let Err(error) = &ran
            && let Some(published) = published.take()
        {
            published.refused((interrupts, clusters), error).await;
        }
        let exit = ran?;
        let Some(summary) = told.summary() else {
            return Ok(Passed { end: End::Final(exit), tally: Tally::default(), unpublished: None });
        };
        words.explain(&summary).iter().for_each(|line| session.printer.err(line));
        let failed = summary.failures().count();
        let left = summary.left.len();
        let tally = Tally { succeeded: words.total().saturating_sub(left), failed, not_run: left - failed };
        deleting.extend(&summary.requested);
        // A pass that was cut short reads nothing more.
        let is_read = exit == Exit::Done || (exit == Exit::Failed && published.is_some());
        let pending = if is_read { self.pending(clusters, &deleting, &requested).await } else { Ok(None) };
        if let (Exit::Done, Ok(Some(status))) = (exit, &pending) {
            self.report_pending(status);
        }
        if let (true, Ok(status)) = (is_read, &pending) {
            let objects = status.iter().flat_map(|status| &status.objects);
            deleting = objects.map(|object| &object.object).collect();
        }
        let unpublished = match published {
            Some(published) => published.end((interrupts, clusters), &words, &summary, &deleting).await.err(),
            None => None,
        };
        let end = match (exit, pending?) {
            (Exit::Done, Some(status)) => {
                let pending = status.objects.into_iter().filter_map(|object| Some((object.object, object.uid?)));
                End::Pending(pending.collect())
            }
            _ => End::Final(exit),
        };
        Ok(Passed { end, tally, unpublished })
    }

    /// Does everything that precedes the first write.
    async fn ready(
        &self,
        interrupts: &mut Interrupts,
        clusters: &Clusters,
        turn: &Turn,
    ) -> Result<Ready<'_>, CommandError> {
        let read = async { Ok(Published::read(self, clusters).await) };
        let read = interrupts.unless(turn.unless_halted(read)).await?;
        let mut published = self.needed(turn.number, read)?.flatten();
        let prepared = interrupts.unless(turn.unless_halted(self.prepare(clusters, turn.number))).await;
        let remaining = turn.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let guarded = prepared.and_then(|mut prepared| {
            if let Some(limit) = remaining {
                billhook_plan::warn_of_limit(&mut prepared.plan, limit);
            }
            operate::guard(self.session, &prepared.plan, None, self.args.yes).map(|()| prepared)
        });
        let prepared = match guarded {
            Ok(prepared) => prepared,
            Err(error) => {
                if let Some(published) = published {
                    published.refused((interrupts, clusters), &error).await;
                }
                return Err(error);
            }
        };
        if let Some(planned) = &mut published {
            let deletions = &prepared.plan.requested_deletions;
            let words = Words::new(&self.content.payload, &self.content.decisions, deletions);
            let deleting = being_deleted(deletions);
            let checked = async { Ok(planned.plan(clusters, &prepared, (&words, &deleting)).await) };
            let checked = interrupts.unless(turn.unless_halted(checked)).await?;
            if self.needed(turn.number, checked)?.is_none() {
                published = None;
            }
        }
        Ok(Ready { prepared, remaining, published })
    }

    /// Publishes that a pass starts.
    async fn announce(
        &self,
        number: u64,
        published: &mut Option<Published<'_>>,
        starting: Starting,
        stop: &CancellationToken,
    ) -> Result<(), CommandError> {
        let Some(starts) = published else { return Ok(()) };
        let started = starts.start(&starting, stop).await;
        if started.is_err() {
            *published = None;
        }
        self.needed(number, started).map(drop)
    }

    /// Returns what a pass needs in order to be published. If it fails, a pass of `--watch` after the first one is made
    /// nevertheless: whoever may write a `ClusterVersion` must not be able to stop the passes.
    fn needed<T>(&self, number: u64, result: Result<T, PublishError>) -> Result<Option<T>, CommandError> {
        let Some(publisher) = &self.publisher else { return Ok(result.ok()) };
        match result {
            Ok(done) => Ok(Some(done)),
            Err(error) if self.args.watch.is_some() && number > 0 => {
                self.session.printer.warn(&publisher.failed(&error, "the pass continues without it").text());
                Ok(None)
            }
            Err(error) => Err(publisher.failed(&error, "nothing was applied")),
        }
    }

    /// Plans a pass, and checks the preconditions of its version.
    async fn prepare(&self, clusters: &Clusters, pass: u64) -> Result<PreparedApply, CommandError> {
        let (args, Content { payload, decisions, .. }) = (self.args, &*self.content);
        let counting: Vec<usize> = decisions.counting().collect();
        let directives = counting.iter().enumerate().filter_map(|(n, at)| {
            Some((n, directives(&payload.entries[*at].manifest.key.kind, decisions.all[*at].outcome)?))
        });
        let graph_of = {
            let (content, version) = (Arc::clone(&self.content), args.version.clone());
            Box::new(move |history: &[AppliedVersion]| {
                graph(&content.payload, &content.decisions, State::of(&entries(history), &version), pass)
            })
        };
        let missing = if args.create_namespace { MissingNamespaces::Create } else { MissingNamespaces::Refuse };
        let manifests = counting.iter().map(|at| payload.entries[*at].manifest.clone()).collect();
        let input = ApplyInput {
            directives: directives.collect(),
            policy: Some(self.policy.clone().unwrap_or_else(|| deletion_policy(payload, decisions))),
            unrecorded: Unrecorded::Swept,
            unowned: if args.adopt { Unowned::Take } else { Unowned::Refuse },
            max_deletions: args.max_deletions,
            order: DeploymentOrder::Graph(graph_of),
            version: Some(args.version.clone()),
            missing_namespaces: missing,
            ..ApplyInput::new(self.release.clone(), manifests)
        };
        let prepared = billhook_engine::prepare_apply(clusters, input).await?;
        self.check_preconditions(clusters, &prepared).await?;
        Ok(prepared)
    }

    /// Refuses a new version whose preconditions are not met, unless it is forced.
    async fn check_preconditions(&self, clusters: &Clusters, prepared: &PreparedApply) -> Result<(), CommandError> {
        let history = entries(&prepared.history);
        if history.first().is_none_or(|current| current.version == self.args.version) {
            return Ok(());
        }
        let status = release_status(clusters, &self.release).await?;
        let upgradeable = status::upgradeable(&status, &self.settings);
        // An object that an earlier version deleted, and whose manifest is still there.
        let is_leftover = |of: &&RequestedDeletion| {
            let is_deleted = of.deleted_before.is_some() || of.requested;
            of.state == DeletionState::NotFound && is_deleted && !of.dropped
        };
        let leftover = prepared.plan.requested_deletions.iter().filter(is_leftover);
        let leftover: Vec<ObjectKey> = leftover.map(|deletion| deletion.object.clone()).collect();
        let change = preconditions::Change {
            history: &history,
            version: &self.args.version,
            upgradeable: upgradeable.as_ref(),
            leftover: &leftover,
        };
        let Some(verdict) = preconditions::summarize(&preconditions::check(&change), self.args.force) else {
            return Ok(());
        };
        if verdict.blocks {
            let problem = format!("{}: {}; nothing was changed", preconditions::CHECK_FAILED, verdict.message);
            return Err(CommandError::new(Exit::Refused, problem).hint("apply the version anyway with --force"));
        }
        self.session.printer.warn(&verdict.message);
        Ok(())
    }

    /// Reads which objects are still being deleted, with what blocks each. `requested` are the UIDs of those whose deletion this
    /// pass has requested: another object may have been created under the name since.
    async fn pending(
        &self,
        clusters: &Clusters,
        deleting: &BTreeSet<&ObjectKey>,
        requested: &BTreeMap<ObjectKey, Uid>,
    ) -> Result<Option<ReleaseStatus>, CommandError> {
        if deleting.is_empty() {
            return Ok(None);
        }
        let mut status = release_status(clusters, &self.release).await?;
        status.objects.retain(|of| {
            let is_same = || requested.get(&of.object).is_some_and(|uid| of.uid.as_ref() == Some(uid));
            deleting.contains(&of.object) && (of.state == ObjectState::Deleting || is_same())
        });
        Ok(Some(status).filter(|status| !status.objects.is_empty()))
    }

    /// Tells in which order components are reconciled, if that makes a difference.
    fn tell_order(&self, prepared: &PreparedApply, seed: u64) {
        let is_sent = |task: &ApplyTask| !matches!(task.action, ApplyAction::Unchanged | ApplyAction::Await);
        let (session, version) = (self.session, &self.args.version);
        let text = format!("reconciling {version}, order by seed {seed}");
        if session.json() {
            session.printer.json_line(&Order { event: "payload-order", version, seed, text });
        } else if session.global.verbose > 0 || prepared.plan.apply_tasks().any(is_sent) {
            session.printer.err(&text);
        }
    }

    /// Without a record the versions before are not known, so the pass installs, which deletes nothing.
    fn warn_of_lost_record(&self, deletions: &[RequestedDeletion]) {
        let left = deletions.iter().filter(|deletion| deletion.state == DeletionState::Left).count();
        if left > 0 {
            let (release, objects) = (&self.release, count(left, "object"));
            self.session.printer.warn(&format!(
                "the record of release {release} was lost: this pass installs, and leaves {objects} alone whose deletion is \
                 requested; the next update deletes them if their manifests still request it"
            ));
        }
    }

    /// Lists the deletions that are still pending.
    fn report_pending(&self, status: &ReleaseStatus) {
        let printer = &self.session.printer;
        if self.session.json() {
            printer.json_line(&Pending { event: "deletions-pending", deletions: status::deletions(status) });
        } else {
            status::deletion_lines(status).iter().for_each(|line| printer.err(line));
        }
    }
}

impl Turn {
    /// Does work that changes nothing, and abandons it when the pass is stopped.
    pub(super) async fn unless_halted<T>(
        &self,
        work: impl Future<Output = Result<T, CommandError>>,
    ) -> Result<T, CommandError> {
        tokio::select! {
            done = work => done,
            () = self.halt.cancelled() => Err(interrupted()),
        }
    }
}

/// Returns the objects that were being deleted when the pass was planned.
fn being_deleted(deletions: &[RequestedDeletion]) -> BTreeSet<&ObjectKey> {
    // An object that never belonged to the release is none of its deletions.
    let is_deleting =
        |deletion: &&RequestedDeletion| deletion.recorded && matches!(deletion.state, DeletionState::Deleting { .. });
    deletions.iter().filter(is_deleting).map(|deletion| &deletion.object).collect()
}

/// Returns the instructions for the object of a manifest.
fn directives(kind: &GroupKind, outcome: Outcome) -> Option<Directives> {
    match outcome {
        Outcome::CreatedOnly => {
            Some(Directives { policy: ManifestPolicy::Immutable, leave_others: true, ..Directives::default() })
        }
        // The operator itself may create it first.
        _ if kind.is("config.openshift.io", "ClusterOperator") => {
            Some(Directives { adopt: true, ..Directives::default() })
        }
        _ => None,
    }
}

/// The order of a pass that reconciles.
#[derive(Serialize)]
struct Order<'a> {
    event: &'static str,
    version: &'a str,
    seed: u64,
    text: String,
}

/// The deletions that are pending after a pass.
#[derive(Serialize)]
struct Pending<'a> {
    event: &'static str,
    deletions: Vec<status::Deletion<'a>>,
}
