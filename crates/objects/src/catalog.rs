//! The kinds that a cluster serves, and the resolution of the names that users write for them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{ApiVersion, GroupKind};

/// Whether objects of a kind live in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Scope {
    /// In a namespace.
    Namespaced,
    /// In the cluster.
    Cluster,
}

/// A kind of object, as discovery or its CRD describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceType {
    /// Group and kind.
    pub kind: GroupKind,
    /// The plural name, as in URLs.
    pub plural: String,
    /// The singular name; may be empty.
    pub singular: String,
    /// The short names, such as `cm`.
    pub short_names: Vec<String>,
    /// Namespaced or not.
    pub scope: Scope,
    /// The served versions, the preferred one first.
    pub versions: Vec<String>,
    /// The served verbs, such as `list` and `watch`.
    pub verbs: Vec<String>,
}

impl ResourceType {
    /// Returns whether the server supports `verb` for this kind.
    pub fn supports(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v == verb)
    }

    /// Returns whether this is a kind, and served in a version.
    pub fn serves(&self, kind: &GroupKind, version: &ApiVersion) -> bool {
        self.kind == *kind && self.versions.iter().any(|served| served == version.version())
    }

    /// Returns the `apiVersion` for requests: `wanted` if it is served, otherwise the preferred version.
    pub fn api_version(&self, wanted: Option<&str>) -> ApiVersion {
        let version = wanted
            .filter(|w| self.versions.iter().any(|v| v == w))
            .or_else(|| self.versions.first().map(String::as_str))
            .unwrap_or_default();
        ApiVersion::new(&self.kind.group, version)
    }

    /// Returns the kind that a CustomResourceDefinition manifest defines, or `None` if the manifest is of another kind.
    pub fn from_crd(crd: &Value) -> Option<Self> {
        let spec = crd.get("spec")?;
        let names = spec.get("names")?;
        let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let kind = text(names, "kind")?;
        let plural = text(names, "plural")?;
        let mut versions: Vec<(bool, String)> = spec
            .get("versions")?
            .as_array()?
            .iter()
            .filter(|v| v.get("served").and_then(Value::as_bool).unwrap_or(false))
            .filter_map(|v| Some((v.get("storage").and_then(Value::as_bool).unwrap_or(false), text(v, "name")?)))
            .collect();
        versions.sort_by_key(|(storage, _)| !storage);
        Some(Self {
            singular: text(names, "singular").unwrap_or_else(|| kind.to_lowercase()),
            short_names: names
                .get("shortNames")
                .and_then(Value::as_array)
                .map(|names| names.iter().filter_map(|n| n.as_str().map(str::to_owned)).collect())
                .unwrap_or_default(),
            scope: if text(spec, "scope")? == "Namespaced" { Scope::Namespaced } else { Scope::Cluster },
            versions: versions.into_iter().map(|(_, name)| name).collect(),
            verbs: ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
                .map(str::to_owned)
                .to_vec(),
            kind: GroupKind::new(text(spec, "group")?, kind),
            plural,
        })
    }
}

/// A kind as a user wrote it: a group, and the kind or its plural, singular or short name in any case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KindName {
    /// The API group; empty for the core group.
    pub group: String,
    /// The kind or its plural, singular or short name, as written.
    pub name: String,
}

impl std::fmt::Display for KindName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.group.is_empty() { f.write_str(&self.name) } else { write!(f, "{}.{}", self.name, self.group) }
    }
}

/// The reason why a [`KindName`] does not resolve to exactly one kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// The cluster serves no such kind in this group.
    #[error("find kind {name}: the cluster does not serve it")]
    NotServed {
        /// The name that was to be resolved.
        name: KindName,
        /// The kinds of that name in other groups.
        elsewhere: Vec<GroupKind>,
    },
    /// Several kinds have this name.
    #[error("choose a kind for {name}: it may be {}", .candidates.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or "))]
    Ambiguous {
        /// The name that was to be resolved.
        name: KindName,
        /// The possible kinds, sorted.
        candidates: Vec<GroupKind>,
    },
}

/// All known kinds: those that the cluster serves and those of the CRDs being deployed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Catalog {
    types: BTreeMap<String, ResourceType>,
    /// Group versions whose discovery failed, for example because an aggregated API is unavailable, as `group/version`.
    #[serde(default)]
    pub stale: Vec<String>,
}

impl Catalog {
    /// Adds a kind, and replaces a known one with the same group and kind.
    pub fn insert(&mut self, resource: ResourceType) {
        self.types.insert(resource.kind.to_string(), resource);
    }

    /// Adds a kind unless it is known: discovery takes precedence over a manifest.
    pub fn insert_missing(&mut self, resource: ResourceType) {
        self.types.entry(resource.kind.to_string()).or_insert(resource);
    }

    /// Returns the description of a kind.
    pub fn get(&self, kind: &GroupKind) -> Option<&ResourceType> {
        self.types.get(&kind.to_string())
    }

    /// Returns whether a kind is known in a version.
    pub fn serves(&self, kind: &GroupKind, version: &ApiVersion) -> bool {
        self.get(kind).is_some_and(|known| known.serves(kind, version))
    }

    /// Iterates over all kinds, sorted by `Kind.group`.
    pub fn iter(&self) -> impl Iterator<Item = &ResourceType> {
        self.types.values()
    }

    /// Resolves a name that a user wrote. Compares it with kinds and plurals first, then with singular names, then with
    /// short names, ignoring case.
    ///
    /// # Errors
    ///
    /// Fails if no kind in the group has this name, or several have.
    pub fn resolve(&self, wanted: &KindName) -> Result<&ResourceType, ResolveError> {
        let tiers: [fn(&ResourceType, &str) -> bool; 3] = [
            |t, n| t.kind.kind.to_lowercase() == n || t.plural == n,
            |t, n| t.singular == n,
            |t, n| t.short_names.iter().any(|s| s == n),
        ];
        let name = wanted.name.to_lowercase();
        for tier in tiers {
            let found: Vec<_> = self.iter().filter(|t| t.kind.group == wanted.group && tier(t, &name)).collect();
            match found.as_slice() {
                [] => {}
                [one] => return Ok(one),
                many => {
                    let candidates = many.iter().map(|t| t.kind.clone()).collect();
                    return Err(ResolveError::Ambiguous { name: wanted.clone(), candidates });
                }
            }
        }
        let elsewhere =
            self.iter().filter(|t| tiers.iter().any(|tier| tier(t, &name))).map(|t| t.kind.clone()).collect();
        Err(ResolveError::NotServed { name: wanted.clone(), elsewhere })
    }
}

impl Extend<ResourceType> for Catalog {
    fn extend<I: IntoIterator<Item = ResourceType>>(&mut self, types: I) {
        for resource in types {
            self.insert(resource);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(group: &str, kind: &str, plural: &str, short: &[&str]) -> ResourceType {
        ResourceType {
            kind: GroupKind::new(group, kind),
            plural: plural.into(),
            singular: kind.to_lowercase(),
            short_names: short.iter().map(|s| (*s).into()).collect(),
            scope: Scope::Namespaced,
            versions: vec!["v1".into(), "v1beta1".into()],
            verbs: vec!["list".into()],
        }
    }

    fn catalog() -> Catalog {
        let mut catalog = Catalog::default();
        catalog.extend([
            resource("", "ConfigMap", "configmaps", &["cm"]),
            resource("a.example", "Widget", "widgets", &["w"]),
            resource("a.example", "Wheel", "wheels", &["w"]),
            resource("b.example", "Widget", "widgets", &[]),
        ]);
        catalog
    }

    fn check(group: &str, name: &str, expected: Result<&str, &str>) {
        let catalog = catalog();
        let found = catalog.resolve(&KindName { group: group.into(), name: name.into() });
        let found = found.map(|t| t.kind.to_string()).map_err(|e| e.to_string());
        assert_eq!(found.as_deref().map_err(String::as_str), expected, "{group} {name}");
    }

    #[test]
    fn a_kind_is_found_by_each_of_its_names_in_any_case() {
        for name in ["ConfigMap", "configmap", "CONFIGMAPS", "cm", "configmaps"] {
            check("", name, Ok("ConfigMap"));
        }
        check("b.example", "widget", Ok("Widget.b.example"));
    }

    #[test]
    fn an_ambiguous_name_lists_its_candidates() {
        check("a.example", "w", Err("choose a kind for w.a.example: it may be Wheel.a.example or Widget.a.example"));
    }

    #[test]
    fn an_unknown_kind_lists_the_kinds_of_other_groups() {
        let catalog = catalog();
        let error = catalog.resolve(&KindName { group: String::new(), name: "widgets".into() }).unwrap_err();
        let ResolveError::NotServed { elsewhere, .. } = error else { panic!("{error}") };
        assert_eq!(elsewhere, [GroupKind::new("a.example", "Widget"), GroupKind::new("b.example", "Widget")]);
    }
}
