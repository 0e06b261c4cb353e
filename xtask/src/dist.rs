//! `cargo xtask dist`: builds the files to install: the program, its completions and its man pages.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, Result};

/// Build the files to install: the program, completions and man pages
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder for the files
    #[arg(long, value_name = "FOLDER", default_value = "target/distribution")]
    out: PathBuf,
}

/// Runs the command.
pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let out = std::path::absolute(root.join(&args.out))?;
    std::fs::create_dir_all(&out).with_context(|| format!("failed to create {}", out.display()))?;
    let mut pages = crate::cargo();
    pages.args(["run", "--quiet", "--package", "billhook", "--example", "pages", "--"]).arg(&out);
    let code = crate::run_to_end(pages)?;
    if code != ExitCode::SUCCESS {
        return Ok(code);
    }
    // Cargo copies the program, wherever the target folder is.
    let mut install = crate::cargo();
    install
        .args(["install", "--profile=dist", "--locked", "--no-track", "--force", "--path", "crates/cli", "--root"])
        .arg(&out);
    let code = crate::run_to_end(install)?;
    if code == ExitCode::SUCCESS {
        crate::progress(&format!("{} contains the program, its completions and its man pages", out.display()));
    }
    Ok(code)
}
