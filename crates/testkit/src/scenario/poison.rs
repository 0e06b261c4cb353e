//! Plays a scenario whose controllers are killed: always when they work on one item, or at given times.

use std::time::Duration;

use anyhow::{Result, ensure};
use billhook_cluster::LeaseOptions;
use billhook_deployer::{ControllerOptions, api::GROUP};
use billhook_objects::{GroupKind, ObjectKey};
use billhook_sandbox::faults::{Fault, Moment, Requests};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{Lab, Scenario, stage::Stage};

/// The item that kills its controllers. The faults are at its ConfigMap of the same name.
pub const POISON: &str = "poison";

/// How long an item may take.
const LIMIT_SECONDS: u32 = 1200;

/// How many controllers were killed until the poison was set aside, and the items then.
pub struct SetAside {
    /// The number of controllers that were killed.
    pub crashes: usize,
    /// The items, by name, when it was set aside.
    pub items: Vec<(String, Value)>,
    /// The poison after it was changed and does no harm any more.
    pub repaired: Value,
}

/// Plays a scenario in which the item [`POISON`] kills each controller that works on it, until it is set aside; then repairs it.
///
/// # Errors
///
/// When it is not set aside, or not deployed after the repair.
pub fn set_aside(scenario: &Scenario) -> Result<SetAside> {
    let lab = Lab::Sandbox;
    lab.block_on(scenario, async {
        let stage = Stage::set_without_controller(scenario, &lab).await?;
        for crashes in 0..10 {
            let client = format!("leader-{crashes}");
            let create = Requests::of(client.as_str()).writes().resource("", "configmaps").name(POISON);
            stage.faults()?.inject(Fault::crash(Moment::Before).on(create));
            stage.start_candidate(&client).await?;
            let aside = tokio::select! {
                () = stage.faults()?.crashed(&client) => false,
                aside = stage.wait_for(POISON, "Failed") => {
                    aside?;
                    true
                }
            };
            if aside {
                let items = stage.all_items().await?;
                stage.faults()?.clear();
                // A change of the item gives it another attempt.
                let change = json!({"spec": {"timeout": "11m"}});
                stage.admin.patch(&stage.item_key(POISON), &change).await?;
                let repaired = stage.wait_for(POISON, "Succeeded").await?;
                return Ok(SetAside { crashes, items, repaired });
            }
            stage.controllers.kill();
        }
        anyhow::bail!("it was never set aside")
    })
}

/// Plays a scenario in which each controller is killed after one of these times; then waits until all items have succeeded.
///
/// # Errors
///
/// When an item does not succeed.
pub fn killed_after(scenario: &Scenario, times: &[Duration]) -> Result<()> {
    let lab = Lab::Sandbox;
    lab.block_on(scenario, async {
        let stage = Stage::set_without_controller(scenario, &lab).await?;
        for (number, time) in times.iter().enumerate() {
            stage.start_candidate(&format!("leader-{number}")).await?;
            sleep(*time).await;
            stage.controllers.kill();
        }
        stage.start_candidate("last").await?;
        for (name, _) in stage.all_items().await? {
            let item = stage.wait_for(&name, "Succeeded").await?;
            ensure!(item["metadata"]["annotations"]["billhook.dev/crashes"].is_null(), "{name} is still suspected");
        }
        Ok(())
    })
}

impl Stage<'_> {
    /// Starts a controller of this identity that takes part in the election.
    async fn start_candidate(&self, identity: &str) -> Result<()> {
        let leader_election = Some(LeaseOptions::new(&self.scenario.slug, "billhook-controller", identity));
        let options = ControllerOptions { leader_election, ..self.controller_options(identity).await? };
        self.controllers.start(self.home(identity).await?, options);
        Ok(())
    }

    fn item_key(&self, name: &str) -> ObjectKey {
        ObjectKey::new(GroupKind::new(GROUP, "DeployItem"), Some(&self.scenario.slug), name)
    }

    async fn all_items(&self) -> Result<Vec<(String, Value)>> {
        let items = self.admin.list(&GroupKind::new(GROUP, "DeployItem")).await?;
        items
            .into_iter()
            .map(|item| Ok((item.metadata.name.clone().unwrap_or_default(), serde_json::to_value(item)?)))
            .collect()
    }

    /// Waits until an item has a phase, and returns it.
    async fn wait_for(&self, name: &str, phase: &str) -> Result<Value> {
        let (key, mut item) = (self.item_key(name), Value::Null);
        for _ in 0..LIMIT_SECONDS {
            item = serde_json::to_value(self.admin.get(&key).await?)?;
            let (status, generation) = (&item["status"], &item["metadata"]["generation"]);
            if status["phase"] == phase && status["observedGeneration"] == *generation {
                return Ok(item);
            }
            sleep(Duration::from_secs(1)).await;
        }
        anyhow::bail!("{name} did not reach {phase}: {}", item["status"])
    }
}
