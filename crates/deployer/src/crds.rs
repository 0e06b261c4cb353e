//! The CustomResourceDefinitions, generated from the types in [`api`](crate::api).
//!
//! `cargo xtask crds` writes the result of [`files`] to `deploy/crds`; a test compares the two.

use billhook_objects::yaml;
use kube::{CustomResourceExt as _, core::schema::StructuralSchemaRewriter};
use schemars::{generate::SchemaSettings, transform::AddNullable};
use serde_json::{Error, Value, json};

use crate::api::{ContextSpec, DeployItem, GROUP, Target, VERSION};

/// Returns the CustomResourceDefinitions as file names and texts.
///
/// # Errors
///
/// When a definition cannot be converted to JSON, which does not happen with kube's types.
pub fn files() -> Result<Vec<(String, String)>, Error> {
    let definitions = definitions()?;
    let file = |definition: &Value| {
        let plural = definition.pointer("/spec/names/plural").and_then(Value::as_str).unwrap_or_default();
        (format!("{GROUP}_{plural}.yaml"), yaml::write(definition))
    };
    Ok(definitions.iter().map(file).collect())
}

/// Returns the CustomResourceDefinitions of Context, DeployItem and Target.
///
/// # Errors
///
/// When a definition cannot be converted to JSON, which does not happen with kube's types.
pub fn definitions() -> Result<Vec<Value>, Error> {
    let mut definitions =
        vec![context()?, serde_json::to_value(DeployItem::crd())?, serde_json::to_value(Target::crd())?];
    definitions.iter_mut().for_each(tidy);
    Ok(definitions)
}

/// Returns the definition of Context, whose fields are at the top level.
fn context() -> Result<Value, Error> {
    let settings = SchemaSettings::openapi3().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let settings = settings.with_transform(AddNullable::default()).with_transform(StructuralSchemaRewriter);
    let schema = serde_json::to_value(settings.into_generator().into_root_schema_for::<ContextSpec>())?;
    Ok(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("contexts.{GROUP}") },
        "spec": {
            "group": GROUP,
            "names": { "kind": "Context", "plural": "contexts", "singular": "context", "shortNames": ["ctx"] },
            "scope": "Namespaced",
            "versions": [{
                "name": VERSION,
                "served": true,
                "storage": true,
                "schema": { "openAPIV3Schema": schema },
                "additionalPrinterColumns": [
                    { "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp" },
                ],
            }],
        },
    }))
}

/// Converts a definition to the form of Landscaper's definitions: they have no null or empty fields and no titles, and they
/// name the kind of lists.
fn tidy(definition: &mut Value) {
    match definition {
        Value::Object(fields) => {
            // The title of a schema is the name of the Rust type.
            fields.retain(|key, value| key != "nullable" && !(key == "title" && value.is_string()));
            if let (Some(Value::String(kind)), true) = (fields.get("kind"), fields.contains_key("plural")) {
                let list = format!("{kind}List");
                fields.insert("listKind".to_owned(), list.into());
            }
            fields.retain(|_, value| *value != json!([]) && *value != Value::Null);
            if let Some(Value::String(description)) = fields.get_mut("description") {
                *description = description.replace('\n', " ");
            }
            fields.values_mut().for_each(tidy);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
}

#[cfg(test)]
mod deploy;
#[cfg(test)]
mod tests;
