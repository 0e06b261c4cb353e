//! The table of protobuf messages.

use std::{collections::HashMap, sync::LazyLock};

/// The messages of the sandbox's kinds, taken from Kubernetes' Go types, with the names of fields in protobuf and JSON.
///
/// A line names a message, and the lines below it its fields: number, JSON name and type. The fields of `*` are inlined
/// in JSON, or are all of it. A name with `?` is omitted when zero. `[]` is a list, `{}` a map with string keys. A
/// message without a version belongs to the version of the message around it.
const MESSAGES: &str = include_str!("messages.txt");

pub(super) static TABLE: LazyLock<HashMap<&str, Message>> = LazyLock::new(read_table);

/// The fields of a message by number.
pub(super) type Message = HashMap<u64, Field>;

/// How a field is written in JSON.
pub(super) struct Field {
    pub(super) name: &'static str,
    /// Whether the field is omitted when it is zero.
    pub(super) omitted: bool,
    pub(super) shape: Shape,
    pub(super) content: Type,
}

pub(super) enum Shape {
    One,
    List,
    Map,
}

pub(super) enum Type {
    Text,
    Integer,
    Boolean,
    Double,
    Bytes,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    /// A message that contains JSON.
    Json,
    Message(String),
}

fn read_table() -> HashMap<&'static str, Message> {
    let mut table: HashMap<&str, Message> = HashMap::new();
    let mut current = "";
    for line in MESSAGES.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match *words {
            [name] => {
                current = name;
                table.entry(current).or_default();
            }
            [number, name, content] => {
                let field = Field::read(current, name, content);
                table.entry(current).or_default().extend(number.parse().map(|number: u64| (number, field)));
            }
            _ => {}
        }
    }
    table
}

impl Field {
    fn read(message: &str, name: &'static str, content: &str) -> Self {
        let (shape, content) = match (content.strip_prefix("[]"), content.strip_prefix("{}")) {
            (Some(item), _) => (Shape::List, item),
            (_, Some(value)) => (Shape::Map, value),
            _ => (Shape::One, content),
        };
        let content = match content {
            "string" => Type::Text,
            "int" => Type::Integer,
            "bool" => Type::Boolean,
            "double" => Type::Double,
            "bytes" => Type::Bytes,
            "time" => Type::Time,
            "microtime" => Type::MicroTime,
            "quantity" => Type::Quantity,
            "intorstring" => Type::IntOrString,
            "json" => Type::Json,
            full if full.contains('.') => Type::Message(full.to_owned()),
            short => {
                let version = message.rsplit_once('.').map_or(message, |(version, _)| version);
                Type::Message(format!("{version}.{short}"))
            }
        };
        Self { name: name.trim_end_matches('?'), omitted: name.ends_with('?'), shape, content }
    }
}
