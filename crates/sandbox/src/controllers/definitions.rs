//! The controllers of CustomResourceDefinitions, which accept names, serve kinds, and delete the instances of a deleted
//! definition.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    agenda::{DefinitionNames, ServedDefinition},
    objects::{Next, Step, edit, edit_status, has_finalizer, id, load, remove_finalizer},
    work::{Task, Work},
};
use crate::{
    conditions::{self, Condition},
    kinds::{CRD_CLEANUP, ResourceId, kind_of_crd},
    object::{is_deleting, meta, metadata_mut},
    state::State,
    status::ApiError,
    store::ObjectId,
};

const CONTROLLER: &str = "custom-resource-definitions";
/// The interval at which remaining instances are checked, and the time until their deletion is repeated.
const POLL: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(60);

fn definition_id(name: &str) -> ObjectId {
    id("apiextensions.k8s.io", "customresourcedefinitions", "", name)
}

/// Returns the resource that a definition defines.
fn resource_of(definition: &Value) -> ResourceId {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    ResourceId::new(&text(&definition["spec"]["group"]), &text(&definition["spec"]["names"]["plural"]))
}

/// Accepts the names of a definition, then serves its kind. Each step changes the status, which causes the next one.
pub(super) fn sync(state: &mut State, name: &str) -> Step {
    let Some(definition) = load(state, &definition_id(name)) else { return Ok(Next::Done) };
    let (requested, known) = (requested_names(&definition), &definition["status"]["acceptedNames"]);
    let names = DefinitionNames { accepted: known.clone(), wanting: *known != requested };
    let wanting = names.wanting;
    state.controllers.names.insert(name.into(), names);
    let now = state.clock.text();
    if wanting {
        let (accepted, conflict) = accept_names(state, &definition, &requested);
        if *known != accepted {
            // Other definitions may get the names that this one gave up.
            state.controllers.add_named(Task::Names, "", group_of(name), Instant::now());
        }
        let names = DefinitionNames { accepted: accepted.clone(), wanting: conflict.is_some() };
        edit_status(state, &definition_id(name), CONTROLLER, |object| {
            set_names(object, accepted, conflict.as_ref(), &now);
        })?;
        state.controllers.names.insert(name.into(), names);
        return Ok(Next::Done);
    }
    if !conditions::is_true(&definition, "NamesAccepted") && !conditions::is_true(&definition, "Established") {
        return Ok(Next::Done);
    }
    serve(state, &definition);
    edit_status(state, &definition_id(name), CONTROLLER, |object| {
        let established = Condition {
            name: "Established",
            status: true,
            reason: "InitialNamesAccepted",
            message: "the initial names have been accepted",
        };
        if !conditions::is_true(object, "Established") {
            conditions::set(&mut object["status"], &established, &now);
        }
    })?;
    Ok(Next::Done)
}

/// Serves the kind of a definition, unless this generation is already served.
fn serve(state: &mut State, definition: &Value) {
    let served = ServedDefinition {
        uid: meta(definition, "uid").into(),
        generation: definition["metadata"]["generation"].as_u64().unwrap_or(0),
        resource: resource_of(definition),
    };
    let name = meta(definition, "name");
    if state.controllers.served.get(name) == Some(&served) {
        return;
    }
    if let Ok(kind) = kind_of_crd(definition) {
        state.store.begin(&kind.id);
        state.kinds.insert(Arc::new(kind));
        state.controllers.served.insert(name.into(), served);
    }
}

/// Serves the kind of a definition that was copied from another cluster, if it is Established there.
pub(crate) fn serve_copied(state: &mut State, name: &str) {
    let Some(definition) = load(state, &definition_id(name)) else { return };
    if conditions::is_true(&definition, "Established") {
        let accepted = definition["status"]["acceptedNames"].clone();
        let wanting = accepted != requested_names(&definition);
        state.controllers.names.insert(name.into(), DefinitionNames { accepted, wanting });
        serve(state, &definition);
    }
}

/// Returns the group of a definition from its name, `widgets.example.com`.
fn group_of(name: &str) -> &str {
    name.split_once('.').map_or("", |(_, group)| group)
}

/// Returns the requested names, including defaults.
fn requested_names(definition: &Value) -> Value {
    let mut names = definition["spec"]["names"].clone();
    let kind = names["kind"].as_str().unwrap_or_default().to_owned();
    if names["listKind"].as_str().unwrap_or_default().is_empty() {
        names["listKind"] = format!("{kind}List").into();
    }
    if names["singular"].as_str().unwrap_or_default().is_empty() {
        names["singular"] = kind.to_lowercase().into();
    }
    names
}

/// Why names are not accepted: a reason and a message.
type Conflict = (&'static str, String);

/// Returns the names that no other definition in the group has, and a conflict about the others.
fn accept_names(state: &State, definition: &Value, requested: &Value) -> (Value, Option<Conflict>) {
    let (resources, kinds) = names_in_use(state, group_of(meta(definition, "name")));
    let known = &definition["status"]["acceptedNames"];
    let mut accepted = if known.is_object() { known.clone() } else { json!({"plural": "", "kind": ""}) };
    let mut conflict = None;
    let taken =
        |name: &Value, own: bool, used: &BTreeSet<String>| !own && used.contains(name.as_str().unwrap_or_default());
    let fields = [
        ("plural", "PluralConflict", &resources),
        ("singular", "SingularConflict", &resources),
        ("shortNames", "ShortNamesConflict", &resources),
        ("kind", "KindConflict", &kinds),
        ("listKind", "ListKindConflict", &kinds),
    ];
    for (field, reason, used) in fields {
        let (wanted, own) = (&requested[field], &known[field]);
        let in_use: Vec<_> = match wanted {
            Value::Array(wanted) => {
                let own = own.as_array().map(Vec::as_slice).unwrap_or_default();
                wanted.iter().filter(|name| taken(name, own.contains(name), used)).collect()
            }
            Value::Null => Vec::new(),
            wanted => Some(wanted).filter(|name| taken(name, own == *name, used)).into_iter().collect(),
        };
        match in_use.as_slice() {
            [] => set_name(&mut accepted, field, wanted),
            [name] => conflict = Some((reason, format!("{name} is already in use"))),
            names => {
                let texts: Vec<_> = names.iter().map(|name| format!("{name} is already in use")).collect();
                conflict = Some((reason, format!("[{}]", texts.join(", "))));
            }
        }
    }
    set_name(&mut accepted, "categories", &requested["categories"]);
    (accepted, conflict)
}

fn set_name(accepted: &mut Value, field: &str, wanted: &Value) {
    let Some(names) = accepted.as_object_mut() else { return };
    if wanted.is_null() {
        names.remove(field);
    } else {
        names.insert(field.to_owned(), wanted.clone());
    }
}

/// Returns the names of resources and of kinds that are accepted in a group.
fn names_in_use(state: &State, group: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut resources, mut kinds) = (BTreeSet::new(), BTreeSet::new());
    for (_, DefinitionNames { accepted: names, .. }) in
        state.controllers.names.iter().filter(|(name, _)| group_of(name) == group)
    {
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        resources.extend(text(&names["plural"]));
        resources.extend(text(&names["singular"]));
        resources.extend(names["shortNames"].as_array().into_iter().flatten().filter_map(text));
        kinds.extend(text(&names["kind"]));
        kinds.extend(text(&names["listKind"]));
    }
    (resources, kinds)
}

fn set_names(object: &mut Value, accepted: Value, conflict: Option<&Conflict>, now: &str) {
    object["status"]["acceptedNames"] = accepted;
    let (reason, message) =
        conflict.map_or(("NoConflicts", "no conflicts found"), |(reason, message)| (*reason, message.as_str()));
    let names = Condition { name: "NamesAccepted", status: conflict.is_none(), reason, message };
    let (established, has) =
        (conditions::is_true(object, "Established"), conditions::find(object, "Established").is_some());
    conditions::set(&mut object["status"], &names, now);
    let (reason, message) = match conflict {
        None => ("Installing", "the initial names have been accepted"),
        Some(_) => ("NotAccepted", "not all names are accepted"),
    };
    if !established && (conflict.is_none() || !has) {
        let condition = Condition { name: "Established", status: false, reason, message };
        conditions::set(&mut object["status"], &condition, now);
    }
    if object["status"]["storedVersions"].is_null() {
        let versions = object["spec"]["versions"].as_array().into_iter().flatten();
        let stored: Vec<Value> =
            versions.filter(|version| version["storage"] == true).map(|version| version["name"].clone()).collect();
        object["status"]["storedVersions"] = stored.into();
    }
}

/// Adds work on definitions of a group that lack names, which may now be available.
pub(super) fn reconsider(state: &mut State, group: &str, now: Instant) -> Step {
    let wanting = state.controllers.names.iter().filter(|(name, names)| names.wanting && group_of(name) == group);
    let wanting: Vec<_> = wanting.map(|(name, _)| name.clone()).collect();
    for name in wanting {
        state.controllers.add_named(Task::Definition, "", &name, now);
    }
    Ok(Next::Done)
}

/// Deletes the instances of a definition that is being deleted.
pub(super) fn clean_up(state: &mut State, name: &str, now: Instant) -> Step {
    let definition_id = definition_id(name);
    let Some(definition) = load(state, &definition_id) else { return Ok(Next::Done) };
    let held = is_deleting(&definition) && has_finalizer(&definition, CRD_CLEANUP);
    if !held || state.controllers.cleanups.contains_key(name) {
        return Ok(Next::Done);
    }
    set_terminating(state, name, true, "InstanceDeletionInProgress", "CustomResource deletion is in progress")?;
    if !conditions::is_true(&definition, "Established") {
        return finish(state, name, "NeverEstablished", "resource was never established");
    }
    let resource = resource_of(&definition);
    delete_instances(state, &resource);
    if is_empty(state, &resource) {
        return finish(state, name, "InstanceDeletionCompleted", "removed all instances");
    }
    state.controllers.cleanups.insert(name.into(), now + PATIENCE);
    state.controllers.add_named(Task::CleanupPoll, "", name, now + POLL);
    Ok(Next::Done)
}

/// Checks whether the instances have been deleted.
pub(super) fn poll(state: &mut State, name: &str, now: Instant) -> Step {
    let until = state.controllers.cleanups.get(name).copied();
    let definition = load(state, &definition_id(name)).filter(|definition| has_finalizer(definition, CRD_CLEANUP));
    let (Some(definition), Some(until)) = (definition, until) else {
        state.controllers.cleanups.remove(name);
        return Ok(Next::Done);
    };
    if is_empty(state, &resource_of(&definition)) {
        state.controllers.cleanups.remove(name);
        state.controllers.queue.forget(&Work::new(Task::Cleanup, "", name));
        return finish(state, name, "InstanceDeletionCompleted", "removed all instances");
    }
    if now < until {
        return Ok(Next::After(POLL));
    }
    let message = "could not confirm zero CustomResources remaining: context deadline exceeded";
    let written = set_terminating(state, name, true, "InstanceDeletionCheck", message);
    state.controllers.cleanups.remove(name);
    state.controllers.queue.retry(Work::new(Task::Cleanup, "", name), now);
    written.map(|()| Next::Done)
}

fn is_empty(state: &State, resource: &ResourceId) -> bool {
    state.store.list(resource, None).next().is_none()
}

/// Deletes all instances in storage. Like in Kubernetes, admission does not apply.
fn delete_instances(state: &mut State, resource: &ResourceId) {
    let objects: Vec<_> = state.store.list(resource, None).cloned().collect();
    let now = state.clock.text();
    for stored in objects {
        if stored.finalizers.is_empty() {
            state.remove(resource, &stored.namespace, &stored.name);
        } else if !stored.deleting {
            let mut object = stored.value();
            let generation = object["metadata"]["generation"].as_u64().unwrap_or(0);
            let metadata = metadata_mut(&mut object);
            metadata.insert("deletionTimestamp".to_owned(), now.as_str().into());
            metadata.insert("deletionGracePeriodSeconds".to_owned(), 0.into());
            if generation > 0 {
                metadata.insert("generation".to_owned(), (generation + 1).into());
            }
            state.put(resource, object);
        }
    }
}

fn set_terminating(state: &mut State, name: &str, status: bool, reason: &str, message: &str) -> Result<(), ApiError> {
    let now = state.clock.text();
    let condition = Condition { name: "Terminating", status, reason, message };
    edit_status(state, &definition_id(name), CONTROLLER, |object| {
        conditions::set(&mut object["status"], &condition, &now);
    })
}

/// Removes the finalizer of a definition.
fn finish(state: &mut State, name: &str, reason: &str, message: &str) -> Step {
    set_terminating(state, name, false, reason, message)?;
    edit(state, &definition_id(name), CONTROLLER, |object| remove_finalizer(object, CRD_CLEANUP))?;
    Ok(Next::Done)
}

/// Stops serving the kind of a deleted definition and releases its names.
pub(super) fn unserve(state: &mut State, name: &str, now: Instant) -> Step {
    let current = state.store.get_id(&definition_id(name)).map(|stored| stored.uid.clone());
    let served = state.controllers.served.get(name).filter(|served| current.as_ref() != Some(&served.uid)).cloned();
    state.controllers.cleanups.remove(name);
    if current.is_none() {
        state.controllers.names.remove(name);
    }
    state.controllers.add_named(Task::Names, "", group_of(name), now);
    if let Some(served) = served {
        state.controllers.served.remove(name);
        state.kinds.remove(&served.resource);
        state.store.drop_table(&served.resource);
    }
    Ok(Next::Done)
}
