//! Renders charts and kustomizations with the `helm` and `kubectl` programs, and deploys releases with helm.
//!
//! No library renders charts exactly like helm, so this crate runs the programs themselves. The caller names the programs
//! and, for releases, the cluster.
//!
//! helm also fetches charts. Each run has a private folder with only the credentials that the chart needs. helm reads
//! passwords from files and standard input; only user names are on a command line. Fetched charts are not cached, because a
//! version can be pushed again.

mod address;
mod chart;
mod credentials;
mod error;
mod home;
mod input;
mod output;
mod program;
mod release;
mod render;
mod stored;
mod values;

pub use address::SourceError;
pub use chart::{Chart, Source};
pub use credentials::{Credentials, CredentialsError, RepositoryAuth, SecretReference};
pub use error::{Error, ErrorKind};
pub use input::{Capabilities, Release};
pub use output::Rendered;
pub use program::ProgramError;
pub use release::{DeployOptions, install_or_upgrade, manifest_of, uninstall};
pub use render::{kustomize, template};
pub use stored::as_failed;
pub use values::values;
