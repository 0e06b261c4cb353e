//! The record of a release, in Secrets of type `billhook.dev/inventory` in the release's namespace.
//!
//! A **head** Secret `billhook.NAME` holds the format, revision, phase and policy, and the location of the **index** with
//! the entries, which is gzipped JSON lines. If it fits below 700 KB, the index is in the head itself, so that a small
//! release costs one request per write; otherwise it is in **parts**, Secrets named by revision and content
//! (`billhook.NAME.v12.index.0.3f29ab01cd`). Manifests are not stored, as they may contain secrets; the next write deletes
//! those that earlier versions stored.
//!
//! A crash at any request is harmless: parts are written before the head that names them, and old parts are deleted after
//! it. The head is written only if it is still what was read, so that the second of two writers gets a conflict. Parts that
//! a crash leaves behind, which the head does not name and which are older than it, are deleted by the next write that
//! writes parts.
//!
//! A **backup** is gzipped JSON lines, too, and always in parts (`billhook.NAME.v12.backup.0.3f29ab01cd`), because it is only
//! read to restore it. They are written before the head that names them, and are deleted like all other parts.

mod backup;
mod format;
mod lock;
mod secret;
mod store;

pub use backup::{BackupWriter, MAX_PARTS, NewBackup, PackedBackup};
pub use lock::{Begun, HeldLock, Holder, LOCK_DURATION, TakeOver, TakenOver};
pub use secret::{ReleaseInfo, Token};
pub use store::{InventoryStore, Stored};
