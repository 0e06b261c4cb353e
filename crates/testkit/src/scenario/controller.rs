//! The controller of DeployItems, for scenarios with DeployItems.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow};
use billhook::{Cluster, ClusterOptions};
use billhook_deployer::{
    ConnectionRules, Controller, ControllerOptions, Helm, Metrics, Mode, Shard,
    api::{GROUP, KUBERNETES_CLUSTER, VERSION},
};
use billhook_objects::{GroupKind, ObjectKey, wellknown};
use billhook_sandbox::Served;
use jiff::{SignedDuration, Timestamp};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{
    Admin, Deployer,
    freeze::Freezer,
    items::ItemAction,
    lab::{Plane, connect},
    stage::{Stage, helm},
};
use crate::control_plane::User;

/// The controllers of a scenario, which are stopped when this is dropped.
pub(super) struct Controllers {
    running: Mutex<JoinSet<()>>,
    /// Receives the reason why a controller ended on its own.
    ended: watch::Sender<Option<String>>,
}

impl Default for Controllers {
    fn default() -> Self {
        Self { running: Mutex::default(), ended: watch::Sender::new(None) }
    }
}

impl Controllers {
    /// Starts a controller.
    pub(super) fn start(&self, home: Cluster, options: ControllerOptions) {
        let ended = self.ended.clone();
        self.running.lock().unwrap_or_else(PoisonError::into_inner).spawn(async move {
            let why = match Controller::new(home, options).run(CancellationToken::new()).await {
                Ok(()) => "it stopped on its own".to_owned(),
                Err(error) => format!("{:#}", anyhow::Error::from(error)),
            };
            ended.send_replace(Some(why));
        });
    }

    /// Kills all controllers.
    pub(super) fn kill(&self) {
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = JoinSet::new();
    }

    /// Waits until a controller ends on its own, and returns the reason.
    async fn ended(&self) -> String {
        let mut ended = self.ended.subscribe();
        match ended.wait_for(Option::is_some).await {
            Ok(why) => why.clone().unwrap_or_default(),
            Err(_) => "it does not run".to_owned(),
        }
    }
}

impl Stage<'_> {
    /// Runs `work`; fails if a controller ends.
    pub(super) async fn controlled<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        tokio::select! {
            done = work => Ok(done),
            why = self.controllers.ended() => Err(anyhow!("the controller ended: {why}")),
        }
    }

    /// Creates the kinds and the Targets that DeployItems need. If helm needs the cluster, it is served until the result is
    /// dropped.
    pub(super) async fn prepare_items(&self) -> Result<Option<Served>> {
        for file in std::fs::read_dir(self.folder().join("crds")).into_iter().flatten() {
            let file = file?;
            if file.file_name().to_string_lossy().starts_with(GROUP) {
                self.admin.create(&std::fs::read_to_string(file.path())?).await?;
            }
        }
        define(&self.admin).await?;
        let (served, kubeconfig) = match self.scenario.helm {
            true => (self.serve("target.kubeconfig").await?, "target.kubeconfig"),
            false => (None, "admin.kubeconfig"),
        };
        let own = std::fs::read_to_string(self.folder().join(kubeconfig))?;
        for namespace in self.item_namespaces() {
            self.admin.create(&target("target", &namespace, &own).to_string()).await?;
        }
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "kubeconfig"}, "stringData": {"kubeconfig": own},
        });
        self.admin.create(&secret.to_string()).await?;
        if self.second.is_some() {
            let second = std::fs::read_to_string(self.folder().join("second.kubeconfig"))?;
            self.admin.create(&target("second", &self.scenario.slug, &second).to_string()).await?;
        }
        Ok(served)
    }

    /// Returns the namespace of the items.
    fn item_namespaces(&self) -> BTreeSet<String> {
        let elsewhere = self.scenario.steps.iter().filter_map(|step| match &step.deploy_item {
            Some(ItemAction::Release(release)) => release.namespace.clone(),
            _ => None,
        });
        elsewhere.chain([self.scenario.slug.clone()]).collect()
    }

    /// Returns the cluster of the items, for requests with this client name on sandboxes.
    pub(super) async fn home(&self, client: &str) -> Result<Cluster> {
        let config = self.home_config().await?;
        Ok(connect(&self.planes, client, &Freezer::default(), config, ClusterOptions::default())?)
    }

    async fn home_config(&self) -> Result<kube::Config> {
        let config = Kubeconfig::from_yaml(&self.planes[0].kubeconfig())?;
        let chosen = KubeConfigOptions { context: Some(User::Admin.name().to_owned()), ..KubeConfigOptions::default() };
        Ok(kube::Config::from_custom_kubeconfig(config, &chosen).await?)
    }

    /// Returns the options of a controller, which ignores the items of other scenarios.
    pub(super) async fn controller_options(&self, client: &str) -> Result<ControllerOptions> {
        let mode = match self.scenario.deployer {
            Deployer::Standalone => Mode::Standalone,
            Deployer::Landscaper => Mode::Landscaper,
            Deployer::Auto => Mode::Auto,
        };
        let (planes, own) = (self.planes.clone(), client.to_owned());
        Ok(ControllerOptions {
            mode,
            namespaces: self.item_namespaces().into_iter().collect(),
            namespace_selector: None,
            identity: client.to_owned(),
            shard: Shard::default(),
            connect: Arc::new(move |config, options| connect(&planes, &own, &Freezer::default(), config, options)),
            now: match &self.planes[0] {
                Plane::Sandbox(..) => self.clock().await?,
                Plane::Real(_) => Arc::new(Timestamp::now),
            },
            helm: Helm::new(if self.scenario.helm { helm()? } else { "helm".to_owned() }),
            target_selectors: Vec::new(),
            connections: ConnectionRules {
                home: Some(Arc::new(self.home_config().await?)),
                ..ConnectionRules::default()
            },
            metrics: Metrics::default(),
            leader_election: None,
            max_items: 1000,
            grace: Duration::ZERO,
        })
    }

    /// Starts a controller.
    pub(super) async fn start_controller(&self, client: &str) -> Result<()> {
        self.controllers.start(self.home(client).await?, self.controller_options(client).await?);
        Ok(())
    }

    /// Returns the time of the sandbox, which follows tokio's clock.
    pub(super) async fn clock(&self) -> Result<Arc<dyn Fn() -> Timestamp + Send + Sync>> {
        let key = ObjectKey::new(GroupKind::new("", "Namespace"), None, "default");
        let namespace = self.admin.get(&key).await?.and_then(|namespace| namespace.metadata.creation_timestamp);
        let (start, begun) = (namespace.context("the namespace default has no time")?.0, self.begun);
        Ok(Arc::new(move || {
            start.saturating_add(SignedDuration::try_from(begun.elapsed()).unwrap_or_default()).unwrap_or(start)
        }))
    }
}

/// Returns a Target for the cluster of a kubeconfig.
pub(super) fn target(name: &str, namespace: &str, kubeconfig: &str) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "Target",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"type": KUBERNETES_CLUSTER, "config": {"kubeconfig": kubeconfig}},
    })
}

/// Creates the kinds, unless another scenario on the same control plane did.
async fn define(admin: &Admin) -> Result<()> {
    for definition in billhook_deployer::crds::definitions()? {
        let name = definition["metadata"]["name"].as_str().unwrap_or_default();
        let key = ObjectKey::new(wellknown::crd(), None, name);
        if admin.get(&key).await?.is_none()
            && let Err(error) = admin.create(&definition.to_string()).await
        {
            // Another scenario created it first.
            admin.get(&key).await?.ok_or(error)?;
        }
        admin.wait_established(&key).await?;
    }
    Ok(())
}
