//! Reads the values that the templates of a chart see.

use std::{
    ffi::OsString,
    io::{self, Write as _},
    path::Path,
};

use billhook_objects::yaml;
use billhook_policy::ChartSource;
use flate2::{Compression, write::GzEncoder};
use serde_json::Value;

use crate::{
    chart::{Chart, LocatedChart, Source},
    error::{Error, ErrorKind},
    home::Home,
    input::{Capabilities, Release},
};

/// The template that prints the values.
const TEMPLATE: &str = "templates/billhook-values.yaml";
const TEXT: &str = r#"{{ dict "Values" .Values "Release" .Release | toJson }}"#;
/// The folder for a fetched chart.
const FETCHED: &str = "fetched";

/// Returns what the templates of a packed chart see, as an object with `Values` and `Release`. helm merges the values with
/// the defaults of the chart and its dependencies.
///
/// helm renders all templates for this, without access to a cluster. `skip_schema_validation` needs helm 3.16.
///
/// # Errors
///
/// When the chart cannot be fetched, or when helm cannot be run or fails (with the error that it printed).
pub async fn values(
    chart: &Chart,
    release: &Release<'_>,
    capabilities: Option<&Capabilities>,
    skip_schema_validation: bool,
    helm: &Path,
) -> Result<Value, Error> {
    let read = async {
        let home = Home::new().map_err(ErrorKind::Folder)?;
        let located = chart.locate(helm, &home).await?;
        let packed = match &chart.source {
            Source::Configured(ChartSource::Archive(bytes)) => bytes.clone(),
            _ => fetch(&located, &home).await?,
        };
        let chart = with_template(&packed).and_then(|bytes| home.write("with-values.tgz", &bytes));
        let mut arguments: Vec<OsString> = ["template", "--show-only", TEMPLATE].map(Into::into).into();
        arguments.extend(release.arguments(&home)?);
        arguments.extend(capabilities.into_iter().flat_map(Capabilities::arguments));
        if skip_schema_validation {
            arguments.push("--skip-schema-validation".into());
        }
        arguments.extend(["--".into(), release.name.into(), chart.map_err(ErrorKind::Folder)?.into()]);
        let output = located.helm.run(&arguments).await.map_err(ErrorKind::Program)?;
        let documents = yaml::parse(&output).map_err(ErrorKind::Yaml)?;
        Ok(documents.into_iter().next().map(|document| document.value).unwrap_or_default())
    };
    read.await.map_err(|kind| Error { what: format!("read the values of chart {}", chart.source), kind })
}

/// Fetches a chart and returns its archive.
async fn fetch(located: &LocatedChart, home: &Home) -> Result<Vec<u8>, ErrorKind> {
    let folder = home.path().join(FETCHED);
    std::fs::create_dir(&folder).map_err(ErrorKind::Folder)?;
    let mut arguments: Vec<OsString> = vec!["pull".into(), "--destination".into(), folder.clone().into()];
    arguments.extend(located.flags.iter().cloned());
    arguments.extend(["--".into(), located.chart.clone()]);
    located.helm.run(&arguments).await.map_err(ErrorKind::Program)?;
    let only = || std::fs::read(folder.read_dir()?.next().ok_or(io::ErrorKind::NotFound)??.path());
    only().map_err(ErrorKind::Folder)
}

/// Adds the template to a packed chart.
///
/// The template is prepended: tar entries can be concatenated, and so can gzip members. Nothing is unpacked, so an archive
/// cannot write to other files of the machine.
fn with_template(packed: &[u8]) -> io::Result<Vec<u8>> {
    let mut header = tar::Header::new_ustar();
    // helm ignores the name of the folder.
    header.set_path(format!("chart/{TEMPLATE}"))?;
    header.set_size(TEXT.len() as u64);
    header.set_mode(0o644);
    header.set_cksum();
    let mut entry = header.as_bytes().to_vec();
    entry.extend(TEXT.as_bytes());
    entry.resize(entry.len().next_multiple_of(BLOCK), 0);
    let mut part = GzEncoder::new(Vec::new(), Compression::default());
    part.write_all(&entry)?;
    let mut whole = part.finish()?;
    whole.extend(packed);
    Ok(whole)
}

/// The block size of tar archives.
const BLOCK: usize = 512;
