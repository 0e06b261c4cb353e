//! Watches a folder for changes of its manifests, wherever its path and the links in it lead.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::sync::Notify;

use crate::{
    input::is_manifest,
    watched::{Places, Watched, id, identified, look_up},
};

/// A folder that is watched.
pub(super) struct Folder {
    path: PathBuf,
    watched: Watched,
}

/// Tells whether the manifests of a folder are the same as before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stamp {
    /// The folder cannot be read.
    Unreadable(io::ErrorKind),
    /// What identifies the version of each manifest.
    Manifests(BTreeMap<OsString, Version>),
}

/// The version of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    id: (u64, u64),
    length: u64,
    /// When its content and its metadata were changed.
    times: [(i64, i64); 2],
}

impl Folder {
    /// Starts to watch a folder, which need not exist.
    pub(super) fn watch(path: PathBuf) -> Result<Self, notify::Error> {
        let watched = Watched::new(|| places(&path))?;
        Ok(Self { path, watched })
    }

    /// Returns what is notified of each change, also while another thread uses the folder.
    pub(super) fn reports(&self) -> Arc<Notify> {
        self.watched.reports()
    }

    /// Watches the directories to which the path leads now. To be called after each report.
    pub(super) fn follow(&mut self) -> Result<(), notify::Error> {
        self.watched.follow(|| places(&self.path))
    }

    /// Returns whether its manifests are the same as before.
    pub(super) fn stamp(&self) -> Stamp {
        let entries = match std::fs::read_dir(&self.path) {
            Ok(entries) => entries,
            Err(error) => return Stamp::Unreadable(error.kind()),
        };
        let version = |entry: io::Result<std::fs::DirEntry>| {
            let (path, name) = entry.ok().map(|entry| (entry.path(), entry.file_name()))?;
            let found = std::fs::metadata(&path).ok().filter(|found| is_manifest(&path) && found.is_file())?;
            let times = [(found.mtime(), found.mtime_nsec()), (found.ctime(), found.ctime_nsec())];
            Some((name, Version { id: id(&found), length: found.len(), times }))
        };
        Stamp::Manifests(entries.filter_map(version).collect())
    }
}

impl Stamp {
    /// Returns the first manifest that differs from an earlier stamp.
    pub(super) fn changed_since<'a>(&'a self, earlier: &'a Self) -> Option<&'a OsStr> {
        let (Self::Manifests(now), Self::Manifests(before)) = (self, earlier) else { return None };
        let is_changed = |name: &&OsString| now.get(*name) != before.get(*name);
        now.keys().chain(before.keys()).find(is_changed).map(OsString::as_os_str)
    }
}

/// Returns the directories to watch for a folder.
fn places(path: &Path) -> Places {
    let mut places = Places::new();
    let found = look_up(path, &mut places).filter(|folder| folder.is_dir());
    if let Some(folder) = found {
        let entries = std::fs::read_dir(&folder).into_iter().flatten().filter_map(Result::ok);
        for entry in entries.filter(|entry| is_manifest(&entry.path())) {
            if entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
                look_up(&entry.path(), &mut places);
            }
        }
        places.entry(folder).or_default().manifests = true;
    }
    identified(places)
}

#[cfg(test)]
mod tests;
