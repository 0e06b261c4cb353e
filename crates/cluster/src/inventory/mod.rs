//! The durable record of a release, in Secrets of type `billhook.dev/inventory` in the release's namespace.
//!
//! A **head** Secret `billhook.NAME` says what the record is: format, revision, phase, policy, and where the two pieces
//! lie. The **index** holds the entries, the **manifests** the objects as they were applied. Each is gzipped JSON lines,
//! and lies in the head itself where all fits below 700 KB, so that a small release costs one request a write; else in
//! **parts** of its own, named by revision and content (`billhook.NAME.v12.index.0.3f29ab01cd`).
//!
//! A crash at any request is harmless: parts are written before the head that names them, and old parts are deleted after
//! it. The head is written only if it still is what was read, so that of two writers one is told. What a crash leaves
//! behind is swept by the next write that has reason to look: parts that the head does not name and that are older than
//! it. Manifests stay where they are when a write does not give them.

mod format;
mod secret;
mod store;

use billhook_objects::{ReleaseName, Uid};
use billhook_plan::{Inventory, Phase};

pub use store::InventoryStore;

use self::format::Head;

/// A record as it was read.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The record.
    pub inventory: Inventory,
    /// What a write or removal of it must present.
    pub token: Token,
}

/// Which version of a record was read or written; a write that presents an old one is refused.
#[derive(Clone, Debug)]
pub struct Token {
    uid: Uid,
    resource_version: String,
    head: Head,
}

/// What a list says of a release, without reading its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseInfo {
    /// Which release.
    pub release: ReleaseName,
    /// What was last begun with it; none where a newer billhook wrote a phase that this one does not know.
    pub phase: Option<Phase>,
    /// How many objects it has.
    pub objects: usize,
    /// How often it was written.
    pub revision: u64,
    /// When it was last written: what [`InventoryStore::stamped`] was given, else what the API server noted.
    pub updated: Option<String>,
}
