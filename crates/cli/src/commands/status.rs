//! `billhook status`: what of a release is there, what is in flight, what blocks it.

use std::collections::BTreeMap;

use billhook_cluster::Cluster;
use billhook_engine::{Blocker, OperationError};
use billhook_objects::{Catalog, GroupKind, ObjectKey};
use billhook_plan::{
    Catalogs, DeleteRequest, Entry, Inventory, Listed, Listing, Observed, Operation, Phase, Query, Resource, Snapshot,
    Wanted,
};
use billhook_policy::Propagation;
use clap::Args;
use serde::Serialize;
use tokio::task::JoinSet;

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
    /// 0 where the record went with its Namespace: what is left of the release is that Namespace.
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
    /// What keeps it, of the first ones that are being deleted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    blockers: Vec<Blocker>,
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
    let clusters = connection.with(BTreeMap::new());
    let (inventory, catalog) =
        tokio::try_join!(billhook_engine::load_record(&clusters, &release), clusters.own.catalog())?;
    let Some(inventory) = inventory else {
        return Err(OperationError::NoRelease(release).into());
    };
    let live = look(&clusters.own, catalog, &inventory).await?;
    let report = report(&inventory, &live);
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
    /// What keeps objects that are being deleted.
    blockers: BTreeMap<ObjectKey, Vec<Blocker>>,
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

/// What a deletion of the release would look at: a list by label a kind, then single reads of what the label did not
/// show; then what keeps the objects that are being deleted.
async fn look(cluster: &Cluster, catalog: Catalog, inventory: &Inventory) -> Result<Live, CommandError> {
    let (objects, silent) = wanted(inventory, &catalog);
    let catalogs = Catalogs::own(catalog);
    let request = DeleteRequest {
        release: Some(&inventory.release),
        objects: &objects,
        groups: &[],
        catalogs: &catalogs,
        propagation: Propagation::Background,
        operation: Operation::Delete,
        record_here: true,
    };
    let first = billhook_plan::delete_queries(&request).map_err(OperationError::from)?;
    let snapshot = Snapshot { listings: cluster.snapshot(&first).await };
    let second = billhook_plan::missing_queries(&request, &snapshot);
    let mut live = Live::default();
    live.add(snapshot.listings);
    // Whatever a list left open is asked for again.
    live.failed = silent;
    live.add(cluster.snapshot(&second).await);
    live.blockers = blockers(cluster, first.into_iter().chain(second), inventory, &live.found).await;
    Ok(live)
}

/// The objects of the kinds that the cluster serves; and the kinds that it may serve, but whose API does not answer.
fn wanted(inventory: &Inventory, catalog: &Catalog) -> (Vec<Wanted>, BTreeMap<GroupKind, String>) {
    let mut silent = BTreeMap::new();
    let mut objects = inventory.wanted();
    objects.retain(|wanted| {
        let kind = &wanted.key.kind;
        let known = catalog.get(kind).is_some();
        let of_group = |api: &&String| api.split_once('/').is_some_and(|(group, _)| group == kind.group);
        if let Some(api) = catalog.stale.iter().find(of_group).filter(|_| !known) {
            silent.entry(kind.clone()).or_insert_with(|| format!("{kind}: the API {api} does not answer"));
        }
        known
    });
    (objects, silent)
}

/// Reads the objects that are being deleted, as many as are listed, for what keeps them.
async fn blockers(
    cluster: &Cluster,
    queries: impl Iterator<Item = Query>,
    inventory: &Inventory,
    found: &BTreeMap<ObjectKey, Observed>,
) -> BTreeMap<ObjectKey, Vec<Blocker>> {
    let resources: BTreeMap<GroupKind, Resource> =
        queries.map(|query| (query.resource.kind.clone(), query.resource)).collect();
    let deleting = inventory.entries.keys().filter(|key| found.get(key).is_some_and(|object| object.deleting));
    let mut reads = JoinSet::new();
    for key in deleting.take(LISTED) {
        let Some(resource) = resources.get(&key.kind).cloned() else { continue };
        let (cluster, key) = (cluster.clone(), key.clone());
        reads.spawn(async move {
            // The finalizers are known without it.
            let blockers = billhook_engine::blockers_of(&cluster, &resource, &key).await.unwrap_or_default();
            (key, blockers)
        });
    }
    reads.join_all().await.into_iter().collect()
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
            let blockers = live.blockers.get(key).cloned().unwrap_or_default();
            objects.push(Odd { object: key.clone(), state, finalizers, blockers });
        }
    }
    Report {
        name: inventory.release.name().to_owned(),
        namespace: inventory.release.namespace().to_owned(),
        phase: phase(inventory, &objects),
        revision: inventory.revision,
        kinds: kinds.into_values().collect(),
        objects,
    }
}

/// A record that was read off its Namespace says nothing of what was begun; that the Namespace goes, does.
fn phase(inventory: &Inventory, objects: &[Odd]) -> String {
    match inventory.revision {
        0 if objects.iter().any(|odd| odd.state == State::Deleting) => Phase::Deleting.to_string(),
        0 => "unknown".to_owned(),
        _ => inventory.phase.to_string(),
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
    ];
    if report.revision == 0 {
        lines.push("the record is gone: what is left of the release is known by its label".to_owned());
    }
    lines.push(String::new());
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
        let rows: Vec<_> = odd.iter().take(LISTED).flat_map(|odd| rows(odd)).collect();
        lines.extend(columns(&rows).into_iter().map(|line| format!("  {line}")));
        if odd.len() > LISTED {
            lines.push(format!("  and {} more", odd.len() - LISTED));
        }
    }
    lines
}

/// An object in a line, and one more for each further thing that keeps it.
fn rows(odd: &Odd) -> Vec<Vec<String>> {
    let mut holders: Vec<String> = odd.blockers.iter().map(|blocker| blocker.to_string().replace('\n', " ")).collect();
    if holders.is_empty() {
        holders.extend(odd.finalizers.iter().map(|finalizer| format!("finalizer {finalizer}")));
    }
    let mut holders = holders.into_iter();
    let says = match holders.next() {
        Some(holder) if odd.state == State::Deleting => format!("deleting: {holder}"),
        _ => says(odd.state),
    };
    let more = holders.filter(|_| odd.state == State::Deleting).map(|holder| format!("          {holder}"));
    let first = vec![odd.object.kind.to_string(), place(&odd.object), says];
    [first].into_iter().chain(more.map(|holder| vec![String::new(), String::new(), holder])).collect()
}

fn says(state: State) -> String {
    match state {
        State::Deleting => "deleting".to_owned(),
        State::Missing => "missing".to_owned(),
        State::Replaced => "another object of this name has taken its place".to_owned(),
        State::Obsolete => "of an earlier version, to be pruned".to_owned(),
        State::Unreadable => "unreadable".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use billhook_objects::{ApiVersion, Digest, ReleaseName, ResourceType, Scope, Uid};

    use super::*;

    fn inventory(keys: &[(&str, &str, Option<&str>, &str)]) -> Inventory {
        let mut inventory = Inventory::new(ReleaseName::new("shop", "web").unwrap());
        inventory.revision = 3;
        for (group, kind, namespace, name) in keys {
            let key = ObjectKey::new(GroupKind::new(*group, *kind), *namespace, *name);
            let entry = Entry::new(ApiVersion::new(*group, "v1"), Digest::of(&serde_json::Value::Null));
            let entry = Entry { uid: Some(Uid::new("1")), ..entry };
            inventory.entries.insert(key, entry);
        }
        inventory
    }

    fn deleting(inventory: &Inventory, finalizers: &[&str], blockers: Vec<Blocker>) -> Live {
        let key = inventory.entries.keys().next().unwrap();
        let object = Observed {
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            uid: Uid::new("1"),
            resource_version: "1".into(),
            labels: BTreeMap::new(),
            finalizers: finalizers.iter().map(|finalizer| (*finalizer).to_owned()).collect(),
            deleting: true,
            owners: Vec::new(),
        };
        Live {
            found: BTreeMap::from([(key.clone(), object)]),
            failed: BTreeMap::new(),
            blockers: BTreeMap::from([(key.clone(), blockers)]),
        }
    }

    fn shown(inventory: &Inventory, live: &Live) -> Vec<String> {
        text(&report(inventory, live), Paint(false))
    }

    #[test]
    fn what_is_being_deleted_is_shown_with_what_keeps_it() {
        let inventory = inventory(&[("", "Namespace", None, "shop")]);
        let finalizer = Blocker::Finalizer { finalizer: "a.example/x".into(), manager: Some("operator".into()) };
        let condition =
            Blocker::Condition { condition: "NamespaceContentRemaining".into(), message: "pods. has 1\nleft".into() };
        let live = deleting(&inventory, &["a.example/x"], vec![finalizer, condition]);
        let lines = shown(&inventory, &live);
        assert_eq!(
            lines[lines.len() - 2..],
            [
                "  Namespace  shop  deleting: finalizer a.example/x (set by operator)",
                "                             NamespaceContentRemaining: pods. has 1 left",
            ]
        );
        let json = serde_json::to_value(report(&inventory, &live)).unwrap();
        assert_eq!(json["objects"][0]["blockers"][0]["manager"], "operator");
        let unread = shown(&inventory, &deleting(&inventory, &["a.example/x"], Vec::new()));
        assert_eq!(unread.last().unwrap(), "  Namespace  shop  deleting: finalizer a.example/x");
        let free = shown(&inventory, &deleting(&inventory, &[], Vec::new()));
        assert_eq!(free.last().unwrap(), "  Namespace  shop  deleting");
    }

    #[test]
    fn a_record_that_went_with_its_namespace_is_a_deletion() {
        let mut inventory = inventory(&[("", "Namespace", None, "shop")]);
        assert_eq!(shown(&inventory, &Live::default())[2], "phase      applying");
        inventory.revision = 0;
        let lines = shown(&inventory, &deleting(&inventory, &[], Vec::new()));
        assert_eq!((lines[2].as_str(), lines[4].starts_with("the record is gone")), ("phase      deleting", true));
        assert_eq!(shown(&inventory, &Live::default())[2], "phase      unknown");
    }

    #[test]
    fn what_an_api_that_does_not_answer_holds_is_not_missing() {
        let inventory = inventory(&[
            ("", "ConfigMap", Some("shop"), "a"),
            ("dead.example", "Widget", Some("shop"), "b"),
            ("gone.example", "Gadget", Some("shop"), "c"),
        ]);
        let mut catalog = Catalog::default();
        catalog.insert(ResourceType {
            kind: GroupKind::new("", "ConfigMap"),
            plural: "configmaps".into(),
            singular: "configmap".into(),
            short_names: Vec::new(),
            scope: Scope::Namespaced,
            versions: vec!["v1".into()],
            verbs: Vec::new(),
        });
        catalog.stale = vec!["dead.example/v1".into()];
        let (objects, silent) = wanted(&inventory, &catalog);
        assert_eq!(objects.iter().map(|w| w.key.name.as_str()).collect::<Vec<_>>(), ["a"]);
        let live = Live { failed: silent, ..Live::default() };
        let states: Vec<_> = inventory.entries.iter().map(|(key, entry)| state(key, entry, &live)).collect();
        assert!(states == [Some(State::Missing), Some(State::Unreadable), Some(State::Missing)]);
    }
}
