//! An apply request with everything resolved that does not depend on the clusters' answers.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap, HashSet},
};

use billhook_objects::{
    Catalog, GroupKind, KindName, Labels, Manifest, ObjectKey, ReleaseName, wellknown::RELEASE_LABEL,
};
use billhook_policy::Policy;

use crate::{
    Annotations, ApplyRequest, DeleteRequest, Deletion, Directives, Listed, NotServedNote, NoteKind, Observed,
    Operation, PlanError, Problem, Query, Select, Snapshot, TaskGraph,
    annotations::Unreadable,
    groups::{Matcher, place, unserved},
    problem::Problems,
    queries::{ByKind, QuerySet, release_selector},
};

use super::{
    prepare::check_unavailable,
    pruning::{Kept, obsolete},
    versions::lasting,
};

/// A deployment to plan: send [`Self::queries`], then [`Self::missing`], then call [`Self::plan`].
pub struct Deployment<'a> {
    /// The request, its catalogs narrowed to the versions that outlast the update.
    pub(super) request: ApplyRequest<'a>,
    pub(super) objects: ByKind,
    /// The annotations in the manifests, in their order.
    pub(super) annotations: Vec<Annotations>,
    /// The deletion of what the new version does not contain, by `deletionGroupsDuringUpdate`.
    pub(super) pruning: Deletion<'a>,
    /// What the new version does not contain and that is not deleted.
    pub(super) kept: Vec<Kept>,
    /// Notes on kinds of the policy that are not served.
    pub(super) unserved: Vec<NoteKind>,
    /// The labels of releases that no longer exist: their objects belong to nobody.
    pub(super) gone: BTreeSet<String>,
    /// The kinds whose objects must be ready or healthy for steps of a graph.
    judged: BTreeSet<GroupKind>,
    queries: Vec<Query>,
    /// How many of the queries are for the manifests; the others are for the pruning.
    own: usize,
}

impl<'a> Deployment<'a> {
    /// Resolves a request.
    ///
    /// # Errors
    ///
    /// When the policy or the manifests are invalid: all problems at once.
    pub fn new(request: ApplyRequest<'a>) -> Result<Self, PlanError> {
        let mut problems = Problems::default();
        let request = ApplyRequest { catalogs: lasting(&request), ..request };
        let catalog = &request.catalogs.own;
        for (_, manifest) in request.applied().filter(|(_, m)| catalog.get(&m.key.kind).is_none()) {
            let kind = &manifest.key.kind;
            let name = KindName { group: kind.group.clone(), name: kind.kind.clone() };
            problems.add(Problem::NotServed { source: manifest.source.clone(), kind: unserved(name, &[], catalog) });
        }
        check_unavailable(&request, &mut problems);
        let annotations: Vec<_> = request.manifests.iter().map(Annotations::of_manifest).collect();
        check_annotations(&request, &annotations, &mut problems);
        let unserved = unserved_later(request.policy, catalog, &mut problems);
        problems.check()?;
        let served = request.manifests.iter().enumerate();
        let served = served.filter(|(_, manifest)| !request.not_served.contains(&manifest.key.kind));
        let (deleted, entries) = (request.deleted(), request.inventory.map(|inventory| &inventory.entries));
        let is_known = |key: &ObjectKey| entries.and_then(|all| all.get(key)).is_some_and(|entry| entry.uid.is_some());
        // What is to be deleted and was not created, or is gone already.
        let (absent, present): (Vec<_>, Vec<_>) =
            served.partition(|(at, manifest)| deleted.contains(at) && !is_known(&manifest.key));
        let by_kind = |manifests: Vec<(usize, &'a Manifest)>| {
            ByKind::of(manifests.into_iter().map(|(_, m)| (&m.key, m.api_version.version())), catalog)
        };
        let (objects, absent) = (by_kind(present), by_kind(absent));
        let (obsolete, kept) = obsolete(&request, catalog);
        let prune = request.prune && request.inventory.is_some();
        let pruning = Deletion::new(DeleteRequest {
            release: Some(request.release),
            objects: obsolete,
            // At the first apply there is no old version, so collections have nothing to delete either.
            groups: if prune { &request.policy.during_update } else { &[] },
            catalogs: request.catalogs.clone(),
            propagation: request.propagation,
            operation: Operation::Apply,
            record_here: request.record_here,
            unlabelled: request.unlabelled,
        })?;
        let mut own_queries = first_round(&request, &objects);
        own_queries.extend(absent.kinds.iter().flat_map(|(_, objects)| objects.reads()));
        let dropped = request.dropped_deletions().map(|(key, entry)| (key, entry.api_version.version()));
        let dropped = ByKind::of(dropped.filter(|(key, _)| catalog.get(&key.kind).is_some()), catalog);
        own_queries.extend(dropped.kinds.iter().flat_map(|(_, objects)| objects.reads()));
        let own = own_queries.len();
        let mut queries = QuerySet::default();
        queries.extend(own_queries);
        queries.extend(pruning.queries().iter().cloned());
        let gone = BTreeSet::new();
        let judged = request.graph.into_iter().flat_map(TaskGraph::judged);
        let judged = judged.filter_map(|(at, _)| Some(request.manifests.get(at)?.key.kind.clone())).collect();
        Ok(Self {
            request,
            objects,
            annotations,
            pruning,
            kept,
            unserved,
            gone,
            judged,
            queries: queries.into_vec(),
            own,
        })
    }

    /// Returns the labels of other releases with a claim on the objects that were looked up by name: by their label, or by
    /// fields that they have applied. Whether these releases still exist decides whether the objects and fields can be taken
    /// over.
    pub fn claims(&self, snapshot: &Snapshot) -> BTreeSet<String> {
        let own = self.request.release.label_value();
        let named = snapshot
            .listings
            .iter()
            .filter(|listing| matches!(listing.query.select, Select::Names(_) | Select::Reads(_) | Select::Objects(_)));
        let items = named.filter_map(|l| if let Listed::Items { items, .. } = &l.found { Some(items) } else { None });
        let others = items.flatten().filter(|item| item.labels.get(RELEASE_LABEL) != Some(&own));
        let claims = |item: &Observed| {
            let managers = item.tracked.iter().flat_map(|tracked| &tracked.managers);
            let releases = managers.filter_map(|manager| ReleaseName::of_field_manager(manager));
            let by_fields: Vec<String> = releases.map(|release| release.label_value()).collect();
            item.labels.get(RELEASE_LABEL).cloned().into_iter().chain(by_fields)
        };
        others.flat_map(claims).filter(|label| *label != own).collect()
    }

    /// Treats objects with these labels like objects that belong to no release: the releases no longer exist.
    pub fn ignore_claims(&mut self, gone: BTreeSet<String>) {
        self.gone = gone;
    }

    /// Returns whether the answer to a query should tell which objects are ready: those of kinds that steps of a graph judge.
    /// Without a further request, such a step then ends at once where nothing has changed. A query by name may list many
    /// objects of others, so it does not tell.
    pub fn needs_readiness(&self, query: &Query) -> bool {
        matches!(query.select, Select::Labels(_)) && self.judged.contains(&query.resource.kind)
    }

    /// Returns the first round of queries.
    pub fn queries(&self) -> &[Query] {
        &self.queries
    }

    /// Returns the queries of the first round for the manifests.
    pub(super) fn own_queries(&self) -> &[Query] {
        &self.queries[..self.own]
    }

    /// Returns the kinds that the release's own cluster serves.
    pub(super) fn catalog(&self) -> &Catalog {
        &self.request.catalogs.own
    }

    /// Whether the cluster serves a kind before the deployment. No object of any other kind exists.
    pub(super) fn is_served(&self, kind: &GroupKind) -> bool {
        self.catalog().get(kind).is_some() && !self.request.not_served.contains(kind)
    }

    pub(super) fn directives(&self, key: &ObjectKey) -> Cow<'_, Directives> {
        self.request.directives.get(key).map_or_else(Cow::default, Cow::Borrowed)
    }
}

/// Returns the queries for the manifests: by label where the inventory has confirmed every object, else by name. A new
/// object does not carry the label yet, and an object of its name may belong to anybody.
fn first_round(request: &ApplyRequest<'_>, objects: &ByKind) -> Vec<Query> {
    let label = release_selector(request.release);
    let entries = request.inventory.map(|inventory| &inventory.entries);
    let mut confirmed: HashMap<_, HashSet<&str>> = HashMap::new();
    for (key, _) in entries.into_iter().flatten().filter(|(_, entry)| entry.uid.is_some()) {
        confirmed.entry((&key.kind, key.namespace.as_deref())).or_default().insert(&key.name);
    }
    let mut queries = Vec::new();
    for (kind, objects) in &objects.kinds {
        let known = |namespace: Option<&str>, names: &BTreeSet<String>| {
            let known = confirmed.get(&(kind, namespace));
            known.is_some_and(|known| names.iter().all(|name| known.contains(name.as_str())))
        };
        queries.extend(objects.queries(Some(&label), known, |_| false));
    }
    queries
}

/// Checks the groups of a policy that delete, so that nothing is changed before the whole policy is valid.
///
/// # Errors
///
/// When kinds are ambiguous: all of them at once.
pub fn check_policy(policy: &Policy, catalog: &Catalog) -> Result<(), PlanError> {
    let mut problems = Problems::default();
    unserved_later(policy, catalog, &mut problems);
    problems.check()
}

/// Resolves the groups of a policy that delete, and notes the kinds of a later deletion that are not served.
fn unserved_later(policy: &Policy, catalog: &Catalog, problems: &mut Problems) -> Vec<NoteKind> {
    let mut notes = Vec::new();
    let groups =
        policy.deletion.iter().map(|group| (group, true)).chain(policy.during_update.iter().map(|g| (g, false)));
    for (group, later) in groups.filter(|(group, _)| group.target.is_none()) {
        let place = place(&group.path, &group.title);
        let matcher = Matcher::resolve(&group.members, &group.excluded, catalog, place, problems);
        let note = |kind| NoteKind::NotServed(NotServedNote::Later { group: place.to_owned(), kind });
        notes.extend(matcher.not_served.into_iter().filter(|_| later).map(note));
    }
    notes
}

/// Rejects manifests with an annotation whose value cannot be read.
fn check_annotations(request: &ApplyRequest<'_>, annotations: &[Annotations], problems: &mut Problems) {
    for (manifest, annotations) in request.applied().filter_map(|(at, manifest)| Some((manifest, annotations.get(at)?)))
    {
        for Unreadable { annotation, key, value } in annotations.read().1 {
            let (source, object) = (manifest.source.clone(), manifest.key.clone());
            problems.add(Problem::Annotation { source, object, annotation, key, value });
        }
    }
}

/// Returns the labels of a manifest.
pub(super) fn labels(manifest: &Manifest) -> Labels {
    let value = manifest.value();
    let labels = value.get("metadata").and_then(|metadata| metadata.get("labels"));
    let labels = labels.and_then(serde_json::Value::as_object).into_iter().flatten();
    labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}
