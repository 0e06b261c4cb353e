//! Which DeployItem an object belongs to by the labels of Landscaper's deployers.

use billhook_objects::{Manifest, ReleaseName};

use crate::Observed;

/// The suffix of the labels that Landscaper's deployers put on the objects of a DeployItem; the value is the item's name.
const LABEL: &str = ".deployer.landscaper.gardener.cloud/deployitem";

/// Whether an object and a manifest carry the label of the same DeployItem.
pub(crate) fn is_of_same_item(manifest: &Manifest, object: &Observed) -> bool {
    let value = manifest.value();
    let labels =
        value.get("metadata").and_then(|metadata| metadata.get("labels")).and_then(serde_json::Value::as_object);
    let mut own = labels.into_iter().flatten().filter(|(label, _)| label.ends_with(LABEL));
    own.any(|(label, item)| object.labels.get(label).is_some_and(|found| item.as_str() == Some(found)))
}

/// Whether an object carries labels of deployers, and none of them names the DeployItem of a release. Without a release there
/// is no such item.
pub(crate) fn is_of_other_item(object: &Observed, release: Option<&ReleaseName>) -> bool {
    let own = release.and_then(ReleaseName::deploy_item);
    let mut items =
        object.labels.iter().filter(|(label, _)| label.ends_with(LABEL)).map(|(_, item)| item.as_str()).peekable();
    items.peek().is_some() && items.all(|item| Some(item) != own)
}
