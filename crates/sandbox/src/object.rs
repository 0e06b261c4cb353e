//! Objects as JSON values, and as they are stored.

use std::ops::Range;

use serde_json::{Map, Value};

/// The finalizer of an object that waits until its dependents are orphaned.
pub(crate) const ORPHAN: &str = "orphan";
/// The finalizer of an object that waits until its dependents are deleted.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";

/// Returns a string field; empty if it is missing.
pub(crate) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// Returns the strings in a list.
pub(crate) fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Returns the value at a dotted path; null if it is missing.
pub(crate) fn at_path<'a>(object: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(object, |value, step| &value[step])
}

/// Returns a string field of an object's metadata; empty if it is missing.
pub(crate) fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    text(&object["metadata"], field)
}

/// Returns an object's metadata, which is created if it is missing.
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

#[expect(clippy::panic, reason = "decoding rejects bodies that are not objects")]
fn unreachable_object() -> ! {
    panic!("an object that is not a JSON object")
}

/// Returns the strings of a list in the metadata, such as `finalizers`.
pub(crate) fn meta_list<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = &'a str> {
    object["metadata"][field].as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// Returns whether an object is marked for deletion.
pub(crate) fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// An owner reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) api_version: Box<str>,
    pub(crate) kind: Box<str>,
    pub(crate) name: Box<str>,
    pub(crate) uid: Box<str>,
    pub(crate) blocks: bool,
}

/// Returns the owner references of an object.
pub(crate) fn owners(object: &Value) -> Vec<Owner> {
    let references = object["metadata"]["ownerReferences"].as_array();
    let owner = |reference: &Value| Owner {
        api_version: text(reference, "apiVersion").into(),
        kind: text(reference, "kind").into(),
        name: text(reference, "name").into(),
        uid: text(reference, "uid").into(),
        blocks: reference["blockOwnerDeletion"] == true,
    };
    references.into_iter().flatten().map(owner).collect()
}

/// A stored object: its JSON as text, which takes a fraction of the memory of a tree, and the fields that are read
/// often.
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
    /// The position of the value of `apiVersion` in the text, without quotes.
    version: Range<usize>,
    /// The position of the metadata in the text.
    metadata: Range<usize>,
}

impl Stored {
    /// Stores an object, which has a name and a UID, at a revision.
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

    /// Stores an object at the revision that it has.
    pub(crate) fn read(object: Value) -> Self {
        let revision = meta(&object, "resourceVersion").parse().unwrap_or_default();
        Self::new(object, revision)
    }

    /// Returns the `apiVersion` in which the object is stored.
    pub(crate) fn api_version(&self) -> &str {
        &self.json[self.version.clone()]
    }

    /// Returns a copy with another UID and with one other text replaced in the metadata.
    pub(crate) fn again(&self, uid: &str, (text, other): (&str, &str)) -> Self {
        let Range { start, end } = self.metadata;
        let new = self.json[start..end].replacen(&*self.uid, uid, 1).replacen(text, other, 1);
        let (metadata, json) = (start..start + new.len(), [&self.json[..start], &new, &self.json[end..]].concat());
        Self { uid: uid.into(), json: json.into(), metadata, ..self.clone() }
    }

    /// Parses the object.
    pub(crate) fn value(&self) -> Value {
        serde_json::from_str(&self.json).unwrap_or_default()
    }

    /// Writes the object in a version like `apps/v1`.
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

    /// Writes the object as `PartialObjectMetadata`.
    pub(crate) fn write_metadata(&self, out: &mut String) {
        out.push_str(r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#);
        out.push_str(&self.json[self.metadata.clone()]);
        out.push('}');
    }

    /// Returns whether the object is being deleted and held by a finalizer.
    pub(crate) fn waits_for(&self, finalizer: &str) -> bool {
        self.deleting && self.finalizers.iter().any(|known| **known == *finalizer)
    }

    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(known, _)| &**known == key).map(|(_, value)| &**value)
    }
}

/// Writes `apiVersion`, `kind` and `metadata` first, so that their positions are known.
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
    fn stored_objects_are_parsed_unchanged() {
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
