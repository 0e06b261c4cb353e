//! The Secrets that hold a record, as they are read and written.

use std::{collections::BTreeMap, time::Duration};

use billhook_objects::{ReleaseName, Uid, wellknown::FIELD_MANAGER};
use billhook_plan::{AppliedVersion, Phase};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::format::{EMPTY, Head, head_name};
use crate::{
    error::{Error, ErrorKind},
    tenure::Moment,
};

/// The type of the Secrets.
pub(super) const TYPE: &str = "billhook.dev/inventory";
/// The label with the release's name.
pub(super) const RELEASE: &str = "billhook.dev/inventory";
/// The label with the name of the piece; `head` for the head.
pub(super) const PART: &str = "billhook.dev/part";
pub(super) const PHASE: &str = "billhook.dev/phase";
pub(super) const OBJECTS: &str = "billhook.dev/objects";
pub(super) const REVISION: &str = "billhook.dev/revision";
pub(super) const UPDATED: &str = "billhook.dev/updated";
pub(super) const BACKUP: &str = "billhook.dev/backup";

/// A Secret as it is read.
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
    pub(super) manager: Option<String>,
    pub(super) time: Option<String>,
}

/// A Secret, or a merge patch of one, as it is written.
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

/// The version of a record that was read or written. A write that presents an outdated one gets a conflict.
#[derive(Clone, Debug)]
pub struct Token {
    pub(super) uid: Uid,
    pub(super) resource_version: String,
    pub(super) head: Head,
    /// When it was read, or the write was sent.
    pub(super) at: Moment,
    /// How long before that it was written, by the server's clock.
    age: Option<Duration>,
}

impl Token {
    /// Makes a token of a head that was just read.
    pub(super) fn read(meta: &SecretMeta, head: Head, date: Option<Timestamp>) -> Self {
        let ours = meta.managed_fields.iter().flatten();
        let ours = ours.filter(|fields| fields.manager.as_deref() == Some(FIELD_MANAGER));
        let written = ours.filter_map(|fields| fields.time.as_ref()?.parse::<Timestamp>().ok()).max();
        let age = written.zip(date).map(|(written, now)| now.duration_since(written));
        let age = age.map(|age| Duration::try_from(age).unwrap_or_default());
        Self { uid: meta.uid.clone(), resource_version: meta.resource_version.clone(), head, at: Moment::now(), age }
    }

    /// Makes a token of a head that a request has written that was sent at this time.
    pub(super) fn written(meta: &SecretMeta, head: Head, sent: Moment) -> Self {
        Self {
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
            head,
            at: sent,
            age: Some(Duration::ZERO),
        }
    }

    /// Returns the number of the write that made the record; renewals of a lock keep it.
    pub fn revision(&self) -> u64 {
        self.head.revision
    }

    /// Returns the names of the Secrets that hold the record of the release.
    pub fn secrets(&self, release: &ReleaseName) -> impl Iterator<Item = String> {
        std::iter::once(head_name(release)).chain(self.head.parts().cloned())
    }

    /// Returns the versions of the release that were applied, the newest first.
    pub fn history(&self) -> &[AppliedVersion] {
        &self.head.history
    }

    /// Returns whether the head is empty: of a release without a record, which an operation has locked, or whose first record
    /// does not have its parts yet.
    pub fn is_empty(&self) -> bool {
        self.head.revision == EMPTY
    }

    /// Returns how long ago the head was written; none if the server does not tell.
    pub(super) fn age(&self) -> Option<Duration> {
        self.age.map(|age| age + self.at.elapsed())
    }

    /// Returns whether a head Secret still has the same content, so that only other fields have changed, such as an
    /// annotation that a backup tool sets. Every write of billhook increments the revision, or the renewals of the lock.
    ///
    /// If the lock is `held` by the caller, renewals do not count: the answer of its last one may have been lost. A lock of
    /// another holder that was renewed is alive.
    pub(super) fn is_of(&self, now: &Secret, held: bool) -> bool {
        let head = now.data.as_ref().and_then(|data| data.get("head")).and_then(|json| Head::read(&json.0).ok());
        let same = head.is_some_and(|mut head| {
            if let (Some(now), Some(own)) = (&mut head.lock, &self.head.lock)
                && held
                && now.id == own.id
            {
                now.renewals = own.renewals;
            }
            head == self.head
        });
        now.metadata.uid == self.uid && same
    }
}

pub(super) fn encode(what: &str, secret: &NewSecret<'_>) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(secret).map_err(|source| encoding_failed(what, source))
}

pub(super) fn encoding_failed(what: &str, source: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(what, ErrorKind::Other).because("the record cannot be encoded").with_source(source)
}

/// What a list shows of a release, without its record being read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseInfo {
    /// The release.
    pub release: ReleaseName,
    /// The last operation; none if a newer billhook wrote a phase that this version does not know.
    pub phase: Option<Phase>,
    /// How many objects it has.
    pub objects: usize,
    /// How often its record was written.
    pub revision: u64,
    /// The time of the last write, as given to [`InventoryStore::stamped`](crate::InventoryStore::stamped), otherwise as
    /// the API server recorded it.
    pub updated: Option<String>,
    /// How many objects its backup has; none if there is no backup.
    pub backup: Option<usize>,
}

/// Reads the information about a release from the metadata of its head Secret.
pub(super) fn release_info(meta: SecretMeta) -> Option<ReleaseInfo> {
    let annotations = meta.annotations.unwrap_or_default();
    let name = meta.labels?.remove(RELEASE)?;
    let written = meta.managed_fields.unwrap_or_default().into_iter().filter_map(|fields| fields.time).max();
    Some(ReleaseInfo {
        release: ReleaseName::new(&meta.namespace?, &name).ok()?,
        phase: Phase::ALL
            .into_iter()
            .find(|phase| annotations.get(PHASE).is_some_and(|text| *text == phase.to_string())),
        objects: annotations.get(OBJECTS).and_then(|text| text.parse().ok()).unwrap_or_default(),
        revision: annotations.get(REVISION).and_then(|text| text.parse().ok()).unwrap_or_default(),
        updated: annotations.get(UPDATED).cloned().or(written).or(meta.creation_timestamp),
        backup: annotations.get(BACKUP).and_then(|text| text.parse().ok()),
    })
}
