//! Replaces values that necessarily differ between two servers, and between two runs on one server.
//!
//! Differences that can be recognized are kept: a UID becomes the name of its object, so that references to it are still
//! compared, and a revision becomes its relation to the previous one.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::play::Answer;

/// The label in which the Deployment controller writes a hash of the template.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// Normalises the responses of one run of a sequence.
pub(super) fn normalise(answers: &mut [Answer], slug: &str, managed_fields: bool) {
    let mut names = Names::default();
    for answer in answers.iter() {
        walk(&answer.body, &mut |object| names.learn(object));
    }
    let texts = names.texts(slug);
    let mut revisions = Revisions::default();
    for answer in answers {
        clean(&mut answer.body, &mut revisions, managed_fields);
        replace(&mut answer.body, &texts);
        replace(&mut answer.warnings, &texts);
    }
}

/// Calls `see` with each JSON object, outer ones first.
fn walk(value: &Value, see: &mut impl FnMut(&Map<String, Value>)) {
    match value {
        Value::Object(map) => {
            see(map);
            map.values().for_each(|child| walk(child, see));
        }
        Value::Array(items) => items.iter().for_each(|item| walk(item, see)),
        _ => {}
    }
}

/// The values that the server generated.
#[derive(Default)]
struct Names {
    /// The UIDs of each name, in the order in which they appeared.
    uids: BTreeMap<String, Vec<String>>,
    /// The names that were generated from a prefix, with that prefix.
    generated: BTreeMap<String, String>,
    hashes: BTreeSet<String>,
}

impl Names {
    fn learn(&mut self, object: &Map<String, Value>) {
        let Some(Value::Object(metadata)) = object.get("metadata") else { return };
        let text = |key: &str| metadata.get(key).and_then(Value::as_str);
        if let (Some(name), Some(prefix)) = (text("name"), text("generateName"))
            && name.starts_with(prefix)
        {
            self.generated.insert(name.to_owned(), format!("{prefix}<generated>"));
        }
        if let (Some(name), Some(uid)) = (text("name"), text("uid")) {
            let seen = self.uids.entry(name.to_owned()).or_default();
            if !seen.iter().any(|seen| seen == uid) {
                seen.push(uid.to_owned());
            }
        }
        let hash = metadata.get("labels").and_then(|labels| labels.get(TEMPLATE_HASH)).and_then(Value::as_str);
        self.hashes.extend(hash.map(str::to_owned));
    }

    /// Returns the replacements, longest first, since one may contain another.
    fn texts(&self, slug: &str) -> Vec<(String, String)> {
        let mut texts = vec![(slug.to_owned(), "$S".to_owned())];
        for (name, uids) in &self.uids {
            for (at, uid) in uids.iter().enumerate() {
                let again = if at == 0 { String::new() } else { format!(" {}", at + 1) };
                texts.push((uid.clone(), format!("<uid{again} of {name}>")));
            }
        }
        texts.extend(self.generated.clone());
        texts.extend(self.hashes.iter().map(|hash| (hash.clone(), "<hash>".to_owned())));
        // UIDs first: their replacements contain names.
        texts.sort_by_key(|(text, _)| (!is_uid(text), std::cmp::Reverse(text.len())));
        texts
    }
}

/// The last revision of each object, and all revisions that appeared.
#[derive(Default)]
struct Revisions {
    last: BTreeMap<String, String>,
    seen: BTreeSet<(String, String)>,
}

impl Revisions {
    fn tell(&mut self, uid: &str, revision: &str) -> &'static str {
        let known = !self.seen.insert((uid.to_owned(), revision.to_owned()));
        let last = self.last.insert(uid.to_owned(), revision.to_owned());
        match last {
            Some(last) if last == revision => "<the same revision>",
            _ if known => "<an earlier revision>",
            _ => "<a new revision>",
        }
    }
}

fn clean(value: &mut Value, revisions: &mut Revisions, managed_fields: bool) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| clean(item, revisions, managed_fields)),
        Value::Object(map) => {
            if let Some(Value::Object(metadata)) = map.get_mut("metadata") {
                clean_metadata(metadata, revisions, managed_fields);
            }
            if let Some(Value::Object(spec)) = map.get_mut("spec") {
                clean_addresses(spec);
            }
            if map.get("kind").is_some_and(|kind| kind == "Status") {
                sort_causes(map);
            }
            map.values_mut().for_each(|child| clean(child, revisions, managed_fields));
        }
        _ => {}
    }
}

/// Sorts causes: Go iterates over maps in random order, so the causes are in random order too.
fn sort_causes(status: &mut Map<String, Value>) {
    let Some(Value::Array(causes)) = status.get_mut("details").and_then(|details| details.get_mut("causes")) else {
        return;
    };
    let text = |cause: &Value| ["field", "message"].map(|key| cause[key].as_str().unwrap_or_default()).join(": ");
    causes.sort_by_key(text);
    let texts: BTreeSet<_> = causes.iter().map(text).collect();
    if let Some(Value::String(message)) = status.get_mut("message")
        && let Some((head, list)) = message.split_once(": [")
        && texts.iter().all(|text| list.contains(text.as_str()))
    {
        *message = format!("{head}: [{}]", texts.into_iter().collect::<Vec<_>>().join(", "));
    }
}

fn clean_metadata(metadata: &mut Map<String, Value>, revisions: &mut Revisions, managed_fields: bool) {
    let uid = metadata.get("uid").and_then(Value::as_str).map(str::to_owned);
    if let Some(Value::String(revision)) = metadata.get_mut("resourceVersion") {
        // A list has no UID. An object in the body of a request has no revision, and 0 is chosen by the client.
        *revision = uid.map_or("<revision>", |uid| revisions.tell(&uid, revision)).to_owned();
    }
    if let Some(Value::String(token)) = metadata.get_mut("continue")
        && !token.is_empty()
    {
        "<token>".clone_into(token);
    }
    if !managed_fields {
        metadata.remove("managedFields");
    }
    if let Some(Value::Array(entries)) = metadata.get_mut("managedFields") {
        // They are sorted by time, in whole seconds.
        let key =
            |entry: &Value| ["operation", "manager", "apiVersion", "subresource"].map(|key| entry[key].to_string());
        entries.sort_by_key(key);
    }
}

/// Replaces addresses, which are assigned randomly.
fn clean_addresses(spec: &mut Map<String, Value>) {
    let addresses = ["clusterIP", "clusterIPs"].map(|key| spec.contains_key(key).then_some(key));
    for key in addresses.into_iter().flatten() {
        if let Some(value) = spec.get_mut(key)
            && !value.to_string().contains("None")
        {
            *value = "<address>".into();
        }
    }
}

fn replace(value: &mut Value, texts: &[(String, String)]) {
    match value {
        Value::String(text) => *text = replace_text(text, texts),
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, texts)),
        Value::Object(map) => {
            let replaced = std::mem::take(map).into_iter().map(|(key, mut value)| {
                replace(&mut value, texts);
                (replace_text(&key, texts), value)
            });
            *map = replaced.collect();
        }
        _ => {}
    }
}

fn replace_text(text: &str, texts: &[(String, String)]) -> String {
    let known = texts.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
    let shaped = replace_shaped(&replace_shaped(&known, 36, is_uid, "<uid>"), 20, is_time, "<time>");
    let micro = replace_shaped(&shaped, 27, is_time, "<time>");
    // Revisions in messages: "the ResourceVersion in record (17)", "Too large resource version: 9, current: 17".
    [(" (", ")"), ("current: ", "")].iter().fold(micro, |text, (before, after)| replace_number(&text, before, after))
}

/// Replaces each part of `length` bytes for which `looks` returns true.
fn replace_shaped(text: &str, length: usize, looks: impl Fn(&str) -> bool, by: &str) -> String {
    let mut replaced = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        match rest.get(..length) {
            Some(part) if looks(part) => {
                replaced.push_str(by);
                rest = &rest[length..];
            }
            _ => {
                replaced.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    replaced
}

/// Replaces each number between two texts.
fn replace_number(text: &str, before: &str, after: &str) -> String {
    let mut parts = text.split(before);
    let mut replaced = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
        let number = rest.len() < part.len() && rest.starts_with(after);
        replaced.push_str(before);
        replaced.push_str(if number { "<revision>" } else { "" });
        replaced.push_str(if number { rest } else { part });
    }
    replaced
}

/// Matches `00000000-0000-0000-0000-000000000000`.
fn is_uid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// Matches `2026-01-01T00:00:00Z`, also with microseconds.
fn is_time(text: &str) -> bool {
    let shape = if text.len() == 20 { "0000-00-00T00:00:00Z" } else { "0000-00-00T00:00:00.000000Z" };
    let fits = |(byte, shape): (u8, u8)| if shape == b'0' { byte.is_ascii_digit() } else { byte == shape };
    text.len() == shape.len() && text.bytes().zip(shape.bytes()).all(fits)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_values_that_necessarily_differ_are_replaced() {
        let uid = "0a1b2c3d-0000-4000-8000-00000000abcd";
        let object = |revision: &str| {
            json!({
                "metadata": {"name": "s-x-abcde", "generateName": "s-x-", "uid": uid, "resourceVersion": revision,
                    "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": []},
                "spec": {"clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7"]},
            })
        };
        let wanted = |revision: &str| {
            json!({
                "metadata": {"name": "$S-<generated>", "generateName": "$S-", "uid": "<uid of $S-<generated>>",
                    "resourceVersion": revision, "creationTimestamp": "<time>"},
                "spec": {"clusterIP": "<address>", "clusterIPs": "<address>"},
            })
        };
        let message =
            format!("UID {uid}, 11111111-2222-3333-4444-555555555555, current: 12 (7) at 2026-01-01T00:00:00.123456Z");
        let bodies = [object("7"), object("7"), object("8"), object("7"), message.into()];
        let mut answers = bodies.map(|body| Answer { code: 200, warnings: Value::Null, body });
        normalise(&mut answers, "s-x", false);
        let told = "UID <uid of $S-<generated>>, <uid>, current: <revision> (<revision>) at <time>";
        let revisions = ["<a new revision>", "<the same revision>", "<a new revision>", "<an earlier revision>"];
        let bodies: Vec<_> = answers.into_iter().map(|answer| answer.body).collect();
        assert_eq!(bodies[..4], revisions.map(wanted));
        assert_eq!(bodies[4], told);
    }

    #[test]
    fn causes_are_sorted_with_their_message() {
        let status = |order: [&str; 2]| {
            let causes = order.map(|field| json!({"field": field, "message": "Required value"}));
            let message = format!("X \"x\" is invalid: [{}: Required value, {}: Required value]", order[0], order[1]);
            json!({"kind": "Status", "message": message, "details": {"causes": causes}})
        };
        let (mut one, other) = (status(["b", "a"]), status(["a", "b"]));
        clean(&mut one, &mut Revisions::default(), false);
        assert_eq!(one, other);
    }
}
