//! Writes YAML in block style, as kubectl does.

use serde_json::Value;

/// Writes a value as a YAML document, with sorted keys. Texts of several lines are written as such, so that they can be
/// compared line by line.
pub fn write(value: &Value) -> String {
    let mut text = String::new();
    block(value, 0, &mut text);
    text
}

/// Writes a value whose first line is already indented.
fn block(value: &Value, indent: usize, text: &mut String) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (index, (key, value)) in fields.iter().enumerate() {
                start(index, indent, text);
                text.push_str(&scalar(key));
                text.push(':');
                if is_scalar(value) {
                    text.push(' ');
                    block(value, indent + 2, text);
                } else {
                    // A list has the indentation of its key.
                    let indent = if value.is_array() { indent } else { indent + 2 };
                    text.push('\n');
                    text.push_str(&" ".repeat(indent));
                    block(value, indent, text);
                }
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (index, item) in items.iter().enumerate() {
                start(index, indent, text);
                text.push_str("- ");
                block(item, indent + 2, text);
            }
        }
        Value::String(string) if indent > 0 && fits_a_block(string) => lines(string, indent, text),
        Value::String(string) => {
            text.push_str(&scalar(string));
            text.push('\n');
        }
        other => {
            text.push_str(&other.to_string());
            text.push('\n');
        }
    }
}

/// Returns whether a value fits on the line of its key, like scalars and empty lists and objects.
fn is_scalar(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => true,
    }
}

fn start(index: usize, indent: usize, text: &mut String) {
    if index > 0 {
        text.push_str(&" ".repeat(indent));
    }
}

/// Writes a string as a literal block.
fn lines(string: &str, indent: usize, text: &mut String) {
    let ends = string.len() - string.trim_end_matches('\n').len();
    text.push_str(match ends {
        0 => "|-\n",
        1 => "|\n",
        _ => "|+\n",
    });
    for line in string.split_inclusive('\n') {
        if line != "\n" {
            text.push_str(&" ".repeat(indent));
        }
        text.push_str(line);
    }
    if ends == 0 {
        text.push('\n');
    }
}

/// Returns whether YAML can have a string as a literal block. White space at its beginning would be ambiguous.
fn fits_a_block(string: &str) -> bool {
    let printable = |char: char| match char {
        '\n' | '\t' => true,
        '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => false,
        char => !char.is_control(),
    };
    string.contains('\n') && !string.starts_with(char::is_whitespace) && string.chars().all(printable)
}

/// Returns a string without quotes if YAML reads it as the same string, otherwise in JSON quotes, which are valid YAML.
fn scalar(string: &str) -> String {
    let reserved = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    let plain = string.starts_with(|first: char| first.is_ascii_alphabetic())
        && !string.ends_with([':', ' '])
        && ![": ", " #"].iter().any(|part| string.contains(part))
        && !string.contains(char::is_control)
        && !reserved.contains(&string.to_ascii_lowercase().as_str());
    if plain { string.to_owned() } else { Value::from(string).to_string() }
}
