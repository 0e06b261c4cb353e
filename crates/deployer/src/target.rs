//! Connections to the clusters that Targets describe.

mod access;
pub(crate) mod selector;
mod tokens;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use billhook_cluster::{Cluster, Error, Fence, Options, SharedAnswer};
use billhook_hosts::{Behind, Dialer, Gate, HostRules, Relay};
use billhook_objects::{Catalog, Digest, ObjectKey};
use billhook_plan::Resource;
use serde_json::{Value, json};
use tokio::time::Instant;

pub use self::{
    access::ConnectionRules,
    selector::{SelectorError, TargetSelector},
};

use self::{
    access::{Access, Door, parse_yaml},
    tokens::{Place, TokenConfig, Tokens},
};
use crate::{
    api::{ErrorCode, KUBERNETES_CLUSTER, TOO_LARGE, Target, TargetSpec, resource},
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
    access: Access,
    /// What clients connect to: the server, or a proxy.
    door: Door,
    /// What connects to it.
    dialer: Dialer,
    /// Lets programs send while this process may.
    gate: Gate,
    tokens: Option<Tokens>,
    _counted: CountedCluster,
    catalog: SharedAnswer<Arc<Catalog>>,
    version: SharedAnswer<String>,
}

/// The maximum age of the catalog and version that a chart is rendered for. It is short, because a chart may silently omit
/// objects of kinds that the catalog lacks.
pub(crate) const RENDER_AGE: Duration = Duration::from_secs(5);

/// How long ago an API server may have answered before a program connects to it.
const PROGRAM_AGE: Duration = Duration::from_secs(600);

/// The reason of the failure of an item whose Target does not exist.
const NO_TARGET: &str = "NoTargetFound";

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

    /// Returns the access for a program that is about to connect, and works until a time.
    ///
    /// The program quotes answers in its errors, so an API server must have answered before. It neither resolves the name of the
    /// server nor chooses its address: it connects to a [`Relay`], which the fence closes. So a program of a leader that was frozen
    /// and replaced changes nothing any more, although it is a process of its own. Only an HTTPS proxy of the kubeconfig is connected
    /// to directly.
    ///
    /// # Errors
    ///
    /// When an address of the server is denied, when no API server answers there, or when a token is needed and cannot be
    /// requested.
    pub async fn program_access(&self, until: Option<Instant>) -> Result<ProgramAccess, ItemFailure> {
        self.dialer.check(&self.door.host).await?;
        self.version(PROGRAM_AGE).await?;
        let token = match &self.tokens {
            Some(tokens) => Some(tokens.lasting(until).await?),
            None => None,
        };
        let Door { scheme, host, port } = &self.door;
        let is_proxy = self.door != *self.access.server();
        let behind = if is_proxy { Behind::Proxy } else { Behind::Server };
        // A proxy with TLS has a certificate for its own name.
        let relay = match is_proxy && scheme == "https" {
            true => None,
            false => {
                let failed = |error: std::io::Error| {
                    ItemFailure::new("Relay", format!("listen on loopback: {error}"), ErrorCode::InternalProblem)
                };
                let relay = Relay::start(self.dialer.clone(), self.gate.clone(), host, *port, behind);
                Some(relay.await.map_err(failed)?)
            }
        };
        let proxy = match &relay {
            Some(relay) if is_proxy => format!("{scheme}://{}", relay.address()),
            Some(relay) => format!("http://{}", relay.address()),
            None => format!("{scheme}://{host}:{port}"),
        };
        Ok(ProgramAccess { kubeconfig: self.access.kubeconfig(Some(&proxy), token.as_deref()), _relay: relay })
    }

    /// Returns whether its credentials are valid as far as we know. A token is not if its ServiceAccount was recreated, which the
    /// server tells by 401.
    fn is_usable(&self) -> bool {
        let rejected = || self.cluster.responses().keys().any(|(_, code)| *code == 401);
        self.tokens.as_ref().is_none_or(|tokens| !tokens.is_expired() && !rejected())
    }
}

/// The access of a program to a cluster, until this is dropped.
pub struct ProgramAccess {
    kubeconfig: String,
    _relay: Option<Relay>,
}

impl ProgramAccess {
    /// Returns a kubeconfig with this access and nothing else.
    pub fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }
}

impl Targets {
    /// Creates the connections for a home cluster. Neither they nor programs send requests once the fence is down.
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

    /// Returns the names of a namespace's Targets.
    pub fn names(&self, namespace: &str) -> Vec<String> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.keys().filter(|key| key.0 == namespace).map(|key| key.1.clone()).collect()
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
        let config = self.configuration(namespace, name, target).await?;
        let wrong = |problem: String| ItemFailure::configuration("ReadTarget", format!("target {name}: {problem}"));
        let tokens = TokenConfig::read(&config, namespace).map_err(wrong)?;
        let text = match &tokens {
            Some(_) => config.to_string(),
            None => kubeconfig(&config).map_err(wrong)?,
        };
        // Targets of other namespaces have tokens of other ServiceAccounts.
        let digest = Digest::of(&json!([text, tokens.as_ref().map(|_| namespace)]));
        if let Some(open) = self.shared(&key, &digest) {
            return Ok(open);
        }
        let open = Arc::new(self.connect(namespace, &text, tokens, &wrong).await?);
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(key, (digest, Arc::clone(&open)));
        Ok(open)
    }

    /// Opens a connection with a kubeconfig, or with tokens.
    async fn connect(
        &self,
        namespace: &str,
        text: &str,
        tokens: Option<TokenConfig>,
        wrong: &(dyn Fn(String) -> ItemFailure + Sync),
    ) -> Result<OpenTarget, ItemFailure> {
        let unusable = |problem| wrong(format!("its kubeconfig cannot be used: {problem}"));
        let (access, rules) = match tokens.as_ref().map(|tokens| &tokens.place) {
            None => (Access::read(text, &self.rules).map_err(unusable)?, self.rules.clone()),
            Some(Place::Other { kubeconfig, .. }) => {
                let access = Access::read(kubeconfig, &self.rules);
                (access.map_err(|problem| wrong(format!("oidcConfig: {problem}")))?, self.rules.clone())
            }
            Some(Place::Home) => {
                let home = self.rules.home.as_deref();
                let home = home.ok_or_else(|| wrong("selfConfig is not supported here".to_owned()))?;
                // The operator has chosen its address.
                let rules = ConnectionRules { dialer: Dialer::unrestricted(), proxy_url: true, home: None };
                (Access::read(&tokens::kubeconfig_of_home(home), &rules).map_err(unusable)?, rules)
            }
        };
        let config = access.config().await.map_err(unusable)?;
        let tokens = match tokens {
            Some(tokens) => Some(Tokens::start(&self.home, namespace, tokens).await?),
            None => None,
        };
        let (door, dialer) = match (access.proxy(), config.proxy_url.as_ref().and_then(Door::of)) {
            (Some(proxy), _) => (proxy.clone(), rules.dialer.clone()),
            // It is that of the environment.
            (None, Some(proxy)) => (proxy, Dialer::unrestricted()),
            (None, None) => (access.server().clone(), rules.dialer.clone()),
        };
        // Without rules, errors quote answers, as for the home cluster.
        let foreign: Option<Arc<HostRules>> = rules.dialer.rules().cloned();
        let options = foreign.map_or_else(Options::default, Options::foreign);
        let options = Options { bearer: tokens.as_ref().map(Tokens::bearer), ..options };
        let cluster =
            (self.connect)(config, options).map_err(|error| wrong(error.to_string()))?.fenced(self.fence.clone());
        let fence = self.fence.clone();
        Ok(OpenTarget {
            gate: Gate::new(move || fence.lets_pass()),
            _counted: self.metrics.count_requests(cluster.clone()),
            cluster,
            access,
            door,
            dialer,
            tokens,
            catalog: SharedAnswer::new(FAILURE_AGE),
            version: SharedAnswer::new(FAILURE_AGE),
        })
    }

    /// Returns whether a controller with these selectors handles the items of a Target: one of them matches, or the Target does
    /// not exist. None if it is not known yet.
    pub(crate) fn is_selected(&self, namespace: &str, name: &str, selectors: &[TargetSelector]) -> Option<bool> {
        let key = (namespace.to_owned(), name.to_owned());
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&key).map(|target| selector::is_selected(&target.metadata, selectors))
    }

    /// Reads a Target that is not known yet, so that [`is_selected`](Self::is_selected) knows it.
    ///
    /// # Errors
    ///
    /// When the request fails. It is no error if the Target does not exist.
    pub(crate) async fn learn(&self, namespace: &str, name: &str) -> Result<(), ItemFailure> {
        match self.read(namespace, name).await {
            Ok(target) => {
                let key = (namespace.to_owned(), name.to_owned());
                // The watch may have been faster.
                self.known.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_insert(target);
                Ok(())
            }
            Err(failure) if failure.reason == NO_TARGET => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Returns the connection of any Target with this kubeconfig, and makes it the connection of this Target as well.
    fn shared(&self, key: &Key, digest: &Digest) -> Option<Arc<OpenTarget>> {
        let mut all = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |(of, open): &Connection| (of == digest && open.is_usable()).then(|| Arc::clone(open));
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
            ItemFailure::missing(NO_TARGET, problem)
        };
        let found = self.home.get(&targets(), &key).await?.ok_or_else(missing)?;
        serde_json::from_value(found)
            .map_err(|error| ItemFailure::configuration("ReadTarget", format!("target {name}: {error}")))
    }

    /// Reads the configuration of a Target, or that in its Secret.
    async fn configuration(&self, namespace: &str, name: &str, target: Target) -> Result<Value, ItemFailure> {
        let wrong = |problem: String| ItemFailure::configuration("ReadTarget", format!("target {name}: {problem}"));
        let spec = target.spec;
        if spec.r#type != KUBERNETES_CLUSTER {
            return Err(wrong(format!("spec.type is {:?}, but only {KUBERNETES_CLUSTER:?} is supported", spec.r#type)));
        }
        match (spec.config, spec.secret_ref.filter(|secret| !secret.name.is_empty())) {
            (Some(config), None) => Ok(config),
            (None, Some(secret)) => {
                let data = read_secret(&self.home, namespace, &secret.name).await?;
                match secret.key {
                    Some(key) => {
                        let text = data
                            .get(&key)
                            .ok_or_else(|| wrong(format!("Secret {} has no key {key:?}", secret.name)))?;
                        parse_yaml(text)
                            .map_err(|problem| wrong(format!("Secret {}, key {key}: {problem}", secret.name)))
                    }
                    None => Ok(data.into_iter().map(|(key, text)| (key, Value::from(text))).collect()),
                }
            }
            _ => Err(wrong("exactly one of spec.config and spec.secretRef must be set".to_owned())),
        }
    }
}

/// Returns the kubeconfig in the configuration of a Target.
fn kubeconfig(config: &Value) -> Result<String, String> {
    match config.get("kubeconfig") {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(kubeconfig @ Value::Object(_)) => Ok(kubeconfig.to_string()),
        // The configuration may be the kubeconfig itself.
        None if config.get("kind").is_some_and(|kind| kind == "Config") => Ok(config.to_string()),
        None if config == TOO_LARGE => Err(TOO_LARGE.to_owned()),
        Some(_) => Err("its kubeconfig must be a string or an object".to_owned()),
        None => Err("its configuration has none of kubeconfig, oidcConfig and selfConfig".to_owned()),
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

/// Returns the resource of Targets.
pub fn targets() -> Resource {
    resource("Target", "targets")
}

#[cfg(test)]
mod tests;
