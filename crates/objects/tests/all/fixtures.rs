//! Tests with manifests of other projects.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use billhook_objects::{Manifest, yaml};

/// Returns a file or folder of the fixtures, or `None`, with a message, if it does not exist.
fn fixture(name: &str) -> Option<PathBuf> {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures");
    let path = std::env::var_os("BILLHOOK_FIXTURES").map_or_else(default, PathBuf::from).join(name);
    if !path.exists() {
        eprintln!(
            "skipped {name}: {} does not exist; set BILLHOOK_FIXTURES to the folder of the fixtures",
            path.display()
        );
        return None;
    }
    Some(path)
}

fn files(path: &Path, found: &mut Vec<PathBuf>) {
    if path.is_dir() {
        let mut entries: Vec<_> = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        entries.iter().for_each(|entry| files(entry, found));
    } else if path.extension().is_some_and(|ending| ending == "yaml" || ending == "yml" || ending == "json") {
        found.push(path.to_owned());
    }
}

/// Counts the objects of each kind.
fn kinds(path: &Path) -> BTreeMap<String, usize> {
    let (mut paths, mut kinds) = (Vec::new(), BTreeMap::new());
    files(path, &mut paths);
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        let file: Arc<str> = path.display().to_string().into();
        for document in yaml::parse(&text).unwrap_or_else(|error| panic!("{file}: {error}")) {
            for manifest in Manifest::from_document(document, &file).unwrap() {
                *kinds.entry(manifest.key.kind.to_string()).or_default() += 1;
            }
        }
    }
    kinds
}

#[test]
fn kube_prometheus_with_its_typed_lists() {
    let Some(path) = fixture("kube-prometheus") else { return };
    let kinds = kinds(&path);
    let of = |kind: &str| kinds.get(kind).copied().unwrap_or_default();
    assert_eq!(of("CustomResourceDefinition.apiextensions.k8s.io"), 10);
    assert!(kinds.keys().all(|kind| !kind.contains("List")), "{kinds:?}");
    assert_eq!(of("ConfigMap"), 36);
    assert_eq!(of("Role.rbac.authorization.k8s.io"), 4);
    assert_eq!(of("RoleBinding.rbac.authorization.k8s.io"), 5);
    assert_eq!(kinds.values().sum::<usize>(), 131);
}

#[test]
fn gatekeeper() {
    let Some(path) = fixture("gatekeeper.yaml") else { return };
    assert_eq!(kinds(&path).values().sum::<usize>(), 31);
}

#[test]
fn all_other_fixtures_can_be_read() {
    for name in ["openshift-payload", "landscaper"] {
        let Some(path) = fixture(name) else { continue };
        let mut paths = Vec::new();
        files(&path, &mut paths);
        assert!(!paths.is_empty(), "{name}");
        for path in paths {
            let text = std::fs::read_to_string(&path).unwrap();
            let documents = yaml::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let nodes = yaml::parse_nodes(&text).unwrap();
            let values = documents.into_iter().map(|document| document.value);
            assert!(values.eq(nodes.into_iter().map(yaml::Node::into_value)), "{}", path.display());
        }
    }
}
