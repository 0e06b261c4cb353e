//! Texts that several commands share: names of objects, counts, durations, tables.

pub(crate) mod answers;
pub(crate) mod diff;
pub(crate) mod payload;
pub(crate) mod picture;
pub(crate) mod plan;
#[cfg(feature = "sandbox")]
pub(crate) mod rehearsal;
pub(crate) mod why;

use std::time::Duration;

use billhook_objects::ObjectKey;
pub(crate) use billhook_plan::text::{count, list};

/// Formats an object: `Deployment.apps shop/web`.
pub(crate) fn object(key: &ObjectKey) -> String {
    format!("{key:#}")
}

/// Formats the namespace and name of an object: `shop/web`.
pub(crate) fn place(key: &ObjectKey) -> String {
    match &key.namespace {
        Some(namespace) => format!("{namespace}/{}", key.name),
        None => key.name.clone(),
    }
}

/// Formats a duration with two or three digits: `340ms`, `3.2s`, `2m05s`, `1h02m`.
pub(crate) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{}ms", duration.as_millis()),
        1..60 => format!("{:.1}s", duration.as_secs_f64()),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

/// Aligns rows in columns, with numbers on the right and no trailing blanks.
pub(crate) fn columns(rows: &[Vec<String>]) -> Vec<String> {
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
        for (at, cell) in row.iter().enumerate() {
            let width = cell.chars().count();
            match widths.get_mut(at) {
                Some(widest) => *widest = width.max(*widest),
                None => widths.push(width),
            }
        }
    }
    let padded = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| {
            let number = cell == "?" || !cell.is_empty() && cell.bytes().all(|byte| byte.is_ascii_digit());
            if number { format!("{cell:>width$}", width = *width) } else { format!("{cell:<width$}", width = *width) }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(padded).collect()
}

/// Aligns the first rows, and counts the others in a last line.
pub(crate) fn first<T>(all: &[T], most: usize, line: impl Fn(&T) -> Vec<String>) -> Vec<String> {
    let shown: Vec<_> = all.iter().take(most).map(line).collect();
    let mut lines = columns(&shown);
    if all.len() > most {
        lines.push(format!("and {} more", all.len() - most));
    }
    lines
}
