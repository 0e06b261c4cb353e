//! Identities, manifests and kinds of Kubernetes objects, and YAML read the way kubectl reads it.
//!
//! Everything here is pure: no clock, no I/O, no client. The same text always gives the same values.

mod catalog;
mod identity;
mod json_path;
mod labels;
mod manifest;
pub mod parallel;
mod resource;
mod schema;
pub mod wellknown;
pub mod yaml;

pub use catalog::{Catalog, KindName, ResolveError, ResourceType, Scope};
pub use identity::{ApiVersion, GroupKind, IdentityError, ObjectKey, ReleaseName, Uid};
pub use json_path::{JsonPath, JsonPathError};
pub use labels::Labels;
pub use manifest::{Digest, DigestError, Manifest, ManifestError, Source};
pub use resource::Resource;
pub use schema::Schema;
