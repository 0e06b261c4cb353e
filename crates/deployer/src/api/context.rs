//! Contexts. Their fields are at the top level of the object, which kube's derive macro does not support.

use std::{borrow::Cow, collections::BTreeMap};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::schema::{ObjectReference, any_object, anything, filled};

/// A Context.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Context {
    /// The metadata.
    pub metadata: ObjectMeta,
    /// The fields.
    #[serde(flatten)]
    pub spec: ContextSpec,
}

/// A Context holds settings that DeployItems of its namespace share, such as the credentials of registries.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContextSpec {
    /// Secrets of type `kubernetes.io/dockerconfigjson` in the same namespace, with the credentials of registries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub registry_pull_secrets: Vec<LocalObjectReference>,
    /// Further configurations by name; `helmChartRepoCredentials` holds the credentials of chart repositories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub configurations: Option<Map<String, Value>>,
    /// The repository of component descriptors. Only Landscaper itself uses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "anything")]
    pub repository_context: Option<Value>,
    /// The ConfigMap with an OCM configuration. Only Landscaper itself uses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ocm_config: Option<LocalObjectReference>,
    /// The name of a ComponentVersionOverwrites object. Only Landscaper itself uses it.
    #[serde(default, deserialize_with = "filled", skip_serializing_if = "Option::is_none")]
    pub component_version_overwrites: Option<String>,
    /// The keys and certificates that verify signatures of components. Only Landscaper itself uses it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub verification_signatures: BTreeMap<String, VerificationSignature>,
}

/// The key or certificate that verifies a signature.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VerificationSignature {
    /// A Secret with a public key in PEM format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_key_secret_reference: Option<SecretKeyReference>,
    /// A Secret with certificates in PEM format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_certificate_secret_reference: Option<SecretKeyReference>,
}

/// A key of a Secret in any namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretKeyReference {
    /// The Secret.
    #[serde(flatten)]
    pub secret: ObjectReference,
    /// The key that holds the data.
    #[serde(default, deserialize_with = "filled", skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// The name of an object in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalObjectReference {
    /// The name.
    #[serde(default)]
    pub name: String,
}

impl JsonSchema for LocalObjectReference {
    fn schema_name() -> Cow<'static, str> {
        "LocalObjectReference".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "properties": { "name": { "description": "The name.", "type": "string", "default": "" } },
            "x-kubernetes-map-type": "atomic",
        })
    }
}
