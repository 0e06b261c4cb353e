//! Parses the programs' output to manifests, and sorts helm's into objects, hooks and tests.

use std::sync::Arc;

use billhook_objects::{
    Manifest, ManifestError, ObjectKey, Source,
    yaml::{self, Document},
};
use serde_json::Value;

use crate::error::ErrorKind;

/// The objects of a rendered chart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rendered {
    /// The objects to deploy, in helm's order: the chart's CRDs, its objects, its hooks. Their source is the template, with the
    /// line in the document that it rendered; without a template, the reference of the chart with the line in helm's output.
    pub manifests: Vec<Manifest>,
    /// Where documents are that have neither `apiVersion` nor `kind`, such as notes. They are not deployed.
    pub not_objects: Vec<Source>,
    /// The hooks of install and upgrade, which are deployed as plain objects: they are among the manifests.
    pub hooks_deployed: Vec<ObjectKey>,
    /// The hooks of deletion, rollback and unknown events, which are not deployed.
    pub hooks_left_out: Vec<ObjectKey>,
    /// The tests, which are not deployed.
    pub tests_left_out: Vec<ObjectKey>,
}

/// The role of a document in a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Object,
    /// A hook of install or upgrade.
    Hook,
    /// A hook of another event.
    OtherHook,
    Test,
}

/// Sorts helm's output into objects, hooks and tests.
pub(crate) fn sort_out(output: &str, reference: &str) -> Result<Rendered, ErrorKind> {
    let mut sources = sources(output).into_iter().peekable();
    let (mut file, mut before): (Arc<str>, _) = (reference.into(), 0);
    let (mut roles, mut documents) = (Vec::new(), Vec::new());
    let mut rendered = Rendered::default();
    for mut document in yaml::parse(output).map_err(ErrorKind::Yaml)? {
        while let Some((line, source)) = sources.next_if(|(line, _)| *line < document.line) {
            (file, before) = (source.into(), line);
        }
        document.line -= before;
        if is_no_object(&document.value) {
            rendered.not_objects.push(Source { file: Arc::clone(&file), line: document.line });
            continue;
        }
        // Like helm, this reads the annotation of the document, not those of the items of a List.
        let annotation = document.value.pointer("/metadata/annotations/helm.sh~1hook").and_then(|hook| hook.as_str());
        roles.push(role(annotation));
        documents.push((document, Arc::clone(&file)));
    }
    let objects = objects(documents).map_err(ErrorKind::Manifests)?;
    for (role, manifests) in roles.into_iter().zip(objects) {
        let keys = |manifests: &[Manifest]| -> Vec<ObjectKey> { manifests.iter().map(|m| m.key.clone()).collect() };
        match role {
            Role::Object => rendered.manifests.extend(manifests),
            Role::Hook => {
                rendered.hooks_deployed.extend(keys(&manifests));
                rendered.manifests.extend(manifests);
            }
            Role::OtherHook => rendered.hooks_left_out.extend(keys(&manifests)),
            Role::Test => rendered.tests_left_out.extend(keys(&manifests)),
        }
    }
    Ok(rendered)
}

/// Returns whether a document that is not empty is none of Kubernetes. Landscaper ignores the same documents
/// (`ParseFilesToRawExtension` in `controller-utils/pkg/kubernetes`).
fn is_no_object(document: &Value) -> bool {
    let is_set = |name| document.get(name).is_some_and(|value| !value.is_null() && value != "");
    !document.is_null() && !is_set("apiVersion") && !is_set("kind")
}

/// Returns the objects of each document, or the problems of all documents.
pub(crate) fn objects(
    documents: impl IntoIterator<Item = (Document, Arc<str>)>,
) -> Result<Vec<Vec<Manifest>>, Vec<ManifestError>> {
    let (mut found, mut errors) = (Vec::new(), Vec::new());
    for (document, file) in documents {
        match Manifest::from_document(document, &file) {
            Ok(manifests) => found.push(manifests),
            Err(problems) => errors.extend(problems),
        }
    }
    if errors.is_empty() { Ok(found) } else { Err(errors) }
}

/// Returns the role of a document with this annotation `helm.sh/hook`, a list of events.
fn role(annotation: Option<&str>) -> Role {
    let Some(annotation) = annotation else { return Role::Object };
    let events: Vec<_> = annotation.split(',').map(|event| event.trim().to_lowercase()).collect();
    let any = |names: &[&str]| events.iter().any(|event| names.contains(&event.as_str()));
    if any(&["pre-install", "post-install", "pre-upgrade", "post-upgrade", "crd-install"]) {
        Role::Hook
    } else if any(&["test", "test-success", "test-failure"]) {
        Role::Test
    } else {
        Role::OtherHook
    }
}

/// Returns the templates that helm names in a comment after each `---`, with the lines of the comments.
fn sources(output: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut separated = false;
    for (index, line) in output.lines().enumerate() {
        if let Some(source) = line.strip_prefix("# Source: ").filter(|_| separated) {
            found.push((index + 1, source.trim()));
        }
        separated = line.starts_with("---");
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(annotation: Option<&str>, expected: Role) {
        assert_eq!(role(annotation), expected, "{annotation:?}");
    }

    #[test]
    fn the_annotation_decides_the_role() {
        check(None, Role::Object);
        for event in ["pre-install", "post-install", "pre-upgrade", "post-upgrade", "crd-install"] {
            check(Some(event), Role::Hook);
        }
        for event in ["pre-delete", "post-delete", "pre-rollback", "post-rollback", "pre-delete,post-rollback", "", "x"]
        {
            check(Some(event), Role::OtherHook);
        }
        for event in ["test", "test-success", "test-failure", "test, pre-delete"] {
            check(Some(event), Role::Test);
        }
        check(Some("post-delete, Pre-Install"), Role::Hook);
        check(Some("test,post-install"), Role::Hook);
    }

    #[test]
    fn objects_have_their_template_as_source() {
        let output = "---\n# Source: c/templates/a.yaml\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  x: |\n    ---\n    # Source: none\n\
                      # Source: none\n---\n# Source: c/templates/b.yaml\n# nothing\n---\n# Source: c/templates/c.yaml\n\n\
                      apiVersion: v1\nkind: ConfigMapList\nitems: [{metadata: {name: c}}, {metadata: {name: d}}]\n";
        let rendered = sort_out(output, "c").unwrap();
        let sources: Vec<_> = rendered.manifests.iter().map(|m| format!("{} {}", m.source, m.key)).collect();
        assert_eq!(
            sources,
            [
                "c/templates/a.yaml:1 ConfigMap/a",
                "c/templates/c.yaml:2 ConfigMap/c",
                "c/templates/c.yaml:2 ConfigMap/d"
            ]
        );
    }

    #[test]
    fn documents_that_are_no_objects_are_left_out() {
        let output = "---\n# Source: c/templates/a.yaml\nThank you: for installing\n---\n# Source: c/templates/b.yaml\n\
                      just a text\n---\n# Source: c/templates/c.yaml\n# nothing\n---\n# Source: c/templates/d.yaml\n\
                      kind: \"\"\napiVersion: null\n---\n# Source: c/templates/e.yaml\n\
                      {apiVersion: v1, kind: Pod, metadata: {name: e}}\n";
        let rendered = sort_out(output, "c").unwrap();
        let left_out: Vec<_> = rendered.not_objects.iter().map(ToString::to_string).collect();
        assert_eq!(left_out, ["c/templates/a.yaml:1", "c/templates/b.yaml:1", "c/templates/d.yaml:1"]);
        assert_eq!(rendered.manifests.len(), 1);
    }

    #[test]
    fn an_error_names_the_line_in_the_document_of_the_template() {
        let first = "---\n# Source: c/templates/a.yaml\napiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n".repeat(10);
        let output = format!("{first}---\n# Source: c/templates/z.yaml\n# x\nkind: Pod\n");
        let Err(ErrorKind::Manifests(errors)) = sort_out(&output, "c") else { panic!("no error") };
        assert_eq!(errors[0].source_line.to_string(), "c/templates/z.yaml:2");
    }

    #[test]
    fn a_hook_may_be_a_list() {
        let output = "apiVersion: v1\nkind: List\nmetadata: {annotations: {helm.sh/hook: test}}\n\
                      items: [{apiVersion: v1, kind: Pod, metadata: {name: a}}]\n";
        let rendered = sort_out(output, "c").unwrap();
        assert_eq!(rendered.tests_left_out.len(), 1);
        assert!(rendered.manifests.is_empty());
    }
}
