//! Connections to the clusters that Targets describe.

mod access;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use billhook_cluster::{Cluster, Error, Fence, Options, SharedAnswer, check_host};
use billhook_hosts::HostRules;
use billhook_objects::{Catalog, Digest, ObjectKey};
use billhook_plan::Resource;
use serde_json::Value;

pub use self::access::ConnectionRules;

use self::access::Access;
use crate::{
    api::{KUBERNETES_CLUSTER, Target, TargetSpec, resource},
    error::ItemFailure,
    metrics::{CountedCluster, Metrics},
};

/// Creates a cluster from a client configuration. Tests return a cluster of their own.
pub type Connect = Arc<dyn Fn(kube::Config, Options) -> Result<Cluster, Error> + Send + Sync>;

/// The namespace and name of a Target.
type Key = (String, String);
/// A connection with the digest of the kubeconfig that it was created with.
type Connection = (Digest, Arc<OpenTarget>);

/// The Targets of the home cluster, and the connections to their clusters. Targets with the same kubeconfig share one.
pub struct Targets {
    home: Cluster,
    connect: Connect,
    rules: ConnectionRules,
    fence: Fence,
    metrics: Metrics,
    known: Mutex<HashMap<Key, Target>>,
    /// The connection of each Target. A connection that no Target uses is closed when the last item has finished with it.
    open: Mutex<HashMap<Key, Connection>>,
}

/// A cluster that items deploy to.
pub struct OpenTarget {
    /// The cluster.
    pub cluster: Cluster,
    /// A kubeconfig with this access and nothing else.
    kubeconfig: String,
    /// The host that clients connect to, and the rules about it.
    host: (String, Arc<HostRules>),
    _counted: CountedCluster,
    catalog: SharedAnswer<Arc<Catalog>>,
    version: SharedAnswer<String>,
}

/// The maximum age of the catalog and version that a chart is rendered for. It is short, because a chart may silently omit
/// objects of kinds that the catalog lacks.
pub(crate) const RENDER_AGE: Duration = Duration::from_secs(5);

/// How long ago an API server may have answered before a program connects to it.
const PROGRAM_AGE: Duration = Duration::from_secs(600);

/// How long a failure is reused: only one item waits for an unavailable cluster, and the others fail with it.
const FAILURE_AGE: Duration = Duration::from_secs(2);

impl OpenTarget {
    /// Returns the kinds that the cluster serves, from a cache that is at most `age` old.
    ///
    /// # Errors
    ///
    /// When discovery fails, or has just failed for another caller.
    pub async fn catalog(&self, age: Duration) -> Result<Arc<Catalog>, Error> {
        self.catalog.get(age, async { Ok(Arc::new(self.cluster.catalog().await?)) }).await
    }

    /// Returns the Kubernetes version of the cluster, from a cache that is at most `age` old.
    ///
    /// # Errors
    ///
    /// When the request fails, or has just failed for another caller.
    pub async fn version(&self, age: Duration) -> Result<String, Error> {
        self.version.get(age, self.cluster.version()).await
    }

    /// Returns a kubeconfig with this access and nothing else, for a program that is about to connect.
    ///
    /// The program quotes answers in its errors, so an API server must have answered before.
    ///
    /// # Errors
    ///
    /// When an address of the server is denied, or when no API server answers there.
    pub async fn kubeconfig(&self) -> Result<&str, ItemFailure> {
        let (host, rules) = &self.host;
        check_host(rules, host).await?;
        self.version(PROGRAM_AGE).await?;
        Ok(&self.kubeconfig)
    }
}

impl Targets {
    /// Creates the connections for a home cluster. They send no requests once the fence is down.
    pub fn new(home: Cluster, connect: Connect, rules: ConnectionRules, fence: Fence, metrics: Metrics) -> Self {
        Self { home, connect, rules, fence, metrics, known: Mutex::default(), open: Mutex::default() }
    }

    /// Adds or updates a Target, and returns its previous specification.
    pub fn insert(&self, target: Target) -> Option<TargetSpec> {
        let key =
            (target.metadata.namespace.clone().unwrap_or_default(), target.metadata.name.clone().unwrap_or_default());
        let before = self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(key, target);
        before.map(|before| before.spec)
    }

    /// Removes a Target, and returns its specification.
    pub fn remove(&self, namespace: &str, name: &str) -> Option<TargetSpec> {
        let key = (namespace.to_owned(), name.to_owned());
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(&key).map(|target| target.spec)
    }

    /// Returns the connection to the cluster of a Target, and opens it if there is none.
    ///
    /// # Errors
    ///
    /// When the Target does not exist, is not a Kubernetes cluster or has a wrong configuration, when its kubeconfig is not
    /// accepted ([`Access::read`]), or when its Secret cannot be read.
    pub async fn open(&self, namespace: &str, name: &str) -> Result<Arc<OpenTarget>, ItemFailure> {
        let key = (namespace.to_owned(), name.to_owned());
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        let target = match known {
            Some(target) => target,
            // It may be newer than the last event of the watch.
            None => self.read(namespace, name).await?,
        };
        let text = self.kubeconfig(namespace, name, target).await?;
        let digest = Digest::of(&Value::from(text.as_str()));
        if let Some(open) = self.shared(&key, &digest) {
            return Ok(open);
        }
        let wrong = |problem: String| ItemFailure::configuration("ReadTarget", format!("target {name}: {problem}"));
        let unusable = |problem| wrong(format!("its kubeconfig cannot be used: {problem}"));
        let access = Access::read(&text, &self.rules).map_err(unusable)?;
        let config = access.config().await.map_err(unusable)?;
        let options = Options::foreign(Arc::clone(&self.rules.hosts));
        let cluster =
            (self.connect)(config, options).map_err(|error| wrong(error.to_string()))?.fenced(self.fence.clone());
        let open = Arc::new(OpenTarget {
            _counted: self.metrics.count_requests(cluster.clone()),
            cluster,
            kubeconfig: access.kubeconfig(),
            host: (access.host().to_owned(), Arc::clone(&self.rules.hosts)),
            catalog: SharedAnswer::new(FAILURE_AGE),
            version: SharedAnswer::new(FAILURE_AGE),
        });
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(key, (digest, Arc::clone(&open)));
        Ok(open)
    }

    /// Returns the connection of any Target with this kubeconfig, and makes it the connection of this Target as well.
    fn shared(&self, key: &Key, digest: &Digest) -> Option<Arc<OpenTarget>> {
        let mut all = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |(of, open): &Connection| (of == digest).then(|| Arc::clone(open));
        if let Some(open) = all.get(key).and_then(same) {
            return Some(open);
        }
        let open = all.values().find_map(same)?;
        all.insert(key.clone(), (digest.clone(), Arc::clone(&open)));
        Some(open)
    }

    async fn read(&self, namespace: &str, name: &str) -> Result<Target, ItemFailure> {
        let key = ObjectKey::new(targets().kind, Some(namespace), name);
        let missing = || {
            let problem =
                format!("Target {namespace}/{name} does not exist: create it, or correct its name in the DeployItem");
            ItemFailure::missing("NoTargetFound", problem)
        };
        let found = self.home.get(&targets(), &key).await?.ok_or_else(missing)?;
        serde_json::from_value(found)
            .map_err(|error| ItemFailure::configuration("ReadTarget", format!("target {name}: {error}")))
    }

    /// Reads the kubeconfig of a Target from its configuration or its Secret.
    async fn kubeconfig(&self, namespace: &str, name: &str, target: Target) -> Result<String, ItemFailure> {
        let wrong = |problem: String| ItemFailure::configuration("ReadTarget", format!("target {name}: {problem}"));
        let spec = target.spec;
        if spec.r#type != KUBERNETES_CLUSTER {
            return Err(wrong(format!("spec.type is {:?}, but only {KUBERNETES_CLUSTER:?} is supported", spec.r#type)));
        }
        let config = match (spec.config, spec.secret_ref.filter(|secret| !secret.name.is_empty())) {
            (Some(config), None) => config,
            (None, Some(secret)) => {
                let data = read_secret(&self.home, namespace, &secret.name).await?;
                match secret.key {
                    Some(key) => {
                        let text = data
                            .get(&key)
                            .ok_or_else(|| wrong(format!("Secret {} has no key {key:?}", secret.name)))?;
                        parse_yaml(text)
                            .map_err(|problem| wrong(format!("Secret {}, key {key}: {problem}", secret.name)))?
                    }
                    None => data.into_iter().map(|(key, text)| (key, Value::from(text))).collect(),
                }
            }
            _ => return Err(wrong("exactly one of spec.config and spec.secretRef must be set".to_owned())),
        };
        match config.get("kubeconfig") {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(kubeconfig @ Value::Object(_)) => Ok(kubeconfig.to_string()),
            // The configuration may be the kubeconfig itself.
            None if config.get("kind").is_some_and(|kind| kind == "Config") => Ok(config.to_string()),
            Some(_) => Err(wrong("its kubeconfig must be a string or an object".to_owned())),
            None => {
                Err(wrong("its configuration has no kubeconfig; other kinds of access are not supported".to_owned()))
            }
        }
    }
}

/// Reads the data of a Secret as text.
///
/// # Errors
///
/// When the Secret does not exist (a transient failure), or cannot be read.
pub async fn read_secret(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
) -> Result<BTreeMap<String, String>, ItemFailure> {
    let resource = Resource::secrets();
    let key = ObjectKey::new(resource.kind.clone(), Some(namespace), name);
    let missing = || ItemFailure::missing("ReadSecret", format!("Secret {namespace}/{name} does not exist"));
    let secret = cluster.get(&resource, &key).await?.ok_or_else(missing)?;
    let secret: k8s_openapi::api::core::v1::Secret = serde_json::from_value(secret)
        .map_err(|error| ItemFailure::configuration("ReadSecret", format!("Secret {namespace}/{name}: {error}")))?;
    let text = |data: k8s_openapi::ByteString| String::from_utf8_lossy(&data.0).into_owned();
    Ok(secret.data.unwrap_or_default().into_iter().map(|(key, data)| (key, text(data))).collect())
}

fn parse_yaml(text: &str) -> Result<Value, String> {
    let documents = billhook_objects::yaml::parse(text).map_err(|error| format!("not valid YAML: {error}"))?;
    documents.into_iter().next().map(|document| document.value).ok_or_else(|| "it is empty".to_owned())
}

/// Returns the resource of Targets.
pub fn targets() -> Resource {
    resource("Target", "targets")
}

#[cfg(test)]
mod tests;
