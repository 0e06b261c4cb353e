//! Plans that delete: each object into the first group that it matches, group after group.

mod assign;
mod collect;
mod nodes;
mod notes;

use std::collections::BTreeMap;

use billhook_objects::{Catalog, GroupKind, ResourceType};
use billhook_policy::DeletionGroup;

use crate::{
    DeleteRequest, Plan, PlanError, PlanErrorKind, Query, Snapshot,
    error::Problems,
    find::{Finder, Index},
    groups::{Matcher, is_crd, place},
    queries::{ByKind, QuerySet, all_of, by_crd_name, release_selector, scope_problem},
};
use collect::Draft;

pub(crate) use collect::own_of_every_namespace;
pub(crate) use notes::{info, warning};

/// The queries that show what a deletion is about; their answers are what [`plan_delete`] needs.
///
/// # Errors
///
/// When the policy or the objects are wrong: all that is wrong with them.
pub fn delete_queries(request: &DeleteRequest<'_>) -> Result<Vec<Query>, PlanError> {
    Ok(Scene::new(request)?.first_round())
}

/// The queries of the second round: objects that a list by label did not show may have lost the label, and where a
/// list is forbidden, single reads may not be.
pub fn missing_queries(request: &DeleteRequest<'_>, snapshot: &Snapshot) -> Vec<Query> {
    let Ok(scene) = Scene::new(request) else { return Vec::new() };
    let first = scene.first_round();
    scene.second_round(&first, &Index::of(snapshot))
}

/// Plans a deletion.
///
/// # Errors
///
/// When the policy or the objects are wrong, and when the snapshot leaves open whether an object is there: nothing of
/// a release may be forgotten.
pub fn plan_delete(request: &DeleteRequest<'_>, snapshot: &Snapshot) -> Result<Plan, PlanError> {
    let scene = Scene::new(request)?;
    let index = Index::of(snapshot);
    let mut queries = scene.first_round();
    queries.extend(scene.second_round(&queries, &index));
    let finder = Finder::new(&queries, &index);
    let assigned = scene.assign(&finder, &index)?;
    Ok(scene.build(assigned, &index))
}

/// A group with its kinds resolved.
struct Group<'a> {
    policy: &'a DeletionGroup,
    matcher: Matcher<'a>,
    drafts: Vec<Draft>,
    /// Kinds by the name of their CRD, where the group may force CRDs.
    forced_crds: Option<BTreeMap<String, &'a ResourceType>>,
}

impl Group<'_> {
    fn place(&self) -> &str {
        place(&self.policy.path, &self.policy.title)
    }

    fn cluster(&self) -> Option<&str> {
        self.policy.target.as_deref()
    }

    /// The query for the instances of a CRD whose force stage is to reach them.
    fn instances(&self, crd: &str) -> Option<Query> {
        let kind = self.forced_crds.as_ref()?.get(crd)?;
        Some(all_of(self.cluster(), kind))
    }
}

/// A request with everything resolved that does not need the clusters' answers.
struct Scene<'a> {
    request: DeleteRequest<'a>,
    catalog: &'a Catalog,
    groups: Vec<Group<'a>>,
    objects: ByKind<'a>,
    /// Kinds that are not known because their API does not answer, and that go with their APIService.
    orphaned: Vec<GroupKind>,
}

impl<'a> Scene<'a> {
    fn new(request: &DeleteRequest<'a>) -> Result<Self, PlanError> {
        let mut problems = Problems::default();
        let groups = request.groups.iter().filter_map(|group| resolve(group, request, &mut problems)).collect();
        let Some(catalog) = request.catalogs.find(None, "", &mut problems) else {
            problems.check()?;
            return Err(PlanError { kind: PlanErrorKind::Input, problems: Vec::new() });
        };
        let objects = ByKind::of(request.objects.iter().map(|w| (&w.key, w.version.as_str())), catalog);
        let mut scene = Self { request: *request, catalog, groups, objects, orphaned: Vec::new() };
        scene.check_scopes(&mut problems);
        scene.check_stale(&mut problems);
        problems.check()?;
        Ok(scene)
    }

    fn check_scopes(&self, problems: &mut Problems) {
        let scopes: BTreeMap<_, _> =
            self.objects.kinds.iter().filter_map(|(kind, _)| Some((*kind, self.catalog.get(kind)?.scope))).collect();
        for wanted in self.request.objects {
            if let Some(problem) = scopes.get(&wanted.key.kind).and_then(|scope| scope_problem(&wanted.key, *scope)) {
                problems.input(problem);
            }
        }
    }

    /// A kind is not gone because its aggregated API does not answer, unless that API is to be deleted itself.
    fn check_stale(&mut self, problems: &mut Problems) {
        let service = GroupKind::new("apiregistration.k8s.io", "APIService");
        for kind in self.objects.unknown.keys() {
            let mut stale =
                self.catalog.stale.iter().filter_map(|gv| gv.split_once('/').filter(|(g, _)| *g == kind.group));
            let Some((group, version)) = stale.next() else { continue };
            let name = format!("{version}.{group}");
            if self.request.objects.iter().any(|w| w.key.kind == service && w.key.name == name) {
                self.orphaned.push((*kind).clone());
            } else {
                let problem = format!("look for {kind}: the API {group}/{version} does not answer");
                problems.add(PlanErrorKind::Unreadable, problem);
            }
        }
    }

    fn first_round(&self) -> Vec<Query> {
        let mut queries = QuerySet::default();
        let label = self.request.release.map(release_selector);
        for (kind, objects) in &self.objects.kinds {
            queries.extend(objects.queries(
                label.as_deref(),
                |_, _| true,
                |namespace| self.is_collected(kind, namespace),
            ));
        }
        for group in &self.groups {
            queries.extend(group.drafts.iter().map(|draft| draft.query.clone()));
        }
        let crds = self.request.objects.iter().filter(|w| is_crd(&w.key.kind));
        for wanted in crds {
            let groups = self.groups.iter().filter(|g| g.cluster().is_none() && g.matcher.may_match(&wanted.key));
            queries.extend(groups.filter_map(|group| group.instances(&wanted.key.name)));
        }
        queries.into_vec()
    }

    /// Whether the list of a collection shows all objects of a kind in a namespace anyway.
    fn is_collected(&self, kind: &GroupKind, namespace: Option<&str>) -> bool {
        let drafts = self.groups.iter().filter(|g| g.cluster().is_none()).flat_map(|group| &group.drafts);
        drafts.filter(|draft| draft.query.resource.kind == *kind).any(|draft| draft.shows_all_of(namespace))
    }

    fn second_round(&self, first: &[Query], index: &Index<'_>) -> Vec<Query> {
        let finder = Finder::new(first, index);
        let mut queries = QuerySet::default();
        queries.extend(self.objects.missing(&finder));
        for group in &self.groups {
            for draft in group.drafts.iter().filter(|draft| is_crd(&draft.query.resource.kind)) {
                queries.extend(draft.items(index).filter_map(|(_, crd)| group.instances(&crd.name)));
            }
        }
        queries.into_vec().into_iter().filter(|query| !first.contains(query)).collect()
    }
}

fn resolve<'a>(group: &'a DeletionGroup, request: &DeleteRequest<'a>, problems: &mut Problems) -> Option<Group<'a>> {
    let place = place(&group.path, &group.title);
    let catalog = request.catalogs.find(group.target.as_deref(), place, problems)?;
    let matcher = Matcher::resolve(&group.members, &group.excluded, catalog, place, problems);
    let drafts = collect::drafts(group, &matcher, request);
    let forced_crds = group.force.is_some().then(|| by_crd_name(catalog));
    Some(Group { policy: group, matcher, drafts, forced_crds })
}
