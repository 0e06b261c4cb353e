//! Sets of fields, as in `managedFields`.

use std::collections::{BTreeMap, btree_map::Entry};

use serde_json::{Map, Value};

use super::go;

/// A set of fields.
///
/// The elements of a path are stored in a canonical form of `FieldsV1`: `f:name`, `k:{"name":"x"}`, `v:"x"`, `i:0`.
/// This way, sets are read and written without conversion, and in the order of JSON objects.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Set {
    /// The nodes, none of which is empty.
    nodes: BTreeMap<Box<str>, Node>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Node {
    /// Whether the field itself belongs to the set, and not only fields within it.
    pub(super) member: bool,
    pub(super) children: Set,
}

impl Node {
    fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }
}

/// Returns the element for a field.
pub(super) fn field(name: &str) -> Box<str> {
    ["f:", name].concat().into()
}

/// Returns the element for a scalar in a set.
pub(super) fn scalar(value: &Value) -> Box<str> {
    format!("v:{}", go::json(value)).into()
}

/// Returns the element for an object in a list, identified by its keys.
pub(super) fn keyed(keys: &BTreeMap<&str, &Value>) -> Box<str> {
    let keys: Vec<_> = keys.iter().map(|(key, value)| format!("{}:{}", Value::from(*key), go::json(value))).collect();
    format!("k:{{{}}}", keys.join(",")).into()
}

impl Set {
    /// Returns the set of the fields at these paths.
    pub(super) fn of(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let mut at = &mut set;
            for (depth, name) in path.iter().enumerate() {
                let node = at.nodes.entry(field(name)).or_default();
                node.member |= depth + 1 == path.len();
                at = &mut node.children;
            }
        }
        set
    }

    /// Parses `FieldsV1`; none if it is malformed.
    pub(super) fn read(json: &Value) -> Option<Self> {
        Self::read_node(json).map(|node| node.children)
    }

    fn read_node(json: &Value) -> Option<Node> {
        let mut node = Node::default();
        for (key, value) in json.as_object()? {
            if key == "." {
                node.member = true;
            } else if let Some(element) = canonical(key)? {
                node.children.put(element, Self::read_node(value)?);
            }
        }
        node.member |= node.children.is_empty();
        Some(node)
    }

    /// Writes `FieldsV1`.
    pub(super) fn write(&self) -> Value {
        self.write_node(false)
    }

    fn write_node(&self, member: bool) -> Value {
        let mut json: Map<_, _> =
            self.nodes.iter().map(|(key, node)| (key.to_string(), node.children.write_node(node.member))).collect();
        if member && !json.is_empty() {
            json.insert(".".to_owned(), Map::new().into());
        }
        json.into()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    pub(super) fn get(&self, element: &str) -> Option<&Node> {
        self.nodes.get(element)
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.nodes.iter().map(|(element, node)| (&**element, node))
    }

    /// Changes the nodes, none of which may become empty.
    pub(super) fn visit(&mut self, change: &mut impl FnMut(&str, &mut Node)) {
        for (element, node) in &mut self.nodes {
            change(element, node);
        }
    }

    /// Adds a field and fields within it.
    pub(super) fn add(&mut self, element: Box<str>, member: bool, children: Set) {
        self.put(element, Node { member, children });
    }

    fn put(&mut self, element: Box<str>, node: Node) {
        if node.is_empty() {
            return;
        }
        match self.nodes.entry(element) {
            Entry::Vacant(vacant) => drop(vacant.insert(node)),
            Entry::Occupied(mut there) => {
                let there = there.get_mut();
                there.member |= node.member;
                there.children.unite(node.children);
            }
        }
    }

    /// Adds all fields of another set.
    pub(super) fn unite(&mut self, other: Set) {
        if self.is_empty() {
            *self = other;
            return;
        }
        for (element, node) in other.nodes {
            self.put(element, node);
        }
    }

    /// Removes all fields of another set. Removing a field does not remove the fields within it.
    pub(super) fn subtract(&mut self, other: &Set) {
        for (element, taken) in &other.nodes {
            if let Entry::Occupied(mut there) = self.nodes.entry(element.clone()) {
                let node = there.get_mut();
                node.member &= !taken.member;
                node.children.subtract(&taken.children);
                if node.is_empty() {
                    there.remove();
                }
            }
        }
    }

    /// Returns the fields that are in both sets.
    pub(super) fn intersection(&self, other: &Set) -> Set {
        let (small, large) = if self.nodes.len() <= other.nodes.len() { (self, other) } else { (other, self) };
        let mut both = Set::default();
        for (element, node) in &small.nodes {
            if let Some(found) = large.nodes.get(element) {
                let children = node.children.intersection(&found.children);
                both.add(element.clone(), node.member && found.member, children);
            }
        }
        both
    }

    /// Returns whether the set contains all fields of another set.
    pub(super) fn contains(&self, other: &Set) -> bool {
        other.nodes.iter().all(|(element, node)| {
            let found = self.nodes.get(element);
            found.is_some_and(|found| (found.member || !node.member) && found.children.contains(&node.children))
        })
    }

    /// Returns the paths as in messages, `.spec.containers[name="a"].image`. A field precedes the fields within it.
    pub(super) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect_paths("", &mut paths);
        paths
    }

    fn collect_paths(&self, prefix: &str, paths: &mut Vec<String>) {
        let members = self.nodes.iter().filter(|(_, node)| node.member);
        paths.extend(members.map(|(element, _)| format!("{prefix}{}", shown(element))));
        for (element, node) in &self.nodes {
            if !node.children.is_empty() {
                node.children.collect_paths(&format!("{prefix}{}", shown(element)), paths);
            }
        }
    }
}

/// Returns an element in its canonical form. The outer option is empty if the element is malformed, the inner if its
/// type is unknown.
fn canonical(key: &str) -> Option<Option<Box<str>>> {
    let (kind, rest) = key.split_once(':').filter(|(kind, _)| kind.len() == 1)?;
    let element = match kind {
        "f" => key.into(),
        "v" => scalar(&serde_json::from_str(rest).ok()?),
        "k" => {
            let keys: BTreeMap<String, Value> = serde_json::from_str(rest).ok()?;
            keyed(&keys.iter().map(|(key, value)| (key.as_str(), value)).collect())
        }
        "i" => format!("i:{}", rest.parse::<i64>().ok()?).into(),
        _ => return Some(None),
    };
    Some(Some(element))
}

/// Returns an element as in messages.
pub(super) fn shown(element: &str) -> String {
    let (kind, rest) = element.split_at(element.len().min(2));
    match kind {
        "f:" => format!(".{rest}"),
        "v:" => format!("[={rest}]"),
        "i:" => format!("[{rest}]"),
        _ => {
            let keys: Map<String, Value> = serde_json::from_str(rest).unwrap_or_default();
            let keys: Vec<_> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
            format!("[{}]", keys.join(","))
        }
    }
}
