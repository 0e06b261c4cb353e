//! A control plane with DeployItems, and a client that writes and watches them.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, bail};
use billhook_testkit::{
    control_plane::{ControlPlane, Options, User},
    scenario::Admin,
};
use futures::{Stream, StreamExt as _};
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams, Patch, PatchParams, WatchEvent, WatchParams},
    discovery::ApiResource,
};
use serde_json::{Value, json};

/// The namespace of all objects.
pub const NAMESPACE: &str = "items";
/// The time limit for any change before the test fails.
const PATIENCE: Duration = Duration::from_secs(40);

/// A control plane with the CRDs and a Target for itself.
pub struct World {
    pub plane: ControlPlane,
    pub client: Client,
}

impl World {
    pub async fn start(options: &Options) -> Result<Self> {
        let plane = ControlPlane::start(options)?;
        let client = Client::try_from(plane.client_config(User::Admin).await?)?;
        let world = Self { plane, client };
        let admin = Admin::new(world.client.clone(), NAMESPACE);
        let crds = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
        for file in std::fs::read_dir(&crds).with_context(|| format!("read {}", crds.display()))? {
            admin.create(&std::fs::read_to_string(file?.path())?).await?;
        }
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        let target = json!({
            "apiVersion": "landscaper.gardener.cloud/v1alpha1", "kind": "Target", "metadata": {"name": "own"},
            "spec": {
                "type": "landscaper.gardener.cloud/kubernetes-cluster",
                "config": {"kubeconfig": world.plane.kubeconfig()},
            },
        });
        admin.create(&format!("{namespace}\n---\n{target}")).await?;
        Ok(world)
    }

    pub fn items(&self) -> Api<DynamicObject> {
        Api::namespaced_with(
            self.client.clone(),
            NAMESPACE,
            &kind("landscaper.gardener.cloud", "v1alpha1", "DeployItem", "deployitems"),
        )
    }

    pub fn config_maps(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), NAMESPACE, &kind("", "v1", "ConfigMap", "configmaps"))
    }

    pub fn leases(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), NAMESPACE, &kind("coordination.k8s.io", "v1", "Lease", "leases"))
    }

    /// Counts the records of releases.
    pub async fn records(&self) -> Result<usize> {
        let secrets =
            Api::<DynamicObject>::namespaced_with(self.client.clone(), NAMESPACE, &kind("", "v1", "Secret", "secrets"));
        Ok(secrets.list(&ListParams::default().fields("type=billhook.dev/inventory")).await?.items.len())
    }

    /// Applies a DeployItem with ConfigMaps, given by their names and data.
    pub async fn apply(&self, name: &str, maps: &BTreeMap<String, String>) -> Result<()> {
        let manifest = |(name, data): (&String, &String)| {
            json!({"policy": "manage", "manifest": {
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": name, "namespace": NAMESPACE}, "data": {"version": data},
            }})
        };
        let item = json!({
            "apiVersion": "landscaper.gardener.cloud/v1alpha1", "kind": "DeployItem", "metadata": {"name": name},
            "spec": {
                "type": "landscaper.gardener.cloud/kubernetes-manifest",
                "target": {"name": "own"},
                "config": {
                    "apiVersion": "manifest.deployer.landscaper.gardener.cloud/v1alpha2", "kind": "ProviderConfiguration",
                    "manifests": maps.iter().map(manifest).collect::<Vec<_>>(),
                },
            },
        });
        self.items().patch(name, &PatchParams::apply("test").force(), &Patch::Apply(item)).await?;
        Ok(())
    }

    /// Returns the ConfigMaps of items with their data.
    pub async fn deployed(&self) -> Result<BTreeMap<String, String>> {
        let label = ListParams::default().labels("billhook.dev/release");
        let maps = self.config_maps().list(&label).await?.items;
        let data = |map: &DynamicObject| map.data["data"]["version"].as_str().unwrap_or_default().to_owned();
        Ok(maps.iter().map(|map| (map.metadata.name.clone().unwrap_or_default(), data(map))).collect())
    }

    /// Returns whether every item has succeeded in its newest version.
    pub async fn all_succeeded(&self) -> Result<bool> {
        let items = self.items().list(&ListParams::default()).await?.items;
        Ok(items.iter().all(|item| {
            let status = &item.data["status"];
            status["phase"] == "Succeeded" && status["observedGeneration"] == json!(item.metadata.generation)
        }))
    }

    /// Watches changes of items and ConfigMaps from now on.
    pub async fn changes(&self) -> Result<impl Stream<Item = ()> + Unpin + use<>> {
        let mut watches = Vec::new();
        for api in [self.items(), self.config_maps()] {
            let from = api.list(&ListParams::default().limit(1)).await?.metadata.resource_version.unwrap_or_default();
            let params = WatchParams::default().timeout(280);
            watches.push(api.watch(&params, &from).await?.boxed());
        }
        let seen = |event: kube::Result<WatchEvent<DynamicObject>>| async move { event.ok().map(drop) };
        Ok(Box::pin(futures::stream::select_all(watches).filter_map(seen)))
    }
}

pub fn kind(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    ApiResource { group: group.into(), version: version.into(), api_version, kind: kind.into(), plural: plural.into() }
}

/// Waits for a change with a time limit; the error lists the items that have not succeeded.
pub async fn next(world: &World, changes: &mut (impl Stream<Item = ()> + Unpin)) -> Result<()> {
    if let Ok(Some(())) = tokio::time::timeout(PATIENCE, changes.next()).await {
        return Ok(());
    }
    let items = world.items().list(&ListParams::default()).await?.items;
    let open = items.iter().filter(|item| *at(item, "/status/phase") != "Succeeded");
    let open = open.map(|item| format!("{}: {}", item.metadata.name.clone().unwrap_or_default(), item.data["status"]));
    bail!("nothing changes any more, but these items have not succeeded:\n{}", open.collect::<Vec<_>>().join("\n"))
}

/// Generates pseudo-random numbers from a seed (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn seeded() -> Self {
        let seed = std::env::var("BILLHOOK_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
        Self(seed)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}

/// Returns a value of a Lease or an item.
pub fn at<'a>(object: &'a DynamicObject, path: &str) -> &'a Value {
    object.data.pointer(path).unwrap_or(&Value::Null)
}
