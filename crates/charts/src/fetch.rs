//! Fetches charts, and gives helm only those that are within the limits.

use std::{ffi::OsString, io, sync::Arc, time::Duration};

use billhook_policy::ChartSource;
use sha2::{Digest as _, Sha256};

use crate::{
    address::Reference,
    chart::{Chart, LocatedChart, Source},
    error::{Error, ErrorKind},
    helm::Helm,
    home::Home,
    packed::{Key, Packed},
};

/// How long fetching a chart and the index of its repository may take.
pub(crate) const FETCH_TIME: Duration = Duration::from_secs(60);
/// The folder for a fetched chart.
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
///
/// It is fetched with a private folder of its own, so that a helm that works with a cluster has no credentials of a registry.
pub(crate) async fn locate(chart: &Chart, helm: &Helm, home: &Home) -> Result<LocatedChart, ErrorKind> {
    let Source::Configured(source) = &chart.source else {
        return chart.fetch_arguments(helm, home).await;
    };
    let packed = packed(chart, source, helm).await?;
    let file = home.write("chart.tgz", &packed.bytes).map_err(ErrorKind::Folder)?;
    let helm = home.isolate(helm.program());
    Ok(LocatedChart { helm, chart: file.into(), flags: Vec::new(), packed: Some(packed) })
}

/// Returns the packed chart of a source. A reference with a digest is fetched once with the same credentials.
async fn packed(chart: &Chart, source: &ChartSource, helm: &Helm) -> Result<Arc<Packed>, ErrorKind> {
    if let ChartSource::Archive(bytes) = source {
        return check(bytes.clone()).await;
    }
    let key = pinned(chart, source)?;
    if let Some(known) = key.and_then(|key| helm.cache.get(key)) {
        return Ok(known);
    }
    let fetch = async {
        let home = Home::new().map_err(ErrorKind::Folder)?;
        pull(&chart.fetch_arguments(helm, &home).await?, &home).await
    };
    let bytes = tokio::time::timeout(FETCH_TIME, fetch).await.map_err(|_| ErrorKind::FetchTime)??;
    let packed = check(bytes).await?;
    if let Some(key) = key {
        helm.cache.insert(key, Arc::clone(&packed));
    }
    Ok(packed)
}

async fn check(bytes: Vec<u8>) -> Result<Arc<Packed>, ErrorKind> {
    let checked = tokio::task::spawn_blocking(|| Packed::check(bytes)).await;
    let checked = checked.map_err(|error| ErrorKind::Folder(io::Error::other(error)))?;
    checked.map(Arc::new).map_err(ErrorKind::Archive)
}

/// Returns the key for a chart in a registry that has a digest: the same digest must not give access to the chart with
/// other credentials.
fn pinned(chart: &Chart, source: &ChartSource) -> Result<Option<Key>, ErrorKind> {
    let ChartSource::Oci(text) = source else { return Ok(None) };
    let reference = Reference::parse(text)?;
    if !reference.is_pinned() {
        return Ok(None);
    }
    let credentials = chart.credentials.registry_file(&reference)?;
    let authorities = chart.credentials.fitting(&reference.address())?.and_then(|auth| auth.custom_ca_data.as_ref());
    let whole = serde_json::json!([text, credentials, authorities]);
    Ok(Some(Sha256::digest(whole.to_string()).into()))
}

/// Fetches a chart and returns its archive.
pub(crate) async fn pull(located: &LocatedChart, home: &Home) -> Result<Vec<u8>, ErrorKind> {
    let folder = home.create_folder(FETCHED).map_err(ErrorKind::Folder)?;
    let mut arguments: Vec<OsString> = vec!["pull".into(), "--destination".into(), folder.clone().into()];
    arguments.extend(located.flags.iter().cloned());
    arguments.extend(["--".into(), located.chart.clone()]);
    located.helm.run(&arguments).await.map_err(ErrorKind::Program)?;
    let only = || std::fs::read(folder.read_dir()?.next().ok_or(io::ErrorKind::NotFound)??.path());
    only().map_err(ErrorKind::Folder)
}
