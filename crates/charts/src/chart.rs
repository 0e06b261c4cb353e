//! Where a chart comes from, and how helm is told to get it.

use std::{ffi::OsString, fmt, io, path::Path};

use billhook_policy::ChartSource;
use serde_json::json;

use crate::{
    Credentials, ErrorKind, RepositoryAuth, SourceError,
    address::{Address, Reference, without_user},
    home::{Home, REGISTRIES, REPOSITORIES},
    program::Program,
};

/// Where a chart comes from.
#[derive(Clone, PartialEq, Eq)]
pub enum Source {
    /// What helm finds by itself, with the repositories and credentials the user has set it up with: a folder, an
    /// archive, `REPOSITORY/NAME`, an `oci://` or `https://` address.
    Reference {
        /// The reference.
        reference: String,
        /// The version or range of versions; the newest where there is none.
        version: Option<String>,
    },
    /// What a configuration names. Of the tags in a registry, helm only finds those that are versions; a reference with
    /// a digest means that digest, and one with neither the newest version.
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

/// A chart and what opens the place where it lies.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Where it comes from.
    pub source: Source,
    /// Credentials; those that fit the source are used, and but for [`Source::Reference`] no others.
    pub credentials: Credentials,
    /// Talks HTTP to a registry ([`ChartSource::Oci`]), which has to be on a loopback address.
    pub plain_http: bool,
}

impl From<Source> for Chart {
    fn from(source: Source) -> Self {
        Self { source, credentials: Credentials::default(), plain_http: false }
    }
}

impl From<ChartSource> for Chart {
    fn from(source: ChartSource) -> Self {
        Source::Configured(source).into()
    }
}

/// A chart as helm is told of it.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) helm: Program,
    pub(crate) chart: OsString,
    pub(crate) flags: Vec<OsString>,
}

impl Told {
    fn flag(&mut self, name: &str, value: impl Into<OsString>) {
        self.flags.extend([name.into(), value.into()]);
    }

    fn version(&mut self, version: Option<&str>) {
        if let Some(version) = version {
            self.flag("--version", version);
        }
    }
}

/// The name that a repository has in a run's own list of repositories.
const REPOSITORY: &str = "charts";

impl Chart {
    /// Puts what helm needs into its folder.
    pub(crate) async fn tell(&self, helm: &Path, home: &Home) -> Result<Told, ErrorKind> {
        let helm = Program::helm(helm);
        let helm = if matches!(self.source, Source::Reference { .. }) { helm } else { home.isolate(helm) };
        let mut told = Told { helm, chart: OsString::new(), flags: Vec::new() };
        let configured = match &self.source {
            Source::Reference { reference, version } => {
                told.chart = reference.into();
                told.version(version.as_deref());
                return Ok(told);
            }
            Source::Configured(configured) => configured,
        };
        match configured {
            ChartSource::Oci(reference) => self.tell_reference(&Reference::parse(reference)?, home, &mut told)?,
            ChartSource::Archive(bytes) => {
                told.chart = home.write("chart.tgz", bytes).map_err(ErrorKind::Folder)?.into();
            }
            ChartSource::RemoteArchive(url) => self.tell_archive(url, home, &mut told)?,
            ChartSource::Repository { url, name, version } => {
                // helm looks for a file of that path first.
                if name.is_empty() || name.starts_with('.') || name.contains(['/', '\\']) {
                    let problem = "the name of a chart in a repository is a single word";
                    return Err(SourceError { what: name.clone(), problem }.into());
                }
                self.add_repository(url, home, &told.helm).await?;
                told.chart = format!("{REPOSITORY}/{name}").into();
                told.version(version.as_deref());
            }
        }
        Ok(told)
    }

    fn tell_reference(&self, reference: &Reference<'_>, home: &Home, told: &mut Told) -> Result<(), ErrorKind> {
        if self.plain_http {
            if !reference.is_loopback() {
                let problem = "HTTP without TLS is for registries on a loopback address";
                return Err(SourceError { what: self.source.to_string(), problem }.into());
            }
            told.flags.push("--plain-http".into());
        }
        if let Some(file) = self.credentials.registry_file(reference)? {
            home.write(REGISTRIES, file.to_string().as_bytes()).map_err(ErrorKind::Folder)?;
        }
        if let Some(file) = authorities(self.credentials.fitting(&reference.address())?, home)? {
            told.flag("--ca-file", file);
        }
        let (chart, version) = reference.chart_and_version();
        told.chart = chart.into();
        told.version(version.as_deref());
        Ok(())
    }

    /// An archive with credentials is made known as the only chart of a repository: helm takes a password for a single
    /// address only on its command line, where other users of the machine can read it.
    fn tell_archive(&self, url: &str, home: &Home, told: &mut Told) -> Result<(), ErrorKind> {
        told.chart = url.into();
        let Some(auth) = self.credentials.fitting(&Address::of_url(url)?)? else { return Ok(()) };
        let (username, password) = auth.user_and_password()?.unwrap_or_default();
        let ca_file = authorities(Some(auth), home)?.unwrap_or_default();
        let ca_file = ca_file.to_string_lossy();
        let repository =
            json!({"name": REPOSITORY, "url": url, "username": username, "password": password, "caFile": ca_file});
        let repositories = json!({"apiVersion": "", "generated": NEVER, "repositories": [repository]});
        let chart = json!({"apiVersion": "v2", "name": REPOSITORY, "version": "0.0.0", "urls": [url]});
        let index = json!({"apiVersion": "v1", "generated": NEVER, "entries": {REPOSITORY: [chart]}});
        let index_file = format!("cache/repository/{REPOSITORY}-index.yaml");
        for (name, content) in [(REPOSITORIES, repositories), (index_file.as_str(), index)] {
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
        Ok(())
    }
}

const NEVER: &str = "1970-01-01T00:00:00Z";

/// The file of the authorities that credentials bring, if they do.
fn authorities(auth: Option<&RepositoryAuth>, home: &Home) -> Result<Option<OsString>, ErrorKind> {
    let pem = auth.map(RepositoryAuth::authorities).transpose()?.flatten();
    let file = pem.map(|pem| home.write_authorities(&pem)).transpose();
    file.map(|file| file.map(Into::into)).map_err(|error: io::Error| ErrorKind::Folder(error))
}
