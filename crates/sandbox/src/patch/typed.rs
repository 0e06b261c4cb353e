//! Values with their types: the fields of a value, and the differences between two versions.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, LazyLock},
};

use serde_json::{Map, Value};

use super::fields::{Set, field, keyed, scalar};
use crate::schema::{ListType, Schema, Type};

/// The type of a value. If it is unknown, maps are merged and lists are replaced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Typed<'a> {
    pub(super) schema: Option<&'a Schema>,
    place: Place,
    /// Whether the kind is one of Kubernetes' own.
    pub(super) builtin: bool,
}

/// The position of the value in an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Root,
    Metadata,
    Inner,
}

/// How a value is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Map,
    List,
    Scalar,
}

/// Structs and lists of Kubernetes' own kinds that are empty instead of missing, so that nobody adds them.
const NEVER_MISSING: [&str; 12] = [
    "metadata",
    "spec",
    "status",
    "template",
    "jobTemplate",
    "strategy",
    "updateStrategy",
    "resources",
    "loadBalancer",
    "names",
    "acceptedNames",
    "containers",
];

static EMPTY: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));

/// The metadata of objects, for kinds that do not declare its fields.
static OBJECT_META: LazyLock<Schema> = LazyLock::new(|| {
    let typed = |types| Schema { types, ..Schema::default() };
    let text = || Arc::new(typed(Type::String));
    let texts = || Arc::new(Schema { additional: Some(text()), ..typed(Type::Object) });
    let list = |list, items| Arc::new(Schema { list, items: Some(Arc::new(items)), ..typed(Type::Array) });
    let reference = || Schema { atomic: true, ..typed(Type::Object) };
    let fields = [
        ("name", text()),
        ("namespace", text()),
        ("generateName", text()),
        ("uid", text()),
        ("resourceVersion", text()),
        ("selfLink", text()),
        ("creationTimestamp", text()),
        ("deletionTimestamp", text()),
        ("generation", Arc::new(typed(Type::Integer))),
        ("deletionGracePeriodSeconds", Arc::new(typed(Type::Integer))),
        ("labels", texts()),
        ("annotations", texts()),
        ("finalizers", list(ListType::Set, typed(Type::String))),
        ("ownerReferences", list(ListType::Map(vec!["uid".to_owned()]), reference())),
        ("managedFields", list(ListType::Atomic, reference())),
    ];
    let properties = fields.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect();
    Schema { properties, ..typed(Type::Object) }
});

impl<'a> Typed<'a> {
    /// Returns the type of an object.
    pub(super) fn root(schema: &'a Schema) -> Self {
        Self { schema: Some(schema), place: Place::Root, builtin: schema.source.is_none() }
    }

    fn inner(self, schema: Option<&'a Schema>) -> Self {
        Self { schema, place: Place::Inner, builtin: self.builtin }
    }

    /// Returns the type of a field, and whether the schema declares it.
    pub(super) fn field(self, name: &str) -> (Self, bool) {
        let known = self.schema.and_then(|schema| schema.properties.get(name)).map(|schema| &**schema);
        if name == "metadata" && (known.is_some() || self.place == Place::Root) {
            let place = if self.place == Place::Root { Place::Metadata } else { Place::Inner };
            let declared = known.filter(|schema| !schema.properties.is_empty());
            return (Self { schema: declared.or(Some(&*OBJECT_META)), place, builtin: self.builtin }, true);
        }
        match known {
            Some(known) => (self.inner(Some(known)), true),
            None => (self.inner(self.schema.and_then(|schema| schema.additional.as_deref())), false),
        }
    }

    /// Returns whether undeclared fields are allowed.
    pub(super) fn is_open(self) -> bool {
        let open =
            |schema: &Schema| schema.additional.is_some() || schema.preserve_unknown || schema.properties.is_empty();
        self.schema.is_none_or(open)
    }

    pub(super) fn items(self) -> Self {
        self.inner(self.schema.and_then(|schema| schema.items.as_deref()))
    }

    pub(super) fn types(self) -> Type {
        self.schema.map_or(Type::Any, |schema| schema.types)
    }

    /// Returns how a value is treated, by its type, or by the value itself if the type is open.
    pub(super) fn shape(self, value: &Value) -> Shape {
        match (self.types(), value) {
            (Type::Any, Value::Array(_)) | (Type::Array, _) => Shape::List,
            (Type::Any, Value::Object(_) | Value::Null) | (Type::Object, _) => Shape::Map,
            _ => Shape::Scalar,
        }
    }

    pub(super) fn is_atomic(self, shape: Shape) -> bool {
        match shape {
            Shape::Map => self.schema.is_some_and(|schema| schema.atomic),
            Shape::List => self.schema.is_none_or(|schema| schema.list == ListType::Atomic),
            Shape::Scalar => true,
        }
    }

    /// Returns the element for an item of a merged list.
    pub(super) fn element(self, item: &Value) -> Result<Box<str>, String> {
        let Some(ListType::Map(names)) = self.schema.map(|schema| &schema.list) else {
            return match item {
                Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
                Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
                Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
                item => Ok(scalar(item)),
            };
        };
        let Value::Object(item) = item else {
            let what = if item.is_null() { "a null element" } else { "non-map elements" };
            return Err(format!("associative list with keys may not have {what}"));
        };
        let schema = self.items().schema;
        let default = |name: &str| schema.and_then(|schema| schema.properties.get(name)?.default.as_ref());
        let keys: BTreeMap<_, _> =
            names.iter().filter_map(|name| Some((name.as_str(), item.get(name).or_else(|| default(name))?))).collect();
        if keys.is_empty() && !names.is_empty() {
            let names: Vec<_> = names.iter().map(|name| format!("\"{name}\"")).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default \
                 values for any key fields)",
                names.join(" ")
            ));
        }
        Ok(keyed(&keys))
    }

    /// Returns the element for an item, or for its index if it has no keys.
    fn element_at(self, index: usize, item: &Value) -> Box<str> {
        self.element(item).unwrap_or_else(|_| format!("i:{index}").into())
    }

    /// Returns the empty value of a field that Kubernetes never leaves out.
    fn missing(self, name: &str, field: Self) -> Option<&'static Value> {
        let never = self.builtin && NEVER_MISSING.contains(&name) && !field.is_atomic(Shape::Map);
        match field.types() {
            Type::Object if never && field.schema.is_some_and(|schema| !schema.properties.is_empty()) => Some(&EMPTY),
            Type::Array if never => Some(&Value::Null),
            _ => None,
        }
    }

    /// Returns whether a field is ignored: `managedFields` is not owned.
    pub(super) fn skips(self, name: &str) -> bool {
        self.place == Place::Metadata && name == "managedFields"
    }
}

/// Returns whether two values are equal, comparing numbers by value.
pub(super) fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left == right || left.as_f64() == right.as_f64(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            let equal = |((key, left), (other, right)): ((&String, _), (&String, _))| key == other && same(left, right);
            left.len() == right.len() && left.iter().zip(right).all(equal)
        }
        (left, right) => left == right,
    }
}

/// Returns whether the value itself belongs to the set, and the set of fields in it.
pub(super) fn to_set(typed: Typed<'_>, value: &Value) -> (bool, Set) {
    let shape = typed.shape(value);
    let mut set = Set::default();
    if typed.is_atomic(shape) {
        return (true, set);
    }
    match (shape, value) {
        (Shape::Map, Value::Object(fields)) => {
            for (name, value) in fields.iter().filter(|(name, _)| !typed.skips(name)) {
                let (inner, named) = typed.field(name);
                let (member, children) = to_set(inner, value);
                let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                set.add(field(name), member || empty || !named, children);
            }
        }
        (Shape::List, Value::Array(items)) => {
            let (mut seen, mut twice) = (BTreeSet::new(), BTreeSet::new());
            let elements: Vec<_> = items.iter().enumerate().map(|(at, item)| typed.element_at(at, item)).collect();
            twice.extend(elements.iter().filter(|element| !seen.insert(*element)));
            for (element, item) in elements.iter().zip(items) {
                let children = if twice.contains(element) { Set::default() } else { to_set(typed.items(), item).1 };
                set.add(element.clone(), true, children);
            }
        }
        _ => {}
    }
    (false, set)
}

/// The differences between two versions of an object.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Fields in both versions with different values.
    pub(super) modified: Set,
    pub(super) added: Set,
    pub(super) removed: Set,
}

/// The change of a field itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    None,
    Modified,
    Added,
    Removed,
}

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        self.modified.is_empty() && self.added.is_empty() && self.removed.is_empty()
    }

    fn put(&mut self, element: &str, change: Change, inner: Changes) {
        self.modified.add(element.into(), change == Change::Modified, inner.modified);
        self.added.add(element.into(), change == Change::Added, inner.added);
        self.removed.add(element.into(), change == Change::Removed, inner.removed);
    }
}

/// Compares two versions of an object.
pub(super) fn changes(typed: Typed<'_>, old: Option<&Value>, new: &Value) -> Changes {
    let mut changes = Changes::default();
    compare(typed, Some(old.unwrap_or(&EMPTY)), Some(new), &mut changes);
    changes
}

fn compare(typed: Typed<'_>, old: Option<&Value>, new: Option<&Value>, changes: &mut Changes) -> Change {
    let shapes = match (old, new) {
        (Some(old), Some(new)) if same(old, new) => return Change::None,
        (Some(old), Some(new)) => [Some(typed.shape(new)), Some(typed.shape(old))],
        (old, new) => [new.or(old).map(|value| typed.shape(value)), None],
    };
    let mut leaf = false;
    // A value that changed its type is compared as both types.
    let second = shapes[1].filter(|shape| shapes[0] != Some(*shape));
    for shape in shapes[0].into_iter().chain(second) {
        leaf |= compare_as(shape, typed, old, new, changes);
    }
    match (old, new) {
        (None, _) => Change::Added,
        (_, None) => Change::Removed,
        _ if leaf => Change::Modified,
        _ => Change::None,
    }
}

/// Compares values of one shape and returns whether they are compared as a whole.
fn compare_as(shape: Shape, typed: Typed<'_>, old: Option<&Value>, new: Option<&Value>, changes: &mut Changes) -> bool {
    let map = |value: Option<&'_ Value>| value.and_then(Value::as_object).is_some_and(|map| !map.is_empty());
    let list = |value: Option<&'_ Value>| value.and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    match shape {
        _ if typed.is_atomic(shape) => true,
        Shape::Map if map(old) || map(new) => {
            compare_maps(typed, old.and_then(Value::as_object), new.and_then(Value::as_object), changes);
            false
        }
        Shape::List if list(old) || list(new) => {
            compare_lists(typed, old.and_then(Value::as_array), new.and_then(Value::as_array), changes);
            false
        }
        _ => true,
    }
}

fn compare_maps(
    typed: Typed<'_>,
    old: Option<&Map<String, Value>>,
    new: Option<&Map<String, Value>>,
    changes: &mut Changes,
) {
    let mut visit = |name: &str, before: Option<&Value>, after: Option<&Value>| {
        let inner = typed.field(name).0;
        // Such a field is only missing if the object around it is.
        let before = before.or_else(|| old.and(typed.missing(name, inner)));
        let after = after.or_else(|| new.and(typed.missing(name, inner)));
        let mut found = Changes::default();
        let change = compare(inner, before, after, &mut found);
        if change != Change::None || !found.is_empty() {
            changes.put(&field(name), change, found);
        }
    };
    for (name, before) in old.into_iter().flatten().filter(|(name, _)| !typed.skips(name)) {
        visit(name, Some(before), new.and_then(|new| new.get(name)));
    }
    for (name, after) in new.into_iter().flatten().filter(|(name, _)| !typed.skips(name)) {
        if old.is_none_or(|old| !old.contains_key(name)) {
            visit(name, None, Some(after));
        }
    }
}

fn compare_lists(typed: Typed<'_>, old: Option<&Vec<Value>>, new: Option<&Vec<Value>>, changes: &mut Changes) {
    let mut groups: BTreeMap<Box<str>, [Vec<&Value>; 2]> = BTreeMap::new();
    for (side, items) in [old, new].into_iter().enumerate() {
        for (at, item) in items.into_iter().flatten().enumerate() {
            groups.entry(typed.element_at(at, item)).or_default()[side].push(item);
        }
    }
    for (element, [before, after]) in &groups {
        let mut found = Changes::default();
        let change = match (before.as_slice(), after.as_slice()) {
            ([] | [_], [] | [_]) => compare(typed.items(), before.first().copied(), after.first().copied(), &mut found),
            // Duplicate items are owned as a whole.
            ([_, _, ..], [_, _, ..]) if before == after => Change::None,
            ([_, _, ..], [_, _, ..]) => Change::Modified,
            (before, after) => {
                let twice = after.len() > 1;
                let (old, new) = if twice { (before.first(), None) } else { (None, after.first()) };
                if old.or(new).is_some() {
                    let change = compare(typed.items(), old.copied(), new.copied(), &mut found);
                    changes.put(element, change, Changes::default());
                }
                if twice { Change::Added } else { Change::Removed }
            }
        };
        changes.put(element, change, found);
    }
}
