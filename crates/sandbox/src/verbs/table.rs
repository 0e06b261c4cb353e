//! Objects as tables, with the columns of the API server.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    kinds::{CellSource, Column, Kind},
    object::{Stored, meta},
    state::State,
};

/// Writes objects as a table.
pub(super) fn write(state: &State, kind: &Kind, version: usize, objects: &[Arc<Stored>], metadata: &str) -> String {
    let columns = kind.columns(version);
    let definitions: Vec<Value> = columns
        .iter()
        .map(|Column { name, kind, priority, .. }| {
            let format = if name == "Name" { "name" } else { "" };
            json!({"name": name, "type": kind, "format": format, "description": "", "priority": priority})
        })
        .collect();
    let now = state.clock.now();
    let mut out = format!(
        r#"{{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{metadata},"columnDefinitions":{},"rows":["#,
        Value::from(definitions)
    );
    for (index, object) in objects.iter().enumerate() {
        let value = object.value();
        let cells: Vec<Value> = columns.iter().map(|column| cell(column, &value, now)).collect();
        out.push_str(if index > 0 { "," } else { "" });
        out.push_str(&format!(r#"{{"cells":{},"object":"#, Value::from(cells)));
        object.write_metadata(&mut out);
        out.push('}');
    }
    out.push_str("]}");
    out
}

fn cell(column: &Column, object: &Value, now: Timestamp) -> Value {
    let number = |path: &str| object.pointer(path).and_then(Value::as_i64).unwrap_or_default();
    let items = |path: &str| object.pointer(path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    match &column.source {
        CellSource::Name => meta(object, "name").into(),
        CellSource::Age => age(meta(object, "creationTimestamp"), now).into(),
        CellSource::Created => meta(object, "creationTimestamp").into(),
        CellSource::Path(path) => match find(object, path) {
            None | Some(Value::Null) => Value::Null,
            Some(found) if column.kind == "date" => age(found.as_str().unwrap_or_default(), now).into(),
            Some(found @ (Value::Object(_) | Value::Array(_))) => found.to_string().into(),
            Some(found) => found.clone(),
        },
        CellSource::Count(paths) => {
            let count = |path: &&str| object.pointer(path).and_then(Value::as_object).map_or(0, |map| map.len());
            paths.iter().map(count).sum::<usize>().into()
        }
        CellSource::Ratio(some, all) => format!("{}/{}", number(some), number(all)).into(),
        CellSource::Number(path) => number(path).into(),
        CellSource::ReadyContainers => {
            let ready = items("/status/containerStatuses").iter().filter(|status| status["ready"] == true).count();
            format!("{ready}/{}", items("/spec/containers").len()).into()
        }
        CellSource::Restarts => {
            let restarts =
                items("/status/containerStatuses").iter().filter_map(|status| status["restartCount"].as_i64());
            restarts.sum::<i64>().to_string().into()
        }
        CellSource::Ports => {
            let port = |port: &Value| format!("{}/{}", port["port"], port["protocol"].as_str().unwrap_or("TCP"));
            items("/spec/ports").iter().map(port).collect::<Vec<_>>().join(",").into()
        }
    }
}

/// Returns the first value that a JSONPath matches: `.spec.size`, `.status.conditions[?(@.type=="Ready")].status`,
/// `.items[0]`.
fn find<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let mut found = object;
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let (step, after) = inner.split_once(']')?;
            rest = after;
            let items = found.as_array();
            found = match step.strip_prefix("?(@.").and_then(|filter| filter.strip_suffix(')')) {
                Some(filter) => {
                    let (key, wanted) = filter.split_once("==")?;
                    let wanted = wanted.trim().trim_matches(['"', '\'']);
                    items?.iter().find(|item| item[key.trim()] == *wanted)?
                }
                None => match step.trim_matches(['"', '\'']).parse::<usize>() {
                    Ok(index) => items?.get(index)?,
                    Err(_) => found.get(step.trim_matches(['"', '\'']))?,
                },
            };
            continue;
        }
        rest = rest.strip_prefix('.').unwrap_or(rest);
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        found = found.get(&rest[..end])?;
        rest = &rest[end..];
    }
    Some(found)
}

/// Returns an age in the format of apimachinery's `duration.HumanDuration`.
fn age(then: &str, now: Timestamp) -> String {
    let Ok(then) = then.parse::<Timestamp>() else { return "<unknown>".to_owned() };
    let seconds = now.duration_since(then).as_secs().max(0);
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let two = |large: i64, one: &str, small: i64, other: &str| {
        if small == 0 { format!("{large}{one}") } else { format!("{large}{one}{small}{other}") }
    };
    match hours {
        _ if seconds < 120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        0..3 => format!("{minutes}m"),
        3..8 => two(hours, "h", minutes % 60, "m"),
        8..48 => format!("{hours}h"),
        48..192 => two(hours / 24, "d", hours % 24, "h"),
        192..17_520 => format!("{}d", hours / 24),
        17_520..70_080 => two(hours / 8760, "y", hours / 24 % 365, "d"),
        _ => format!("{}y", hours / 8760),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_formatted_like_in_kubectl() {
        for (seconds, expected) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (130, "2m10s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_860, "3h1m"),
            (28_800, "8h"),
            (172_800, "2d"),
            (176_400, "2d1h"),
            (691_200, "8d"),
            (63_072_000, "2y"),
        ] {
            let then = Timestamp::UNIX_EPOCH;
            let now = Timestamp::from_second(seconds).expect("a time");
            assert_eq!(age(&then.to_string(), now), expected, "{seconds}");
        }
    }

    #[test]
    fn json_paths_of_columns_are_evaluated() {
        let object = json!({
            "spec": {"size": "small", "a.b": 1},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "items": [1, 2]},
        });
        for (path, expected) in [
            (".spec.size", json!("small")),
            (".spec['a.b']", json!(1)),
            (r#".status.conditions[?(@.type=="Ready")].status"#, json!("True")),
            (r#".status.conditions[?(@.type=="Other")].status"#, json!(null)),
            (".status.items[1]", json!(2)),
            (".spec.none", json!(null)),
        ] {
            assert_eq!(find(&object, path).cloned().unwrap_or_default(), expected, "{path}");
        }
    }
}
