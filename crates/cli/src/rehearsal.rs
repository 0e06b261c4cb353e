//! Rehearses a deletion: plays it on a copy of the cluster in a sandbox, under a paused clock.

mod actors;
mod clients;
mod outcome;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use billhook_cluster::{Cluster, Holder, Options as ClusterOptions};
use billhook_engine::{
    Clusters, Copy, DeleteInput, DeletionOrder, Event, ExplainOptions, NotRead, RunOptions, Summary, custodians,
    explain,
};
use billhook_explain::{Document, ObjectRef};
use billhook_plan::{Note, Operation};
use billhook_sandbox::{ControllerSet, Options, Sandbox};
use serde::Serialize;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::subscriber::NoSubscriber;

use crate::error::CommandError;

pub(crate) use actors::PACE;
pub(crate) use outcome::Other;

/// How long a rehearsal without a time limit waits.
const LONGEST: Duration = Duration::from_secs(3600);
/// How many of the objects that remain are explained.
const EXPLAINED: usize = 500;
/// The kinds of roles. Without them, rights cannot be evaluated.
const ROLES: [&str; 4] = ["clusterrolebindings", "clusterroles", "rolebindings", "roles"];

/// What is rehearsed.
pub(crate) struct Rehearsal {
    pub(crate) copy: Copy,
    pub(crate) input: DeleteInput,
    pub(crate) order: DeletionOrder,
    pub(crate) timeout: Option<Duration>,
    /// The time of the call, and who makes it, as in a real run.
    pub(crate) now: String,
    pub(crate) holder: Holder,
}

/// What a rehearsal has shown.
pub(crate) struct Rehearsed {
    /// The events of the run, in order.
    pub(crate) events: Vec<Event>,
    pub(crate) summary: Summary,
    /// Why objects remain.
    pub(crate) why: Document,
    pub(crate) report: Report,
}

/// What a rehearsal tells beside the run itself.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    /// What would be deleted, although it does not belong to the release.
    pub(crate) others: Vec<Other>,
    /// The controllers that were played.
    pub(crate) controllers: Vec<Controller>,
    /// What was not copied, or not played.
    pub(crate) missing: Vec<String>,
    /// How many objects were copied.
    pub(crate) copied: usize,
    /// How many of the objects that remain were not explained, because there are too many.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) unexplained: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Who removes a finalizer in a rehearsal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Controller {
    pub(crate) finalizer: String,
    pub(crate) kind: String,
    pub(crate) objects: usize,
    /// Its name; none if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// Whether it was played: it works, or nothing shows that it does not.
    pub(crate) played: bool,
    /// What is missing of it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) problem: String,
}

impl Rehearsal {
    /// Plays the deletion, in another thread with a runtime of its own: there, the clock advances whenever nothing else is to be done.
    pub(crate) async fn play(self) -> Result<Rehearsed, CommandError> {
        let play = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
            let runtime = runtime.map_err(|error| CommandError::failed_to("start the rehearsal", error))?;
            // The requests to the sandbox are none to the cluster, and are not logged as such.
            tracing::subscriber::with_default(NoSubscriber::default(), || runtime.block_on(self.run()))
        };
        let played = tokio::task::spawn_blocking(play).await;
        played.unwrap_or_else(|error| Err(CommandError::failed_to("rehearse the deletion", error)))
    }

    async fn run(self) -> Result<Rehearsed, CommandError> {
        let Self { copy, input, order, timeout, now, holder } = self;
        let Copy { mut objects, unread, time, .. } = copy;
        let has_roles = unread.iter().all(|one| !ROLES.contains(&one.resource.plural.as_str()));
        let options = Options::default().start(time).rbac(has_roles).assume_backends(true);
        let Cast { roles, foreign, unexamined } = cast(&options, &mut objects, &unread).await?;
        let running = actors::control_plane(&objects, time);
        let sandbox = Sandbox::start(options.controllers(running));
        sandbox.copy(&objects);
        let cluster = Cluster::from_client(clients::reader(&sandbox, unread.clone()), ClusterOptions::default());
        let mut acting = JoinSet::new();
        actors::start(&sandbox, &roles, actors::Stage { objects: &objects, now: time, has_roles }, &mut acting);
        let clusters = Clusters { own: cluster, records: None, targets: BTreeMap::new(), now, holder };
        let events: Arc<Mutex<Vec<Event>>> = Arc::default();
        let sink = {
            let events = Arc::clone(&events);
            Arc::new(move |event| events.lock().unwrap_or_else(PoisonError::into_inner).push(event))
        };
        let timeout = Some(timeout.unwrap_or(LONGEST));
        let options = RunOptions { timeout, stop: CancellationToken::new(), sink, force_conflicts: false };
        let mut prepared = billhook_engine::prepare_delete_foreseen(&clusters, input, order).await?;
        if let Some(limit) = timeout {
            billhook_plan::warn_of_limit(&mut prepared.plan, limit);
        }
        let own: HashSet<String> = prepared.own().map(str::to_owned).collect();
        let planned: HashSet<String> = prepared.plan.deleted().map(|(_, _, uid, _)| uid.as_str().to_owned()).collect();
        let summary = billhook_engine::delete(&clusters, prepared, &options).await?;
        let after = sandbox.objects();
        let subjects = outcome::remaining(&objects, &after, &planned);
        let catalog = clusters.own.catalog().await?;
        let unexplained = subjects.len().saturating_sub(EXPLAINED);
        let explained = subjects.into_iter().take(EXPLAINED);
        let why = explain(&clusters.own, &catalog, explained, ExplainOptions::default()).await;
        let events = std::mem::take(&mut *events.lock().unwrap_or_else(PoisonError::into_inner));
        let report = Report {
            others: outcome::others(&objects, &after, &own, &planned),
            controllers: roles.iter().map(actors::Role::shown).collect(),
            missing: missing(&unread, &foreign, unexamined, has_roles),
            copied: objects.len(),
            unexplained,
        };
        Ok(Rehearsed { events, summary, why, report })
    }
}

/// Who removes the finalizers of the objects of a copy.
struct Cast {
    roles: Vec<actors::Role>,
    /// The objects that matter and that a sandbox cannot hold.
    foreign: Vec<ObjectRef>,
    /// Of how many objects it was not found out.
    unexamined: usize,
}

/// Finds out who removes the finalizers of the objects, on a copy where nothing happens. Removes the objects that a sandbox cannot
/// hold.
async fn cast(options: &Options, objects: &mut Vec<Value>, unread: &[NotRead]) -> Result<Cast, CommandError> {
    let sandbox = Sandbox::start(options.clone().controllers(ControllerSet::none()));
    let left = sandbox.copy(objects);
    let left: HashSet<usize> = left.into_iter().collect();
    let all = std::mem::take(objects).into_iter().enumerate();
    let (left, kept): (Vec<_>, Vec<_>) = all.partition(|(at, _)| left.contains(at));
    *objects = kept.into_iter().map(|(_, object)| object).collect();
    let foreign =
        left.iter().map(|(_, object)| object).filter(|object| outcome::matters(object)).filter_map(ObjectRef::of);
    let foreign = foreign.collect();
    let cluster = Cluster::from_client(clients::reader(&sandbox, unread.to_vec()), ClusterOptions::default());
    let catalog = cluster.catalog().await?;
    let (custodians, unexamined) = custodians(&cluster, &catalog, objects).await;
    let deleting = objects.iter().filter(|object| outcome::is_held(object)).filter_map(ObjectRef::of);
    let stuck = explain(&cluster, &catalog, deleting.take(EXPLAINED), ExplainOptions::default()).await;
    let stuck: BTreeSet<String> = stuck.findings.iter().filter_map(actors::stuck).collect();
    let roles = custodians.into_iter().map(|custodian| actors::Role::new(custodian, &stuck)).collect();
    Ok(Cast { roles, foreign, unexamined })
}

/// Returns what the rehearsal does not know, for people.
fn missing(unread: &[NotRead], foreign: &[ObjectRef], unexamined: usize, has_roles: bool) -> Vec<String> {
    let place = |one: &NotRead| one.namespace.as_ref().map(|name| format!(" in namespace {name}")).unwrap_or_default();
    let mut lines: Vec<String> =
        unread.iter().map(|one| format!("list {}{}: {}", one.resource.kind, place(one), one.why)).collect();
    if !has_roles {
        lines.push(
            "the rights of controllers: they were taken to be complete, because not all roles could be read".to_owned(),
        );
    }
    if unexamined > 0 {
        lines.push(format!(
            "who removes the finalizers of {unexamined} objects: there are too many different finalizers"
        ));
    }
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for object in foreign {
        *kinds.entry(object.group_kind().to_string()).or_default() += 1;
    }
    let line = |(kind, count): (String, usize)| format!("{count} {kind}: the rehearsal does not serve this kind");
    lines.extend(kinds.into_iter().map(line));
    lines
}

/// Returns the notes because of which the real command would be refused.
pub(crate) fn notes(events: &[Event]) -> &[Note] {
    let notes = events.iter().find_map(|event| match event {
        Event::Started { operation: Operation::Delete, notes, .. } => Some(notes.as_slice()),
        _ => None,
    });
    notes.unwrap_or_default()
}
