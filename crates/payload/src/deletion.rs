//! The policy by which a release payload is deleted, unless another one is given.

use std::collections::BTreeMap;

use billhook_objects::ApiVersion;
use billhook_policy::{DeletionGroup, LabelSelector, Members, Policy, ResourceSelector};

use crate::{
    read::{Entry, Payload},
    rules::{Decisions, Outcome},
};

/// Returns a policy that deletes the objects of a payload in the reverse order of its run levels, one group for each level.
/// What the payload no longer contains follows in the default groups.
pub fn deletion_policy(payload: &Payload, decisions: &Decisions) -> Policy {
    let mut levels: Vec<(Option<&str>, Vec<&Entry>)> = Vec::new();
    let created = decisions.counting().filter(|at| decisions.all[*at].outcome != Outcome::Deleted);
    for entry in created.map(|at| &payload.entries[at]) {
        let level = entry.step.as_ref().map(|step| step.level.as_ref());
        match levels.last_mut() {
            Some((last, entries)) if *last == level => entries.push(entry),
            _ => levels.push((level, vec![entry])),
        }
    }
    let groups = levels.iter().rev().map(|(level, entries)| {
        let title = level.map_or_else(|| "no run level".to_owned(), |level| format!("run level {level}"));
        DeletionGroup::new(title, Members::Resources(selectors(entries)))
    });
    Policy { deletion: groups.chain(DeletionGroup::defaults()).collect(), ..Policy::default() }
}

/// Returns a selector for each kind and namespace.
fn selectors(entries: &[&Entry]) -> Vec<ResourceSelector> {
    type Place<'a> = (&'a ApiVersion, &'a str, Option<&'a str>);
    let mut places: BTreeMap<Place<'_>, Vec<String>> = BTreeMap::new();
    for entry in entries {
        let key = &entry.manifest.key;
        let place = (&entry.manifest.api_version, key.kind.kind.as_str(), key.namespace.as_deref());
        places.entry(place).or_default().push(key.name.clone());
    }
    let selector = |((api_version, kind, namespace), names): (Place<'_>, Vec<String>)| ResourceSelector {
        api_version: api_version.clone(),
        kind: kind.to_owned(),
        names,
        namespaces: namespace.map(str::to_owned).into_iter().collect(),
        label_selector: LabelSelector::default(),
        all: false,
    };
    places.into_iter().map(selector).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{read::File, settings::Settings};

    #[test]
    fn levels_are_deleted_in_reverse_order_and_then_what_earlier_versions_left() {
        let text = |kind: &str, names: &[&str], delete: bool| {
            let object = |name: &&str| {
                let included = "\"include.release.openshift.io/self-managed-high-availability\": \"true\"";
                let delete = if delete { ", \"release.openshift.io/delete\": \"true\"" } else { "" };
                format!(
                    "{{apiVersion: v1, kind: {kind}, metadata: {{name: {name}, annotations: {{{included}{delete}}}}}}}"
                )
            };
            names.iter().map(object).collect::<Vec<_>>().join("\n---\n")
        };
        let files = [
            ("0000_00_a_00_namespace.yaml", text("Namespace", &["shop"], false)),
            ("0000_10_a_00_maps.yaml", text("ConfigMap", &["b", "a"], false)),
            ("0000_10_b_00_secret.yaml", text("Secret", &["s"], false)),
            ("0000_20_b_00_gone.yaml", text("ConfigMap", &["gone"], true)),
            ("last.yaml", text("ConfigMap", &["z"], false)),
        ];
        let files: Vec<_> = files.iter().map(|(path, text)| File { path, text }).collect();
        let (payload, problems) = Payload::read(&files);
        assert_eq!(problems, []);
        let policy = deletion_policy(&payload, &Decisions::new(&payload, &Settings::default()));
        let shown: Vec<String> = policy
            .deletion
            .iter()
            .map(|group| match &group.members {
                Members::Resources(selectors) => {
                    let names = selectors.iter().map(|s| format!("{} {}", s.kind, s.names.join("+")));
                    format!("{}: {}", group.title, names.collect::<Vec<_>>().join(", "))
                }
                Members::Class(_) => group.title.clone(),
            })
            .collect();
        assert_eq!(
            shown,
            [
                "no run level: ConfigMap z",
                "run level 10: ConfigMap b+a, Secret s",
                "run level 00: Namespace shop",
                "namespaced-resources",
                "cluster-scoped-resources",
                "crds",
            ]
        );
    }
}
