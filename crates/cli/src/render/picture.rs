//! Pictures: cards in columns from left to right, with objects folded by kind. One model and one layout for all that is drawn.

mod dot;
mod layout;
mod page;
pub(crate) mod plan;
mod svg;
pub(crate) mod why;

use serde::Serialize;

use crate::{args::OutputFormat, output::Paint};

/// A picture.
#[derive(Default, Serialize)]
pub(crate) struct Picture {
    title: String,
    facts: Vec<String>,
    notices: Vec<Mark>,
    columns: Vec<Column>,
    /// The rows; one without a name for those that need none.
    lanes: Vec<String>,
    cards: Vec<Card>,
    legend: Vec<State>,
}

/// A column.
#[derive(Serialize)]
struct Column {
    title: String,
    /// Whether everything to the left is done first.
    barrier: bool,
}

/// What happens at one time, or for one reason.
#[derive(Serialize)]
pub(crate) struct Card {
    column: usize,
    lane: usize,
    title: String,
    facts: String,
    /// The cards that come before.
    after: Vec<usize>,
    folds: Vec<Fold>,
}

/// The objects of one kind.
#[derive(Serialize)]
struct Fold {
    kind: String,
    items: Vec<Item>,
}

/// An object.
#[derive(Serialize)]
pub(crate) struct Item {
    name: String,
    /// An index in the legend.
    state: usize,
    marks: Vec<Mark>,
}

/// Something to know about an object, or about all.
#[derive(Clone, Serialize)]
pub(crate) struct Mark {
    tone: Tone,
    text: String,
    /// A command, or a line of a file.
    code: bool,
}

/// What the sign of an object means.
#[derive(Serialize)]
struct State {
    tone: Tone,
    sign: &'static str,
    word: String,
}

/// How something is coloured. Signs and words say the same, so that a picture can be read without colors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Tone {
    Plain,
    Muted,
    Good,
    Change,
    Warn,
    Bad,
}

impl Tone {
    /// Returns the name of its style.
    fn class(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Muted => "muted",
            Self::Good => "good",
            Self::Change => "change",
            Self::Warn => "warn",
            Self::Bad => "bad",
        }
    }
}

/// Draws a picture in a format; none in a format that is no picture.
pub(crate) fn draw(format: OutputFormat, picture: impl FnOnce() -> Picture) -> Option<String> {
    let render: fn(&Picture) -> String = match format {
        OutputFormat::Dot => dot::render,
        OutputFormat::Svg => svg::render,
        OutputFormat::Html => page::render,
        OutputFormat::Text | OutputFormat::Json | OutputFormat::Sarif => return None,
    };
    Some(render(&picture()))
}

impl Picture {
    /// Starts a picture with its title, and with the meanings of its signs.
    pub(crate) fn new(title: &str, legend: &[(Tone, &'static str, &str)]) -> Self {
        let state = |(tone, sign, word): &(Tone, &'static str, &str)| State { tone: *tone, sign, word: visible(word) };
        Self { title: visible(title), legend: legend.iter().map(state).collect(), ..Self::default() }
    }

    /// Adds a line below the title.
    pub(crate) fn fact(&mut self, text: &str) {
        self.facts.push(visible(text));
    }

    /// Adds something to know about all.
    pub(crate) fn notice(&mut self, mark: Mark) {
        self.notices.push(mark);
    }

    /// Adds a column, and returns its index.
    pub(crate) fn column(&mut self, title: &str, barrier: bool) -> usize {
        self.columns.push(Column { title: visible(title), barrier });
        self.columns.len() - 1
    }

    /// Adds a row, and returns its index.
    pub(crate) fn lane(&mut self, title: &str) -> usize {
        self.lanes.push(visible(title));
        self.lanes.len() - 1
    }

    /// Adds a card, and returns its index.
    pub(crate) fn card(&mut self, card: Card) -> usize {
        self.cards.push(card);
        self.cards.len() - 1
    }

    /// Adds a card unless it has no objects.
    pub(crate) fn card_unless_empty(&mut self, card: Card) {
        if !card.is_empty() {
            self.cards.push(card);
        }
    }

    fn state(&self, item: &Item) -> (Tone, &'static str) {
        self.legend.get(item.state).map_or((Tone::Plain, ""), |state| (state.tone, state.sign))
    }

    /// Returns whether rows have names: then the position of a card says when it is its turn, and no arrow does.
    fn has_lanes(&self) -> bool {
        self.lanes.iter().any(|lane| !lane.is_empty())
    }
}

impl Card {
    /// Makes an empty card.
    pub(crate) fn new(column: usize, lane: usize, title: &str, facts: &str) -> Self {
        Self { column, lane, title: visible(title), facts: visible(facts), after: Vec::new(), folds: Vec::new() }
    }

    /// Sets the cards that come before.
    pub(crate) fn after(mut self, cards: impl IntoIterator<Item = usize>) -> Self {
        self.after = cards.into_iter().collect();
        self
    }

    /// Adds an object of a kind.
    pub(crate) fn add(&mut self, kind: &str, item: Item) {
        let kind = visible(kind);
        match self.folds.iter_mut().find(|fold| fold.kind == kind) {
            Some(fold) => fold.items.push(item),
            None => self.folds.push(Fold { kind, items: vec![item] }),
        }
    }

    /// Returns whether a card is in this column and row.
    pub(crate) fn is_at(&self, column: usize, lane: usize) -> bool {
        (self.column, self.lane) == (column, lane)
    }

    fn is_empty(&self) -> bool {
        self.folds.is_empty()
    }

    /// Returns the most severe tone of the card's marks.
    fn tone(&self) -> Tone {
        let marks = self.folds.iter().flat_map(|fold| &fold.items).flat_map(|item| &item.marks);
        marks.map(|mark| mark.tone).max().unwrap_or(Tone::Plain)
    }
}

impl Item {
    /// Makes an object with a state of the legend.
    pub(crate) fn new(name: &str, state: usize, marks: impl IntoIterator<Item = Mark>) -> Self {
        Self { name: visible(name), state, marks: marks.into_iter().collect() }
    }
}

impl Mark {
    /// Makes a mark with a sentence.
    pub(crate) fn new(tone: Tone, text: &str) -> Self {
        Self { tone, text: visible(text), code: false }
    }

    /// Makes a mark with a command, or a line of a file.
    pub(crate) fn code(tone: Tone, text: &str) -> Self {
        Self { code: true, ..Self::new(tone, text) }
    }
}

/// Returns a text as a line of the terminal shows it: what would hide something, or turn it around, is escaped.
fn visible(text: &str) -> String {
    Paint(false).line(text)
}

/// Escapes a text for HTML and SVG.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            // Not allowed there.
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            char if char.is_control() => out.push('\u{fffd}'),
            char => out.push(char),
        }
    }
    out
}

/// The objects of a kind that a picture without folding shows: those with something to know about them, and some others.
fn shown(fold: &Fold) -> (Vec<&Item>, usize) {
    const FEW: usize = 8;
    const MARKED: usize = 40;
    let mut left = (FEW, MARKED);
    let is_shown = |item: &&Item| {
        let is_marked = item.marks.iter().any(|mark| mark.tone > Tone::Muted);
        let left = if is_marked { &mut left.1 } else { &mut left.0 };
        let is_shown = *left > 0;
        *left = left.saturating_sub(1);
        is_shown
    };
    let items: Vec<_> = fold.items.iter().filter(is_shown).collect();
    let more = fold.items.len() - items.len();
    (items, more)
}
