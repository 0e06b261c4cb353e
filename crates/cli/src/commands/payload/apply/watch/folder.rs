//! Watches a folder for changes of its manifests, wherever its path and the links in it lead.
//!
//! A folder may be replaced as a whole, by a rename or by a link that changes its target, as in the volume of a ConfigMap.
//! So every directory in which a name of its path, or of a link in it, is looked up is watched for these names. They are
//! looked up again after each report.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ffi::{OsStr, OsString},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use notify::{
    ErrorKind, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _,
    event::{AccessKind, AccessMode},
};
use tokio::sync::Notify;

use crate::input::is_manifest;

/// The number of links that a path may lead through, as in Linux.
const MOST_LINKS: u32 = 40;
/// How often the directories are looked up again if they change meanwhile.
const ATTEMPTS: u32 = 5;

/// A folder that is watched.
pub(super) struct Folder {
    path: PathBuf,
    watched: Watched,
}

/// The directories that are watched.
struct Watched {
    places: Arc<Places>,
    changed: Arc<Notify>,
    /// It watches until it is dropped.
    _watcher: RecommendedWatcher,
}

/// Directories by their path without links.
type Places = BTreeMap<PathBuf, Place>;

/// What is watched in a directory.
#[derive(Debug, Default, PartialEq, Eq)]
struct Place {
    /// Its device and inode: another directory may have its path later.
    id: Option<(u64, u64)>,
    /// Whether all manifests in it are watched.
    manifests: bool,
    /// The names that are watched.
    names: BTreeSet<OsString>,
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
        let watched = Watched::new(places(&path))?;
        let mut folder = Self { path, watched };
        folder.follow()?;
        Ok(folder)
    }

    /// Waits until a change was reported.
    pub(super) async fn changed(&self) {
        self.watched.changed.notified().await;
    }

    /// Watches the directories to which the path leads now. To be called after each report.
    pub(super) fn follow(&mut self) -> Result<(), notify::Error> {
        for _ in 0..ATTEMPTS {
            let places = places(&self.path);
            if *self.watched.places == places {
                break;
            }
            // They are looked up again: a directory may have been replaced before it was watched.
            self.watched = Watched::new(places)?;
        }
        Ok(())
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

impl Watched {
    fn new(places: Places) -> Result<Self, notify::Error> {
        let (places, changed) = (Arc::new(places), Arc::new(Notify::new()));
        let (known, reported) = (Arc::clone(&places), Arc::clone(&changed));
        let mut watcher = notify::recommended_watcher(move |report: notify::Result<Event>| {
            // After an error, reports may be missing.
            if report.map_or(true, |event| concerns(&known, &event)) {
                reported.notify_one();
            }
        })?;
        for (directory, place) in &*places {
            match watcher.watch(directory, RecursiveMode::NonRecursive) {
                Err(error) if is_limit(&error) || (place.manifests && !is_missing(&error)) => return Err(error),
                // A directory above the folder may not be readable; then its changes are found at the next pass.
                Err(error) => tracing::debug!(directory = %directory.display(), %error, "not watched"),
                Ok(()) => {}
            }
        }
        Ok(Self { places, changed, _watcher: watcher })
    }
}

fn is_missing(error: &notify::Error) -> bool {
    match &error.kind {
        ErrorKind::PathNotFound => true,
        ErrorKind::Io(error) => error.kind() == io::ErrorKind::NotFound,
        _ => false,
    }
}

fn is_limit(error: &notify::Error) -> bool {
    matches!(error.kind, ErrorKind::MaxFilesWatch)
}

/// Returns whether an event is a change of what is watched.
fn concerns(places: &Places, event: &Event) -> bool {
    let is_read = match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => false,
        EventKind::Access(_) => true,
        _ => false,
    };
    // Events were lost.
    if event.need_rescan() || event.paths.is_empty() {
        return !is_read;
    }
    let is_watched = |path: &PathBuf| {
        let place = path.parent().and_then(|parent| places.get(parent));
        let name = path.file_name().unwrap_or_default();
        places.contains_key(path) || place.is_some_and(|place| place.watches(name))
    };
    !is_read && event.paths.iter().any(is_watched)
}

impl Place {
    fn watches(&self, name: &OsStr) -> bool {
        self.names.contains(name) || (self.manifests && is_manifest(Path::new(name)))
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
    for (directory, place) in &mut places {
        place.id = std::fs::metadata(directory).ok().map(|found| id(&found));
    }
    places
}

fn id(found: &std::fs::Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

/// Follows an absolute path, and adds each name that it looks up to the directory in which it does. Returns the path without
/// links, if it exists.
fn look_up(path: &Path, places: &mut Places) -> Option<PathBuf> {
    let names = |path: &Path| path.components().map(|part| part.as_os_str().to_owned()).collect::<VecDeque<_>>();
    let (mut ahead, mut here, mut links) = (names(path), PathBuf::new(), 0);
    while let Some(name) = ahead.pop_front() {
        match Path::new(&name).components().next() {
            Some(Component::Normal(_)) => {}
            Some(Component::ParentDir) => {
                here.pop();
                continue;
            }
            Some(Component::RootDir | Component::Prefix(_)) => {
                here.push(&name);
                continue;
            }
            Some(Component::CurDir) | None => continue,
        }
        places.entry(here.clone()).or_default().names.insert(name.clone());
        let next = here.join(&name);
        if !std::fs::symlink_metadata(&next).ok()?.is_symlink() {
            here = next;
            continue;
        }
        links += 1;
        if links > MOST_LINKS {
            return None;
        }
        // An absolute target starts at the root.
        for part in names(&std::fs::read_link(&next).ok()?).into_iter().rev() {
            ahead.push_front(part);
        }
    }
    Some(here)
}

#[cfg(test)]
mod tests;
