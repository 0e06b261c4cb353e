//! What the templates of a chart see.

use std::{
    ffi::OsString,
    io::{self, Write as _},
    path::Path,
};

use billhook_objects::yaml;
use billhook_policy::ChartSource;
use flate2::{Compression, write::GzEncoder};
use serde_json::Value;

use crate::{Capabilities, Chart, Error, ErrorKind, Release, Source, chart::Told, home::Home};

/// The template that says it.
const TEMPLATE: &str = "templates/billhook-values.yaml";
const TEXT: &str = r#"{{ dict "Values" .Values "Release" .Release | toJson }}"#;
/// Where a chart is put that has to be fetched first.
const FETCHED: &str = "fetched";

/// What the templates of a packed chart see, as an object with `Values` and `Release`: the values with the
/// chart's own defaults and those of its dependencies, as helm itself puts them together.
///
/// All templates are rendered for it, without a cluster. `skip_schema_validation` needs helm 3.16.
///
/// # Errors
///
/// When the chart cannot be had, or when helm cannot be run or fails (then with its own words).
pub async fn values(
    chart: &Chart,
    release: &Release<'_>,
    capabilities: Option<&Capabilities>,
    skip_schema_validation: bool,
    helm: &Path,
) -> Result<Value, Error> {
    let read = async {
        let home = Home::new().map_err(ErrorKind::Folder)?;
        let told = chart.tell(helm, &home).await?;
        let packed = match &chart.source {
            Source::Configured(ChartSource::Archive(bytes)) => bytes.clone(),
            _ => fetch(&told, &home).await?,
        };
        let chart = with_template(&packed).and_then(|bytes| home.write("with-values.tgz", &bytes));
        let mut arguments: Vec<OsString> = ["template", "--show-only", TEMPLATE].map(Into::into).into();
        arguments.extend(release.arguments(&home)?);
        arguments.extend(capabilities.into_iter().flat_map(Capabilities::arguments));
        if skip_schema_validation {
            arguments.push("--skip-schema-validation".into());
        }
        arguments.extend(["--".into(), release.name.into(), chart.map_err(ErrorKind::Folder)?.into()]);
        let output = told.helm.run(&arguments).await.map_err(ErrorKind::Program)?;
        let documents = yaml::parse(&output).map_err(ErrorKind::Yaml)?;
        Ok(documents.into_iter().next().map(|document| document.value).unwrap_or_default())
    };
    read.await.map_err(|kind| Error { what: format!("read the values of chart {}", chart.source), kind })
}

/// Fetches a chart, and reads it.
async fn fetch(told: &Told, home: &Home) -> Result<Vec<u8>, ErrorKind> {
    let folder = home.path().join(FETCHED);
    std::fs::create_dir(&folder).map_err(ErrorKind::Folder)?;
    let mut arguments: Vec<OsString> = vec!["pull".into(), "--destination".into(), folder.clone().into()];
    arguments.extend(told.flags.iter().cloned());
    arguments.extend(["--".into(), told.chart.clone()]);
    told.helm.run(&arguments).await.map_err(ErrorKind::Program)?;
    let only = || std::fs::read(folder.read_dir()?.next().ok_or(io::ErrorKind::NotFound)??.path());
    only().map_err(ErrorKind::Folder)
}

/// A packed chart with the template.
///
/// The template is put before it: files in a tar archive follow one another, and so do the parts of a gzip stream.
/// Nothing has to be unpacked, so that nothing in an archive can lead to other files of the machine.
fn with_template(packed: &[u8]) -> io::Result<Vec<u8>> {
    let mut header = tar::Header::new_ustar();
    // The name of the folder does not matter to helm.
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

/// What the parts of a tar archive are multiples of.
const BLOCK: usize = 512;
