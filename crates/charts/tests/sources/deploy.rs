//! Releases that helm deploys to a real cluster.

use std::time::Duration;

use billhook_charts::{Chart, DeployOptions, Release, TimeLimit, install_or_upgrade, manifest_of, template, uninstall};
use billhook_policy::ChartSource;
use billhook_testkit::control_plane::{ControlPlane, Options};
use serde_json::json;

use crate::{
    RELEASE, message,
    servers::{PROGRAM, pack, pack_with},
};

#[tokio::test]
async fn a_release_is_installed_upgraded_read_and_uninstalled() {
    let control_plane = ControlPlane::start(&Options::default()).unwrap();
    let kubeconfig = control_plane.kubeconfig();
    let folder = tempfile::tempdir().unwrap();
    let chart = Chart::from(ChartSource::Archive(std::fs::read(pack(folder.path(), "1.2.3")).unwrap()));
    let time = TimeLimit { timeout: Some(Duration::from_secs(60)), deadline: None };
    let deploy = async |color: serde_json::Value, options: DeployOptions| {
        let values = json!({ "color": color });
        let release = Release { values: Some(&values), ..RELEASE };
        install_or_upgrade(&chart, &release, &DeployOptions { time, ..options }, kubeconfig, &PROGRAM).await
    };
    let read = async || manifest_of("shop", "store", kubeconfig, &PROGRAM).await.unwrap();
    let none = DeployOptions::default();

    assert_eq!(read().await, None);
    let error = message(&deploy(json!("red"), none).await.unwrap_err());
    assert!(error.starts_with("install or upgrade release shop: "), "{error}");
    assert!(error.contains("namespaces \"store\" not found"), "{error}");

    deploy(json!("red"), DeployOptions { create_namespace: true, wait: true, ..none }).await.unwrap();
    let manifests = read().await.unwrap();
    let [manifest] = manifests.as_slice() else { panic!("{manifests:?}") };
    assert_eq!(manifest.key.to_string(), "ConfigMap/shop");
    assert_eq!(manifest.value()["data"]["color"], "red");

    let error = message(&deploy(json!(7), none).await.unwrap_err());
    assert!(error.contains("got number, want string"), "{error}");
    let options =
        DeployOptions { skip_schema_validation: true, atomic: true, force: true, take_ownership: true, ..none };
    deploy(json!(7), options).await.unwrap();
    assert_eq!(read().await.unwrap()[0].value()["data"]["color"], "7");

    uninstall("shop", "store", true, time, kubeconfig, &PROGRAM).await.unwrap();
    assert_eq!(read().await, None);
    uninstall("shop", "store", true, time, kubeconfig, &PROGRAM).await.unwrap();
    let error = message(&uninstall("shop", "store", true, time, "{}", &PROGRAM).await.unwrap_err());
    assert!(error.starts_with("uninstall release shop: "), "{error}");
}

#[tokio::test]
async fn a_chart_that_is_only_rendered_finds_the_objects_of_the_cluster() {
    let control_plane = ControlPlane::start(&Options::default()).unwrap();
    let kubeconfig = control_plane.kubeconfig();
    let folder = tempfile::tempdir().unwrap();
    let rest = "---\napiVersion: a.example/v1\nkind: Widget\nmetadata: {name: w}\n---\n\
                apiVersion: v1\nkind: Namespace\nmetadata: {name: kube-system}\n---\n\
                apiVersion: v1\nkind: Pod\nmetadata: {name: hook, annotations: {helm.sh/hook: pre-install}}\n";
    let render = async |function: &str, cluster: Option<&str>| {
        let text = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\ndata:\n  found: {{{{ {function} }}}}\n{rest}"
        );
        let bytes = pack_with(folder.path(), "templates/found.yaml", &text);
        let chart = Chart::from(ChartSource::Archive(bytes));
        let rendered = template(&chart, &RELEASE, None, cluster, &PROGRAM).await.unwrap();
        let mut keys: Vec<_> = rendered.manifests.iter().map(|manifest| manifest.key.to_string()).collect();
        keys.sort_unstable();
        let expected = ["ConfigMap/a", "ConfigMap/shop", "Namespace/kube-system", "Pod/hook", "Widget.a.example/w"];
        assert_eq!(keys, expected);
        assert_eq!(rendered.hooks_deployed.len(), 1);
        let found = rendered.manifests.iter().find(|manifest| manifest.key.name == "a");
        found.unwrap().value()["data"]["found"].as_str().map(str::to_owned)
    };
    let lookup = r#"(lookup "v1" "Namespace" "" "kube-system").metadata.name | quote"#;
    assert_eq!(
        render(r#"dig "metadata" "name" "no" (lookup "v1" "Namespace" "" "kube-system") | quote"#, None).await.unwrap(),
        "no"
    );
    assert_eq!(render(lookup, Some(kubeconfig)).await.unwrap(), "kube-system");
    assert_eq!(
        render(r#"lookup "v1" "Secret" "default" "none" | toJson | quote"#, Some(kubeconfig)).await.unwrap(),
        "{}"
    );
    // A chart without the function gets no access to the cluster.
    assert_eq!(render(r#""fixed""#, Some("no kubeconfig")).await.unwrap(), "fixed");
}
