//! A picture as a graph in Graphviz' language.

use super::{Card, Picture, Tone, layout::arrows, shown};

/// Renders the picture.
pub(super) fn render(picture: &Picture) -> String {
    let mut out = String::from("digraph picture {\n  rankdir=LR;\n  node [shape=box, fontname=\"sans-serif\"];\n");
    out += &format!("  label=\"{}\";\n  labelloc=t;\n", quoted(&picture.title));
    for (at, card) in picture.cards.iter().enumerate() {
        out += &node(picture, at, card);
    }
    let after: Vec<_> = picture.cards.iter().map(|card| card.after.clone()).collect();
    for (before, at) in arrows(&after) {
        out += &format!("  n{before} -> n{at};\n");
    }
    if !picture.notices.is_empty() {
        let lines: String = picture.notices.iter().map(|notice| format!("{}\\l", quoted(&notice.text))).collect();
        out += &format!("  notices [label=\"{lines}\", shape=note, color=\"#7a5c00\"];\n");
    }
    out + "}\n"
}

fn node(picture: &Picture, at: usize, card: &Card) -> String {
    if card.is_empty() {
        let title = quoted(&card.title);
        return format!("  n{at} [label=\"{title}\", shape=point, xlabel=\"{title}\"];\n");
    }
    let facts = if card.facts.is_empty() { String::new() } else { format!("{}\\n", quoted(&card.facts)) };
    let mut label = format!("{}\\n{facts}\\n", quoted(&card.title));
    let mut tone = card.tone();
    for fold in &card.folds {
        label += &format!("{} ×{}\\l", quoted(&fold.kind), fold.items.len());
        let (items, more) = shown(fold);
        for item in items {
            let (of_item, sign) = picture.state(item);
            tone = tone.max(of_item);
            label += &format!("  {sign} {}\\l", quoted(&item.name));
        }
        if more > 0 {
            label += &format!("  and {more} more\\l");
        }
    }
    let look = match tone {
        Tone::Bad => ", color=\"#b3261e\", penwidth=2",
        Tone::Warn => ", color=\"#7a5c00\", penwidth=2",
        Tone::Muted => ", style=dashed, color=\"#5f6368\", fontcolor=\"#5f6368\"",
        Tone::Plain | Tone::Good | Tone::Change => "",
    };
    format!("  n{at} [label=\"{label}\"{look}];\n")
}

fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace(|char: char| char.is_control(), "\u{fffd}")
}
