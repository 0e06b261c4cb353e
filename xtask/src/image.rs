//! `cargo xtask image`: builds the image of billhook as an OCI image layout, without a container engine, and pushes it.

mod contents;
mod layer;
mod layout;
mod program;
mod release;
#[cfg(test)]
mod tests;

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context as _, Result, bail, ensure};
use billhook_testkit::control_plane::Binaries;

use self::layer::Layer;
use crate::progress;

pub(crate) use self::program::build_for_tests;

/// The version of billhook, which is the tag of its image.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Build the image as an OCI image layout, without a container engine, and push it
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder for the image layout; an earlier layout in it is replaced
    #[arg(long, value_name = "FOLDER", default_value = "target/image")]
    out: PathBuf,
    /// Profile to build billhook with
    #[arg(long, default_value = "dist")]
    profile: String,
    /// Push the image to this repository, such as registry.example/billhook, tagged with the version
    #[arg(long, value_name = "REPOSITORY")]
    push: Option<String>,
    /// Push even if the tag refers to another image, which it then no longer does
    #[arg(long, requires = "push")]
    replace: bool,
    /// Write a copy of deploy/ that refers to the pushed image by version and digest to this new folder
    #[arg(long, value_name = "FOLDER", requires = "push")]
    deploy: Option<PathBuf>,
    /// Only write the files of each layer below this new folder; the Dockerfile copies them
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["out", "push"])]
    layers: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let path = |given: &Path| std::path::absolute(root.join(given)).context("failed to find the current folder");
    // What is refused is refused before minutes of compilation.
    let [deploy, folders] = [&args.deploy, &args.layers].map(|folder| folder.as_deref().map(path).transpose());
    let (deploy, folders) = (deploy?, folders?);
    for new in [&deploy, &folders].into_iter().flatten() {
        ensure!(!new.exists(), "{} exists already; remove it or name another folder", new.display());
    }
    if let Some(repository) = &args.push {
        release::check_repository(repository)?;
    }

    let billhook = program::build(&args.profile)?;
    let helm = Binaries::helm(progress)?;
    let (layers, architecture) = contents::layers(&billhook, &helm)?;
    if let Some(folder) = folders {
        for layer in &layers {
            layer.unpack(&folder.join(layer.name))?;
        }
        progress(&format!("{} contains the files of each layer", folder.display()));
        return Ok(ExitCode::SUCCESS);
    }
    let out = path(&args.out)?;
    let digest = layout::write(&out, &layers, architecture)?;
    progress(&format!("{} contains the image {digest}", out.display()));
    let reference = match &args.push {
        None => digest,
        Some(repository) => {
            push(&Binaries::crane(progress)?, &out, repository, &digest, args.replace)?;
            if let Some(folder) = deploy {
                release::write(&root.join("deploy"), &folder, repository, &digest)?;
                progress(&format!("{} refers to the image", folder.display()));
            }
            format!("{repository}:{VERSION}@{digest}")
        }
    };
    writeln!(std::io::stdout(), "{reference}").context("failed to write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// Pushes an image layout, tagged with the version. A tag of another image is only replaced on request: it may be in use.
fn push(crane: &Path, layout: &Path, repository: &str, digest: &str, replace: bool) -> Result<()> {
    let reference = format!("{repository}:{VERSION}");
    let run = |args: &[&str]| {
        let output = Command::new(crane).args(args).output().context("failed to run crane")?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        anyhow::Ok((output.status.success(), text(&output.stdout), text(&output.stderr)))
    };
    // A repository without this tag, or without any image, is the usual case.
    let (exists, current, _) = run(&["digest", &reference])?;
    if exists && current == digest {
        progress(&format!("{reference} is this image already"));
        return Ok(());
    }
    if exists && !replace {
        bail!("{reference} is another image ({current}); raise the version, or add --replace");
    }
    let layout = layout.to_str().with_context(|| format!("{} is not UTF-8", layout.display()))?;
    let (pushed, _, problem) = run(&["push", layout, &reference])?;
    ensure!(pushed, "failed to push {reference}: {problem}");
    let (_, stored, problem) = run(&["digest", &reference])?;
    ensure!(stored == digest, "the registry stored {stored} as {reference} instead of {digest} {problem}");
    Ok(())
}

/// Reads a file.
fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("failed to read {}", path.display()))
}

/// Writes a file.
fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    fs::write(path, content).with_context(|| format!("failed to write {}", path.display()))
}

/// Creates a folder and its parents.
fn create_folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("failed to create {}", path.display()))
}
