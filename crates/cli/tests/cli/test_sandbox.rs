//! `sandbox`, and the flag `--sandbox`.

use std::{path::PathBuf, time::Duration};

use kube::{Api, Client, Config, api::DynamicObject, config::Kubeconfig, core::ApiResource, core::GroupVersionKind};
use tokio::sync::mpsc;

use crate::call::{Place, Shared};

const MANIFESTS: &str = "\
{apiVersion: example.org/v1, kind: Widget, metadata: {name: a}, spec: {size: 1}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: b, namespace: shop}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.org}
spec:
  group: example.org
  names: {kind: Widget, plural: widgets}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

/// A folder without a kubeconfig.
fn place() -> Place {
    let place = Place::new(&[("m.yaml", MANIFESTS)]);
    std::fs::remove_file(place.folder().join("kubeconfig")).unwrap();
    place
}

#[test]
fn each_command_has_its_own_sandbox() {
    let place = place();
    let planned = place.call("--sandbox plan apply web -f m.yaml");
    assert_eq!((planned.exit, planned.err.as_str()), (0, ""));
    assert!(planned.out.starts_with("apply release default/web: 4 to create"), "{}", planned.out);
    let applied = place.call("apply web -f m.yaml --sandbox -n other --as joe --as-group g");
    assert_eq!(applied.exit, 0, "{}", applied.err);
    assert!(applied.out.contains("created Widget.example.org other/a"), "{}", applied.out);
    assert!(applied.err.starts_with("not waiting for readiness"), "{}", applied.err);
    assert_eq!(place.call("list --sandbox").err, "no releases in namespace default\n");
}

#[test]
fn flags_that_choose_a_cluster_are_rejected() {
    let place = place();
    for (args, words) in [
        ("list --sandbox --kubeconfig k", "--sandbox cannot be combined with --kubeconfig"),
        ("--sandbox list --context c", "--sandbox cannot be combined with --context"),
        ("--sandbox delete web --target a=b", "--sandbox cannot be combined with --target"),
        ("--sandbox list --as-group g", "--as-group requires --as"),
        ("sandbox --context c", "the sandbox command cannot be combined with --context"),
        ("sandbox -R", "-R requires -f"),
    ] {
        place.call(args).is_input_error(&format!("error: {words}\n"));
    }
    let refused = place.call("--sandbox list -n UPPER");
    assert_eq!((refused.exit, refused.out.as_str()), (2, ""));
    assert!(refused.err.starts_with("error: failed to create Namespace UPPER\n  caused by: "), "{}", refused.err);
}

#[test]
fn objects_that_cannot_be_created_are_errors() {
    let place = place();
    place.write(
        "bad.yaml",
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: nowhere}}\n---\n\
                             {apiVersion: v1, kind: Nothing, metadata: {name: a}}",
    );
    let called = place.call("sandbox -f bad.yaml");
    let expected = "error: bad.yaml:1: failed to create ConfigMap nowhere/a\n  \
                    caused by: namespaces \"nowhere\" not found\n\
                    error: bad.yaml:3: failed to create Nothing a\n  \
                    caused by: the sandbox does not serve Nothing in version v1\n";
    assert_eq!((called.exit, called.err.as_str(), called.out.as_str()), (1, expected, ""));
}

/// Runs `billhook sandbox ARGS`, passes its first line to `look`, and interrupts it.
fn while_served<F: Future<Output = ()>>(place: &Place, args: &str, look: impl FnOnce(String) -> F) {
    let out = Shared::default();
    let (interrupt, interrupts) = mpsc::channel(1);
    let world = place.world("billhook", &format!("sandbox {args}"), "", (out.clone(), Shared::default()), interrupts);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let work = async {
        let look = async {
            while !out.text().ends_with('\n') {
                tokio::task::yield_now().await;
            }
            look(out.text()).await;
            interrupt.send(()).await.unwrap();
        };
        tokio::join!(billhook::run(world), look).0
    };
    let exit = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(30), work).await }).unwrap();
    assert_eq!(exit, 0, "{}", out.text());
}

async fn client(kubeconfig: &std::path::Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    Client::try_from(Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.unwrap()).unwrap()
}

#[test]
fn a_sandbox_serves_clients_until_interrupted() {
    let mut path = PathBuf::new();
    while_served(&place(), "-f m.yaml", async |out| {
        path = PathBuf::from(out.trim().strip_prefix("export KUBECONFIG=").unwrap());
        let widgets = ApiResource::from_gvk(&GroupVersionKind::gvk("example.org", "v1", "Widget"));
        let api = Api::<DynamicObject>::default_namespaced_with(client(&path).await, &widgets);
        assert_eq!(api.get("a").await.unwrap().data["spec"]["size"], 1);
    });
    assert!(!path.parent().unwrap().exists());
}

#[test]
fn a_kubeconfig_is_never_overwritten() {
    let place = place();
    while_served(&place, "-o json --kubeconfig-out kc", async |out| {
        let started: serde_json::Value = serde_json::from_str(&out).unwrap();
        let path = PathBuf::from(started["kubeconfig"].as_str().unwrap());
        assert_eq!(path, place.folder().join("kc"));
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(started["url"].as_str().unwrap()), "{text}");
    });
    assert!(!place.folder().join("kc").exists());
    place.write("kc", "mine");
    let called = place.call_in_real_time("sandbox --kubeconfig-out kc");
    assert_eq!(called.exit, 2);
    assert!(called.err.contains("kc already exists\nhint: delete it, or choose another file"), "{}", called.err);
    assert_eq!(std::fs::read_to_string(place.folder().join("kc")).unwrap(), "mine");
}

#[test]
fn an_unknown_controller_is_an_error() {
    place().rejects("sandbox --controllers jobs", "there is no controller \"jobs\"; use all, none, or some of");
}
