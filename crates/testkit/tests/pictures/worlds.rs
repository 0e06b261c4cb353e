//! The pages: what the program prints for clusters and folders made for it.

use std::{collections::BTreeMap, io::Cursor, path::Path, sync::Arc};

use billhook::{Cluster, Connect, World};
use billhook_sandbox::{Options, Sandbox, User};
use billhook_testkit::scenario::Shared;
use kube::api::{Api, DeleteParams, DynamicObject, PostParams};
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// The kubeconfig of a cluster that does not exist.
const KUBECONFIG: &str = "
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]
contexts: [{name: x, context: {cluster: c, namespace: shop}}]
current-context: x
";

/// A name that would load something if it were HTML, and end the script that it is in.
const HOSTILE: &str = "</script><img src=x onerror=hurt()>";

/// Returns what the program prints, called in a folder; it must end so.
async fn print(folder: &Path, args: &str, connect: Connect, expected: u8) -> String {
    std::fs::write(folder.join("kubeconfig"), KUBECONFIG).unwrap();
    let (out, err) = (Shared::default(), Shared::default());
    let (_interrupt, interrupts) = mpsc::channel(1);
    let world = World {
        args: std::iter::once("billhook").chain(args.split_whitespace()).map(Into::into).collect(),
        env: BTreeMap::from([("KUBECONFIG".to_owned(), "kubeconfig".to_owned())]),
        directory: folder.to_owned(),
        stdin: Box::new(Cursor::new("")),
        stdin_terminal: false,
        stdout: Box::new(out.clone()),
        stdout_terminal: false,
        stderr: Box::new(err.clone()),
        stderr_terminal: false,
        interrupts,
        connect,
    };
    let exit = billhook::run(world).await;
    assert_eq!(exit, expected, "{}", err.text());
    out.text()
}

/// Runs a future on a clock that is paused.
fn on_paused_clock<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(future)
}

/// Returns what the program prints without a cluster, or with a sandbox of its own, for files in its folder.
fn printed(files: &[(&str, &str)], args: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    on_paused_clock(print(folder.path(), args, Arc::new(Cluster::connect), 0))
}

/// Returns the page of a plan that creates a Namespace and so many ConfigMaps.
pub fn many_objects(amount: usize) -> String {
    let namespace = "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}\n".to_owned();
    let config = |number| {
        format!("---\n{{apiVersion: v1, kind: ConfigMap, metadata: {{name: settings-{number}, namespace: shop}}}}\n")
    };
    let manifests = namespace + &(0..amount).map(config).collect::<String>();
    printed(&[("many.yaml", &manifests)], "plan apply web -f many.yaml --sandbox -o html")
}

/// Returns the page of a payload with a file of a hostile name.
pub fn hostile_payload() -> String {
    let manifest =
        |name: &str| format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, namespace: shop}}}}");
    let (a, b) = (manifest("a"), manifest("b"));
    let files = [("r/0000_10_shop_01_a.yaml", &*a), ("r/0000_20_cart_01_<img src=x onerror=hurt()>.yaml", &*b)];
    printed(&files, "payload plan r --version 4.21.0 --from-version 4.20.0 -o html")
}

/// Returns the page of `why` about a Namespace that ConfigMaps hold, whose finalizers a client with a hostile name has set.
pub fn stuck_namespace() -> String {
    on_paused_clock(async {
        let sandbox = Sandbox::start(Options::default());
        let client = sandbox.client(User::admin(), "test");
        let api = |version: &str, kind: &str, plural: &str| {
            let (group, version) = version.split_once('/').unwrap_or(("", version));
            let mut resource =
                kube::core::ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk(group, version, kind));
            resource.plural = plural.to_owned();
            resource
        };
        let create = async |value: Value, plural: &str, namespace: Option<&str>| {
            let resource = api(value["apiVersion"].as_str().unwrap(), value["kind"].as_str().unwrap(), plural);
            let api: Api<DynamicObject> = match namespace {
                Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
                None => Api::all_with(client.clone(), &resource),
            };
            let object = serde_json::from_value(value).unwrap();
            let by = PostParams { field_manager: Some(HOSTILE.to_owned()), ..PostParams::default() };
            api.create(&by, &object).await.unwrap()
        };
        create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}), "namespaces", None)
            .await;
        // Nearly the longest name that there is.
        let name = format!("{:x<250}", "held");
        let held = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "finalizers": ["shop.example/keep"]}});
        create(held, "configmaps", Some("shop")).await;
        for number in 0..30 {
            let value = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("other-{number}"), "finalizers": ["shop.example/keep"]}});
            create(value, "configmaps", Some("shop")).await;
        }
        let namespaces: Api<DynamicObject> = Api::all_with(client.clone(), &api("v1", "Namespace", "namespaces"));
        namespaces.delete("shop", &DeleteParams::default()).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_secs(90)).await;
        let connect: Connect = Arc::new(move |_, options| Ok(Cluster::from_client(client.clone(), options)));
        let folder = tempfile::tempdir().unwrap();
        let args = format!("why namespace/shop configmap/{name} -n shop -o html");
        print(folder.path(), &args, connect, 3).await
    })
}
