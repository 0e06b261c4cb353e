//! Decides when a watched folder is read and when a pass is made: `on(input) -> effects`, without I/O.
//!
//! The folder is read once nothing in it has changed for two seconds, so that a payload that is still being written is not
//! used. Passes use the last payload that was read without a problem. Other inputs are taken while the folder is looked at or
//! read: on a slow file system this takes longer than the Lease may remain without a renewal.

mod files;

use std::time::Duration;

use tokio::time::Instant;

pub(super) use self::files::QUIET;
use self::files::{Files, Task};

/// The first pause after a failed pass is this part of the interval, as in the reference; each is twice as long as the last.
const FIRST_RETRY: u32 = 16;
/// No pause after a failed pass is shorter, unless the interval is.
const SHORTEST_RETRY: Duration = Duration::from_secs(1);

/// What has happened. `C` is the content of the folder, `S` tells whether its files are the same.
#[derive(Clone, Debug)]
pub(super) enum Input<C, S> {
    /// The file watch reported a change.
    Reported,
    /// The files were looked at.
    Looked(S),
    /// The folder was read.
    Read(Reading<C, S>),
    /// This process leads from now on.
    Leads,
    /// It no longer leads.
    Lost,
    /// The pass ended.
    Ended { failed: bool },
    /// The objects that the last pass left to be deleted are gone.
    Gone,
    /// The time of [`Machine::wake_at`] has come.
    Time,
}

/// What was read, and the files before and after that.
#[derive(Clone, Debug)]
pub(super) struct Reading<C, S> {
    pub(super) before: S,
    pub(super) after: S,
    /// The payload, or why it cannot be used.
    pub(super) content: Result<C, String>,
}

/// What the driver does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect<C> {
    /// It looks at the files: [`Input::Looked`].
    Look,
    /// It reads the folder: [`Input::Read`].
    Read,
    /// It starts a pass: [`Input::Ended`].
    Start(C, Why),
    /// It stops the pass that runs: [`Input::Ended`].
    Stop(StopWhy),
    /// It ends with the problem of the folder, which was never usable.
    Reject,
    /// It tells that the folder cannot be used, and that the last payload remains in use.
    TellUnusable(String),
    /// It tells that the folder is not read because its files keep changing.
    TellChanging,
    /// It tells that the folder can be used again, and is as it was before.
    TellUsable,
}

/// Why a pass is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// This process leads from now on.
    Leading,
    /// The folder has changed.
    Changed,
    /// The interval is over.
    Interval,
    /// The last pass failed.
    Retry,
    /// The objects that the last pass left to be deleted are gone.
    Gone,
}

/// Why a pass is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopWhy {
    /// The folder has changed, and the next pass uses its new content.
    Changed,
    /// This process no longer leads.
    Lost,
}

/// Why the folder cannot be used.
#[derive(Debug, PartialEq, Eq)]
enum Unusable {
    Changing,
    Problem(String),
}

/// The pass that runs.
#[derive(Clone, Copy, Debug)]
struct Running {
    stopped: bool,
}

/// The state of a watched payload.
#[derive(Debug)]
pub(super) struct Machine<C, S> {
    interval: Duration,
    files: Files<S>,
    /// The last content without a problem.
    content: Option<C>,
    /// What was told, and remains.
    told: Option<Unusable>,
    leads: bool,
    pass: Option<Running>,
    /// When the next pass is due, and why.
    due: Option<(Instant, Why)>,
    /// How many passes failed in a row.
    failures: u32,
}

impl<C: Clone + PartialEq, S: PartialEq> Machine<C, S> {
    /// Starts with a folder that was not read yet.
    pub(super) fn new(interval: Duration, now: Instant) -> Self {
        Self {
            interval,
            files: Files::new(now),
            content: None,
            told: None,
            leads: false,
            pass: None,
            due: None,
            failures: 0,
        }
    }

    /// Returns whether there is a payload.
    pub(super) fn has_content(&self) -> bool {
        self.content.is_some()
    }

    /// Returns whether the folder can be used, as far as it is known.
    pub(super) fn is_usable(&self) -> bool {
        self.content.is_some() && self.told.is_none()
    }

    /// Returns when [`Input::Time`] is due.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.files.wake_at().into_iter().chain(self.pass_at()).min()
    }

    /// Returns when the next pass starts.
    pub(super) fn pass_at(&self) -> Option<Instant> {
        let can_start = self.leads && self.pass.is_none() && self.content.is_some();
        self.due.filter(|_| can_start).map(|(at, _)| at)
    }

    /// Returns what follows from an input.
    pub(super) fn on(&mut self, input: Input<C, S>, now: Instant) -> Vec<Effect<C>> {
        let mut effects = Vec::new();
        match input {
            Input::Reported => self.files.ask(),
            Input::Looked(files) => self.files.looked(files, now),
            Input::Read(reading) => self.read(reading, now, &mut effects),
            Input::Leads => {
                self.leads = true;
                self.due = Some((now, Why::Leading));
            }
            Input::Lost => {
                self.leads = false;
                self.stop(StopWhy::Lost, &mut effects);
            }
            Input::Ended { failed } => self.ended(failed, now),
            Input::Gone if self.pass.is_none() => self.due = Some((now, Why::Gone)),
            Input::Gone | Input::Time => {}
        }
        if self.files.keep_changing(now) && self.told != Some(Unusable::Changing) {
            self.told = Some(Unusable::Changing);
            effects.push(Effect::TellChanging);
        }
        self.start(now, &mut effects);
        effects.extend(self.files.begin(now).map(|task| match task {
            Task::Look => Effect::Look,
            Task::Read => Effect::Read,
        }));
        effects
    }

    fn read(&mut self, reading: Reading<C, S>, now: Instant, effects: &mut Vec<Effect<C>>) {
        if !self.files.read(reading.before, reading.after, now) {
            return;
        }
        match reading.content {
            Ok(content) if self.content.as_ref() == Some(&content) => {
                if self.told.take().is_some() {
                    effects.push(Effect::TellUsable);
                }
            }
            Ok(content) => {
                if self.content.replace(content).is_some() {
                    self.due = Some((now, Why::Changed));
                }
                self.told = None;
                self.failures = 0;
                self.stop(StopWhy::Changed, effects);
            }
            Err(_) if self.content.is_none() => effects.push(Effect::Reject),
            Err(problem) => {
                let told = self.told.replace(Unusable::Problem(problem.clone()));
                if told != self.told {
                    effects.push(Effect::TellUnusable(problem));
                }
            }
        }
    }

    fn stop(&mut self, why: StopWhy, effects: &mut Vec<Effect<C>>) {
        if let Some(pass) = self.pass.as_mut().filter(|pass| !pass.stopped) {
            pass.stopped = true;
            effects.push(Effect::Stop(why));
        }
    }

    fn ended(&mut self, failed: bool, now: Instant) {
        let Some(pass) = self.pass.take() else { return };
        self.failures = match failed {
            // A pass that was stopped says nothing about the next one.
            _ if pass.stopped => self.failures,
            true => self.failures.saturating_add(1),
            false => 0,
        };
        let (pause, why) = match self.failures {
            0 => (self.interval, Why::Interval),
            failures => (self.retry_pause(failures), Why::Retry),
        };
        self.due.get_or_insert((now + pause, why));
    }

    fn retry_pause(&self, failures: u32) -> Duration {
        let first = (self.interval / FIRST_RETRY).max(SHORTEST_RETRY);
        first.saturating_mul(2_u32.saturating_pow(failures - 1)).min(self.interval)
    }

    fn start(&mut self, now: Instant, effects: &mut Vec<Effect<C>>) {
        if self.pass_at().is_none_or(|at| at > now) {
            return;
        }
        let (Some(content), Some((_, why))) = (self.content.clone(), self.due.take()) else { return };
        self.pass = Some(Running { stopped: false });
        // A file system may not report what another machine writes.
        if why != Why::Changed {
            self.files.ask();
        }
        effects.push(Effect::Start(content, why));
    }
}

#[cfg(test)]
mod tests;
