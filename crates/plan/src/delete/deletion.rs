//! A deletion request with everything resolved that does not depend on the clusters' answers.

use std::{collections::HashMap, sync::Arc};

use billhook_objects::{Catalog, GroupKind, Scope};
use billhook_policy::DeletionGroup;

use crate::{
    Counts, DeleteRequest, PlanError, Problem, Query, Snapshot,
    find::{Finder, Index},
    groups::{Matcher, is_crd, place, unavailable_api},
    problem::Problems,
    queries::{ByKind, QuerySet, all_of, kind_of_crd, release_selector},
};

use super::collect::{Draft, drafts};

/// A deletion to plan: send [`Self::queries`], then [`Self::missing`], then call [`Self::plan`].
pub struct Deletion<'a> {
    pub(super) request: DeleteRequest<'a>,
    pub(super) groups: Vec<ResolvedGroup<'a>>,
    pub(super) objects: ByKind,
    /// Kinds that are unknown because their aggregated API is unavailable, and whose APIService is deleted too.
    pub(super) orphaned: Vec<GroupKind>,
    /// How many objects are recorded in another scope than that of their kind now.
    pub(super) rescoped: Counts,
    queries: Vec<Query>,
}

/// A deletion group with its kinds resolved.
pub(super) struct ResolvedGroup<'a> {
    pub(super) policy: &'a DeletionGroup,
    pub(super) matcher: Matcher<'a>,
    pub(super) drafts: Vec<Draft>,
}

impl<'a> Deletion<'a> {
    /// Resolves a request.
    ///
    /// # Errors
    ///
    /// When the policy or the objects are invalid: all problems at once.
    pub fn new(mut request: DeleteRequest<'a>) -> Result<Self, PlanError> {
        let mut problems = Problems::default();
        let rescoped = remove_rescoped(&mut request);
        let groups = request.groups.iter().filter_map(|group| resolve(group, &request, &mut problems)).collect();
        let keys = request.objects.iter().map(|wanted| (&wanted.key, wanted.version.as_str()));
        let objects = ByKind::of(keys, &request.catalogs.own);
        let mut deletion = Self { request, groups, objects, orphaned: Vec::new(), rescoped, queries: Vec::new() };
        deletion.check_unavailable(&mut problems);
        problems.check()?;
        deletion.queries = deletion.first_round();
        Ok(deletion)
    }

    /// Returns the first round of queries.
    pub fn queries(&self) -> &[Query] {
        &self.queries
    }

    /// Returns the second round of queries: objects without the release's label that a list by label did not show, and
    /// single objects where a list is forbidden.
    pub fn missing(&self, snapshot: &Snapshot) -> Vec<Query> {
        let index = Index::of(snapshot);
        let finder = Finder::new(&self.queries, &index);
        let mut queries = QuerySet::default();
        queries.extend(self.objects.missing(&finder));
        for group in &self.groups {
            for draft in group.drafts.iter().filter(|draft| is_crd(&draft.query.resource.kind)) {
                queries.extend(draft.items(&index).filter_map(|(_, crd)| self.instances(group, &crd.name)));
            }
        }
        queries.into_vec().into_iter().filter(|query| !self.queries.contains(query)).collect()
    }

    /// Returns the kinds that the release's own cluster serves.
    pub(super) fn catalog(&self) -> &Catalog {
        &self.request.catalogs.own
    }

    /// Returns the query for the instances of a CRD, if the group's force stage applies to them.
    pub(super) fn instances(&self, group: &ResolvedGroup<'_>, crd: &str) -> Option<Query> {
        group.policy.force.as_ref()?;
        let kind = kind_of_crd(self.request.catalogs.get(group.cluster())?, crd)?;
        Some(all_of(group.cluster(), kind))
    }

    /// Checks unknown kinds: a kind whose aggregated API is unavailable is not gone, unless that API is deleted too.
    fn check_unavailable(&mut self, problems: &mut Problems) {
        let service = GroupKind::new("apiregistration.k8s.io", "APIService");
        for kind in self.objects.unknown.keys() {
            let Some((group, version)) = unavailable_api(&self.request.catalogs.own, kind) else { continue };
            let name = format!("{version}.{group}");
            if self.request.objects.iter().any(|w| w.key.kind == service && w.key.name == name) {
                self.orphaned.push(kind.clone());
            } else {
                problems.add(Problem::UnavailableApi { kind: kind.clone(), api: format!("{group}/{version}") });
            }
        }
    }

    fn first_round(&self) -> Vec<Query> {
        let mut queries = QuerySet::default();
        let label = self.request.release.map(release_selector);
        for (kind, objects) in &self.objects.kinds {
            let collected = |namespace: Option<&str>| self.is_collected(kind, namespace);
            queries.extend(objects.queries(label.as_deref(), |_, _| true, collected));
        }
        for group in &self.groups {
            queries.extend(group.drafts.iter().map(|draft| draft.query.clone()));
        }
        for wanted in self.request.objects.iter().filter(|wanted| is_crd(&wanted.key.kind)) {
            let groups = self.groups.iter().filter(|g| g.cluster().is_none() && g.matcher.may_match(&wanted.key));
            queries.extend(groups.filter_map(|group| self.instances(group, &wanted.key.name)));
        }
        queries.into_vec()
    }

    /// Whether the list of a collection shows all objects of a kind in a namespace anyway.
    fn is_collected(&self, kind: &GroupKind, namespace: Option<&str>) -> bool {
        let drafts = self.groups.iter().filter(|g| g.cluster().is_none()).flat_map(|group| &group.drafts);
        drafts.filter(|draft| draft.query.resource.kind == *kind).any(|draft| draft.shows_all_of(namespace))
    }
}

impl ResolvedGroup<'_> {
    pub(super) fn place(&self) -> &str {
        place(&self.policy.path, &self.policy.title)
    }

    pub(super) fn cluster(&self) -> Option<&str> {
        self.policy.target.as_deref()
    }
}

fn resolve<'a>(
    group: &'a DeletionGroup,
    request: &DeleteRequest<'a>,
    problems: &mut Problems,
) -> Option<ResolvedGroup<'a>> {
    let place = place(&group.path, &group.title);
    let Some(catalog) = request.catalogs.get(group.target.as_deref()) else {
        let target = group.target.clone().unwrap_or_default();
        problems.add(Problem::UnknownTarget { group: place.to_owned(), target });
        return None;
    };
    let matcher = Matcher::resolve(&group.members, &group.excluded, catalog, place, problems);
    let drafts = drafts(group, &matcher, request);
    Some(ResolvedGroup { policy: group, matcher, drafts })
}

/// Removes the objects that cannot exist because their kind is now served in another scope, as after the recreation of its
/// CRD, and counts them.
fn remove_rescoped(request: &mut DeleteRequest<'_>) -> Counts {
    let catalog = Arc::clone(&request.catalogs.own);
    let mut scopes: HashMap<GroupKind, Option<Scope>> = HashMap::new();
    let mut rescoped = Counts::default();
    request.objects.retain(|wanted| {
        let kind = &wanted.key.kind;
        let scope = match scopes.get(kind) {
            Some(scope) => *scope,
            None => *scopes.entry(kind.clone()).or_insert(catalog.get(kind).map(|served| served.scope)),
        };
        let fits = scope.is_none_or(|scope| (scope == Scope::Namespaced) == wanted.key.namespace.is_some());
        if !fits {
            rescoped.add(kind);
        }
        fits
    });
    rescoped
}
