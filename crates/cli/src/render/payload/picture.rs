//! The picture of a pass: run levels from left to right, components as rows. As a graph, its nodes with their order.

use billhook_payload::{Decision, Entry, Outcome, State, messages::resource};

use super::Pass;
use crate::{
    args::OutputFormat,
    render::picture::{Card, Item, Mark, Picture, Tone, draw},
};

/// The outcomes; the indexes are those of [`state`].
const LEGEND: [(Tone, &str, Outcome); 4] = [
    (Tone::Good, "●", Outcome::Applied),
    (Tone::Change, "+", Outcome::CreatedOnly),
    (Tone::Bad, "✕", Outcome::Deleted),
    (Tone::Muted, "○", Outcome::LeftOut),
];

fn state(outcome: Outcome) -> usize {
    LEGEND.iter().position(|(_, _, known)| *known == outcome).unwrap_or_default()
}

/// Renders a pass; none in a format that is no picture.
pub(crate) fn render(pass: &Pass<'_>, format: OutputFormat) -> Option<String> {
    draw(format, || if format == OutputFormat::Dot { graph(pass) } else { table(pass) })
}

fn begin(pass: &Pass<'_>) -> Picture {
    let legend = LEGEND.map(|(tone, sign, outcome)| (tone, sign, outcome.to_string()));
    let legend = legend.each_ref().map(|(tone, sign, word)| (*tone, *sign, word.as_str()));
    let mut picture = Picture::new(&pass.summary(), &legend);
    picture.fact(&pass.execution());
    for failure in &pass.preconditions {
        let (tone, label) = if failure.blocks { (Tone::Bad, "blocked") } else { (Tone::Warn, "warning") };
        picture.notice(Mark::new(tone, &format!("{label}: {}", failure.message)));
    }
    picture
}

/// Returns a manifest as an object of its file.
fn item(entry: &Entry, decision: &Decision) -> Item {
    let facts = [
        format!("{}: {} ({})", entry.file_name(), decision.outcome, decision.rule),
        format!("line {}", entry.manifest.source.line),
    ];
    let marks = facts.map(|fact| Mark::new(Tone::Muted, &fact));
    Item::new(&resource(&entry.manifest.key), state(decision.outcome), marks)
}

/// Draws the nodes in their order, and what is left out.
fn graph(pass: &Pass<'_>) -> Picture {
    let mut picture = begin(pass);
    picture.column("", false);
    picture.lane("");
    let (decided, counting): (Vec<_>, _) = (pass.decided().collect(), pass.counting());
    for node in &pass.graph.nodes {
        let title = if node.steps.is_empty() { "barrier" } else { &node.title };
        let mut card = Card::new(0, 0, title, "");
        for (entry, decision) in node.steps.iter().filter_map(|step| decided.get(*counting.get(step.manifest)?)) {
            card.add(&entry.manifest.key.kind.to_string(), item(entry, decision));
        }
        picture.card(card.after(node.after.iter().copied()));
    }
    let mut left = Card::new(0, 0, "left out", "");
    for (entry, decision) in decided.iter().filter(|(_, decision)| !decision.counts()) {
        left.add(entry.file_name(), item(entry, decision));
    }
    picture.card_unless_empty(left);
    picture
}

/// What a column stands for.
struct Level {
    level: Option<String>,
    is_job: bool,
}

/// Draws run levels as columns and components as rows.
fn table(pass: &Pass<'_>) -> Picture {
    let mut picture = begin(pass);
    let (mut levels, mut components): (Vec<Level>, Vec<&str>) = (Vec::new(), Vec::new());
    let mut cards: Vec<Card> = Vec::new();
    for (entry, decision) in pass.decided() {
        let is_job = entry.manifest.key.kind.is("batch", "Job") && decision.counts();
        let level = entry.step.as_ref().map(|step| step.level.to_string());
        let column = column(&mut picture, &mut levels, Level { level, is_job }, pass.state);
        let component = entry.step.as_ref().map_or("(no component)", |step| &*step.component);
        let lane = components.iter().position(|known| *known == component).unwrap_or_else(|| {
            components.push(component);
            picture.lane(component)
        });
        let file = entry.file_name();
        let prefix = entry.step.as_ref().map(|step| format!("0000_{}_{}_", step.level, step.component));
        let short = prefix.and_then(|prefix| file.strip_prefix(&prefix)).unwrap_or(file);
        let at = cards.iter().position(|card| card.is_at(column, lane)).unwrap_or_else(|| {
            cards.push(Card::new(column, lane, "", ""));
            cards.len() - 1
        });
        cards[at].add(short, item(entry, decision));
    }
    cards.into_iter().for_each(|card| picture.card_unless_empty(card));
    picture
}

/// Returns the column of a manifest: the last one, unless its level is another or a Job separates them.
fn column(picture: &mut Picture, levels: &mut Vec<Level>, wanted: Level, state: State) -> usize {
    let continues = |last: &&Level| last.level == wanted.level && !wanted.is_job && !last.is_job;
    if levels.last().filter(continues).is_none() {
        let after_job = levels.last().is_some_and(|last| last.is_job);
        let barrier = !levels.is_empty() && (state == State::Updating || wanted.is_job || after_job);
        let name =
            wanted.level.as_ref().map_or_else(|| "no run level".to_owned(), |level| format!("run level {level}"));
        picture.column(&if wanted.is_job { format!("{name}, Job") } else { name }, barrier);
        levels.push(wanted);
    }
    levels.len() - 1
}
