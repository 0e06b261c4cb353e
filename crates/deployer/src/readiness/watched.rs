//! Watches objects in a target cluster, also if their kind is not served yet, or is removed and served again.

use std::{collections::BTreeMap, fmt, pin::Pin, time::Duration};

use billhook_cluster::{Cluster, Error, ObjectChange};
use billhook_engine::Clusters;
use billhook_objects::{ApiVersion, Catalog, GroupKind, KindName, ResolveError, ResourceType};
use billhook_plan::{Catalogs, Query, Resource, Select};
use futures::{FutureExt as _, Stream, StreamExt as _, stream};
use serde_json::Value;
use tokio::time::sleep;

/// How often discovery is repeated for a kind that the cluster does not serve; with the pauses, this takes about a minute.
/// An operator that was just deployed may install the definition of the kind.
const LOOKUPS: u32 = 6;
/// The pause before discovery is repeated for the first time; it doubles each time.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(32);

/// Objects of one kind, as a reference or a label selector names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    kind: KindName,
    version: String,
    which: Which,
}

/// Which objects of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// One, by its name.
    Object {
        /// The namespace; ignored for a cluster-scoped kind.
        namespace: Option<String>,
        /// The name.
        name: String,
    },
    /// All objects with these labels, in all namespaces.
    Labels(BTreeMap<String, String>),
}

impl Wanted {
    pub(crate) fn new(api_version: &ApiVersion, kind: &str, which: Which) -> Self {
        let name = KindName { group: api_version.group().to_owned(), name: kind.to_owned() };
        Self { kind: name, version: api_version.version().to_owned(), which }
    }

    /// Returns whether an object from the watch still has the labels of the selector.
    pub(crate) fn matches_labels(&self, object: &Value) -> bool {
        let Which::Labels(wanted) = &self.which else { return true };
        let labels = &object["metadata"]["labels"];
        wanted.iter().all(|(label, value)| labels[label] == value.as_str())
    }

    /// Returns the query for the objects, given their kind.
    fn query(&self, found: &ResourceType) -> Result<Query, FindError> {
        let resource = Resource::of(found, Some(&self.version));
        let (namespace, select) = match &self.which {
            Which::Labels(labels) => {
                let pairs: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
                (None, Select::Labels(pairs.join(",")))
            }
            Which::Object { namespace: None, .. } if resource.namespaced => {
                return Err(FindError::NoNamespace(self.to_string()));
            }
            Which::Object { namespace, name } => {
                (namespace.clone().filter(|_| resource.namespaced), Select::Names(vec![name.clone()]))
            }
        };
        Ok(Query { cluster: None, resource, namespace, select, namespaces: Vec::new() })
    }
}

/// Prints `Kind.group/namespace/name`, or `Kind.group with labels a=b`, the kind as it was written.
impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        match &self.which {
            Which::Object { namespace: Some(namespace), name } => write!(f, "/{namespace}/{name}"),
            Which::Object { namespace: None, name } => write!(f, "/{name}"),
            Which::Labels(labels) => {
                let pairs: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
                write!(f, " with labels {}", pairs.join(","))
            }
        }
    }
}

/// What a watch observed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Observation {
    /// Changes of objects of this kind, in order; the first changes are the items of a list.
    Objects(GroupKind, Vec<ObjectChange<Value>>),
    /// The objects cannot be watched at the moment, with the reason; all earlier objects were reported as deleted.
    Unavailable(String),
}

/// Why objects cannot be found.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FindError {
    /// There is no cluster for a `targetName`.
    #[error("find target {0:?}: its cluster is unknown")]
    Target(String),
    /// The cluster does not serve the kind, even after some time, or the name is ambiguous.
    #[error("{error}{}", elsewhere(error))]
    Kind {
        /// The name, and what was found instead.
        error: ResolveError,
    },
    /// The kind is namespaced, but the reference has no namespace.
    #[error("find {0}: its kind is namespaced, so the reference needs a namespace")]
    NoNamespace(String),
    /// The kinds of the cluster cannot be read.
    #[error(transparent)]
    Cluster(#[from] Box<Error>),
}

fn elsewhere(error: &ResolveError) -> String {
    match error {
        ResolveError::NotServed { elsewhere, .. } if !elsewhere.is_empty() => {
            let kinds: Vec<String> = elsewhere.iter().map(ToString::to_string).collect();
            format!(", but {}", kinds.join(" and "))
        }
        _ => String::new(),
    }
}

/// A cluster and its catalog of kinds, if it is known.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    cluster: &'a Cluster,
    catalog: Option<&'a Catalog>,
}

impl<'a> Place<'a> {
    /// Returns the cluster of a `targetName`, or the item's own target.
    pub(crate) fn find(
        clusters: &'a Clusters,
        catalogs: &'a Catalogs,
        target: Option<&str>,
    ) -> Result<Self, FindError> {
        let cluster = match target {
            None => &clusters.own,
            Some(name) => clusters.targets.get(name).ok_or_else(|| FindError::Target(name.to_owned()))?,
        };
        Ok(Self { cluster, catalog: catalogs.get(target) })
    }

    /// Watches objects, even while their kind is not served. The stream ends only with an error.
    pub(crate) fn watch(self, wanted: Wanted) -> Observations<'a> {
        let watched = Watched { place: self, wanted, open: None, pause: Duration::ZERO, lookups: 0 };
        Box::pin(stream::try_unfold(watched, async |mut watched| Ok(Some((watched.next().await?, watched)))))
    }
}

/// The stream of [`Place::watch`]. Its futures can be dropped without losing observations.
pub(crate) type Observations<'a> = Pin<Box<dyn Stream<Item = Result<Observation, FindError>> + Send + 'a>>;

type Changes = Pin<Box<dyn Stream<Item = ObjectChange<Value>> + Send>>;

struct Watched<'a> {
    place: Place<'a>,
    wanted: Wanted,
    /// The open watch and the resource that it watches.
    open: Option<(Resource, Changes)>,
    /// The pause before the next discovery.
    pause: Duration,
    /// How many consecutive discoveries did not find the kind.
    lookups: u32,
}

impl Watched<'_> {
    async fn next(&mut self) -> Result<Observation, FindError> {
        loop {
            let Some((resource, changes)) = &mut self.open else {
                match self.find().await? {
                    Some(reason) => return Ok(Observation::Unavailable(reason)),
                    None => continue,
                }
            };
            let Some(first) = changes.next().await else {
                // The kind is no longer served.
                self.open = None;
                continue;
            };
            let (resource, mut seen) = (resource.clone(), vec![first]);
            // The objects of a list are reported together: only all of them tell whether a check passes.
            loop {
                match changes.next().now_or_never() {
                    Some(Some(change)) => seen.push(change),
                    Some(None) => {
                        self.open = None;
                        break;
                    }
                    None => break,
                }
            }
            for change in &mut seen {
                complete(change, &resource);
            }
            return Ok(Observation::Objects(resource.kind, seen));
        }
    }

    /// Opens the watch if the kind is found; otherwise returns the reason.
    async fn find(&mut self) -> Result<Option<String>, FindError> {
        let Wanted { kind, version, .. } = &self.wanted;
        // The caller's catalog is used once, and only if it has the version: it may be older than the deployed objects.
        let known = self.place.catalog.take().and_then(|catalog| catalog.resolve(kind).ok());
        if let Some(known) = known.filter(|known| known.versions.contains(version)) {
            self.open(known)?;
            return Ok(None);
        }
        sleep(self.pause).await;
        self.pause = (self.pause * 2).clamp(PAUSE, PAUSE_MAX);
        let catalog = match self.place.cluster.catalog().await {
            Ok(catalog) => catalog,
            Err(error) if error.is_transient() => return Ok(Some(error.to_string())),
            Err(error) => return Err(Box::new(error).into()),
        };
        match catalog.resolve(kind) {
            Ok(found) => {
                (self.pause, self.lookups) = (Duration::ZERO, 0);
                self.open(found)?;
                Ok(None)
            }
            Err(ResolveError::NotServed { .. }) if self.lookups < LOOKUPS => {
                self.lookups += 1;
                Ok(Some("the cluster does not serve its kind yet".to_owned()))
            }
            Err(error) => Err(FindError::Kind { error }),
        }
    }

    fn open(&mut self, found: &ResourceType) -> Result<(), FindError> {
        let query = self.wanted.query(found)?;
        let changes = Box::pin(self.place.cluster.watch_objects::<Value>(&query));
        self.open = Some((query.resource, changes));
        Ok(())
    }
}

/// Adds `apiVersion` and `kind`, which the items of a list do not have: a JSON path may read them.
fn complete(change: &mut ObjectChange<Value>, resource: &Resource) {
    if let ObjectChange::Present(Value::Object(fields)) = change {
        fields.entry("apiVersion").or_insert_with(|| resource.api_version().to_string().into());
        fields.entry("kind").or_insert_with(|| resource.kind.kind.clone().into());
    }
}
