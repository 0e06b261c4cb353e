//! Checks that the order of deployment groups can work.

use std::collections::{BTreeMap, HashMap};

use billhook_objects::{GroupKind, Manifest, ObjectKey, ResourceType, wellknown};

use crate::{Problem, groups::is_crd, problem::Problems};

use super::{deployment::Deployment, existing::Existing, stages::Stage};

impl Deployment<'_> {
    /// Checks that custom resources come after their CRD, and namespaced objects after their Namespace.
    pub(super) fn check_order(&self, stages: &[Stage<'_>], existing: &Existing<'_>, problems: &mut Problems) {
        let mut crds: HashMap<GroupKind, (usize, &ObjectKey)> = HashMap::new();
        let mut namespaces: HashMap<&str, (usize, &ObjectKey)> = HashMap::new();
        for (stage, manifest) in self.staged(stages) {
            let key = &manifest.key;
            if key.kind == wellknown::namespace() {
                namespaces.insert(&key.name, (stage, key));
            } else if let Some(defined) = is_crd(&key.kind).then(|| ResourceType::from_crd(&manifest.value())).flatten()
            {
                crds.insert(defined.kind, (stage, key));
            }
        }
        let mut early: BTreeMap<(usize, &ObjectKey), usize> = BTreeMap::new();
        for (stage, manifest) in self.staged(stages) {
            let key = &manifest.key;
            if let Some((_, crd)) = crds.get(&key.kind).filter(|(its, _)| stage <= *its) {
                *early.entry((stage, *crd)).or_default() += 1;
            }
            let namespace = key.namespace.as_deref().and_then(|namespace| namespaces.get(namespace));
            let too_early = |(its, key): &&(usize, &ObjectKey)| {
                stage < *its || (stage == *its && !existing.objects.contains_key(*key))
            };
            if let Some((_, namespace)) = namespace.filter(too_early) {
                *early.entry((stage, *namespace)).or_default() += 1;
            }
        }
        for ((stage, container), count) in early {
            let group = stages.get(stage).map(Stage::place).unwrap_or_default().to_owned();
            problems.add(Problem::TooEarly { group, count, needed: container.clone() });
        }
    }

    fn staged<'s>(&'s self, stages: &'s [Stage<'_>]) -> impl Iterator<Item = (usize, &'s Manifest)> {
        let members = stages.iter().enumerate().flat_map(|(at, stage)| stage.members.iter().map(move |m| (at, *m)));
        members.filter_map(|(stage, at)| Some((stage, self.request.manifests.get(at)?)))
    }
}
