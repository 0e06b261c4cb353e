//! Exports: values that a configuration reads from objects in its targets, or from its chart's values.

mod key;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fmt};

use billhook_cluster::ObjectChange;
use billhook_engine::Clusters;
use billhook_objects::JsonPath;
use billhook_plan::Catalogs;
use billhook_policy::{Export, FromObjectReference, TypedReference};
use futures::{StreamExt as _, stream::FuturesUnordered};
use serde_json::{Map, Value};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::key::Key;
pub use self::key::merge;
use crate::readiness::{
    FindError,
    watched::{Place, Seen, SeenStream, Wanted, Which, until},
};

/// Why values cannot be exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The time is over; these values are missing.
    #[error("find the values of exports in time: {}", joined(.0))]
    TimedOut(Vec<Missing>),
    /// It was stopped before all values were found.
    #[error("find the values of exports: it was interrupted")]
    Interrupted,
    /// A key that says no place for the value.
    #[error("export {0:?}: the key must be names with dots between them; write \\. for a dot in a name")]
    Key(String),
    /// A path that finds nothing in the chart's values.
    #[error("export {key:?}: {path} does not exist in the chart's values")]
    Value {
        /// The export's key.
        key: String,
        /// Its path, as written.
        path: String,
    },
    /// The object of an export cannot be looked for.
    #[error("look at the object of export {key:?}")]
    Find {
        /// The export's key.
        key: String,
        /// Why it cannot.
        #[source]
        error: FindError,
    },
}

/// A value that could not be exported yet, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The export's key.
    pub key: String,
    /// The object that should have it.
    pub object: String,
    /// Why there is no value, for people.
    pub reason: String,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "export {:?}: {}: {}", self.key, self.object, self.reason)
    }
}

fn joined(missing: &[Missing]) -> String {
    missing.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Reads the exports that have a `fromResource`; the others are passed over (see [`from_values`]).
///
/// Each waits until its object has the value; they wait side by side, and the result is merged in the order of
/// `exports`. Of several values that a path finds, the first one is exported. The data of a Secret are exported as they
/// are stored, in base64. `catalogs` may be incomplete: kinds that they lack are looked for in the
/// target.
///
/// # Errors
///
/// When a key cannot be used, the deadline passes, `stop` is cancelled, or an object cannot be looked for: its target
/// is not known, or does not serve the kind even after about a minute.
pub async fn export(
    clusters: &Clusters,
    exports: &[Export],
    catalogs: &Catalogs,
    deadline: Option<Instant>,
    stop: &CancellationToken,
) -> Result<Map<String, Value>, ExportError> {
    let mut running = FuturesUnordered::new();
    for (index, export) in exports.iter().enumerate() {
        let Some(resource) = &export.from_resource else { continue };
        let key = key_of(export)?;
        let find = |error| ExportError::Find { key: export.key.clone(), error };
        let place = Place::find(clusters, catalogs, export.target_name.as_deref()).map_err(find)?;
        let mut reading = Reading::new(place, export, resource);
        running.push(async move { (index, reading.wait(deadline, stop).await.map(|value| key.nest(value))) });
    }
    let (mut found, mut missing) = (BTreeMap::new(), BTreeMap::new());
    while let Some((index, read)) = running.next().await {
        match read {
            Ok(value) => {
                found.insert(index, value);
            }
            // The others have the same deadline: what they lack is said, too.
            Err(ExportError::TimedOut(values)) => {
                missing.insert(index, values);
            }
            Err(error) => return Err(error),
        }
    }
    if !missing.is_empty() {
        return Err(ExportError::TimedOut(missing.into_values().flatten().collect()));
    }
    Ok(merged(found.into_values()))
}

/// Reads the exports that have no `fromResource` from what a chart is rendered with: `{"Values": …, "Release": …}`, as
/// its templates see it.
///
/// # Errors
///
/// When a key cannot be used or a path finds nothing: the values do not change any more.
pub fn from_values(exports: &[Export], values: &Value) -> Result<Map<String, Value>, ExportError> {
    let read = |export: &Export| {
        let value = value_at(&export.json_path, values)
            .ok_or_else(|| ExportError::Value { key: export.key.clone(), path: export.json_path.to_string() })?;
        Ok(key_of(export)?.nest(value))
    };
    let found: Result<Vec<_>, _> = exports.iter().filter(|export| export.from_resource.is_none()).map(read).collect();
    Ok(merged(found?))
}

fn key_of(export: &Export) -> Result<Key, ExportError> {
    Key::parse(&export.key).ok_or_else(|| ExportError::Key(export.key.clone()))
}

fn merged(values: impl IntoIterator<Item = Map<String, Value>>) -> Map<String, Value> {
    let mut all = Map::new();
    values.into_iter().for_each(|value| merge(&mut all, value));
    all
}

/// The first value that a path finds, as with Landscaper (`jsonpath.GetValue`).
fn value_at(path: &JsonPath, root: &Value) -> Option<Value> {
    path.find(root).into_iter().next().cloned()
}

/// An export that waits for its value.
struct Reading<'a> {
    place: Place<'a>,
    export: &'a Export,
    resource: &'a TypedReference,
    source: Watch<'a>,
    /// The object that `source` refers to, where the export follows a reference.
    referenced: Option<Watch<'a>>,
    /// The object and the reason why there is no value yet.
    missing: (String, String),
}

/// One object that is watched.
struct Watch<'a> {
    wanted: Wanted,
    seen: SeenStream<'a>,
}

impl<'a> Watch<'a> {
    fn open(place: Place<'a>, wanted: Wanted) -> Self {
        Self { seen: place.watch(wanted.clone()), wanted }
    }

    /// The object, each time it has changed, or why there is none.
    async fn next(&mut self) -> Result<Result<Value, String>, FindError> {
        match self.seen.next().await {
            Some(Ok(Seen::Nothing(why))) => Ok(Err(why)),
            Some(Ok(Seen::Objects(_, changes))) => Ok(match changes.into_iter().next_back() {
                Some(ObjectChange::Present(object)) => Ok(object),
                _ => Err("it was deleted".to_owned()),
            }),
            Some(Err(error)) => Err(error),
            // It ended with an error, and nobody asks after that.
            None => std::future::pending().await,
        }
    }
}

impl<'a> Reading<'a> {
    fn new(place: Place<'a>, export: &'a Export, resource: &'a TypedReference) -> Self {
        let which = Which::Object { namespace: resource.namespace.clone(), name: resource.name.clone() };
        let wanted = Wanted::new(&resource.api_version, &resource.kind, which);
        let missing = (wanted.to_string(), "it was not seen yet".to_owned());
        Self { place, export, resource, source: Watch::open(place, wanted), referenced: None, missing }
    }

    async fn wait(&mut self, deadline: Option<Instant>, stop: &CancellationToken) -> Result<Value, ExportError> {
        let find = |error| ExportError::Find { key: self.export.key.clone(), error };
        loop {
            let value = tokio::select! {
                biased;
                () = stop.cancelled() => return Err(ExportError::Interrupted),
                () = until(deadline) => {
                    let (object, reason) = self.missing.clone();
                    return Err(ExportError::TimedOut(vec![Missing { key: self.export.key.clone(), object, reason }]));
                }
                object = self.source.next() => self.of_source(object.map_err(find)?),
                object = next_of(&mut self.referenced) => self.of_referenced(object.map_err(find)?),
            };
            if let Some(value) = value {
                return Ok(value);
            }
        }
    }

    /// What the export's own object has: the value, or the reference to the object that has it.
    fn of_source(&mut self, object: Result<Value, String>) -> Option<Value> {
        let value = object.and_then(|object| found(&self.export.json_path, &object));
        let Some(reference) = &self.export.from_object_ref else {
            return value.map_err(|reason| self.lacks(None, reason)).ok();
        };
        match value.and_then(|value| self.follow(reference, &value)) {
            Ok(wanted) if self.referenced.as_ref().is_some_and(|watch| watch.wanted == wanted) => {}
            Ok(wanted) => {
                self.lacks(Some(&wanted), "it was not seen yet".to_owned());
                self.referenced = Some(Watch::open(self.place, wanted));
            }
            Err(reason) => {
                self.referenced = None;
                self.lacks(None, reason);
            }
        }
        None
    }

    /// What the object that is referred to has.
    fn of_referenced(&mut self, object: Result<Value, String>) -> Option<Value> {
        let path = &self.export.from_object_ref.as_ref()?.json_path;
        let wanted = self.referenced.as_ref()?.wanted.clone();
        object.and_then(|object| found(path, &object)).map_err(|reason| self.lacks(Some(&wanted), reason)).ok()
    }

    fn lacks(&mut self, referenced: Option<&Wanted>, reason: String) {
        self.missing = (referenced.unwrap_or(&self.source.wanted).to_string(), reason);
    }

    /// The object that a value refers to by `name` and `namespace`; without the latter it lies beside its referrer.
    fn follow(&self, reference: &FromObjectReference, value: &Value) -> Result<Wanted, String> {
        let text = |field: &str| match value.get(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(format!("{} is no reference: its {field} is not a string", self.export.json_path)),
        };
        let name = text("name")?;
        let name = name.ok_or_else(|| format!("{} is no reference: it has no name", self.export.json_path))?;
        let namespace = text("namespace")?.or_else(|| self.resource.namespace.clone());
        Ok(Wanted::new(&reference.api_version, &reference.kind, Which::Object { namespace, name }))
    }
}

fn found(path: &JsonPath, object: &Value) -> Result<Value, String> {
    value_at(path, object).ok_or_else(|| format!("{path} does not exist"))
}

async fn next_of(watch: &mut Option<Watch<'_>>) -> Result<Result<Value, String>, FindError> {
    match watch {
        Some(watch) => watch.next().await,
        None => std::future::pending().await,
    }
}
