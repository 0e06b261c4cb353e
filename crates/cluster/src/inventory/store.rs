//! Reading and writing the records of releases.

use std::collections::{BTreeMap, BTreeSet};

use billhook_objects::{ObjectKey, ReleaseName, Uid, wellknown::FIELD_MANAGER};
use billhook_plan::{Inventory, Resource};
use futures::{
    StreamExt as _, TryStreamExt as _,
    future::{join_all, try_join_all},
    stream,
};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::{
    format::{self, EMPTY, Head, LIMIT, Lock, Place, Unreadable},
    secret::{
        BACKUP, NewSecret, OBJECTS, PART, PHASE, RELEASE, REVISION, ReleaseInfo, Secret, SecretMeta, TYPE, Token,
        UPDATED, encode, encoding_failed, release_info,
    },
};
use crate::{
    cluster::Cluster,
    counts::Verb,
    decode::{JSON, META, META_LIST, Page},
    error::{Error, ErrorKind, Status},
    request::Call,
    resource_version::is_older,
    tenure::Moment,
    url,
};

/// How often a record is read while another writer replaces its parts.
const READS: usize = 4;
/// How often a write is sent while other clients change other fields of the head.
pub(super) const WRITES: usize = 4;
/// How many parts are sent at once. Each is held in memory twice meanwhile.
const PARTS_AT_ONCE: usize = 4;
/// What the parts of an index are named after.
const INDEX: &str = "index";

/// Returns the metadata of a part, which is deleted with its owner, the head.
pub(super) fn part_metadata(release: &ReleaseName, name: &str, of: &str, owner: Option<&Uid>) -> Value {
    let owner = json!([{ "apiVersion": "v1", "kind": "Secret", "name": format::head_name(release), "uid": owner }]);
    json!({ "name": name, "labels": { RELEASE: release.name(), PART: of }, "ownerReferences": owner })
}

/// The records of the releases in one cluster.
#[derive(Clone, Debug)]
pub struct InventoryStore {
    pub(super) cluster: Cluster,
    pub(super) now: Option<String>,
}

/// A record as it was read.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The record.
    pub inventory: Inventory,
    /// The version that a write or removal must present.
    pub token: Token,
}

pub(super) fn changed(what: &str) -> Error {
    Error::new(what, ErrorKind::Conflict(Vec::new())).because("another command changed the release at the same time")
}

pub(super) fn is_conflict(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Conflict(fields) if fields.is_empty())
}

/// Makes the error for a record that a single read no longer finds.
fn gone(what: &str) -> Error {
    let status = Status { code: 404, reason: "NotFound".into(), ..Status::default() };
    Error::answered(what, status).because("the record no longer exists")
}

pub(super) fn unreadable(what: &str, why: &Unreadable) -> Error {
    Error::new(what, ErrorKind::Other).because(why.to_string())
}

/// The head of a record and its index.
struct Found {
    token: Token,
    chunks: Vec<Vec<u8>>,
}

impl Cluster {
    /// Returns the store of the records in this cluster.
    pub fn inventory(&self) -> InventoryStore {
        InventoryStore { cluster: self.clone(), now: None }
    }
}

impl InventoryStore {
    /// Sets the time, as RFC 3339, that every write records. The store itself has no wall clock.
    #[must_use]
    pub fn stamped(mut self, now: impl Into<String>) -> Self {
        self.now = Some(now.into());
        self
    }

    /// Reads the record of a release; none if there is no record. One whose [token is empty](Token::is_empty) counts as none.
    ///
    /// # Errors
    ///
    /// When a newer billhook wrote the record, it is damaged, or the request fails.
    pub async fn load(&self, release: &ReleaseName) -> Result<Option<Stored>, Error> {
        let what = format!("read the record of release {release}");
        let Some(Found { token, chunks }) = self.read(&what, release).await? else { return Ok(None) };
        let mut inventory = Inventory {
            phase: token.head.phase,
            revision: token.head.revision,
            policy: token.head.policy.clone(),
            swept: token.head.swept,
            created_namespaces: token.head.created_namespaces.clone(),
            history: token.head.history.clone(),
            failures: token.head.failures.clone(),
            backup: token.head.backup.clone(),
            ..Inventory::new(release.clone())
        };
        format::read_index(&chunks, &mut inventory).map_err(|why| unreadable(&what, &why))?;
        Ok(Some(Stored { inventory, token }))
    }

    async fn read(&self, what: &str, release: &ReleaseName) -> Result<Option<Found>, Error> {
        let mut missing = String::new();
        for _ in 0..READS {
            let Some((token, mut secret)) = self.read_head(what, release).await? else { return Ok(None) };
            let found: Result<Vec<_>, String> = match &token.head.index {
                Place::Here(_) => secret.take("index").map(|chunk| vec![chunk]).ok_or_else(|| "index".to_owned()),
                Place::Parts(names) => {
                    let parts = try_join_all(names.iter().map(|name| self.secret(what, release, name))).await?;
                    let chunks = parts.into_iter().zip(names);
                    chunks.map(|(part, name)| part.and_then(|(mut p, _)| p.take("data")).ok_or(name.clone())).collect()
                }
            };
            match found {
                Ok(chunks) => return Ok(Some(Found { token, chunks })),
                // Another writer may have replaced the parts since the head was read.
                Err(name) => missing = name,
            }
        }
        Err(unreadable(what, &Unreadable::Damaged(format!("{missing} is missing"))))
    }

    /// Reads the head of a record without its index; none if there is no record.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load).
    pub async fn head(&self, release: &ReleaseName) -> Result<Option<Token>, Error> {
        let what = format!("read the record of release {release}");
        Ok(self.read_head(&what, release).await?.map(|(token, _)| token))
    }

    async fn read_head(&self, what: &str, release: &ReleaseName) -> Result<Option<(Token, Secret)>, Error> {
        let found = self.secret(what, release, &format::head_name(release)).await?;
        let Some((mut secret, date)) = found else { return Ok(None) };
        let head = Head::read(&secret.take("head").unwrap_or_default()).map_err(|why| unreadable(what, &why))?;
        Ok(Some((Token::read(&secret.metadata, head, date), secret)))
    }

    /// Reads a Secret, and the time of the answer.
    pub(super) async fn secret(
        &self,
        what: &str,
        release: &ReleaseName,
        name: &str,
    ) -> Result<Option<(Secret, Option<Timestamp>)>, Error> {
        let url = url::object(&Resource::secrets(), Some(release.namespace()), name);
        match self.cluster.send(&Call::get(what, url).accept(JSON)).await {
            Ok(reply) => Ok(Some((reply.json()?, reply.date()))),
            Err(error) if error.object_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes a record, increments its revision and unlocks the release. Without a token the record must not exist; with one
    /// it must be the version that was last read or written.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`] if another command changed the record; code 404 if it no longer exists; other kinds if a
    /// request fails. The record is then unchanged.
    pub async fn save(&self, inventory: &mut Inventory, token: Option<Token>) -> Result<Token, Error> {
        self.write(inventory, token, None).await
    }

    /// Writes a record with a lock, or without one.
    pub(super) async fn write(
        &self,
        inventory: &mut Inventory,
        token: Option<Token>,
        lock: Option<Lock>,
    ) -> Result<Token, Error> {
        let release = inventory.release.clone();
        let what = format!("write the record of release {release}");
        let revision = token.as_ref().map_or(inventory.revision, |token| token.head.revision) + 1;
        let bytes = format::write_index(inventory).map_err(|source| encoding_failed(&what, source))?;
        let policy = serde_json::to_vec(&inventory.policy).map_or(0, |json| json.len());
        // The index is written into the head if there is room, otherwise into parts.
        let parts: Vec<(String, Vec<u8>)> = if bytes.len() + policy <= LIMIT {
            Vec::new()
        } else {
            let chunks = bytes.chunks(LIMIT).enumerate();
            chunks
                .map(|(number, chunk)| (format::part_name(&release, revision, INDEX, number, chunk), chunk.to_vec()))
                .collect()
        };
        let wrote_parts = !parts.is_empty();
        let (index, data) = if wrote_parts {
            (Place::Parts(parts.iter().map(|(name, _)| name.clone()).collect()), None)
        } else {
            (Place::Here(bytes.len()), Some(ByteString(bytes)))
        };
        let token = match token {
            None if wrote_parts => Some(self.write_empty(&what, &release, lock.clone()).await?),
            token => token,
        };
        let owner = token.as_ref().map(|token| token.uid.clone());
        let writes = parts.into_iter().map(|(name, chunk)| {
            let metadata = part_metadata(&release, &name, INDEX, owner.as_ref());
            self.write_part(&what, &release, metadata, chunk)
        });
        // Collected because the closure must not live across an await: the future would not be `Send`.
        let writes: Vec<_> = writes.collect();
        stream::iter(writes).buffer_unordered(PARTS_AT_ONCE).try_collect::<()>().await?;
        let head = Head::of(inventory, revision, index, lock);
        let new = self.write_head(&what, &release, token.as_ref(), head, data).await?;
        inventory.revision = revision;
        // The parts of a backup were written before.
        let wrote_parts = wrote_parts || token.as_ref().is_some_and(|old| old.head.backup != new.head.backup);
        self.clean(&release, token.as_ref(), &new, wrote_parts).await;
        Ok(new)
    }

    /// Writes an empty head, which counts as no record: before the parts of a new one, or to lock a release without one. It
    /// owns the parts, so that the server's garbage collector deletes those that a crash leaves behind together with it.
    pub(super) async fn write_empty(
        &self,
        what: &str,
        release: &ReleaseName,
        lock: Option<Lock>,
    ) -> Result<Token, Error> {
        let empty = Inventory::new(release.clone());
        let index = format::write_index(&empty).map_err(|source| encoding_failed(what, source))?;
        let head = Head::of(&empty, EMPTY, Place::Here(index.len()), lock);
        self.write_head(what, release, None, head, Some(ByteString(index))).await
    }

    /// Writes a part. Its name identifies its content, so that an existing one is the same.
    pub(super) async fn write_part(
        &self,
        what: &str,
        release: &ReleaseName,
        metadata: Value,
        chunk: Vec<u8>,
    ) -> Result<(), Error> {
        let secret = NewSecret {
            api_version: "v1",
            kind: "Secret",
            kind_of_secret: TYPE,
            metadata,
            data: BTreeMap::from([("data", Some(ByteString(chunk)))]),
        };
        match self.create(what, release, &secret).await {
            Ok(_) => Ok(()),
            Err(error) if error.already_exists() => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn create(&self, what: &str, release: &ReleaseName, secret: &NewSecret<'_>) -> Result<Secret, Error> {
        let url = url::with_query(
            &url::collection(&Resource::secrets(), Some(release.namespace())),
            &[("fieldManager", FIELD_MANAGER)],
        );
        let call = Call::new(Verb::Create, what, url).accept(META).body("application/json", encode(what, secret)?);
        self.cluster.send(&call).await?.json()
    }

    /// Writes the head, with the index unless that is in parts: by a POST if there is none, otherwise by a merge patch with
    /// the `resourceVersion`.
    async fn write_head(
        &self,
        what: &str,
        release: &ReleaseName,
        token: Option<&Token>,
        head: Head,
        index: Option<ByteString>,
    ) -> Result<Token, Error> {
        let json = serde_json::to_vec(&head).map_err(|source| encoding_failed(what, source))?;
        let name = format::head_name(release);
        let mut metadata = json!({
            "name": name,
            "labels": { RELEASE: release.name(), PART: "head" },
            "annotations": {
                PHASE: head.phase.to_string(),
                OBJECTS: head.objects.to_string(),
                REVISION: head.revision.to_string(),
            },
        });
        if let Some(now) = &self.now {
            metadata["annotations"][UPDATED] = json!(now);
        }
        match &head.backup {
            Some(backup) => metadata["annotations"][BACKUP] = json!(backup.objects.to_string()),
            None if token.is_some_and(|token| token.head.backup.is_some()) => {
                metadata["annotations"][BACKUP] = Value::Null
            }
            None => {}
        }
        let mut data = BTreeMap::from([("head", Some(ByteString(json.clone()))), ("index", index.clone())]);
        match token {
            None => data.retain(|_, value| value.is_some()),
            Some(token) => {
                metadata["uid"] = json!(token.uid);
                metadata["resourceVersion"] = json!(token.resource_version);
                data.extend(token.head.manifests.is_some().then_some(("manifests", None)));
            }
        }
        let mut secret = NewSecret { api_version: "v1", kind: "Secret", kind_of_secret: TYPE, metadata, data };
        let ours = |now: &Secret| {
            let piece = |key| now.data.as_ref().and_then(|data| data.get(key));
            piece("head").is_some_and(|bytes| bytes.0 == json) && piece("index") == index.as_ref()
        };
        // Only its holder removes a lock.
        let held = head.lock.is_none();
        let mut answer_lost = false;
        for _ in 0..WRITES {
            let sent = Moment::now();
            let written = match token {
                Some(_) => self.patch(what, release, &name, &secret).await,
                None => self.create(what, release, &secret).await,
            };
            let error = match written {
                Ok(Secret { metadata, .. }) => return Ok(Token::written(&metadata, head, sent)),
                Err(error) => error,
            };
            answer_lost |= error.answer_lost();
            if token.is_some() && error.object_not_found() {
                return Err(error.because("the record no longer exists"));
            }
            if error.code() != Some(409) {
                return Err(error);
            }
            if token.is_none() && !answer_lost {
                return Err(changed(what));
            }
            match self.secret(what, release, &name).await?.map(|(secret, _)| secret) {
                // The try whose answer was lost has written it.
                Some(now) if answer_lost && ours(&now) => return Ok(Token::written(&now.metadata, head, sent)),
                Some(now) if token.is_some_and(|token| token.is_of(&now, held)) => {
                    secret.metadata["resourceVersion"] = json!(now.metadata.resource_version);
                }
                Some(_) => return Err(changed(what)),
                None if token.is_some() => return Err(gone(what)),
                None => return Err(changed(what)),
            }
        }
        Err(changed(what))
    }

    async fn patch(
        &self,
        what: &str,
        release: &ReleaseName,
        name: &str,
        secret: &NewSecret<'_>,
    ) -> Result<Secret, Error> {
        let url = url::object(&Resource::secrets(), Some(release.namespace()), name);
        let url = url::with_query(&url, &[("fieldManager", FIELD_MANAGER)]);
        let body = encode(what, secret)?;
        let call = Call::new(Verb::Patch, what, url).accept(META).body("application/merge-patch+json", body);
        self.cluster.send(&call).await?.json()
    }

    /// Deletes the parts that only the old head names and, if parts were written, those that a crash has left behind. Parts
    /// that cannot be deleted now are left to the next write.
    async fn clean(&self, release: &ReleaseName, old: Option<&Token>, new: &Token, wrote_parts: bool) {
        let keep: BTreeSet<&String> = new.head.parts().collect();
        let mut stale: BTreeSet<String> =
            old.iter().flat_map(|old| old.head.parts()).filter(|name| !keep.contains(name)).cloned().collect();
        if wrote_parts {
            let found = self.parts(release).await.unwrap_or_default();
            let is_stale = |meta: &SecretMeta| {
                !keep.contains(&meta.name) && is_older(&meta.resource_version, &new.resource_version)
            };
            stale.extend(found.into_iter().filter(is_stale).map(|meta| meta.name));
        }
        self.delete_parts(release, stale).await;
    }

    pub(super) async fn delete_parts(&self, release: &ReleaseName, names: BTreeSet<String>) {
        let one = async |name: String| {
            let url = url::object(&Resource::secrets(), Some(release.namespace()), &name);
            let call = Call::new(Verb::Delete, format!("delete part {name} of release {release}"), url);
            match self.cluster.send(&call).await {
                Ok(_) => {}
                Err(error) if error.code() == Some(404) => {}
                Err(error) => tracing::debug!(%error, "cannot delete a part; leaving it to the next write"),
            }
        };
        join_all(names.into_iter().map(one)).await;
    }

    /// Lists the parts of a release.
    async fn parts(&self, release: &ReleaseName) -> Result<Vec<SecretMeta>, Error> {
        let selector = format!("{RELEASE}={},{PART}!=head", release.name());
        self.metadata("list the parts of a record", Some(release.namespace()), &selector).await
    }

    /// Deletes a record: first the head, so that no head without its parts remains, and then the parts. Succeeds if the
    /// record does not exist.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`] if another command changed the record; other kinds if a request fails.
    pub async fn remove(&self, release: &ReleaseName, token: Token) -> Result<(), Error> {
        let what = format!("delete the record of release {release}");
        let name = format::head_name(release);
        let url = url::object(&Resource::secrets(), Some(release.namespace()), &name);
        let mut resource_version = token.resource_version.clone();
        for _ in 0..WRITES {
            let body = json!({
                "kind": "DeleteOptions",
                "apiVersion": "v1",
                "preconditions": { "uid": token.uid, "resourceVersion": resource_version },
            });
            let call = Call::new(Verb::Delete, &what, url.clone()).body("application/json", body.to_string());
            let deleted = match self.cluster.send(&call).await {
                Ok(_) => true,
                Err(error) if error.object_not_found() => true,
                Err(error) if error.code() != Some(409) => return Err(error),
                Err(_) => match self.secret(&what, release, &name).await?.map(|(secret, _)| secret) {
                    None => true,
                    Some(now) if token.is_of(&now, true) => {
                        resource_version = now.metadata.resource_version;
                        false
                    }
                    Some(_) => return Err(changed(&what)),
                },
            };
            if deleted {
                self.delete_parts(release, token.head.parts().cloned().collect()).await;
                return Ok(());
            }
        }
        Err(changed(&what))
    }

    /// Deletes a record without reading it, so that it may be damaged. The garbage collector deletes its parts. Succeeds if
    /// the record does not exist.
    ///
    /// # Errors
    ///
    /// When the request fails.
    pub async fn forget(&self, release: &ReleaseName) -> Result<(), Error> {
        let url = url::object(&Resource::secrets(), Some(release.namespace()), &format::head_name(release));
        let call = Call::new(Verb::Delete, format!("delete the record of release {release}"), url);
        match self.cluster.send(&call).await {
            Err(error) if !error.object_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns whether a release has a record, without reading it.
    ///
    /// # Errors
    ///
    /// When the request fails.
    pub async fn exists(&self, release: &ReleaseName) -> Result<bool, Error> {
        let resource = Resource::secrets();
        let key = ObjectKey::new(resource.kind.clone(), Some(release.namespace()), format::head_name(release));
        Ok(self.cluster.get_meta(&resource, &key).await?.is_some())
    }

    /// Lists the releases of a namespace, or of all namespaces, by one metadata-only list.
    ///
    /// # Errors
    ///
    /// When the request fails.
    pub async fn list(&self, namespace: Option<&str>) -> Result<Vec<ReleaseInfo>, Error> {
        let found = self.metadata("list releases", namespace, &format!("{RELEASE},{PART}=head")).await?;
        let mut releases: Vec<ReleaseInfo> = found.into_iter().filter_map(release_info).collect();
        releases.sort_unstable_by(|a, b| a.release.cmp(&b.release));
        Ok(releases)
    }

    async fn metadata(&self, what: &str, namespace: Option<&str>, labels: &str) -> Result<Vec<SecretMeta>, Error> {
        let mut all = Vec::new();
        let mut next = String::new();
        let size = self.cluster.inner.options.page_size.to_string();
        loop {
            let parameters = [("labelSelector", labels), ("limit", size.as_str()), ("continue", next.as_str())];
            let url = url::with_query(&url::collection(&Resource::secrets(), namespace), &parameters);
            let call = Call::new(Verb::List, what, url).accept(META_LIST);
            let page = match self.cluster.send(&call).await {
                Ok(reply) => reply.json::<Page<Secret>>()?,
                Err(error) if error.code() == Some(410) && !next.is_empty() => {
                    all.clear();
                    next.clear();
                    continue;
                }
                Err(error) => return Err(error),
            };
            all.extend(page.items.into_iter().map(|secret| secret.metadata));
            next = page.metadata.next.unwrap_or_default();
            if next.is_empty() {
                return Ok(all);
            }
        }
    }
}
