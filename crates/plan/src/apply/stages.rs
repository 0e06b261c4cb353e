//! Divides the manifests among the policy's deployment groups.

use std::borrow::Cow;

use billhook_objects::Labels;
use billhook_policy::{DeploymentGroup, Members, ResourceClass, WaitFor};

use crate::{
    NotServedNote, Note, NoteKind, OrderNote, UnservedKind,
    groups::{Matcher, Verdict, place},
    problem::Problems,
};

use super::deployment::{Deployment, labels};

/// A deployment group and the indexes of its manifests.
pub(super) struct Stage<'a> {
    pub(super) group: Cow<'a, DeploymentGroup>,
    pub(super) members: Vec<usize>,
}

impl Stage<'_> {
    pub(super) fn place(&self) -> &str {
        place(&self.group.path, &self.group.title)
    }
}

impl Deployment<'_> {
    /// Assigns every manifest to the first group that matches it. The others follow by class, after the last group.
    pub(super) fn stages(&self, notes: &mut Vec<Note>, problems: &mut Problems) -> Vec<Stage<'_>> {
        let classes = [ResourceClass::Crds, ResourceClass::ClusterScoped, ResourceClass::Namespaced];
        let groups = self.request.policy.deployment.iter().map(Cow::Borrowed);
        let rest = classes.map(|class| Cow::Owned(group_of_class(class.as_str(), class)));
        let mut stages: Vec<Stage<'_>> = groups.chain(rest).map(|group| Stage { group, members: Vec::new() }).collect();
        let members = self.members(&stages, notes, problems);
        for (stage, members) in stages.iter_mut().zip(members) {
            stage.members = members;
            stage.members.sort_unstable_by_key(|at| self.request.manifests.get(*at).map(|manifest| &manifest.key));
        }
        stages
    }

    fn members<'s>(
        &'s self,
        stages: &'s [Stage<'s>],
        notes: &mut Vec<Note>,
        problems: &mut Problems,
    ) -> Vec<Vec<usize>> {
        let resolve = |stage: &'s Stage<'s>| {
            let DeploymentGroup { members, excluded, .. } = stage.group.as_ref();
            Matcher::resolve(members, excluded, self.catalog(), stage.place(), problems)
        };
        let matchers: Vec<Matcher<'_>> = stages.iter().map(resolve).collect();
        let needs_labels = stages.iter().any(|stage| selects_labels(&stage.group));
        let mut members = vec![Vec::new(); stages.len()];
        for (at, manifest) in self.request.manifests.iter().enumerate() {
            let labels = if needs_labels { labels(manifest) } else { Labels::default() };
            let first = matchers.iter().position(|matcher| matcher.judge(&manifest.key, &labels) == Verdict::Member);
            if let Some(stage) = first.and_then(|first| members.get_mut(first)) {
                stage.push(at);
            }
        }
        for ((stage, members), matcher) in stages.iter().zip(&members).zip(&matchers) {
            let group = || stage.place().to_owned();
            let selector = |kind: &UnservedKind| NotServedNote::Selector { group: group(), kind: kind.clone() };
            notes.extend(matcher.not_served.iter().map(|kind| Note::from(NoteKind::NotServed(selector(kind)))));
            if members.is_empty() && matcher.has_entries() {
                let title = stage.group.title.clone();
                notes.push(NoteKind::Order(OrderNote::NoMatch { group: group(), title }).into());
            }
        }
        members
    }
}

fn selects_labels(group: &DeploymentGroup) -> bool {
    let resources = if let Members::Resources(resources) = &group.members { resources.as_slice() } else { &[] };
    resources.iter().chain(&group.excluded).any(|selector| !selector.label_selector.is_empty())
}

/// Returns a group of all objects of a class.
pub(super) fn group_of_class(title: &str, class: ResourceClass) -> DeploymentGroup {
    DeploymentGroup {
        title: title.to_owned(),
        path: String::new(),
        members: Members::Class(class),
        excluded: Vec::new(),
        wait_for: WaitFor::Exists,
        timeout: None,
    }
}
