//! A copy of `deploy/` that refers to a pushed image.
//!
//! `deploy/` itself names no digest: it would be that of an image in somebody else's registry, or of none at all.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, bail, ensure};

use super::{VERSION, create_folder, write as write_file};

/// The files with references, and the lines in them that are replaced: exactly one in each file.
const REFERENCES: [(&str, &str); 3] = [
    ("kustomize/base/kustomization.yaml", KUSTOMIZE),
    ("kustomize/webhook/kustomization.yaml", KUSTOMIZE),
    ("chart/values.yaml", CHART),
];
const KUSTOMIZE: &str = "- name: billhook\n  newTag: VERSION\n";
const CHART: &str = "  repository: billhook\n  # Defaults to the appVersion of the chart.\n  tag: \"\"\n  # Of the image's manifest; pods then run exactly this image.\n  digest: \"\"\n";

/// Fails if `repository` has a tag or a digest, or is not the name of a repository in a registry.
pub(super) fn check_repository(repository: &str) -> Result<()> {
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
    };
    let (host, name) = repository.split_once('/').unwrap_or_default();
    let (domain, port) = host.split_once(':').unwrap_or((host, "443"));
    if !is_part(domain) || port.parse::<u16>().is_err() || !name.split('/').all(is_part) {
        bail!(
            "{repository:?} is not the name of a repository: give HOST/NAME, such as registry.example/billhook, without a tag"
        );
    }
    Ok(())
}

/// Copies `from` to the new folder `to`, with references to an image by version and digest.
pub(super) fn write(from: &Path, to: &Path, repository: &str, digest: &str) -> Result<()> {
    copy(from, to)?;
    for (name, wanted) in REFERENCES {
        let path = to.join(name);
        let text = fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
        let old = wanted.replace("VERSION", VERSION);
        ensure!(text.matches(&old).count() == 1, "{} does not contain once:\n{old}", path.display());
        let new = if wanted == CHART {
            let (before, _) = wanted.rsplit_once("\"\"").context("no digest")?;
            format!("{before}{digest}\n").replace("repository: billhook", &format!("repository: {repository}"))
        } else {
            format!("- name: billhook\n  newName: {repository}\n  newTag: {VERSION}\n  digest: {digest}\n")
        };
        write_file(&path, text.replace(&old, &new))?;
    }
    Ok(())
}

/// Copies a folder, and the files that links in it lead to, so that the copy stands alone.
fn copy(from: &Path, to: &Path) -> Result<()> {
    if from.is_dir() {
        create_folder(to)?;
        for entry in fs::read_dir(from).with_context(|| format!("failed to list {}", from.display()))? {
            let name = entry?.file_name();
            copy(&from.join(&name), &to.join(&name))?;
        }
    } else {
        fs::copy(from, to).with_context(|| format!("failed to copy {}", from.display()))?;
    }
    Ok(())
}
