//! The objects of an item, as input for the plan.

use std::collections::BTreeMap;

use billhook_objects::{Manifest, yaml::Document};
use billhook_plan::Directives;
use billhook_policy::{ManifestPolicy, ProviderConfiguration};

use crate::error::{INVALID_MANIFESTS, ItemFailure};

/// The label that Landscaper's manifest deployer sets on objects.
const LABEL: &str = "manifest.deployer.landscaper.gardener.cloud/deployitem";

/// The objects of an item.
#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) manifests: Vec<Manifest>,
    /// The settings of individual manifests, by their index.
    pub(crate) directives: BTreeMap<usize, Directives>,
    /// The namespace of objects whose manifests do not name one.
    pub(crate) namespace: Option<String>,
}

impl Objects {
    /// Reads the manifests in the configuration of the item `name`. A `List` is replaced by its items.
    pub(crate) fn from_configuration(name: &str, configuration: &ProviderConfiguration) -> Result<Self, ItemFailure> {
        let mut objects = Self::default();
        let mut problems = Vec::new();
        for (index, entry) in configuration.manifests.iter().enumerate() {
            if entry.policy == ManifestPolicy::Ignore {
                continue;
            }
            let path = format!("config.manifests[{index}]");
            let document = Document { value: entry.manifest.clone(), line: index };
            let manifests = match Manifest::from_document(document, &path.as_str().into()) {
                Ok(manifests) => manifests,
                Err(errors) => {
                    problems.extend(errors.iter().map(|error| format!("{path}: {}", error.problem)));
                    continue;
                }
            };
            let directives = Directives::of(entry);
            for manifest in manifests {
                objects.push(manifest, directives.clone());
            }
        }
        if !problems.is_empty() {
            return Err(ItemFailure::configuration(INVALID_MANIFESTS, problems.join("\n")));
        }
        objects.set_label(LABEL, name);
        Ok(objects)
    }

    /// Adds an object.
    pub(crate) fn push(&mut self, manifest: Manifest, directives: Directives) {
        if directives != Directives::default() {
            self.directives.insert(self.manifests.len(), directives);
        }
        self.manifests.push(manifest);
    }

    /// Sets the label with which Landscaper's deployers mark the objects of the item `name`. As in Landscaper, the objects
    /// of an item whose name does not fit into a label have none.
    pub(crate) fn set_label(&mut self, label: &str, name: &str) {
        if name.len() <= 63 {
            self.manifests.iter_mut().for_each(|manifest| manifest.set_label(label, name));
        }
    }
}
