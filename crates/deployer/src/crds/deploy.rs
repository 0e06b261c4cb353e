//! Tests that the chart and the kustomization in `deploy` install the same objects.

use std::{collections::BTreeMap, ffi::OsString, path::Path, process::Command};

use billhook_hosts::Dialer;
use billhook_objects::yaml;
use billhook_sandbox::{Sandbox, User};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    api::{Api, DynamicObject, PostParams},
    core::GroupVersionKind,
    discovery::ApiResource,
};
use serde_json::{Value, json};

use crate::helms::Helms;

#[test]
fn the_chart_and_the_kustomization_deploy_the_same_objects() {
    check("kustomize/base", &["crds.install=false"]);
    let all = [
        "namespaces={shop}",
        "serviceMonitor.create=true",
        "prometheusRule.create=true",
        "dashboard.create=true",
        "networkPolicy.create=true",
        "target.create=true",
    ];
    check("kustomize/example", &[all.as_slice(), &["target.namespace=shop", "crds.install=false"]].concat());
}

#[test]
fn the_chart_and_the_kustomization_deploy_the_same_webhook() {
    let rules = "webhook.deletionConfirmation.rules[0].apiGroups={extensions.gardener.cloud}";
    let of_all =
        ["apiVersions", "resources"].map(|field| format!("webhook.deletionConfirmation.rules[0].{field}={{*}}"));
    let values =
        ["webhook.create=true", "webhook.certManager=true", "networkPolicy.create=true", rules, &of_all[0], &of_all[1]];
    check_webhook("kustomize/webhook-example", &values);
}

#[test]
fn the_chart_and_the_kustomization_deploy_the_same_warnings() {
    let component = folder("kustomize/components/webhook-warn-on-delete");
    let folder = tempfile::tempdir_in(component.parent().unwrap()).unwrap();
    let kustomization = "{apiVersion: kustomize.config.k8s.io/v1beta1, kind: Kustomization, resources: [../../webhook], \
                         components: [../webhook-warn-on-delete]}";
    std::fs::write(folder.path().join("kustomization.yaml"), kustomization).unwrap();
    let values = [
        "webhook.create=true",
        "webhook.caBundle=AA==",
        "webhook.warnOnDelete.create=true",
        "webhook.resources.limits.memory=512Mi",
        "networkPolicy.create=true",
    ];
    let Some((mut chart, kustomization)) = webhooks(folder.path(), &values) else { return };
    for name in ["billhook-warn-on-delete", "billhook-force-deletion"] {
        let webhook = &mut chart.get_mut(&format!("ValidatingWebhookConfiguration/{name}")).unwrap()["webhooks"][0];
        assert_eq!(webhook["clientConfig"].as_object_mut().unwrap().remove("caBundle"), Some("AA==".into()));
    }
    // Another component has the policy that opens the port.
    chart.remove("NetworkPolicy/billhook-webhook");
    assert_eq!(chart, kustomization);
}

#[test]
fn warnings_need_no_right_to_read_secrets_or_everything() {
    let values = ["webhook.create=true", "webhook.certManager=true", "webhook.warnOnDelete.create=true"];
    let rules = |more: &[&str]| {
        let mut chart = chart(&[values.as_slice(), more].concat())?;
        Some(chart.remove("ClusterRole/billhook-webhook-warn-on-delete").unwrap()["rules"].as_array().unwrap().clone())
    };
    let Some(own) = rules(&[]) else { return };
    for rule in &own {
        let core = rule["apiGroups"].as_array().unwrap().iter().any(|group| group == "" || group == "*");
        let secrets = rule["resources"].as_array().unwrap().iter().any(|kind| kind == "secrets" || kind == "*");
        assert!(!core || !secrets, "{rule}");
        assert_eq!(rule["verbs"], json!(["get", "list", "watch"]));
    }
    let more = rules(&["webhook.warnOnDelete.apiGroups={shop.example}", "webhook.warnOnDelete.secrets=true"]).unwrap();
    let added = [
        json!({"apiGroups": ["shop.example"], "resources": ["*"], "verbs": ["get", "list", "watch"]}),
        json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch"]}),
    ];
    assert_eq!(more, [own.as_slice(), &added].concat());
}

fn check_webhook(kustomization: &str, values: &[&str]) {
    if let Some((chart, kustomization)) = webhooks(&folder(kustomization), values) {
        assert_eq!(chart, kustomization);
    }
}

/// Returns what the chart and a kustomization deploy of the webhook.
fn webhooks(kustomization: &Path, values: &[&str]) -> Option<(BTreeMap<String, Value>, BTreeMap<String, Value>)> {
    let kubectl = program("BILLHOOK_KUBECTL")?;
    let mut chart = chart_in("billhook-webhook", values)?;
    let mut kustomization = objects(Command::new(kubectl).arg("kustomize").arg(kustomization));
    kustomization.remove("Namespace/billhook-webhook");
    // The chart also installs the controller. For a scope that is not set, API servers store `*`.
    chart.retain(|_, object| {
        object.pointer("/metadata/labels/app.kubernetes.io~1name") == Some(&"billhook-webhook".into())
    });
    for rule in kustomization.values_mut().filter_map(|object| object.pointer_mut("/webhooks/0/rules/0")) {
        rule.as_object_mut().unwrap().retain(|field, value| field != "scope" || value != "*");
    }
    Some((chart, kustomization))
}

#[test]
fn the_manifests_refer_to_the_image_by_version_and_digest() {
    let version = env!("CARGO_PKG_VERSION");
    let text = std::fs::read_to_string(folder("chart/Chart.yaml")).unwrap();
    let definition = &yaml::parse(&text).unwrap()[0].value;
    assert_eq!([&definition["version"], &definition["appVersion"]], [version, version]);
    let digest = format!("sha256:{}", "0123456789abcdef".repeat(4));
    let given = format!("image.digest={digest}");
    let webhook = ["webhook.create=true", "webhook.certManager=true", "image.repository=registry.example/billhook"];
    for (values, expected) in [
        (vec![], format!("registry.example/billhook:{version}")),
        (vec![given.as_str()], format!("registry.example/billhook:{version}@{digest}")),
        (vec![given.as_str(), "image.tag=v9"], format!("registry.example/billhook:v9@{digest}")),
    ] {
        let Some(objects) = chart(&[webhook.as_slice(), &values].concat()) else { return };
        for name in ["Deployment/billhook-controller", "Deployment/billhook-webhook"] {
            assert_eq!(objects[name]["spec"]["template"]["spec"]["containers"][0]["image"], expected, "{name}");
        }
    }
    // No digest is checked in: only whoever pushes an image knows it.
    for kustomization in ["kustomize/base/kustomization.yaml", "kustomize/webhook/kustomization.yaml"] {
        let text = std::fs::read_to_string(folder(kustomization)).unwrap();
        let images = &yaml::parse(&text).unwrap()[0].value["images"];
        assert_eq!(*images, json!([{ "name": "billhook", "newTag": version }]), "{kustomization}");
    }
}

#[test]
fn all_pods_are_restricted_and_probed_and_may_be_evicted_if_unhealthy() {
    let Some(objects) = chart(&["webhook.create=true", "webhook.certManager=true", "networkPolicy.create=true"]) else {
        return;
    };
    for name in ["billhook-controller", "billhook-webhook"] {
        let pod = &objects[&format!("Deployment/{name}")]["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        assert_eq!(pod["priorityClassName"], name);
        assert!(objects[&format!("PriorityClass/{name}")]["value"].as_i64().unwrap() > 0, "{name}");
        assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
        assert_eq!(
            [&pod["securityContext"]["runAsNonRoot"], &container["securityContext"]["readOnlyRootFilesystem"]],
            [true; 2]
        );
        assert_eq!(container["securityContext"]["capabilities"], json!({ "drop": ["ALL"] }));
        for probe in ["livenessProbe", "readinessProbe"] {
            assert!(container[probe]["httpGet"]["path"].is_string(), "{name} {probe}");
        }
        let budget = &objects[&format!("PodDisruptionBudget/{name}")]["spec"];
        assert_eq!(budget["unhealthyPodEvictionPolicy"], "AlwaysAllow", "{name}");
        let policy = &objects[&format!("NetworkPolicy/{name}")]["spec"];
        assert_eq!(policy["policyTypes"], json!(["Ingress", "Egress"]), "{name}");
    }
}

/// The chart has the same objects, as another test checks.
#[test]
fn by_default_loopback_is_denied_and_the_only_rights_everywhere_are_about_namespaces() {
    let read = |file: &str| {
        let text = std::fs::read_to_string(folder(&format!("kustomize/base/{file}"))).unwrap();
        yaml::parse(&text).unwrap().into_iter().map(|document| document.value).collect::<Vec<_>>()
    };
    let args = read("deployment.yaml")[0]["spec"]["template"]["spec"]["containers"][0]["args"].to_string();
    for flag in ["--deny-host=loopback", "--namespace-selector=billhook.dev/deployitems=enabled"] {
        assert!(args.contains(&format!("\"{flag}\"")), "{args}");
    }
    assert!(!args.contains("--allow-proxy-url"), "{args}");
    let objects = read("rbac.yaml");
    let of = |kind: &str| objects.iter().filter(move |object| object["kind"] == kind).collect::<Vec<_>>();
    let bound: Vec<_> = of("ClusterRoleBinding").iter().map(|binding| &binding["roleRef"]["name"]).collect();
    assert_eq!(bound, ["billhook-namespaces"]);
    for role in of("ClusterRole") {
        let rules = role["rules"].to_string();
        let everywhere = role["metadata"]["name"] == "billhook-namespaces";
        let resources: Vec<_> = role["rules"].as_array().unwrap().iter().map(|rule| &rule["resources"]).collect();
        assert_eq!(resources == [&json!(["namespaces"])], everywhere, "{rules}");
        assert!(!rules.contains('*') && !rules.contains("serviceaccounts/token"), "{rules}");
    }
}

#[test]
fn the_chart_installs_the_crds_and_keeps_them() {
    let Some(objects) = chart(&[]) else { return };
    for definition in super::definitions().unwrap() {
        let name = format!("CustomResourceDefinition/{}", definition["metadata"]["name"].as_str().unwrap());
        assert_eq!(objects[&name]["spec"], definition["spec"], "{name}");
        assert_eq!(objects[&name]["metadata"]["annotations"]["helm.sh/resource-policy"], "keep", "{name}");
    }
}

#[test]
fn each_shard_is_a_deployment_with_a_budget() {
    let Some(objects) = chart(&["shards=2"]) else { return };
    for (shard, name) in ["billhook-controller-0", "billhook-controller-1"].iter().enumerate() {
        let deployment = &objects[&format!("Deployment/{name}")]["spec"];
        let args = deployment["template"]["spec"]["containers"][0]["args"].as_array().unwrap();
        assert!(args.contains(&format!("--shard={shard}/2").into()), "{args:?}");
        let budget = &objects[&format!("PodDisruptionBudget/{name}")]["spec"];
        assert_eq!(budget["selector"], deployment["selector"]);
        assert_eq!(deployment["selector"]["matchLabels"]["billhook.dev/shard"], shard.to_string());
    }
}

#[test]
fn helm_finds_no_mistake_in_the_chart_and_rejects_wrong_values() {
    let Some(helm) = program("BILLHOOK_HELM") else { return };
    let lint = |args: &[&str]| {
        let output = Command::new(&helm).arg("lint").arg(folder("chart")).args(args).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    assert!(lint(&["--strict"]).0, "{}", lint(&["--strict"]).1);
    for wrong in [
        "replica=2",
        "priorityClass.value=high",
        "networkPolicy.create=maybe",
        "prometheusRule.label=x",
        "image.digest=0.1.0",
        "webhook.warnOnDelete.apiGroups={*}",
        "webhook.warnOnDelete.secret=true",
    ] {
        assert!(!lint(&["--set", wrong]).0, "{wrong}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_server_stores_the_objects_of_the_chart_as_they_are() {
    let all = ["shards=2", "dashboard.create=true", "networkPolicy.create=true", "target.create=true"];
    let Some(objects) = chart(&all) else { return };
    let sandbox = Sandbox::start(billhook_sandbox::Options::default());
    let client = sandbox.client(User::admin(), "billhook-system");
    let namespace = Api::<Namespace>::all(client.clone());
    let named = json!({ "metadata": { "name": "billhook-system" } });
    namespace.create(&PostParams::default(), &serde_json::from_value(named).unwrap()).await.unwrap();
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    for (name, sent) in &objects {
        let object: DynamicObject = serde_json::from_value(sent.clone()).unwrap();
        let kind = ApiResource::from_gvk(&GroupVersionKind::try_from(object.types.clone().unwrap()).unwrap());
        let api = match &object.metadata.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind),
            None => Api::all_with(client.clone(), &kind),
        };
        let stored = api.create(&dry_run, &object).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        let stored = serde_json::to_value(stored).unwrap();
        assert!(contains(&stored, sent), "{name}: {stored}");
    }
    assert!(objects.len() > 12, "{objects:?}");
}

/// Returns whether everything that was sent is stored.
fn contains(stored: &Value, sent: &Value) -> bool {
    match (stored, sent) {
        (Value::Object(stored), Value::Object(sent)) => {
            sent.iter().all(|(key, sent)| stored.get(key).is_some_and(|stored| contains(stored, sent)))
        }
        (Value::Array(stored), Value::Array(sent)) => {
            stored.len() == sent.len() && stored.iter().zip(sent).all(|(stored, sent)| contains(stored, sent))
        }
        (stored, sent) => stored == sent,
    }
}

#[test]
fn the_memory_limit_has_room_for_all_helms() {
    let text = std::fs::read_to_string(folder("kustomize/base/deployment.yaml")).unwrap();
    let deployment = &yaml::parse(&text).unwrap()[0].value;
    let limit = deployment.pointer("/spec/template/spec/containers/0/resources/limits/memory").unwrap();
    let limit: u64 = limit.as_str().unwrap().strip_suffix("Gi").unwrap().parse().unwrap();
    let helms = Helms::new(billhook_charts::Helm::new("helm"), Dialer::default());
    let slots = helms.renders.counts().slots + helms.releases.counts().slots;
    assert!(
        limit * 1024 >= billhook_charts::MEMORY * u64::try_from(slots).unwrap() + 512,
        "{limit} GiB, {slots} helms"
    );
}

#[test]
fn the_component_for_all_namespaces_removes_the_selector() {
    let read = |name: &str| yaml::parse(&std::fs::read_to_string(folder(name)).unwrap()).unwrap()[0].value.clone();
    let component = read("kustomize/components/all-namespaces/kustomization.yaml");
    let patch = yaml::parse(component["patches"][0]["patch"].as_str().unwrap()).unwrap()[0].value.clone();
    let deployment = read("kustomize/base/deployment.yaml");
    for operation in patch.as_array().unwrap() {
        let removed = deployment["spec"].pointer(operation["path"].as_str().unwrap().strip_prefix("/spec").unwrap());
        assert_eq!(removed.unwrap(), "--namespace-selector=billhook.dev/deployitems=enabled");
    }
    let Some(chart) = chart(&["allNamespaces=true"]) else { return };
    let args = chart["Deployment/billhook-controller"].pointer("/spec/template/spec/containers/0/args").unwrap();
    assert!(!args.to_string().contains("namespace-selector"), "{args}");
    let mut binding = read("kustomize/components/all-namespaces/clusterrolebinding.yaml");
    binding["metadata"]["labels"] = chart["ClusterRoleBinding/billhook-controller"]["metadata"]["labels"].clone();
    assert_eq!(chart["ClusterRoleBinding/billhook-controller"], binding);
}

#[test]
fn values_of_the_chart_are_flags_and_what_these_need() {
    let selector = "targetSelectors[0].labels[0].key=env,targetSelectors[0].labels[0].operator=exists";
    let Some(chart) = chart(&["helmUser=1001", "serviceAccountTokens=true", selector]) else { return };
    let spec = chart["Deployment/billhook-controller"].pointer("/spec/template/spec").unwrap();
    let args = spec["containers"][0]["args"].as_array().unwrap();
    let flag = |name: &str| args.iter().find_map(|arg| arg.as_str().unwrap().strip_prefix(name)).unwrap();
    assert_eq!(flag("--helm-user="), "1001");
    let selector: crate::TargetSelector = flag("--target-selector=").parse().unwrap();
    assert!(format!("{selector:?}").contains("env"), "{selector:?}");
    // Who is root in the pod can start helm as that user, and the token is for root only.
    assert_eq!(spec["securityContext"]["runAsUser"], 0);
    assert_eq!(spec["securityContext"].get("fsGroup"), None);
    let capabilities = &spec["containers"][0]["securityContext"]["capabilities"];
    let names: Vec<_> = capabilities["add"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(names, ["CHOWN", "DAC_OVERRIDE", "KILL", "SETGID", "SETUID"]);
    assert_eq!(capabilities["drop"][0], "ALL");
    let rules = chart["ClusterRole/billhook-controller"]["rules"].as_array().unwrap();
    assert!(rules.iter().any(|rule| rule["resources"][0] == "serviceaccounts/token"), "{rules:?}");
    let Some(chart) = self::chart(&["helmUser=65600-65615"]) else { return };
    let spec = chart["Deployment/billhook-controller"].pointer("/spec/template/spec").unwrap();
    let args = spec["containers"][0]["args"].as_array().unwrap();
    assert!(args.contains(&"--helm-user=65600-65615".into()), "{args:?}");
    assert_eq!(spec["securityContext"]["runAsUser"], 0);
}

fn check(kustomization: &str, values: &[&str]) {
    let Some(kubectl) = program("BILLHOOK_KUBECTL") else { return };
    let Some(chart) = chart(values) else { return };
    let mut kustomization = objects(Command::new(kubectl).arg("kustomize").arg(folder(kustomization)));
    // helm creates it with a flag.
    kustomization.remove("Namespace/billhook-system");
    // It belongs to its owner.
    kustomization.remove("Namespace/shop");
    assert_eq!(chart, kustomization);
}

/// Renders the chart with values, and removes the fields that only helm sets.
fn chart(values: &[&str]) -> Option<BTreeMap<String, Value>> {
    chart_in("billhook-system", values)
}

/// Renders the chart for a namespace.
fn chart_in(namespace: &str, values: &[&str]) -> Option<BTreeMap<String, Value>> {
    let mut helm = Command::new(program("BILLHOOK_HELM")?);
    helm.args(["template", "billhook", "--namespace", namespace]).arg(folder("chart"));
    helm.args(values.iter().flat_map(|value| ["--set", value]));
    let mut objects = objects(&mut helm);
    for object in objects.values_mut() {
        for labels in ["/metadata/labels", "/spec/template/metadata/labels"] {
            if let Some(Value::Object(labels)) = object.pointer_mut(labels) {
                labels.retain(|key, _| !key.starts_with("app.kubernetes.io/") || key == "app.kubernetes.io/name");
            }
        }
        if let Some(container) = object.pointer_mut("/spec/template/spec/containers/0") {
            container.as_object_mut().unwrap().remove("imagePullPolicy");
        }
    }
    Some(objects)
}

/// Returns the objects that a command prints, by kind and name.
fn objects(command: &mut Command) -> BTreeMap<String, Value> {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    let documents = yaml::parse(&String::from_utf8(output.stdout).unwrap()).unwrap();
    let name = |object: &Value| {
        format!("{}/{}", object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap())
    };
    let objects: BTreeMap<_, _> = documents.iter().map(|found| (name(&found.value), found.value.clone())).collect();
    assert_eq!(objects.len(), documents.len(), "duplicate names");
    objects
}

fn folder(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name)
}

/// Returns a program that `cargo xtask test` has built; `None`, with a message, if the variable is not set.
#[expect(clippy::print_stderr, reason = "a skipped test reports that it is skipped")]
fn program(variable: &str) -> Option<OsString> {
    let program = std::env::var_os(variable);
    if program.is_none() {
        eprintln!("skipped: set {variable} to the path of the program, or run `cargo xtask test`");
    }
    program
}
