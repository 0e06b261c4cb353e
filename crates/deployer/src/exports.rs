//! Exports: values that an item reads from objects in target clusters, or from the values of its chart.

mod key;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

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
pub(crate) use self::key::merge;
use crate::{
    api::ErrorCode,
    error::ItemFailure,
    halt::{Stop, until},
    readiness::watched::{FindError, Observation, Observations, Place, Wanted, Which},
};

/// Reads the exports with `fromResource`; see [`from_values`] for the others.
///
/// All exports wait concurrently until their objects have the values. The result is merged in the order of `exports`. If a
/// path finds several values, the first one is exported. The data of a Secret is exported in base64, as it is stored. Kinds
/// that are not in `catalogs` are looked up in the target cluster.
///
/// # Errors
///
/// When a key is invalid, the deadline passes, `stop` is cancelled, or an object cannot be found: its target is unknown, or
/// the cluster does not serve the kind for about a minute.
pub(crate) async fn export(
    clusters: &Clusters,
    exports: &[Export],
    catalogs: &Catalogs,
    deadline: Option<Instant>,
    stop: &CancellationToken,
) -> Result<Map<String, Value>, Stop> {
    let mut running = FuturesUnordered::new();
    for (index, export) in exports.iter().enumerate() {
        let Some(resource) = &export.from_resource else { continue };
        let key = key_of(export)?;
        let place = Place::find(clusters, catalogs, export.target_name.as_deref());
        let mut reading = Reading::new(place.map_err(|error| not_found(export, &error))?, export, resource);
        running.push(async move { (index, key, reading.wait(deadline, stop).await) });
    }
    let (mut found, mut missing) = (BTreeMap::new(), BTreeMap::new());
    // All exports have the same deadline, so the error can name the missing values of all of them.
    while let Some((index, key, value)) = running.next().await {
        match value? {
            Ok(value) => drop(found.insert(index, key.nest(value))),
            Err(reason) => drop(missing.insert(index, reason)),
        }
    }
    if missing.is_empty() {
        return Ok(merged(found.into_values()));
    }
    let missing: Vec<String> = missing.into_values().collect();
    let message = format!("failed to read the values of exports: time limit reached: {}", missing.join("; "));
    Err(ItemFailure::new("NotExported", message, ErrorCode::Timeout).into())
}

/// Reads the exports without `fromResource` from what the templates of a chart see: `{"Values": …, "Release": …}`.
///
/// # Errors
///
/// When a key is invalid, or a path finds nothing.
pub(crate) fn from_values(exports: &[Export], values: &Value) -> Result<Map<String, Value>, ItemFailure> {
    let read = |export: &Export| -> Result<_, ItemFailure> {
        let value = value_at(&export.json_path, values).ok_or_else(|| {
            let message = format!("export {:?}: {} does not exist in the chart's values", export.key, export.json_path);
            ItemFailure::configuration("NotExported", message)
        })?;
        Ok(key_of(export)?.nest(value))
    };
    let found: Result<Vec<_>, _> = exports.iter().filter(|export| export.from_resource.is_none()).map(read).collect();
    Ok(merged(found?))
}

fn key_of(export: &Export) -> Result<Key, ItemFailure> {
    let hint = "invalid key: write names separated by dots, and \\. for a dot in a name";
    let failure = || ItemFailure::configuration("NotExported", format!("export {:?}: {hint}", export.key));
    Key::parse(&export.key).ok_or_else(failure)
}

fn not_found(export: &Export, error: &FindError) -> Stop {
    let message = format!("failed to find the object of export {:?}: {error}", export.key);
    ItemFailure::configuration("NotExported", message).into()
}

fn merged(values: impl IntoIterator<Item = Map<String, Value>>) -> Map<String, Value> {
    let mut all = Map::new();
    values.into_iter().for_each(|value| merge(&mut all, value));
    all
}

/// Returns the first value that a path finds, like `jsonpath.GetValue` of Landscaper.
fn value_at(path: &JsonPath, root: &Value) -> Option<Value> {
    path.find(root).into_iter().next().cloned()
}

/// An export that is waiting for its value.
struct Reading<'a> {
    place: Place<'a>,
    export: &'a Export,
    resource: &'a TypedReference,
    source: Watch<'a>,
    /// The object that `source` refers to, if the export follows a reference.
    referenced: Option<Watch<'a>>,
    /// The object, and the reason why the value is missing.
    missing: (String, String),
}

/// A watch of one object.
struct Watch<'a> {
    wanted: Wanted,
    observations: Observations<'a>,
}

impl<'a> Watch<'a> {
    fn open(place: Place<'a>, wanted: Wanted) -> Self {
        Self { observations: place.watch(wanted.clone()), wanted }
    }

    /// Waits for the next change; returns the object, or why there is none.
    async fn next(&mut self) -> Result<Result<Value, String>, FindError> {
        match self.observations.next().await {
            Some(Ok(Observation::Unavailable(reason))) => Ok(Err(reason)),
            Some(Ok(Observation::Objects(_, changes))) => Ok(match changes.into_iter().next_back() {
                Some(ObjectChange::Present(object)) => Ok(object),
                _ => Err("deleted".to_owned()),
            }),
            Some(Err(error)) => Err(error),
            // It ended with an error, which ends the export.
            None => std::future::pending().await,
        }
    }
}

impl<'a> Reading<'a> {
    fn new(place: Place<'a>, export: &'a Export, resource: &'a TypedReference) -> Self {
        let which = Which::Object { namespace: resource.namespace.clone(), name: resource.name.clone() };
        let wanted = Wanted::new(&resource.api_version, &resource.kind, which);
        let missing = (wanted.to_string(), "not found yet".to_owned());
        Self { place, export, resource, source: Watch::open(place, wanted), referenced: None, missing }
    }

    /// Waits for the value. Returns why it is missing if the deadline is reached.
    async fn wait(
        &mut self,
        deadline: Option<Instant>,
        stop: &CancellationToken,
    ) -> Result<Result<Value, String>, Stop> {
        let export = self.export;
        let find = |error| not_found(export, &error);
        loop {
            let value = tokio::select! {
                biased;
                () = stop.cancelled() => return Err(Stop::Halted),
                () = until(deadline) => {
                    let (object, reason) = &self.missing;
                    return Ok(Err(format!("export {:?}: {object}: {reason}", export.key)));
                }
                object = self.source.next() => self.on_source(object.map_err(find)?),
                object = next_of(&mut self.referenced) => self.on_referenced(object.map_err(find)?),
            };
            if let Some(value) = value {
                return Ok(Ok(value));
            }
        }
    }

    /// Handles a change of the export's own object, which has the value, or a reference to the object with the value.
    fn on_source(&mut self, object: Result<Value, String>) -> Option<Value> {
        let value = object.and_then(|object| found(&self.export.json_path, &object));
        let Some(reference) = &self.export.from_object_ref else {
            return value.map_err(|reason| self.set_missing(None, reason)).ok();
        };
        match value.and_then(|value| self.follow(reference, &value)) {
            Ok(wanted) if self.referenced.as_ref().is_some_and(|watch| watch.wanted == wanted) => {}
            Ok(wanted) => {
                self.set_missing(Some(&wanted), "not found yet".to_owned());
                self.referenced = Some(Watch::open(self.place, wanted));
            }
            Err(reason) => {
                self.referenced = None;
                self.set_missing(None, reason);
            }
        }
        None
    }

    /// Handles a change of the referenced object.
    fn on_referenced(&mut self, object: Result<Value, String>) -> Option<Value> {
        let path = &self.export.from_object_ref.as_ref()?.json_path;
        let wanted = self.referenced.as_ref()?.wanted.clone();
        object.and_then(|object| found(path, &object)).map_err(|reason| self.set_missing(Some(&wanted), reason)).ok()
    }

    fn set_missing(&mut self, referenced: Option<&Wanted>, reason: String) {
        self.missing = (referenced.unwrap_or(&self.source.wanted).to_string(), reason);
    }

    /// Returns the object that a value refers to by `name` and `namespace`; the namespace defaults to that of the referrer.
    fn follow(&self, reference: &FromObjectReference, value: &Value) -> Result<Wanted, String> {
        let text = |field: &str| match value.get(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(format!("{} is not a reference: its {field} is not a string", self.export.json_path)),
        };
        let name = text("name")?;
        let name = name.ok_or_else(|| format!("{} is not a reference: it has no name", self.export.json_path))?;
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
