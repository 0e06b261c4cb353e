//! What is in the messages.

use std::{collections::HashMap, sync::LazyLock};

/// The messages that the kinds of the sandbox consist of: facts of Kubernetes' Go types, which name a field in protobuf
/// and in JSON.
///
/// A line names a message, the lines under it its fields: the number, the name in JSON, the type. The fields of `*` are
/// fields of the message itself in JSON, or all that JSON has of it. A name with `?` is left out if it is zero. `[]` is
/// a list, `{}` a map by texts. A message without a version has that of the message it is in.
const MESSAGES: &str = include_str!("messages.txt");

pub(super) static TABLE: LazyLock<HashMap<&str, Message>> = LazyLock::new(read_table);

/// The fields of a message by their numbers.
pub(super) type Message = HashMap<u64, Field>;

/// What JSON makes of a field.
pub(super) struct Field {
    pub(super) name: &'static str,
    /// Whether it is left out if it is zero.
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
    /// A message that holds JSON.
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
