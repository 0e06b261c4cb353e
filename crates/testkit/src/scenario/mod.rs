//! Scenarios: behaviour as data. A file says what is there, which scripted controllers act, what is done, and what must
//! come out; one runner plays it on a sandbox and against a control plane. `CONTRIBUTING.md` shows how to write one.
//!
//! `$S` in any text of a scenario stands for a name of its own (the file's stem), so that scenarios can run side by
//! side on one control plane: their namespaces, kinds and cluster-scoped objects must carry it. The namespace `$S` is
//! made by the runner and is the current namespace of the kubeconfig.

mod admin;
mod call;
mod console;
mod controller;
pub mod crash;
pub mod disturb;
pub mod election;
mod faults;
mod items;
mod lab;
mod observe;
mod pack;
mod play;
mod release;
mod stage;
mod translate;

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
pub use faults::Fault;
pub use items::{Deed, ItemExpect};
pub use lab::{ControlPlanes, Lab};
pub use play::play;

/// A scenario file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scenario {
    /// What it shows, in a sentence.
    pub description: String,
    /// Set from the file's name: what `$S` stands for.
    #[serde(skip)]
    pub slug: String,
    /// Whether calls and DeployItems need the `helm` program.
    #[serde(default)]
    pub helm: bool,
    /// Whether calls need the `kubectl` program.
    #[serde(default)]
    pub kubectl: bool,
    /// Whether it needs a control plane of its own, since it stops servers or breaks discovery for all.
    #[serde(default)]
    pub exclusive: bool,
    /// Whether the control plane holds the same objects after the last step as before the first one; events and leases
    /// do not count. Only for exclusive scenarios.
    #[serde(default)]
    pub leaves_nothing: bool,
    /// Folders and files of the fixtures that are copied beside the scenario's files, under these names. The CRDs of
    /// DeployItems in a folder `crds` are there in place of our own.
    #[serde(default)]
    pub fixtures: BTreeMap<String, String>,
    /// Whether a second cluster is needed; its kubeconfig is the file `second.kubeconfig`.
    #[serde(default)]
    pub second_cluster: bool,
    /// Who tells the controller of DeployItems when there is work. It runs where a step has `deployItem`.
    #[serde(default)]
    pub deployer: Deployer,
    /// Whether the namespace `$S` is made beforehand.
    #[serde(default = "yes")]
    pub namespace: bool,
    /// Objects that are there before, created by somebody else; CRDs are Established before the rest is made.
    #[serde(default)]
    pub given: String,
    /// Objects that are there on the second cluster.
    #[serde(default)]
    pub given_on_second: String,
    /// Files that commands may name. `$PACKED(FOLDER)` in one stands for the chart in a folder of them, packed and in
    /// base64, as a DeployItem holds it.
    #[serde(default)]
    pub files: BTreeMap<String, File>,
    /// Stand-ins for operators, which act all the time.
    #[serde(default)]
    pub controllers: Vec<Script>,
    /// What is done, in order.
    pub steps: Vec<Step>,
}

/// Who tells the controller of DeployItems when there is work.
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

/// A file that commands may name.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum File {
    /// Its text.
    Text(String),
    /// A text that is repeated.
    Repeated(Repeated),
}

/// A text that is repeated as a document of its own, each time with another number in place of `$N`, from 0.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Repeated {
    /// How often.
    pub repeat: usize,
    /// The text.
    pub text: String,
}

impl File {
    /// What is written.
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
    /// The arguments of a billhook call, split at spaces ('…' keeps words together).
    #[serde(default)]
    pub billhook: Option<String>,
    /// A console session, which stands for a call and what is expected of it: `console.rs` says how it is written.
    #[serde(default)]
    pub console: Option<String>,
    /// What is done with a DeployItem, whose end is waited for: [`Deed`] says how it is written.
    #[serde(default)]
    pub deploy_item: Option<Deed>,
    /// What is piped into it.
    #[serde(default)]
    pub stdin: String,
    /// Call it as the restricted user.
    #[serde(default)]
    pub restricted: bool,
    /// Call it as somebody at a terminal, who types this.
    #[serde(default)]
    pub terminal: Option<String>,
    /// Create these objects before the call.
    #[serde(default)]
    pub create: String,
    /// Delete these objects before the call, and wait until they are gone.
    #[serde(default)]
    pub delete: Vec<String>,
    /// Merge patches before the call, by object.
    #[serde(default)]
    pub patch: BTreeMap<String, Value>,
    /// What objects hold, at least, before the call begins: it is waited for.
    #[serde(default)]
    pub until: BTreeMap<String, Value>,
    /// Whether the server would let objects be deleted, before the call begins: it is waited for, since a changed
    /// admission policy needs its time.
    #[serde(default)]
    pub until_deletable: BTreeMap<String, bool>,
    /// What happens while the call runs.
    #[serde(default)]
    pub during: Vec<During>,
    /// What goes wrong with its requests. A scenario with faults plays on the sandbox only.
    #[serde(default)]
    pub faults: Vec<Fault>,
    /// The longest the step may take.
    #[serde(default = "a_minute", with = "friendly::required")]
    pub within: Duration,
    /// What must come out.
    #[serde(default)]
    pub expect: Expect,
}

/// Something that happens while a call runs.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct During {
    /// How long after the start, or after `when`.
    #[serde(default, with = "friendly::required")]
    pub after: Duration,
    /// Only once this text was printed.
    #[serde(default)]
    pub when: Option<String>,
    /// The user presses Ctrl-C.
    #[serde(default)]
    pub interrupt: bool,
    /// The API server goes away for this long.
    #[serde(default, with = "friendly::optional")]
    pub stop_server: Option<Duration>,
    /// The server forgets its history. On the sandbox only.
    #[serde(default)]
    pub compact: bool,
    /// Objects that are created.
    #[serde(default)]
    pub create: String,
    /// Merge patches, by object.
    #[serde(default)]
    pub patch: BTreeMap<String, Value>,
}

/// What must come out of a step.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Expect {
    /// The exit code.
    pub exit: u8,
    /// Texts that standard output holds.
    pub stdout: Vec<String>,
    /// Texts that standard error holds.
    pub stderr: Vec<String>,
    /// Texts that neither holds.
    pub silent: Vec<String>,
    /// The objects that went, group by group: none of a group was touched before all of the group before were gone,
    /// and of the kinds named here no other object of the scenario went.
    pub gone: Option<Vec<Vec<String>>>,
    /// The objects that were made, group by group: none of a group before all of the group before were there.
    pub appeared: Option<Vec<Vec<String>>>,
    /// Objects that are there at the end. A name that ends with `*` stands for any object whose name begins so.
    pub stays: Vec<String>,
    /// Objects that are not there at the end.
    pub absent: Vec<String>,
    /// What objects at the end hold, at least.
    pub holds: BTreeMap<String, Value>,
    /// What becomes of the DeployItem of the step.
    pub item: ItemExpect,
    /// The most requests the call may send.
    pub requests_at_most: Option<u64>,
    /// The longest the call may take.
    #[serde(with = "friendly::optional")]
    pub at_most: Option<Duration>,
    /// The shortest the call may take.
    #[serde(with = "friendly::optional")]
    pub at_least: Option<Duration>,
    /// The same for the second cluster: objects that are not there at the end.
    pub absent_on_second: Vec<String>,
    /// Objects that are there on the second cluster at the end.
    pub stays_on_second: Vec<String>,
}

impl Scenario {
    /// Reads a scenario file.
    ///
    /// # Errors
    ///
    /// When it cannot be read or is no scenario.
    pub fn load(path: &Path) -> Result<Self> {
        let stem = path.file_stem().and_then(|stem| stem.to_str()).ok_or_else(|| anyhow!("no file name"))?;
        let slug = format!("s-{stem}");
        let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        Self::parse(&slug, &text).with_context(|| format!("read {}", path.display()))
    }

    fn parse(slug: &str, text: &str) -> Result<Self> {
        let own = text.replace("$S", slug);
        let documents = billhook_objects::yaml::parse(&own)?;
        let [document] = <[_; 1]>::try_from(documents).map_err(|_| anyhow!("a scenario file holds one document"))?;
        let mut scenario: Self = serde_json::from_value(document.value)?;
        scenario.slug = slug.to_owned();
        scenario.check(&own)?;
        Ok(scenario)
    }

    /// Whether calls run programs of others.
    pub fn runs_programs(&self) -> bool {
        self.helm || self.kubectl || self.steps.iter().any(|step| step.console.is_some())
    }

    /// Whether something goes wrong in it that only the sandbox can be made to do.
    pub fn needs_sandbox(&self) -> bool {
        self.steps.iter().any(|step| !step.faults.is_empty() || step.during.iter().any(|during| during.compact))
    }

    /// Whether the controller of DeployItems runs.
    pub fn deploys_items(&self) -> bool {
        self.steps.iter().any(|step| step.deploy_item.is_some())
    }

    /// Fixtures that it needs and that are not there.
    pub fn missing_fixtures(&self) -> Vec<String> {
        let paths = self.fixtures.values().map(|name| fixtures().join(name));
        paths.filter(|path| !path.exists()).map(|path| path.display().to_string()).collect()
    }

    /// Refuses a scenario that could pass by accident.
    fn check(&self, text: &str) -> Result<()> {
        ensure!(
            self.steps.iter().any(Step::acts),
            "no step calls billhook, plays a console session or has a deployItem"
        );
        let last = self.steps.last().ok_or_else(|| anyhow!("a scenario without steps"))?;
        let looks = last.expect.looks() || last.console.is_some() || self.leaves_nothing;
        ensure!(looks, "the last step expects nothing but an exit code");
        ensure!(self.exclusive || !self.leaves_nothing, "leavesNothing needs an exclusive control plane");
        for step in &self.steps {
            let acts = [step.billhook.is_some(), step.console.is_some(), step.deploy_item.is_some()];
            ensure!(
                acts.iter().filter(|acts| **acts).count() <= 1,
                "a step is a call, a console session or a deployItem"
            );
            match &step.deploy_item {
                Some(deed) => {
                    let printed = |during: &During| during.when.is_some() || during.interrupt;
                    ensure!(!step.during.iter().any(printed), "a DeployItem prints nothing, and nobody sits before it");
                    step.expect.item.check(deed, &step.expect)?;
                }
                None => ensure!(!step.expect.item.looks(), "only a step with a deployItem expects something of it"),
            }
            ensure!(
                step.billhook.is_some() || step.deploy_item.is_some() || step.expect.is_of_objects(),
                "a step without a call expects one's outcome"
            );
            // What nobody ever makes is absent whatever happens: a name is misspelt if nothing else mentions it.
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
                ensure!(known || generated, "{absent} is expected to be absent, and nothing makes it");
                ensure!(text.contains(&format!("kind: {kind}")), "{absent} is of a kind that nothing else mentions");
            }
        }
        Ok(())
    }
}

impl Step {
    /// Whether it does what a scenario is about.
    fn acts(&self) -> bool {
        self.billhook.is_some() || self.console.is_some() || self.deploy_item.is_some()
    }
}

impl Expect {
    /// Whether it looks at more than the exit code.
    fn looks(&self) -> bool {
        let ordered = [&self.gone, &self.appeared].into_iter().flatten().any(|groups| !groups.is_empty());
        !(self.stdout.is_empty() && self.stderr.is_empty()) || ordered || self.looks_at_objects() || self.item.looks()
    }

    /// Whether it can be checked without a call.
    fn is_of_objects(&self) -> bool {
        let Self { exit, stdout, stderr, silent, gone, appeared, requests_at_most, at_most, at_least, .. } = self;
        *exit == 0
            && [stdout, stderr, silent].iter().all(|texts| texts.is_empty())
            && gone.is_none()
            && appeared.is_none()
            && requests_at_most.is_none()
            && at_most.is_none()
            && at_least.is_none()
    }

    fn looks_at_objects(&self) -> bool {
        let Self { stays, absent, stays_on_second, absent_on_second, holds, .. } = self;
        !holds.is_empty() || [stays, absent, stays_on_second, absent_on_second].iter().any(|keys| !keys.is_empty())
    }
}

/// Where real input lies: large files of other projects that are not part of this one.
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
