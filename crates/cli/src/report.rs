//! Shows the progress of a run as lines, as JSON, or as a live view, and then its summary.

mod hold;
mod line;
mod live;
mod summary;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use billhook_engine::{ApplyResult, Event, Hold, Progress, Sink, Status};
use billhook_objects::ObjectKey;
use tokio::time::Instant;

use crate::{output::Printer, render::plan::warnings, terminal};

use line::Stream;
use live::LiveView;

/// How long an object may be waited for before a line mentions it: most objects are ready, or gone, sooner.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often lines say what a run waits for while nothing changes.
const REMINDER: Duration = Duration::from_secs(30);

/// How a run is shown.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReportOptions {
    /// Print each event as a line of JSON instead of text.
    pub json: bool,
    /// Print a line for each event; without it, only for events that the live view does not show.
    pub lines: bool,
    /// Draw a live view on the terminal.
    pub live: bool,
    /// Show unchanged objects as well.
    pub verbose: bool,
    /// Mention groups only if they fail.
    pub quiet: bool,
    /// Print the warnings of the plan first.
    pub notes: bool,
}

/// Consumes the events of a run.
pub struct Reporter {
    printer: Printer,
    options: ReportOptions,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    progress: Progress,
    view: Option<LiveView>,
    /// Objects that are waited for and whose reason no line has mentioned yet, each with its node and since when.
    unmentioned: BTreeMap<ObjectKey, (usize, Instant)>,
    /// When the last line was printed, or there was nothing to print.
    said: Option<Instant>,
}

impl Reporter {
    /// Creates a reporter.
    pub fn new(printer: Printer, options: ReportOptions) -> Arc<Self> {
        Arc::new(Self { printer, options, state: Mutex::default() })
    }

    /// Returns the sink for the engine's events.
    pub fn sink(self: &Arc<Self>) -> Sink {
        let reporter = Arc::clone(self);
        Arc::new(move |event| reporter.event(&event))
    }

    /// Redraws the live view, and mentions objects that are still waited for. To be called regularly: time passes without
    /// events.
    pub fn tick(&self) {
        let mut state = self.state();
        let State { progress, view, unmentioned, said } = &mut *state;
        if let Some(view) = view {
            view.draw(progress);
        }
        let due = unmentioned.extract_if(.., |_, (_, since)| since.elapsed() >= PATIENCE);
        let mut lines = Vec::new();
        for (object, (node, _)) in due {
            let held = progress.nodes.get(node).and_then(|node| node.held.get(&object));
            if let Some(held @ (Hold::NotReady(_) | Hold::Blocked(_) | Hold::Finalizers(_))) = held {
                lines.push(line::waiting(&object, &hold::why(held), self.printer.err_paint()));
            }
        }
        let is_quiet = !self.options.live && !self.options.json;
        if is_quiet && said.get_or_insert_with(Instant::now).elapsed() >= REMINDER {
            lines.extend(line::reminders(progress, self.printer.err_paint()));
        }
        if !lines.is_empty() {
            *said = Some(Instant::now());
        }
        drop(state);
        lines.iter().for_each(|line| self.printer.err(line));
    }

    /// Ends the live view, leaving its last state on the screen.
    pub fn close(&self) {
        let mut state = self.state();
        if let Some(view) = state.view.take() {
            view.close(&state.progress, !self.options.quiet);
            terminal::restore();
            self.printer.set_live(None);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn event(&self, event: &Event) {
        if let Event::Started { notes, .. } = event
            && self.options.notes
            && !self.options.json
        {
            warnings(notes, self.printer.err_paint()).iter().for_each(|line| self.printer.err(line));
        }
        self.update(event);
        if self.options.json {
            self.printer.json_line(event);
        } else {
            self.print(event);
        }
        if matches!(event, Event::Finished(_)) {
            self.close();
            if !self.options.json {
                self.summary();
            }
        }
    }

    fn update(&self, event: &Event) {
        let mut state = self.state();
        let State { progress, view, unmentioned, said } = &mut *state;
        *said = Some(Instant::now());
        progress.fold(event);
        match event {
            Event::Started { .. } if self.options.live => {
                terminal::hide_interrupts();
                let started = LiveView::start(progress, self.printer.err_paint());
                self.printer.set_live(Some(started.screen()));
                *view = Some(started);
            }
            // The live view shows these objects itself, and JSON has the event.
            Event::Waiting { node, object, .. } | Event::Blocked { node, object, .. }
                if !self.options.live && !self.options.json =>
            {
                unmentioned.entry(object.clone()).or_insert_with(|| (*node, Instant::now()));
            }
            Event::NodeFinished { node, .. } => unmentioned.retain(|_, (of, _)| of != node),
            _ => {}
        }
        if let Some(view) = view {
            view.event(event, progress);
        }
    }

    fn print(&self, event: &Event) {
        let paint = (self.printer.out_paint(), self.printer.err_paint());
        let Some(line) = line::line(event, &self.state().progress, paint) else { return };
        let wanted = match (line.stream, event) {
            (_, Event::Applied { result: ApplyResult::Unchanged, .. }) => self.options.verbose,
            (_, Event::NodeStarted { .. } | Event::NodeFinished { status: Status::Done, .. }) if self.options.quiet => {
                false
            }
            (Stream::Result, _) => self.options.lines,
            (Stream::Progress, _) => !self.options.live,
            (Stream::Note, _) => true,
        };
        match line.stream {
            _ if !wanted => {}
            Stream::Result => self.printer.out(&line.text),
            Stream::Progress | Stream::Note => self.printer.err(&line.text),
        }
    }

    fn summary(&self) {
        let lines = summary::lines(&self.state().progress, (self.printer.out_paint(), self.printer.err_paint()));
        lines.results.iter().for_each(|line| self.printer.out(line));
        lines.problems.iter().for_each(|line| self.printer.err(line));
        lines.hints.iter().for_each(|hint| self.printer.hint(hint));
    }
}
