//! The encoding of a record: the head as JSON, the index as gzipped JSON lines.

use std::{
    collections::BTreeSet,
    io::{self, BufRead as _, BufReader, Read, Write as _},
};

use billhook_objects::{ObjectKey, ReleaseName};
use billhook_plan::{AppliedVersion, Backup, Entry, Failures, INVENTORY_FORMAT, Inventory, Phase};
use billhook_policy::Policy;
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::lease::HeldLease;

/// The size of the index in a head, and of a part. A Secret is limited to 1 MiB.
pub(super) const LIMIT: usize = 700 * 1024;

/// The format of a record without a backup.
const WITHOUT_BACKUP: u32 = 1;

/// The revision of an empty head, which counts as no record. That of a record is at least 1.
pub(super) const EMPTY: u64 = 0;

/// The head of a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Head {
    pub(super) format: u32,
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) revision: u64,
    pub(super) phase: Phase,
    pub(super) objects: usize,
    pub(super) policy: Policy,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) created_namespaces: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) swept: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) history: Vec<AppliedVersion>,
    #[serde(default, skip_serializing_if = "Failures::is_empty")]
    pub(super) failures: Failures,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) backup: Option<Backup>,
    pub(super) index: Place,
    /// The operation that works on the release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) lock: Option<Lock>,
    /// The manifests that earlier versions stored. The next write deletes them.
    #[serde(default, skip_serializing)]
    pub(super) manifests: Option<Place>,
}

/// The operation that works on a release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Lock {
    pub(super) operation: String,
    pub(super) holder: String,
    pub(super) pid: u32,
    pub(super) id: String,
    /// When the operation started by the holder's clock; only for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) since: Option<String>,
    pub(super) duration_seconds: u64,
    /// Makes each renewal a change, so that the server records its time.
    pub(super) renewals: u64,
    /// How long after this write the former holder may still send requests, until its successor has waited for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) former_seconds: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) lease: Option<HeldLease>,
}

/// The location of the index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Place {
    /// In the head Secret, with this size in bytes.
    Here(usize),
    /// In these Secrets, in this order.
    Parts(Vec<String>),
}

impl Place {
    pub(super) fn parts(&self) -> &[String] {
        match self {
            Self::Here(_) => &[],
            Self::Parts(names) => names,
        }
    }
}

/// Why a record cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    Newer(u32),
    Damaged(String),
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Newer(format) => write!(
                f,
                "it was written by a newer billhook (format {format}; this one reads formats up to {INVENTORY_FORMAT})"
            ),
            Self::Damaged(what) => write!(f, "it is damaged: {what}"),
        }
    }
}

fn damaged(what: &str, error: &serde_json::Error) -> Unreadable {
    // serde's own message may quote secrets.
    Unreadable::Damaged(format!("{what} cannot be read (line {}, column {})", error.line(), error.column()))
}

impl Head {
    pub(super) fn of(inventory: &Inventory, revision: u64, index: Place, lock: Option<Lock>) -> Self {
        Self {
            // Versions before backups read all other records.
            format: if inventory.backup.is_some() { INVENTORY_FORMAT } else { WITHOUT_BACKUP },
            name: inventory.release.name().to_owned(),
            namespace: inventory.release.namespace().to_owned(),
            revision,
            phase: inventory.phase,
            objects: inventory.entries.len(),
            policy: inventory.policy.clone(),
            created_namespaces: inventory.created_namespaces.clone(),
            swept: inventory.swept,
            history: inventory.history.clone(),
            failures: inventory.failures.clone(),
            backup: inventory.backup.clone(),
            index,
            lock,
            manifests: None,
        }
    }

    pub(super) fn read(json: &[u8]) -> Result<Self, Unreadable> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let Format { format } = serde_json::from_slice(json).map_err(|error| damaged("its head", &error))?;
        if format > INVENTORY_FORMAT {
            return Err(Unreadable::Newer(format));
        }
        serde_json::from_slice(json).map_err(|error| damaged("its head", &error))
    }

    /// Returns the names of all parts.
    pub(super) fn parts(&self) -> impl Iterator<Item = &String> {
        let backup = self.backup.iter().flat_map(|backup| &backup.parts);
        self.index.parts().iter().chain(self.manifests.iter().flat_map(Place::parts)).chain(backup)
    }
}

/// One line of an index: an entry, or when the deletion of an object was verified.
#[derive(Serialize)]
struct Line<'a> {
    key: &'a ObjectKey,
    #[serde(skip_serializing_if = "Option::is_none")]
    entry: Option<&'a Entry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted: Option<&'a str>,
}

#[derive(Deserialize)]
struct OwnedLine {
    key: ObjectKey,
    entry: Option<Entry>,
    deleted: Option<String>,
}

/// Encodes the entries and the verified deletions. The same ones give the same bytes, as the gzip header holds no time.
pub(super) fn write_index(inventory: &Inventory) -> io::Result<Vec<u8>> {
    let gzip = GzEncoder::new(Vec::new(), Compression::default());
    let mut lines = io::BufWriter::with_capacity(16 * 1024, gzip);
    let entries = inventory.entries.iter().map(|(key, entry)| Line { key, entry: Some(entry), deleted: None });
    let deleted = inventory.deleted.iter().map(|(key, at)| Line { key, entry: None, deleted: Some(at) });
    for line in entries.chain(deleted) {
        serde_json::to_writer(&mut lines, &line)?;
        lines.write_all(b"\n")?;
    }
    lines.into_inner().map_err(io::IntoInnerError::into_error)?.finish()
}

/// Sets the entries of an inventory to those of an index, and adds the verified deletions.
pub(super) fn read_index(chunks: &[Vec<u8>], inventory: &mut Inventory) -> Result<(), Unreadable> {
    let bytes = chunks
        .iter()
        .fold(Box::new(io::empty()) as Box<dyn Read + '_>, |before, chunk| Box::new(before.chain(chunk.as_slice())));
    let mut reader = BufReader::new(GzDecoder::new(bytes));
    let mut line = Vec::new();
    // Collected first: a map that grows in order is half empty.
    let mut entries = Vec::new();
    loop {
        line.clear();
        match reader.read_until(b'\n', &mut line) {
            Ok(0) => break,
            Ok(_) => {
                let OwnedLine { key, entry, deleted } =
                    serde_json::from_slice(&line).map_err(|error| damaged("its index", &error))?;
                if let Some(at) = deleted {
                    inventory.deleted.insert(key.clone(), at);
                }
                entries.extend(entry.map(|entry| (key, entry)));
            }
            Err(error) => return Err(Unreadable::Damaged(format!("its index cannot be unpacked ({error})"))),
        }
    }
    inventory.entries = entries.into_iter().collect();
    Ok(())
}

/// Returns the name of the head Secret.
pub(super) fn head_name(release: &ReleaseName) -> String {
    format!("billhook.{}", release.name())
}

/// Returns the name of a part, which is one of the index or of a backup. It contains a digest of the content, so that two
/// writers of one revision do not overwrite each other's parts.
pub(super) fn part_name(release: &ReleaseName, revision: u64, of: &str, number: usize, content: &[u8]) -> String {
    let digest: String = Sha256::digest(content).iter().take(5).map(|byte| format!("{byte:02x}")).collect();
    format!("billhook.{}.v{revision}.{of}.{number}.{digest}", release.name())
}
