//! Objects of a target that are waited for: the kind is found, its objects are watched, and a kind that goes is looked
//! for again.

use std::{collections::BTreeMap, fmt, pin::Pin, time::Duration};

use billhook_cluster::{Cluster, Error, ObjectChange};
use billhook_engine::Clusters;
use billhook_objects::{ApiVersion, Catalog, GroupKind, KindName, ResolveError, ResourceType};
use billhook_plan::{Catalogs, Query, Resource, Select};
use futures::{FutureExt as _, Stream, StreamExt as _, stream};
use serde_json::Value;
use tokio::time::{Instant, sleep};

/// How often discovery is asked again for a kind that it does not know: an operator that was just deployed may bring
/// its definition. With the pauses that is about a minute.
const LOOKUPS: u32 = 6;
/// The pause before the second question; each further one is twice as long.
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
        /// The namespace; what stands here for a cluster-scoped kind does not count.
        namespace: Option<String>,
        /// The name.
        name: String,
    },
    /// All that carry these labels, in all namespaces.
    Labels(BTreeMap<String, String>),
}

impl Wanted {
    pub(crate) fn new(api_version: &ApiVersion, kind: &str, which: Which) -> Self {
        let name = KindName { group: api_version.group().to_owned(), name: kind.to_owned() };
        Self { kind: name, version: api_version.version().to_owned(), which }
    }

    /// Whether this object, which a watch showed, still carries the labels that it was watched by.
    pub(crate) fn carried_by(&self, object: &Value) -> bool {
        let Which::Labels(wanted) = &self.which else { return true };
        let labels = &object["metadata"]["labels"];
        wanted.iter().all(|(label, value)| labels[label] == value.as_str())
    }

    /// How they are asked for, where this is their kind.
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

/// What a watch has to say.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Seen {
    /// Changes of objects of this kind, in order; the first of them are all that a list shows.
    Objects(GroupKind, Vec<ObjectChange<Value>>),
    /// Why nothing can be seen at the moment; what was seen before was said to be gone.
    Nothing(String),
}

/// Why objects cannot be looked for.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// A `targetName` that stands for no cluster.
    #[error("find target {0:?}: its cluster is not known")]
    Target(String),
    /// The target does not serve the kind, although it was waited for, or the name stands for several kinds.
    #[error("{error}{}", elsewhere(error))]
    Kind {
        /// What was asked for, and what was found instead.
        error: ResolveError,
    },
    /// The kind lives in namespaces, and the reference has none.
    #[error("find {0}: its kind is namespaced, so the reference needs a namespace")]
    NoNamespace(String),
    /// The target's kinds cannot be read.
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

/// A cluster and the kinds that it is known to serve.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    cluster: &'a Cluster,
    catalog: Option<&'a Catalog>,
}

impl<'a> Place<'a> {
    /// The item's own target, or the one that a `targetName` names.
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

    /// Watches objects, also through the absence of their kind. The stream ends with an error only.
    pub(crate) fn watch(self, wanted: Wanted) -> SeenStream<'a> {
        let watched = Watched { place: self, wanted, open: None, pause: Duration::ZERO, lookups: 0 };
        Box::pin(stream::try_unfold(watched, async |mut watched| Ok(Some((watched.next().await?, watched)))))
    }
}

/// What [`Place::watch`] sees. Dropping the future of its next item loses nothing.
pub(crate) type SeenStream<'a> = Pin<Box<dyn Stream<Item = Result<Seen, FindError>> + Send + 'a>>;

type Changes = Pin<Box<dyn Stream<Item = ObjectChange<Value>> + Send>>;

struct Watched<'a> {
    place: Place<'a>,
    wanted: Wanted,
    /// The watch, and how it talks to its objects.
    open: Option<(Resource, Changes)>,
    /// How long to wait before discovery is asked.
    pause: Duration,
    /// How often in a row discovery did not know the kind.
    lookups: u32,
}

impl Watched<'_> {
    async fn next(&mut self) -> Result<Seen, FindError> {
        loop {
            let Some((resource, changes)) = &mut self.open else {
                match self.find().await? {
                    Some(why) => return Ok(Seen::Nothing(why)),
                    None => continue,
                }
            };
            let Some(first) = changes.next().await else {
                // The kind is gone.
                self.open = None;
                continue;
            };
            let (resource, mut seen) = (resource.clone(), vec![first]);
            // A list says its objects all at once: only together they tell whether all of them are ready.
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
            return Ok(Seen::Objects(resource.kind, seen));
        }
    }

    /// Opens the watch where the kind is known; else says why it is not.
    async fn find(&mut self) -> Result<Option<String>, FindError> {
        let Wanted { kind, version, .. } = &self.wanted;
        // What the caller knows counts once, and only where it knows the version, too: the catalog may be older than
        // what was deployed.
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

/// The items of a list carry neither `apiVersion` nor `kind`, and a path may look at them.
fn complete(change: &mut ObjectChange<Value>, resource: &Resource) {
    if let ObjectChange::Present(Value::Object(fields)) = change {
        fields.entry("apiVersion").or_insert_with(|| resource.api_version().to_string().into());
        fields.entry("kind").or_insert_with(|| resource.kind.kind.clone().into());
    }
}

/// Waits until this time; for ever where there is none.
pub(crate) async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
