//! The encoding of a record: the head as JSON, the pieces as gzipped JSON lines.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    io::{self, BufRead as _, BufReader, Read, Write as _},
};

use billhook_objects::{ObjectKey, ReleaseName};
use billhook_plan::{Entry, INVENTORY_FORMAT, Inventory, Phase};
use billhook_policy::Policy;
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, value::RawValue};
use sha2::{Digest as _, Sha256};

/// The size of the pieces in a head, and of a part. A Secret is limited to 1 MiB.
pub(super) const LIMIT: usize = 700 * 1024;

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
    pub(super) index: Place,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) manifests: Option<Place>,
}

/// The location of a piece.
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
    pub(super) fn of(inventory: &Inventory, revision: u64, index: Place, manifests: Option<Place>) -> Self {
        Self {
            format: INVENTORY_FORMAT,
            name: inventory.release.name().to_owned(),
            namespace: inventory.release.namespace().to_owned(),
            revision,
            phase: inventory.phase,
            objects: inventory.entries.len(),
            policy: inventory.policy.clone(),
            created_namespaces: inventory.created_namespaces.clone(),
            index,
            manifests,
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
        self.index.parts().iter().chain(self.manifests.iter().flat_map(Place::parts))
    }
}

/// One line of an index.
#[derive(Serialize)]
struct EntryLine<'a> {
    key: &'a ObjectKey,
    entry: &'a Entry,
}

#[derive(Deserialize)]
struct OwnedEntryLine {
    key: ObjectKey,
    entry: Entry,
}

/// One line of manifests.
#[derive(Serialize)]
struct ManifestLine<'a> {
    key: &'a ObjectKey,
    manifest: &'a RawValue,
}

#[derive(Deserialize)]
struct OwnedManifestLine {
    key: ObjectKey,
    manifest: Value,
}

pub(super) fn write_index(entries: &BTreeMap<ObjectKey, Entry>) -> io::Result<Vec<u8>> {
    let mut lines = Lines::new();
    for (key, entry) in entries {
        lines.add(&EntryLine { key, entry })?;
    }
    lines.finish()
}

/// Encodes the manifests, which are JSON texts, without parsing them into values.
pub(super) fn write_manifests(manifests: &[(&ObjectKey, &str)]) -> io::Result<Vec<u8>> {
    let mut lines = Lines::new();
    for (key, manifest) in manifests {
        // A line break in JSON is always outside of strings, where a space is equivalent.
        let manifest =
            if manifest.contains('\n') { manifest.replace('\n', " ").into() } else { Cow::Borrowed(*manifest) };
        // serde's own message may quote secrets.
        let manifest = serde_json::from_str(&manifest)
            .map_err(|error| io::Error::other(format!("{key} is not JSON (column {})", error.column())))?;
        lines.add(&ManifestLine { key, manifest })?;
    }
    lines.finish()
}

/// A gzip encoder of JSON lines. The same lines give the same bytes, as the gzip header holds no time.
struct Lines {
    gzip: io::BufWriter<GzEncoder<Vec<u8>>>,
}

impl Lines {
    fn new() -> Self {
        let gzip = GzEncoder::new(Vec::new(), Compression::default());
        Self { gzip: io::BufWriter::with_capacity(16 * 1024, gzip) }
    }

    fn add(&mut self, line: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.gzip, line)?;
        self.gzip.write_all(b"\n")
    }

    fn finish(self) -> io::Result<Vec<u8>> {
        self.gzip.into_inner().map_err(io::IntoInnerError::into_error)?.finish()
    }
}

pub(super) fn read_index(chunks: &[Vec<u8>]) -> Result<BTreeMap<ObjectKey, Entry>, Unreadable> {
    let mut entries = BTreeMap::new();
    read_lines("its index", chunks, |line: OwnedEntryLine| {
        entries.insert(line.key, line.entry);
    })?;
    Ok(entries)
}

pub(super) fn read_manifests(chunks: &[Vec<u8>]) -> Result<Vec<(ObjectKey, Value)>, Unreadable> {
    let mut manifests = Vec::new();
    read_lines("its manifests", chunks, |line: OwnedManifestLine| manifests.push((line.key, line.manifest)))?;
    Ok(manifests)
}

fn read_lines<T: DeserializeOwned>(what: &str, chunks: &[Vec<u8>], mut each: impl FnMut(T)) -> Result<(), Unreadable> {
    let bytes = chunks
        .iter()
        .fold(Box::new(io::empty()) as Box<dyn Read + '_>, |before, chunk| Box::new(before.chain(chunk.as_slice())));
    let mut reader = BufReader::new(GzDecoder::new(bytes));
    let mut line = Vec::new();
    loop {
        line.clear();
        match reader.read_until(b'\n', &mut line) {
            Ok(0) => return Ok(()),
            Ok(_) => each(serde_json::from_slice(&line).map_err(|error| damaged(what, &error))?),
            Err(error) => return Err(Unreadable::Damaged(format!("{what} cannot be unpacked ({error})"))),
        }
    }
}

/// Returns the name of the head Secret.
pub(super) fn head_name(release: &ReleaseName) -> String {
    format!("billhook.{}", release.name())
}

/// Returns the name of a part. It contains a digest of the content, so that two writers of one revision do not overwrite
/// each other's parts.
pub(super) fn part_name(release: &ReleaseName, revision: u64, piece: &str, number: usize, content: &[u8]) -> String {
    let digest: String = Sha256::digest(content).iter().take(5).map(|byte| format!("{byte:02x}")).collect();
    format!("billhook.{}.v{revision}.{piece}.{number}.{digest}", release.name())
}
