//! The only door to a cluster: discovery, lists and watches, writes, and the inventory store.
//!
//! Every request that billhook sends leaves through a [`Cluster`]. It prints nothing and reads neither the environment
//! nor the home directory; time is tokio's clock only, so that under a paused clock and over an in-memory service an
//! hour runs in a millisecond.
//!
//! Two things hold for every call:
//!
//! - a request that fails for the moment (the server is away, busy, or its answer was lost) is sent again until
//!   [`Options::patience`] has passed, and repeating it is safe: writes carry a UID, a test or a `resourceVersion`;
//! - an [`Error`] says what was being done and of which [`ErrorKind`] the failure is, and never holds an object's content.

mod cluster;
mod connect;
mod discovery;
mod error;
mod fetch;
mod finalizers;
mod gone;
mod inventory;
mod lease;
mod limiter;
mod modify;
mod path;
mod read;
mod snapshot;
mod strategy;
mod transport;
mod watch;
mod wire;
mod write;

pub use cluster::{Cluster, Fence, Options, RequestCounts};
pub use error::{Error, ErrorKind, FieldConflict, Status};
pub use finalizers::RemoveAnswer;
pub use inventory::{InventoryStore, ReleaseInfo, Stored, Token};
pub use lease::{Leadership, LeaseOptions};
pub use modify::{Patch, PatchKind, WriteOptions};
pub use watch::{Change, Known, ObjectChange};
pub use write::{Applied, ApplyOptions, DeleteAnswer, DeleteOptions};
