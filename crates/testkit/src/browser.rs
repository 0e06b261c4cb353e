//! The browser of this machine, for the tests of pages.

use std::{env, path::PathBuf};

/// The names of the program in Linux distributions.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// Returns the Chromium that `BILLHOOK_CHROMIUM` names, or the first one in the `PATH`.
pub fn chromium() -> Option<PathBuf> {
    if let Some(path) = env::var_os("BILLHOOK_CHROMIUM") {
        return Some(path.into()).filter(|path: &PathBuf| path.is_file());
    }
    let path = env::var_os("PATH")?;
    let folders: Vec<_> = env::split_paths(&path).collect();
    NAMES.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name))).find(|path| path.is_file())
}
