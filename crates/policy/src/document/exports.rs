//! `exports` and `exportsFromManifests`: values read from the cluster after the deployment.

use std::collections::BTreeMap;

use billhook_objects::ApiVersion;

use super::reference::typed_reference;
use crate::{Export, FromObjectReference, Provider, reader::Cursor};

/// Reads the exports of a configuration, whose keys must be unique across all of its lists.
pub(super) struct Exports {
    provider: Option<Provider>,
    /// The path of the export that uses each key.
    keys: BTreeMap<String, String>,
}

impl Exports {
    /// Starts a configuration for this deployer; `None` if the deployer is unknown.
    pub(super) fn new(provider: Option<Provider>) -> Self {
        Self { provider, keys: BTreeMap::new() }
    }

    /// Reads `{exports: […]}`.
    pub(super) fn read_nested(&mut self, cursor: &Cursor<'_>) -> Vec<Export> {
        let Some(mut fields) = cursor.fields() else { return Vec::new() };
        let list = fields.get("exports").map(|list| self.read(&list)).unwrap_or_default();
        fields.finish();
        list
    }

    /// Reads a list of exports.
    pub(super) fn read(&mut self, list: &Cursor<'_>) -> Vec<Export> {
        list.items().unwrap_or_default().filter_map(|item| self.export(&item)).collect()
    }

    fn export(&mut self, item: &Cursor<'_>) -> Option<Export> {
        let mut fields = item.fields()?;
        let key_at = fields.required("key");
        let key = key_at.as_ref().and_then(|cursor| cursor.text());
        if let (Some(at), Some(key)) = (key_at, key)
            && let Some(first) = self.keys.insert(key.to_owned(), item.path().to_owned())
        {
            at.error_with(format!("the key {key:?} is already used by {first}"), "give each export its own key");
        }
        let json_path = fields.required("jsonPath").and_then(|cursor| cursor.json_path());
        // The helm deployer can also export values of the chart.
        let from_resource_at = match self.provider {
            Some(Provider::Manifest) => fields.required("fromResource"),
            _ => fields.get("fromResource"),
        };
        let reference_at = fields.get("fromObjectRef");
        let from_object_ref = reference_at.as_ref().and_then(reference);
        if let (Some(at), None, Some(Provider::Helm)) = (&reference_at, &from_resource_at, self.provider) {
            at.warn("fromObjectRef has no effect without fromResource", None);
        }
        let from_object_ref = from_object_ref.filter(|_| from_resource_at.is_some());
        let from_resource = from_resource_at.and_then(|cursor| typed_reference(&cursor));
        let target_name = fields.filled_text("targetName");
        fields.finish();
        Some(Export { key: key?.to_owned(), json_path: json_path?, from_resource, from_object_ref, target_name })
    }
}

fn reference(cursor: &Cursor<'_>) -> Option<FromObjectReference> {
    let mut fields = cursor.fields()?;
    let api_version = match fields.filled("apiVersion") {
        Some(cursor) => cursor.api_version(),
        None => Some(ApiVersion::new("", "v1")),
    };
    let kind = fields.required("kind").and_then(|cursor| cursor.text()).map(str::to_owned);
    let json_path = fields.required("jsonPath").and_then(|cursor| cursor.json_path());
    fields.finish();
    Some(FromObjectReference { api_version: api_version?, kind: kind?, json_path: json_path? })
}
