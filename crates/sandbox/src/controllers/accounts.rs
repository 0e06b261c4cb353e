//! The service account controller: every active namespace gets a service account `default`.

use serde_json::json;

use super::{
    agenda::DEFAULT_ACCOUNT,
    objects::{Next, Step, id, load, writer},
};
use crate::{state::State, verbs::create};

/// Creates the service account of a namespace.
pub(super) fn sync(state: &mut State, namespace: &str) -> Step {
    let Some(found) = load(state, &id("", "namespaces", "", namespace)) else { return Ok(Next::Done) };
    let exists = state.store.get_id(&id("", "serviceaccounts", namespace, DEFAULT_ACCOUNT)).is_some();
    let Some(kind) = state.kinds.find("", "serviceaccounts").filter(|_| !exists) else { return Ok(Next::Done) };
    if found["status"]["phase"] != "Active" {
        return Ok(Next::Done);
    }
    let writer = writer(kind, "service-account-controller");
    let metadata = json!({"name": DEFAULT_ACCOUNT, "namespace": namespace});
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata});
    create(state, &writer, namespace, account)?;
    Ok(Next::Done)
}
