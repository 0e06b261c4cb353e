//! Renders charts and kustomizations with the `helm` and `kubectl` programs, and deploys releases with helm.
//!
//! No library renders charts exactly like helm, so this crate runs the programs themselves. The caller names the programs
//! and, for releases, the cluster.
//!
//! helm also fetches charts. Each run has a private folder with only the credentials that the chart needs. helm reads
//! passwords from files and standard input; only user names are on a command line. Charts of others are fetched first, within
//! limits for their size and the time; then helm works with the file. Only charts that are referred to by a digest are cached,
//! because a version can be pushed again.

mod address;
mod chart;
mod credentials;
mod error;
mod fetch;
mod helm;
mod home;
mod input;
mod isolation;
mod output;
mod packed;
mod program;
mod release;
mod render;
mod stored;
mod values;

pub use address::SourceError;
pub use chart::{Chart, Source};
pub use credentials::{Credentials, CredentialsError, RepositoryAuth, SecretReference};
pub use error::{Error, ErrorKind};
pub use fetch::fetch;
pub use helm::Helm;
pub use input::{Capabilities, Release};
pub use isolation::MEMORY;
pub use output::Rendered;
pub use packed::ArchiveError;
pub use program::ProgramError;
pub use release::{DeployOptions, STOP_GRACE, TimeLimit, install_or_upgrade, manifest_of, uninstall};
pub use render::{kustomize, template};
pub use stored::as_failed;
pub use values::values;
