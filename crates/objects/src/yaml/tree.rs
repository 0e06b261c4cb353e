//! Builds a document from the events of the parser: resolves aliases and merge keys, and converts keys to strings.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet, hash_map::Entry},
    num::NonZeroUsize,
};

use granit_parser::{Event, Marker, Parser, ScalarStyle, StrInput};
use serde_json::{Map, Value};

use super::{
    error::{Error, ErrorKind},
    limits::{MAX_COPIED, MAX_HEIGHT, MAX_NESTING},
    node::{Key, Node, NodeKind, Place},
    scalar::{self, Scalar, Tag},
};

/// The result of building a document: a JSON value, or nodes with their places.
pub(super) trait Tree: Clone {
    /// The entries of a mapping while it is being built.
    type Entries: Default;
    fn scalar(scalar: Scalar, place: Place) -> Self;
    fn sequence(items: Vec<Self>, place: Place) -> Self;
    fn mapping(entries: Self::Entries, place: Place) -> Self;
    /// Adds an entry; a later entry with the same key replaces it.
    fn insert(entries: &mut Self::Entries, key: Key, value: Self);
    /// Adds all entries of a mapping; returns a value that is not a mapping.
    fn merge(entries: &mut Self::Entries, from: Self) -> Result<(), Self>;
    /// Returns the items of a sequence.
    fn items(self) -> Option<Vec<Self>>;
}

/// Reads the single document in `text`, which starts after `lines` lines of its file; returns `None` if it is empty.
pub(super) fn read_document<T: Tree>(text: &str, lines: usize) -> Result<Option<(Place, T)>, Error> {
    let mut builder = Builder::<T>::new(text);
    let mut documents = 0;
    for event in events(text, lines) {
        let (event, place) = event?;
        if matches!(event, Event::DocumentStart(..)) {
            documents += 1;
            if documents > 1 {
                return Err(Error { place, kind: ErrorKind::AfterEnd });
            }
        }
        builder.event(event, place).map_err(|kind| Error { place, kind })?;
    }
    Ok(builder.done)
}

/// Returns the events of a text that starts after `lines` lines of its file.
pub(super) fn events(text: &str, lines: usize) -> impl Iterator<Item = Result<(Event<'_>, Place), Error>> {
    let place = move |at: &Marker| Place { line: at.line() + lines, column: at.col() + 1 };
    parser(text).map(move |event| match event {
        Ok((event, span)) => Ok((event, place(&span.start))),
        Err(error) => {
            let kind = match error.kind() {
                granit_parser::ErrorKind::RecursionLimitExceeded => ErrorKind::Depth,
                _ => ErrorKind::Syntax(error.info()),
            };
            Err(Error { place: place(error.marker()), kind })
        }
    })
}

fn parser(text: &str) -> Parser<'_, StrInput<'_>> {
    let mut options = granit_parser::options! { flow_nesting_limit: MAX_NESTING, block_nesting_limit: MAX_NESTING };
    options.set_emit_comments(false);
    Parser::new_from_str_with_options(text, options)
}

/// Returns the anchors that aliases refer to: only these are copied, so that an anchor that is never used is free.
fn anchors_in_use(text: &str) -> HashSet<usize> {
    if !text.contains('*') {
        return HashSet::new();
    }
    let events = parser(text).map_while(Result::ok);
    events.filter_map(|(event, _)| if let Event::Alias(anchor) = event { Some(anchor) } else { None }).collect()
}

/// A collection that is still being read.
struct OpenCollection<T: Tree> {
    place: Place,
    anchor: usize,
    extent: Extent,
    content: Content<T>,
}

/// The size of a node, with its aliases expanded.
#[derive(Clone, Copy)]
struct Extent {
    /// The number of nodes, including itself.
    size: usize,
    /// The memory that a copy takes, in bytes.
    weight: usize,
    /// The number of levels.
    height: usize,
}

impl Extent {
    /// Returns the extent of a scalar, or of an empty collection without text.
    fn of(text: &str) -> Self {
        const NODE: usize = 64;
        Self { size: 1, weight: NODE + text.len(), height: 1 }
    }
}

enum Content<T: Tree> {
    Sequence(Vec<T>),
    Mapping(T::Entries, Slot),
}

/// The role of the next node of a mapping.
enum Slot {
    Key,
    Value(Key),
    Merge,
}

/// The node of an anchor.
struct Anchor<T> {
    tree: T,
    /// The scalar, if the node is one and so can be a key.
    scalar: Option<Scalar>,
    place: Place,
    extent: Extent,
    empty: bool,
}

struct Builder<'a, T: Tree> {
    text: &'a str,
    open: Vec<OpenCollection<T>>,
    /// The complete nodes with an anchor.
    anchors: HashMap<usize, Anchor<T>>,
    /// The anchors in use, once one of a collection is found.
    anchors_in_use: Option<HashSet<usize>>,
    done: Option<(Place, T)>,
    /// The number of nodes so far, and of those that come from aliases.
    nodes: usize,
    aliased: usize,
    /// The weight of all copies so far.
    copied: usize,
}

impl<'a, T: Tree> Builder<'a, T> {
    fn new(text: &'a str) -> Self {
        Self {
            text,
            open: Vec::new(),
            anchors: HashMap::new(),
            anchors_in_use: None,
            done: None,
            nodes: 1,
            aliased: 0,
            copied: 0,
        }
    }

    fn event(&mut self, event: Event<'_>, place: Place) -> Result<(), ErrorKind> {
        match event {
            Event::Scalar(text, style, anchor, tag) => self.scalar(&text, style, anchor, tag, place),
            Event::SequenceStart(_, anchor, _) => self.start(anchor, place, Content::Sequence(Vec::new())),
            Event::MappingStart(_, anchor, _) => {
                self.start(anchor, place, Content::Mapping(T::Entries::default(), Slot::Key))
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(anchor) => self.alias(anchor, place),
            _ => Ok(()),
        }
    }

    fn scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        anchor: usize,
        tag: Option<Cow<'_, granit_parser::Tag>>,
        place: Place,
    ) -> Result<(), ErrorKind> {
        self.nodes += 1;
        let extent = Extent::of(text);
        let tag = tag.as_deref().map_or(Tag::None, tag_of);
        let implicit = tag == Tag::None && style == ScalarStyle::Plain;
        let slot = self.slot();
        if matches!(slot, Some(Slot::Key)) && text == "<<" && (implicit || tag == Tag::Merge) {
            *self.slot_mut()? = Slot::Merge;
            self.count(extent);
            return Ok(());
        }
        let scalar = scalar::resolve(tag, implicit, text)?;
        if anchor > 0 {
            let (tree, empty) = (T::scalar(scalar.clone(), place), scalar == Scalar::Null);
            self.anchors.insert(anchor, Anchor { tree, scalar: Some(scalar.clone()), place, extent, empty });
        }
        self.add_scalar(scalar, place, extent)
    }

    /// Adds a scalar at the current position, where it may be a key.
    fn add_scalar(&mut self, scalar: Scalar, place: Place, extent: Extent) -> Result<(), ErrorKind> {
        if matches!(self.slot(), Some(Slot::Key)) {
            let text = scalar::key(scalar)?;
            *self.slot_mut()? = Slot::Value(Key { text, line: place.line, column: place.column, replaces: None });
            self.count(extent);
            return Ok(());
        }
        if matches!(scalar, Scalar::Float(float) if !float.is_finite()) {
            return Err(ErrorKind::NotFinite);
        }
        let empty = scalar == Scalar::Null;
        self.add(T::scalar(scalar, place), place, extent, false, empty)
    }

    fn start(&mut self, anchor: usize, place: Place, content: Content<T>) -> Result<(), ErrorKind> {
        self.nodes += 1;
        if matches!(self.slot(), Some(Slot::Key)) {
            return Err(ErrorKind::Key("a mapping or sequence"));
        }
        self.open.push(OpenCollection { place, anchor, extent: Extent::of(""), content });
        Ok(())
    }

    fn end(&mut self) -> Result<(), ErrorKind> {
        let Some(OpenCollection { place, anchor, extent, content }) = self.open.pop() else { return Ok(()) };
        let tree = match content {
            Content::Sequence(items) => T::sequence(items, place),
            Content::Mapping(entries, _) => T::mapping(entries, place),
        };
        let text = self.text;
        if anchor > 0 && self.anchors_in_use.get_or_insert_with(|| anchors_in_use(text)).contains(&anchor) {
            self.copy(extent)?;
            self.anchors.insert(anchor, Anchor { tree: tree.clone(), scalar: None, place, extent, empty: false });
        }
        self.add(tree, place, extent, false, false)
    }

    fn alias(&mut self, anchor: usize, place: Place) -> Result<(), ErrorKind> {
        let target = self.anchors.get(&anchor).ok_or(ErrorKind::SelfReference)?;
        let (target_extent, target_place, empty) = (target.extent, target.place, target.empty);
        let Extent { size, height, .. } = target_extent;
        self.nodes = self.nodes.saturating_add(size).saturating_add(1);
        self.aliased = self.aliased.saturating_add(size);
        // The alias itself counts too.
        let extent = Extent { size: size.saturating_add(1), ..target_extent };
        let share = self.aliased as f64 / self.nodes as f64;
        let too_much = self.aliased > 100 && self.nodes > 1000 && share > alias_share(self.nodes);
        if too_much || self.open.len() + height > MAX_HEIGHT {
            return Err(ErrorKind::Aliases);
        }
        let scalar = target.scalar.clone();
        self.copy(target_extent)?;
        if let Some(scalar) = scalar {
            return self.add_scalar(scalar, place, extent);
        }
        if matches!(self.slot(), Some(Slot::Key)) {
            return Err(ErrorKind::Key("a mapping or sequence"));
        }
        let Some(target) = self.anchors.get(&anchor) else { return Ok(()) };
        let tree = target.tree.clone();
        self.add(tree, target_place, extent, true, empty)
    }

    /// Counts a copy of a node before it is made.
    fn copy(&mut self, extent: Extent) -> Result<(), ErrorKind> {
        self.copied = self.copied.saturating_add(extent.weight);
        if self.copied > MAX_COPIED { Err(ErrorKind::Aliases) } else { Ok(()) }
    }

    /// Adds a complete node, which is not a key, at the current position.
    fn add(&mut self, tree: T, place: Place, extent: Extent, alias: bool, empty: bool) -> Result<(), ErrorKind> {
        self.count(extent);
        let Some(open) = self.open.last_mut() else {
            self.done = (!empty).then_some((place, tree));
            return Ok(());
        };
        match &mut open.content {
            Content::Sequence(items) => items.push(tree),
            Content::Mapping(entries, slot) => match std::mem::replace(slot, Slot::Key) {
                Slot::Value(key) => T::insert(entries, key, tree),
                Slot::Merge => merge(entries, tree, alias)?,
                Slot::Key => return Err(ErrorKind::Key("a mapping or sequence")),
            },
        }
        Ok(())
    }

    fn count(&mut self, extent: Extent) {
        if let Some(open) = self.open.last_mut() {
            open.extent.size = open.extent.size.saturating_add(extent.size);
            open.extent.weight = open.extent.weight.saturating_add(extent.weight);
            open.extent.height = open.extent.height.max(extent.height + 1);
        }
    }

    fn slot(&self) -> Option<&Slot> {
        match self.open.last()?.content {
            Content::Mapping(_, ref slot) => Some(slot),
            Content::Sequence(_) => None,
        }
    }

    fn slot_mut(&mut self) -> Result<&mut Slot, ErrorKind> {
        match self.open.last_mut().map(|open| &mut open.content) {
            Some(Content::Mapping(_, slot)) => Ok(slot),
            _ => Err(ErrorKind::Key("a node outside a mapping")),
        }
    }
}

/// Merges the value of `<<`: a mapping, or a sequence of mappings, the earlier of which win.
///
/// As in kubectl, merged entries replace those before `<<` and are replaced by those after it.
fn merge<T: Tree>(entries: &mut T::Entries, from: T, alias: bool) -> Result<(), ErrorKind> {
    let Err(other) = T::merge(entries, from) else { return Ok(()) };
    let items = other.items().filter(|_| !alias).ok_or(ErrorKind::Merge)?;
    items.into_iter().rev().try_for_each(|item| T::merge(entries, item).map_err(|_| ErrorKind::Merge))
}

/// Returns the share of nodes that may come from aliases: nearly all in a small document, a tenth in a huge one.
fn alias_share(nodes: usize) -> f64 {
    const LOW: f64 = 400_000.0;
    const HIGH: f64 = 4_000_000.0;
    0.99 - 0.89 * ((nodes as f64).clamp(LOW, HIGH) - LOW) / (HIGH - LOW)
}

/// Returns the meaning of a tag for a scalar.
fn tag_of(tag: &granit_parser::Tag) -> Tag {
    match tag.suffix_in_namespace("tag:yaml.org,2002:").as_deref() {
        Some("str") => Tag::Str,
        Some("bool") => Tag::Bool,
        Some("int") => Tag::Int,
        Some("float") => Tag::Float,
        Some("null") => Tag::Null,
        Some("timestamp") => Tag::Timestamp,
        Some("binary") => Tag::Binary,
        Some("merge") => Tag::Merge,
        _ => Tag::Other,
    }
}

impl Tree for Value {
    type Entries = Map<String, Value>;

    fn scalar(scalar: Scalar, _: Place) -> Self {
        match scalar {
            Scalar::Null => Self::Null,
            Scalar::Bool(bool) => Self::Bool(bool),
            Scalar::Int(int) => Self::from(int),
            Scalar::Uint(uint) => Self::from(uint),
            Scalar::Float(float) => scalar::number(float).map_or(Self::Null, Self::Number),
            Scalar::String(text) => Self::String(text),
        }
    }

    fn sequence(items: Vec<Self>, _: Place) -> Self {
        Self::Array(items)
    }

    fn mapping(entries: Self::Entries, _: Place) -> Self {
        Self::Object(entries)
    }

    fn insert(entries: &mut Self::Entries, key: Key, value: Self) {
        entries.insert(key.text, value);
    }

    fn merge(entries: &mut Self::Entries, from: Self) -> Result<(), Self> {
        match from {
            Self::Object(from) => {
                entries.extend(from);
                Ok(())
            }
            other => Err(other),
        }
    }

    fn items(self) -> Option<Vec<Self>> {
        if let Self::Array(items) = self { Some(items) } else { None }
    }
}

/// The entries of a mapping while it is being read.
#[derive(Default)]
pub(super) struct NodeEntries {
    list: Vec<(Key, Node)>,
    /// The indices of the entries that come from merge keys, in ascending order.
    merged: Vec<usize>,
}

impl NodeEntries {
    /// Removes all but the last of the entries with the same key.
    fn without_replaced(self) -> Vec<(Key, Node)> {
        let Self { mut list, merged } = self;
        // The index of the last entry with each key, and the line of the last one that is not merged.
        let mut last: HashMap<&str, (usize, Option<NonZeroUsize>)> = HashMap::with_capacity(list.len());
        let (mut replaced, mut repeated) = (HashSet::new(), Vec::new());
        for (index, (key, _)) in list.iter().enumerate() {
            let line = NonZeroUsize::new(key.line).filter(|_| merged.binary_search(&index).is_err());
            match last.entry(&key.text) {
                Entry::Vacant(entry) => {
                    entry.insert((index, line));
                }
                Entry::Occupied(mut entry) => {
                    let (previous, written) = *entry.get();
                    replaced.insert(previous);
                    repeated.extend(line.and(written).map(|written| (index, written)));
                    entry.insert((index, line.or(written)));
                }
            }
        }
        for (index, written) in repeated {
            list[index].0.replaces = Some(written);
        }
        let mut index = 0..;
        list.retain(|_| index.next().is_none_or(|index| !replaced.contains(&index)));
        list.shrink_to_fit();
        list
    }
}

impl Tree for Node {
    type Entries = NodeEntries;

    fn scalar(scalar: Scalar, Place { line, column }: Place) -> Self {
        let kind = match scalar {
            Scalar::Null => NodeKind::Null,
            Scalar::Bool(bool) => NodeKind::Bool(bool),
            Scalar::Int(int) => NodeKind::Number(int.into()),
            Scalar::Uint(uint) => NodeKind::Number(uint.into()),
            Scalar::Float(float) => scalar::number(float).map_or(NodeKind::Null, NodeKind::Number),
            Scalar::String(text) => NodeKind::String(text),
        };
        Self { line, column, kind }
    }

    fn sequence(mut items: Vec<Self>, Place { line, column }: Place) -> Self {
        items.shrink_to_fit();
        Self { line, column, kind: NodeKind::Sequence(items) }
    }

    fn mapping(entries: Self::Entries, Place { line, column }: Place) -> Self {
        Self { line, column, kind: NodeKind::Mapping(entries.without_replaced()) }
    }

    fn insert(entries: &mut Self::Entries, key: Key, value: Self) {
        entries.list.push((key, value));
    }

    fn merge(entries: &mut Self::Entries, from: Self) -> Result<(), Self> {
        match from.kind {
            NodeKind::Mapping(from) => {
                entries.merged.extend(entries.list.len()..entries.list.len() + from.len());
                entries.list.extend(from);
                Ok(())
            }
            kind => Err(Self { kind, ..from }),
        }
    }

    fn items(self) -> Option<Vec<Self>> {
        if let NodeKind::Sequence(items) = self.kind { Some(items) } else { None }
    }
}
