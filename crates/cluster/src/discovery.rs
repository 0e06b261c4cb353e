//! Discovery: aggregated, or by one document per group version on servers before 1.26.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicUsize, Ordering},
};

use billhook_objects::{Catalog, GroupKind, ResourceType, Scope};
use futures::future::try_join_all;
use serde::Deserialize;

use crate::{
    cluster::{Cluster, ServedVersions},
    error::{Error, ErrorKind},
    request::{Call, Reply},
};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
     application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// How many kinds a server may list, and group versions. Somebody else may have chosen it, and what it lists is kept.
const MAX_KINDS: usize = 20_000;
const MAX_VERSIONS: usize = 2_000;
/// What is being done.
const READING: &str = "read the list of kinds";

/// Fails if the number of kinds or versions that a server lists is beyond the limit.
fn check_count(found: usize, what: &str, limit: usize) -> Result<(), Error> {
    let problem = || format!("the server lists more than {limit} {what}");
    if found > limit { Err(Error::new(READING, ErrorKind::TooLarge).because(problem())) } else { Ok(()) }
}

impl Cluster {
    /// Reads the server's version, such as `v1.36.3`.
    ///
    /// # Errors
    ///
    /// When the request fails.
    pub async fn version(&self) -> Result<String, Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Version {
            git_version: String,
        }
        let version: Version = self.send(&Call::get("read the server's version", "/version".into())).await?.json()?;
        Ok(version.git_version)
    }

    /// Reads which kinds are served, by two requests: `/api` and `/apis`.
    ///
    /// Group versions that are unavailable (an aggregated API without a backend) are named in [`Catalog::stale`] and do
    /// not affect the others. A server without aggregated discovery costs one more request per group version.
    ///
    /// # Errors
    ///
    /// When the request for `/api` or `/apis` fails, or when they list more than 20,000 kinds or 2,000 group versions.
    pub async fn catalog(&self) -> Result<Catalog, Error> {
        let (core, groups) = futures::future::try_join(self.groups("/api", None), self.groups("/apis", None)).await?;
        let mut types = Types::default();
        let mut stale = Vec::new();
        for group in core.into_iter().chain(groups) {
            for version in &group.versions {
                let Some(resources) = &version.resources else {
                    stale.push(group_version(&group.name, &version.name));
                    continue;
                };
                if version.stale {
                    stale.push(group_version(&group.name, &version.name));
                }
                for resource in resources {
                    types.add(&group.name, &version.name, resource);
                }
                check_count(types.types.len(), "kinds", MAX_KINDS)?;
            }
        }
        let mut catalog = Catalog::default();
        catalog.extend(types.types);
        stale.sort();
        catalog.stale = stale;
        Ok(catalog)
    }

    /// Reads in which versions a kind is served now, by one request.
    pub(crate) async fn discover(&self, kind: &GroupKind) -> Result<ServedVersions, Error> {
        let groups =
            if kind.group.is_empty() { self.groups("/api", Some("")) } else { self.groups("/apis", Some(&kind.group)) };
        let mut served = Vec::new();
        for version in groups.await?.into_iter().flat_map(|group| group.versions) {
            match version.resources {
                Some(resources) if resources.iter().any(|resource| resource.kind == kind.kind) => {
                    served.push(version.name)
                }
                Some(_) if !version.stale => {}
                _ => return Ok(None),
            }
        }
        Ok(Some(served))
    }

    /// Reads the groups of `/api` or `/apis`, or one of them.
    async fn groups(&self, url: &str, only: Option<&str>) -> Result<Vec<Group>, Error> {
        let call = Call::get(READING, url.into()).accept(AGGREGATED);
        let reply = self.send(&call).await?;
        let is_wanted = |name: &str| only.is_none_or(|only| only == name);
        let aggregated = matches!(kind(&reply)?.as_deref(), Some("APIGroupDiscoveryList"));
        if aggregated {
            let list: aggregated::List = reply.json()?;
            return Ok(list.items.into_iter().map(Group::from).filter(|group| is_wanted(&group.name)).collect());
        }
        let groups = if url == "/api" {
            let versions: unaggregated::Versions = reply.json()?;
            vec![(String::new(), versions.versions)]
        } else {
            let list: unaggregated::Groups = reply.json()?;
            list.groups.into_iter().map(unaggregated::Group::ordered).collect()
        };
        check_count(groups.iter().map(|(_, versions)| versions.len()).sum(), "group versions", MAX_VERSIONS)?;
        let (groups, found) = (groups.into_iter().filter(|(name, _)| is_wanted(name)), AtomicUsize::new(0));
        try_join_all(groups.map(|(name, versions)| self.unaggregated_group(name, versions, &found))).await
    }

    /// Reads a group without aggregated discovery: one document per group version. `found` counts the kinds of all of them.
    async fn unaggregated_group(
        &self,
        name: String,
        versions: Vec<String>,
        found: &AtomicUsize,
    ) -> Result<Group, Error> {
        let one = async |version: String| {
            let url = if name.is_empty() { format!("/api/{version}") } else { format!("/apis/{name}/{version}") };
            let read = async { self.send(&Call::get(READING, url)).await?.json::<unaggregated::Resources>() };
            match read.await {
                Ok(list) => {
                    let resources = list.resources.into_iter().filter(|r| !r.name.contains('/')).map(Resource::from);
                    let resources: Vec<_> = resources.collect();
                    let all = found.fetch_add(resources.len(), Ordering::Relaxed) + resources.len();
                    check_count(all, "kinds", MAX_KINDS)?;
                    Ok(Version { name: version, resources: Some(resources), stale: false })
                }
                Err(error) => {
                    tracing::debug!(%error, "a group version is unavailable");
                    Ok(Version { name: version, resources: None, stale: true })
                }
            }
        };
        let versions = try_join_all(versions.into_iter().map(one)).await?;
        Ok(Group { name, versions })
    }
}

fn kind(reply: &Reply) -> Result<Option<String>, Error> {
    #[derive(Deserialize)]
    struct Kind {
        kind: Option<String>,
    }
    Ok(reply.json::<Kind>()?.kind)
}

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

struct Group {
    name: String,
    versions: Vec<Version>,
}

struct Version {
    name: String,
    /// None if the document cannot be read at all.
    resources: Option<Vec<Resource>>,
    stale: bool,
}

struct Resource {
    kind: String,
    plural: String,
    singular: String,
    short_names: Vec<String>,
    namespaced: bool,
    verbs: Vec<String>,
}

/// The kinds in the server's order. Only the first plural of a kind is used.
#[derive(Default)]
struct Types {
    types: Vec<ResourceType>,
    index: HashMap<GroupKind, usize>,
}

impl Types {
    fn add(&mut self, group: &str, version: &str, resource: &Resource) {
        let kind = GroupKind::new(group, &resource.kind);
        if let Some(known) = self.index.get(&kind).and_then(|index| self.types.get_mut(*index)) {
            if known.plural == resource.plural && !known.versions.iter().any(|v| v == version) {
                known.versions.push(version.to_owned());
            }
            return;
        }
        self.index.insert(kind.clone(), self.types.len());
        self.types.push(ResourceType {
            kind,
            plural: resource.plural.clone(),
            singular: resource.singular.clone(),
            short_names: resource.short_names.clone(),
            scope: if resource.namespaced { Scope::Namespaced } else { Scope::Cluster },
            versions: vec![version.to_owned()],
            verbs: resource.verbs.clone(),
        });
    }
}

/// apidiscovery.k8s.io/v2 and v2beta1, which are the same for the fields that are read here.
mod aggregated {
    use serde::Deserialize;

    #[derive(Deserialize)]
    pub(super) struct List {
        #[serde(default)]
        pub(super) items: Vec<Group>,
    }

    #[derive(Deserialize)]
    pub(super) struct Group {
        metadata: Metadata,
        #[serde(default)]
        versions: Vec<Version>,
    }

    #[derive(Deserialize)]
    struct Metadata {
        name: Option<String>,
    }

    #[derive(Deserialize)]
    struct Version {
        version: String,
        resources: Option<Vec<Resource>>,
        freshness: Option<String>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Resource {
        resource: String,
        response_kind: Option<ResponseKind>,
        scope: Option<String>,
        singular_resource: Option<String>,
        verbs: Option<Vec<String>>,
        short_names: Option<Vec<String>>,
    }

    #[derive(Deserialize)]
    struct ResponseKind {
        kind: Option<String>,
    }

    impl From<Group> for super::Group {
        fn from(group: Group) -> Self {
            let versions = group.versions.into_iter().map(|version| super::Version {
                name: version.version,
                stale: version.freshness.as_deref() == Some("Stale"),
                resources: Some(
                    version.resources.unwrap_or_default().into_iter().filter_map(Resource::into_resource).collect(),
                ),
            });
            Self { name: group.metadata.name.unwrap_or_default(), versions: versions.collect() }
        }
    }

    impl Resource {
        fn into_resource(self) -> Option<super::Resource> {
            Some(super::Resource {
                kind: self.response_kind?.kind.filter(|kind| !kind.is_empty())?,
                plural: self.resource,
                singular: self.singular_resource.unwrap_or_default(),
                short_names: self.short_names.unwrap_or_default(),
                namespaced: self.scope.as_deref() == Some("Namespaced"),
                verbs: self.verbs.unwrap_or_default(),
            })
        }
    }
}

/// Discovery as every server supports it.
mod unaggregated {
    use serde::Deserialize;

    #[derive(Deserialize)]
    pub(super) struct Versions {
        #[serde(default)]
        pub(super) versions: Vec<String>,
    }

    #[derive(Deserialize)]
    pub(super) struct Groups {
        #[serde(default)]
        pub(super) groups: Vec<Group>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub(super) struct Group {
        name: String,
        versions: Vec<Version>,
        preferred_version: Option<Version>,
    }

    #[derive(Deserialize)]
    struct Version {
        version: String,
    }

    impl Group {
        /// Returns the group's name and its versions, the preferred one first.
        pub(super) fn ordered(self) -> (String, Vec<String>) {
            let mut versions: Vec<String> = self.versions.into_iter().map(|v| v.version).collect();
            if let Some(preferred) = self.preferred_version {
                versions.sort_by_key(|version| *version != preferred.version);
            }
            (self.name, versions)
        }
    }

    #[derive(Deserialize)]
    pub(super) struct Resources {
        #[serde(default)]
        pub(super) resources: Vec<Resource>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub(super) struct Resource {
        pub(super) name: String,
        #[serde(default)]
        singular_name: String,
        #[serde(default)]
        namespaced: bool,
        kind: String,
        verbs: Option<Vec<String>>,
        short_names: Option<Vec<String>>,
    }

    impl From<Resource> for super::Resource {
        fn from(resource: Resource) -> Self {
            Self {
                kind: resource.kind,
                plural: resource.name,
                singular: resource.singular_name,
                short_names: resource.short_names.unwrap_or_default(),
                namespaced: resource.namespaced,
                verbs: resource.verbs.unwrap_or_default(),
            }
        }
    }
}
