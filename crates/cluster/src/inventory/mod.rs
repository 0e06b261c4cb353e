//! The record of a release, in Secrets of type `billhook.dev/inventory` in the release's namespace.
//!
//! A **head** Secret `billhook.NAME` holds the format, revision, phase and policy, and the location of two pieces: the
//! **index** with the entries, and the **manifests** as they were applied. Each piece is gzipped JSON lines. If all fits
//! below 700 KB, the pieces are in the head itself, so that a small release costs one request per write; otherwise they
//! are in **parts**, Secrets named by revision and content (`billhook.NAME.v12.index.0.3f29ab01cd`).
//!
//! A crash at any request is harmless: parts are written before the head that names them, and old parts are deleted after
//! it. The head is written only if it is still what was read, so that the second of two writers gets a conflict. Parts that
//! a crash leaves behind, which the head does not name and which are older than it, are deleted by the next write that
//! writes parts. A write without manifests keeps those that are stored.

mod format;
mod secret;
mod store;

pub use secret::{ReleaseInfo, Token};
pub use store::{InventoryStore, Stored};
