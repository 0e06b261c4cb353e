//! Routing of requests.

use std::sync::Arc;

use http::StatusCode;
use serde_json::Value;

use crate::{
    authorization,
    call::{Call, ResourcePath, Target, Verb},
    discovery,
    kinds::{Kind, body_of, is_known_subresource},
    openapi, reviews,
    selector::Selector,
    state::State,
    status::ApiError,
    verbs::{self, DeleteOptions, Form, Watch, Writer, Written},
};

/// The answer to a request.
#[derive(Debug)]
pub(crate) enum Answer {
    /// A complete body.
    Body { status: StatusCode, content_type: &'static str, body: String, warnings: Vec<String> },
    /// A stream of events.
    Watch(Box<Watch>),
}

impl Answer {
    fn json(status: StatusCode, body: String) -> Self {
        Self::Body { status, content_type: "application/json", body, warnings: Vec::new() }
    }
}

/// Answers a request.
pub(crate) fn answer(state: &mut State, call: &Call) -> Result<Answer, ApiError> {
    if state.options.rbac {
        authorization::authorize(state, call)?;
    }
    if discovery::answers_ok(state, &call.target) {
        let (status, body) = (StatusCode::OK, "ok".to_owned());
        return Ok(Answer::Body { status, content_type: "text/plain", body, warnings: Vec::new() });
    }
    match &call.target {
        Target::Path(path) => of_path(state, call, path),
        Target::Resource(path) => of_resource(state, call, path),
    }
}

/// Answers a request whose path is not a resource: probes, discovery, OpenAPI.
fn of_path(state: &State, call: &Call, path: &str) -> Result<Answer, ApiError> {
    if call.verb != Verb::Get {
        return Err(ApiError::method_not_allowed());
    }
    if matches!(path, "/healthz" | "/livez" | "/readyz") {
        let (status, body) = (StatusCode::OK, "ok".to_owned());
        return Ok(Answer::Body { status, content_type: "text/plain; charset=utf-8", body, warnings: Vec::new() });
    }
    if let Some(found) = discovery::answer(state, path, call.accept()) {
        let (body, content_type) = found?;
        let body = body.to_string();
        return Ok(Answer::Body { status: StatusCode::OK, content_type, body, warnings: Vec::new() });
    }
    if openapi::wants_v2_protobuf(path, call.accept()) {
        // All bytes are ASCII.
        let body = String::from_utf8_lossy(openapi::V2_PROTOBUF).into_owned();
        let content_type = openapi::V2_PROTOBUF_TYPE;
        return Ok(Answer::Body { status: StatusCode::OK, content_type, body, warnings: Vec::new() });
    }
    match openapi::answer(state, path, call.accept()) {
        Some(found) => Ok(Answer::json(StatusCode::OK, found?.to_string())),
        None => Err(ApiError::no_such_path()),
    }
}

fn of_resource(state: &mut State, call: &Call, path: &ResourcePath) -> Result<Answer, ApiError> {
    let Some(kind) = state.kinds.find(&path.group, &path.plural).cloned() else {
        return Err(unknown(state, path));
    };
    let version = kind.versions.iter().position(|version| version.served && version.name == path.version);
    let version = version.ok_or_else(|| {
        // For a version that is not served, the API server reports an unknown path for CRDs and an unknown resource for
        // its own groups.
        if kind.crd.is_some() { ApiError::no_such_path() } else { ApiError::no_such_resource() }
    })?;
    check_content_type(call)?;
    // Rejects a representation that is not supported before the request takes effect.
    Form::of(call.accept())?;
    let scope_fits = match (kind.namespaced, &path.namespace, &path.name) {
        (true, None, Some(_)) | (false, Some(_), _) => false,
        (true, _, _) | (false, None, _) => true,
    };
    if !scope_fits {
        return Err(if kind.crd.is_some() { ApiError::no_such_path() } else { ApiError::no_such_resource() });
    }
    if kind.review {
        // Exactly the namespaced reviews have a namespace in their path.
        if path.name.is_some() || path.namespace.is_some() != kind.namespaced {
            return Err(ApiError::no_such_resource());
        }
        if call.verb != Verb::Create {
            return Err(ApiError::method_not_allowed());
        }
        let answer = reviews::review(state, call, &kind, call.json()?)?;
        return Ok(Answer::json(StatusCode::CREATED, answer.to_string()));
    }
    match (&path.name, path.subresource.as_deref()) {
        (Some(name), Some(subresource)) => of_subresource(state, call, path, &kind, version, name, subresource),
        (Some(name), None) => of_object(state, call, path, &kind, version, name),
        (None, _) => of_collection(state, call, path, &kind, version),
    }
}

/// Returns the error for a resource that is not served: its backend does not answer, or it does not exist.
fn unknown(state: &State, path: &ResourcePath) -> ApiError {
    let dead = discovery::dead_group_versions(state);
    if dead.iter().any(|(group, version)| *group == path.group && *version == path.version) {
        return discovery::dead_backend();
    }
    let known =
        path.group.is_empty() || state.kinds.iter().any(|kind| kind.group() == path.group && kind.crd.is_none());
    if known { ApiError::no_such_resource() } else { ApiError::no_such_path() }
}

/// Rejects bodies of unknown types; patches have their own types.
fn check_content_type(call: &Call) -> Result<(), ApiError> {
    const ACCEPTED: [&str; 3] = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
    let given = call.content_type();
    let writes = matches!(call.verb, Verb::Create | Verb::Update);
    if !writes || given.is_empty() || ACCEPTED.contains(&given) {
        return Ok(());
    }
    Err(ApiError::unsupported_media_type(&ACCEPTED))
}

fn selector(call: &Call, kind: &Kind, version: usize) -> Result<Selector, ApiError> {
    let text = |name: &str| call.param(name).unwrap_or_default();
    let selector = Selector::parse(text("labelSelector"), text("fieldSelector"), &kind.versions[version].selectable)?;
    Ok(selector.rename_fields(|field| kind.stored_field(field)))
}

fn of_collection(
    state: &mut State,
    call: &Call,
    path: &ResourcePath,
    kind: &Arc<Kind>,
    version: usize,
) -> Result<Answer, ApiError> {
    let namespace = path.namespace.as_deref();
    let everywhere = kind.namespaced && namespace.is_none();
    match call.verb {
        Verb::List => {
            let selector = selector(call, kind, version)?;
            let body = verbs::list(state, kind, version, namespace, &selector, call)?;
            Ok(Answer::json(StatusCode::OK, body))
        }
        Verb::Watch => {
            let selector = selector(call, kind, version)?;
            let watch = Watch::new(state, kind, version, namespace, selector, call)?;
            Ok(Answer::Watch(Box::new(watch)))
        }
        Verb::Create if !everywhere => {
            let writer = Writer::of(call, kind, version, None)?;
            let written = verbs::create(state, &writer, namespace.unwrap_or_default(), call.json()?)?;
            written_answer(call, written)
        }
        Verb::DeleteCollection if !everywhere && kind.allows_delete_collection() => {
            let mut writer = Writer::of(call, kind, version, None)?;
            let selector = selector(call, kind, version)?;
            let (options, dry_run) = DeleteOptions::of(call)?;
            writer.dry_run = dry_run;
            let body = verbs::delete_collection(state, &writer, namespace, &selector, &options)?;
            Ok(Answer::json(StatusCode::OK, body.to_string()))
        }
        _ => Err(ApiError::method_not_allowed()),
    }
}

fn of_object(
    state: &mut State,
    call: &Call,
    path: &ResourcePath,
    kind: &Arc<Kind>,
    version: usize,
    name: &str,
) -> Result<Answer, ApiError> {
    let namespace = path.namespace.as_deref().unwrap_or_default();
    match call.verb {
        Verb::Get => {
            if call.accept().contains("as=PartialObjectMetadataList") {
                let message = format!(
                    "you requested PartialObjectMetadataList, but the requested object is not a list (*core.{})",
                    kind.kind
                );
                return Err(ApiError::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message));
            }
            let body = verbs::get(state, kind, version, namespace, name, call)?;
            Ok(Answer::json(StatusCode::OK, body))
        }
        Verb::Watch => {
            let selector = Selector::parse("", &format!("metadata.name={name}"), &[])?;
            let watch = Watch::new(state, kind, version, path.namespace.as_deref(), selector, call)?;
            Ok(Answer::Watch(Box::new(watch)))
        }
        Verb::Update => {
            let writer = Writer::of(call, kind, version, None)?;
            let written = verbs::update(state, &writer, namespace, name, call.json()?)?;
            written_answer(call, written)
        }
        Verb::Patch => {
            let writer = Writer::of(call, kind, version, None)?;
            let written = verbs::patch(state, &writer, namespace, name, call)?;
            written_answer(call, written)
        }
        Verb::Delete => {
            let mut writer = Writer::of(call, kind, version, None)?;
            let (options, dry_run) = DeleteOptions::of(call)?;
            writer.dry_run = dry_run;
            let deleted = verbs::delete(state, &writer, namespace, name, &options)?;
            let accepted = options.cascades && !deleted.gone;
            let status = if accepted { StatusCode::ACCEPTED } else { StatusCode::OK };
            Ok(Answer::json(status, verbs::deleted(kind, deleted).to_string()))
        }
        _ => Err(ApiError::method_not_allowed()),
    }
}

fn of_subresource(
    state: &mut State,
    call: &Call,
    path: &ResourcePath,
    kind: &Arc<Kind>,
    version: usize,
    name: &str,
    subresource: &str,
) -> Result<Answer, ApiError> {
    let namespace = path.namespace.as_deref().unwrap_or_default();
    if !kind.serves_subresource(&kind.versions[version], subresource) {
        return Err(if kind.crd.is_some() {
            ApiError::not_found(&kind.resource(), name)
        } else if is_known_subresource(subresource) {
            ApiError::not_modelled(format!("the subresource {subresource} of {}", kind.resource()))
        } else {
            ApiError::no_such_resource()
        });
    }
    let writer = || Writer::of(call, kind, version, Some(subresource));
    match (call.verb, subresource) {
        (Verb::Create, "binding" | "eviction" | "token") => {
            let body = of_body(state, call, &writer()?, namespace, name, subresource)?;
            Ok(Answer::json(StatusCode::CREATED, body.to_string()))
        }
        (Verb::Get, "scale") => {
            let body = verbs::scale(state, &writer()?, namespace, name)?;
            Ok(Answer::json(StatusCode::OK, body.to_string()))
        }
        (Verb::Get, "status" | "approval") => {
            let body = verbs::get(state, kind, version, namespace, name, call)?;
            Ok(Answer::json(StatusCode::OK, body))
        }
        (Verb::Update, "scale") => {
            let written = verbs::update_scale(state, &writer()?, namespace, name, call.json()?)?;
            written_answer(call, written)
        }
        (Verb::Update, "status" | "approval" | "finalize") => {
            let written = verbs::update(state, &writer()?, namespace, name, call.json()?)?;
            written_answer(call, written)
        }
        (Verb::Patch, "status" | "scale" | "approval") => {
            let written = verbs::patch(state, &writer()?, namespace, name, call)?;
            written_answer(call, written)
        }
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// Answers a request to a subresource that only creates, and whose bodies are of its own kind.
fn of_body(
    state: &mut State,
    call: &Call,
    writer: &Writer,
    namespace: &str,
    name: &str,
    subresource: &str,
) -> Result<Value, ApiError> {
    let body_kind = body_of(subresource).ok_or_else(ApiError::method_not_allowed)?;
    let mut body = call.json()?;
    verbs::read_body(&Writer::of(call, &body_kind, 0, None)?, &mut body)?;
    match subresource {
        "token" => return verbs::request_token(state, writer, &body_kind, namespace, name, body),
        "binding" => verbs::bind(state, writer, namespace, name, &body)?,
        _ => verbs::evict(state, writer, namespace, name, &body)?,
    }
    Ok(serde_json::json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}))
}

fn written_answer(call: &Call, written: Written) -> Result<Answer, ApiError> {
    let status = if written.created { StatusCode::CREATED } else { StatusCode::OK };
    let body = match Form::of(call.accept())? {
        Form::Whole | Form::Table => written.object,
        Form::Metadata => metadata(&written.object),
    };
    let (body, warnings) = (body.to_string(), written.warnings);
    Ok(Answer::Body { status, content_type: "application/json", body, warnings })
}

fn metadata(object: &Value) -> Value {
    serde_json::json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"],
    })
}
