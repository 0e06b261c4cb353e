//! Compares the sandbox's schemas of Kubernetes' own kinds with the OpenAPI documents of the API server.

use std::collections::{BTreeMap, btree_map::Entry};
use std::{env, fs};

use anyhow::{Context as _, Result, ensure};
use billhook_sandbox::{Options, Sandbox, User};
use kube::Client;
use serde_json::{Map, Value};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sandbox/src/schema/kubernetes.json");

const KIND: &str = "x-kubernetes-group-version-kind";

#[test]
fn the_schemas_of_the_sandbox_are_those_of_the_api_server() -> Result<()> {
    if env::var_os("KUBEBUILDER_ASSETS").is_some() {
        // These programs may be of another version of Kubernetes.
        return Ok(());
    }
    let control_plane = super::shared()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let definitions = runtime.block_on(async {
        let real = Client::try_from(control_plane.client_config(super::User::Admin).await?)?;
        let sandbox = Sandbox::start(Options::default());
        definitions(&real, &sandbox.client(User::admin(), "")).await
    })?;
    // One definition per line, so that differences between versions can be read.
    let lines = definitions.iter().map(|(name, definition)| format!("{name:?}:{definition}")).collect::<Vec<_>>();
    let text = format!("{{\n{}\n}}\n", lines.join(",\n"));
    if env::var_os("BILLHOOK_WRITE_SCHEMAS").is_some() {
        return fs::write(FILE, text).with_context(|| format!("failed to write {FILE}"));
    }
    let found = fs::read_to_string(FILE).with_context(|| format!("failed to read {FILE}"))?;
    ensure!(found == text, "{FILE} does not match the OpenAPI documents; run `cargo xtask schemas`");
    Ok(())
}

/// Returns the definitions of the kinds that the sandbox serves, and of all that these refer to.
///
/// They are read from version 3 documents, because the version 2 document contains no defaults.
async fn definitions(real: &Client, sandbox: &Client) -> Result<BTreeMap<String, Value>> {
    let (mut known, mut wanted) = (Map::new(), Vec::new());
    let index = get(sandbox, "/openapi/v3").await?;
    for path in index["paths"].as_object().context("no index")?.keys() {
        let path = format!("/openapi/v3/{path}");
        let mut document = get(real, &path).await?;
        let Value::Object(mut schemas) = document["components"]["schemas"].take() else { continue };
        let served = get(sandbox, &path).await?;
        for served in served["components"]["schemas"].as_object().into_iter().flat_map(Map::values) {
            let name = schemas.iter().find(|(_, schema)| schema[KIND] == served[KIND]).map(|(name, _)| name.clone());
            wanted.push(name.with_context(|| format!("{path} does not define {}", served[KIND]))?);
        }
        known.append(&mut schemas);
    }
    let mut definitions = BTreeMap::new();
    while let Some(name) = wanted.pop() {
        if let Entry::Vacant(entry) = definitions.entry(name) {
            let source = known.get(entry.key()).with_context(|| format!("{} is not defined", entry.key()))?;
            entry.insert(reduce(source, &mut wanted));
        }
    }
    Ok(definitions)
}

async fn get(client: &Client, path: &str) -> Result<Value> {
    let request = http::Request::get(path).body(Vec::new())?;
    client.request(request).await.with_context(|| format!("failed to read {path}"))
}

/// Returns what the sandbox uses of a schema, and adds the names of the definitions it refers to.
fn reduce(source: &Value, wanted: &mut Vec<String>) -> Value {
    // Version 3.0 allows nothing beside a reference, so one with a description is wrapped.
    if let Some(reference) = source["$ref"].as_str().or_else(|| source["allOf"][0]["$ref"].as_str()) {
        wanted.extend(reference.rsplit('/').next().map(str::to_owned));
        return serde_json::json!({"$ref": reference});
    }
    let mut reduced = Map::new();
    for (key, value) in source.as_object().into_iter().flatten() {
        let value = match (key.as_str(), value) {
            ("properties", Value::Object(fields)) => {
                fields.iter().map(|(name, field)| (name.clone(), reduce(field, wanted))).collect()
            }
            ("items" | "additionalProperties", schema) => reduce(schema, wanted),
            ("type" | "format" | "required" | KIND, value) => value.clone(),
            ("x-kubernetes-list-map-keys" | "x-kubernetes-patch-merge-key", value) => value.clone(),
            ("x-kubernetes-list-type", value) if value != "atomic" => value.clone(),
            ("x-kubernetes-map-type", value) if value == "atomic" => value.clone(),
            ("x-kubernetes-patch-strategy", Value::String(text)) if text.starts_with("merge") => value.clone(),
            ("default", value) if !is_zero(value) => value.clone(),
            _ => continue,
        };
        reduced.insert(key.clone(), value);
    }
    reduced.into()
}

/// Returns whether a default is the zero value of its Go type, which the documents contain for every field that is
/// always encoded.
fn is_zero(default: &Value) -> bool {
    match default {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}
