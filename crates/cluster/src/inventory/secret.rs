//! The Secrets themselves: what is read of them, and what is written.

use std::collections::BTreeMap;

use billhook_objects::{GroupKind, ReleaseName, Uid};
use billhook_plan::{Phase, Resource};
use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ReleaseInfo, Token, format::Head};
use crate::error::{Error, ErrorKind};

/// The type of the Secrets.
pub(super) const TYPE: &str = "billhook.dev/inventory";
/// The label with the release's name.
pub(super) const RELEASE: &str = "billhook.dev/inventory";
/// The label that tells heads from parts.
pub(super) const PART: &str = "billhook.dev/part";
pub(super) const PHASE: &str = "billhook.dev/phase";
pub(super) const OBJECTS: &str = "billhook.dev/objects";
pub(super) const REVISION: &str = "billhook.dev/revision";
pub(super) const UPDATED: &str = "billhook.dev/updated";
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Secret {
    pub(super) metadata: SecretMeta,
    pub(super) data: Option<BTreeMap<String, ByteString>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SecretMeta {
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    pub(super) uid: Uid,
    pub(super) resource_version: String,
    pub(super) labels: Option<BTreeMap<String, String>>,
    pub(super) annotations: Option<BTreeMap<String, String>>,
    pub(super) managed_fields: Option<Vec<ManagedFields>>,
    pub(super) creation_timestamp: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct ManagedFields {
    pub(super) time: Option<String>,
}

#[derive(Serialize)]
pub(super) struct NewSecret<'a> {
    #[serde(rename = "apiVersion")]
    pub(super) api_version: &'static str,
    pub(super) kind: &'static str,
    #[serde(rename = "type")]
    pub(super) kind_of_secret: &'static str,
    pub(super) metadata: Value,
    pub(super) data: BTreeMap<&'a str, Option<ByteString>>,
}

impl Secret {
    pub(super) fn take(&mut self, key: &str) -> Option<Vec<u8>> {
        self.data.as_mut()?.remove(key).map(|bytes| bytes.0)
    }
}

pub(super) fn secrets() -> Resource {
    Resource { kind: GroupKind::new("", "Secret"), version: "v1".into(), plural: "secrets".into(), namespaced: true }
}

impl Token {
    pub(super) fn new(meta: SecretMeta, head: Head) -> Self {
        Self { uid: meta.uid, resource_version: meta.resource_version, head }
    }

    /// Whether a head Secret still holds what was read or written: then merely something beside it was changed, such as
    /// an annotation that a backup puts on all Secrets. Every write of ours counts the revision up.
    pub(super) fn is_of(&self, now: &Secret) -> bool {
        let head = now.data.as_ref().and_then(|data| data.get("head"));
        now.metadata.uid == self.uid && head.and_then(|json| Head::read(&json.0).ok()).as_ref() == Some(&self.head)
    }
}

pub(super) fn encode(what: &str, secret: &NewSecret<'_>) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(secret).map_err(|source| unpacked(what, source))
}

pub(super) fn unpacked(what: &str, source: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(what, ErrorKind::Other).because("packing failed").with_source(source)
}

pub(super) fn info(meta: SecretMeta) -> Option<ReleaseInfo> {
    let annotations = meta.annotations.unwrap_or_default();
    let name = meta.labels?.remove(RELEASE)?;
    let written = meta.managed_fields.unwrap_or_default().into_iter().filter_map(|fields| fields.time).max();
    Some(ReleaseInfo {
        release: ReleaseName::new(&meta.namespace?, &name).ok()?,
        phase: [Phase::Applying, Phase::Applied, Phase::Deleting]
            .into_iter()
            .find(|phase| annotations.get(PHASE).is_some_and(|text| *text == phase.to_string())),
        objects: annotations.get(OBJECTS).and_then(|text| text.parse().ok()).unwrap_or_default(),
        revision: annotations.get(REVISION).and_then(|text| text.parse().ok()).unwrap_or_default(),
        updated: annotations.get(UPDATED).cloned().or(written).or(meta.creation_timestamp),
    })
}
