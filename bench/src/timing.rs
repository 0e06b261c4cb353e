//! The timed runs of the contenders in turn, with a control plane without an audit log.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use billhook_testkit::control_plane::Options as PlaneOptions;
use serde::Serialize;

use crate::cases::{Case, Flow, Sizes};
use crate::floor::{self, Action, Method};
use crate::lab::Lab;
use crate::measure::Ended;
use crate::samples::{Contender, Samples};
use crate::workload::{self, Set};
use crate::{Kubectl, Options, clean, payload, progress};

/// The pause before each run, so that controllers complete the work of the run before.
const SETTLE: Duration = Duration::from_millis(500);

/// The time limit of a kubectl command, unless it is measured in full.
const KUBECTL_CAP: Duration = Duration::from_secs(60);

/// The minimum number of runs of cases that take only a few hundredths of a second.
const FEW_RUNS: u32 = 7;

/// The versions of the measured programs.
#[derive(Debug, Serialize)]
pub(crate) struct Versions {
    pub(crate) kubernetes: String,
    pub(crate) billhook: Option<String>,
    pub(crate) cpus: usize,
}

/// Runs the contenders.
pub(crate) async fn run(
    options: &Options,
    selected: &[Case],
    sizes: &Sizes,
    billhook: Option<&Path>,
    samples: &mut Samples,
) -> Result<Versions> {
    let lab = Lab::start(&PlaneOptions::default(), !options.no_delay).await?;
    let versions = Versions {
        kubernetes: lab.version().await?,
        billhook: billhook.map(version_of).transpose()?,
        cpus: std::thread::available_parallelism().map_or(0, usize::from),
    };
    warm_up(&lab).await?;
    let mut timing = Timing { lab: &lab, options, sizes, billhook, samples };
    for flow in [Flow::Together, Flow::Spread, Flow::Ordered, Flow::Many] {
        if flow.is_needed(selected) {
            timing.flow(flow, selected).await?;
        }
    }
    if Flow::FewAlone.is_needed(selected) || Flow::FewAmong.is_needed(selected) {
        timing.few(selected).await?;
    }
    clean::time(&lab, options, selected, sizes, billhook, samples).await?;
    if let Some(program) = billhook {
        payload::time(&lab, options, selected, sizes, program, samples).await?;
    }
    Ok(versions)
}

fn version_of(program: &Path) -> Result<String> {
    let output = Command::new(program).arg("--version").output();
    let output = output.with_context(|| format!("failed to run {}", program.display()))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Warms up the API server, whose first requests are slow.
async fn warm_up(lab: &Lab) -> Result<()> {
    let set = Set::configmaps("warm", 500, 1);
    lab.prepare(&set).await?;
    for method in [Method::Patch, Method::Post] {
        floor::create(&lab.client, &set, method).await?;
        floor::delete(&lab.client, &set).await?;
    }
    Ok(())
}

/// A release of billhook: the set and its command-line arguments.
#[derive(Debug)]
pub(crate) struct Release {
    name: String,
    namespace: String,
    manifests: OsString,
    policy: Option<OsString>,
}

impl Release {
    /// Writes the manifests of a set, and its policy.
    pub(crate) fn of(lab: &Lab, flow: Flow, set: &Set, name: String) -> Result<Self> {
        let manifests = lab.write(&format!("{}.yaml", set.name), &set.manifests())?.into_os_string();
        let policy = match flow {
            Flow::Ordered => Some(lab.write("policy.yaml", &workload::policy())?.into_os_string()),
            _ => None,
        };
        let namespace = set.namespaces.first().context("a set has no namespace")?.clone();
        Ok(Self { name, namespace, manifests, policy })
    }

    /// Returns the arguments that apply it.
    pub(crate) fn apply(&self) -> Vec<OsString> {
        let mut args = ["apply", &self.name, "-n", &self.namespace, "--wait=false", "-f"].map(OsString::from).to_vec();
        args.push(self.manifests.clone());
        args.extend(self.policy.iter().flat_map(|policy| [OsString::from("--policy"), policy.clone()]));
        args
    }

    /// Returns the arguments that delete it.
    pub(crate) fn delete(&self) -> Vec<OsString> {
        ["delete", &self.name, "-n", &self.namespace, "--yes"].map(OsString::from).to_vec()
    }
}

struct Timing<'a> {
    lab: &'a Lab,
    options: &'a Options,
    sizes: &'a Sizes,
    billhook: Option<&'a Path>,
    samples: &'a mut Samples,
}

impl Timing<'_> {
    async fn flow(&mut self, flow: Flow, selected: &[Case]) -> Result<()> {
        let set = flow.set(self.sizes);
        self.lab.prepare(&set).await?;
        let _controller = match flow {
            Flow::Ordered => {
                self.lab.define(workload::definitions()).await?;
                Some(self.lab.controller().await?)
            }
            _ => None,
        };
        let delayed_too = !self.options.no_delay && flow.cases().into_iter().flatten().all(Case::is_delayed_too);
        for delayed in [false, true] {
            if delayed && !delayed_too {
                continue;
            }
            // Ten thousand objects take long, and the measurements have little noise.
            let runs = if flow == Flow::Many { self.options.runs.div_ceil(2) } else { self.options.runs };
            for run in 0..runs {
                self.pair(flow, &set, delayed, run).await?;
            }
            let kubectl = match self.options.kubectl {
                Kubectl::Skip => false,
                Kubectl::Short => !delayed && flow != Flow::Many,
                Kubectl::Full => flow != Flow::Many,
            };
            if kubectl {
                self.kubectl(flow, &set, delayed).await?;
            }
        }
        self.samples.times.retain(|sample| selected.contains(&sample.case));
        Ok(())
    }

    /// Measures ten objects, alone and among many.
    async fn few(&mut self, selected: &[Case]) -> Result<()> {
        let flows = [Flow::FewAlone, Flow::FewAmong];
        let others = Flow::others(self.sizes);
        for flow in flows {
            self.lab.prepare(&flow.set(self.sizes)).await?;
        }
        progress(&format!("creating {} other objects", others.len()));
        floor::create(&self.lab.client, &others, Method::Post).await?;
        tokio::time::sleep(SETTLE * 10).await;
        for run in 0..self.options.runs.max(FEW_RUNS) {
            for flow in flows {
                self.pair(flow, &flow.set(self.sizes), false, run).await?;
            }
        }
        self.lab.expect(&others, others.len()).await?;
        self.samples.times.retain(|sample| selected.contains(&sample.case));
        Ok(())
    }

    /// Runs the floor, and then billhook.
    async fn pair(&mut self, flow: Flow, set: &Set, delayed: bool, run: u32) -> Result<()> {
        self.floor(flow, set, delayed, run).await?;
        let Some(program) = self.billhook else { return Ok(()) };
        if let Err(error) = self.billhook(program, flow, set, delayed, run).await {
            self.samples.fail(format!("{} (run {}, delayed: {delayed}): {error:#}", set.name, run + 1));
            floor::delete(&self.lab.client, set).await?;
        }
        Ok(())
    }

    async fn floor(&mut self, flow: Flow, set: &Set, delayed: bool, run: u32) -> Result<()> {
        let lab = self.lab;
        let [create, unchanged, delete] = flow.cases();
        let mut take = |contender, case, ended| self.take(case, delayed, contender, run, ended);
        let (patch, post) = (Action::Create { method: Method::Patch }, Action::Create { method: Method::Post });

        settle().await;
        take(Contender::Floor, create, lab.floor(patch, set, delayed).await?);
        lab.expect(set, set.len()).await?;
        if unchanged.is_some() {
            settle().await;
            take(Contender::Floor, unchanged, lab.floor(patch, set, delayed).await?);
        }
        settle().await;
        take(Contender::Floor, delete, lab.floor(Action::Delete, set, delayed).await?);
        lab.expect(set, 0).await?;
        if create.is_some() {
            settle().await;
            take(Contender::FloorPost, create, lab.floor(post, set, delayed).await?);
            lab.floor(Action::Delete, set, false).await?;
        }
        Ok(())
    }

    async fn billhook(&mut self, program: &Path, flow: Flow, set: &Set, delayed: bool, run: u32) -> Result<()> {
        let lab = self.lab;
        let [create, unchanged, delete] = flow.cases();
        let mut take = |case, ended| self.take(case, delayed, Contender::Billhook, run, ended);
        let late = if delayed { "-late" } else { "" };
        let release = Release::of(lab, flow, set, format!("{}{late}-{run}", set.name))?;

        settle().await;
        take(create, lab.billhook(program, release.apply(), delayed).await?);
        lab.expect(set, set.len()).await?;
        if unchanged.is_some() {
            settle().await;
            take(unchanged, lab.billhook(program, release.apply(), delayed).await?);
        }
        settle().await;
        take(delete, lab.billhook(program, release.delete(), delayed).await?);
        lab.expect(set, 0).await
    }

    async fn kubectl(&mut self, flow: Flow, set: &Set, delayed: bool) -> Result<()> {
        let lab = self.lab;
        let [create, unchanged, delete] = flow.cases();
        let cap = (self.options.kubectl == Kubectl::Short).then_some(KUBECTL_CAP);
        let mut take = |case, ended| self.take(case, delayed, Contender::Kubectl, 0, ended);
        let manifests = lab.write(&format!("{}.yaml", set.name), &set.manifests())?;
        let file = OsString::from(format!("--filename={}", manifests.display()));
        let apply = vec!["apply".into(), "--server-side".into(), file.clone()];

        settle().await;
        take(create, lab.run_kubectl(apply.clone(), delayed, cap).await?);
        if unchanged.is_some() {
            settle().await;
            take(unchanged, lab.run_kubectl(apply, delayed, cap).await?);
        }
        if lab.left(set).await? < set.len() {
            floor::create(&lab.client, set, Method::Patch).await?;
        }
        settle().await;
        take(delete, lab.run_kubectl(vec!["delete".into(), "--wait".into(), file], delayed, cap).await?);
        // Deletes objects that remain after its time limit.
        floor::delete(&lab.client, set).await
    }

    fn take(&mut self, case: Option<Case>, delayed: bool, contender: Contender, run: u32, ended: Ended) {
        if let Some(case) = case {
            self.samples.take(case, delayed, contender, run, &ended);
        }
    }
}

/// Waits until controllers have completed the work of the run before.
pub(crate) async fn settle() {
    tokio::time::sleep(SETTLE).await;
}
