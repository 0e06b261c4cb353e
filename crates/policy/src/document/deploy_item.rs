//! DeployItems: as objects, and as the `deployItems` list of the documents.

use super::{ItemTimeout, PolicyDocument, Provider, provider};
use crate::{
    dialect::POLICY_FIELDS,
    reader::{Cursor, Fields},
};

/// Reads `kind: DeployItem`.
pub(super) fn read_document(cursor: &Cursor<'_>) -> Option<PolicyDocument> {
    let mut fields = cursor.fields()?;
    fields.required("apiVersion").and_then(|version| version.one_of(&[("landscaper.gardener.cloud/v1alpha1", ())]));
    fields.ignore("kind");
    fields.ignore("status");
    let (name, namespace) = fields.required("metadata").map(|metadata| identity(&metadata)).unwrap_or_default();
    let document = fields.required("spec").and_then(|spec| {
        let mut fields = spec.fields()?;
        let document = specification(&mut fields);
        provider::warn_later(&mut fields, &["target", "context", "updateOnChangeOnly", "onDelete"]);
        fields.finish();
        document
    });
    fields.finish();
    Some(PolicyDocument { name, namespace, ..document? })
}

/// Reads the list of the documents. It stands for one release, so it has one item.
pub(super) fn read_list(list: &Cursor<'_>) -> Option<PolicyDocument> {
    let items = list.items()?;
    let [item] = &items[..] else {
        list.error(format!("expected one item, found {}", items.len()));
        return None;
    };
    let mut fields = item.fields()?;
    let name = fields.get("name").and_then(|name| name.text()).map(str::to_owned);
    let document = specification(&mut fields);
    provider::warn_later(&mut fields, &["target", "dependsOn", "labels", "updateOnChangeOnly", "onDelete"]);
    fields.finish();
    Some(PolicyDocument { name, ..document? })
}

/// The metadata belongs to the API server: only what is needed is looked at.
fn identity(metadata: &Cursor<'_>) -> (Option<String>, Option<String>) {
    let Some(mut fields) = metadata.fields() else { return (None, None) };
    let text = |cursor: Option<Cursor<'_>>| cursor.and_then(|cursor| cursor.text().map(str::to_owned));
    let name = fields.get("name");
    // `generateName` is as good where the object is only checked.
    if name.is_none() && !fields.has("generateName") {
        metadata.error("missing field \"name\"");
    }
    (text(name), text(fields.get("namespace")))
}

/// The type, the configuration and the time limit.
fn specification(fields: &mut Fields<'_>) -> Option<PolicyDocument> {
    fields.elsewhere(&POLICY_FIELDS, "write it in config");
    let types = [Provider::Manifest, Provider::Helm].map(|provider| (provider.item_type(), provider));
    let type_at = fields.required("type");
    let expected = type_at.as_ref().and_then(|cursor| cursor.one_of(&types));
    let timeout = fields.get("timeout").and_then(|cursor| item_timeout(&cursor));
    let document = fields.required("config").and_then(|config| provider::read(&config))?;
    if let (Some(at), Some(expected)) = (type_at, expected)
        && expected != document.provider
    {
        at.error_with(
            "the type is not that of the configuration",
            format!("config.apiVersion belongs to type {}", document.provider.item_type()),
        );
    }
    Some(PolicyDocument { timeout, ..document })
}

fn item_timeout(cursor: &Cursor<'_>) -> Option<ItemTimeout> {
    if cursor.node().as_str() == Some("none") {
        return Some(ItemTimeout::Unlimited);
    }
    cursor.duration().map(ItemTimeout::After)
}
