//! The live view: a row for each group with its counts, its elapsed time, and what holds it up.

use std::time::Duration;

use billhook_engine::{Event, NodeProgress, NodeState, Progress, Status};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::Instant;

use crate::{output::Paint, render::duration};

use super::{hold::held, line::ended};

/// The highest rate at which the terminal is redrawn, per second.
const RATE: u8 = 12;
/// How many groups after the current one have a row.
const UPCOMING: usize = 3;
/// The widest column of titles.
const MAX_WIDTH: usize = 40;

/// Draws the state of a run.
pub(super) struct LiveView {
    screen: MultiProgress,
    rows: Vec<Row>,
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
        let mut view = Self { screen, rows: vec![Row::default(); progress.nodes.len()], width, paint };
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
        for row in self.rows.iter_mut().take(rows).filter(|row| row.bar.is_none()) {
            let bar = self.screen.add(ProgressBar::new_spinner());
            if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
                bar.set_style(style);
            }
            row.bar = Some(bar);
        }
    }

    pub(super) fn draw(&self, progress: &Progress) {
        for (row, node) in self.rows.iter().zip(&progress.nodes) {
            if let Some(bar) = row.bar.as_ref().filter(|bar| !bar.is_finished()) {
                bar.set_message(self.paint.line(&row.text(node, self.width, self.paint)));
                if matches!(node.state, NodeState::Ended { .. }) {
                    bar.abandon();
                }
            }
        }
    }

    /// Draws the state once more and leaves it on the screen.
    pub(super) fn close(self, progress: &Progress) {
        self.draw(progress);
        self.rows.iter().filter_map(|row| row.bar.as_ref()).for_each(ProgressBar::abandon);
    }
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
