//! Readiness checks: waits, with watches, until objects meet the requirements of an item's configuration, or until the
//! workloads of a release that helm deployed are ready.

#[cfg(test)]
pub(crate) mod lab;
mod requirement;
#[cfg(test)]
mod tests;
pub(crate) mod watched;

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use billhook_cluster::ObjectChange;
use billhook_engine::{
    Clusters,
    readiness::{Readiness, View, readiness},
};
use billhook_objects::{GroupKind, ObjectKey};
use billhook_plan::Catalogs;
use billhook_policy::{ReadinessCheck, Requirement};
use futures::{
    StreamExt as _,
    stream::{FuturesUnordered, select_all},
};
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::{
    requirement::unmet,
    watched::{FindError, Observation, Place, Wanted, Which},
};
use crate::{
    api::ErrorCode,
    error::ItemFailure,
    halt::{Stop, until},
};

/// How long a check waits after a change before it reports objects that are not ready: objects that are ready at once are
/// never reported, and frequent changes are reported once a second.
const SETTLE: Duration = Duration::from_secs(1);

/// Waits until all enabled checks pass. A check passes when all its objects meet all its requirements at the same time.
///
/// Checks run concurrently. `report` is called for an object that is not ready, and again when the reason changes. Kinds
/// that are not in `catalogs` are looked up in the target cluster.
///
/// # Errors
///
/// When the deadline passes, `stop` is cancelled, or the objects of a check cannot be found: its target is unknown, or the
/// cluster does not serve the kind for about a minute.
pub(crate) async fn wait_ready(
    clusters: &Clusters,
    checks: &[ReadinessCheck],
    catalogs: &Catalogs,
    deadline: Option<Instant>,
    stop: &CancellationToken,
    report: impl Fn(String),
) -> Result<(), Stop> {
    let checks = checks.iter().filter(|check| !check.disabled).map(Check::from).collect();
    wait_for_all(clusters, checks, "custom readiness checks", catalogs, deadline, stop, &report).await
}

/// Waits until these workloads of a release are ready, by the rules for the objects that billhook deploys itself.
///
/// # Errors
///
/// As [`wait_ready`].
pub(crate) async fn wait_for_workloads(
    clusters: &Clusters,
    workloads: Vec<Wanted>,
    catalogs: &Catalogs,
    deadline: Option<Instant>,
    stop: &CancellationToken,
    report: impl Fn(String),
) -> Result<(), Stop> {
    let check = Check { what: "release".to_owned(), target: None, wanted: workloads, rule: Rule::Workload };
    wait_for_all(clusters, vec![check], "the workloads of the release", catalogs, deadline, stop, &report).await
}

/// Counts the Pods of a DaemonSet that an update may take away as available, as Landscaper and helm do: a node that is not ready
/// does not hold up a release.
fn tolerant(kind: &GroupKind, mut object: Value) -> Value {
    let strategy = &object["spec"]["updateStrategy"];
    if !kind.is("apps", "DaemonSet") || strategy["type"] == "OnDelete" {
        return object;
    }
    let wanted = object["status"]["desiredNumberScheduled"].as_i64().unwrap_or(0);
    let unavailable = match &strategy["rollingUpdate"]["maxUnavailable"] {
        Value::String(text) => {
            let percent: Option<i64> = text.strip_suffix('%').and_then(|percent| percent.parse().ok());
            percent.map_or(0, |percent| wanted.saturating_mul(percent.clamp(0, 100)) / 100)
        }
        number => number.as_i64().unwrap_or(0).max(0),
    };
    let available = object["status"]["numberAvailable"].as_i64().unwrap_or(0);
    if unavailable > 0 && available < wanted {
        object["status"]["numberAvailable"] = available.saturating_add(unavailable).min(wanted).into();
    }
    object
}

/// Objects that have to meet a rule.
struct Check<'a> {
    /// What the objects belong to, for messages.
    what: String,
    /// The Target of the objects, if it is not that of the item.
    target: Option<&'a str>,
    wanted: Vec<Wanted>,
    rule: Rule<'a>,
}

/// When an object is ready.
#[derive(Clone, Copy)]
enum Rule<'a> {
    Requirements(&'a [Requirement]),
    Workload,
}

impl Rule<'_> {
    /// Returns why an object is not ready.
    fn unmet(self, kind: &GroupKind, object: &Value) -> Option<String> {
        match self {
            Self::Requirements(requirements) => {
                unmet(requirements, object).map(|unmet| unmet.reason(kind.is("", "Secret")))
            }
            // The reason has the real numbers.
            Self::Workload => pending(kind, tolerant(kind, object.clone())).and_then(|_| pending(kind, object.clone())),
        }
    }
}

/// Returns why a workload is not ready.
fn pending(kind: &GroupKind, object: Value) -> Option<String> {
    match serde_json::from_value::<View>(object) {
        Ok(view) => match readiness(kind, &view) {
            Readiness::Ready => None,
            Readiness::NotYet(reason) | Readiness::Failed(reason) => Some(reason),
        },
        Err(error) => Some(format!("its status cannot be read: {error}")),
    }
}

impl<'a> From<&'a ReadinessCheck> for Check<'a> {
    fn from(check: &'a ReadinessCheck) -> Self {
        let references = check.resources.iter().map(|reference| {
            let which = Which::Object { namespace: reference.namespace.clone(), name: reference.name.clone() };
            Wanted::new(&reference.api_version, &reference.kind, which)
        });
        let labelled = check
            .labels
            .iter()
            .map(|labelled| Wanted::new(&labelled.api_version, &labelled.kind, Which::Labels(labelled.labels.clone())));
        Self {
            what: format!("readiness check {:?}", check.name),
            target: check.target_name.as_deref(),
            wanted: references.chain(labelled).collect(),
            rule: Rule::Requirements(&check.requirements),
        }
    }
}

impl Check<'_> {
    fn not_found(&self, error: &FindError) -> Stop {
        let message = format!("failed to find the objects of {}: {error}", self.what);
        ItemFailure::configuration("NotReady", message).into()
    }
}

/// Waits for all checks; `all` names them in the error.
async fn wait_for_all(
    clusters: &Clusters,
    checks: Vec<Check<'_>>,
    all: &str,
    catalogs: &Catalogs,
    deadline: Option<Instant>,
    stop: &CancellationToken,
    report: &impl Fn(String),
) -> Result<(), Stop> {
    let mut running: FuturesUnordered<_> = checks
        .iter()
        .enumerate()
        .map(|(index, check)| async move {
            let unready = match Place::find(clusters, catalogs, check.target) {
                Ok(place) => wait_for(place, check, deadline, stop, report).await,
                Err(error) => Err(check.not_found(&error)),
            };
            (index, unready)
        })
        .collect();
    // All checks have the same deadline, so the error can name the objects of all of them.
    let mut unready = BTreeMap::new();
    while let Some((index, objects)) = running.next().await {
        unready.insert(index, objects?);
    }
    let unready: Vec<String> = unready.into_values().flatten().collect();
    if unready.is_empty() {
        return Ok(());
    }
    let message = format!("failed to wait for {all}: time limit reached: {}", unready.join("; "));
    Err(ItemFailure::new("NotReady", message, ErrorCode::Timeout).into())
}

/// Waits until a check passes or the deadline is reached. Returns the objects that are not ready.
async fn wait_for(
    place: Place<'_>,
    check: &Check<'_>,
    deadline: Option<Instant>,
    stop: &CancellationToken,
    report: &impl Fn(String),
) -> Result<Vec<String>, Stop> {
    let text = |object: &str, reason: &str| format!("{}: {object}: {reason}", check.what);
    let mut sources: Vec<Source> = check.wanted.iter().cloned().map(Source::new).collect();
    let watches = sources.iter().enumerate().map(|(index, source)| {
        let watch = place.watch(source.wanted.clone());
        watch.map(move |observation| (index, observation))
    });
    let mut watches = select_all(watches);
    let mut reported = HashMap::new();
    let mut report_at = Some(Instant::now() + SETTLE);
    while !sources.iter().all(Source::is_ready) {
        tokio::select! {
            biased;
            () = stop.cancelled() => return Err(Stop::Halted),
            () = until(deadline) => return Ok(unready(&sources).map(|(object, reason)| text(&object, &reason)).collect()),
            Some((index, observation)) = watches.next() => {
                let observation = observation.map_err(|error| check.not_found(&error))?;
                sources[index].update(observation, check.rule);
                report_at = report_at.or_else(|| Some(Instant::now() + SETTLE));
            }
            () = until(report_at), if report_at.is_some() => {
                let mut reasons = HashMap::new();
                for (object, reason) in unready(&sources) {
                    if reported.get(&object) != Some(&reason) {
                        report(text(&object, &reason));
                    }
                    reasons.insert(object, reason);
                }
                (reported, report_at) = (reasons, None);
            }
        }
    }
    Ok(Vec::new())
}

/// Returns the objects that are not ready, with the reasons.
fn unready(sources: &[Source]) -> impl Iterator<Item = (String, String)> {
    sources.iter().flat_map(Source::unready)
}

/// A reference or a label selector, and the state of its objects.
struct Source {
    wanted: Wanted,
    /// The objects, each with the reason why it is not ready.
    objects: BTreeMap<ObjectKey, Option<String>>,
    /// Why there is no object.
    missing: String,
}

impl Source {
    fn new(wanted: Wanted) -> Self {
        Self { wanted, objects: BTreeMap::new(), missing: "not found yet".to_owned() }
    }

    fn is_ready(&self) -> bool {
        !self.objects.is_empty() && self.objects.values().all(Option::is_none)
    }

    fn unready(&self) -> Vec<(String, String)> {
        if self.objects.is_empty() {
            return vec![(self.wanted.to_string(), self.missing.clone())];
        }
        let named = |(key, reason): (&ObjectKey, &Option<String>)| Some((key.to_string(), reason.clone()?));
        self.objects.iter().filter_map(named).collect()
    }

    fn update(&mut self, observation: Observation, rule: Rule<'_>) {
        match observation {
            Observation::Unavailable(reason) => self.missing = reason,
            Observation::Objects(kind, changes) => {
                for change in changes {
                    self.change(&kind, change, rule);
                }
            }
        }
    }

    fn change(&mut self, kind: &GroupKind, change: ObjectChange, rule: Rule<'_>) {
        match change {
            ObjectChange::Present(object) => {
                let Some(key) = key(kind, &object) else { return };
                if self.wanted.matches_labels(&object) {
                    self.objects.insert(key, rule.unmet(kind, &object));
                } else {
                    self.objects.remove(&key);
                    "no object has these labels any more".clone_into(&mut self.missing);
                }
            }
            ObjectChange::Gone(key) => {
                self.objects.remove(&key);
                "deleted".clone_into(&mut self.missing);
            }
        }
    }
}

fn key(kind: &GroupKind, object: &Value) -> Option<ObjectKey> {
    let metadata = object.get("metadata")?;
    let text = |field: &str| metadata.get(field).and_then(Value::as_str);
    Some(ObjectKey::new(kind.clone(), text("namespace"), text("name")?))
}
