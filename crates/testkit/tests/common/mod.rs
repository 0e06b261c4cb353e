//! Shared code of the tests that play scenarios.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
};

/// Returns the scenario files with their names.
pub fn scenarios() -> Vec<(String, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.sort();
    let name = |file: &Path| file.strip_prefix(&root).unwrap_or(file).with_extension("").display().to_string();
    files.into_iter().map(|file| (name(&file), file)).collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in folder.read_dir().into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
}

/// Formats an error: the cause first, then the step and the output.
pub fn explain(error: &anyhow::Error) -> String {
    let causes: Vec<_> = error.chain().map(ToString::to_string).collect();
    causes.into_iter().rev().collect::<Vec<_>>().join("\n")
}

/// Prints a text.
pub fn print(text: &str) {
    drop(std::io::stdout().write_all(text.as_bytes()));
}
