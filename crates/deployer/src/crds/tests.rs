use std::{collections::BTreeMap, path::Path};

use billhook_objects::yaml as reader;
use serde_json::{Value, json};

use super::{definitions, files, yaml};

#[test]
fn the_checked_in_crds_are_those_of_the_types() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
    let files: BTreeMap<String, String> = files().unwrap().into_iter().collect();
    let mut found: Vec<_> =
        folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    found.sort();
    assert_eq!(found, files.keys().cloned().collect::<Vec<_>>(), "the files in {}", folder.display());
    for (name, text) in files {
        let path = folder.join(name);
        let there = std::fs::read_to_string(&path).unwrap();
        assert!(there == text, "{} is not that of the types; `cargo xtask crds` writes it", path.display());
    }
}

#[test]
fn a_file_says_what_the_definition_says() {
    for (definition, (name, text)) in definitions().unwrap().iter().zip(files().unwrap()) {
        let documents = reader::parse(&text).unwrap();
        assert_eq!(documents.len(), 1, "{name}");
        assert_eq!(documents[0].value, *definition, "{name}");
    }
}

/// Landscaper's own definitions, where they are at hand. What differs is listed here: `-` is only there, `+` only here.
#[test]
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn the_crds_have_the_form_of_landscapers() {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/fixtures");
    let root = std::env::var_os("BILLHOOK_FIXTURES").unwrap_or_else(|| beside.into());
    for (definition, (name, _)) in definitions().unwrap().iter().zip(files().unwrap()) {
        let text = match std::fs::read_to_string(Path::new(&root).join("landscaper").join(&name)) {
            Ok(text) => text,
            Err(error) => {
                eprintln!("skipped {name}: {error}");
                continue;
            }
        };
        let theirs = leaves(&reader::parse(&text).unwrap()[0].value);
        let ours = leaves(definition);
        let only = |these: &BTreeMap<String, Value>, those: &BTreeMap<String, Value>, sign| {
            let only = these.iter().filter(|(path, value)| those.get(*path) != Some(value));
            only.map(|(path, value)| format!("{sign} {path}: {value}")).collect::<Vec<_>>()
        };
        let mut differences = [only(&theirs, &ours, '-'), only(&ours, &theirs, '+')].concat();
        differences.retain(|difference| !HARMLESS.contains(&difference.as_str()));
        assert_eq!(differences, [""; 0], "{name}");
    }
}

/// What every object has, an API server knows without being told; and nothing is no subresource.
const HARMLESS: [&str; 4] = [
    "- /spec/versions/0/schema/openAPIV3Schema/properties/apiVersion/type: \"string\"",
    "- /spec/versions/0/schema/openAPIV3Schema/properties/kind/type: \"string\"",
    "- /spec/versions/0/schema/openAPIV3Schema/properties/metadata/type: \"object\"",
    "- /spec/versions/0/subresources: {}",
];

/// All that a definition says, by path, without what is only for people: descriptions, and who generated it.
fn leaves(definition: &Value) -> BTreeMap<String, Value> {
    fn walk(value: &Value, path: &str, leaves: &mut BTreeMap<String, Value>) {
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                for (key, value) in fields {
                    if !(key == "description" && value.is_string() || key == "annotations") {
                        walk(value, &format!("{path}/{key}"), leaves);
                    }
                }
            }
            Value::Array(items) if items.iter().all(Value::is_string) => {
                let mut items = items.clone();
                items.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
                leaves.insert(path.to_owned(), items.into());
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    walk(item, &format!("{path}/{index}"), leaves);
                }
            }
            leaf => {
                leaves.insert(path.to_owned(), leaf.clone());
            }
        }
    }
    let mut leaves = BTreeMap::new();
    walk(definition, "", &mut leaves);
    leaves
}

#[test]
fn strings_that_look_like_something_else_are_quoted() {
    for string in
        ["", "true", "No", "1", "0x1", "1.0", ".5", "~", "null", "a: b", "a:", "a #b", "a ", "- a", "'a", "a\nb", "{a}"]
    {
        check(json!({ string: string }));
        check(json!([string, [string], { "a": [string] }]));
    }
    check(json!({"a": {"b": [{"c": 1, "d": []}, {"e": {}}, [[1], 2]]}, "f": [null, true, 1.5]}));
}

fn check(value: Value) {
    let text = yaml::write(&value);
    assert_eq!(reader::parse(&text).unwrap()[0].value, value, "{text}");
}
