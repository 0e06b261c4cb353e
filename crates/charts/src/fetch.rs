//! Fetches charts, and gives helm only those that are within the limits.
//!
//! helm fetches nothing: it gets a file. So it has no credentials of a registry or repository, and follows no redirect.

use std::{ffi::OsString, io, sync::Arc, time::Duration};

use billhook_policy::ChartSource;
use http::StatusCode;
use serde_json::{Value, json};

use crate::{
    address::{Address, Reference, SourceError, without_user},
    cache::{self, Content, Entry, Key},
    chart::{Chart, LocatedChart, Source},
    error::{Error, ErrorKind},
    helm::Helm,
    home::{Home, INDEX, REPOSITORIES, REPOSITORY},
    http::{Call, FetchError, Validators, is_absolute, join},
    index::{self, Version},
    packed::{MAX_PACKED, Packed},
    registry::Registry,
};

/// How long fetching a chart and the index of its repository may take.
pub(crate) const FETCH_TIME: Duration = Duration::from_secs(60);
/// The maximum size of the index of a repository; large ones have 20 MiB.
const MAX_INDEX: u64 = 50 << 20;
/// The folder for a chart that the user's own helm fetches.
const FETCHED: &str = "fetched";

/// Fetches a chart, and returns it as an archive. Nothing is done for the user's own charts.
///
/// # Errors
///
/// When the chart cannot be fetched within a minute, or is beyond the limits.
pub async fn fetch(chart: Chart, helm: &Helm) -> Result<Chart, Error> {
    let packed = match &chart.source {
        Source::Configured(ChartSource::Archive(_)) | Source::Reference { .. } => return Ok(chart),
        Source::Configured(source) => packed(&chart, source, helm).await,
    };
    match packed {
        Ok(packed) => Ok(ChartSource::Archive(packed.bytes.clone()).into()),
        Err(kind) => Err(Error { what: format!("fetch chart {}", chart.source), kind }),
    }
}

/// Returns a chart as helm is to read it: fetched and checked, except for a chart that the user's own helm resolves.
pub(crate) async fn locate(chart: &Chart, helm: &Helm, home: &Home) -> Result<LocatedChart, ErrorKind> {
    let source = match &chart.source {
        Source::Configured(source) => source,
        Source::Reference { reference, version } => {
            let version = version.iter().flat_map(|version| ["--version".into(), version.into()]);
            let (helm, flags) = (helm.program(), version.collect());
            return Ok(LocatedChart { helm, chart: reference.into(), flags, packed: None });
        }
    };
    let packed = packed(chart, source, helm).await?;
    let file = home.write("chart.tgz", &packed.bytes).map_err(ErrorKind::Folder)?;
    let helm = home.isolate(helm.program());
    Ok(LocatedChart { helm, chart: file.into(), flags: Vec::new(), packed: Some(packed) })
}

/// Returns the packed chart of a source.
async fn packed(chart: &Chart, source: &ChartSource, helm: &Helm) -> Result<Arc<Packed>, ErrorKind> {
    let fetch = async {
        match source {
            ChartSource::Archive(bytes) => check(bytes.clone()).await,
            ChartSource::Oci(reference) => of_registry(chart, &Reference::parse(reference)?, helm).await,
            ChartSource::RemoteArchive(url) => archive(chart, url, helm).await,
            ChartSource::Repository { url, name, version } => {
                of_repository(chart, url, name, version.as_deref(), helm).await
            }
        }
    };
    tokio::time::timeout(FETCH_TIME, fetch).await.map_err(|_| ErrorKind::FetchTime)?
}

async fn check(bytes: Vec<u8>) -> Result<Arc<Packed>, ErrorKind> {
    let packed = blocking(|| Packed::check(bytes)).await?;
    packed.map(Arc::new).map_err(ErrorKind::Archive)
}

/// Runs a function that takes some time on a thread for such ones.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ErrorKind> {
    tokio::task::spawn_blocking(work).await.map_err(|error| ErrorKind::Folder(io::Error::other(error)))
}

/// Returns a chart in a registry. One with a digest is fetched once with the same credentials; for a tag, the registry is asked
/// which digest it has.
async fn of_registry(chart: &Chart, reference: &Reference<'_>, helm: &Helm) -> Result<Arc<Packed>, ErrorKind> {
    let entry = chart.credentials.registry_entry(reference)?;
    let auth = chart.credentials.fitting(&reference.address())?;
    let authorities = auth.map(|auth| auth.authorities()).transpose()?.flatten();
    let known = entry.clone().map(|entry| Value::Object(entry).to_string());
    let place = format!("{}/{}", reference.host, reference.repository);
    let key = |digest: &str| cache::key("blob", &format!("{place}@{digest}"), known.as_deref(), authorities.as_deref());
    let pinned = reference.digest.map(|digest| key(&format!("manifest {digest}")));
    if let Some(found) = pinned.and_then(|key| cached(helm, key)) {
        return Ok(found);
    }
    let mut registry = Registry::new(&helm.client, reference, entry.as_ref(), authorities.as_deref());
    let digest = registry.chart(reference).await?;
    let packed = match cached(helm, key(&digest)) {
        Some(packed) => packed,
        None => check(registry.blob(&digest).await?).await?,
    };
    for key in [Some(key(&digest)), pinned].into_iter().flatten() {
        helm.cache.insert(key, Entry { content: Content::Chart(Arc::clone(&packed)), validators: None });
    }
    Ok(packed)
}

/// Returns a chart that the cache has and that cannot change.
fn cached(helm: &Helm, key: Key) -> Option<Arc<Packed>> {
    match helm.cache.get(key)?.content {
        Content::Chart(packed) => Some(packed),
        Content::Index(_) => None,
    }
}

/// Returns a packed chart at an address.
async fn archive(chart: &Chart, url: &str, helm: &Helm) -> Result<Arc<Packed>, ErrorKind> {
    let read = async |bytes: Vec<u8>| Ok(Content::Chart(check(bytes).await?));
    match current(chart, url, ("chart", "the packed chart", MAX_PACKED), helm, read).await? {
        Content::Chart(packed) => Ok(packed),
        Content::Index(_) => Err(ErrorKind::Folder(io::ErrorKind::InvalidData.into())),
    }
}

/// Returns what is at an address: from the cache, if the server confirms that it is the current version, or newly fetched.
async fn current(
    chart: &Chart,
    url: &str,
    (kind, what, limit): (&str, &'static str, u64),
    helm: &Helm,
    read: impl AsyncFnOnce(Vec<u8>) -> Result<Content, ErrorKind>,
) -> Result<Content, ErrorKind> {
    let auth = chart.credentials.fitting(&Address::of_url(url)?)?;
    let authorities = auth.map(|auth| auth.authorities()).transpose()?.flatten();
    let authorization = auth.and_then(|auth| auth.auth_header.as_deref()).map(str::trim);
    let key = cache::key(kind, url, authorization, authorities.as_deref());
    let known = helm.cache.get(key);
    let validators = known.as_ref().and_then(|entry| entry.validators.as_ref());
    let authorities = authorities.as_deref();
    let call = Call { authorization, authorities, validators, ..Call::get(url, what, limit) };
    let answer = helm.client.send(&call).await?;
    match (answer.status, known) {
        (StatusCode::NOT_MODIFIED, Some(known)) => return Ok(known.content),
        (StatusCode::UNAUTHORIZED, _) => {
            return Err(FetchError::Status { url: without_user(url), status: answer.status }.into());
        }
        _ => {}
    }
    let validators = Validators::of(&answer.headers);
    let content = read(answer.body.into()).await?;
    if validators.is_some() {
        helm.cache.insert(key, Entry { content: content.clone(), validators });
    }
    Ok(content)
}

/// Returns a chart in a repository.
async fn of_repository(
    chart: &Chart,
    url: &str,
    name: &str,
    version: Option<&str>,
    helm: &Helm,
) -> Result<Arc<Packed>, ErrorKind> {
    // helm finds a chart by this name below.
    if name.is_empty() || name.starts_with('.') || name.contains(['/', '\\']) {
        let problem = "the name of a chart in a repository must not be a path";
        return Err(SourceError { what: name.to_owned(), problem }.into());
    }
    let (address, query) = url.split_once('?').unwrap_or((url, ""));
    let query = if query.is_empty() { String::new() } else { format!("?{query}") };
    let index_url = format!("{}/index.yaml{query}", address.trim_end_matches('/'));
    let wrong = |problem: String| FetchError::Content { url: without_user(url), problem };
    let read = async |bytes: Vec<u8>| {
        let text = String::from_utf8(bytes).map_err(|_| wrong("its index is not UTF-8".to_owned()))?;
        Ok(Content::Index(text.into()))
    };
    let index = ("index", "the index of the repository", MAX_INDEX);
    let Content::Index(text) = current(chart, &index_url, index, helm, read).await? else {
        return Err(wrong("its index is a chart".to_owned()).into());
    };
    let known = {
        let name = name.to_owned();
        blocking(move || index::versions(&text, &name)).await?
    };
    let known = known.map_err(|problem| wrong(format!("its index cannot be read: {problem}")))?;
    if known.is_empty() {
        return Err(wrong(format!("chart {name} not found in its index")).into());
    }
    let found = match known.iter().find(|found| version == Some(&found.version)) {
        Some(exact) => Some(exact),
        None => choose(name, &known, version, helm).await?,
    };
    let described = version.map(|version| format!(" that matches {version}")).unwrap_or_default();
    let found = found.ok_or_else(|| wrong(format!("no version of chart {name}{described} found in its index")))?;
    let of_version = || wrong(format!("version {} of chart {name} has no address in its index", found.version));
    let reference = found.url.as_deref().ok_or_else(of_version)?;
    // As in helm, the query of a repository is that of its charts.
    let query = if is_absolute(reference) || reference.contains('?') { "" } else { &query };
    archive(chart, &format!("{}{query}", join(&index_url, reference)), helm).await
}

/// Lets helm choose the version of a chart, by its own rules about ranges and pre-releases. It reads a file and has no network.
async fn choose<'v>(
    name: &str,
    known: &'v [Version],
    version: Option<&str>,
    helm: &Helm,
) -> Result<Option<&'v Version>, ErrorKind> {
    let home = helm.home()?;
    let repository = json!({"name": REPOSITORY, "url": "https://none.invalid"});
    let repositories = json!({"apiVersion": "", "generated": "1970-01-01T00:00:00Z", "repositories": [repository]});
    for (file, content) in [(REPOSITORIES, repositories), (INDEX, index::excerpt(name, known))] {
        home.write(file, content.to_string().as_bytes()).map_err(ErrorKind::Folder)?;
    }
    let mut arguments: Vec<OsString> = ["search", "repo", "--output", "json"].map(Into::into).into();
    arguments.extend(version.map(|version| format!("--version={version}").into()));
    let chart = format!("{REPOSITORY}/{name}");
    arguments.extend(["--".into(), OsString::from(&chart)]);
    let output = home.isolate(helm.program()).run(&arguments).await.map_err(ErrorKind::Program)?;
    let found: Value = serde_json::from_str(&output).unwrap_or_default();
    let found = found.as_array().into_iter().flatten().find(|found| found["name"] == chart.as_str());
    let chosen = found.and_then(|found| found["version"].as_str());
    Ok(known.iter().find(|known| chosen == Some(&known.version)))
}

/// Lets the user's own helm fetch a chart, and returns its archive.
pub(crate) async fn pull(located: &LocatedChart, home: &Home) -> Result<Vec<u8>, ErrorKind> {
    let folder = home.create_folder(FETCHED).map_err(ErrorKind::Folder)?;
    let mut arguments: Vec<OsString> = vec!["pull".into(), "--destination".into(), folder.clone().into()];
    arguments.extend(located.flags.iter().cloned());
    arguments.extend(["--".into(), located.chart.clone()]);
    located.helm.run(&arguments).await.map_err(ErrorKind::Program)?;
    let only = || std::fs::read(folder.read_dir()?.next().ok_or(io::ErrorKind::NotFound)??.path());
    only().map_err(ErrorKind::Folder)
}
