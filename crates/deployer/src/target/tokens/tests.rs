use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use billhook_cluster::{Fence, Options};
use billhook_sandbox::{Sandbox, User};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, PostParams};

use super::*;
use crate::{
    api::{KUBERNETES_CLUSTER, Target},
    metrics::Metrics,
    target::{Connect, ConnectionRules, Targets},
};

/// A home cluster with the ServiceAccounts `deployer` in `shop` and `admin` in `other`, and the Targets of a controller.
struct Home {
    sandbox: Sandbox,
    /// How many tokens were requested.
    requested: Arc<AtomicUsize>,
    /// The client configurations with which clusters were connected to.
    connected: Arc<Mutex<Vec<(kube::Config, Options)>>>,
    targets: Targets,
}

impl Home {
    async fn start() -> Self {
        let sandbox = Sandbox::start(billhook_sandbox::Options::default());
        for (namespace, name) in [("shop", "deployer"), ("other", "admin")] {
            let client = || sandbox.client(User::admin(), "");
            let created = serde_json::from_value(json!({ "metadata": { "name": namespace } })).unwrap();
            Api::<k8s_openapi::api::core::v1::Namespace>::all(client())
                .create(&PostParams::default(), &created)
                .await
                .unwrap();
            let account: ServiceAccount = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
            Api::namespaced(client(), namespace).create(&PostParams::default(), &account).await.unwrap();
        }
        let requested = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&requested);
        let service = tower::service_fn({
            let client = sandbox.client(User::admin(), "");
            move |request: http::Request<kube::client::Body>| {
                if request.uri().path().ends_with("/token") {
                    counted.fetch_add(1, Ordering::Relaxed);
                }
                let client = client.clone();
                async move { client.send(request).await }
            }
        });
        let home = Cluster::from_client(kube::Client::new(service, "default"), Options::default());
        let connected = Arc::<Mutex<Vec<(kube::Config, Options)>>>::default();
        let connect: Connect = Arc::new({
            let (connected, home) = (Arc::clone(&connected), home.clone());
            move |config, options| {
                connected.lock().unwrap_or_else(PoisonError::into_inner).push((config, options));
                Ok(home.clone())
            }
        });
        let mut config = kube::Config::new("https://10.0.0.1:443".parse().unwrap());
        config.root_cert = Some(vec![vec![1, 2, 3]]);
        config.auth_info.token = Some("the controller's own".to_owned().into());
        let rules = ConnectionRules { home: Some(Arc::new(config)), ..ConnectionRules::default() };
        let targets = Targets::new(home, connect, rules, Fence::open(), Metrics::new());
        Self { sandbox, requested, connected, targets }
    }

    fn add(&self, namespace: &str, config: Value) {
        let value = json!({
            "apiVersion": "landscaper.gardener.cloud/v1alpha1", "kind": "Target",
            "metadata": { "name": "t", "namespace": namespace },
            "spec": { "type": KUBERNETES_CLUSTER, "config": config },
        });
        let target: Target = serde_json::from_value(value).unwrap();
        self.targets.insert(target);
    }

    async fn fail(&self, namespace: &str, config: Value) -> ItemFailure {
        self.add(namespace, config);
        self.targets.open(namespace, "t").await.err().unwrap()
    }

    fn requested(&self) -> usize {
        self.requested.swap(0, Ordering::Relaxed)
    }
}

/// Returns the claims of a token.
fn claims(kubeconfig: &str) -> Value {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    let kubeconfig: Value = serde_json::from_str(kubeconfig).unwrap();
    let token = kubeconfig["users"][0]["user"]["token"].as_str().unwrap();
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
    serde_json::from_slice(&claims).unwrap()
}

fn own(account: &str) -> Value {
    json!({ "selfConfig": { "serviceAccount": { "name": account } } })
}

fn oidc(audience: &str) -> Value {
    json!({ "kubeconfig": null, "oidcConfig": {
        "server": "https://api.example:6443", "caData": "AQID", "audience": [audience],
        "serviceAccount": { "name": "deployer" }, "expirationSeconds": 3600,
    }})
}

#[tokio::test(start_paused = true)]
async fn a_self_target_has_a_token_for_the_home_cluster_and_nothing_of_the_controller() {
    let home = Home::start().await;
    home.add("shop", own("deployer"));
    let open = home.targets.open("shop", "t").await.unwrap();
    let access = open.program_access(None).await.unwrap();
    let claims = claims(access.kubeconfig());
    assert_eq!(claims["sub"], "system:serviceaccount:shop:deployer");
    assert_eq!(claims["aud"], json!(["https://kubernetes.default.svc"]));
    let kubeconfig: Value = serde_json::from_str(access.kubeconfig()).unwrap();
    let cluster = &kubeconfig["clusters"][0]["cluster"];
    assert_eq!(cluster["server"], "https://10.0.0.1:443");
    assert!(cluster["certificate-authority-data"].is_string());
    assert!(!access.kubeconfig().contains("the controller's own"));
    let connected = home.connected.lock().unwrap();
    let (config, options) = &connected[0];
    assert!(config.auth_info.token.is_none() && options.bearer.is_some() && options.foreign.is_none());
}

#[tokio::test(start_paused = true)]
async fn an_oidc_target_has_a_token_for_its_own_audience_only() {
    let home = Home::start().await;
    home.add("shop", oidc("target-x"));
    let open = home.targets.open("shop", "t").await.unwrap();
    let access = open.program_access(None).await.unwrap();
    let claims = claims(access.kubeconfig());
    assert_eq!((&claims["sub"], &claims["aud"]), (&json!("system:serviceaccount:shop:deployer"), &json!(["target-x"])));
    assert!(access.kubeconfig().contains("https://api.example:6443"), "{}", access.kubeconfig());
    assert!(home.connected.lock().unwrap()[0].1.foreign.is_some());

    // The server that the author of the Target has chosen must not get access to the home cluster.
    let failure = home.fail("shop", oidc("https://kubernetes.default.svc")).await;
    assert!(!failure.transient && failure.message.contains("is an audience of the home cluster"), "{failure}");
    let mut none = oidc("x");
    none["oidcConfig"]["audience"] = json!([]);
    assert!(home.fail("shop", none).await.message.contains("oidcConfig.audience must be a list"));
    let mut denied = oidc("x");
    denied["oidcConfig"]["server"] = "https://169.254.169.254".into();
    assert!(home.fail("shop", denied).await.message.contains("link-local"));
    assert_eq!(home.connected.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_target_gets_no_token_of_another_namespace() {
    let home = Home::start().await;
    let failure = home.fail("shop", own("admin")).await;
    assert_eq!((failure.message.as_str(), failure.transient), ("ServiceAccount shop/admin does not exist", true));
    home.requested();
    for name in ["../../other/serviceaccounts/admin", "..", "a/b", "A", "", "a%2fb", "admin?x=y"] {
        let failure = home.fail("shop", own(name)).await;
        assert!(failure.message.contains("must be the name of a ServiceAccount"), "{name}: {failure}");
    }
    let mut elsewhere = own("admin");
    elsewhere["selfConfig"]["serviceAccount"]["namespace"] = "other".into();
    let failure = home.fail("shop", elsewhere.clone()).await;
    assert!(failure.message.contains("only a ServiceAccount in the namespace of the Target"), "{failure}");
    assert_eq!(home.requested(), 0);
    // The same text in the other namespace is another connection, with another token.
    home.add("shop", own("deployer"));
    home.targets.open("shop", "t").await.unwrap();
    assert!(home.fail("other", own("deployer")).await.message.contains("other/deployer does not exist"));
    home.add("other", elsewhere);
    let open = home.targets.open("other", "t").await.unwrap();
    let access = open.program_access(None).await.unwrap();
    assert_eq!(claims(access.kubeconfig())["sub"], "system:serviceaccount:other:admin");
}

#[tokio::test(start_paused = true)]
async fn a_token_is_renewed_while_the_target_is_used() {
    let home = Home::start().await;
    let mut config = own("deployer");
    config["selfConfig"]["expirationSeconds"] = 1000.into();
    home.add("shop", config);
    let open = home.targets.open("shop", "t").await.unwrap();
    assert_eq!(home.requested(), 1);
    tokio::time::sleep(Duration::from_secs(799)).await;
    assert_eq!(home.requested(), 0);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(home.requested(), 1);
    assert!(Arc::ptr_eq(&open, &home.targets.open("shop", "t").await.unwrap()));

    // Failed renewals are repeated; when the last token has expired, the next item gets a new connection.
    home.sandbox.take_away(Duration::from_secs(1200));
    tokio::time::sleep(Duration::from_secs(1100)).await;
    assert!(open.tokens.as_ref().unwrap().is_expired());
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(!open.tokens.as_ref().unwrap().is_expired(), "it was renewed");

    drop(open);
    home.targets.remove("shop", "t");
    home.requested();
    tokio::time::sleep(Duration::from_secs(10_000)).await;
    assert_eq!(home.requested(), 0, "nobody uses it");
}

#[tokio::test(start_paused = true)]
async fn a_program_gets_a_token_that_lasts_as_long_as_its_work() {
    let home = Home::start().await;
    let mut config = own("deployer");
    config["selfConfig"]["expirationSeconds"] = 3600.into();
    home.add("shop", config);
    let open = home.targets.open("shop", "t").await.unwrap();
    home.requested();
    let lasts = async |until: Option<Duration>| {
        let access = open.program_access(until.map(|until| Instant::now() + until)).await.unwrap();
        let claims = claims(access.kubeconfig());
        let seconds = claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap();
        (home.requested(), seconds)
    };
    assert_eq!(lasts(Some(Duration::from_secs(600))).await, (0, 3600));
    assert_eq!(lasts(Some(Duration::from_secs(7200))).await, (1, 7260));
    assert_eq!(lasts(None).await, (1, 86_460));
}

#[test]
fn mistakes_in_the_configuration_are_reported() {
    let account = json!({ "name": "a" });
    for (config, problem) in [
        (json!({ "selfConfig": [] }), "selfConfig must be an object"),
        (json!({ "selfConfig": {} }), "selfConfig.serviceAccount.name must be the name"),
        (json!({ "selfConfig": { "serviceaccount": account } }), "selfConfig.serviceaccount is not a field of it"),
        (
            json!({ "selfConfig": { "serviceAccount": account, "expirationSeconds": 60 } }),
            "selfConfig.expirationSeconds must be at least 600",
        ),
        (
            json!({ "selfConfig": { "serviceAccount": account }, "kubeconfig": "x" }),
            "only one of kubeconfig, oidcConfig",
        ),
        (
            json!({ "selfConfig": { "serviceAccount": account }, "oidcConfig": {} }),
            "only one of kubeconfig, oidcConfig",
        ),
        (json!({ "oidcConfig": { "serviceAccount": account } }), "oidcConfig.server must be an address"),
        (
            json!({ "oidcConfig": { "serviceAccount": account, "server": "https://a", "caData": "?" } }),
            "oidcConfig.caData must be in base64",
        ),
    ] {
        let error = TokenConfig::read(&config, "shop").unwrap_err();
        assert!(error.contains(problem), "{config}: {error}");
    }
    for config in
        [json!({}), json!({ "kubeconfig": "x" }), json!({ "kubeconfig": "x", "selfConfig": null, "oidcConfig": "" })]
    {
        assert_eq!(TokenConfig::read(&config, "shop"), Ok(None), "{config}");
    }
    // The fields of a Secret are texts.
    let text = json!({ "kubeconfig": "", "selfConfig": "serviceAccount: {name: a}\nexpirationSeconds: 600" });
    let read = TokenConfig::read(&text, "shop").unwrap().unwrap();
    assert_eq!((read.account.as_str(), read.lifetime), ("a", Duration::from_secs(600)));
}
