//! Objects as JSON values, and how they are kept.

use std::ops::Range;

use serde_json::{Map, Value};

/// The finalizer of an object that waits until its dependents are orphaned.
pub(crate) const ORPHAN: &str = "orphan";
/// The finalizer of an object that waits until its dependents are deleted.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";

/// A text of an object's metadata; empty where there is none.
pub(crate) fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// The metadata, made if missing.
pub(crate) fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    let Value::Object(fields) = object else { unreachable_object() };
    let metadata = fields.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if !metadata.is_object() {
        *metadata = Value::Object(Map::new());
    }
    match metadata {
        Value::Object(metadata) => metadata,
        _ => unreachable_object(),
    }
}

#[expect(clippy::panic, reason = "bodies that are no objects are refused when they are read")]
fn unreachable_object() -> ! {
    panic!("an object that is no JSON object")
}

/// The texts of a list in the metadata, `finalizers`.
pub(crate) fn meta_list<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = &'a str> {
    object["metadata"][field].as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// Whether the object is marked for deletion.
pub(crate) fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// A reference to an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) api_version: Box<str>,
    pub(crate) kind: Box<str>,
    pub(crate) name: Box<str>,
    pub(crate) uid: Box<str>,
    pub(crate) blocks: bool,
}

/// The owners of an object.
pub(crate) fn owners(object: &Value) -> Vec<Owner> {
    let references = object["metadata"]["ownerReferences"].as_array();
    let text = |reference: &Value, field: &str| reference[field].as_str().unwrap_or_default().into();
    let owner = |reference: &Value| Owner {
        api_version: text(reference, "apiVersion"),
        kind: text(reference, "kind"),
        name: text(reference, "name"),
        uid: text(reference, "uid"),
        blocks: reference["blockOwnerDeletion"] == true,
    };
    references.into_iter().flatten().map(owner).collect()
}

/// An object as it is kept: its JSON as text, a fraction of the tree's size, and what is looked at often.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) namespace: Box<str>,
    pub(crate) name: Box<str>,
    pub(crate) uid: Box<str>,
    pub(crate) labels: Box<[(Box<str>, Box<str>)]>,
    pub(crate) finalizers: Box<[Box<str>]>,
    pub(crate) owners: Box<[Owner]>,
    pub(crate) deleting: bool,
    json: Box<str>,
    /// Where the text holds the value of `apiVersion`, without its quotes.
    version: Range<usize>,
    /// Where the text holds the metadata.
    metadata: Range<usize>,
}

impl Stored {
    /// Takes an object that has a name and a UID, and gives it this revision.
    pub(crate) fn new(mut object: Value, revision: u64) -> Self {
        metadata_mut(&mut object).insert("resourceVersion".to_owned(), revision.to_string().into());
        let labels = object["metadata"]["labels"].as_object();
        let label = |(key, value): (&String, &Value)| (key.as_str().into(), value.as_str().unwrap_or_default().into());
        let labels = labels.into_iter().flatten().map(label).collect();
        let (json, version, metadata) = write(&object);
        Self {
            namespace: meta(&object, "namespace").into(),
            name: meta(&object, "name").into(),
            uid: meta(&object, "uid").into(),
            labels,
            finalizers: meta_list(&object, "finalizers").map(Into::into).collect(),
            owners: owners(&object).into(),
            deleting: is_deleting(&object),
            json,
            version,
            metadata,
        }
    }

    /// The same object under another UID and with another text in place of one that its metadata hold.
    pub(crate) fn again(&self, uid: &str, (text, other): (&str, &str)) -> Self {
        let Range { start, end } = self.metadata;
        let new = self.json[start..end].replacen(&*self.uid, uid, 1).replacen(text, other, 1);
        let (metadata, json) = (start..start + new.len(), [&self.json[..start], &new, &self.json[end..]].concat());
        Self { uid: uid.into(), json: json.into(), metadata, ..self.clone() }
    }

    /// The object.
    pub(crate) fn value(&self) -> Value {
        serde_json::from_str(&self.json).unwrap_or_default()
    }

    /// Writes the object in a version, `apps/v1`.
    pub(crate) fn write(&self, api_version: &str, out: &mut String) {
        out.push_str(&self.json[..self.version.start]);
        out.push_str(api_version);
        out.push_str(&self.json[self.version.end..]);
    }

    /// Writes the object without `apiVersion` and `kind`.
    pub(crate) fn write_item(&self, out: &mut String) {
        out.push_str(r#"{"metadata":"#);
        out.push_str(&self.json[self.metadata.start..]);
    }

    /// Writes what a client that asks for metadata only gets.
    pub(crate) fn write_metadata(&self, out: &mut String) {
        out.push_str(r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#);
        out.push_str(&self.json[self.metadata.clone()]);
        out.push('}');
    }

    /// Whether the object is being deleted and held by a finalizer.
    pub(crate) fn waits_for(&self, finalizer: &str) -> bool {
        self.deleting && self.finalizers.iter().any(|known| **known == *finalizer)
    }

    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(known, _)| &**known == key).map(|(_, value)| &**value)
    }
}

/// Writes `apiVersion`, `kind` and `metadata` first, so that it is known where they stand.
fn write(object: &Value) -> (Box<str>, Range<usize>, Range<usize>) {
    let mut json = String::from(r#"{"apiVersion":""#);
    let start = json.len();
    json.push_str(object["apiVersion"].as_str().unwrap_or_default());
    let version = start..json.len();
    json.push_str(r#"","kind":"#);
    json.push_str(&object["kind"].to_string());
    json.push_str(r#","metadata":"#);
    let start = json.len();
    json.push_str(&object["metadata"].to_string());
    let metadata = start..json.len();
    for (key, value) in object.as_object().into_iter().flatten() {
        if !matches!(key.as_str(), "apiVersion" | "kind" | "metadata") {
            json.push(',');
            json.push_str(&Value::String(key.clone()).to_string());
            json.push(':');
            json.push_str(&value.to_string());
        }
    }
    json.push('}');
    (json.into(), version, metadata)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn stored_text_is_the_object() {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "a\"b": [1], "data": {"x": "y"},
            "metadata": {"name": "a", "uid": "uid-1", "labels": {"k": "v"}},
        });
        let stored = Stored::new(object.clone(), 7);
        let mut expected = object;
        expected["metadata"]["resourceVersion"] = "7".into();
        assert_eq!(stored.value(), expected);
        assert_eq!(stored.label("k"), Some("v"));
        let mut other = String::new();
        stored.write("example/v2", &mut other);
        expected["apiVersion"] = "example/v2".into();
        assert_eq!(serde_json::from_str::<Value>(&other).expect("JSON"), expected);
        let again = stored.again("other", ("\"v\"", "\"longer\""));
        expected["apiVersion"] = "v1".into();
        expected["metadata"]["uid"] = "other".into();
        expected["metadata"]["labels"]["k"] = "longer".into();
        assert_eq!((again.value(), &*again.uid), (expected.clone(), "other"));
        let mut partial = String::new();
        again.write_metadata(&mut partial);
        let partial: Value = serde_json::from_str(&partial).expect("JSON");
        assert_eq!(partial["metadata"], expected["metadata"]);
        (expected["metadata"]["uid"], expected["metadata"]["labels"]["k"]) = ("uid-1".into(), "v".into());
        let mut partial = String::new();
        stored.write_metadata(&mut partial);
        let partial: Value = serde_json::from_str(&partial).expect("JSON");
        assert_eq!(partial["metadata"], expected["metadata"]);
        assert!(partial.get("data").is_none());
    }
}
