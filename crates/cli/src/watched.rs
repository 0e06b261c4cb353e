//! Watches paths for changes, wherever the links in them lead.
//!
//! A file or a folder may be replaced by a rename or by a link that changes its target, as in the volume of a ConfigMap or a
//! Secret. So every directory in which a name of a path, or of a link in it, is looked up is watched for these names. They are
//! looked up again after each report.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ffi::{OsStr, OsString},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Component, Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use notify::{
    ErrorKind, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _,
    event::{AccessKind, AccessMode, ModifyKind},
};
use tokio::sync::Notify;

use crate::input::is_manifest;

/// The number of links that a path may lead through, as in Linux.
const MOST_LINKS: u32 = 40;
/// How often the directories are looked up again if they change meanwhile.
const ATTEMPTS: u32 = 5;

/// The directories that are watched.
pub(crate) struct Watched {
    pub(crate) places: Arc<Places>,
    changed: Arc<Notify>,
    /// Whether some of them may not be watched any more.
    stale: Arc<AtomicBool>,
    /// It watches until it is dropped.
    _watcher: RecommendedWatcher,
}

/// Directories by their path without links.
pub(crate) type Places = BTreeMap<PathBuf, Place>;

/// What is watched in a directory.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// Its device and inode: another directory may have its path later.
    id: Option<(u64, u64)>,
    /// Whether all manifests in it are watched.
    pub(crate) manifests: bool,
    /// The names that are watched.
    names: BTreeSet<OsString>,
}

impl Watched {
    /// Starts to watch the directories that are found.
    pub(crate) fn new(find: impl Fn() -> Places) -> Result<Self, notify::Error> {
        let mut watched = Self::of(find(), Arc::default())?;
        watched.follow(find)?;
        Ok(watched)
    }

    /// Returns what is notified of each change, also while another thread follows the directories.
    pub(crate) fn reports(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }

    /// Watches the directories that are found now. To be called after each report.
    pub(crate) fn follow(&mut self, find: impl Fn() -> Places) -> Result<(), notify::Error> {
        for _ in 0..ATTEMPTS {
            let places = find();
            if *self.places == places && !self.stale.load(Ordering::Acquire) {
                return Ok(());
            }
            // They are looked up again: a directory may have been replaced before it was watched.
            *self = Self::of(places, Arc::clone(&self.changed))?;
        }
        // They change all the time, and are followed again.
        self.changed.notify_one();
        Ok(())
    }

    fn of(places: Places, changed: Arc<Notify>) -> Result<Self, notify::Error> {
        let (places, stale) = (Arc::new(places), Arc::new(AtomicBool::new(false)));
        let (known, ended, reported) = (Arc::clone(&places), Arc::clone(&stale), Arc::clone(&changed));
        let mut watcher = notify::recommended_watcher(move |report: notify::Result<Event>| {
            // After an error, reports may be missing.
            let (is_change, ends) =
                report.map_or((true, true), |event| (concerns(&known, &event), ends_watch(&known, &event)));
            if !is_change {
                return;
            }
            if ends {
                ended.store(true, Ordering::Release);
            }
            reported.notify_one();
        })?;
        for (directory, place) in &*places {
            match watcher.watch(directory, RecursiveMode::NonRecursive) {
                Err(error) if is_limit(&error) || (place.manifests && !is_missing(&error)) => return Err(error),
                // A directory above may not be readable; then its changes are found at the next look.
                Err(error) => tracing::debug!(directory = %directory.display(), %error, "not watched"),
                Ok(()) => {}
            }
        }
        Ok(Self { places, changed, stale, _watcher: watcher })
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

/// Returns whether an event is a change of what is watched. Most of those of a busy directory are not, and notify 8 cannot ask for
/// fewer.
fn concerns(places: &Places, event: &Event) -> bool {
    if matches!(event.kind, EventKind::Access(kind) if kind != AccessKind::Close(AccessMode::Write)) {
        return false;
    }
    let is_watched = |path: &PathBuf| {
        let place = path.parent().and_then(|parent| places.get(parent));
        let name = path.file_name().unwrap_or_default();
        places.contains_key(path) || place.is_some_and(|place| place.watches(name))
    };
    are_lost(event) || event.paths.iter().any(is_watched)
}

/// Returns whether a directory may not be watched any more after an event. The watch of one that is removed or renamed ends, even
/// if it returns, or if another one gets its path and its inode.
fn ends_watch(places: &Places, event: &Event) -> bool {
    let is_end = matches!(event.kind, EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_)));
    are_lost(event) || (is_end && event.paths.iter().any(|path| places.contains_key(path)))
}

/// Returns whether an event tells that others were lost.
fn are_lost(event: &Event) -> bool {
    event.need_rescan() || event.paths.is_empty()
}

impl Place {
    fn watches(&self, name: &OsStr) -> bool {
        self.names.contains(name) || (self.manifests && is_manifest(Path::new(name)))
    }
}

/// Remembers which directories these are.
pub(crate) fn identified(mut places: Places) -> Places {
    for (directory, place) in &mut places {
        place.id = std::fs::metadata(directory).ok().map(|found| id(&found));
    }
    places
}

/// Returns what identifies a file or a directory, whatever its path: its device and inode.
pub(crate) fn id(found: &std::fs::Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

/// Follows an absolute path, and adds each name that it looks up to the directory in which it does. Returns the path without
/// links, if it exists.
pub(crate) fn look_up(path: &Path, places: &mut Places) -> Option<PathBuf> {
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
pub(crate) mod tests;
