//! Scenarios: behaviour as data. A file describes the initial objects, the scripted controllers, the steps and the expected
//! result; one runner plays it on a sandbox and on a control plane. `CONTRIBUTING.md` shows how to write one.
//!
//! In every text of a scenario, `$S` is a unique name (from the file's stem), so that scenarios can run side by side on one
//! control plane: their namespaces, kinds and cluster-scoped objects must contain it. The runner creates the namespace
//! `$S`, which is the current namespace of the kubeconfig.

mod admin;
mod backend;
mod call;
mod console;
mod controller;
pub mod crash;
pub mod disturb;
pub mod election;
mod faults;
pub mod freeze;
mod items;
mod lab;
mod observe;
mod pack;
mod play;
pub mod poison;
mod release;
mod servers;
mod stage;
mod translate;
mod why;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, ensure};
use billhook_sandbox::actors::Script;
use jiff::fmt::serde::unsigned_duration::friendly::compact as friendly;
use serde::Deserialize;
use serde_json::Value;

pub use admin::Admin;
pub use call::Shared;
pub use faults::Fault;
pub use items::{ItemAction, ItemExpect};
pub use lab::{ControlPlanes, Lab};
pub use observe::{Fate, Observer};
pub use play::play;
pub use servers::{RawRequest, Switch};
pub use why::Why;

/// A wait that only the sandbox's paused clock makes short.
const LONG_WAIT: Duration = Duration::from_secs(20);

/// What makes a scenario destructive.
const DESTRUCTIVE: [&str; 4] = ["forceDelete", "finalizeAfter", "finalize-deletion-after", "billhook: clean"];

/// A scenario file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scenario {
    /// The tested behaviour, in a sentence.
    pub description: String,
    /// The value of `$S`, from the file's name.
    #[serde(skip)]
    pub slug: String,
    /// Whether it removes finalizers or empties a cluster, by what its text contains.
    #[serde(skip)]
    pub destructive: bool,
    /// Whether the scenario needs the `helm` program.
    #[serde(default)]
    pub helm: bool,
    /// Whether the scenario needs the `kubectl` program.
    #[serde(default)]
    pub kubectl: bool,
    /// Whether it needs its own control plane, because it stops servers or breaks discovery for all clients.
    #[serde(default)]
    pub exclusive: bool,
    /// Whether its long waits are also played on the control plane, in real time.
    #[serde(default)]
    pub patient: bool,
    /// Whether the control plane must have the same objects after the last step as before the first one, except events and
    /// leases. Only for exclusive scenarios.
    #[serde(default)]
    pub leaves_nothing: bool,
    /// Folders and files of the fixtures that are copied beside the scenario's files, under these names. If there is a folder
    /// `crds`, its CRDs of DeployItems replace billhook's own.
    #[serde(default)]
    pub fixtures: BTreeMap<String, String>,
    /// Whether a second cluster is needed; its kubeconfig is the file `second.kubeconfig`.
    #[serde(default)]
    pub second_cluster: bool,
    /// The mode of the controller of DeployItems, which runs if a step has `deployItem`.
    #[serde(default)]
    pub deployer: Deployer,
    /// Whether the namespace `$S` is created before the first step.
    #[serde(default = "yes")]
    pub namespace: bool,
    /// Objects that another client creates before the first step; CRDs are Established before other objects are created.
    #[serde(default)]
    pub given: String,
    /// Such objects on the second cluster.
    #[serde(default)]
    pub given_on_second: String,
    /// Files for commands. `$PACKED(FOLDER)` in a file is replaced by the chart in a folder of these files, packed and in
    /// base64, as in a DeployItem.
    #[serde(default)]
    pub files: BTreeMap<String, File>,
    /// Scripted controllers, which act in place of operators during all steps.
    #[serde(default)]
    pub controllers: Vec<Script>,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// The mode of the controller of DeployItems: what triggers its work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Deployer {
    /// The items themselves: a new generation, an operation, a deletion.
    #[default]
    Standalone,
    /// Landscaper, by jobs. The steps stand in for it.
    Landscaper,
    /// Landscaper for the items of its Executions, the others themselves.
    Auto,
}

/// A file for commands.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum File {
    /// Its content.
    Text(String),
    /// A repeated text.
    Repeated(Repeated),
}

/// A text that is repeated as separate documents, in which `$N` is replaced by numbers from 0.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Repeated {
    /// The number of documents.
    pub repeat: usize,
    /// The text.
    pub text: String,
}

impl File {
    /// Returns the content to write.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Repeated(Repeated { repeat, text }) => {
                let texts = (0..*repeat).map(|number| text.replace("$N", &number.to_string()));
                texts.collect::<Vec<_>>().join("\n---\n")
            }
        }
    }
}

/// One step.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Step {
    /// The arguments of a billhook command, split at spaces ('…' keeps words together).
    #[serde(default)]
    pub billhook: Option<String>,
    /// A console session, in place of a command and its expectations, in the syntax that `console.rs` documents.
    #[serde(default)]
    pub console: Option<String>,
    /// An action on a DeployItem, in the syntax that [`ItemAction`] documents. The step waits until the item has handled it.
    #[serde(default)]
    pub deploy_item: Option<ItemAction>,
    /// The pause before the command, for example until a lock expires.
    #[serde(default, with = "friendly::required")]
    pub after: Duration,
    /// The standard input.
    #[serde(default)]
    pub stdin: String,
    /// Whether the command runs as the restricted user.
    #[serde(default)]
    pub restricted: bool,
    /// The text that the user types at a terminal, if the command runs in one.
    #[serde(default)]
    pub terminal: Option<String>,
    /// Stops kube-controller-manager before the command, or starts it again.
    #[serde(default)]
    pub controller_manager: Option<Switch>,
    /// Services behind which a server is put before objects are created. It answers every request with 200 and `ok`, at `$PORT` of
    /// localhost.
    #[serde(default)]
    pub answering: Vec<String>,
    /// Objects to create before the command. `$UID(OBJECT)` is replaced by the UID of an object, and `$FILL(N)` by a text of `N`
    /// characters.
    #[serde(default)]
    pub create: String,
    /// Objects to delete before the command, which starts once they are gone.
    #[serde(default)]
    pub delete: Vec<String>,
    /// Objects whose deletion is requested before the command, which does not wait until they are gone: `OBJECT`, or
    /// `OBJECT POLICY` with a propagation policy.
    #[serde(default)]
    pub deleting: Vec<String>,
    /// Merge patches to apply before the command, by object.
    #[serde(default)]
    pub patch: BTreeMap<String, Value>,
    /// Requests to send before the command.
    #[serde(default)]
    pub requests: Vec<RawRequest>,
    /// Objects that a text which is no object replaces in storage.
    #[serde(default)]
    pub corrupt: Vec<String>,
    /// Partial objects that must match before the command starts.
    #[serde(default)]
    pub until: BTreeMap<String, Value>,
    /// Whether the server must accept or reject the deletion of objects before the command starts, because a changed
    /// admission policy takes effect with a delay.
    #[serde(default)]
    pub until_deletable: BTreeMap<String, bool>,
    /// Events during the command.
    #[serde(default)]
    pub during: Vec<During>,
    /// The faults of its requests. A scenario with faults is only played on the sandbox.
    #[serde(default)]
    pub faults: Vec<Fault>,
    /// The time limit of the step.
    #[serde(default = "a_minute", with = "friendly::required")]
    pub within: Duration,
    /// The expected result.
    #[serde(default)]
    pub expect: Expect,
}

/// An event during a command.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct During {
    /// The delay after the start, or after `when`.
    #[serde(default, with = "friendly::required")]
    pub after: Duration,
    /// A text that the command must print first.
    #[serde(default)]
    pub when: Option<String>,
    /// The user presses Ctrl-C.
    #[serde(default)]
    pub interrupt: bool,
    /// The API server is unavailable for this time.
    #[serde(default, with = "friendly::optional")]
    pub stop_server: Option<Duration>,
    /// The server compacts its history. Only on the sandbox.
    #[serde(default)]
    pub compact: bool,
    /// Objects to delete and wait for, before others are created.
    #[serde(default)]
    pub delete: Vec<String>,
    /// Objects to create.
    #[serde(default)]
    pub create: String,
    /// Merge patches to apply, by object.
    #[serde(default)]
    pub patch: BTreeMap<String, Value>,
    /// The command of the step is stopped for this time, like a process by SIGSTOP. Only on the sandbox.
    #[serde(default, with = "friendly::optional")]
    pub freeze: Option<Duration>,
    /// The command of the step is killed, like a process by SIGKILL; its exit code is 137.
    #[serde(default)]
    pub kill: bool,
    /// The arguments of another billhook command.
    #[serde(default)]
    pub billhook: Option<String>,
    /// The expected result of that command.
    #[serde(default)]
    pub expect: Expect,
}

/// The expected result of a step.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Expect {
    /// The exit code.
    pub exit: u8,
    /// Texts that standard output must contain.
    pub stdout: Vec<String>,
    /// Texts that standard error must contain.
    pub stderr: Vec<String>,
    /// Texts that neither may contain.
    pub silent: Vec<String>,
    /// The deleted objects, group by group: no object of a group may be deleted before all objects of the group before it are
    /// gone, and no other object of these kinds in the scenario may be deleted.
    pub gone: Option<Vec<Vec<String>>>,
    /// The created objects, group by group: no object of a group may be created before all objects of the group before it.
    pub appeared: Option<Vec<Vec<String>>>,
    /// The objects that are lost, and no others: a listing of all objects of the scenario, and of an exclusive one of the whole
    /// control plane, shows each other object of before with the same UID. A text that ends with `*` allows all with this prefix.
    pub loses: Option<Vec<String>>,
    /// Objects that must exist at the end. A name that ends with `*` matches any object with this prefix.
    pub stays: Vec<String>,
    /// Objects that must not exist at the end.
    pub absent: Vec<String>,
    /// Partial objects that must match at the end. In place of a list, an object with indexes from 0 as keys matches some of its
    /// elements.
    pub holds: BTreeMap<String, Value>,
    /// What `why -o json` finds, by object, or `rehearse -o json` foresees.
    pub why: Vec<Why>,
    /// The expected state of the DeployItem of the step.
    pub item: ItemExpect,
    /// The maximum number of requests of the command.
    pub requests_at_most: Option<u64>,
    /// The maximum number of its requests by verb, such as `list` or `watch`.
    pub requests_of: BTreeMap<String, u64>,
    /// The maximum duration of the command.
    #[serde(with = "friendly::optional")]
    pub at_most: Option<Duration>,
    /// The minimum duration of the command.
    #[serde(with = "friendly::optional")]
    pub at_least: Option<Duration>,
    /// Objects that must not exist on the second cluster at the end.
    pub absent_on_second: Vec<String>,
    /// Objects that must exist on the second cluster at the end.
    pub stays_on_second: Vec<String>,
}

impl Scenario {
    /// Reads a scenario file.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read or is not a scenario.
    pub fn load(path: &Path) -> Result<Self> {
        let stem = path.file_stem().and_then(|stem| stem.to_str()).ok_or_else(|| anyhow!("no file name"))?;
        let slug = format!("s-{stem}");
        let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        Self::parse(&slug, &text).with_context(|| format!("read {}", path.display()))
    }

    fn parse(slug: &str, text: &str) -> Result<Self> {
        let own = text.replace("$S", slug);
        let documents = billhook_objects::yaml::parse(&own)?;
        let [document] =
            <[_; 1]>::try_from(documents).map_err(|_| anyhow!("expected one document in a scenario file"))?;
        let mut scenario: Self = serde_json::from_value(document.value)?;
        scenario.slug = slug.to_owned();
        scenario.destructive = DESTRUCTIVE.iter().any(|word| own.contains(word));
        scenario.check(&own)?;
        Ok(scenario)
    }

    /// Returns whether there is a namespace that no step concerns, to show that it is untouched at the end. Where `loses` names
    /// what a step deletes, the listing of all other objects shows that.
    pub fn has_bystanders(&self) -> bool {
        self.destructive && self.steps.iter().all(|step| step.expect.loses.is_none())
    }

    /// Returns the name of that namespace.
    pub fn bystanders(&self) -> String {
        format!("{}-bystanders", self.slug)
    }

    /// Returns whether the scenario needs external programs.
    pub fn runs_programs(&self) -> bool {
        self.helm || self.kubectl || self.steps.iter().any(|step| step.console.is_some())
    }

    /// Returns whether only the sandbox can play it: it has faults that only the sandbox can inject, or waits longer than its tests
    /// may take without a paused clock.
    pub fn needs_sandbox(&self) -> bool {
        self.steps.iter().any(|step| {
            !step.faults.is_empty()
                || (step.after >= LONG_WAIT && !self.patient)
                || step.during.iter().any(|during| during.compact || during.freeze.is_some())
        })
    }

    /// Returns whether a step stops kube-controller-manager.
    pub fn stops_controllers(&self) -> bool {
        self.steps.iter().any(|step| step.controller_manager.is_some())
    }

    /// Returns whether the controller of DeployItems runs.
    pub fn deploys_items(&self) -> bool {
        self.steps.iter().any(|step| step.deploy_item.is_some())
    }

    /// Returns why the scenario cannot be played, if a required fixture does not exist.
    pub fn missing_fixture(&self) -> Option<String> {
        let missing = self.fixtures.values().map(|name| fixtures().join(name)).find(|path| !path.exists())?;
        Some(format!("{} does not exist, see BILLHOOK_FIXTURES", missing.display()))
    }

    /// Rejects a scenario that could pass by accident.
    fn check(&self, text: &str) -> Result<()> {
        ensure!(self.steps.iter().any(Step::acts), "no step has a billhook command, a console session or a deployItem");
        let last = self.steps.last().ok_or_else(|| anyhow!("the scenario has no steps"))?;
        let checked = last.expect.checks_anything() || last.console.is_some() || self.leaves_nothing;
        ensure!(checked, "the last step expects nothing but an exit code");
        ensure!(self.exclusive || !self.leaves_nothing, "leavesNothing needs an exclusive control plane");
        let breaks =
            |step: &Step| step.controller_manager.is_some() || !step.corrupt.is_empty() || !step.answering.is_empty();
        ensure!(
            self.exclusive || !self.steps.iter().any(breaks),
            "a step breaks the control plane, which must be exclusive"
        );
        for step in &self.steps {
            let acts = [step.billhook.is_some(), step.console.is_some(), step.deploy_item.is_some()];
            ensure!(
                acts.iter().filter(|acts| **acts).count() <= 1,
                "a step must have exactly one of a command, a console session or a deployItem"
            );
            match &step.deploy_item {
                Some(action) => {
                    let printed = |during: &During| {
                        during.when.is_some() || during.interrupt || during.kill || during.freeze.is_some()
                    };
                    ensure!(!step.during.iter().any(printed), "a DeployItem has no output and no terminal");
                    step.expect.item.check(action, &step.expect)?;
                }
                None => ensure!(
                    !step.expect.item.checks_anything(),
                    "only a step with a deployItem can have expectations of it"
                ),
            }
            ensure!(
                step.billhook.is_some() || step.deploy_item.is_some() || step.expect.is_of_objects(),
                "a step without a command has expectations of one"
            );
            // An object that is never created is always absent: if nothing else mentions the name, it is misspelt.
            for absent in step.expect.absent.iter().chain(&step.expect.absent_on_second) {
                let seen = self.steps.iter().any(|step| step.expect.stays.contains(absent));
                if seen || absent.contains("/billhook.") {
                    continue;
                }
                let (kind, name) = (absent.split('/').next(), absent.rsplit('/').next().unwrap_or_default());
                let kind = kind.and_then(|kind| kind.split('.').next()).unwrap_or_default();
                let known = text.contains(&format!("name: {name}"));
                let generated =
                    name.rsplit_once('-').is_some_and(|(stem, _)| text.contains(&format!("name: {stem}-$N")));
                ensure!(known || generated, "{absent} is expected to be absent, but nothing creates it");
                ensure!(text.contains(&format!("kind: {kind}")), "nothing else mentions the kind of {absent}");
            }
        }
        Ok(())
    }
}

impl Step {
    /// Returns whether the step has a tested action.
    fn acts(&self) -> bool {
        self.billhook.is_some() || self.console.is_some() || self.deploy_item.is_some()
    }
}

impl Expect {
    /// Returns whether it checks more than the exit code.
    fn checks_anything(&self) -> bool {
        let ordered = [&self.gone, &self.appeared].into_iter().flatten().any(|groups| !groups.is_empty());
        !(self.stdout.is_empty() && self.stderr.is_empty())
            || ordered
            || self.loses.is_some()
            || self.checks_objects()
            || !self.why.is_empty()
            || self.item.checks_anything()
    }

    /// Returns whether it can be checked without a command.
    fn is_of_objects(&self) -> bool {
        let Self {
            exit,
            stdout,
            stderr,
            silent,
            gone,
            appeared,
            loses,
            requests_at_most,
            requests_of,
            at_most,
            at_least,
            why,
            ..
        } = self;
        *exit == 0
            && why.is_empty()
            && [stdout, stderr, silent].iter().all(|texts| texts.is_empty())
            && gone.is_none()
            && appeared.is_none()
            && loses.is_none()
            && requests_at_most.is_none()
            && requests_of.is_empty()
            && at_most.is_none()
            && at_least.is_none()
    }

    fn checks_objects(&self) -> bool {
        let Self { stays, absent, stays_on_second, absent_on_second, holds, .. } = self;
        !holds.is_empty() || [stays, absent, stays_on_second, absent_on_second].iter().any(|keys| !keys.is_empty())
    }
}

/// Returns the folder of the fixtures: large manifests of other projects that are not part of this repository.
fn fixtures() -> PathBuf {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures");
    std::env::var_os("BILLHOOK_FIXTURES").map_or_else(default, PathBuf::from)
}

fn yes() -> bool {
    true
}

fn a_minute() -> Duration {
    Duration::from_secs(60)
}
