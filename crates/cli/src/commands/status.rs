//! `billhook status`: what of a release is there, what is in flight, what blocks it.

use std::collections::{BTreeMap, BTreeSet};

use billhook_cluster::Cluster;
use billhook_objects::{Catalog, GroupKind, ObjectKey, wellknown};
use billhook_plan::{Entry, Inventory, Listed, Listing, Observed, Query, Resource, Select};
use clap::Args;
use serde::Serialize;

use crate::{
    error::{CommandError, Exit},
    output::Paint,
    render::{columns, count, place},
    session::Session,
};

/// Show what of a release is there, what is in flight, and what blocks it
#[derive(Debug, Args)]
pub(crate) struct Status {
    /// The name of the release
    name: String,
}

/// How many objects are listed one by one.
const LISTED: usize = 20;

/// What `-o json` prints.
#[derive(Serialize)]
struct Report {
    name: String,
    namespace: String,
    phase: String,
    revision: u64,
    kinds: Vec<Kind>,
    /// The objects that are not as they should be.
    objects: Vec<Odd>,
}

/// The objects of one kind.
#[derive(Serialize)]
struct Kind {
    #[serde(flatten)]
    kind: GroupKind,
    desired: usize,
    live: usize,
    deleting: usize,
    missing: usize,
    /// Why they could not be looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    unreadable: Option<String>,
}

/// An object that is missing, being deleted, obsolete or somebody else's.
#[derive(Serialize)]
struct Odd {
    object: ObjectKey,
    state: State,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    finalizers: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    Deleting,
    Missing,
    /// There under its name, but another object than the one that was applied.
    Replaced,
    /// Of an earlier version, still to be pruned.
    Obsolete,
    Unreadable,
}

/// Runs the command.
pub(crate) async fn run(session: &Session, args: Status) -> Result<Exit, CommandError> {
    let connection = session.connection().await?;
    let release = connection.release(&args.name)?;
    let store = connection.cluster.inventory();
    let (stored, catalog) = tokio::try_join!(store.load(&release), connection.cluster.catalog())?;
    let Some(stored) = stored else {
        return Err(billhook_engine::OperationError::NoRelease(release).into());
    };
    let live = look(&connection.cluster, &catalog, &stored.inventory).await;
    let report = report(&stored.inventory, &live);
    if session.json() {
        session.printer.json(&report);
    } else {
        text(&report, session.printer.out_paint()).iter().for_each(|line| session.printer.out(line));
    }
    Ok(Exit::Done)
}

/// What is there: by key, or by kind why it could not be looked at.
#[derive(Default)]
struct Live {
    found: BTreeMap<ObjectKey, Observed>,
    failed: BTreeMap<GroupKind, String>,
}

impl Live {
    fn add(&mut self, listings: Vec<Listing>) {
        for Listing { query, found } in listings {
            match found {
                Listed::Items { items, .. } => {
                    self.found.extend(items.into_iter().map(|item| (item.key(&query.resource.kind), item)));
                }
                Listed::NotServed => {}
                Listed::Failed(why) => {
                    self.failed.insert(query.resource.kind, why);
                }
            }
        }
    }
}

/// One listing a kind by the release's label, then single reads of what the label did not show.
async fn look(cluster: &Cluster, catalog: &Catalog, inventory: &Inventory) -> Live {
    let mut live = Live::default();
    let label = format!("{}={}", wellknown::RELEASE_LABEL, inventory.release.label_value());
    let all: Vec<_> = inventory.entries.keys().collect();
    live.add(cluster.snapshot(&queries(catalog, inventory, &all, Some(&label))).await);
    let unseen: Vec<_> = all.into_iter().filter(|key| !live.found.contains_key(key)).collect();
    live.failed.clear();
    live.add(cluster.snapshot(&queries(catalog, inventory, &unseen, None)).await);
    live
}

/// With a label one query a kind; without, the names in each namespace.
fn queries(catalog: &Catalog, inventory: &Inventory, keys: &[&ObjectKey], label: Option<&str>) -> Vec<Query> {
    let mut by_place: BTreeMap<(&GroupKind, Option<&str>), BTreeSet<&ObjectKey>> = BTreeMap::new();
    for key in keys {
        let namespace = key.namespace.as_deref().filter(|_| label.is_none());
        by_place.entry((&key.kind, namespace)).or_default().insert(key);
    }
    let query = |((kind, namespace), keys): ((&GroupKind, Option<&str>), BTreeSet<&ObjectKey>)| {
        let version = keys.first().and_then(|key| inventory.entries.get(*key)).map(|entry| entry.api_version.version());
        let resource = Resource::of(catalog.get(kind)?, version);
        let namespaces: BTreeSet<_> = keys.iter().filter_map(|key| key.namespace.clone()).collect();
        let (namespace, namespaces) = match (label, namespaces.len()) {
            // A single namespace is asked for itself: that needs fewer rights.
            (Some(_), 1) => (namespaces.into_iter().next(), Vec::new()),
            (Some(_), _) => (None, namespaces.into_iter().collect()),
            (None, _) => (namespace.map(str::to_owned), Vec::new()),
        };
        let select = match label {
            Some(label) => Select::Labels(label.to_owned()),
            None => Select::Names(keys.iter().map(|key| key.name.clone()).collect()),
        };
        Some(Query { cluster: None, resource, namespace, select, namespaces })
    };
    by_place.into_iter().filter_map(query).collect()
}

fn report(inventory: &Inventory, live: &Live) -> Report {
    let mut kinds: BTreeMap<&GroupKind, Kind> = BTreeMap::new();
    let mut objects = Vec::new();
    for (key, entry) in &inventory.entries {
        let empty = || Kind { kind: key.kind.clone(), desired: 0, live: 0, deleting: 0, missing: 0, unreadable: None };
        let kind = kinds.entry(&key.kind).or_insert_with(empty);
        kind.desired += usize::from(!entry.obsolete);
        let state = state(key, entry, live);
        match state {
            Some(State::Missing) => kind.missing += 1,
            Some(State::Unreadable) => kind.unreadable = live.failed.get(&key.kind).cloned(),
            Some(State::Deleting) => (kind.live, kind.deleting) = (kind.live + 1, kind.deleting + 1),
            Some(State::Replaced | State::Obsolete) | None => kind.live += 1,
        }
        // What an earlier version had and is not there any more is as it should be.
        if let Some(state) = state.filter(|state| !(entry.obsolete && *state == State::Missing)) {
            let finalizers = live.found.get(key).map(|found| found.finalizers.clone()).unwrap_or_default();
            objects.push(Odd { object: key.clone(), state, finalizers });
        }
    }
    Report {
        name: inventory.release.name().to_owned(),
        namespace: inventory.release.namespace().to_owned(),
        phase: inventory.phase.to_string(),
        revision: inventory.revision,
        kinds: kinds.into_values().collect(),
        objects,
    }
}

/// What is odd about an object; none where it is as it should be.
fn state(key: &ObjectKey, entry: &Entry, live: &Live) -> Option<State> {
    match live.found.get(key) {
        None if live.failed.contains_key(&key.kind) => Some(State::Unreadable),
        None => Some(State::Missing),
        Some(found) if found.deleting => Some(State::Deleting),
        Some(found) if entry.uid.as_ref().is_some_and(|uid| *uid != found.uid) => Some(State::Replaced),
        Some(_) if entry.obsolete => Some(State::Obsolete),
        Some(_) => None,
    }
}

fn text(report: &Report, paint: Paint) -> Vec<String> {
    let mut lines = vec![
        format!("release    {}", paint.bold(&report.name)),
        format!("namespace  {}", report.namespace),
        format!("phase      {}", report.phase),
        format!("revision   {}", report.revision),
        String::new(),
    ];
    let mut table = vec![["KIND", "DESIRED", "LIVE", "DELETING", "MISSING"].map(str::to_owned).to_vec()];
    for kind in &report.kinds {
        let live = if kind.unreadable.is_some() { "?".to_owned() } else { kind.live.to_string() };
        let numbers = [kind.desired.to_string(), live, kind.deleting.to_string(), kind.missing.to_string()];
        table.push([kind.kind.to_string()].into_iter().chain(numbers).collect());
    }
    lines.extend(columns(&table));
    for why in report.kinds.iter().filter_map(|kind| kind.unreadable.as_ref()) {
        lines.push(format!("{} {why}", paint.warn("unreadable:")));
    }
    let odd: Vec<&Odd> = report.objects.iter().filter(|odd| odd.state != State::Unreadable).collect();
    if !odd.is_empty() {
        lines.push(String::new());
        lines.push(paint.bold(&format!("{} not as deployed", count(odd.len(), "object"))));
        let rows: Vec<_> = odd
            .iter()
            .take(LISTED)
            .map(|odd| vec![odd.object.kind.to_string(), place(&odd.object), says(odd)])
            .collect();
        lines.extend(columns(&rows).into_iter().map(|line| format!("  {line}")));
        if odd.len() > LISTED {
            lines.push(format!("  and {} more", odd.len() - LISTED));
        }
    }
    lines
}

fn says(odd: &Odd) -> String {
    match odd.state {
        State::Deleting if odd.finalizers.is_empty() => "deleting".to_owned(),
        State::Deleting => format!("deleting, waits for {}", odd.finalizers.join(", ")),
        State::Missing => "missing".to_owned(),
        State::Replaced => "another object of this name has taken its place".to_owned(),
        State::Obsolete => "of an earlier version, to be pruned".to_owned(),
        State::Unreadable => "unreadable".to_owned(),
    }
}
