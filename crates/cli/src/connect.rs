//! Connects to clusters: the one that holds the release, and those of `--target`.

use std::{collections::BTreeMap, path::Path, str::FromStr, time::Duration};

use billhook_cluster::{Cluster, HeldLease, Holder, Options};
use billhook_engine::Clusters;
use billhook_objects::ReleaseName;
use kube::config::KubeConfigOptions;
use tokio::runtime::Handle;

#[cfg(feature = "sandbox")]
use crate::sandbox;
use crate::{
    clock::now,
    config,
    error::{CommandError, Exit},
    session::Session,
};

/// A cluster, and the namespace that the command works in.
pub(crate) struct Connection {
    pub(crate) cluster: Cluster,
    pub(crate) namespace: String,
    /// The client configuration of the cluster; none for a sandbox.
    pub(crate) config: Option<kube::Config>,
    holder: Holder,
}

impl Connection {
    /// Returns the name of a release in this namespace.
    pub(crate) fn release(&self, name: &str) -> Result<ReleaseName, CommandError> {
        ReleaseName::new(&self.namespace, name).map_err(|error| CommandError::failed(Exit::Input, &error))
    }

    /// Adds the clusters of targets, by the names that policies use for them.
    pub(crate) fn with(self, targets: BTreeMap<String, Cluster>) -> Clusters {
        Clusters { own: self.cluster, records: None, targets, now: now(), holder: self.holder }
    }
}

impl Session {
    /// Connects to the cluster of the flags, the kubeconfig and the environment, or to a sandbox.
    ///
    /// For a cluster, this sends no request yet.
    pub(crate) async fn connection(&self) -> Result<Connection, CommandError> {
        #[cfg(feature = "sandbox")]
        if self.global.sandbox {
            let (cluster, namespace) = sandbox::start(self, self.cluster_options()).await?;
            return Ok(Connection { cluster, namespace, config: None, holder: self.holder(None) });
        }
        let config = config::load(self).await?;
        self.server.get_or_init(|| config.cluster_url.to_string());
        let namespace = self.global.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let cluster = (self.connect)(config.clone(), self.cluster_options())?;
        Ok(Connection { cluster, namespace, config: Some(config), holder: self.holder(None) })
    }

    /// Connects to the same cluster again, from another runtime; none for a sandbox.
    pub(crate) async fn connection_in(&self, runtime: &Handle) -> Result<Option<Cluster>, CommandError> {
        if self.global.sandbox {
            return Ok(None);
        }
        let config = config::load(self).await?;
        // Parts of a client run in the runtime that makes it.
        let _inside = runtime.enter();
        Ok(Some((self.connect)(config, self.cluster_options())?))
    }

    /// Returns who locks the releases that this command changes. With a Lease, its requests must be behind the fence of the
    /// leadership.
    pub(crate) fn holder(&self, lease: Option<HeldLease>) -> Holder {
        let user = ["USER", "LOGNAME"].iter().find_map(|name| self.env.get(*name).filter(|user| !user.is_empty()));
        let host = self.host();
        Holder::new(user.map_or(host.clone(), |user| format!("{user}@{host}")), std::process::id(), lease)
    }

    /// Connects to the clusters of `--target NAME=KUBECONFIG[#CONTEXT]`.
    pub(crate) async fn targets(&self, targets: &[Target]) -> Result<BTreeMap<String, Cluster>, CommandError> {
        if self.global.sandbox && !targets.is_empty() {
            return Err(CommandError::input("--sandbox cannot be combined with --target"));
        }
        let mut clusters = BTreeMap::new();
        for Target { name, kubeconfig, context } in targets {
            let options = KubeConfigOptions { context: context.clone(), cluster: None, user: None };
            let config = config::load_target(self, Path::new(kubeconfig), &options).await?;
            if clusters.insert(name.clone(), (self.connect)(config, self.cluster_options())?).is_some() {
                return Err(CommandError::input(format!("--target {name} is given twice")));
            }
        }
        Ok(clusters)
    }

    fn cluster_options(&self) -> Options {
        const NO_LIMIT: Duration = Duration::from_secs(365 * 24 * 3600);
        let mut options = Options::default();
        if let Some(timeout) = self.global.request_timeout {
            options.request_timeout = if timeout.0.is_zero() { NO_LIMIT } else { timeout.0 };
        }
        options
    }
}

/// The value of `--target`: the cluster of a policy's `targetName`.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    name: String,
    kubeconfig: String,
    context: Option<String>,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || "expected NAME=KUBECONFIG or NAME=KUBECONFIG#CONTEXT".to_owned();
        let (name, place) = text.split_once('=').ok_or_else(invalid)?;
        let (kubeconfig, context) = match place.split_once('#') {
            Some((kubeconfig, context)) => (kubeconfig, Some(context.to_owned())),
            None => (place, None),
        };
        if name.is_empty() || kubeconfig.is_empty() || context.as_ref().is_some_and(String::is_empty) {
            return Err(invalid());
        }
        Ok(Self { name: name.to_owned(), kubeconfig: kubeconfig.to_owned(), context })
    }
}
