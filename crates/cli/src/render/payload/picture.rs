//! A payload as a table: run levels from left to right, components as rows.

use std::collections::BTreeMap;

use billhook_payload::{Outcome, State};

use super::Pass;

/// The table.
pub(crate) struct Grid {
    /// The levels in their order.
    pub(crate) columns: Vec<Column>,
    /// The components, in the order in which they appear.
    pub(crate) rows: Vec<String>,
    /// The lines of each cell that has some, by row and column.
    pub(crate) cells: BTreeMap<(usize, usize), Vec<Line>>,
}

/// A run level.
pub(crate) struct Column {
    /// Its title.
    pub(crate) title: String,
    /// Whether everything before must be done first.
    pub(crate) after_barrier: bool,
    is_job: bool,
    level: Option<String>,
}

/// The manifests of a file with the same outcome.
pub(crate) struct Line {
    /// The name of the file without level and component, and how many manifests it stands for.
    pub(crate) label: String,
    /// What happens with them.
    pub(crate) outcome: Outcome,
    /// The file, the objects and the rule.
    pub(crate) details: Vec<String>,
    file: String,
}

impl Grid {
    /// Arranges the manifests of a pass.
    pub(crate) fn of(pass: &Pass<'_>) -> Self {
        let mut grid = Self { columns: Vec::new(), rows: Vec::new(), cells: BTreeMap::new() };
        for (entry, decision) in pass.decided() {
            let is_job = entry.manifest.key.kind.is("batch", "Job") && decision.counts();
            let level = entry.step.as_ref().map(|step| step.level.to_string());
            let column = grid.column(level, is_job, pass.state);
            let component = entry.step.as_ref().map_or("(no component)", |step| &*step.component);
            let row = grid.row(component);
            let file = entry.file_name();
            let prefix = entry.step.as_ref().map(|step| format!("0000_{}_{}_", step.level, step.component));
            let short = prefix.and_then(|prefix| file.strip_prefix(&prefix)).unwrap_or(file);
            let object = billhook_payload::messages::resource(&entry.manifest.key);
            let lines = grid.cells.entry((row, column)).or_default();
            match lines.last_mut().filter(|line| line.file == file && line.outcome == decision.outcome) {
                Some(line) => {
                    line.details.push(object);
                    line.label = format!("{short} ×{}", line.details.len() - 1);
                }
                None => lines.push(Line {
                    label: short.to_owned(),
                    outcome: decision.outcome,
                    details: vec![format!("{file}: {} ({})", decision.outcome, decision.rule), object],
                    file: file.to_owned(),
                }),
            }
        }
        grid
    }

    /// Returns the column of a manifest: the last one, unless its level is another or a Job separates them.
    fn column(&mut self, level: Option<String>, is_job: bool, state: State) -> usize {
        let continues = |last: &&Column| last.level == level && !is_job && !last.is_job;
        if self.columns.last().filter(continues).is_none() {
            let after_job = self.columns.last().is_some_and(|last| last.is_job);
            let after_barrier = !self.columns.is_empty() && (state == State::Updating || is_job || after_job);
            let name = level.as_ref().map_or_else(|| "no run level".to_owned(), |level| format!("run level {level}"));
            let title = if is_job { format!("{name}, Job") } else { name };
            self.columns.push(Column { title, after_barrier, is_job, level });
        }
        self.columns.len() - 1
    }

    fn row(&mut self, component: &str) -> usize {
        if let Some(at) = self.rows.iter().position(|row| row == component) {
            return at;
        }
        self.rows.push(component.to_owned());
        self.rows.len() - 1
    }
}

/// Returns the sign before a line, so that the picture can be read without colors.
pub(crate) fn sign(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Applied => "●",
        Outcome::CreatedOnly => "+",
        Outcome::Deleted => "✕",
        Outcome::LeftOut => "○",
    }
}

/// Returns the name of the style of an outcome.
pub(crate) fn class(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Applied => "applied",
        Outcome::CreatedOnly => "created",
        Outcome::Deleted => "deleted",
        Outcome::LeftOut => "out",
    }
}

/// What the signs mean.
pub(crate) const LEGEND: [Outcome; 4] = [Outcome::Applied, Outcome::CreatedOnly, Outcome::Deleted, Outcome::LeftOut];
