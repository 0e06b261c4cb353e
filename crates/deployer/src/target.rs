//! From a DeployItem's target to a cluster.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use billhook_cluster::{Cluster, Error, Fence, Options, SharedAnswer};
use billhook_objects::{Catalog, Digest, GroupKind, ObjectKey};
use billhook_plan::Resource;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;

use crate::{
    api::{KUBERNETES_CLUSTER, Target, TargetSpec},
    error::ItemFailure,
    metrics::{CountedCluster, Metrics},
};

/// Makes a cluster of a configuration: a test hands out a cluster of its own.
pub type Connect = Arc<dyn Fn(kube::Config, Options) -> Result<Cluster, Error> + Send + Sync>;

/// The namespace and name of a Target.
type Key = (String, String);
/// With the digest of the kubeconfig that it was made with.
type Connection = (Digest, Arc<OpenTarget>);

/// The Targets of the home cluster, and the connections to their clusters. Items with the same kubeconfig share one.
pub struct Targets {
    home: Cluster,
    connect: Connect,
    fence: Fence,
    metrics: Metrics,
    known: Mutex<HashMap<Key, Target>>,
    /// The connection of each Target with the digest of its kubeconfig. One that no Target has any more ends with the last
    /// item that works with it.
    open: Mutex<HashMap<Key, Connection>>,
}

/// A cluster that items deploy to.
pub struct OpenTarget {
    /// The cluster.
    pub cluster: Cluster,
    /// The kubeconfig, for programs that want one.
    pub kubeconfig: String,
    _counted: CountedCluster,
    catalog: SharedAnswer<Arc<Catalog>>,
    version: SharedAnswer<String>,
}

/// How old that may be what a chart is rendered for: what a chart leaves out, because a kind was not there yet, nobody
/// misses.
pub(crate) const RENDER_AGE: Duration = Duration::from_secs(5);

/// How long a failure counts: a cluster that is away is asked by one item, and the others need not wait as long once more.
const FAILURE_AGE: Duration = Duration::from_secs(2);

impl OpenTarget {
    /// The kinds that the cluster serves, read again where what is known is older than `age`.
    ///
    /// # Errors
    ///
    /// When discovery fails, or has failed a moment ago.
    pub async fn catalog(&self, age: Duration) -> Result<Arc<Catalog>, Error> {
        self.catalog.get(age, async { Ok(Arc::new(self.cluster.catalog().await?)) }).await
    }

    /// The version of the cluster, asked for again where what is known is older than `age`.
    ///
    /// # Errors
    ///
    /// When the server does not answer, or has not answered a moment ago.
    pub async fn version(&self, age: Duration) -> Result<String, Error> {
        self.version.get(age, self.cluster.version()).await
    }
}

impl Targets {
    /// Targets of the home cluster. No request of theirs leaves once the fence is down.
    pub fn new(home: Cluster, connect: Connect, fence: Fence, metrics: Metrics) -> Self {
        Self { home, connect, fence, metrics, known: Mutex::default(), open: Mutex::default() }
    }

    /// Takes note of a Target, and says what it was before.
    pub fn insert(&self, target: Target) -> Option<TargetSpec> {
        let key =
            (target.metadata.namespace.clone().unwrap_or_default(), target.metadata.name.clone().unwrap_or_default());
        let before = self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(key, target);
        before.map(|before| before.spec)
    }

    /// Forgets a Target.
    pub fn remove(&self, namespace: &str, name: &str) {
        let key = (namespace.to_owned(), name.to_owned());
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
    }

    /// The cluster of a Target.
    ///
    /// # Errors
    ///
    /// When there is no such Target, it is no Kubernetes cluster, its configuration is wrong or asks for more than a
    /// kubeconfig may ask for here, or its Secret cannot be read.
    pub async fn open(&self, namespace: &str, name: &str) -> Result<Arc<OpenTarget>, ItemFailure> {
        let key = (namespace.to_owned(), name.to_owned());
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        let target = match known {
            Some(target) => target,
            // It may be younger than the last event of the watch.
            None => self.read(namespace, name).await?,
        };
        let text = self.kubeconfig(namespace, name, target).await?;
        let digest = Digest::of(&Value::from(text.as_str()));
        if let Some(open) = self.shared(&key, &digest) {
            return Ok(open);
        }
        let wrong = |problem: String| ItemFailure::configuration("ReadTarget", format!("target {name}: {problem}"));
        let config = config(&text).await.map_err(wrong)?;
        let cluster = (self.connect)(config, Options::default())
            .map_err(|error| wrong(format!("{error}: {}", error.message())))?
            .fenced(self.fence.clone());
        let open = Arc::new(OpenTarget {
            _counted: self.metrics.count_requests(cluster.clone()),
            cluster,
            kubeconfig: text,
            catalog: SharedAnswer::new(FAILURE_AGE),
            version: SharedAnswer::new(FAILURE_AGE),
        });
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(key, (digest, Arc::clone(&open)));
        Ok(open)
    }

    /// The connection that some Target has with this kubeconfig; from now on it is this Target's, too.
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
        let (resource, key) = (targets(), ObjectKey::new(targets().kind, Some(namespace), name));
        let missing = || {
            let problem =
                format!("target {name}: there is no Target {namespace}/{name}: create it, or name another one");
            to_come("NoTargetFound", problem)
        };
        let found = self.home.get(&resource, &key).await?.ok_or_else(missing)?;
        serde_json::from_value(found)
            .map_err(|error| ItemFailure::configuration("ReadTarget", format!("target {name}: {error}")))
    }

    /// The kubeconfig of a Target, from its configuration or its Secret.
    async fn kubeconfig(&self, namespace: &str, name: &str, target: Target) -> Result<String, ItemFailure> {
        let wrong = |problem: String| ItemFailure::configuration("ReadTarget", format!("target {name}: {problem}"));
        let spec = target.spec;
        if spec.r#type != KUBERNETES_CLUSTER {
            return Err(wrong(format!("its type is {:?}; this deployer knows {KUBERNETES_CLUSTER}", spec.r#type)));
        }
        let config = match (spec.config, spec.secret_ref) {
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
            // A key that holds the kubeconfig itself means the same.
            None if config.get("kind").is_some_and(|kind| kind == "Config") => Ok(config.to_string()),
            Some(_) => Err(wrong("its kubeconfig must be a text or an object".to_owned())),
            None => Err(wrong(
                "its configuration has no kubeconfig, the one kind of access that this deployer knows".to_owned(),
            )),
        }
    }
}

/// Something is missing that may come yet: what is applied together is not made at once.
pub(crate) fn to_come(reason: &'static str, problem: String) -> ItemFailure {
    ItemFailure { passes: true, ..ItemFailure::configuration(reason, problem) }
}

/// The data of a Secret, as text.
///
/// # Errors
///
/// When it is not there, which may pass, or cannot be read.
pub async fn read_secret(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
) -> Result<BTreeMap<String, String>, ItemFailure> {
    let resource = Resource::secrets();
    let key = ObjectKey::new(resource.kind.clone(), Some(namespace), name);
    let missing = || to_come("ReadSecret", format!("there is no Secret {namespace}/{name}"));
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

/// Reads a kubeconfig. What would run programs or read files of the controller is refused: whoever may write a Target may
/// not do that.
async fn config(text: &str) -> Result<kube::Config, String> {
    let kubeconfig = Kubeconfig::from_yaml(text).map_err(|_| "its kubeconfig cannot be read as one".to_owned())?;
    if let Some(what) = reach(&kubeconfig) {
        return Err(format!("its kubeconfig has {what}, which is refused here: give certificates and tokens inline"));
    }
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    config.map_err(|error| format!("its kubeconfig cannot be used: {error}"))
}

/// What of a kubeconfig reaches for programs or files.
fn reach(kubeconfig: &Kubeconfig) -> Option<&'static str> {
    let users = kubeconfig.auth_infos.iter().filter_map(|user| user.auth_info.as_ref());
    let clusters = kubeconfig.clusters.iter().filter_map(|cluster| cluster.cluster.as_ref());
    for user in users {
        let found = [
            ("an exec plugin", user.exec.is_some()),
            ("an auth provider", user.auth_provider.is_some()),
            ("a tokenFile", user.token_file.is_some()),
            ("a client-certificate file", user.client_certificate.is_some()),
            ("a client-key file", user.client_key.is_some()),
        ];
        if let Some((what, _)) = found.into_iter().find(|(_, found)| *found) {
            return Some(what);
        }
    }
    clusters
        .into_iter()
        .any(|cluster| cluster.certificate_authority.is_some())
        .then_some("a certificate-authority file")
}

/// How to talk to Targets.
pub fn targets() -> Resource {
    Resource {
        kind: GroupKind::new(crate::api::GROUP, "Target"),
        version: crate::api::VERSION.into(),
        plural: "targets".into(),
        namespaced: true,
    }
}

#[cfg(test)]
mod tests;
