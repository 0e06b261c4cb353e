//! How a pass over a payload, and the findings about one, are shown.

pub(crate) mod findings;
pub(crate) mod lines;
pub(crate) mod picture;

use billhook_objects::ObjectKey;
use billhook_payload::{Decision, Decisions, Entry, Outcome, Payload, State, preconditions::Failure};
use billhook_plan::TaskGraph;
use serde::Serialize;

/// A pass over a payload.
pub(crate) struct Pass<'a> {
    /// The name of the release.
    pub(crate) name: &'a str,
    /// The version.
    pub(crate) version: &'a str,
    /// The version before, if it is known.
    pub(crate) from_version: Option<&'a str>,
    /// What the pass is for.
    pub(crate) state: State,
    /// What the order of the nodes was made of, while reconciling.
    pub(crate) seed: u64,
    /// The manifests.
    pub(crate) payload: &'a Payload,
    /// The decisions about them.
    pub(crate) decisions: &'a Decisions,
    /// The graph.
    pub(crate) graph: TaskGraph,
    /// The preconditions that do not hold.
    pub(crate) preconditions: Vec<Failure>,
}

/// What `payload plan -o json` prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Json<'a> {
    name: &'a str,
    version: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    from_version: Option<&'a str>,
    state: State,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    counts: Counts,
    #[serde(skip_serializing_if = "Option::is_none")]
    workers: Option<usize>,
    retry_pauses: Vec<String>,
    preconditions: Vec<FailureRow<'a>>,
    nodes: Vec<NodeRow<'a>>,
    manifests: Vec<ManifestRow<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Counts {
    applied: usize,
    created_only: usize,
    deleted: usize,
    left_out: usize,
}

#[derive(Serialize)]
struct FailureRow<'a> {
    name: &'a str,
    reason: &'a str,
    message: &'a str,
    blocks: bool,
}

/// A node; one without manifests is a barrier.
#[derive(Serialize)]
struct NodeRow<'a> {
    title: &'a str,
    after: &'a [usize],
    /// Indexes in `manifests`.
    manifests: Vec<usize>,
}

#[derive(Serialize)]
struct ManifestRow<'a> {
    file: &'a str,
    line: usize,
    object: &'a ObjectKey,
    #[serde(skip_serializing_if = "Option::is_none")]
    level: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    component: Option<&'a str>,
    #[serde(flatten)]
    decision: &'a Decision,
}

impl<'a> Pass<'a> {
    /// Iterates over the manifests and the decisions about them.
    pub(crate) fn decided(&self) -> impl Iterator<Item = (&'a Entry, &'a Decision)> + use<'a> {
        self.payload.entries.iter().zip(&self.decisions.all)
    }

    /// Returns the entries that count.
    pub(crate) fn counting(&self) -> Vec<usize> {
        self.decisions.counting().collect()
    }

    /// Returns the version, the state and the counts in one line.
    pub(crate) fn summary(&self) -> String {
        let state = match self.state {
            State::Initializing => "initializing",
            State::Updating => "updating",
            State::Reconciling => "reconciling",
        };
        let from = self.from_version.filter(|from| *from != self.version);
        let from = from.map(|from| format!(" from {from}")).unwrap_or_default();
        let outcomes = [Outcome::Applied, Outcome::CreatedOnly, Outcome::Deleted, Outcome::LeftOut];
        let counts = outcomes.map(|outcome| (self.decisions.count(outcome), outcome));
        let counts: Vec<_> = counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, outcome)| format!("{count} {outcome}"))
            .collect();
        let manifests = super::count(self.payload.entries.len(), "manifest");
        format!("{} {}: {state}{from}, {manifests}: {}", self.name, self.version, counts.join(", "))
    }

    /// Returns how the graph runs, in one line.
    pub(crate) fn execution(&self) -> String {
        let workers = match self.graph.workers {
            Some(workers) => format!("up to {workers} nodes at a time"),
            None => "all nodes at a time that can run".to_owned(),
        };
        let pauses: Vec<_> = self.graph.retries.iter().map(ToString::to_string).collect();
        let deletes = if self.graph.deletes { "" } else { "; nothing is deleted in this state" };
        let seed = self.seed().map(|seed| format!("; order by seed {seed}")).unwrap_or_default();
        format!("{workers}; a failed manifest is repeated after {}{deletes}{seed}", pauses.join(", "))
    }

    fn seed(&self) -> Option<u64> {
        (self.state == State::Reconciling).then_some(self.seed)
    }

    /// Returns the pass as data.
    pub(crate) fn json(&self) -> Json<'_> {
        let counting = self.counting();
        let count = |outcome| self.decisions.count(outcome);
        Json {
            name: self.name,
            version: self.version,
            from_version: self.from_version,
            state: self.state,
            seed: self.seed(),
            counts: Counts {
                applied: count(Outcome::Applied),
                created_only: count(Outcome::CreatedOnly),
                deleted: count(Outcome::Deleted),
                left_out: count(Outcome::LeftOut),
            },
            workers: self.graph.workers.map(usize::from),
            retry_pauses: self.graph.retries.iter().map(ToString::to_string).collect(),
            preconditions: self.preconditions.iter().map(FailureRow::from).collect(),
            nodes: self
                .graph
                .nodes
                .iter()
                .map(|node| NodeRow {
                    title: &node.title,
                    after: &node.after,
                    manifests: node.steps.iter().filter_map(|step| counting.get(step.manifest).copied()).collect(),
                })
                .collect(),
            manifests: self.decided().map(ManifestRow::from).collect(),
        }
    }
}

impl<'a> From<&'a Failure> for FailureRow<'a> {
    fn from(Failure { name, reason, message, blocks }: &'a Failure) -> Self {
        Self { name, reason, message, blocks: *blocks }
    }
}

impl<'a> From<(&'a Entry, &'a Decision)> for ManifestRow<'a> {
    fn from((entry, decision): (&'a Entry, &'a Decision)) -> Self {
        Self {
            file: &entry.manifest.source.file,
            line: entry.manifest.source.line,
            object: &entry.manifest.key,
            level: entry.step.as_ref().map(|step| &*step.level),
            component: entry.step.as_ref().map(|step| &*step.component),
            decision,
        }
    }
}

/// Returns a text without line breaks: names of files and values of annotations may contain some, and must not begin a line.
fn one_line(text: &str) -> String {
    text.replace('\n', "\\n")
}
