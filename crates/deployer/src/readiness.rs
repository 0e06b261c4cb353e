//! Custom readiness checks: what the configuration asks of objects in its targets, waited for by watches.

#[cfg(test)]
pub(crate) mod lab;
mod requirement;
#[cfg(test)]
mod tests;
pub(crate) mod watched;

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    time::Duration,
};

use billhook_cluster::ObjectChange;
use billhook_engine::Clusters;
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

pub use self::watched::FindError;
use self::{
    requirement::unmet,
    watched::{Place, Seen, Wanted, Which, until},
};

/// How long a check waits after a change before it reports what is not ready: what is there already is not said, and
/// what changes often is said once a second.
const SETTLE: Duration = Duration::from_secs(1);

/// Why custom readiness checks do not hold.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The time is over; these objects are not ready.
    #[error("see custom readiness checks hold in time: {}", joined(.0))]
    TimedOut(Vec<Unready>),
    /// It was stopped before they held.
    #[error("see custom readiness checks hold: it was interrupted")]
    Interrupted,
    /// The objects of a check cannot be looked for.
    #[error("look at the objects of readiness check {check:?}")]
    Find {
        /// The check's name.
        check: String,
        /// Why they cannot.
        #[source]
        error: FindError,
    },
}

/// An object that does not do what a check asks, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unready {
    /// The name of the check.
    pub check: String,
    /// The object, or the label selector that shows none.
    pub object: String,
    /// What keeps it from being ready, for people.
    pub reason: String,
}

impl fmt::Display for Unready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "readiness check {:?}: {}: {}", self.check, self.object, self.reason)
    }
}

fn joined(unready: &[Unready]) -> String {
    unready.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Waits until all checks hold: all requirements of all objects of a check at one time. Disabled checks hold.
///
/// Checks run side by side. `report` is told of an object that is not ready, and again when the reason changes.
/// `catalogs` may be incomplete: kinds that they lack are looked for in the target.
///
/// # Errors
///
/// When the deadline passes, `stop` is cancelled, or the objects of a check cannot be looked for: its target is not
/// known, or does not serve the kind even after about a minute.
pub async fn wait_ready(
    clusters: &Clusters,
    checks: &[ReadinessCheck],
    catalogs: &Catalogs,
    deadline: Option<Instant>,
    stop: &CancellationToken,
    report: impl Fn(String),
) -> Result<(), CheckError> {
    let report = &report;
    let enabled = checks.iter().enumerate().filter(|(_, check)| !check.disabled);
    let mut running: FuturesUnordered<_> = enabled
        .map(|(index, check)| async move {
            let place = Place::find(clusters, catalogs, check.target_name.as_deref())
                .map_err(|error| CheckError::Find { check: check.name.clone(), error });
            let held = match place {
                Ok(place) => hold(place, check, deadline, stop, report).await,
                Err(error) => Err(error),
            };
            (index, held)
        })
        .collect();
    let mut unready = BTreeMap::new();
    while let Some((index, held)) = running.next().await {
        match held {
            Ok(()) => {}
            // The others have the same deadline: what they lack is said, too.
            Err(CheckError::TimedOut(objects)) => {
                unready.insert(index, objects);
            }
            Err(error) => return Err(error),
        }
    }
    if unready.is_empty() { Ok(()) } else { Err(CheckError::TimedOut(unready.into_values().flatten().collect())) }
}

/// Waits until one check holds.
async fn hold(
    place: Place<'_>,
    check: &ReadinessCheck,
    deadline: Option<Instant>,
    stop: &CancellationToken,
    report: &impl Fn(String),
) -> Result<(), CheckError> {
    let mut sources: Vec<Source> = wanted(check).map(Source::new).collect();
    let watches = sources.iter().enumerate().map(|(index, source)| {
        let watch = place.watch(source.wanted.clone());
        watch.map(move |seen| (index, seen))
    });
    let mut watches = select_all(watches);
    let mut said = HashMap::new();
    let mut say_at = Some(Instant::now() + SETTLE);
    while !sources.iter().all(Source::is_ready) {
        tokio::select! {
            biased;
            () = stop.cancelled() => return Err(CheckError::Interrupted),
            () = until(deadline) => return Err(CheckError::TimedOut(unready(check, &sources).collect())),
            Some((index, seen)) = watches.next() => {
                let seen = seen.map_err(|error| CheckError::Find { check: check.name.clone(), error })?;
                sources[index].take(seen, &check.requirements);
                say_at = say_at.or_else(|| Some(Instant::now() + SETTLE));
            }
            () = until(say_at), if say_at.is_some() => {
                let mut saying = HashMap::new();
                for object in unready(check, &sources) {
                    if said.get(&object.object) != Some(&object.reason) {
                        report(object.to_string());
                    }
                    saying.insert(object.object, object.reason);
                }
                (said, say_at) = (saying, None);
            }
        }
    }
    Ok(())
}

/// What a check looks at: each reference by itself, and what carries the labels.
fn wanted(check: &ReadinessCheck) -> impl Iterator<Item = Wanted> + '_ {
    let references = check.resources.iter().map(|reference| {
        let which = Which::Object { namespace: reference.namespace.clone(), name: reference.name.clone() };
        Wanted::new(&reference.api_version, &reference.kind, which)
    });
    let labelled = check
        .labels
        .iter()
        .map(|labelled| Wanted::new(&labelled.api_version, &labelled.kind, Which::Labels(labelled.labels.clone())));
    references.chain(labelled)
}

fn unready(check: &ReadinessCheck, sources: &[Source]) -> impl Iterator<Item = Unready> {
    let named = |(object, reason)| Unready { check: check.name.clone(), object, reason };
    sources.iter().flat_map(Source::unready).map(named)
}

/// A reference or a label selector, and what is known of its objects.
struct Source {
    wanted: Wanted,
    /// Each object, and why it is not ready.
    objects: BTreeMap<ObjectKey, Option<String>>,
    /// Why there is no object.
    none: String,
}

impl Source {
    fn new(wanted: Wanted) -> Self {
        Self { wanted, objects: BTreeMap::new(), none: "it was not seen yet".to_owned() }
    }

    fn is_ready(&self) -> bool {
        !self.objects.is_empty() && self.objects.values().all(Option::is_none)
    }

    fn unready(&self) -> Vec<(String, String)> {
        if self.objects.is_empty() {
            return vec![(self.wanted.to_string(), self.none.clone())];
        }
        let named = |(key, reason): (&ObjectKey, &Option<String>)| Some((key.to_string(), reason.clone()?));
        self.objects.iter().filter_map(named).collect()
    }

    fn take(&mut self, seen: Seen, requirements: &[Requirement]) {
        match seen {
            Seen::Nothing(why) => self.none = why,
            Seen::Objects(kind, changes) => {
                for change in changes {
                    self.change(&kind, change, requirements);
                }
            }
        }
    }

    fn change(&mut self, kind: &GroupKind, change: ObjectChange, requirements: &[Requirement]) {
        match change {
            ObjectChange::Present(object) => {
                let Some(key) = key(kind, &object) else { return };
                if self.wanted.carried_by(&object) {
                    let secret = kind.is("", "Secret");
                    self.objects.insert(key, unmet(requirements, &object).map(|unmet| unmet.reason(secret)));
                } else {
                    self.objects.remove(&key);
                    "nothing carries these labels any more".clone_into(&mut self.none);
                }
            }
            ObjectChange::Gone(key) => {
                self.objects.remove(&key);
                "it was deleted".clone_into(&mut self.none);
            }
        }
    }
}

fn key(kind: &GroupKind, object: &Value) -> Option<ObjectKey> {
    let metadata = object.get("metadata")?;
    let text = |field: &str| metadata.get(field).and_then(Value::as_str);
    Some(ObjectKey::new(kind.clone(), text("namespace"), text("name")?))
}
