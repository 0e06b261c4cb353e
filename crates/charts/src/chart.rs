//! Where a chart comes from, and the arguments with which helm fetches it.

use std::{ffi::OsString, fmt, io, sync::Arc};

use billhook_policy::ChartSource;
use serde_json::json;

use crate::{
    address::{Address, Reference, SourceError, without_user},
    credentials::{Credentials, RepositoryAuth},
    error::{Error, ErrorKind},
    helm::Helm,
    home::{Home, REGISTRIES, REPOSITORIES},
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
    /// The source in the configuration of a DeployItem. In a registry, helm finds only tags that are versions. If a reference
    /// has a digest, the tag is ignored; without both, it means the newest version.
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

impl LocatedChart {
    fn flag(&mut self, name: &str, value: impl Into<OsString>) {
        self.flags.extend([name.into(), value.into()]);
    }

    fn version(&mut self, version: Option<&str>) {
        if let Some(version) = version {
            self.flag("--version", version);
        }
    }
}

/// The name of the repository in the run's own list of repositories.
const REPOSITORY: &str = "charts";
/// The index of that repository, where helm expects it.
const INDEX: &str = "cache/repository/charts-index.yaml";
/// The maximum size of the index of a repository; large ones have 20 MiB.
const MAX_INDEX: u64 = 50 << 20;

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

    /// Writes the files that helm needs to fetch the chart, and returns the arguments.
    pub(crate) async fn fetch_arguments(&self, helm: &Helm, home: &Home) -> Result<LocatedChart, ErrorKind> {
        let helm = helm.program();
        let helm = if matches!(self.source, Source::Reference { .. }) { helm } else { home.isolate(helm) };
        let mut located = LocatedChart { helm, chart: OsString::new(), flags: Vec::new(), packed: None };
        let configured = match &self.source {
            Source::Reference { reference, version } => {
                located.chart = reference.into();
                located.version(version.as_deref());
                return Ok(located);
            }
            Source::Configured(configured) => configured,
        };
        match configured {
            ChartSource::Oci(reference) => {
                self.locate_in_registry(&Reference::parse(reference)?, home, &mut located)?
            }
            ChartSource::Archive(bytes) => {
                located.chart = home.write("chart.tgz", bytes).map_err(ErrorKind::Folder)?.into();
            }
            ChartSource::RemoteArchive(url) => self.locate_archive(url, home, &mut located)?,
            ChartSource::Repository { url, name, version } => {
                // helm first looks for a file with this path.
                if name.is_empty() || name.starts_with('.') || name.contains(['/', '\\']) {
                    let problem = "the name of a chart in a repository must not be a path";
                    return Err(SourceError { what: name.clone(), problem }.into());
                }
                self.add_repository(url, home, &located.helm).await?;
                located.chart = format!("{REPOSITORY}/{name}").into();
                located.version(version.as_deref());
            }
        }
        Ok(located)
    }

    fn locate_in_registry(
        &self,
        reference: &Reference<'_>,
        home: &Home,
        located: &mut LocatedChart,
    ) -> Result<(), ErrorKind> {
        if let Some(file) = self.credentials.registry_file(reference)? {
            home.write(REGISTRIES, file.to_string().as_bytes()).map_err(ErrorKind::Folder)?;
        }
        if let Some(file) = authorities(self.credentials.fitting(&reference.address())?, home)? {
            located.flag("--ca-file", file);
        }
        let (chart, version) = reference.chart_and_version();
        located.chart = chart.into();
        located.version(version.as_deref());
        Ok(())
    }

    /// An archive with credentials is configured as the only chart of a repository: for a single address, helm accepts a
    /// password only on its command line, where other users of the machine can read it.
    fn locate_archive(&self, url: &str, home: &Home, located: &mut LocatedChart) -> Result<(), ErrorKind> {
        located.chart = url.into();
        let Some(auth) = self.credentials.fitting(&Address::of_url(url)?)? else { return Ok(()) };
        let (username, password) = auth.user_and_password()?.unwrap_or_default();
        let ca_file = authorities(Some(auth), home)?.unwrap_or_default();
        let ca_file = ca_file.to_string_lossy();
        let repository =
            json!({"name": REPOSITORY, "url": url, "username": username, "password": password, "caFile": ca_file});
        let repositories = json!({"apiVersion": "", "generated": NEVER, "repositories": [repository]});
        let chart = json!({"apiVersion": "v2", "name": REPOSITORY, "version": "0.0.0", "urls": [url]});
        let index = json!({"apiVersion": "v1", "generated": NEVER, "entries": {REPOSITORY: [chart]}});
        for (name, content) in [(REPOSITORIES, repositories), (INDEX, index)] {
            home.write(name, content.to_string().as_bytes()).map_err(ErrorKind::Folder)?;
        }
        Ok(())
    }

    async fn add_repository(&self, url: &str, home: &Home, helm: &Program) -> Result<(), ErrorKind> {
        let auth = self.credentials.fitting(&Address::of_url(url)?)?;
        let pair = auth.map(RepositoryAuth::user_and_password).transpose()?.flatten();
        let mut arguments: Vec<OsString> = ["repo", "add"].map(Into::into).into();
        if let Some(file) = authorities(auth, home)? {
            arguments.extend(["--ca-file".into(), file]);
        }
        let mut input = "";
        if let Some((user, password)) = &pair {
            arguments.extend(["--username", user, "--password-stdin"].map(Into::into));
            input = password;
        }
        arguments.extend(["--", REPOSITORY, url].map(Into::into));
        helm.run_with_input(&arguments, input).await.map_err(ErrorKind::Program)?;
        let index = std::fs::metadata(home.path().join(INDEX)).map_err(ErrorKind::Folder)?;
        if index.len() > MAX_INDEX {
            let problem = "the index of the repository is larger than 50 MiB";
            return Err(SourceError { what: without_user(url), problem }.into());
        }
        Ok(())
    }
}

const NEVER: &str = "1970-01-01T00:00:00Z";

/// Writes the CA certificates of credentials to a file, if they have any.
fn authorities(auth: Option<&RepositoryAuth>, home: &Home) -> Result<Option<OsString>, ErrorKind> {
    let pem = auth.map(RepositoryAuth::authorities).transpose()?.flatten();
    let file = pem.map(|pem| home.write_authorities(&pem)).transpose();
    file.map(|file| file.map(Into::into)).map_err(|error: io::Error| ErrorKind::Folder(error))
}
