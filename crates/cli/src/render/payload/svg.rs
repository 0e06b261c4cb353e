//! A pass as a picture.

use super::{
    Pass, escaped,
    picture::{Grid, LEGEND, Line, class, sign},
};

const STYLE: &str = "text{font:12px sans-serif;fill:#212121}.title{font-size:16px;font-weight:bold}.head{font-weight:bold}\
.applied{fill:#1b5e20}.created{fill:#0d47a1}.deleted{fill:#b71c1c;font-weight:bold}.out{fill:#757575}\
.cell{fill:#fff;stroke:#90a4ae}.row{fill:#fafafa}.odd{fill:#f0f3f5}.barrier{stroke:#455a64;stroke-width:2;stroke-dasharray:6 4}";

const LINE: usize = 16;
const PAD: usize = 10;
const TOP: usize = 104;

/// Renders the picture.
pub(crate) fn render(pass: &Pass<'_>, grid: &Grid) -> String {
    let (lefts, width) = columns(grid);
    let (tops, height) = rows(grid);
    let width = width.max(text_width(&pass.summary()) * 4 / 3 + 2 * PAD).max(text_width(&pass.execution()) + 2 * PAD);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
         <style>{STYLE}</style>\n<rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n"
    );
    out += &text(PAD, 24, "title", &pass.summary());
    out += &text(PAD, 44, "", &pass.execution());
    let mut x = PAD;
    for outcome in LEGEND {
        let words = format!("{} {outcome}", sign(outcome));
        out += &text(x, 66, class(outcome), &words);
        x += text_width(&words) + 2 * PAD;
    }
    for (at, row) in grid.rows.iter().enumerate() {
        let (top, bottom) = (tops[at], tops.get(at + 1).copied().unwrap_or(height - PAD));
        let class = if at % 2 == 0 { "row" } else { "odd" };
        out +=
            &format!("<rect class=\"{class}\" x=\"0\" y=\"{top}\" width=\"{width}\" height=\"{}\"/>\n", bottom - top);
        out += &text(PAD, top + PAD + LINE, "head", row);
    }
    for (column, left) in grid.columns.iter().zip(&lefts) {
        out += &text(*left, TOP - 12, "head", &column.title);
        if column.after_barrier {
            let x = left - PAD;
            out += &format!("<line class=\"barrier\" x1=\"{x}\" y1=\"{}\" x2=\"{x}\" y2=\"{height}\"/>\n", TOP - 26);
        }
    }
    for ((row, column), lines) in &grid.cells {
        out += &cell(lefts[*column], tops[*row] + PAD / 2, lines);
    }
    out + "</svg>\n"
}

fn cell(left: usize, top: usize, lines: &[Line]) -> String {
    let (width, height) = (cell_width(lines), lines.len() * LINE + PAD);
    let mut out =
        format!("<rect class=\"cell\" x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" rx=\"4\"/>\n");
    for (at, line) in (1..).zip(lines) {
        let words = format!("{} {}", sign(line.outcome), line.label);
        let (x, y) = (left + PAD, top + at * LINE + 1);
        let details = escaped(&line.details.join("; "));
        let (class, words) = (class(line.outcome), escaped(&words));
        out += &format!("<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{words}<title>{details}</title></text>\n");
    }
    out
}

fn text(x: usize, y: usize, class: &str, words: &str) -> String {
    format!("<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{}</text>\n", escaped(words))
}

/// Returns about how wide a text is, in pixels: what draws it is not known here.
fn text_width(text: &str) -> usize {
    text.chars().count() * 7
}

fn cell_width(lines: &[Line]) -> usize {
    lines.iter().map(|line| text_width(&line.label)).max().unwrap_or_default() + 2 * PAD + 2 * 7
}

/// Returns the left edge of each column, and the width of the picture.
fn columns(grid: &Grid) -> (Vec<usize>, usize) {
    let names = grid.rows.iter().map(|row| text_width(row)).max().unwrap_or_default();
    let mut x = names + 4 * PAD;
    let mut lefts = Vec::new();
    for (at, column) in grid.columns.iter().enumerate() {
        lefts.push(x);
        let cells = grid.cells.iter().filter(|((_, of), _)| *of == at).map(|(_, lines)| cell_width(lines));
        x += cells.max().unwrap_or_default().max(text_width(&column.title)) + 2 * PAD;
    }
    (lefts, x)
}

/// Returns the upper edge of each row, and the height of the picture.
fn rows(grid: &Grid) -> (Vec<usize>, usize) {
    let mut y = TOP;
    let mut tops = Vec::new();
    for row in 0..grid.rows.len() {
        tops.push(y);
        let lines = grid.cells.iter().filter(|((of, _), _)| *of == row).map(|(_, lines)| lines.len()).max();
        y += lines.unwrap_or_default() * LINE + 2 * PAD;
    }
    (tops, y + PAD)
}
