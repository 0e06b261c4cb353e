//! The JSON document about one or several objects.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use serde::Serialize;

use crate::{
    Answer, Cause, Code, Failure, NextStep, ObjectRef, Query, Responsible, Risk,
    case::{Case, Priority, Seen},
    cause::Strength,
    object, tree,
};

/// The version of the document.
pub const DOCUMENT_FORMAT: u32 = 1;

/// What is known about several objects.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Document {
    /// [`DOCUMENT_FORMAT`].
    pub version: u32,
    /// How many requests were sent.
    pub requests: usize,
    /// One finding for each object.
    pub findings: Vec<Finding>,
    /// What could not be read, each once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<Unread>,
}

impl Document {
    /// Makes a document of findings.
    pub fn new(requests: usize, findings: Vec<Finding>, unread: impl IntoIterator<Item = Unread>) -> Self {
        let unread = unread.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
        Self { version: DOCUMENT_FORMAT, requests, findings, unread }
    }

    /// Returns the findings by their root causes: those that block first, then those that more objects have. Findings without
    /// a root cause are a group for each of their states.
    pub fn groups(&self) -> Vec<Vec<&Finding>> {
        let mut groups: BTreeMap<_, Vec<&Finding>> = BTreeMap::new();
        for finding in &self.findings {
            let cause = finding.root_cause.as_ref().map(|root| (root.code, &root.object, &root.message));
            let state = cause.is_none().then_some(finding.state);
            groups.entry((cause, state)).or_default().push(finding);
        }
        let mut groups: Vec<_> = groups.into_values().collect();
        groups.sort_by_key(|group| (!group.iter().any(|finding| finding.is_blocked()), Reverse(group.len())));
        groups
    }
}

/// Something that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Unread {
    /// What: `list secrets in namespace shop`.
    pub what: String,
    /// Why: the caller lacks the right, a limit is reached, or the API server's message.
    pub why: String,
}

impl Unread {
    /// Returns what a query could not read; none if it was answered. How a dry run or discovery fails is the evidence itself.
    pub(crate) fn of(query: &Query, answer: &Answer) -> Option<Self> {
        match (query, answer) {
            (Query::Probe(_) | Query::Discovery(_), _) => None,
            (query, Answer::Failed(failure)) => Some(Self::new(query, failure)),
            _ => None,
        }
    }

    /// Returns that a list goes on behind what was read of it.
    pub(crate) fn beyond(query: &Query, answer: &Answer) -> Option<Self> {
        match (query, answer) {
            (Query::List { .. }, Answer::Objects { items, complete: false }) => {
                Some(Self { what: query.to_string(), why: format!("only the first {} objects were read", items.len()) })
            }
            _ => None,
        }
    }

    /// Names a query that was not sent because the budget of an object was used.
    pub(crate) fn cut(query: &Query, budget: usize) -> Self {
        Self { what: query.to_string(), why: format!("the limit of {budget} requests for one object is reached") }
    }

    /// Names a query that failed.
    pub fn new(query: &Query, failure: &Failure) -> Self {
        let why = if failure.is_forbidden() { "the right is missing".to_owned() } else { failure.message.clone() };
        Self { what: query.to_string(), why }
    }
}

/// What is known about one object.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The object.
    pub object: ObjectRef,
    /// Whether it is being deleted.
    pub state: State,
    /// The time of its `deletionTimestamp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deleting_since: Option<String>,
    /// The cause to remove first; none if nothing is known to keep the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_cause: Option<RootCause>,
    /// The tree of causes.
    pub causes: Vec<Cause>,
    /// What to do, the safest first.
    pub next_steps: Vec<NextStep>,
}

/// The state of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It has a `deletionTimestamp`.
    Deleting,
    /// It exists.
    Present,
    /// It does not exist.
    Gone,
    /// It could not be read.
    Unknown,
}

/// The cause to remove first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RootCause {
    /// The code.
    pub code: Code,
    /// One sentence.
    pub message: String,
    /// The object to look at.
    pub object: ObjectRef,
    /// Who has to act.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub responsible: Option<Responsible>,
    /// Whether the deletion ends without anybody's help.
    #[serde(skip)]
    pub is_slow: bool,
}

impl RootCause {
    /// Returns the sentence with the object to look at.
    pub fn sentence(&self) -> String {
        format!("{}: {}", self.object, self.message)
    }
}

impl Finding {
    /// Returns the first next step without risk.
    pub fn safe_step(&self) -> Option<&NextStep> {
        self.next_steps.iter().find(|step| step.risk == Risk::None)
    }

    /// Returns whether the object stays until somebody acts. What is merely slow, or what nobody deletes, is not blocked.
    pub fn is_blocked(&self) -> bool {
        match &self.root_cause {
            // What the caller may not read may be well.
            Some(root) if root.code == Code::Forbidden && self.state == State::Unknown => false,
            Some(root) => root.code != Code::NotDeleting && !root.is_slow,
            // Without evidence nothing shows that it will end.
            None => self.state == State::Deleting,
        }
    }

    pub(crate) fn new(case: &Case<'_>, subject: &ObjectRef, causes: Vec<Cause>) -> Self {
        let seen = case.get(subject, Priority::Subject);
        let live = seen.value();
        let state = match seen {
            Seen::There(value) if object::is_deleting(value) => State::Deleting,
            Seen::There(_) => State::Present,
            Seen::Missing => State::Gone,
            Seen::NotServed | Seen::Failed(_) | Seen::Unknown => State::Unknown,
        };
        let deleting_since =
            live.and_then(|value| object::text(value, "/metadata/deletionTimestamp")).map(str::to_owned);
        let root = tree::root(&causes);
        let root_cause = root.map(|cause| RootCause {
            code: cause.code(),
            message: cause.reason.to_string(),
            object: cause.object.clone(),
            responsible: cause.responsible.clone(),
            is_slow: cause.reason.is_slow(),
        });
        let next_steps = next_steps(&causes, root);
        Self {
            object: live.and_then(ObjectRef::of).unwrap_or_else(|| subject.clone()),
            state,
            deleting_since,
            root_cause,
            causes,
            next_steps,
        }
    }
}

/// Returns the steps of the root, then those of other causes that are not merely possible; of equal risk in this order.
fn next_steps(causes: &[Cause], root: Option<&Cause>) -> Vec<NextStep> {
    let others = tree::leaves(causes, 0).into_iter().map(|(cause, _)| cause);
    let others = others.filter(|cause| cause.strength > Strength::Possible);
    let mut steps: Vec<NextStep> = Vec::new();
    for step in root.into_iter().chain(others).flat_map(|cause| &cause.next_steps) {
        if !steps.contains(step) {
            steps.push(step.clone());
        }
    }
    steps.sort_by_key(|step| step.risk);
    steps
}
