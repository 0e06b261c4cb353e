//! A minimal OpenAPI document with what kubectl reads from it.
//!
//! kubectl reads the parameters of PATCH to find out whether the server validates fields. The schemas of Kubernetes'
//! own kinds accept anything, and PATCH does not announce strategic merge patches, because kubectl would derive these
//! from the schemas. It falls back to its built-in types, with the same effect.

use http::StatusCode;
use serde_json::{Map, Value, json};

use crate::{
    kinds::{Kind, Version, body_of},
    state::State,
    status::ApiError,
};

/// An empty version 2 document in protobuf, the only form that kubectl requests. It uses the document to validate
/// `v1.List` and accepts types that are not in it.
pub(crate) const V2_PROTOBUF: &[u8] = b"\x0a\x032.0\x12\x12\x0a\x0aKubernetes\x12\x041.36\x42\x00";

/// The content type of [`V2_PROTOBUF`].
pub(crate) const V2_PROTOBUF_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// Returns whether a client requests [`V2_PROTOBUF`].
pub(crate) fn wants_v2_protobuf(path: &str, accept: &str) -> bool {
    path.trim_end_matches('/') == "/openapi/v2" && accept.contains("proto-openapi.spec.v2") && !takes_json(accept)
}

/// Answers an OpenAPI path; none if the path is another one.
pub(crate) fn answer(state: &State, path: &str, accept: &str) -> Option<Result<Value, ApiError>> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let found = match parts.as_slice() {
        ["openapi", "v2"] => json!({
            "swagger": "2.0", "info": info(), "paths": {}, "definitions": {},
        }),
        ["openapi", "v3"] => index(state),
        ["openapi", "v3", "api", version] => document(state, "", version)?,
        ["openapi", "v3", "apis", group, version] => document(state, group, version)?,
        _ => return None,
    };
    // The index is always JSON.
    if parts != ["openapi", "v3"] && !takes_json(accept) {
        let message = "only the following media types are accepted: application/json";
        return Some(Err(ApiError::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)));
    }
    Some(Ok(found))
}

fn takes_json(accept: &str) -> bool {
    let types = accept.split(',').map(|clause| clause.split(';').next().unwrap_or_default().trim());
    accept.trim().is_empty()
        || types.into_iter().any(|kind| matches!(kind, "application/json" | "application/*" | "*/*"))
}

fn info() -> Value {
    json!({"title": "Kubernetes", "version": "v1.36.3"})
}

/// Returns `api/v1` or `apis/apps/v1`.
fn prefix(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

fn index(state: &State) -> Value {
    let generation = state.kinds.generation;
    let mut paths = Map::new();
    for kind in state.kinds.iter() {
        for version in kind.versions.iter().filter(|version| version.served) {
            let prefix = prefix(kind.group(), &version.name);
            // Clients may cache a document until its URL changes.
            let url = format!("/openapi/v3/{prefix}?hash={generation:X}");
            paths.insert(prefix, json!({"serverRelativeURL": url}));
        }
    }
    json!({"paths": paths})
}

fn document(state: &State, group: &str, version: &str) -> Option<Value> {
    let mut paths = Map::new();
    let mut schemas = Map::new();
    for kind in state.kinds.iter().filter(|kind| kind.group() == group) {
        let Some(served) = kind.version(version) else { continue };
        let resource = Resource { kind, version: served };
        resource.add_paths(&mut paths);
        schemas.insert(resource.schema_name(), resource.schema());
        for body in kind.subresources(served).iter().filter_map(|subresource| body_of(subresource.name)) {
            let body = Resource { kind: &body, version: &body.versions[0] };
            schemas.insert(body.schema_name(), body.schema());
        }
    }
    let served = !paths.is_empty();
    served.then(|| json!({"openapi": "3.0.0", "info": info(), "paths": paths, "components": {"schemas": schemas}}))
}

struct Resource<'a> {
    kind: &'a Kind,
    version: &'a Version,
}

impl Resource<'_> {
    fn group_version_kind(&self) -> Value {
        json!({"group": self.kind.group(), "version": self.version.name, "kind": self.kind.kind})
    }

    /// Returns the name of the schema: `com.example.v1.Widget`.
    fn schema_name(&self) -> String {
        let group = if self.kind.group().is_empty() { "core" } else { self.kind.group() };
        let reversed: Vec<&str> = group.rsplit('.').collect();
        format!("{}.{}.{}", reversed.join("."), self.version.name, self.kind.kind)
    }

    fn schema(&self) -> Value {
        let open = || json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let mut schema = self.version.schema.source.clone().filter(Value::is_object).unwrap_or_else(open);
        schema["x-kubernetes-group-version-kind"] = json!([self.group_version_kind()]);
        schema
    }

    fn add_paths(&self, paths: &mut Map<String, Value>) {
        let namespace = if self.kind.namespaced { "namespaces/{namespace}/" } else { "" };
        let (prefix, plural) = (prefix(self.kind.group(), &self.version.name), &self.kind.id.plural);
        let collection = format!("/{prefix}/{namespace}{plural}");
        let delete = ["dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy"];
        let mut one = json!({
            "get": self.operation("get", &[]),
            "put": self.operation("put", &["dryRun", "fieldManager", "fieldValidation"]),
            "patch": self.operation("patch", &["dryRun", "fieldManager", "fieldValidation", "force"]),
            "delete": self.operation("delete", &delete),
        });
        let types = ["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"];
        let types = types.map(|kind| (kind.to_owned(), json!({"schema": {"type": "object"}})));
        one["patch"]["requestBody"] = json!({"content": Map::from_iter(types)});
        paths.insert(format!("{collection}/{{name}}"), one);
        let list = ["labelSelector", "fieldSelector", "limit", "continue", "watch"];
        let many = json!({
            "get": self.operation("list", &list),
            "post": self.operation("post", &["dryRun", "fieldManager", "fieldValidation"]),
        });
        paths.insert(collection, many);
    }

    fn operation(&self, action: &str, parameters: &[&str]) -> Value {
        let parameter = |name: &&str| json!({"name": name, "in": "query", "schema": {"type": "string"}});
        let parameters: Vec<Value> = parameters.iter().map(parameter).collect();
        json!({
            "parameters": parameters, "responses": {"200": {"description": "OK"}},
            "x-kubernetes-action": action, "x-kubernetes-group-version-kind": self.group_version_kind(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;

    fn get(path: &str, accept: &str) -> Option<Result<Value, u16>> {
        let state = State::new(Options::default());
        answer(&state, path, accept).map(|found| found.map_err(|error| error.code.as_u16()))
    }

    #[test]
    fn patch_has_the_parameters_that_kubectl_reads() {
        let index = get("/openapi/v3", "text/plain").expect("known").expect("the index");
        let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().expect("a path");
        let path = url.split('?').next().unwrap_or_default();
        let document = get(path, "application/json").expect("known").expect("a document");
        let patch = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
        let expected = json!({"group": "apps", "version": "v1", "kind": "Deployment"});
        assert_eq!(patch["x-kubernetes-group-version-kind"], expected);
        let validation = patch["parameters"].as_array().into_iter().flatten();
        assert!(validation.into_iter().any(|p| p["name"] == "fieldValidation" && p["in"] == "query"));
        let schema = &document["components"]["schemas"]["apps.v1.Deployment"];
        assert_eq!(schema["x-kubernetes-group-version-kind"], json!([expected]));
    }

    #[test]
    fn other_paths_and_formats_are_not_answered() {
        for path in ["/openapi", "/openapi/v3/apis/apps/v2", "/openapi/v3/apis/no.example.com/v1", "/apis"] {
            assert!(get(path, "").is_none(), "{path}");
        }
        let protobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
        assert_eq!(get("/openapi/v2", protobuf), Some(Err(406)));
        assert!(wants_v2_protobuf("/openapi/v2", protobuf) && !wants_v2_protobuf("/openapi/v2", "*/*"));
        assert_eq!(get("/openapi/v2", "*/*").and_then(Result::ok).expect("a document")["swagger"], "2.0");
    }
}
