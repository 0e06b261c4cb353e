//! Packs charts for the files of a scenario.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow};
use flate2::{Compression, write::GzEncoder};
use k8s_openapi::ByteString;

/// The start of a placeholder, which is followed by a folder and `)`.
const MARK: &str = "$PACKED(";

/// Replaces each placeholder by its chart: a `.tgz` in base64 and quotes.
pub(super) fn fill(text: &str, directory: &Path) -> Result<String> {
    let mut parts = text.split(MARK);
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (folder, rest) = part.split_once(')').ok_or_else(|| anyhow!("{MARK} is not closed"))?;
        let packed = pack(&directory.join(folder)).with_context(|| format!("pack the chart {folder}"))?;
        filled += &serde_json::to_string(&ByteString(packed))?;
        filled += rest;
    }
    Ok(filled)
}

/// Packs a folder like `helm package`, but always with the same bytes.
fn pack(folder: &Path) -> Result<Vec<u8>> {
    let mut files = Vec::new();
    collect(folder, &mut files)?;
    files.sort();
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    for file in files {
        let content = std::fs::read(&file)?;
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len().try_into()?);
        header.set_mode(0o644);
        archive.append_data(&mut header, Path::new("chart").join(file.strip_prefix(folder)?), content.as_slice())?;
    }
    Ok(archive.into_inner()?.finish()?)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in folder.read_dir()? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}
