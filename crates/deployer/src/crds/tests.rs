use std::{collections::BTreeMap, path::Path};

use billhook_objects::yaml;
use serde_json::Value;

use super::{definitions, files};

#[test]
fn the_checked_in_crds_match_the_types() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
    let files: BTreeMap<String, String> = files().unwrap().into_iter().collect();
    let mut found: Vec<_> =
        folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    found.sort();
    assert_eq!(found, files.keys().cloned().collect::<Vec<_>>(), "the files in {}", folder.display());
    for (name, text) in files {
        let path = folder.join(name);
        let found = std::fs::read_to_string(&path).unwrap();
        assert!(found == text, "{} does not match the types; run `cargo xtask crds`", path.display());
    }
}

#[test]
fn a_file_parses_to_its_definition() {
    for (definition, (name, text)) in definitions().unwrap().iter().zip(files().unwrap()) {
        let documents = yaml::parse(&text).unwrap();
        assert_eq!(documents.len(), 1, "{name}");
        assert_eq!(documents[0].value, *definition, "{name}");
    }
}

/// Compares our definitions with Landscaper's: differences with `-` are only in theirs, those with `+` only in ours.
#[test]
#[expect(clippy::print_stderr, reason = "a skipped test reports that it is skipped")]
fn the_crds_are_equivalent_to_landscapers() {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/fixtures");
    let fixtures = std::env::var_os("BILLHOOK_FIXTURES").unwrap_or_else(|| default.into());
    let folder = Path::new(&fixtures).join("landscaper");
    if !folder.is_dir() {
        eprintln!("skipped: no Landscaper CRDs in {}; set BILLHOOK_FIXTURES to a folder with them", folder.display());
        return;
    }
    for (definition, (name, _)) in definitions().unwrap().iter().zip(files().unwrap()) {
        let text = std::fs::read_to_string(folder.join(&name)).unwrap();
        let theirs = leaves(&yaml::parse(&text).unwrap()[0].value);
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

/// Differences without effect: the API server adds these types itself, and an empty list of subresources means none.
const HARMLESS: [&str; 4] = [
    "- /spec/versions/0/schema/openAPIV3Schema/properties/apiVersion/type: \"string\"",
    "- /spec/versions/0/schema/openAPIV3Schema/properties/kind/type: \"string\"",
    "- /spec/versions/0/schema/openAPIV3Schema/properties/metadata/type: \"object\"",
    "- /spec/versions/0/subresources: {}",
];

/// Returns all values of a definition by their paths, except descriptions and annotations.
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
