//! Looks at a watched folder and reads it.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
};

use billhook_payload::Settings;
use serde_json::json;

use super::{
    folder::{Folder, Stamp},
    machine::{self, Reading},
};
use crate::{
    commands::payload::apply::content::Content,
    error::{CommandError, Problem},
    log::Log,
    render::count,
};

/// What is found in the folder.
pub(super) type Input = machine::Input<Arc<Content>, Stamp>;

/// What it takes to read a folder, in whatever thread.
pub(super) struct Reader {
    folder: Folder,
    /// A relative path starts here.
    base: PathBuf,
    path: PathBuf,
    settings: Settings,
    log: Log,
    /// Whether the directories could not all be watched lately.
    unwatched: bool,
    /// The files when they were last looked at.
    stamp: Option<Stamp>,
    /// The name of the manifest whose change was found last.
    pub(super) changed: Option<OsString>,
    /// Why the folder could not be used when it was last read.
    pub(super) problem: Option<CommandError>,
}

impl Reader {
    pub(super) fn new(folder: Folder, base: &Path, path: &Path, settings: &Settings, log: Log) -> Self {
        let (base, path, settings) = (base.to_owned(), path.to_owned(), settings.clone());
        Self { folder, base, path, settings, log, unwatched: false, stamp: None, changed: None, problem: None }
    }

    /// Looks at the files, and watches the directories to which the path of the folder leads now.
    pub(super) fn look(&mut self) -> Input {
        self.follow();
        Input::Looked(self.stamp())
    }

    /// Reads the files.
    pub(super) fn read(&mut self) -> Input {
        let before = self.stamp();
        let content = Content::read(&self.base, &self.path, &self.settings).map(Arc::new);
        let after = self.stamp();
        let content = content.map_err(|error| {
            let problem = in_a_line(&error, &self.path);
            self.problem = Some(error);
            problem
        });
        Input::Read(Reading { before, after, content })
    }

    fn follow(&mut self) {
        let Err(error) = self.folder.follow() else {
            self.unwatched = false;
            return;
        };
        let folder = self.path.display();
        let text = format!("failed to watch {folder}: {error}; its changes are found at the next pass");
        if !std::mem::replace(&mut self.unwatched, true) {
            self.log.warn("folder-not-watched", json!({}), &text);
        }
    }

    fn stamp(&mut self) -> Stamp {
        let stamp = self.folder.stamp();
        let earlier = self.stamp.replace(stamp.clone());
        if let Some(name) = earlier.as_ref().and_then(|earlier| stamp.changed_since(earlier)) {
            self.changed = Some(name.to_owned());
        }
        stamp
    }
}

/// Returns the first problem of an error in a line, and how many there are.
fn in_a_line(error: &CommandError, folder: &Path) -> String {
    let first = error.problems.first().map_or_else(|| "unknown problem".to_owned(), Problem::line);
    match error.problems.len() {
        0 | 1 => first,
        all => {
            let folder = folder.display();
            format!("{first} (and {}; billhook payload lint {folder} lists them)", count(all - 1, "more problem"))
        }
    }
}
