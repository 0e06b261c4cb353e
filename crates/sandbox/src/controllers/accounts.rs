//! The service account controller: every active namespace has a service account `default`.

use serde_json::json;
use tokio::time::Instant;

use super::{Controllers, Next, Step, Task, id, load, writer};
use crate::{state::State, store::Change, verbs::create};

const NAME: &str = "default";

pub(super) fn observe_namespace(controllers: &mut Controllers, change: &Change, due: Instant) {
    if change.after.as_ref().is_some_and(|namespace| !namespace.deleting) {
        controllers.add(Task::Account, change, due);
    }
}

pub(super) fn observe_account(controllers: &mut Controllers, change: &Change, due: Instant) {
    if change.after.is_none() && &*change.last.name == NAME {
        controllers.add_named(Task::Account, "", &change.last.namespace, due);
    }
}

/// Gives a namespace its service account.
pub(super) fn sync(state: &mut State, namespace: &str) -> Step {
    let Some(found) = load(state, &id("", "namespaces", "", namespace)) else { return Ok(Next::Done) };
    let there = state.store.get_id(&id("", "serviceaccounts", namespace, NAME)).is_some();
    let Some(kind) = state.kinds.find("", "serviceaccounts").filter(|_| !there) else { return Ok(Next::Done) };
    if found["status"]["phase"] != "Active" {
        return Ok(Next::Done);
    }
    let writer = writer(kind, "service-account-controller");
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME, "namespace": namespace}});
    create(state, &writer, namespace, account)?;
    Ok(Next::Done)
}
