//! Removal of finalizers, only from objects with a `deletionTimestamp` and only at the positions that were seen.

use billhook_objects::{
    Uid,
    wellknown::{FIELD_MANAGER, is_never_removed},
};
use billhook_plan::{Observed, Resource};
use serde_json::{Value, json};

use crate::{
    cluster::Cluster,
    counts::Verb,
    decode::META,
    error::{Error, ErrorKind, object_name},
    request::Call,
    url,
};

/// The outcome of a removal of finalizers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoveAnswer {
    /// These finalizers were removed.
    Removed(Vec<String>),
    /// The object is gone.
    Gone,
    /// The object has changed since it was seen: read it again.
    Changed,
    /// The object has none of the finalizers.
    NothingToDo,
}

impl Cluster {
    /// Removes finalizers by a JSON patch that tests the UID and the position of each finalizer.
    ///
    /// The finalizer by which the API server deletes the instances of a CRD is never removed.
    ///
    /// # Errors
    ///
    /// When the object has no `deletionTimestamp`, the server rejects the patch, or does not answer.
    pub async fn remove_finalizers(
        &self,
        resource: &Resource,
        object: &Observed,
        remove: &[String],
    ) -> Result<RemoveAnswer, Error> {
        let namespace = object.namespace.as_deref();
        let what = format!("remove finalizers of {}", object_name(resource, namespace, &object.name));
        if !object.deleting {
            return Err(Error::new(what, ErrorKind::Refused).because("it is not being deleted"));
        }
        let Some((patch, removed)) = patch(object, remove) else { return Ok(RemoveAnswer::NothingToDo) };
        let body = patch.to_string().into_bytes();
        let call = |resource: &Resource| {
            let url =
                url::with_query(&url::object(resource, namespace, &object.name), &[("fieldManager", FIELD_MANAGER)]);
            Call::new(Verb::Patch, &what, url).accept(META).body("application/json-patch+json", body.clone())
        };
        match self.send_about(resource, call).await {
            Ok(Some(_)) => Ok(RemoveAnswer::Removed(removed)),
            Ok(None) => Ok(RemoveAnswer::Gone),
            Err(error) if is_changed(&error) => {
                if error.answer_lost() {
                    // The try whose answer was lost may have removed them.
                    let now = self.get_meta(resource, &object.key(&resource.kind)).await?;
                    match now {
                        None => return Ok(RemoveAnswer::Gone),
                        Some(now) if now.uid == object.uid && !removed.iter().any(|f| now.finalizers.contains(f)) => {
                            return Ok(RemoveAnswer::Removed(removed));
                        }
                        Some(_) => {}
                    }
                }
                Ok(RemoveAnswer::Changed)
            }
            Err(error) => Err(error),
        }
    }

    /// Removes entries of a Namespace's `spec.finalizers` through its `finalize` subresource, the only way that the API
    /// server offers. The write carries the `resourceVersion` that was just read.
    ///
    /// # Errors
    ///
    /// When the Namespace is not being deleted, the server rejects the write, or does not answer.
    pub async fn finalize_namespace(&self, name: &str, uid: &Uid, remove: &[String]) -> Result<RemoveAnswer, Error> {
        let what = format!("finalize Namespace/{name}");
        let url = url::object(&Resource::namespaces(), None, name);
        let read = Call::get(&what, url.clone());
        let mut namespace: Value = match self.send(&read).await {
            Ok(reply) => reply.json()?,
            Err(error) if error.object_not_found() => return Ok(RemoveAnswer::Gone),
            Err(error) => return Err(error),
        };
        let meta = |key: &str| namespace.pointer(&format!("/metadata/{key}")).and_then(Value::as_str);
        if meta("uid") != Some(uid.as_str()) {
            return Ok(RemoveAnswer::Gone);
        }
        if meta("deletionTimestamp").is_none() {
            return Err(Error::new(what, ErrorKind::Refused).because("it is not being deleted"));
        }
        let Some(finalizers) = namespace.pointer_mut("/spec/finalizers").and_then(Value::as_array_mut) else {
            return Ok(RemoveAnswer::NothingToDo);
        };
        let is_removed = |value: &Value| value.as_str().is_some_and(|f| remove.iter().any(|r| r == f));
        let removed: Vec<String> =
            finalizers.iter().filter(|f| is_removed(f)).filter_map(|f| f.as_str().map(str::to_owned)).collect();
        if removed.is_empty() {
            return Ok(RemoveAnswer::NothingToDo);
        }
        finalizers.retain(|f| !is_removed(f));
        let call = Call::new(Verb::Update, what, format!("{url}/finalize"))
            .body("application/json", namespace.to_string().into_bytes());
        match self.send(&call).await {
            Ok(_) => Ok(RemoveAnswer::Removed(removed)),
            Err(error) if error.object_not_found() => Ok(RemoveAnswer::Gone),
            Err(error) if error.code() == Some(409) => Ok(RemoveAnswer::Changed),
            Err(error) => Err(error),
        }
    }
}

/// Returns the patch and the finalizers that it removes; none if there are none. It goes from the last position to the
/// first, so that no removal shifts the next one.
fn patch(object: &Observed, remove: &[String]) -> Option<(Value, Vec<String>)> {
    let mut operations = vec![json!({ "op": "test", "path": "/metadata/uid", "value": object.uid })];
    let mut removed = Vec::new();
    for (index, finalizer) in object.finalizers.iter().enumerate().rev() {
        if !is_never_removed(finalizer) && remove.contains(finalizer) {
            let path = format!("/metadata/finalizers/{index}");
            operations.push(json!({ "op": "test", "path": path, "value": finalizer }));
            operations.push(json!({ "op": "remove", "path": path }));
            removed.insert(0, finalizer.clone());
        }
    }
    (!removed.is_empty()).then_some((Value::Array(operations), removed))
}

/// Returns whether a test of the patch failed. The API server then answers 422 with the cause `UnexpectedServerResponse`,
/// whereas a failed validation names the object's fields (k8s.io/apiserver endpoints/handlers/patch.go).
fn is_changed(error: &Error) -> bool {
    let Some(status) = error.status() else { return false };
    match status.code {
        409 => true,
        422 if *error.kind() == ErrorKind::Invalid => {
            status.causes.iter().all(|(reason, _, _)| reason == "UnexpectedServerResponse")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use billhook_objects::wellknown::CRD_CLEANUP_FINALIZER;

    use super::*;

    #[test]
    fn a_patch_tests_the_uid_and_every_position_from_the_last_to_the_first() {
        let object: Observed = serde_json::from_value(json!({
            "name": "a", "uid": "u", "resourceVersion": "1", "deleting": true,
            "finalizers": ["a/x", "b/y", CRD_CLEANUP_FINALIZER, "c/z"],
        }))
        .unwrap();
        let remove: Vec<String> = ["c/z", "a/x", CRD_CLEANUP_FINALIZER, "d/w"].map(String::from).to_vec();
        let (patch, removed) = patch(&object, &remove).unwrap();
        assert_eq!(
            patch,
            json!([
                {"op": "test", "path": "/metadata/uid", "value": "u"},
                {"op": "test", "path": "/metadata/finalizers/3", "value": "c/z"},
                {"op": "remove", "path": "/metadata/finalizers/3"},
                {"op": "test", "path": "/metadata/finalizers/0", "value": "a/x"},
                {"op": "remove", "path": "/metadata/finalizers/0"},
            ])
        );
        assert_eq!(removed, ["a/x", "c/z"]);
        assert_eq!(super::patch(&object, &["d/w".to_owned()]), None);
    }
}
