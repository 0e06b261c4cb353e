//! What a run says while it goes: events as lines, as JSON, or as a live view; and the summary at its end.

mod line;
mod live;
mod summary;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use billhook_engine::{ApplyResult, Event, Sink, Summary};
use billhook_objects::ObjectKey;
use billhook_plan::Operation;
use tokio::time::Instant;

use crate::output::Printer;

use line::Stream;
use live::Live;

/// How long an object may be not ready before a line says so.
const PATIENCE: Duration = Duration::from_secs(2);

/// How a run is shown.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReportOptions {
    /// One JSON event a line, in place of text.
    pub json: bool,
    /// A line for each event; without it, only what a live view cannot show.
    pub lines: bool,
    /// A live view on the terminal.
    pub live: bool,
    /// Unchanged objects too.
    pub verbose: bool,
}

/// Consumes the events of a run.
pub struct Reporter {
    printer: Printer,
    options: ReportOptions,
    state: Mutex<State>,
}

struct State {
    subject: String,
    operation: Operation,
    /// How many groups there are.
    groups: usize,
    applied: Applied,
    live: Option<Live>,
    /// What is waited for and was not said yet: most of it passes at once.
    waits: BTreeMap<ObjectKey, (Instant, Event)>,
}

/// How many objects were applied, by what the request did.
#[derive(Clone, Copy, Debug, Default)]
struct Applied {
    created: usize,
    configured: usize,
    adopted: usize,
    patched: usize,
}

impl Reporter {
    /// Makes a reporter.
    pub fn new(printer: Printer, options: ReportOptions) -> Arc<Self> {
        let state = State {
            subject: String::new(),
            operation: Operation::Delete,
            groups: 0,
            applied: Applied::default(),
            live: None,
            waits: BTreeMap::new(),
        };
        Arc::new(Self { printer, options, state: Mutex::new(state) })
    }

    /// Where the engine's events go.
    pub fn sink(self: &Arc<Self>) -> Sink {
        let reporter = Arc::clone(self);
        Arc::new(move |event| reporter.event(&event))
    }

    /// Draws the live view anew, and says what has been waited for long enough: time passes without events too.
    pub fn tick(&self) {
        let mut state = self.state();
        if let Some(live) = &mut state.live {
            live.draw();
        }
        let due = |_: &ObjectKey, wait: &mut (Instant, Event)| wait.0.elapsed() >= PATIENCE;
        let due: Vec<_> = state.waits.extract_if(.., due).collect();
        drop(state);
        due.iter().for_each(|(_, (_, event))| self.say(event));
    }

    /// Ends the live view before its time.
    pub fn close(&self) {
        let live = self.state().live.take();
        if let Some(mut live) = live {
            live.draw();
            live.leave();
            self.printer.set_live(None);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn event(&self, event: &Event) {
        self.count(event);
        if self.options.json {
            self.printer.json_line(event);
        } else if !self.later(event) {
            self.say(event);
        }
        if let Event::Finished(summary) = event {
            self.close();
            if !self.options.json {
                self.summary(summary);
            }
        }
    }

    /// Whether an event is a wait that is only said if it lasts.
    fn later(&self, event: &Event) -> bool {
        let mut state = self.state();
        match event {
            Event::Waiting { object, .. } => {
                let since = state.waits.get(object).map_or_else(Instant::now, |(since, _)| *since);
                state.waits.insert(object.clone(), (since, event.clone()));
                true
            }
            Event::Ready { object, .. } | Event::Refused { object, .. } => {
                state.waits.remove(object);
                false
            }
            Event::NodeFinished { .. } => {
                state.waits.clear();
                false
            }
            _ => false,
        }
    }

    fn count(&self, event: &Event) {
        let mut state = self.state();
        match event {
            Event::Started { operation, release, nodes, .. } => {
                state.operation = *operation;
                state.groups = nodes.len();
                state.subject = release.as_ref().map(|release| format!("release {release}")).unwrap_or_default();
                if self.options.live {
                    let live = Live::start(*operation, nodes, self.printer.err_paint());
                    self.printer.set_live(Some(live.screen()));
                    state.live = Some(live);
                }
            }
            Event::Applied { result: ApplyResult::Created, .. } => state.applied.created += 1,
            Event::Applied { result: ApplyResult::Configured, .. } => state.applied.configured += 1,
            Event::Applied { result: ApplyResult::Adopted, .. } => state.applied.adopted += 1,
            Event::Applied { result: ApplyResult::Patched, .. } => state.applied.patched += 1,
            _ => {}
        }
        if let Some(live) = &mut state.live {
            live.event(event);
        }
    }

    fn say(&self, event: &Event) {
        let groups = self.state().groups;
        let paint = (self.printer.out_paint(), self.printer.err_paint());
        let Some(line) = line::line(event, groups, paint) else { return };
        let wanted = match (line.stream, event) {
            (_, Event::Applied { result: ApplyResult::Unchanged, .. }) => self.options.verbose,
            (Stream::Result, _) => self.options.lines,
            // The live view says this itself.
            (Stream::Progress, _) => !self.options.live,
            (Stream::Note, _) => true,
        };
        match line.stream {
            _ if !wanted => {}
            Stream::Result => self.printer.out(&line.text),
            Stream::Progress | Stream::Note => self.printer.err(&line.text),
        }
    }

    fn summary(&self, summary: &Summary) {
        let state = self.state();
        let paint = (self.printer.out_paint(), self.printer.err_paint());
        let lines = summary::lines(summary, &state.subject, state.operation, state.applied, paint);
        drop(state);
        lines.results.iter().for_each(|line| self.printer.out(line));
        lines.problems.iter().for_each(|line| self.printer.err(line));
    }
}
