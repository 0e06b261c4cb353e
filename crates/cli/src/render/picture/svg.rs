//! A picture as SVG, for documents.

use super::{Card, Picture, Tone, escaped, layout::arrows, shown};

const STYLE: &str = "text{font:12px sans-serif;fill:#1f2328;white-space:pre}.title{font-size:16px;font-weight:bold}.head,.card-title{font-weight:bold}\
.muted,.facts{fill:#59636e}.good{fill:#116329}.change{fill:#0550ae}.warn{fill:#7a5c00}.bad{fill:#b3261e}\
.page{fill:#fff}.card{fill:#f6f8fa;stroke:#8c959f}.card.of-bad{stroke:#b3261e;stroke-width:2}.card.of-warn{stroke:#7a5c00;stroke-width:2}\
.lane{stroke:#d1d9e0}.barrier{stroke:#59636e;stroke-width:2;stroke-dasharray:6 4}.arrow{fill:none;stroke:#59636e;stroke-width:1.5}\
.tip{fill:#59636e}@media (prefers-color-scheme:dark){text{fill:#f0f6fc}.muted,.facts{fill:#9da7b3}.good{fill:#56d364}\
.change{fill:#79c0ff}.warn{fill:#e3b341}.bad{fill:#ff7b72}.page{fill:#0d1117}.card{fill:#161b22;stroke:#6e7681}\
.card.of-bad{stroke:#ff7b72}.card.of-warn{stroke:#e3b341}.lane{stroke:#30363d}.barrier,.arrow{stroke:#9da7b3}.tip{fill:#9da7b3}}";

const LINE: usize = 16;
const PAD: usize = 10;
const GAP: usize = 40;
/// The longest line of a card, in characters.
const LONGEST: usize = 72;
/// How many notices are drawn.
const NOTICES: usize = 12;

/// A line of text: its style, its text, and what a pointer shows.
struct Line {
    class: &'static str,
    text: String,
    hint: String,
}

/// A card with its place.
struct Placed<'a> {
    card: &'a Card,
    lines: Vec<Line>,
    x: usize,
    y: usize,
    width: usize,
    height: usize,
}

/// Renders the picture.
pub(super) fn render(picture: &Picture) -> String {
    let head = head(picture);
    let top = PAD + head.len() * LINE + 2 * LINE;
    let (placed, lefts, tops, (right, bottom)) = place(picture, top);
    let widest = head.iter().map(|line| text_width(&line.text)).max().unwrap_or_default();
    let (width, height) = (right.max(widest + 2 * PAD + text_width(&picture.title) / 3), bottom + PAD);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
         <title>{}</title>\n<style>{STYLE}</style>\n<rect class=\"page\" width=\"{width}\" height=\"{height}\"/>\n",
        escaped(&picture.title)
    );
    for (at, line) in (1..).zip(&head) {
        out += &text(PAD, PAD + at * LINE, line);
    }
    for (column, left) in picture.columns.iter().zip(&lefts) {
        let title = Line { class: "head", text: column.title.clone(), hint: String::new() };
        out += &text(*left, top - LINE / 2, &title);
        if column.barrier {
            let x = left - GAP / 4;
            out += &format!("<line class=\"barrier\" x1=\"{x}\" y1=\"{}\" x2=\"{x}\" y2=\"{height}\"/>\n", top - LINE);
        }
    }
    if picture.has_lanes() {
        for (lane, top) in picture.lanes.iter().zip(&tops) {
            out += &format!("<line class=\"lane\" x1=\"0\" y1=\"{top}\" x2=\"{width}\" y2=\"{top}\"/>\n");
            let title = Line { class: "head", text: short(lane), hint: lane.clone() };
            out += &text(PAD, top + LINE + PAD, &title);
        }
    } else {
        let after: Vec<_> = picture.cards.iter().map(|card| card.after.clone()).collect();
        for (from, to) in arrows(&after) {
            if let (Some(from), Some(to)) = (placed.get(from), placed.get(to)) {
                out += &arrow(from, to);
            }
        }
    }
    for placed in &placed {
        out += &draw(placed);
    }
    out + "</svg>\n"
}

fn head(picture: &Picture) -> Vec<Line> {
    let line = |class, text: &str| Line { class, text: text.to_owned(), hint: String::new() };
    let mut lines = vec![line("title", &picture.title)];
    lines.extend(picture.facts.iter().map(|fact| line("facts", fact)));
    let words: Vec<_> = picture.legend.iter().map(|state| format!("{} {}", state.sign, state.word)).collect();
    lines.push(line("facts", &words.join("   ")));
    lines.extend(picture.notices.iter().take(NOTICES).map(|mark| line(mark.tone.class(), &mark.text)));
    if picture.notices.len() > NOTICES {
        lines.push(line("facts", &format!("and {} more", picture.notices.len() - NOTICES)));
    }
    lines
}

/// Returns the lines of a card: its title, and its objects by kind.
fn lines(picture: &Picture, card: &Card) -> Vec<Line> {
    let mut lines = Vec::new();
    let line = |class, text: String, hint: &str| Line { class, text: short(&text), hint: hint.to_owned() };
    if !card.title.is_empty() {
        lines.push(line("card-title", card.title.clone(), &card.title));
    }
    if !card.facts.is_empty() {
        lines.push(line("facts", card.facts.clone(), &card.facts));
    }
    for fold in &card.folds {
        if !fold.kind.is_empty() {
            lines.push(line("head", format!("{} ×{}", fold.kind, fold.items.len()), &fold.kind));
        }
        let (items, more) = shown(fold);
        for item in items {
            let (tone, sign) = picture.state(item);
            let marks: Vec<&str> = item.marks.iter().map(|mark| mark.text.as_str()).collect();
            lines.push(line(tone.class(), format!("{sign} {}", item.name), &marks.join("; ")));
            let severe = item.marks.iter().filter(|mark| mark.tone >= Tone::Warn && !mark.code);
            lines.extend(severe.map(|mark| line(mark.tone.class(), format!("   ! {}", mark.text), &mark.text)));
        }
        if more > 0 {
            lines.push(line("facts", format!("and {more} more"), ""));
        }
    }
    lines
}

/// Returns the cards with their places, the left edges of the columns, the upper edges of the rows, and the lower right corner.
fn place<'a>(picture: &'a Picture, top: usize) -> (Vec<Placed<'a>>, Vec<usize>, Vec<usize>, (usize, usize)) {
    let mut placed: Vec<_> = picture
        .cards
        .iter()
        .map(|card| {
            let lines = lines(picture, card);
            let width = lines.iter().map(|line| text_width(&line.text)).max().unwrap_or_default() + 2 * PAD;
            let height = lines.len() * LINE + PAD;
            Placed { card, lines, x: 0, y: 0, width, height }
        })
        .collect();
    let names = picture.lanes.iter().map(|lane| text_width(&short(lane))).max().unwrap_or_default();
    let (mut x, mut lefts) = (PAD + if names > 0 { names + GAP } else { 0 }, Vec::new());
    for (at, column) in picture.columns.iter().enumerate() {
        lefts.push(x);
        let cards = placed.iter().filter(|placed| placed.card.column == at).map(|placed| placed.width);
        x += cards.max().unwrap_or_default().max(text_width(&column.title)) + GAP;
    }
    let (mut y, mut tops) = (top, Vec::new());
    for lane in 0..picture.lanes.len().max(1) {
        tops.push(y);
        let mut bottom = y + LINE;
        for (column, left) in lefts.iter().enumerate() {
            let mut at = y + PAD / 2;
            for placed in placed.iter_mut().filter(|p| p.card.lane == lane && p.card.column == column) {
                (placed.x, placed.y) = (*left, at);
                at += placed.height + PAD;
            }
            bottom = bottom.max(at);
        }
        y = bottom + PAD;
    }
    (placed, lefts, tops, (x, y))
}

fn draw(placed: &Placed<'_>) -> String {
    let Placed { card, lines, x, y, width, height } = placed;
    let of = match card.tone() {
        tone @ (Tone::Warn | Tone::Bad) => format!(" of-{}", tone.class()),
        _ => String::new(),
    };
    let mut out =
        format!("<rect class=\"card{of}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>\n");
    for (at, line) in (1..).zip(lines) {
        out += &text(x + PAD, y + at * LINE + 1, line);
    }
    out
}

fn arrow(from: &Placed<'_>, to: &Placed<'_>) -> String {
    let (x1, y1) = (from.x + from.width, from.y + LINE);
    let (x2, y2) = (to.x, to.y + LINE);
    let middle = usize::midpoint(x1, x2);
    format!(
        "<path class=\"arrow\" d=\"M{x1} {y1} C{middle} {y1} {middle} {y2} {} {y2}\"/>\n\
         <path class=\"tip\" d=\"M{x2} {y2} l-8 -4 v8 z\"/>\n",
        x2.saturating_sub(8)
    )
}

fn text(x: usize, y: usize, line: &Line) -> String {
    let hint = if line.hint.is_empty() || line.hint == line.text {
        String::new()
    } else {
        format!("<title>{}</title>", escaped(&line.hint))
    };
    format!("<text class=\"{}\" x=\"{x}\" y=\"{y}\">{}{hint}</text>\n", line.class, escaped(&line.text))
}

fn short(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or(text)),
        None => text.to_owned(),
    }
}

/// Returns about how wide a text is, in pixels: what draws it is not known here.
fn text_width(text: &str) -> usize {
    text.chars().count() * 7
}
