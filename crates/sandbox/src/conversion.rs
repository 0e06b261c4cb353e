//! Conversion between the versions of a kind.

use std::{borrow::Cow, sync::Arc};

use serde_json::{Value, json};

use crate::{
    kinds::{Kind, Version},
    object::{Stored, meta, metadata_mut, text, texts},
    state::State,
    status::ApiError,
};

/// Returns stored objects in a version.
pub(crate) fn readable<'a>(
    state: &State,
    kind: &Kind,
    version: usize,
    objects: &'a [Arc<Stored>],
) -> Result<Cow<'a, [Arc<Stored>]>, ApiError> {
    let is_corrupt =
        |object: &Arc<Stored>| state.store.is_corrupt(kind.table(), Some(&object.namespace), Some(&object.name));
    if objects.iter().any(is_corrupt) {
        return Err(ApiError::undecodable());
    }
    if !kind.converts() {
        return Ok(Cow::Borrowed(objects));
    }
    let to = kind.api_version(&kind.versions[version].name);
    let others = objects.iter().filter(|object| object.api_version() != to);
    let mut converted = convert(state, kind, others.map(|object| object.value()).collect(), &to)?.into_iter();
    let read = |object: &Arc<Stored>| match object.api_version() == to {
        true => Arc::clone(object),
        false => converted.next().map_or_else(|| Arc::clone(object), |value| Arc::new(Stored::read(value))),
    };
    Ok(objects.iter().map(read).collect())
}

/// Converts objects to a version like `apps/v1`.
pub(crate) fn convert(state: &State, kind: &Kind, objects: Vec<Value>, to: &str) -> Result<Vec<Value>, ApiError> {
    let Some(webhook) = kind.crd.as_ref().and_then(|crd| crd.webhook.as_ref()) else {
        let convert = |mut object: Value| {
            kind.convert(&mut object, to);
            object
        };
        return Ok(objects.into_iter().map(convert).collect());
    };
    let Some(first) = objects.iter().find(|object| object["apiVersion"] != to) else { return Ok(objects) };
    let from = format!("{}, Kind={}", text(first, "apiVersion"), text(first, "kind"));
    let failed = |why: String| ApiError::unnamed(format!("conversion webhook for {from} {why}"));
    let known = texts(&webhook["conversionReviewVersions"]);
    let version = known.iter().find(|version| matches!(version.as_str(), "v1" | "v1beta1"));
    let api_version = format!("apiextensions.k8s.io/{}", version.map_or("v1", String::as_str));
    let review = json!({
        "kind": "ConversionReview", "apiVersion": api_version,
        "request": {"uid": "", "desiredAPIVersion": to, "objects": objects},
    });
    let reply = state.ask(&webhook["clientConfig"], None, &review)?;
    let reply = reply.map_err(|why| failed(format!("failed: {why}")))?;
    let answers = answers(&reply.review, &reply.uid, &api_version).map_err(|why| failed(format!("failed: {why}")))?;
    if answers.len() != objects.len() {
        return Err(failed(format!("returned {} objects, expected {}", answers.len(), objects.len())));
    }
    let target = kind.versions.iter().find(|version| kind.api_version(&version.name) == to);
    let checked = objects.iter().zip(answers).map(|(object, answer)| checked(object, answer, to, target));
    checked.collect::<Result<_, _>>().map_err(failed)
}

/// Returns the objects in an answer, as `getConvertedObjectsFromResponse` of Kubernetes does.
fn answers(review: &Value, uid: &str, api_version: &str) -> Result<Vec<Value>, String> {
    let (response, strict) = (&review["response"], api_version.ends_with("/v1"));
    if strict && (review["kind"] != "ConversionReview" || review["apiVersion"] != api_version) {
        let found = format!("{}, Kind={}", text(review, "apiVersion"), text(review, "kind"));
        return Err(format!("expected webhook response of {api_version}, Kind=ConversionReview, got {found}"));
    }
    if response.is_null() {
        return Err("no response provided".to_owned());
    }
    if strict && response["uid"] != uid {
        return Err(format!("expected response.uid={uid:?}, got {:?}", text(response, "uid")));
    }
    let result = &response["result"];
    match (text(result, "status"), text(result, "message")) {
        ("Success", _) => Ok(response["convertedObjects"].as_array().cloned().unwrap_or_default()),
        (status, "") => Err(format!("response.result.status was '{status}', not 'Success'")),
        (_, message) => Err(message.to_owned()),
    }
}

/// Checks a converted object and restores its metadata: a webhook may only change labels and annotations.
fn checked(object: &Value, mut converted: Value, to: &str, target: Option<&Version>) -> Result<Value, String> {
    if text(&converted, "apiVersion") != to {
        let found = text(&converted, "apiVersion");
        let why = format!("invalid groupVersion (expected {to}, received {found})");
        return Err(format!("returned invalid object at index 0: {why}"));
    }
    if converted["kind"] != object["kind"] {
        let (expected, found) = (text(object, "kind"), text(&converted, "kind"));
        return Err(format!(
            "returned invalid object at index 0: invalid kind (expected {expected}, received {found})"
        ));
    }
    for (field, what) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let (expected, found) = (meta(object, field), meta(&converted, field));
        if expected != found {
            return Err(format!("returned invalid object: must have the same {what}: {expected} != {found}"));
        }
    }
    let mut metadata = object["metadata"].clone();
    for field in ["labels", "annotations"] {
        metadata[field] = metadata_mut(&mut converted).remove(field).unwrap_or_default();
    }
    if let Some(fields) = metadata.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    converted["metadata"] = metadata;
    if let Some(version) = target {
        version.schema.prune(&mut converted);
    }
    Ok(converted)
}
