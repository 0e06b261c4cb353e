//! The input of `apply`, `delete` and `plan`: files, folders, standard input, documents with a policy.

use std::os::unix::{fs::symlink, net::UnixListener};

use crate::call::Place;

const OK: &str = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}";
const NAMELESS: &str = "{apiVersion: v1, kind: ConfigMap}";
const ITEM: &str = "
apiVersion: landscaper.gardener.cloud/v1alpha1
kind: DeployItem
metadata: {name: item}
spec:
  type: landscaper.gardener.cloud/kubernetes-manifest
  config:
    apiVersion: manifest.deployer.landscaper.gardener.cloud/v1alpha2
    kind: ProviderConfiguration
    manifests:
      - policy: manage
        manifest: {apiVersion: v1, kind: ConfigMap, metadata: {name: b, namespace: shop}}
    deletionGroups:
      - predefinedResourceGroup: {type: empty}
";

#[test]
fn folders_are_read_in_order_and_all_errors_are_reported() {
    let place = Place::new(&[
        ("dir/b.yml", NAMELESS),
        ("dir/a.yaml", &format!("{OK}\n---\n{NAMELESS}\n---\n{NAMELESS}\n")),
        ("dir/c.json", NAMELESS),
        ("dir/deep/d.yaml", NAMELESS),
        ("dir/notes.txt", NAMELESS),
    ]);
    place.call("apply web -f dir -f nothing.yaml").is_input_error(
        "error: nothing.yaml does not exist\n\
         error: dir/a.yaml:3: a ConfigMap without metadata.name\n\
         error: dir/a.yaml:5: a ConfigMap without metadata.name\n\
         error: dir/b.yml:1: a ConfigMap without metadata.name\n\
         error: dir/c.json:1: a ConfigMap without metadata.name\n",
    );
    let deep = place.call("delete -R -f dir");
    assert!(deep.err.ends_with("error: dir/deep/d.yaml:1: a ConfigMap without metadata.name\n"), "{}", deep.err);
    // Several paths may follow one flag, as when a shell expands a pattern.
    let two = place.call("plan apply web -f dir/b.yml dir/c.json");
    assert_eq!(two.err.lines().count(), 2, "{}", two.err);
}

#[test]
fn entries_of_a_folder_that_cannot_be_read_are_errors() {
    let place = Place::new(&[("dir/a.yaml", OK), ("dir/deep/b.yaml", OK)]);
    let dir = place.folder().join("dir");
    symlink("nothing", dir.join("c.yaml")).unwrap();
    // Not followed, as it may be a cycle.
    symlink("deep", dir.join("d.yaml")).unwrap();
    let _socket = UnixListener::bind(dir.join("e.yaml")).unwrap();
    place.call("apply web -f dir").is_input_error(
        "error: dir/e.yaml is not a regular file\n\
         error: dir/c.yaml does not exist\n",
    );
}

#[test]
fn input_without_objects_is_an_error() {
    let place = Place::new(&[("dir/deep/a.yaml", OK), ("empty.yaml", "# nothing\n")]);
    place
        .call("apply web -f dir")
        .is_input_error("error: dir contains no .yaml, .yml or .json files\nhint: use -R to read subdirectories\n");
    place.call("delete -f empty.yaml").is_input_error("error: the input contains no objects\n");
    place.call("apply web -f -").is_input_error("error: standard input is empty\n");
}

#[test]
fn standard_input_is_read_once() {
    let place = Place::new(&[]);
    place.call_with("apply web -f -", NAMELESS).is_input_error("error: -:1: a ConfigMap without metadata.name\n");
    place.call_with("apply web -f - -f -", OK).is_input_error("error: standard input can be read only once\n");
}

#[test]
fn documents_of_other_kinds_are_rejected() {
    let place = Place::new(&[
        ("policy.yaml", "deletionGroups: []\n"),
        ("kustomization.yaml", "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: []\n"),
        ("short/kustomization.yaml", "resources: [a.yaml]\n"),
        ("Chart.yaml", "apiVersion: v2\nname: shop\nversion: 1.0.0\n"),
        ("broken.yaml", "a: [\n"),
    ]);
    place.call("apply web -f policy.yaml").is_input_error(
        "error: policy.yaml:1: expected a manifest, found a policy\nhint: pass it with --policy policy.yaml\n",
    );
    place.call("apply web -f kustomization.yaml").is_input_error(
        "error: kustomization.yaml:1: expected a manifest, found a kustomization\n\
         hint: pass its directory with -k DIR\n",
    );
    place.call("apply web -f short").is_input_error(
        "error: short/kustomization.yaml:1: expected a manifest, found a kustomization\n\
         hint: pass its directory with -k DIR\n",
    );
    place.call("apply web -f Chart.yaml").is_input_error(
        "error: Chart.yaml:1: expected a manifest, found the Chart.yaml of a chart\n\
         hint: pass its directory with --chart DIR\n",
    );
    place.call("apply web -f https://a.example/b.yaml").is_input_error(
        "error: https://a.example/b.yaml is a URL; only files and directories are supported\n\
         hint: run curl -fsSL https://a.example/b.yaml | billhook … -f -\n",
    );
    let broken = place.call("apply web -f broken.yaml");
    assert!(broken.exit == 2 && broken.err.starts_with("error: broken.yaml:"), "{}", broken.err);
    assert!(broken.err.contains("not valid YAML"), "{}", broken.err);
}

#[test]
fn only_one_policy_is_allowed() {
    let place = Place::new(&[
        ("item.yaml", &format!("{OK}\n---{ITEM}")),
        ("two.yaml", &format!("{ITEM}\n---{ITEM}")),
        ("policy.yaml", "deletionGroups: [{predefinedResourceGroup: {type: empty}}]\n"),
        ("wrong.yaml", "deletionGroups: [{predefinedResourceGroup: {type: crd}}]\n"),
    ]);
    place.call("apply web -f item.yaml --policy policy.yaml").is_input_error(
        "error: --policy cannot be combined with the policy in item.yaml:3\n\
         hint: omit --policy, or remove the policy from the document\n",
    );
    let two = place.call("apply web -f two.yaml");
    let words = "only one ProviderConfiguration or DeployItem is allowed; the first is two.yaml:2";
    assert!(two.exit == 2 && two.err.contains(words), "{}", two.err);
    let wrong = place.call("delete web --policy wrong.yaml");
    assert!(wrong.exit == 2 && wrong.err.contains("--> wrong.yaml:1:"), "{}", wrong.err);
}

#[test]
fn mistakes_of_all_sources_are_reported_together() {
    let place = Place::new(&[
        ("nameless.yaml", NAMELESS),
        ("wrong.yaml", "deletionGroups: [{predefinedResourceGroup: {type: crd}}]\n"),
    ]);
    let called = place.call("apply web -f nameless.yaml --policy wrong.yaml --values a --target a=b --target c=d");
    let expected =
        ["--values requires", "a ConfigMap without metadata.name", "--> wrong.yaml:1:", "read the kubeconfig"];
    let places = expected.map(|text| called.err.find(text));
    assert!(called.exit == 2 && places.iter().all(Option::is_some) && places.is_sorted(), "{}", called.err);
}

#[test]
fn features_of_the_controller_are_rejected() {
    let chart = "
apiVersion: helm.deployer.landscaper.gardener.cloud/v1alpha1
kind: ProviderConfiguration
name: web
namespace: shop
chart: {ref: example.com/charts/web:1.0}
";
    let place = Place::new(&[("chart.yaml", chart)]);
    place.call("apply web -f chart.yaml").is_input_error(
        "error: chart.yaml:2: this document deploys a chart, and only documents with manifests are supported\n\
         hint: deploy the chart with --chart REF\n",
    );
}

#[test]
fn fields_that_only_the_controller_uses_are_warnings() {
    let item = ITEM
        .replace("  config:", "  target: {name: t}\n  config:")
        .replace("    manifests:", "    continuousReconcile: {every: 1h}\n    manifests:");
    // The second item is an error, so that no cluster is needed.
    let place = Place::new(&[("item.yaml", &item), ("two.yaml", ITEM)]);
    let found = place.call("apply web -f item.yaml -f two.yaml");
    let warnings: Vec<_> = found.err.lines().filter(|line| line.starts_with("warning: ")).collect();
    let expected =
        ["target", "continuousReconcile"].map(|name| format!("warning: {name} has no effect on the command line"));
    assert_eq!(warnings, expected, "{}", found.err);
}

#[test]
fn warnings_are_limited_for_all_files_together() {
    let group = "      - predefinedResourceGroup: {type: empty}\n";
    let crds = group.replace("empty", "crds");
    let item = ITEM.replace(group, &crds.repeat(91));
    let policy = format!("deletionGroups:\n{}", crds.repeat(21));
    // The second item is an error, so that no cluster is needed.
    let place = Place::new(&[("item.yaml", &item), ("two.yaml", ITEM), ("policy.yaml", &policy)]);
    let found = place.call("apply web -f item.yaml -f two.yaml --policy policy.yaml");
    assert_eq!((found.exit, found.err.matches("warning: ").count()), (2, 100), "{}", found.err);
    assert!(found.err.contains("\n10 more warnings\n"), "{}", found.err);
}
