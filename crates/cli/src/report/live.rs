//! The live view: a line a group with what is done, for how long, and what blocks it.

use std::collections::BTreeMap;

use billhook_engine::{ApplyResult, Event, Status};
use billhook_objects::ObjectKey;
use billhook_plan::Operation;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::Instant;

use crate::{
    output::Paint,
    render::{duration, object},
};

use super::line::{ended, list};

/// How often the terminal is drawn at most, in a second.
const RATE: u8 = 12;
/// How many groups that are still to come are shown.
const COMING: usize = 3;

/// The live view of a run.
pub(super) struct Live {
    screen: MultiProgress,
    groups: Vec<Group>,
    width: usize,
    paint: Paint,
}

/// What is known of a group.
struct Group {
    title: String,
    total: usize,
    done: usize,
    verb: &'static str,
    readied: usize,
    begun: Option<Instant>,
    ended: Option<(Status, u64)>,
    /// Objects that are waited for, and why.
    waits: BTreeMap<ObjectKey, String>,
    bar: Option<ProgressBar>,
}

impl Live {
    pub(super) fn start(operation: Operation, nodes: &[(String, usize)], paint: Paint) -> Self {
        let screen = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(RATE));
        let verb = match operation {
            Operation::Apply => "applied",
            Operation::Delete => "gone",
        };
        let group = |(title, total): &(String, usize)| Group {
            title: title.clone(),
            total: *total,
            done: 0,
            verb,
            readied: 0,
            begun: None,
            ended: None,
            waits: BTreeMap::new(),
            bar: None,
        };
        let width = nodes.iter().map(|(title, _)| title.chars().count()).max().unwrap_or(0).min(40);
        let mut live = Self { screen, groups: nodes.iter().map(group).collect(), width, paint };
        (0..live.groups.len().min(COMING)).for_each(|at| live.show(at));
        live
    }

    pub(super) fn screen(&self) -> MultiProgress {
        self.screen.clone()
    }

    /// Leaves the lines as they are.
    pub(super) fn leave(&mut self) {
        for group in &self.groups {
            if let Some(bar) = &group.bar {
                bar.abandon();
            }
        }
    }

    fn show(&mut self, at: usize) {
        let Some(group) = self.groups.get_mut(at).filter(|group| group.bar.is_none()) else { return };
        let bar = self.screen.add(ProgressBar::new_spinner());
        if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
            bar.set_style(style);
        }
        bar.set_message(group.line(self.width, self.paint));
        group.bar = Some(bar);
    }

    pub(super) fn event(&mut self, event: &Event) {
        let (Event::NodeStarted { node, .. }
        | Event::Applied { node, .. }
        | Event::Ready { node, .. }
        | Event::Waiting { node, .. }
        | Event::Deleting { node, .. }
        | Event::Gone { node, .. }
        | Event::Appeared { node, .. }
        | Event::Recreated { node, .. }
        | Event::Refused { node, .. }
        | Event::FinalizersRemoved { node, .. }
        | Event::NodeFinished { node, .. }) = event
        else {
            return;
        };
        let at = *node;
        let Some(group) = self.groups.get_mut(at) else { return };
        group.event(event);
        if matches!(event, Event::NodeStarted { .. }) {
            (0..=at + COMING).for_each(|at| self.show(at));
        }
        if matches!(event, Event::NodeStarted { .. } | Event::NodeFinished { .. }) {
            self.draw();
        }
    }

    pub(super) fn draw(&mut self) {
        for group in &self.groups {
            if let Some(bar) = group.bar.as_ref().filter(|bar| !bar.is_finished()) {
                bar.set_message(group.line(self.width, self.paint));
                if group.ended.is_some() {
                    bar.abandon();
                }
            }
        }
    }
}

impl Group {
    fn event(&mut self, event: &Event) {
        match event {
            Event::NodeStarted { objects, .. } => {
                self.total = *objects;
                self.begun = Some(Instant::now());
            }
            Event::Applied { result, .. } => {
                self.done += 1;
                if *result == ApplyResult::Patched {
                    self.verb = "patched";
                }
            }
            Event::Ready { object, .. } => {
                self.waits.remove(object);
                self.readied += 1;
            }
            Event::Gone { object, .. } => {
                self.verb = "gone";
                self.done += 1;
                self.waits.remove(object);
            }
            Event::Recreated { object, .. } => {
                self.waits.remove(object);
            }
            Event::Appeared { .. } => self.total += 1,
            Event::Waiting { object, reason, .. } => {
                self.waits.insert(object.clone(), reason.clone());
            }
            Event::Deleting { object, finalizers, .. } if !finalizers.is_empty() => {
                self.waits.insert(object.clone(), list("finalizer", finalizers));
            }
            Event::Refused { object, message, retried: true, .. } => {
                self.waits.insert(object.clone(), format!("refused: {message}"));
            }
            Event::NodeFinished { status, elapsed_ms, .. } => self.ended = Some((*status, *elapsed_ms)),
            _ => {}
        }
    }

    /// `crds  3/10 gone  4.1s  Widget.example shop/a: finalizer a.example/x (and 2 more)`.
    fn line(&self, width: usize, paint: Paint) -> String {
        // A group that applies nothing waits for what earlier ones have applied.
        let waiting = self.done == 0 && (self.readied > 0 || !self.waits.is_empty()) && self.verb == "applied";
        let (done, verb) = if waiting { (self.readied, "ready") } else { (self.done, self.verb) };
        let count = format!("{done}/{} {verb}", self.total);
        let (took, state) = match (self.ended, self.begun) {
            (Some((status, elapsed)), _) => {
                let end = if status == Status::Done { String::new() } else { ended(status, paint) };
                (duration(std::time::Duration::from_millis(elapsed)), end)
            }
            (None, Some(begun)) => {
                let more = match self.waits.len() {
                    0 | 1 => String::new(),
                    many => format!(" (and {} more)", many - 1),
                };
                let first = self.waits.iter().next();
                let waits = first.map(|(key, why)| format!("{}: {why}{more}", object(key))).unwrap_or_default();
                (duration(begun.elapsed()), paint.warn(&waits.replace('\n', " ")))
            }
            (None, None) => return paint.dim(&format!("  {:<width$}  {count:>14}", self.title)),
        };
        let mark = match self.ended {
            Some((Status::Done, _)) => paint.good("✓"),
            Some(_) => paint.bad("✗"),
            None => paint.bold("›"),
        };
        format!("{mark} {:<width$}  {count:>14}  {took:>6}  {state}", self.title)
    }
}
