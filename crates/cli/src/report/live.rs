//! The live view: a row for each group with its counts, its elapsed time, and what holds it up.

use std::time::Duration;

use billhook_engine::{Event, NodeProgress, NodeState, Progress, Status};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::Instant;

use crate::{output::Paint, render::duration};

use super::{
    hold::held,
    line::{MANY, ended},
};

/// The highest rate at which the terminal is redrawn, per second.
const RATE: u8 = 12;
/// How many groups after the current one have a row.
const UPCOMING: usize = 3;
/// How many running groups have a row if there are many groups: one row counts them all.
const RUNNING: usize = 10;
/// The widest column of titles.
const MAX_WIDTH: usize = 40;

/// Draws the state of a run.
pub(super) struct LiveView {
    screen: MultiProgress,
    rows: Vec<Row>,
    /// With many groups: the row that counts them, and the rows for those that are running.
    shared: Vec<ProgressBar>,
    begun: Instant,
    width: usize,
    paint: Paint,
}

/// The row of a group on the screen.
#[derive(Clone, Default)]
struct Row {
    bar: Option<ProgressBar>,
    started: Option<Instant>,
}

impl LiveView {
    pub(super) fn start(progress: &Progress, paint: Paint) -> Self {
        let screen = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(RATE));
        let width = progress.nodes.iter().map(|node| node.title.chars().count()).max().unwrap_or(0).min(MAX_WIDTH);
        let (rows, begun) = (vec![Row::default(); progress.nodes.len()], Instant::now());
        let mut view = Self { screen, rows, shared: Vec::new(), begun, width, paint };
        if progress.nodes.len() > MANY {
            view.shared = (0..=RUNNING).map(|_| view.bar()).collect();
        }
        view.show(UPCOMING);
        view.draw(progress);
        view
    }

    pub(super) fn screen(&self) -> MultiProgress {
        self.screen.clone()
    }

    /// Updates the view after `progress` was updated with this event.
    pub(super) fn event(&mut self, event: &Event, progress: &Progress) {
        match event {
            Event::NodeStarted { node, .. } => {
                if let Some(row) = self.rows.get_mut(*node) {
                    row.started = Some(Instant::now());
                }
                self.show(node + 1 + UPCOMING);
                self.draw(progress);
            }
            Event::NodeFinished { .. } => self.draw(progress),
            _ => {}
        }
    }

    /// Gives the first rows a place on the screen.
    fn show(&mut self, rows: usize) {
        if !self.shared.is_empty() {
            return;
        }
        for at in 0..rows.min(self.rows.len()) {
            if self.rows[at].bar.is_none() {
                self.rows[at].bar = Some(self.bar());
            }
        }
    }

    fn bar(&self) -> ProgressBar {
        let bar = self.screen.add(ProgressBar::new_spinner());
        if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
            bar.set_style(style);
        }
        bar
    }

    /// Draws the rows of many groups.
    fn draw_shared(&self, progress: &Progress) {
        let Some((first, rows)) = self.shared.split_first() else { return };
        first.set_message(self.paint.line(&count(progress, self.begun.elapsed())));
        let nodes = self.rows.iter().zip(&progress.nodes);
        let mut running = nodes.filter(|(_, node)| node.state == NodeState::Running);
        for bar in rows {
            let text = running.next().map(|(row, node)| row.text(node, self.width, self.paint)).unwrap_or_default();
            bar.set_message(self.paint.line(&text));
        }
    }

    pub(super) fn draw(&self, progress: &Progress) {
        self.draw_shared(progress);
        for (row, node) in self.rows.iter().zip(&progress.nodes) {
            if let Some(bar) = row.bar.as_ref().filter(|bar| !bar.is_finished()) {
                bar.set_message(self.paint.line(&row.text(node, self.width, self.paint)));
                if matches!(node.state, NodeState::Ended { .. }) {
                    bar.abandon();
                }
            }
        }
    }

    /// Draws the state once more and leaves it on the screen, of groups that succeeded only if `all`.
    pub(super) fn close(self, progress: &Progress, all: bool) {
        self.draw(progress);
        let is_left = |node: &NodeProgress| all || !matches!(node.state, NodeState::Ended { status: Status::Done, .. });
        for (row, node) in self.rows.iter().zip(&progress.nodes) {
            row.bar.iter().for_each(|bar| end(bar, is_left(node)));
        }
        let mut shared = self.shared.iter();
        shared.next().into_iter().for_each(|bar| end(bar, progress.nodes.iter().any(is_left)));
        shared.for_each(ProgressBar::finish_and_clear);
    }
}

/// Ends a row, and leaves it on the screen or not.
fn end(bar: &ProgressBar, is_left: bool) {
    if is_left { bar.abandon() } else { bar.finish_and_clear() }
}

/// `37 of 150 groups done, 4 running, 1 failed  12.3s`.
fn count(progress: &Progress, elapsed: Duration) -> String {
    let count = |wanted: &dyn Fn(NodeState) -> bool| progress.nodes.iter().filter(|node| wanted(node.state)).count();
    let done = count(&|state| matches!(state, NodeState::Ended { status: Status::Done, .. }));
    let running = count(&|state| state == NodeState::Running);
    let failed = count(&|state| matches!(state, NodeState::Ended { .. })) - done;
    let mut text = format!("{done} of {} groups done, {running} running", progress.nodes.len());
    if failed > 0 {
        text += &format!(", {failed} failed");
    }
    format!("{text}  {}", duration(elapsed))
}

impl Row {
    /// `› crds  3/10 gone  4.1s  Widget.example shop/a (and 2 more): finalizer a.example/x`.
    fn text(&self, node: &NodeProgress, width: usize, paint: Paint) -> String {
        let count = format!("{}/{} {}", node.reached(), node.total, node.goal);
        let (mark, elapsed, note) = match node.state {
            NodeState::Pending => return paint.dim(&format!("  {:<width$}  {count:>14}", node.title)),
            NodeState::Running => {
                let elapsed = self.started.map(|started| started.elapsed()).unwrap_or_default();
                (paint.bold("›"), elapsed, paint.warn(&held(node)))
            }
            NodeState::Ended { status, elapsed_ms } => {
                let (mark, note) = match status {
                    Status::Done => (paint.good("✓"), String::new()),
                    status => (paint.bad("✗"), ended(status, paint)),
                };
                (mark, Duration::from_millis(elapsed_ms), note)
            }
        };
        format!("{mark} {:<width$}  {count:>14}  {:>6}  {note}", node.title, duration(elapsed))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn many_groups_share_a_few_rows() {
        let nodes: Vec<_> = (0..150).map(|n| json!([format!("n{n}"), 1])).collect();
        let mut events = vec![json!({"event": "started", "format": 1, "operation": "apply", "nodes": nodes})];
        for n in 0..30 {
            events.push(json!({"event": "node-started", "node": n, "title": format!("n{n}"), "objects": 1}));
        }
        for (n, status) in [(0, "done"), (1, "done"), (2, "failed")] {
            let finished = json!({"event": "node-finished", "node": n, "title": "", "status": status, "objects": 1, "elapsedMs": 1});
            events.push(finished);
        }
        let events: Vec<Event> = events.into_iter().map(|event| serde_json::from_value(event).unwrap()).collect();
        let mut progress = Progress::default();
        progress.fold(&events[0]);
        let mut view = LiveView::start(&progress, Paint(false));
        for event in &events[1..] {
            progress.fold(event);
            view.event(event, &progress);
        }
        let shown: Vec<_> = view.shared.iter().map(ProgressBar::message).collect();
        assert_eq!(shown.len(), 11);
        assert!(shown[0].starts_with("2 of 150 groups done, 27 running, 1 failed"), "{shown:?}");
        assert!(shown[1].contains("n3 ") && shown[10].contains("n12 "), "{shown:?}");
        assert!(view.rows.iter().all(|row| row.bar.is_none()));
    }

    #[test]
    fn rows_are_escaped() {
        let object = json!({"group": "", "kind": "ConfigMap", "namespace": "shop", "name": "a"});
        let events = json!([
            {"event": "started", "format": 1, "operation": "delete", "nodes": [["a\x1b[2J", 1]]},
            {"event": "node-started", "node": 0, "title": "a\x1b[2J", "objects": 1},
            {"event": "refused", "node": 0, "object": object, "message": "no\ndeleted\r\u{202e}", "retried": false},
        ]);
        let events: Vec<Event> = serde_json::from_value(events).unwrap();
        let mut progress = Progress::default();
        events.iter().for_each(|event| progress.fold(event));
        let view = LiveView::start(&progress, Paint(true));
        let row = view.rows[0].bar.as_ref().unwrap().message();
        let shown = [r"a\x1b[2J", r"no\ndeleted\r\u{202e}"];
        assert!(shown.iter().all(|text| row.contains(text)) && !row.contains(['\n', '\r', '\u{202e}']), "{row:?}");
        assert!(!row.contains("\x1b[2J"), "{row:?}");
    }
}
