//! Plays a scenario of DeployItems whose controller is killed at one of its requests and replaced by another one. The final
//! objects must be the same as after an undisturbed run.

use std::cell::Cell;

use anyhow::{Context as _, Result, anyhow, ensure};
use billhook_cluster::LeaseOptions;
use billhook_deployer::ControllerOptions;
use billhook_sandbox::faults::{Logged, Requests};
use serde_json::{Value, json};

use super::{
    Lab, Scenario,
    disturb::{SETTLE, State, Trouble, differences},
    items::phase,
    stage::Stage,
};

/// The client name of the controller that is killed.
const CLIENT: &str = "controller";

/// An undisturbed run.
pub struct Quiet {
    requests: Vec<Logged>,
    /// The phase of the item at the end of each step.
    phases: Vec<String>,
    after: State,
}

/// A request at which the controller is killed.
#[derive(Clone, Debug)]
pub struct Crash {
    trouble: Trouble,
    nth: usize,
    request: Logged,
}

impl std::fmt::Display for Crash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {} ({})", self.trouble, self.nth, self.request)
    }
}

impl Quiet {
    /// Plays a scenario undisturbed, without checking its expectations.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be played.
    pub fn play(scenario: &Scenario) -> Result<Self> {
        let lab = Lab::Sandbox;
        lab.block_on(scenario, async {
            let stage = Stage::set_without_controller(scenario, &lab).await?;
            stage.start_elected(CLIENT).await?;
            let (phases, after) = stage.through(None).await?;
            Ok(Self { requests: stage.faults()?.log(CLIENT), phases, after })
        })
    }

    /// Returns all points at which the controller can be killed: before each request, and after each that writes. The many
    /// renewals of the Lease are left out.
    pub fn crashes(&self) -> Vec<Crash> {
        let of = |trouble: Trouble| {
            let affected = self.requests.iter().filter(move |request| trouble.affects(request)).enumerate();
            let affected = affected.filter(|(_, request)| !request.target.starts_with("leases."));
            affected.map(move |(n, request)| Crash { trouble, nth: n + 1, request: request.clone() })
        };
        of(Trouble::CrashBefore).chain(of(Trouble::CrashAfter)).collect()
    }

    /// Plays a scenario with a crash and compares the objects.
    ///
    /// # Errors
    ///
    /// Fails if a step ends in another phase, or if the final objects differ from those of the undisturbed run.
    pub fn crashed(&self, scenario: &Scenario, crash: &Crash) -> Result<()> {
        let lab = Lab::Sandbox;
        lab.block_on(scenario, async {
            let stage = Stage::set_without_controller(scenario, &lab).await?;
            let mut which = Requests::of(CLIENT);
            if crash.trouble == Trouble::CrashAfter {
                which = which.writes();
            }
            stage.faults()?.inject(crash.trouble.fault().on(which).nth(crash.nth));
            stage.start_elected(CLIENT).await?;
            let (phases, after) = stage.through(Some(CLIENT)).await?;
            ensure!(phases == self.phases, "the phases are {phases:?} instead of {:?}", self.phases);
            let differences = differences(&self.after, &after);
            ensure!(differences.is_empty(), "{differences}");
            Ok(())
        })
    }
}

impl Stage<'_> {
    /// Starts a controller with the Lease of the others, and with their identity, so that it takes their work over at once.
    async fn start_elected(&self, client: &str) -> Result<()> {
        let leader_election = Some(LeaseOptions::new(&self.scenario.slug, "billhook-controller", CLIENT));
        let options = ControllerOptions { leader_election, ..self.controller_options(client).await? };
        self.controllers.start(self.home(client).await?, options);
        Ok(())
    }

    /// Plays all steps, and replaces a killed controller by another one. Returns the phases after each step and the final
    /// objects.
    async fn through(&self, killed: Option<&str>) -> Result<(Vec<String>, State)> {
        let before = self.objects();
        let (mut phases, survived) = (Vec::new(), Cell::new(killed.is_none()));
        for (index, step) in self.scenario.steps.iter().enumerate() {
            let what = || format!("step {} ({})", index + 1, step.title());
            let played = async {
                self.begin(step).await?;
                let Some(action) = &step.deploy_item else { return Ok(String::new()) };
                let done = tokio::time::timeout(step.within, self.action(step, action)).await;
                let done = done.map_err(|_| anyhow!("it did not end within {:?}", step.within))??;
                anyhow::Ok(phase(done.item.as_ref()).to_owned())
            };
            phases.push(self.survive(killed, &survived, played).await?.with_context(what)?);
            self.survive(killed, &survived, tokio::time::sleep(SETTLE)).await?;
        }
        let state = self.state(&before).await?;
        Ok((phases, state.into_iter().map(|(key, value)| (key.clone(), of_item(&key, value))).collect()))
    }

    /// Performs the action of a step; if the controller is killed meanwhile, starts another one.
    async fn survive<T>(
        &self,
        killed: Option<&str>,
        survived: &Cell<bool>,
        work: impl Future<Output = T>,
    ) -> Result<T> {
        let mut work = std::pin::pin!(work);
        if let Some(killed) = killed.filter(|_| !survived.get()) {
            tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                () = self.faults()?.crashed(killed) => {}
            }
            survived.set(true);
            self.controllers.kill();
            self.start_elected("another").await?;
        }
        Ok(work.await)
    }
}

/// Removes from an item who worked on it when, and how often something was retried.
fn of_item(key: &str, value: Value) -> Value {
    if !key.starts_with("DeployItem.") {
        return value;
    }
    let (metadata, status) = (&value["metadata"], &value["status"]);
    let mut managed: Vec<String> = status["providerStatus"]["managedResources"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|managed| {
            format!(
                "{} {}/{}",
                managed["resource"]["kind"], managed["resource"]["namespace"], managed["resource"]["name"]
            )
        })
        .collect();
    managed.sort();
    json!({
        "spec": value["spec"],
        "finalizers": metadata["finalizers"],
        "annotations": metadata["annotations"],
        "deleting": metadata["deleting"],
        "phase": status["phase"],
        "codes": status["lastError"]["codes"],
        "exportRef": status["exportRef"],
        "finished": status["jobID"] == status["jobIDFinished"],
        "managed": managed,
    })
}
