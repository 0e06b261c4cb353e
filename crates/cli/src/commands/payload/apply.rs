//! `billhook payload apply`: makes a pass over a release payload.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use billhook_engine::{
    ApplyInput, Clusters, Event, MissingNamespaces, ObjectState, PreparedApply, RunOptions, Sink, Status, Summary,
    release_status,
};
use billhook_objects::{GroupKind, ObjectKey, ReleaseName};
use billhook_payload::{
    Decisions, Outcome, Payload, Settings, State, deletion_policy, graph,
    messages::{self, DeleteMessage, DeleteMessageKind, Known, Observed, Upgradeable},
    preconditions,
};
use billhook_plan::{DeletionState, Directives, RequestedDeletion, Unlabelled, Wait};
use billhook_policy::{GoDuration, ManifestPolicy, Policy, Propagation, UpdateStrategy};
use clap::Args;
use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::{SettingsArgs, decide, entries, open, parse, read_folder, rfc3339, status, warn_unused};
use crate::{
    commands::operate::{self, RunFlags},
    error::{CommandError, Exit},
    input,
    output::Printer,
    session::{Interrupts, Session, timestamp},
};

/// The first pause before another pass that looks whether requested deletions are done; each is twice as long as the last one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest of these pauses.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Install or update a release payload in run-level order, and request the deletions that its annotations ask for
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PayloadApplyArgs {
    /// Apply the manifests of this directory
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The version of the payload
    #[arg(long)]
    version: String,
    /// Apply the version although its preconditions are not met
    #[arg(long)]
    force: bool,
    /// Repeat until all requested deletions are done
    #[arg(long)]
    to_completion: bool,
    #[command(flatten)]
    settings: SettingsArgs,
    /// Use this policy file to delete the release later [default: groups in reverse run-level order]
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Adopt existing objects that belong to no release, and take over those whose label or record is missing
    #[arg(long)]
    adopt: bool,
    /// Create missing namespaces, which remain when the release is deleted
    #[arg(long)]
    create_namespace: bool,
    /// Take over conflicting fields from other field managers
    #[arg(long)]
    force_conflicts: bool,
    /// Change nothing if more than N objects are deleted, not even with --yes
    #[arg(long, value_name = "N")]
    max_deletions: Option<usize>,
    /// Time limit for the whole operation; 0 means no limit [default: 10m]
    #[arg(long, value_name = "DURATION")]
    timeout: Option<GoDuration>,
    /// Carry out the plan even if it has dangerous notes
    #[arg(long, short)]
    yes: bool,
    /// Take over from another operation that works on the release, which then stops [default: refuse]
    #[arg(long)]
    take_over: bool,
}

const EXAMPLES: &str = "\
Examples:
  billhook payload apply release/ --version 4.20.0
  billhook payload apply release/ --version 4.21.0 --to-completion --timeout 30m

Exit codes: 0 if all manifests succeeded and nothing is being deleted, 3 if requested deletions are pending.";

/// What all passes of a command share.
struct Passes<'a> {
    session: &'a Session,
    args: &'a PayloadApplyArgs,
    release: ReleaseName,
    payload: Payload,
    decisions: Decisions,
    settings: Settings,
    policy: Option<Policy>,
    deadline: Option<Instant>,
}

/// How a pass ended.
enum End {
    /// With this exit code, and nothing is being deleted.
    Final(Exit),
    /// Every manifest succeeded, and objects are still being deleted.
    Pending,
}

/// Runs the command.
pub(super) async fn run(
    session: &Session,
    interrupts: &mut Interrupts,
    args: &PayloadApplyArgs,
) -> Result<Exit, CommandError> {
    let chosen = args.settings.read(session)?;
    if chosen.cluster_version.is_some() {
        let problem = "publishing to a ClusterVersion is not implemented yet";
        return Err(CommandError::input(problem).hint("omit --cluster-version, or clusterVersion in the config file"));
    }
    let (payload, problems) = parse(&read_folder(session, &args.folder)?);
    let decisions = decide(&payload, problems, &chosen.settings)?;
    let policy = input::policy(session, args.policy.as_ref())?;
    warn_unused(session, &payload, &chosen.settings);
    let (mut clusters, release) = interrupts.unless(open(session, &chosen)).await?;
    let settings = chosen.settings;
    if args.take_over {
        interrupts.unless(operate::take_over(session, &clusters, &release)).await?;
    }
    let limit = input::time_limit(args.timeout, None);
    let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    let passes = Passes { session, args, release, payload, decisions, settings, policy, deadline };
    let mut pause = FIRST_PAUSE;
    for pass in 0.. {
        match passes.pass(interrupts, &clusters, pass).await? {
            End::Final(exit) => return Ok(exit),
            End::Pending if !args.to_completion => return Ok(Exit::Unfinished),
            End::Pending => {}
        }
        if deadline.is_some_and(|deadline| Instant::now() + pause >= deadline) {
            session.printer.err("timed out: requested deletions are pending; run the same command again to resume");
            return Ok(Exit::Unfinished);
        }
        tokio::select! {
            () = sleep(pause) => {}
            () = interrupts.next() => return Ok(Exit::Unfinished),
        }
        pause = LONGEST_PAUSE.min(pause * 2);
        let now = timestamp();
        clusters.now = now.round(jiff::Unit::Second).unwrap_or(now).to_string();
    }
    Ok(Exit::Unfinished)
}

impl Passes<'_> {
    /// Makes one pass over the graph.
    async fn pass(&self, interrupts: &mut Interrupts, clusters: &Clusters, number: u64) -> Result<End, CommandError> {
        let (session, args) = (self.session, self.args);
        let prepared = interrupts.unless(async { self.prepare(clusters, number).await }).await;
        // Later passes have a lock of their own.
        let given_back = Some(&self.release).filter(|_| args.take_over && number == 0);
        operate::give_back(clusters, given_back, prepared.is_err()).await;
        let mut prepared = prepared?;
        let remaining = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if let Some(limit) = remaining {
            billhook_plan::warn_of_limit(&mut prepared.plan, limit);
        }
        let guarded = operate::guard(session, &prepared.plan, args.yes);
        operate::give_back(clusters, given_back, guarded.is_err()).await;
        guarded?;
        let state = State::of(&entries(&prepared.history), &args.version);
        let deletions = std::mem::take(&mut prepared.plan.requested_deletions);
        let told = Told::new(session, &deletions, state);
        let flags = RunFlags { timeout: remaining, force_conflicts: args.force_conflicts, confirmed: false };
        let work = async |mut options: RunOptions| {
            options.sink = told.tap(options.sink);
            billhook_engine::apply(clusters, prepared, &options).await
        };
        let exit = operate::carry_out(session, interrupts, flags, work).await?;
        let Some(summary) = told.summary() else { return Ok(End::Final(exit)) };
        self.explain(&summary, &deletions);
        if exit != Exit::Done {
            return Ok(End::Final(exit));
        }
        let deleting = |deletion: &&RequestedDeletion| matches!(deletion.state, DeletionState::Deleting { .. });
        let deleting = deletions.iter().filter(deleting).map(|deletion| &deletion.object);
        let pending: BTreeSet<&ObjectKey> = deleting.chain(&summary.requested).collect();
        self.report_pending(clusters, pending).await
    }

    /// Plans a pass, and checks the preconditions of its version.
    async fn prepare(&self, clusters: &Clusters, pass: u64) -> Result<PreparedApply, CommandError> {
        let Self { args, payload, decisions, .. } = self;
        let counting: Vec<usize> = decisions.counting().collect();
        let directives = counting.iter().enumerate().filter_map(|(n, at)| {
            Some((n, directives(&payload.entries[*at].manifest.key.kind, decisions.all[*at].outcome)?))
        });
        let graph_of = {
            let (payload, decisions, version) = (payload.clone(), decisions.clone(), args.version.clone());
            Box::new(move |history: &[billhook_plan::AppliedVersion]| {
                graph(&payload, &decisions, State::of(&entries(history), &version), pass)
            })
        };
        let missing = if args.create_namespace { MissingNamespaces::Create } else { MissingNamespaces::Refuse };
        let input = ApplyInput {
            release: self.release.clone(),
            is_new: false,
            manifests: counting.iter().map(|at| payload.entries[*at].manifest.clone()).collect(),
            namespace: Some(self.release.namespace().to_owned()),
            directives: directives.collect(),
            strategy: UpdateStrategy::ServerSide,
            inherited: Vec::new(),
            policy: Some(self.policy.clone().unwrap_or_else(|| deletion_policy(payload, decisions))),
            adopt: args.adopt,
            prune: false,
            max_deletions: args.max_deletions,
            require_objects: true,
            sweep: true,
            graph: Some(graph_of),
            version: Some(args.version.clone()),
            wait: Wait::Nothing,
            missing_namespaces: missing,
            own_namespaces: false,
            unlabelled: if args.adopt { Unlabelled::Take } else { Unlabelled::Refuse },
            propagation: Propagation::Background,
            notes: Vec::new(),
            catalog: None,
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
        let is_leftover = |deletion: &&RequestedDeletion| {
            deletion.state == DeletionState::NotFound && deletion.deleted_before.is_some()
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
        let label = self.session.printer.err_paint().warn("warning:");
        self.session.printer.err(&format!("{label} {}", verdict.message));
        Ok(())
    }

    /// Prints what failed, in the words of the reference.
    fn explain(&self, summary: &Summary, deletions: &[RequestedDeletion]) {
        let deleted: BTreeSet<&ObjectKey> = deletions.iter().map(|deletion| &deletion.object).collect();
        let counting: Vec<usize> = self.decisions.counting().collect();
        let key = |at: &usize| &self.payload.entries[*at].manifest.key;
        let positions: BTreeMap<&ObjectKey, usize> =
            counting.iter().enumerate().map(|(n, at)| (key(at), n + 1)).collect();
        let position = |object: &ObjectKey| {
            let unplaced = ObjectKey { namespace: None, ..object.clone() };
            positions.get(object).or_else(|| positions.get(&unplaced)).copied().unwrap_or_default()
        };
        // What was waited for when the user interrupted it has not failed.
        let is_interrupted = summary.status == Status::Interrupted;
        let mut failed: Vec<(usize, String)> = Vec::new();
        for left in &summary.left {
            let cause = left.blockers.iter().find_map(|blocker| match blocker {
                billhook_engine::Blocker::Refused { message, .. } => Some(message.as_str()),
                billhook_engine::Blocker::NotReady { reason } if !is_interrupted => Some(reason.as_str()),
                _ => None,
            });
            let at = position(&left.object);
            // The reference prints what it finds of an unhealthy object alone.
            failed.extend(left.blockers.iter().find_map(|blocker| match blocker {
                billhook_engine::Blocker::Unhealthy { message, .. } if !is_interrupted => Some((at, message.clone())),
                _ => None,
            }));
            let Some(cause) = cause else { continue };
            let cause = match deleted.contains(&left.object) {
                true => messages::delete_failed(&left.object, cause),
                false => cause.to_owned(),
            };
            failed.push((at, messages::could_not_update(&left.object, at, counting.len(), cause)));
        }
        failed.sort();
        failed.iter().for_each(|(_, line)| self.session.printer.err(line));
        if let Some(incomplete) = summary.incomplete.as_ref().filter(|_| summary.status == Status::Interrupted) {
            let first = &incomplete.object;
            let line = messages::incomplete(incomplete.nodes, first, position(first), counting.len());
            self.session.printer.err(&line);
        }
    }

    /// Lists the deletions that are still pending, with what blocks each.
    async fn report_pending(&self, clusters: &Clusters, pending: BTreeSet<&ObjectKey>) -> Result<End, CommandError> {
        if pending.is_empty() {
            return Ok(End::Final(Exit::Done));
        }
        let mut status = release_status(clusters, &self.release).await?;
        status.objects.retain(|o| pending.contains(&o.object) && o.state != ObjectState::Missing);
        if status.objects.is_empty() {
            return Ok(End::Final(Exit::Done));
        }
        let printer = &self.session.printer;
        if self.session.json() {
            printer.json_line(&Pending { event: "deletions-pending", deletions: status::deletions(&status) });
        } else {
            status::deletion_lines(&status).iter().for_each(|line| printer.err(line));
        }
        Ok(End::Pending)
    }
}

/// The deletions that are pending after a pass.
#[derive(Serialize)]
struct Pending<'a> {
    event: &'static str,
    deletions: Vec<status::Deletion<'a>>,
}

/// Prints the messages of the reference about deletions: what was found at once, and requests as they are sent.
struct Told {
    printer: Printer,
    json: bool,
    /// The messages of objects whose deletion is requested.
    requests: BTreeMap<ObjectKey, DeleteMessage>,
    summary: Arc<Mutex<Option<Summary>>>,
}

/// A message as a JSON line.
#[derive(Serialize)]
struct Line<'a> {
    event: &'static str,
    #[serde(flatten)]
    message: &'a DeleteMessage,
    text: String,
}

impl Told {
    fn new(session: &Session, deletions: &[RequestedDeletion], state: State) -> Self {
        let mut told = Self {
            printer: session.printer.clone(),
            json: session.json(),
            requests: BTreeMap::new(),
            summary: Arc::default(),
        };
        for deletion in deletions {
            let Some(message) = message(deletion, state) else { continue };
            if message.kind == DeleteMessageKind::Requested {
                told.requests.insert(message.object.clone(), message);
            } else {
                tell(&told.printer, told.json, &message);
            }
        }
        told
    }

    /// Returns a sink that prints a message for each request to delete, and keeps the summary.
    fn tap(&self, sink: Sink) -> Sink {
        let (printer, json, requests) = (self.printer.clone(), self.json, self.requests.clone());
        let summary = Arc::clone(&self.summary);
        Arc::new(move |event| {
            if let Event::Deleting { object, .. } = &event
                && let Some(message) = requests.get(object)
            {
                tell(&printer, json, message);
            }
            if let Event::Finished(done) = &event {
                *summary.lock().unwrap_or_else(PoisonError::into_inner) = Some(done.clone());
            }
            sink(event);
        })
    }

    fn summary(&self) -> Option<Summary> {
        self.summary.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

fn tell(printer: &Printer, json: bool, message: &DeleteMessage) {
    let text = message.to_string();
    match (json, message.is_warning()) {
        (true, _) => printer.json_line(&Line { event: "payload-deletion", message, text }),
        (false, true) => printer.err(&format!("{} {text}", printer.err_paint().warn("warning:"))),
        (false, false) => printer.err(&text),
    }
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

/// Returns the message of the reference about an object to delete. That its deletion was requested before follows from the
/// record, which keeps it until a pass finds it gone.
fn message(deletion: &RequestedDeletion, state: State) -> Option<DeleteMessage> {
    let found_gone = deletion.state == DeletionState::NotFound;
    let known = match &deletion.deleted_before {
        Some(at) => Known::Completed { at },
        None if deletion.recorded && found_gone => Known::Requested,
        None => Known::Nothing,
    };
    let since = match deletion.state {
        DeletionState::Deleting { deleted_at } => Some(rfc3339(deleted_at)),
        _ => None,
    };
    let observed = match found_gone {
        true => Observed::NotFound,
        false => Observed::Found { deletion_timestamp: since.as_deref() },
    };
    messages::deletion(&deletion.object, known, observed, state).message
}

/// The condition `Upgradeable` of a release.
pub(super) fn upgradeable<'a>(
    deleting: impl IntoIterator<Item = &'a ObjectKey>,
    settings: &Settings,
) -> Option<Upgradeable> {
    let overrides = (!settings.overrides.is_empty()).then(Upgradeable::overrides);
    Upgradeable::all(Upgradeable::deletions(deleting).into_iter().chain(overrides).collect())
}
