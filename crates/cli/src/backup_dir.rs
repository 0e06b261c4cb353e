//! `--backup-dir`: live objects as files that only the user may read, because Secrets are among them.

use std::{
    fs::{self, DirBuilder, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use billhook_plan::SavedObject;

use crate::error::{CommandError, Exit, Problem};

/// A directory for the objects of one deletion.
pub(crate) struct BackupDir {
    path: PathBuf,
    /// How many files were written.
    pub(crate) files: usize,
}

impl BackupDir {
    /// Creates the directory. One that exists must be empty, so that no backup replaces another one.
    pub(crate) fn create(path: PathBuf) -> Result<Self, CommandError> {
        match open(&path) {
            Ok(true) => Ok(Self { path, files: 0 }),
            Ok(false) => {
                let problem = format!("{} is not empty; nothing was changed", path.display());
                Err(CommandError::input(problem).hint("name a new directory with --backup-dir"))
            }
            Err(error) => Err(failed(&path, &error)),
        }
    }

    /// Writes an object to a file of its own, as a manifest.
    pub(crate) fn save(&mut self, saved: SavedObject) -> Result<(), CommandError> {
        let key = saved.key();
        let place = key.namespace.map(|namespace| format!("{namespace}.")).unwrap_or_default();
        let name = format!("{:05}-{}.{place}{}.json", self.files, key.kind.kind, key.name);
        // The names of some kinds contain characters that not every file system has.
        let name = name.replace(|c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c), "_");
        let path = self.path.join(name);
        let text = format!("{:#}\n", saved.into_manifest());
        let options = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let written = options.and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
        written.map_err(|error| failed(&path, &error))?;
        self.files += 1;
        Ok(())
    }
}

/// Returns whether the directory is empty.
fn open(path: &Path) -> io::Result<bool> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let is_empty = fs::read_dir(path)?.next().is_none();
            if is_empty {
                fs::set_permissions(path, Permissions::from_mode(0o700))?;
            }
            Ok(is_empty)
        }
        created => created.map(|()| true),
    }
}

fn failed(path: &Path, error: &io::Error) -> CommandError {
    let problem = Problem::caused(format!("failed to write {}; nothing was deleted", path.display()), error);
    CommandError::new(Exit::Failed, problem)
}
