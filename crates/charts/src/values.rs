//! Reads the values that the templates of a chart see.

use std::{
    ffi::OsString,
    io::{self, Write as _},
};

use billhook_objects::yaml;
use flate2::{Compression, write::GzEncoder};
use serde_json::Value;

use crate::{
    chart::Chart,
    error::{Error, ErrorKind},
    fetch::{locate, pull},
    helm::Helm,
    input::{Capabilities, Release},
};

/// The template that prints the values.
const TEMPLATE: &str = "templates/billhook-values.yaml";
const TEXT: &str = r#"{{ dict "Values" .Values "Release" .Release | toJson }}"#;

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
    helm: &Helm,
) -> Result<Value, Error> {
    let read = async {
        let home = helm.home()?;
        let located = locate(chart, helm, &home).await?;
        let with_template = match &located.packed {
            Some(packed) => with_template(&packed.bytes),
            None => with_template(&pull(&located, &home).await?),
        };
        let chart = with_template.and_then(|bytes| home.write("with-values.tgz", &bytes));
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
