//! DeployItems: as objects, and as the `deployItems` list of the Landscaper documents.

use super::{helm::ChartFields, provider};
use crate::{
    Diagnostics, ItemTimeout, Policy, PolicyDocument, Provider, ProviderConfiguration,
    dialect::POLICY_FIELDS,
    reader::{Cursor, Fields},
};

/// The fields of the `spec` that only the controller uses.
const CONTROLLER_ONLY: [&str; 4] = ["target", "context", "updateOnChangeOnly", "onDelete"];

/// Reads `kind: DeployItem`.
pub(super) fn read_document(cursor: &Cursor<'_>) -> Option<PolicyDocument> {
    let mut fields = cursor.fields()?;
    fields.required("apiVersion").and_then(|version| version.one_of(&[("landscaper.gardener.cloud/v1alpha1", ())]));
    fields.ignore("kind");
    fields.ignore("status");
    let (name, namespace) = fields.required("metadata").map(|metadata| identity(&metadata)).unwrap_or_default();
    let specification = fields.required("spec").and_then(|spec| {
        let mut fields = spec.fields()?;
        let specification = specification(&mut fields, ChartFields::Required);
        CONTROLLER_ONLY.iter().for_each(|name| fields.ignore(name));
        fields.finish();
        specification
    });
    fields.finish();
    let (configuration, timeout) = specification?;
    Some(PolicyDocument { name, namespace, timeout, configuration, warnings: Diagnostics::default() })
}

/// Reads the policy from the list of the Landscaper documents. A policy belongs to one release, so the list has one item.
pub(super) fn read_list(list: &Cursor<'_>) -> Option<Policy> {
    let mut items = list.items()?;
    if items.len() != 1 {
        list.error(format!("expected one item, found {}", items.len()));
        return None;
    }
    let item = items.next()?;
    let mut fields = item.fields()?;
    ["name", "labels", "dependsOn"].iter().chain(&CONTROLLER_ONLY).for_each(|name| fields.ignore(name));
    let specification = specification(&mut fields, ChartFields::Optional);
    fields.finish();
    specification.map(|(configuration, _)| configuration.policy)
}

/// Warns of the fields that only the controller uses.
pub(super) fn warn_controller_only(item: &Cursor<'_>) {
    let Some(mut fields) = item.child("spec").and_then(|spec| spec.fields()) else { return };
    provider::warn_fields(&mut fields, &CONTROLLER_ONLY);
    if let Some(config) = fields.get("config") {
        provider::warn_controller_only(&config);
    }
}

/// Returns the name and namespace. Other metadata is not checked, because the API server adds fields to it.
fn identity(metadata: &Cursor<'_>) -> (Option<String>, Option<String>) {
    let Some(mut fields) = metadata.fields() else { return (None, None) };
    let text = |cursor: Option<Cursor<'_>>| cursor.and_then(|cursor| cursor.text().map(str::to_owned));
    let name = fields.get("name");
    // `generateName` is sufficient when the object is only checked.
    if name.is_none() && !fields.has("generateName") {
        metadata.error("missing field \"name\"");
    }
    (text(name), text(fields.get("namespace")))
}

/// Reads the type, the configuration and the time limit.
fn specification(
    fields: &mut Fields<'_>,
    chart_fields: ChartFields,
) -> Option<(ProviderConfiguration, Option<ItemTimeout>)> {
    fields.elsewhere(&POLICY_FIELDS, "move it into config");
    let types = [Provider::Manifest, Provider::Helm].map(|provider| (provider.item_type(), provider));
    let type_at = fields.required("type");
    let expected = type_at.as_ref().and_then(|cursor| cursor.one_of(&types));
    let timeout = fields.get("timeout").map(|cursor| cursor.duration_or_none());
    let timeout = timeout.map(|limit| limit.map_or(ItemTimeout::Unlimited, ItemTimeout::After));
    let configuration = fields.required("config").and_then(|config| provider::read(&config, chart_fields))?;
    if let (Some(at), Some(expected)) = (type_at, expected)
        && expected != configuration.provider
    {
        at.error_with(
            "the type does not match the configuration",
            format!("config.apiVersion belongs to type {}", configuration.provider.item_type()),
        );
    }
    Some((configuration, timeout))
}
