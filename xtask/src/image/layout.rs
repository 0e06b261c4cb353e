//! The OCI image layout: <https://github.com/opencontainers/image-spec/blob/main/image-layout.md>.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{Layer, VERSION, contents, create_folder, layer, write as write_file};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIGURATION: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// The file that marks a layout.
const MARK: &str = "oci-layout";

/// Writes an image with these layers to `folder`, replaces a layout there, and returns the digest of its manifest.
pub(super) fn write(folder: &Path, layers: &[Layer], architecture: &str) -> Result<String> {
    if folder.exists() {
        if !folder.join(MARK).is_file() {
            bail!("{} exists and is no image layout; remove it or name another folder", folder.display());
        }
        fs::remove_dir_all(folder).with_context(|| format!("failed to remove {}", folder.display()))?;
    }
    create_folder(&folder.join("blobs/sha256"))?;
    // First, so that a layout that was interrupted is replaced, too.
    write_file(&folder.join(MARK), json!({ "imageLayoutVersion": "1.0.0" }).to_string())?;

    let (mut uncompressed, mut descriptors) = (Vec::new(), Vec::new());
    for layer in layers {
        let tar = layer.tar()?;
        uncompressed.push(digest(&tar));
        let mut descriptor = blob(folder, LAYER, &layer::compress(&tar)?)?;
        descriptor["annotations"] = json!({ "org.opencontainers.image.title": layer.name });
        descriptors.push(descriptor);
    }
    let configuration = contents::configuration(architecture, &uncompressed);
    let configuration = blob(folder, CONFIGURATION, configuration.to_string().as_bytes())?;
    let annotations: serde_json::Map<_, _> =
        contents::LABELS.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": configuration,
        "layers": descriptors,
        "annotations": annotations,
    });
    let mut manifest = blob(folder, MANIFEST, manifest.to_string().as_bytes())?;
    let digest = manifest["digest"].as_str().unwrap_or_default().to_owned();
    manifest["platform"] = json!({ "architecture": architecture, "os": "linux" });
    manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": VERSION });
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [manifest] });
    write_file(&folder.join("index.json"), index.to_string())?;
    Ok(digest)
}

/// Stores content under its digest and returns its descriptor.
fn blob(folder: &Path, media_type: &str, content: &[u8]) -> Result<Value> {
    let digest = digest(content);
    write_file(&folder.join("blobs").join(digest.replace(':', "/")), content)?;
    Ok(json!({ "mediaType": media_type, "digest": digest, "size": content.len() }))
}

/// Returns `sha256:` and the hash of some content.
pub(super) fn digest(content: &[u8]) -> String {
    let hash: String = Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hash}")
}
