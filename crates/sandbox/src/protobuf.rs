//! Bodies in Kubernetes' protobuf, which clients built on Go's types send, `kubectl create` among them.
//!
//! An envelope contains the version and kind of the object. The object is decoded to the JSON that Go's types write,
//! without nulls.

mod table;
#[cfg(test)]
mod tests;
mod wire;

use std::borrow::Cow;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};

use self::{
    table::{Field, Shape, TABLE, Type},
    wire::{Parts, Result, Wire, varint},
};
use crate::status::ApiError;

pub(crate) const CONTENT_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// How deeply messages may be nested: as deeply as JSON.
const DEEPEST: usize = 128;

/// Decodes a body.
pub(crate) fn decode(body: &[u8]) -> std::result::Result<Value, ApiError> {
    let unrecognized = |why| ApiError::bad_request(format!("the object provided is unrecognized: {why}"));
    let Envelope { version, kind, raw } = open(body).map_err(unrecognized)?;
    if kind.is_empty() {
        return Err(ApiError::not_modelled("protobuf bodies without a kind"));
    }
    let name = match kind {
        // The type is registered in every group.
        "DeleteOptions" => "meta.k8s.io/v1.DeleteOptions",
        _ => &format!("{version}.{kind}"),
    };
    if !TABLE.contains_key(name) {
        return Err(ApiError::not_modelled(format_args!("protobuf bodies of kind {kind} in version {version}")));
    }
    let mut object = message(name, raw, 0).map_err(|why| {
        let version = version.rsplit('/').next().unwrap_or_default();
        ApiError::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"))
    })?;
    object["apiVersion"] = version.into();
    object["kind"] = kind.into();
    Ok(object)
}

#[derive(Default)]
struct Envelope<'a> {
    version: &'a str,
    kind: &'a str,
    raw: &'a [u8],
}

fn open(body: &[u8]) -> Result<Envelope<'_>> {
    let expected = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]";
    let body = body.strip_prefix(b"k8s\0").ok_or(expected)?;
    let mut envelope = Envelope::default();
    for part in Parts(body) {
        match part? {
            (1, Wire::Bytes(of_type)) => {
                for part in Parts(of_type) {
                    match part? {
                        (1, wire) => envelope.version = wire.text()?,
                        (2, wire) => envelope.kind = wire.text()?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(raw)) => envelope.raw = raw,
            _ => {}
        }
    }
    Ok(envelope)
}

/// Decodes a message of the table. Unknown fields are skipped, as Go does.
fn message(name: &str, bytes: &[u8], depth: usize) -> Result<Value> {
    if depth > DEEPEST {
        return Err("exceeded max depth".into());
    }
    let fields = TABLE.get(name).ok_or("unknown message")?;
    let mut object = Value::Object(Map::new());
    for part in Parts(bytes) {
        let (number, wire) = part?;
        let Some(field) = fields.get(&number) else { continue };
        let named = |why| Cow::from(format!("{}: {why}", field.name));
        match field.shape {
            Shape::One => {
                let value = field.content.decode(wire, depth).map_err(named)?;
                if !(value.is_null() || field.omitted && is_zero(&value)) {
                    merge(slot(&mut object, field.name), value);
                }
            }
            Shape::List => list(field, wire, slot(&mut object, field.name), depth).map_err(named)?,
            Shape::Map => {
                let (key, value) = entry(field, wire, depth).map_err(named)?;
                merge(slot(&mut object, field.name), Value::Object(Map::from_iter([(key, value)])));
            }
        }
    }
    Ok(object)
}

/// Returns where the value of a field is stored.
fn slot<'a>(object: &'a mut Value, name: &str) -> &'a mut Value {
    match (object, name) {
        (all, "*") => all,
        (Value::Object(fields), name) => fields.entry(name).or_insert(Value::Null),
        (all, _) => all,
    }
}

/// Merges the fields of an object; replaces any other value.
fn merge(target: &mut Value, value: Value) {
    match (target, value) {
        (Value::Object(fields), Value::Object(more)) => fields.extend(more),
        (target, value) => *target = value,
    }
}

/// Appends one item to a list, or several packed ones.
fn list(field: &Field, wire: Wire<'_>, target: &mut Value, depth: usize) -> Result<()> {
    if !target.is_array() {
        *target = Value::Array(Vec::new());
    }
    let Value::Array(items) = target else { return Ok(()) };
    match (&field.content, wire) {
        (Type::Integer, Wire::Bytes(mut packed)) => {
            while !packed.is_empty() {
                items.push(Type::Integer.decode(Wire::Varint(varint(&mut packed)?), depth)?);
            }
        }
        (content, wire) => items.push(content.decode(wire, depth)?),
    }
    Ok(())
}

/// Decodes an entry of a map. A missing key or value is zero.
fn entry(field: &Field, wire: Wire<'_>, depth: usize) -> Result<(String, Value)> {
    let (mut key, mut value) = ("", None);
    for part in Parts(wire.bytes()?) {
        match part? {
            (1, wire) => key = wire.text()?,
            (2, wire) => value = Some(field.content.decode(wire, depth)?),
            _ => {}
        }
    }
    let zero = match field.content {
        Type::Integer | Type::Double | Type::Boolean => Wire::Varint(0),
        _ => Wire::Bytes(&[]),
    };
    Ok((key.to_owned(), value.map_or_else(|| field.content.decode(zero, depth), Ok)?))
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

impl Type {
    fn decode(&self, wire: Wire<'_>, depth: usize) -> Result<Value> {
        Ok(match self {
            Self::Text => wire.text()?.into(),
            Self::Integer => wire.integer()?.into(),
            Self::Boolean => (wire.integer()? != 0).into(),
            Self::Double => double(wire)?,
            Self::Bytes => STANDARD.encode(wire.bytes()?).into(),
            Self::Time => time(wire, "%Y-%m-%dT%H:%M:%SZ")?,
            Self::MicroTime => time(wire, "%Y-%m-%dT%H:%M:%S.%6fZ")?,
            Self::Quantity => first(wire)?.text()?.into(),
            Self::IntOrString => int_or_string(wire)?,
            Self::Json => match first(wire)?.bytes()? {
                [] => Value::Null,
                raw => serde_json::from_slice(raw).map_err(|error| error.to_string())?,
            },
            Self::Message(name) => message(name, wire.bytes()?, depth + 1)?,
        })
    }
}

/// Decodes a number. Go writes whole numbers without a fraction.
fn double(wire: Wire<'_>) -> Result<Value> {
    let Wire::Fixed64(bits) = wire else { return Err(wire.wrong()) };
    let number = f64::from_bits(bits);
    #[expect(clippy::cast_possible_truncation, reason = "whole numbers below 2^53 are exact")]
    let whole = number as i64;
    Ok(if number.fract() == 0.0 && number.abs() < 9e15 { whole.into() } else { number.into() })
}

/// Returns the first field of a message that has only this one.
fn first(wire: Wire<'_>) -> Result<Wire<'_>> {
    Parts(wire.bytes()?).next().map_or(Ok(Wire::Bytes(&[])), |part| part.map(|(_, wire)| wire))
}

/// Decodes a time. An empty message is no time.
fn time(wire: Wire<'_>, format: &str) -> Result<Value> {
    let (bytes, mut seconds, mut nanos) = (wire.bytes()?, 0, 0);
    for part in Parts(bytes) {
        match part? {
            (1, wire) => seconds = wire.integer()?,
            (2, wire) => nanos = wire.integer()?,
            _ => {}
        }
    }
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let nanos = i32::try_from(nanos).map_err(|error| error.to_string())?;
    let time = jiff::Timestamp::new(seconds, nanos).map_err(|error| error.to_string())?;
    Ok(time.strftime(format).to_string().into())
}

fn int_or_string(wire: Wire<'_>) -> Result<Value> {
    let (mut is_text, mut number, mut text) = (false, 0, "");
    for part in Parts(wire.bytes()?) {
        match part? {
            (1, wire) => is_text = wire.integer()? != 0,
            (2, wire) => number = wire.integer()?,
            (3, wire) => text = wire.text()?,
            _ => {}
        }
    }
    Ok(if is_text { text.into() } else { number.into() })
}
