//! Releases that helm deploys to a real cluster.

use std::time::Duration;

use billhook_charts::{Chart, DeployOptions, Release, install_or_upgrade, manifest_of, uninstall};
use billhook_policy::ChartSource;
use billhook_testkit::control_plane::{ControlPlane, Options};
use serde_json::json;

use crate::{
    RELEASE, message,
    servers::{HELM, pack},
};

#[tokio::test]
async fn a_release_is_installed_upgraded_read_and_uninstalled() {
    let control_plane = ControlPlane::start(&Options::default()).unwrap();
    let kubeconfig = control_plane.kubeconfig();
    let folder = tempfile::tempdir().unwrap();
    let chart = Chart::from(ChartSource::Archive(std::fs::read(pack(folder.path(), "1.2.3")).unwrap()));
    let timeout = Some(Duration::from_secs(60));
    let deploy = async |color: serde_json::Value, options: DeployOptions| {
        let values = json!({ "color": color });
        let release = Release { values: Some(&values), ..RELEASE };
        install_or_upgrade(&chart, &release, &DeployOptions { timeout, ..options }, kubeconfig, &HELM).await
    };
    let read = async || manifest_of("shop", "store", kubeconfig, &HELM).await.unwrap();
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

    uninstall("shop", "store", true, timeout, kubeconfig, &HELM).await.unwrap();
    assert_eq!(read().await, None);
    uninstall("shop", "store", true, timeout, kubeconfig, &HELM).await.unwrap();
    let error = message(&uninstall("shop", "store", true, timeout, "{}", &HELM).await.unwrap_err());
    assert!(error.starts_with("uninstall release shop: "), "{error}");
}
