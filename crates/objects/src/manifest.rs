//! A manifest: one object as the user wrote it, and where it was written.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::{ApiVersion, GroupKind, ObjectKey, yaml::Document};

/// Where a text was written: a file (or `-` for standard input) and a line, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Source {
    /// The file as the user named it.
    pub file: Arc<str>,
    /// The line, counted from 1.
    pub line: usize,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// The SHA-256 of a manifest's canonical JSON, in hexadecimal: unchanged input is known by it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Digest(String);

impl Digest {
    /// Digests a JSON value. `serde_json` keeps maps sorted, so the same value has the same digest.
    pub fn of(value: &Value) -> Self {
        Self::of_text(&value.to_string())
    }

    /// Digests the text of a JSON value, compact and with sorted keys.
    fn of_text(json: &str) -> Self {
        Self(Sha256::digest(json.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// One object as it is to be applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The `apiVersion` it was written in.
    pub api_version: ApiVersion,
    /// Its identity; the namespace is the one written, until the front end fills in a default.
    pub key: ObjectKey,
    /// Where it was written.
    pub source: Source,
    /// The whole object. As text it takes a tenth of the memory of the value, and there may be ten thousand.
    json: Box<str>,
}

/// Why a document is not an object.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{source_line}: {problem}")]
pub struct ManifestError {
    /// Where.
    pub source_line: Source,
    /// What is wrong, and how to mend it.
    pub problem: String,
}

impl Manifest {
    /// Takes the objects out of one document: none of an empty one, all items of a `List` of any kind (`ConfigMapList`
    /// and the like, a value with `items` whose kind ends in `List`), else the one that it is.
    ///
    /// # Errors
    ///
    /// For each object that lacks `apiVersion`, `kind` or `metadata.name`: all of them, not the first alone.
    pub fn from_document(document: Document, file: &Arc<str>) -> Result<Vec<Self>, Vec<ManifestError>> {
        let source = Source { file: Arc::clone(file), line: document.line };
        let (mut found, mut errors) = (Vec::new(), Vec::new());
        collect(document.value, &source, &mut found, &mut errors);
        if errors.is_empty() { Ok(found) } else { Err(errors) }
    }

    /// The whole object, as compact JSON with sorted keys.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// The whole object.
    pub fn value(&self) -> Value {
        // It was written from a value, so it reads as one.
        serde_json::from_str(&self.json).unwrap_or_default()
    }

    /// The digest of the object as written.
    pub fn digest(&self) -> Digest {
        Digest::of_text(&self.json)
    }

    /// Sets the namespace, in the identity and in the object.
    pub fn set_namespace(&mut self, namespace: &str) {
        self.key.namespace = Some(namespace.to_owned());
        self.edit_metadata(|metadata| {
            metadata.insert("namespace".to_owned(), Value::from(namespace));
        });
    }

    /// Removes a namespace that was written on a cluster-scoped object.
    pub fn clear_namespace(&mut self) {
        self.key.namespace = None;
        self.edit_metadata(|metadata| {
            metadata.remove("namespace");
        });
    }

    /// Sets one label on the object.
    pub fn set_label(&mut self, label: &str, value: &str) {
        self.edit_metadata(|metadata| {
            let labels = metadata.entry("labels").or_insert(Value::Null);
            if labels.is_null() {
                *labels = Value::Object(Map::new());
            }
            if let Some(labels) = labels.as_object_mut() {
                labels.insert(label.to_owned(), Value::from(value));
            }
        });
    }

    fn edit_metadata(&mut self, edit: impl FnOnce(&mut Map<String, Value>)) {
        let mut value = self.value();
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            edit(metadata);
            self.json = value.to_string().into();
        }
    }
}

fn collect(value: Value, source: &Source, found: &mut Vec<Manifest>, errors: &mut Vec<ManifestError>) {
    if value.is_null() {
        return;
    }
    let problem = |problem: String| ManifestError { source_line: source.clone(), problem };
    let Some(kind) = value.get("kind").and_then(Value::as_str).filter(|kind| !kind.is_empty()).map(str::to_owned)
    else {
        let what = if value.is_object() { "an object without kind" } else { "not an object" };
        return errors.push(problem(format!("{what}: every document needs apiVersion, kind and metadata.name")));
    };
    // A custom kind may end in `List` and have `items` of its own: with a name it is an object.
    let named = value.pointer("/metadata/name").and_then(Value::as_str).is_some_and(|name| !name.is_empty());
    if let Some(item_kind) =
        kind.strip_suffix("List").filter(|_| !named && value.get("items").is_some_and(Value::is_array))
    {
        let Value::Object(mut list) = value else { return };
        let list_version = list.get("apiVersion").cloned();
        if let Some(Value::Array(items)) = list.remove("items") {
            for mut item in items {
                // The items of a typed list may leave out what the list says, as the API server's own lists do.
                if let Some(item) = item.as_object_mut().filter(|_| !item_kind.is_empty()) {
                    item.entry("kind").or_insert_with(|| Value::from(item_kind));
                    if let Some(version) = &list_version {
                        item.entry("apiVersion").or_insert_with(|| version.clone());
                    }
                }
                collect(item, source, found, errors);
            }
        }
        return;
    }
    let Some(api_version) = value.get("apiVersion").and_then(Value::as_str) else {
        return errors.push(problem(format!("a {kind} without apiVersion")));
    };
    let api_version = match ApiVersion::parse(api_version) {
        Ok(version) => version,
        Err(error) => return errors.push(problem(error.to_string())),
    };
    let metadata = |key: &str| {
        value.get("metadata").and_then(|m| m.get(key)).and_then(Value::as_str).filter(|text| !text.is_empty())
    };
    // An unquoted `n` or `007` is no text, and a namespace that is not read would be an object in the wrong place.
    for field in ["name", "namespace"] {
        let value = value.pointer(&format!("/metadata/{field}")).filter(|value| !value.is_null() && !value.is_string());
        if let Some(value) = value {
            return errors.push(problem(format!(
                "a {kind} whose metadata.{field} is {value}: a text is needed, put it in quotes"
            )));
        }
    }
    let Some(name) = metadata("name").map(str::to_owned) else {
        let hint = if metadata("generateName").is_some() {
            "; generateName makes another object at each apply, so it cannot be part of a release"
        } else {
            ""
        };
        return errors.push(problem(format!("a {kind} without metadata.name{hint}")));
    };
    let key = ObjectKey::new(GroupKind::new(api_version.group(), kind), metadata("namespace"), name);
    found.push(Manifest { api_version, key, json: value.to_string().into(), source: source.clone() });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::yaml;

    fn read(text: &str) -> Result<Vec<Manifest>, Vec<ManifestError>> {
        let file: Arc<str> = "f.yaml".into();
        let (mut found, mut errors) = (Vec::new(), Vec::new());
        for document in yaml::parse(text).unwrap() {
            match Manifest::from_document(document, &file) {
                Ok(manifests) => found.extend(manifests),
                Err(problems) => errors.extend(problems),
            }
        }
        if errors.is_empty() { Ok(found) } else { Err(errors) }
    }

    fn check(text: &str, expected: &[&str]) {
        let keys: Vec<_> = read(text).unwrap().iter().map(|m| format!("{} {}", m.api_version, m.key)).collect();
        assert_eq!(keys, expected, "{text}");
    }

    fn check_errors(text: &str, expected: &[&str]) {
        let errors: Vec<_> = read(text).unwrap_err().iter().map(ToString::to_string).collect();
        assert_eq!(errors, expected, "{text}");
    }

    fn one(value: Value) -> Manifest {
        let mut found = Manifest::from_document(yaml::Document { line: 1, value }, &"f.yaml".into()).unwrap();
        assert_eq!(found.len(), 1);
        found.remove(0)
    }

    #[test]
    fn a_document_is_one_object() {
        check("{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: ns}}", &["v1 ConfigMap/ns/a"]);
        check("{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}}", &["apps/v1 Deployment.apps/a"]);
        check("{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: ''}}", &["v1 ConfigMap/a"]);
        check("# nothing\n---\n", &[]);
    }

    #[test]
    fn lists_of_any_type_are_their_items() {
        check(
            "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Secret, metadata: {name: a}}, \
             {apiVersion: a.example/v1, kind: W, metadata: {name: b}}]}",
            &["v1 Secret/a", "a.example/v1 W.a.example/b"],
        );
        check(
            "{apiVersion: v1, kind: ConfigMapList, items: [{metadata: {name: a}}, \
             {apiVersion: v1, kind: ConfigMap, metadata: {name: b}}]}",
            &["v1 ConfigMap/a", "v1 ConfigMap/b"],
        );
        check(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleList\nmetadata: {}\nitems:\n\
             - metadata: {name: a, namespace: ns}\n",
            &["rbac.authorization.k8s.io/v1 Role.rbac.authorization.k8s.io/ns/a"],
        );
        check(
            "{apiVersion: v1, kind: List, items: [null, {apiVersion: v1, kind: SecretList, \
             items: [{metadata: {name: a}}]}, {apiVersion: v1, kind: List, items: []}]}",
            &["v1 Secret/a"],
        );
    }

    #[test]
    fn a_kind_that_ends_in_list_may_be_an_object() {
        let object = "apiVersion: a.example/v1\nkind: AccessList\nmetadata: {name: a}\n";
        check(object, &["a.example/v1 AccessList.a.example/a"]);
        check(&format!("{object}spec: {{items: [1]}}\n"), &["a.example/v1 AccessList.a.example/a"]);
        check(&format!("{object}items: [x, y]\n"), &["a.example/v1 AccessList.a.example/a"]);
        check("{apiVersion: v1, kind: ListList, items: [{metadata: {name: a}}]}", &["v1 List/a"]);
    }

    #[test]
    fn all_mistakes_are_told_at_once_with_their_lines() {
        check_errors(
            "metadata: {name: a}\n---\napiVersion: v1\nkind: ConfigMap\n---\nkind: ConfigMap\nmetadata: {name: a}\n---\n- 1\n\
             ---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: ok}}\n---\napiVersion: a/b/c\nkind: X\n",
            &[
                "f.yaml:1: an object without kind: every document needs apiVersion, kind and metadata.name",
                "f.yaml:3: a ConfigMap without metadata.name",
                "f.yaml:6: a ConfigMap without apiVersion",
                "f.yaml:9: not an object: every document needs apiVersion, kind and metadata.name",
                "f.yaml:13: read apiVersion \"a/b/c\": expected VERSION or GROUP/VERSION",
            ],
        );
        check_errors(
            "{apiVersion: v1, kind: ConfigMapList, items: [{data: {}}, {metadata: {name: a}}, {metadata: {name: ''}}]}",
            &["f.yaml:1: a ConfigMap without metadata.name", "f.yaml:1: a ConfigMap without metadata.name"],
        );
    }

    #[test]
    fn a_name_that_yaml_does_not_take_for_a_text_is_told() {
        check_errors(
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: n}}\n---\n\
             {apiVersion: v1, kind: ConfigMap, metadata: {name: 007}}",
            &[
                "f.yaml:1: a ConfigMap whose metadata.namespace is false: a text is needed, put it in quotes",
                "f.yaml:3: a ConfigMap whose metadata.name is 7: a text is needed, put it in quotes",
            ],
        );
    }

    #[test]
    fn a_generated_name_is_no_name() {
        check_errors(
            "{apiVersion: v1, kind: Pod, metadata: {generateName: a-}}",
            &["f.yaml:1: a Pod without metadata.name; generateName makes another object at each apply, so it cannot \
               be part of a release"],
        );
    }

    #[test]
    fn the_digest_is_of_the_value_and_not_of_its_spelling() {
        let digest = |text: &str| read(text).unwrap()[0].digest();
        let first = digest("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {x: y1, z: w}}\n");
        let json =
            r#"{"metadata": {"labels": {"z": "w", "x": "y1"}, "name": "a"}, "kind": "ConfigMap", "apiVersion": "v1"}"#;
        assert_eq!(first, digest(json));
        assert_ne!(first, digest("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {x: y1}}\n"));
        // Written down for ever: inventories hold such digests.
        let expected = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
        assert_eq!(serde_json::to_value(Digest::of(&json!({}))).unwrap(), expected);
    }

    #[test]
    fn labels_are_set_where_there_are_none() {
        for labels in
            [json!({"name": "a"}), json!({"name": "a", "labels": null}), json!({"name": "a", "labels": {"b": "c"}})]
        {
            let mut manifest = one(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": labels}));
            manifest.set_label("l", "v");
            assert_eq!(manifest.value()["metadata"]["labels"]["l"], "v");
        }
    }

    #[test]
    fn the_namespace_is_set_and_cleared_in_key_and_value() {
        let mut manifest = one(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}));
        manifest.set_namespace("n");
        assert_eq!(
            (manifest.key.to_string().as_str(), &manifest.value()["metadata"]["namespace"]),
            ("ConfigMap/n/a", &json!("n"))
        );
        manifest.clear_namespace();
        assert_eq!(
            (manifest.key.to_string().as_str(), manifest.value()["metadata"].get("namespace")),
            ("ConfigMap/a", None)
        );
    }
}
