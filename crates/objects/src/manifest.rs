//! Manifests: objects as the user wrote them, with their source.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::{ApiVersion, GroupKind, ObjectKey, yaml::Document};

/// The file (or `-` for standard input) and line of a text.
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

/// The SHA-256 of a manifest's canonical JSON, by which unchanged input is recognized; as text in hexadecimal.
///
/// It is kept as bytes, because there is one for each of the ten thousand objects that a release may have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

impl Digest {
    /// Computes the digest of a JSON value. `serde_json` sorts maps, so equal values have equal digests.
    pub fn of(value: &Value) -> Self {
        Self::of_text(&value.to_string())
    }

    /// Computes the digest of a JSON text, which must be compact and have sorted keys.
    fn of_text(json: &str) -> Self {
        Self(Sha256::digest(json.as_bytes()).into())
    }
}

impl From<Digest> for String {
    fn from(Digest(bytes): Digest) -> Self {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The reason why a text is not a [`Digest`].
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("not a SHA-256 in hexadecimal")]
pub struct DigestError;

impl TryFrom<String> for Digest {
    type Error = DigestError;
    fn try_from(text: String) -> Result<Self, DigestError> {
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let mut bytes = [0; 32];
        if text.len() != 2 * bytes.len() {
            return Err(DigestError);
        }
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let [high, low] = [pair[0], pair[1]].map(digit);
            *byte = high.ok_or(DigestError)? << 4 | low.ok_or(DigestError)?;
        }
        Ok(Self(bytes))
    }
}

/// An object to be applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The `apiVersion` it was written in.
    pub api_version: ApiVersion,
    /// Its identity, with the namespace as written until the front end sets a default.
    pub key: ObjectKey,
    /// Where it was written.
    pub source: Source,
    /// The whole object as JSON text, which takes a tenth of the memory of a `Value`: there may be ten thousand manifests.
    json: Box<str>,
}

/// The reason why a document is not an object.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{source_line}: {problem}")]
pub struct ManifestError {
    /// The source of the document.
    pub source_line: Source,
    /// The problem, and how to fix it.
    pub problem: String,
}

impl Manifest {
    /// Returns the objects of a document: none for an empty document, the items of a list (`List`, `ConfigMapList` and the
    /// like: a value with `items` whose kind ends in `List`), and otherwise the single object.
    ///
    /// # Errors
    ///
    /// Returns an error for each object without `apiVersion`, `kind` or `metadata.name`.
    pub fn from_document(document: Document, file: &Arc<str>) -> Result<Vec<Self>, Vec<ManifestError>> {
        let source = Source { file: Arc::clone(file), line: document.line };
        let (mut found, mut errors) = (Vec::new(), Vec::new());
        collect(document.value, &source, &mut found, &mut errors);
        if errors.is_empty() { Ok(found) } else { Err(errors) }
    }

    /// Returns the whole object as compact JSON with sorted keys.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// Returns the whole object.
    pub fn value(&self) -> Value {
        // The text was serialized from a value, so it can be parsed.
        serde_json::from_str(&self.json).unwrap_or_default()
    }

    /// Returns the digest of the object as written.
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

    /// Removes the namespace, for a cluster-scoped object that was written with one.
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
    // A custom kind may end in `List` and have its own `items`: with a name it is an object.
    let named = value.pointer("/metadata/name").and_then(Value::as_str).is_some_and(|name| !name.is_empty());
    if let Some(item_kind) =
        kind.strip_suffix("List").filter(|_| !named && value.get("items").is_some_and(Value::is_array))
    {
        let Value::Object(mut list) = value else { return };
        let list_version = list.get("apiVersion").cloned();
        if let Some(Value::Array(items)) = list.remove("items") {
            for mut item in items {
                // The items of a typed list may omit kind and apiVersion, like those in the API server's own lists.
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
    // An unquoted `n` or `007` is not a string; ignoring such a namespace would put the object into the wrong one.
    for field in ["name", "namespace"] {
        let value = value.pointer(&format!("/metadata/{field}")).filter(|value| !value.is_null() && !value.is_string());
        if let Some(value) = value {
            return errors.push(problem(format!(
                "a {kind} whose metadata.{field} is {value}: expected a string, put it in quotes"
            )));
        }
    }
    let Some(name) = metadata("name").map(str::to_owned) else {
        let hint = if metadata("generateName").is_some() {
            "; generateName creates a new object on every apply, so it cannot be part of a release"
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
    fn all_mistakes_are_reported_with_their_lines() {
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
    fn a_name_that_yaml_does_not_read_as_a_string_is_rejected() {
        check_errors(
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: n}}\n---\n\
             {apiVersion: v1, kind: ConfigMap, metadata: {name: 007}}",
            &[
                "f.yaml:1: a ConfigMap whose metadata.namespace is false: expected a string, put it in quotes",
                "f.yaml:3: a ConfigMap whose metadata.name is 7: expected a string, put it in quotes",
            ],
        );
    }

    #[test]
    fn a_generated_name_is_rejected() {
        check_errors(
            "{apiVersion: v1, kind: Pod, metadata: {generateName: a-}}",
            &["f.yaml:1: a Pod without metadata.name; generateName creates a new object on every apply, so it \
               cannot be part of a release"],
        );
    }

    #[test]
    fn the_digest_depends_on_the_value_and_not_on_its_formatting() {
        let digest = |text: &str| read(text).unwrap()[0].digest();
        let first = digest("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {x: y1, z: w}}\n");
        let json =
            r#"{"metadata": {"labels": {"z": "w", "x": "y1"}, "name": "a"}, "kind": "ConfigMap", "apiVersion": "v1"}"#;
        assert_eq!(first, digest(json));
        assert_ne!(first, digest("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {x: y1}}\n"));
        // This must never change: inventories contain such digests.
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
