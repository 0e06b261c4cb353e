//! Where a chart comes from, and the credentials to fetch it.

use std::{ffi::OsString, fmt, sync::Arc};

use billhook_policy::ChartSource;

use crate::{
    address::{Address, Reference, SourceError, without_user},
    credentials::Credentials,
    error::Error,
    packed::Packed,
    program::Program,
};

/// Where a chart comes from.
#[derive(Clone, PartialEq, Eq)]
pub enum Source {
    /// A reference that helm resolves itself, with the repositories and credentials that the user has configured: a folder,
    /// an archive, `REPOSITORY/NAME`, an `oci://` or `https://` address.
    Reference {
        /// The reference.
        reference: String,
        /// The version or range of versions; the newest version if not set.
        version: Option<String>,
    },
    /// The source in the configuration of a DeployItem. If a reference to a registry has a digest, the tag is ignored; without
    /// both, it means the newest version.
    Configured(ChartSource),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let configured = match self {
            Self::Reference { reference, .. } => return f.write_str(reference),
            Self::Configured(configured) => configured,
        };
        match configured {
            ChartSource::Oci(reference) => f.write_str(reference),
            ChartSource::Archive(_) => f.write_str("in an archive"),
            ChartSource::RemoteArchive(url) => f.write_str(&without_user(url)),
            ChartSource::Repository { url, name, version } => {
                let version = version.as_ref().map(|version| format!(" {version}")).unwrap_or_default();
                write!(f, "{name}{version} of {}", without_user(url))
            }
        }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({self})")
    }
}

/// A chart, and the credentials to fetch it.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Where the chart comes from.
    pub source: Source,
    /// The credentials, of which only those for the source are used. [`Source::Reference`] ignores them.
    pub credentials: Credentials,
}

impl From<Source> for Chart {
    fn from(source: Source) -> Self {
        Self { source, credentials: Credentials::default() }
    }
}

impl From<ChartSource> for Chart {
    fn from(source: ChartSource) -> Self {
        Source::Configured(source).into()
    }
}

/// A chart with the program and the arguments that read it.
#[derive(Debug)]
pub(crate) struct LocatedChart {
    pub(crate) helm: Program,
    pub(crate) chart: OsString,
    pub(crate) flags: Vec<OsString>,
    /// The chart itself, if it was fetched already.
    pub(crate) packed: Option<Arc<Packed>>,
}

impl Chart {
    /// Returns the host that the chart is fetched from, without a port; none for an archive, and for a reference that helm
    /// resolves itself.
    ///
    /// # Errors
    ///
    /// When the reference or address is invalid.
    pub fn host(&self) -> Result<Option<String>, Error> {
        let host = match &self.source {
            Source::Reference { .. } | Source::Configured(ChartSource::Archive(_)) => return Ok(None),
            Source::Configured(ChartSource::Oci(reference)) => Reference::parse(reference).map(|found| found.address()),
            Source::Configured(ChartSource::RemoteArchive(url) | ChartSource::Repository { url, .. }) => {
                Address::of_url(url)
            }
        };
        let fail = |error: SourceError| Error { what: format!("fetch chart {}", self.source), kind: error.into() };
        host.map(|address| Some(address.host_without_port().to_owned())).map_err(fail)
    }
}
