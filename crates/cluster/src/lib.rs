//! The only crate that sends requests to a cluster: discovery, lists and watches, writes, and the inventory store.
//!
//! Every request of billhook goes through a [`Cluster`]. This crate prints nothing and reads neither the environment nor
//! the home directory. It uses tokio's clock only, so that under a paused clock and over an in-memory service an hour
//! passes in a millisecond.
//!
//! Two guarantees hold for every call:
//!
//! - A request with a transient failure (the server is unreachable or busy, or its answer was lost) is retried for
//!   [`Options::patience`]. Retries are safe, because writes carry a UID, a test or a `resourceVersion`.
//! - An [`Error`] has the action that failed and the [`ErrorKind`], and never contains the content of an object.

mod answer_body;
mod apply;
mod bearer;
mod client;
mod cluster;
mod counts;
mod decode;
mod delete;
mod discovery;
mod error;
mod fence;
mod finalizers;
mod guarded_body;
mod inventory;
mod lease;
mod limiter;
mod list;
mod look;
mod managed;
mod not_found;
mod patch;
mod read;
mod recent_deletes;
mod recent_names;
mod request;
mod resolver;
pub mod resource_version;
mod review;
mod scan;
mod service_token;
mod shared_answer;
mod snapshot;
mod spread;
mod strategy;
mod take_over;
mod tenure;
mod url;
mod watch;
mod watch_slots;
mod write;

pub use apply::{Applied, ApplyOptions};
pub use bearer::Bearer;
pub use client::connect;
pub use cluster::{Cluster, Options};
pub use counts::{RequestCounts, count_requests};
pub use delete::{DeleteAnswer, DeleteOptions};
pub use error::{Error, ErrorKind, FieldConflict, Status};
pub use fence::Fence;
pub use finalizers::RemoveAnswer;
pub use inventory::{
    BackupWriter, Begun, HeldLock, Holder, InventoryStore, LOCK_DURATION, MAX_PARTS, NewBackup, PackedBackup,
    ReleaseInfo, Stored, TakeOver, TakenOver, Token,
};
pub use lease::{Clock, HeldLease, Leadership, LeaseOptions, ListedLease, NotHeld, Predecessor, Term};
pub use look::Place;
pub use patch::{Patch, PatchKind};
pub use scan::Scan;
pub use service_token::ServiceToken;
pub use shared_answer::SharedAnswer;
pub use snapshot::Judge;
pub use watch::{Change, Known, ObjectChange};
pub use write::WriteOptions;
