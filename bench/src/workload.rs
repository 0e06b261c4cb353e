//! The created and deleted objects, which are the same for all contenders.

use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::{Value, json};

/// The label that selects the objects of a set.
pub(crate) const LABEL: &str = "bench.billhook.dev/set";
/// The finalizer of the custom resources.
pub(crate) const FINALIZER: &str = "bench.billhook.dev/hold";
/// The API group of the custom resources.
pub(crate) const GROUP: &str = "bench.billhook.dev";

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
pub(crate) enum Kind {
    Configmaps,
    Alphas,
    Betas,
    Gammas,
}

impl Kind {
    /// The custom kinds, in the order in which they are deleted.
    pub(crate) const CUSTOM: [Self; 3] = [Self::Alphas, Self::Betas, Self::Gammas];

    /// Returns the plural, as in paths and on the command line.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Configmaps => "configmaps",
            Self::Alphas => "alphas",
            Self::Betas => "betas",
            Self::Gammas => "gammas",
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Configmaps => "ConfigMap",
            Self::Alphas => "Alpha",
            Self::Betas => "Beta",
            Self::Gammas => "Gamma",
        }
    }

    fn api_version(self) -> String {
        if self == Self::Configmaps { "v1".to_owned() } else { format!("{GROUP}/v1") }
    }

    /// Returns the path of its objects in a namespace or in all namespaces.
    pub(crate) fn path(self, namespace: Option<&str>) -> String {
        let root = if self == Self::Configmaps { "/api/v1".to_owned() } else { format!("/apis/{GROUP}/v1") };
        let namespace = namespace.map(|name| format!("/namespaces/{name}")).unwrap_or_default();
        format!("{root}{namespace}/{}", self.plural())
    }

    /// Returns the object with this number.
    pub(crate) fn object(self, set: &str, number: usize, namespace: &str) -> Object {
        let name = format!("{set}-{number:05}");
        let mut body = json!({
            "apiVersion": self.api_version(),
            "kind": self.kind(),
            "metadata": {"name": name, "namespace": namespace, "labels": {LABEL: set}},
        });
        if self == Self::Configmaps {
            body["data"] = json!({"number": number.to_string(), "text": "a value of some length, as settings have it"});
        } else {
            body["metadata"]["finalizers"] = json!([FINALIZER]);
            body["spec"] = json!({"number": number});
        }
        Object { namespace: namespace.to_owned(), name, body }
    }
}

/// An object to create.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) body: Value,
}

/// A set of objects that are created and deleted together.
#[derive(Clone, Debug)]
pub(crate) struct Set {
    /// Its name, and the prefix of its objects' names.
    pub(crate) name: String,
    pub(crate) kinds: Vec<Kind>,
    /// The number of objects per kind.
    pub(crate) each: usize,
    /// The namespaces, over which the objects are distributed evenly.
    pub(crate) namespaces: Vec<String>,
}

impl Set {
    /// Creates a set of ConfigMaps in a namespace with the set's name, or in several with this prefix.
    pub(crate) fn configmaps(name: &str, each: usize, namespaces: usize) -> Self {
        let namespaces = match namespaces {
            1 => vec![name.to_owned()],
            several => (0..several).map(|number| format!("{name}-{number:02}")).collect(),
        };
        Self { name: name.to_owned(), kinds: vec![Kind::Configmaps], each, namespaces }
    }

    /// Returns the total number of objects.
    pub(crate) fn len(&self) -> usize {
        self.each * self.kinds.len()
    }

    /// Iterates over all objects, kind by kind.
    pub(crate) fn objects(&self) -> impl Iterator<Item = Object> + '_ {
        let of = move |kind: Kind| {
            let namespaces = self.namespaces.iter().cycle();
            (0..self.each).zip(namespaces).map(move |(number, namespace)| kind.object(&self.name, number, namespace))
        };
        self.kinds.iter().copied().flat_map(of)
    }

    /// Returns the namespace, unless there are several.
    pub(crate) fn namespace(&self) -> Option<&str> {
        match &*self.namespaces {
            [one] => Some(one),
            _ => None,
        }
    }

    /// Returns the objects as a YAML stream, for the contenders that read files.
    pub(crate) fn manifests(&self) -> String {
        let mut text = String::new();
        for object in self.objects() {
            let _ = write!(text, "---\n{}", yaml(&object.body, 0));
        }
        text
    }
}

/// Writes block YAML of nested maps, lists of strings and scalars, which is sufficient for these objects.
fn yaml(value: &Value, depth: usize) -> String {
    let mut text = String::new();
    let indent = "  ".repeat(depth);
    for (key, value) in value.as_object().into_iter().flatten() {
        let _ = match value {
            Value::Object(_) => write!(text, "{indent}{key}:\n{}", yaml(value, depth + 1)),
            scalar => writeln!(text, "{indent}{key}: {scalar}"),
        };
    }
    text
}

/// Returns the CRD of a kind, whose plural ends in `s`.
pub(crate) fn crd(group: &str, kind: &str, scope: &str, schema: &Value) -> Value {
    let singular = kind.to_lowercase();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{singular}s.{group}")},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"kind": kind, "plural": format!("{singular}s"), "singular": singular},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

/// Returns the schema of an object with any content.
pub(crate) fn any() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// Returns the CRDs of the custom kinds, with the paths of their lists.
pub(crate) fn definitions() -> impl Iterator<Item = (Value, String)> {
    let spec = json!({"type": "object", "properties": {"number": {"type": "integer"}}});
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    Kind::CUSTOM.into_iter().map(move |kind| (crd(GROUP, kind.kind(), "Namespaced", &schema), kind.path(None)))
}

/// Returns the policy that deletes the custom kinds in order.
pub(crate) fn policy() -> String {
    let mut text = "deletionGroups:\n".to_owned();
    for kind in Kind::CUSTOM {
        let _ = write!(
            text,
            "- customResourceGroup:\n    resources:\n    - apiVersion: {}\n      kind: {}\n",
            kind.api_version(),
            kind.plural()
        );
    }
    text
}

/// A list of objects' metadata.
#[derive(Debug, Deserialize)]
pub(crate) struct List {
    pub(crate) metadata: ListMeta,
    /// The items; the API server writes null for an empty list.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub(crate) items: Vec<Item>,
}

fn null_is_empty<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<Item>, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// The metadata of a list.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListMeta {
    pub(crate) resource_version: String,
}

/// The metadata of an object, from a metadata-only request.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Item {
    pub(crate) metadata: Meta,
}

/// The required fields of an object's metadata.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Meta {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) namespace: String,
    pub(crate) uid: String,
    pub(crate) deletion_timestamp: Option<String>,
    #[serde(default)]
    pub(crate) finalizers: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_spread_evenly_over_the_namespaces() {
        let set = Set::configmaps("many", 10, 5);
        let namespaces: Vec<String> = set.objects().map(|object| object.namespace).collect();
        assert_eq!(namespaces[..6], ["many-00", "many-01", "many-02", "many-03", "many-04", "many-00"]);
        assert_eq!((set.len(), set.namespace()), (10, None));
    }

    #[test]
    fn manifests_are_block_yaml() {
        let set = Set { kinds: vec![Kind::Alphas], ..Set::configmaps("a", 1, 1) };
        let expected = "---\napiVersion: \"bench.billhook.dev/v1\"\nkind: \"Alpha\"\nmetadata:\n  finalizers: \
                        [\"bench.billhook.dev/hold\"]\n  labels:\n    bench.billhook.dev/set: \"a\"\n  name: \
                        \"a-00000\"\n  namespace: \"a\"\nspec:\n  number: 0\n";
        assert_eq!(set.manifests(), expected);
    }
}
