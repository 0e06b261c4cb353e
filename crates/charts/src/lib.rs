//! Renders charts and kustomizations with the `helm` and `kubectl` programs, and deploys releases with helm.
//!
//! No library renders charts exactly like helm, so this crate runs the programs themselves. The caller names the programs
//! and, for releases, the cluster.
//!
//! Charts of others are fetched first, by this crate, within limits for their size, the time and the addresses of servers; then
//! helm works with the file. So helm gets no credentials of a registry or repository. What was fetched is cached: by its digest,
//! or with the validators of the server, which must confirm that it has not changed.

mod address;
mod cache;
mod chart;
mod credentials;
mod error;
mod fetch;
mod helm;
mod home;
mod http;
mod index;
mod input;
mod isolation;
mod output;
mod packed;
mod program;
mod registry;
mod release;
mod render;
mod stored;
mod tls;
mod users;
mod values;

pub use address::SourceError;
pub use chart::{Chart, Source};
pub use credentials::{Credentials, CredentialsError, RepositoryAuth, SecretReference};
pub use error::{Error, ErrorKind};
pub use fetch::fetch;
pub use helm::Helm;
pub use home::remove_leftovers;
pub use http::FetchError;
pub use input::{Capabilities, Release};
pub use isolation::MEMORY;
pub use output::Rendered;
pub use packed::ArchiveError;
pub use program::ProgramError;
pub use release::{DeployOptions, STOP_GRACE, TimeLimit, install_or_upgrade, manifest_of, uninstall};
pub use render::{kustomize, template};
pub use stored::as_failed;
pub use users::{HelmUserError, HelmUsers, UserIds};
pub use values::values;
