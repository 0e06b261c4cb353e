//! The graph of a pass over a payload, as `pkg/payload/task_graph.go` of the cluster-version operator builds it.

use std::{num::NonZeroUsize, time::Duration};

use billhook_objects::GroupKind;
use billhook_plan::{Health, StepAction, TaskGraph, TaskNode, TaskStep};
use billhook_policy::GoDuration;

use crate::{
    history::State,
    read::{Payload, RunStep},
    rules::{Decisions, Outcome},
};

/// The permutation is the same for this many passes, and each of them starts at another node.
const STRIDE: u64 = 8;

/// Builds the graph of the manifests that count. A step's manifest is its index among these, see [`Decisions::counting`].
///
/// `seed` is the number of the pass: while reconciling, it decides the order of the nodes, so that no component delays the
/// same others in every pass.
pub fn graph(payload: &Payload, decisions: &Decisions, state: State, seed: u64) -> TaskGraph {
    let mut tasks: Vec<Task<'_>> = Vec::new();
    for at in decisions.counting() {
        let (entry, outcome) = (&payload.entries[at], decisions.all[at].outcome);
        let kind = &entry.manifest.key.kind;
        let action = match outcome {
            Outcome::Deleted => StepAction::Delete,
            _ => applied(kind, state),
        };
        // The Job itself is deleted without waiting, but the order around it remains that of the payload.
        tasks.push(Task {
            step: entry.step.as_ref(),
            file: entry.file_name(),
            is_job: kind.is("batch", "Job"),
            action,
        });
    }
    build(&tasks, state, seed)
}

/// Returns how an object of this kind is applied, and when its step is done.
///
/// The reference looks at each of these objects once after it has applied it, unless it is initializing, and at
/// ClusterOperators always. What is not healthy then fails its manifest, and the reference repeats the whole payload until all
/// succeed. A pass is made once instead, so it waits for what only takes time: CustomResourceDefinitions and Jobs, because
/// nothing that needs them may start before, and operators that are being installed or updated. While reconciling, operators
/// were updated before, and one that is not healthy must not keep one of the two workers.
fn applied(kind: &GroupKind, state: State) -> StepAction {
    let health = match state {
        State::Initializing => Health::Installing,
        State::Updating | State::Reconciling => Health::Installed,
    };
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("apiextensions.k8s.io", "CustomResourceDefinition") | ("batch", "Job") => {
            StepAction::Check { wait: true, health }
        }
        ("config.openshift.io", "ClusterOperator") => StepAction::Check { wait: state != State::Reconciling, health },
        ("apps", "Deployment" | "DaemonSet") if health == Health::Installed => {
            StepAction::Check { wait: false, health }
        }
        _ => StepAction::Apply { wait: false },
    }
}

/// A manifest, as the graph sees it.
#[derive(Clone, Copy, Debug)]
struct Task<'a> {
    step: Option<&'a RunStep>,
    file: &'a str,
    is_job: bool,
    action: StepAction,
}

/// The tasks of a node, as indexes.
type Group = Vec<usize>;

/// Groups that run side by side.
type Level = Vec<Group>;

fn build(tasks: &[Task<'_>], state: State, seed: u64) -> TaskGraph {
    let mut graph = Builder::new(tasks);
    for segment in split_on_jobs(tasks) {
        let steps: Vec<_> = tasks[segment.clone()].iter().map(|task| task.step).collect();
        let levels = match state {
            State::Updating => by_number_and_component(&steps),
            State::Initializing => vec![flatten_by_number_and_component(&steps)],
            State::Reconciling => {
                let flat = permute(flatten_by_number_and_component(&steps), seed / STRIDE);
                vec![shift(flat, seed % STRIDE, STRIDE)]
            }
        };
        let first = segment.start;
        levels.into_iter().for_each(|level| graph.add(level, first));
    }
    TaskGraph {
        nodes: graph.nodes,
        workers: match state {
            State::Updating => NonZeroUsize::new(16),
            State::Initializing => None,
            State::Reconciling => NonZeroUsize::new(2),
        },
        retries: retries(state),
        deletes: state.deletes(),
    }
}

/// Returns the pauses between the attempts at a manifest: the reference has 3 attempts from 10 s, ×1.3, and while initializing
/// 4 from 1 s, ×2, with at most 15 s between two.
fn retries(state: State) -> Vec<GoDuration> {
    let (attempts, first, factor) = match state {
        State::Initializing => (4, 1.0, 2.0),
        State::Updating | State::Reconciling => (3, 10.0, 1.3_f64),
    };
    const LONGEST: f64 = 15.0;
    let pauses = std::iter::successors(Some(first), |pause: &f64| Some(pause * factor));
    // There is no pause after the last attempt.
    pauses.take(attempts - 1).map(|pause| GoDuration(Duration::from_secs_f64(pause.min(LONGEST)))).collect()
}

/// Splits the tasks so that each Job is alone: nothing may run beside it.
fn split_on_jobs(tasks: &[Task<'_>]) -> Vec<std::ops::Range<usize>> {
    let mut segments = Vec::new();
    let mut start = 0;
    for (at, _) in tasks.iter().enumerate().filter(|(_, task)| task.is_job) {
        segments.extend([start..at, at..at + 1]);
        start = at + 1;
    }
    segments.push(start..tasks.len());
    segments.retain(|segment| !segment.is_empty());
    segments
}

/// Returns the runs of consecutive tasks of the same level and component. A task without these is alone.
fn flatten_by_number_and_component(steps: &[Option<&RunStep>]) -> Level {
    let mut runs: Level = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        match runs.last_mut() {
            Some(run) if step.is_some() && steps[at - 1] == *step => run.push(at),
            _ => runs.push(vec![at]),
        }
    }
    runs
}

/// Returns the levels of the tasks in their order. Consecutive runs of the same number are a level and run side by side; runs
/// that are alone in their level become one serial group with such levels before and after them.
fn by_number_and_component(steps: &[Option<&RunStep>]) -> Vec<Level> {
    let number = |run: &Group| steps[run[0]].map(|step| &step.level);
    let runs = flatten_by_number_and_component(steps);
    let mut levels: Vec<Level> = Vec::new();
    for level in runs.chunk_by(|a, b| number(a).is_some() && number(a) == number(b)) {
        match (level, levels.last_mut().map(Vec::as_mut_slice)) {
            ([run], Some([serial])) => serial.extend(run),
            _ => levels.push(level.to_vec()),
        }
    }
    levels
}

/// Rotates the groups by `step`, or by a proportional part of a longer list.
fn shift(mut level: Level, step: u64, stride: u64) -> Level {
    let length = level.len();
    let by = if (length as u64) < stride { step } else { step * length as u64 / stride };
    if length > 0 {
        level.rotate_left((by % length as u64) as usize);
    }
    level
}

/// Shuffles the groups; the same seed gives the same order.
fn permute(mut level: Level, seed: u64) -> Level {
    let mut state = seed;
    for end in (1..level.len()).rev() {
        // SplitMix64: small, and the same on every machine.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut random = state;
        random = (random ^ (random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        random = (random ^ (random >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        random ^= random >> 31;
        level.swap(end, (random % (end as u64 + 1)) as usize);
    }
    level
}

/// Adds levels one after another.
struct Builder<'a> {
    tasks: &'a [Task<'a>],
    nodes: Vec<TaskNode>,
    /// The nodes of the last level.
    last: Vec<usize>,
}

impl<'a> Builder<'a> {
    fn new(tasks: &'a [Task<'a>]) -> Self {
        Self { tasks, nodes: Vec::new(), last: Vec::new() }
    }

    /// Adds a level after the last one; `first` is the index of its task 0.
    fn add(&mut self, level: Level, first: usize) {
        // A node without steps between two wide levels keeps the number of edges linear.
        if self.last.len() > 1 && level.len() > 1 {
            let barrier = TaskNode { title: String::new(), after: std::mem::take(&mut self.last), steps: Vec::new() };
            self.last = vec![self.push(barrier)];
        }
        let mut added = Vec::with_capacity(level.len());
        for group in level {
            let group: Group = group.into_iter().map(|at| at + first).collect();
            let title = self.title(&group);
            let steps = group.iter().map(|&at| TaskStep { manifest: at, action: self.tasks[at].action }).collect();
            added.push(self.push(TaskNode { title, after: self.last.clone(), steps }));
        }
        if !added.is_empty() {
            self.last = added;
        }
    }

    fn push(&mut self, node: TaskNode) -> usize {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// Returns the level and component of a group, such as `50 cluster-autoscaler-operator`, or of several in a serial group.
    fn title(&self, group: &[usize]) -> String {
        const NAMED: usize = 3;
        let mut names: Vec<String> = Vec::new();
        for &at in group {
            let task = &self.tasks[at];
            let name = match task.step {
                Some(step) => format!("{} {}", step.level, step.component),
                None => task.file.to_owned(),
            };
            if names.last() != Some(&name) {
                names.push(name);
            }
        }
        if names.len() > NAMED {
            let more = names.len() - (NAMED - 1);
            names.truncate(NAMED - 1);
            names.push(format!("{more} more"));
        }
        names.join(", ")
    }
}

#[cfg(test)]
mod tests;
