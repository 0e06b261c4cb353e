//! The meaning of scalars by the YAML 1.1 rules of kubectl's YAML library.

use serde_json::Number;

use super::error::ErrorKind;

/// The value of a scalar.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scalar {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    String(String),
}

/// The tag of a scalar, if it affects its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tag {
    /// No tag.
    None,
    Str,
    Bool,
    Int,
    Float,
    Null,
    Timestamp,
    Binary,
    Merge,
    /// Any other tag, including the non-specific `!`; the scalar is then a string.
    Other,
}

impl Tag {
    fn name(self) -> &'static str {
        match self {
            Self::Str => "!!str",
            Self::Bool => "!!bool",
            Self::Int => "!!int",
            Self::Float => "!!float",
            Self::Null => "!!null",
            Self::Timestamp => "!!timestamp",
            Self::Binary => "!!binary",
            Self::Merge => "!!merge",
            Self::None | Self::Other => "!",
        }
    }
}

/// Resolves a scalar; `implicit` means that it has neither quotes nor a tag.
pub(super) fn resolve(tag: Tag, implicit: bool, text: &str) -> Result<Scalar, ErrorKind> {
    let wrong = || ErrorKind::Tag { tag: tag.name(), text: text.to_owned() };
    let string = || Scalar::String(text.to_owned());
    match tag {
        Tag::None if !implicit => Ok(string()),
        Tag::None => Ok(guess(text).unwrap_or_else(string)),
        Tag::Str | Tag::Merge | Tag::Other => Ok(string()),
        Tag::Binary => base64(text).map(Scalar::String).ok_or_else(wrong),
        Tag::Timestamp => {
            let date = text.as_bytes();
            let date = date.len() > 7 && date[..4].iter().all(u8::is_ascii_digit) && date[4] == b'-';
            if date { Ok(string()) } else { Err(wrong()) }
        }
        Tag::Bool | Tag::Int | Tag::Float | Tag::Null => match (tag, guess(text)) {
            (Tag::Bool, Some(found @ Scalar::Bool(_)))
            | (Tag::Int, Some(found @ (Scalar::Int(_) | Scalar::Uint(_))))
            | (Tag::Float, Some(found @ Scalar::Float(_)))
            | (Tag::Null, Some(found @ Scalar::Null)) => Ok(found),
            (Tag::Float, Some(Scalar::Int(int))) => Ok(Scalar::Float(int as f64)),
            _ => Err(wrong()),
        },
    }
}

/// Returns the value of an untagged plain scalar, or `None` if it is a string.
fn guess(text: &str) -> Option<Scalar> {
    // The first character rules out most strings.
    match text.as_bytes().first() {
        None => Some(Scalar::Null),
        Some(b'y' | b'Y' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' | b'o' | b'O' | b'~') => match text {
            "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
                Some(Scalar::Bool(true))
            }
            "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
                Some(Scalar::Bool(false))
            }
            "~" | "null" | "Null" | "NULL" => Some(Scalar::Null),
            _ => None,
        },
        Some(b'.' | b'+' | b'-' | b'0'..=b'9') => match text {
            ".nan" | ".NaN" | ".NAN" => Some(Scalar::Float(f64::NAN)),
            ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Some(Scalar::Float(f64::INFINITY)),
            "-.inf" | "-.Inf" | "-.INF" => Some(Scalar::Float(f64::NEG_INFINITY)),
            _ if text.starts_with('.') => fraction(text),
            _ => {
                let plain = without_underscores(text);
                integer(&plain).or_else(|| decimal(&plain)).or_else(|| signed_binary(&plain))
            }
        },
        _ => None,
    }
}

fn without_underscores(text: &str) -> std::borrow::Cow<'_, str> {
    if text.contains('_') { text.replace('_', "").into() } else { text.into() }
}

/// Parses an integer with its base as a prefix: `0x`, `0o`, `0b`, a leading `0` for octal, or none for decimal.
fn integer(plain: &str) -> Option<Scalar> {
    let (negative, digits) = match plain.as_bytes().first()? {
        b'-' => (true, &plain[1..]),
        b'+' => (false, &plain[1..]),
        _ => (false, plain),
    };
    let (base, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', _, ..] => (16, &digits[2..]),
        [b'0', b'o' | b'O', _, ..] => (8, &digits[2..]),
        [b'0', b'b' | b'B', _, ..] => (2, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    // The number parser would accept a second sign.
    if !digits.as_bytes().first()?.is_ascii_alphanumeric() {
        return None;
    }
    let size = u64::from_str_radix(digits, base).ok()?;
    if negative {
        return 0_i64.checked_sub_unsigned(size).map(Scalar::Int);
    }
    // The library does not accept a sign before a number above the largest signed integer.
    i64::try_from(size).map(Scalar::Int).ok().or_else(|| (!plain.starts_with('+')).then_some(Scalar::Uint(size)))
}

/// Parses a decimal float: digits with at most one point, and an optional exponent. `None` if it overflows.
fn decimal(plain: &str) -> Option<Scalar> {
    let unsigned = plain.strip_prefix(['+', '-']).unwrap_or(plain);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))),
        None => (unsigned, None),
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let well_formed = digits(whole)
        && digits(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && exponent.is_none_or(|exponent| !exponent.is_empty() && digits(exponent));
    let float: f64 = well_formed.then(|| plain.parse().ok()).flatten()?;
    float.is_finite().then_some(Scalar::Float(float))
}

/// Parses a float that starts with its point; underscores are only allowed between digits here.
fn fraction(text: &str) -> Option<Scalar> {
    let bytes = text.as_bytes();
    let digit = |index: Option<usize>| index.and_then(|index| bytes.get(index)).is_some_and(u8::is_ascii_digit);
    let between = |index: usize| digit(index.checked_sub(1)) && digit(Some(index + 1));
    let well_formed = bytes.iter().enumerate().all(|(index, byte)| *byte != b'_' || between(index));
    if well_formed { decimal(&without_underscores(text)) } else { None }
}

/// Parses `0b-101`: the library parses the digits after `0b` a second time, and then accepts a sign.
fn signed_binary(plain: &str) -> Option<Scalar> {
    let digits = plain.strip_prefix("0b")?;
    i64::from_str_radix(digits, 2).ok().map(Scalar::Int)
}

/// Returns the JSON number of a float, which is an integer if it has no fraction and fits; `None` for infinities.
pub(super) fn number(float: f64) -> Option<Number> {
    if float.fract() == 0.0 && float.abs() < 1e21 {
        // kubectl prints the shortest digits that identify the float, padded with zeros, and not its exact value.
        let text = format!("{:.0}", float.trunc());
        let text = if float.abs() < 9_007_199_254_740_992.0 { text } else { format!("{float}") };
        if let Ok(int) = text.parse::<i64>() {
            return Some(int.into());
        }
        if let Ok(uint) = text.parse::<u64>() {
            return Some(uint.into());
        }
    }
    Number::from_f64(float)
}

/// Converts a scalar to a JSON key.
pub(super) fn key(scalar: Scalar) -> Result<String, ErrorKind> {
    match scalar {
        Scalar::String(text) => Ok(text),
        Scalar::Bool(bool) => Ok(bool.to_string()),
        Scalar::Int(int) => Ok(int.to_string()),
        Scalar::Float(float) => Ok(float_key(float)),
        Scalar::Null => Err(ErrorKind::Key("null")),
        Scalar::Uint(_) => Err(ErrorKind::Key("a number above 9223372036854775807")),
    }
}

/// Formats a float as a key: in single precision, with an exponent if that is below -4 or above 5.
fn float_key(float: f64) -> String {
    if float.is_nan() {
        return ".nan".to_owned();
    }
    let single = float as f32;
    if single.is_infinite() {
        return if single > 0.0 { ".inf" } else { "-.inf" }.to_owned();
    }
    let scientific = format!("{single:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let Ok(power) = exponent.parse::<i32>() else { return scientific };
    if !(-4..6).contains(&power) {
        let sign = if power < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", power.abs());
    }
    format!("{single}")
}

/// Decodes base64 with padding, ignoring line breaks. Invalid UTF-8 becomes U+FFFD, as in JSON.
fn base64(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count, mut padding) = (0_u32, 0_usize, 0_usize);
    for byte in text.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n')) {
        let six = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'=' => {
                padding += 1;
                0
            }
            _ => return None,
        };
        if padding > 0 && byte != b'=' {
            return None;
        }
        bits = bits << 6 | u32::from(six);
        count += 1;
        if count.is_multiple_of(4) {
            bytes.extend([(bits >> 16) as u8, (bits >> 8) as u8, bits as u8]);
            bits = 0;
        }
    }
    if !count.is_multiple_of(4) || padding > 2 {
        return None;
    }
    bytes.truncate(bytes.len() - padding);
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
