//! Decides when the files of a watched folder are looked at and when they are read.

use std::time::Duration;

use tokio::time::Instant;

/// How long no file may have changed before they are read.
pub(in super::super) const QUIET: Duration = Duration::from_secs(2);
/// The pause between two looks, however many changes are reported.
const PAUSE: Duration = Duration::from_millis(500);
/// How long files may keep changing before this is told.
const PATIENCE: Duration = Duration::from_secs(60);

/// The files of a folder. `S` tells whether they are the same.
#[derive(Debug)]
pub(super) struct Files<S> {
    /// As they were when they were last looked at.
    known: Option<S>,
    /// Their changes that were not read yet.
    unread: Option<Changes>,
    /// Whether they may have changed since a look at them began.
    stale: bool,
    /// When the pause after the last look ends.
    rested: Instant,
    /// What is being done; a slow file system takes its time.
    busy: bool,
}

/// When the first and the last of several changes was found.
#[derive(Clone, Copy, Debug)]
struct Changes {
    first: Instant,
    last: Instant,
}

/// What is to be done with the files, one thing at a time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Task {
    Look,
    Read,
}

impl<S: PartialEq> Files<S> {
    /// Starts with files that were neither looked at nor read.
    pub(super) fn new(now: Instant) -> Self {
        let unread = Some(Changes { first: now, last: now });
        Self { known: None, unread, stale: true, rested: now, busy: false }
    }

    /// Returns when [`Self::begin`] returns something, unless there is an answer before.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        let look = self.stale.then_some(self.rested);
        look.into_iter().chain(self.read_at()).min().filter(|_| !self.busy)
    }

    fn read_at(&self) -> Option<Instant> {
        self.unread.map(|changes| changes.last + QUIET)
    }

    /// Begins what is due.
    pub(super) fn begin(&mut self, now: Instant) -> Option<Task> {
        let is_due = |at: Instant| at <= now && !self.busy;
        let task = if self.stale && is_due(self.rested) {
            self.stale = false;
            Task::Look
        } else if self.read_at().is_some_and(is_due) {
            Task::Read
        } else {
            return None;
        };
        self.busy = true;
        Some(task)
    }

    /// Asks for a look at the files, also if they are being looked at or read already.
    pub(super) fn ask(&mut self) {
        self.stale = true;
    }

    /// Takes the files of a look.
    pub(super) fn looked(&mut self, files: S, now: Instant) {
        self.busy = false;
        self.rested = now + PAUSE;
        if self.known.as_ref() != Some(&files) {
            self.changed(files, now);
        }
    }

    /// Takes the files before and after they were read. Returns whether they were the same since the last change was found.
    pub(super) fn read(&mut self, before: S, after: S, now: Instant) -> bool {
        self.busy = false;
        let is_whole = before == after && self.known.as_ref() == Some(&before);
        if is_whole {
            self.unread = None;
        } else {
            self.changed(after, now);
        }
        is_whole
    }

    fn changed(&mut self, files: S, now: Instant) {
        self.known = Some(files);
        let first = self.unread.map_or(now, |changes| changes.first);
        self.unread = Some(Changes { first, last: now });
    }

    /// Returns whether a change was found now, and they could not be read for long.
    pub(super) fn keep_changing(&self, now: Instant) -> bool {
        self.unread.is_some_and(|changes| changes.last == now && changes.first + PATIENCE <= now)
    }
}
