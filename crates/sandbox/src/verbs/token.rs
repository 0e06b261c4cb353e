//! The subresource `token` of ServiceAccounts.
//!
//! The tokens look like Kubernetes' (JSON Web Tokens), but their signature proves nothing: the server knows the tokens that
//! it has issued.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{Writer, current};
use crate::{
    admission,
    kinds::{Kind, ResourceId},
    object::{meta, metadata_mut, text, texts},
    state::State,
    status::{ApiError, Cause, Qualified},
    tokens::{AUDIENCE, IssuedToken},
};

const DEFAULT_SECONDS: i64 = 3600;
const LEAST_SECONDS: i64 = 600;
const MOST_SECONDS: i64 = 1 << 32;

/// Issues a token for a service account and returns the request with its status.
pub(crate) fn request_token(
    state: &mut State,
    writer: &Writer,
    body_kind: &Kind,
    namespace: &str,
    name: &str,
    mut request: Value,
) -> Result<Value, ApiError> {
    let invalid = |name: &str, field: &str, value: Value, detail: &str| {
        ApiError::invalid(&body_kind.qualified(), name, vec![Cause::invalid(field, &value, detail)])
    };
    for (field, url) in [("name", name), ("namespace", namespace)] {
        let given = meta(&request, field);
        if !given.is_empty() && given != url {
            let what = if field == "name" { "name" } else { "namespace" };
            let detail = format!("must match the service account {what} if specified");
            return Err(invalid(name, &format!("metadata.{field}"), given.into(), &detail));
        }
    }
    let account = current(state, writer, namespace, name)?;
    let (given, uid) = (meta(&request, "uid"), meta(&account, "uid"));
    if !given.is_empty() && given != uid {
        let why =
            format!("the UID in the token request ({given}) does not match the UID of the service account ({uid})");
        return Err(ApiError::conflict(&body_kind.qualified(), name, &why));
    }
    let metadata = metadata_mut(&mut request);
    for (field, value) in [("name", name), ("namespace", namespace), ("uid", uid)] {
        metadata.insert(field.to_owned(), value.into());
    }
    metadata.insert("creationTimestamp".to_owned(), state.time().into());
    let spec = &mut request["spec"];
    if texts(&spec["audiences"]).is_empty() {
        spec["audiences"] = json!([AUDIENCE]);
    }
    let seconds = spec["expirationSeconds"].as_i64().unwrap_or(DEFAULT_SECONDS);
    spec["expirationSeconds"] = seconds.into();
    if spec["boundObjectRef"].is_null() {
        spec["boundObjectRef"] = Value::Null;
    }
    let range = match seconds {
        ..LEAST_SECONDS => Some("may not specify a duration less than 10 minutes"),
        seconds if seconds > MOST_SECONDS => Some("may not specify a duration larger than 2^32 seconds"),
        _ => None,
    };
    if let Some(detail) = range {
        return Err(invalid("", "spec.expirationSeconds", seconds.into(), detail));
    }
    let options = writer.options("CreateOptions");
    admission::admit(state, &writer.of_body(namespace, name, &request, &options))?;
    let bound = bound(state, &request["spec"]["boundObjectRef"], namespace, name)?;
    let now = state.clock.now();
    let expires = now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(now);
    let issued = IssuedToken {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        bound: bound.as_ref().map(|object| meta(object, "uid").to_owned()),
        audiences: texts(&request["spec"]["audiences"]),
        expires,
    };
    let token = write(state, &issued, bound.as_ref(), now);
    state.tokens.insert(token.clone(), issued);
    let expires = expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    request["status"] = json!({"token": token, "expirationTimestamp": expires});
    Ok(request)
}

/// Returns the object without which a token is not valid.
fn bound(state: &State, reference: &Value, namespace: &str, account: &str) -> Result<Option<Value>, ApiError> {
    if reference.is_null() {
        return Ok(None);
    }
    let (api_version, kind, name) = (text(reference, "apiVersion"), text(reference, "kind"), text(reference, "name"));
    let (plural, namespace) = match (api_version, kind) {
        ("v1", "Pod") => ("pods", namespace),
        ("v1", "Secret") => ("secrets", namespace),
        ("v1", "Node") => ("nodes", ""),
        _ => {
            let version = if api_version.contains('/') { api_version.to_owned() } else { format!("/{api_version}") };
            let why = format!("cannot bind token to object of type {version}, Kind={kind}");
            return Err(ApiError::bad_request(why));
        }
    };
    let found = state.store.get(&ResourceId::new("", plural), namespace, name);
    let found = found.ok_or_else(|| ApiError::not_found(&Qualified::new("", plural), name))?.value();
    if plural == "pods" && text(&found["spec"], "serviceAccountName") != account {
        let why = format!(
            "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
        );
        return Err(ApiError::bad_request(why));
    }
    let uid = text(reference, "uid");
    if !uid.is_empty() && uid != meta(&found, "uid") {
        let why = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        return Err(ApiError::conflict(&Qualified::new("", kind), name, &why));
    }
    Ok(Some(found))
}

/// Returns a token with the claims of Kubernetes' tokens.
fn write(state: &mut State, issued: &IssuedToken, bound: Option<&Value>, now: Timestamp) -> String {
    let of = |name: &str, uid: &str| json!({"name": name, "uid": uid});
    let mut about = json!({"namespace": issued.namespace, "serviceaccount": of(&issued.name, &issued.uid)});
    if let Some(object) = bound {
        about[text(object, "kind").to_lowercase()] = of(meta(object, "name"), meta(object, "uid"));
    }
    let claims = json!({
        "aud": issued.audiences, "iss": AUDIENCE, "jti": state.ids.uid(), "kubernetes.io": about,
        "iat": now.as_second(), "nbf": now.as_second(), "exp": issued.expires.as_second(),
        "sub": format!("system:serviceaccount:{}:{}", issued.namespace, issued.name),
    });
    let part = |text: &[u8]| URL_SAFE_NO_PAD.encode(text);
    let head = json!({"alg": "RS256", "kid": "sandbox"}).to_string();
    let signature = state.ids.uid();
    format!("{}.{}.{}", part(head.as_bytes()), part(claims.to_string().as_bytes()), part(signature.as_bytes()))
}
