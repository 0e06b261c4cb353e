//! Errors of operations on charts, kustomizations and releases.

use std::io;

use billhook_objects::{ManifestError, yaml};

use crate::{
    address::SourceError, credentials::CredentialsError, http::FetchError, packed::ArchiveError, program::ProgramError,
};

/// An operation on a chart, a kustomization or a release that failed.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct Error {
    /// The operation, such as `render chart shop`.
    pub what: String,
    /// The cause.
    #[source]
    pub kind: ErrorKind,
}

/// The cause of an [`Error`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The program is missing, could not be started, or failed.
    #[error(transparent)]
    Program(ProgramError),
    /// The reference or address of the chart is invalid.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// Credentials are invalid.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The packed chart is invalid, or beyond the limits.
    #[error(transparent)]
    Archive(ArchiveError),
    /// The chart could not be fetched.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// Fetching the chart took too long.
    #[error("fetching the chart took longer than 60 seconds")]
    FetchTime,
    /// The private folder of the run could not be written.
    #[error("write a temporary folder")]
    Folder(#[source] io::Error),
    /// The version that helm printed cannot be parsed.
    #[error("parse the version of helm: {0:?}")]
    Version(String),
    /// The output of the program is not YAML.
    #[error(transparent)]
    Yaml(yaml::Error),
    /// The output of the program contains documents that are not objects; one line for each.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Manifests(Vec<ManifestError>),
}
