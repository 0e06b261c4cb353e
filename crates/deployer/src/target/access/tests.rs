use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use billhook_hosts::HostRules;
use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

use super::*;

fn read(text: &str) -> Result<Access, String> {
    Access::read(text, &ConnectionRules::default())
}

/// Returns a kubeconfig with these fields of its cluster and user, in flow style.
fn kubeconfig(cluster: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
         contexts:\n- name: a\n  context: {{cluster: a, user: a, namespace: shop}}\n\
         clusters:\n- name: a\n  cluster: {{{cluster}}}\n\
         users:\n- name: a\n  user: {{{user}}}\n"
    )
}

const SERVER: &str = "server: 'https://a.example:6443'";

#[tokio::test]
async fn our_client_and_other_programs_get_the_same_fields() {
    let pem = certificate();
    let ca = STANDARD.encode(&pem);
    let cluster = format!("{SERVER}, certificate-authority-data: {ca}, tls-server-name: b.example, extensions: [{{}}]");
    let access = read(&kubeconfig(&cluster, "token: secret, as: c, as-groups: [d], exec: null")).unwrap();
    let expected = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "target",
        "contexts": [{ "name": "target", "context": { "cluster": "target", "user": "target", "namespace": "shop" } }],
        "clusters": [{ "name": "target", "cluster": {
            "server": "https://a.example:6443", "certificate-authority-data": ca, "tls-server-name": "b.example",
        } }],
        "users": [{ "name": "target", "user": { "token": "secret", "as": "c", "as-groups": ["d"] } }],
    });
    assert_eq!(access.kubeconfig, expected);
    let config = access.config().await.unwrap();
    assert_eq!(config.cluster_url.to_string(), "https://a.example:6443/");
    assert_eq!((config.default_namespace.as_str(), config.tls_server_name.as_deref()), ("shop", Some("b.example")));
    assert_eq!(config.auth_info.impersonate.as_deref(), Some("c"));
    assert!(config.auth_info.token.is_some() && config.root_cert.is_some());
}

/// Returns a certificate in PEM format.
fn certificate() -> String {
    rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap().cert.pem()
}

#[test]
fn a_kubeconfig_may_be_json_and_have_other_contexts() {
    let text = json!({
        "current-context": "b",
        "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } },
                     { "name": "b", "context": { "cluster": "b", "user": "b" } }],
        "clusters": [{ "name": "a", "cluster": { "server": "https://a.example", "proxy-url": "http://p.example" } },
                     { "name": "b", "cluster": { "server": "http://[::1]:80/prefix/", "proxy-url": "" } }],
        "users": [{ "name": "a", "user": { "exec": { "command": "x" } } },
                  { "name": "b", "user": { "username": "u", "password": "p", "tokenFile": "" } }],
    });
    let access = read(&text.to_string()).unwrap();
    assert_eq!(access.kubeconfig["clusters"][0]["cluster"], json!({ "server": "http://[::1]:80/prefix" }));
    assert_eq!(access.kubeconfig["users"][0]["user"], json!({ "username": "u", "password": "p" }));
    let without_user = kubeconfig(SERVER, "").replace("user: a, ", "");
    assert_eq!(read(&without_user).unwrap().kubeconfig["users"][0]["user"], json!({}));
}

#[test]
fn each_problem_is_reported_with_its_line() {
    fn check(cluster: &str, user: &str, problems: &str) {
        let error = read(&kubeconfig(cluster, user)).err();
        assert_eq!(error.as_deref(), Some(problems), "{cluster} {user}");
    }
    check("", "", "line 9: cluster.server must be an address such as https://api.example:6443");
    let scheme = "line 9: cluster.server must begin with https:// or http://";
    check("server: a.example", "", scheme);
    check("server: 'unix:///run/x'", "", "line 9: cluster.server must be an address such as https://api.example:6443");
    check("server: 'ftp://a.example'", "", scheme);
    check("server: 'https://u:p@a.example'", "", "line 9: cluster.server must not contain a user and password");
    for server in ["https://a.example?x", "https://a.example/%2e%2e", "https://[fe80::1%25eth0]"] {
        let error = read(&kubeconfig(&format!("server: '{server}'"), "")).err().unwrap();
        assert!(error.starts_with("line 9: cluster.server must "), "{server}: {error}");
    }
    let proxy = format!("{SERVER}, proxy-url: 'http://p.example'");
    check(&proxy, "", "line 9: cluster.proxy-url is not allowed by this controller");
    let file = "names a file, which is not allowed: put its content into";
    let ca = format!("{SERVER}, certificate-authority: /x");
    check(&ca, "", &format!("line 9: cluster.certificate-authority {file} certificate-authority-data"));
    check(SERVER, "tokenFile: /x", &format!("line 12: user.tokenFile {file} token"));
    check(
        SERVER,
        "client-certificate: /x, client-key: /x",
        &format!(
            "line 12: user.client-certificate {file} client-certificate-data; \
             line 12: user.client-key {file} client-key-data"
        ),
    );
    let program = "runs a program, which is not allowed: use a token or a client certificate";
    check(SERVER, "exec: {}", &format!("line 12: user.exec {program}"));
    check(SERVER, "auth-provider: {name: gcp}", &format!("line 12: user.auth-provider {program}"));
    check(SERVER, "Exec: {command: x}", "line 12: user.Exec is not supported");
    check(SERVER, "TokenFile: /x", "line 12: user.TokenFile is not supported");
    check(SERVER, "token: 12", "line 12: user.token must be a string");
    check(SERVER, "as-groups: [d, 1], as: c", "line 12: user.as-groups must be a list of strings");
    check(SERVER, "as-groups: [d]", "line 12: user.as-groups needs as");
    check(SERVER, "username: u", "line 12: user.username needs password");
    check(SERVER, "client-key-data: eA==", "line 12: user.client-key-data needs client-certificate-data");
    let two = "token: t, username: u, password: p";
    check(SERVER, two, "line 12: user has both a token and a username: remove one");
    let insecure = format!("{SERVER}, insecure-skip-tls-verify: true, certificate-authority-data: eA==");
    let both = "line 9: cluster has both certificate-authority-data and insecure-skip-tls-verify: remove one";
    check(&insecure, "", both);
    let data = format!("{SERVER}, insecure-skip-tls-verify: 1, certificate-authority-data: '*'");
    check(
        &data,
        "",
        "line 9: cluster.insecure-skip-tls-verify must be true or false; \
         line 9: cluster.certificate-authority-data must be in base64",
    );
}

#[test]
fn hosts_and_proxies_are_checked() {
    let hosts = HostRules { deny: vec!["*.internal".parse().unwrap()], ..HostRules::default() };
    let check = |cluster: &str, proxy_url: bool, expected: Result<&str, &str>| {
        let rules = ConnectionRules { dialer: Dialer::new(Arc::new(hosts.clone())), proxy_url, home: None };
        let access = Access::read(&kubeconfig(cluster, ""), &rules);
        let door = |access: &Access| access.proxy().unwrap_or(access.server()).host.clone();
        let found = access.as_ref().map(door);
        let found = found.as_ref().map(String::as_str).map_err(|problem| problem.as_str());
        assert_eq!(found, expected, "{cluster} {proxy_url}");
    };
    let denied = "line 9: cluster.server is denied: connections to a.internal are not allowed: it is denied by the configuration";
    check("server: 'https://a.internal'", false, Err(denied));
    check("server: 'https://a.example'", false, Ok("a.example"));
    check("server: 'https://[fd00::1]:443'", false, Ok("[fd00::1]"));
    for address in ["169.254.169.254", "[fe80::1]", "2130706433", "127.1"] {
        let access = read(&kubeconfig(&format!("server: 'http://{address}'"), ""));
        let problem = access.err().unwrap();
        assert!(problem.contains(&format!("connections to {address} are not allowed")), "{problem}");
    }
    let proxy = |url: &str| format!("{SERVER}, proxy-url: '{url}'");
    check(&proxy("http://p.example:3128"), true, Ok("p.example"));
    check(&proxy("socks5://p.example"), true, Ok("p.example"));
    check(&proxy("http://p.example"), false, Err("line 9: cluster.proxy-url is not allowed by this controller"));
    let denied = "line 9: cluster.proxy-url is denied: connections to p.internal are not allowed: it is denied by the configuration";
    check(&proxy("http://p.internal"), true, Err(denied));
    check(
        &proxy("ftp://p.example"),
        true,
        Err("line 9: cluster.proxy-url must begin with http:// or https:// or socks5://"),
    );
}

#[test]
fn the_current_context_must_be_complete_and_unique() {
    fn check(text: &str, problem: &str) {
        assert_eq!(read(text).err().as_deref(), Some(problem), "{text}");
    }
    let complete = kubeconfig(SERVER, "token: t");
    check("", "it is empty");
    check("[]", "line 1: it has no current-context");
    check(&complete.replace("current-context: a", ""), "line 1: it has no current-context");
    check(
        &complete.replace("current-context: a", "current-context: b"),
        "line 1: contexts has no context with the name \"b\"",
    );
    check(&complete.replace("cluster: a,", ""), "line 6: context.cluster is missing");
    check(&complete.replace("user: a", "user: b"), "line 1: users has no user with the name \"b\"");
    check(&complete.replace("cluster: a,", "cluster: b,"), "line 1: clusters has no cluster with the name \"b\"");
    let second = format!("{complete}- name: a\n  user: {{exec: {{command: x}}}}\n");
    check(&second, "line 13: users has two entries with the name \"a\"");
}

/// An API server that knows no objects and keeps the requests. It has a certificate, because client-go sends credentials only
/// over TLS.
struct Server {
    address: String,
    requests: Arc<Mutex<String>>,
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, requests) = (listener.local_addr().unwrap().to_string(), Arc::new(Mutex::default()));
        let log = Arc::clone(&requests);
        let certificate = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = PrivatePkcs8KeyDer::from(certificate.signing_key.serialize_der());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config =
            rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_no_client_auth();
        let config = config.with_single_cert(vec![certificate.cert.der().clone()], key.into()).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let log: Arc<Mutex<String>> = Arc::clone(&log);
                let accepted = acceptor.accept(stream);
                tokio::spawn(async move {
                    let mut stream = accepted.await?;
                    let mut request = Vec::new();
                    while !request.ends_with(b"\r\n\r\n") && stream.read_buf(&mut request).await? > 0 {}
                    log.lock().unwrap().push_str(&String::from_utf8_lossy(&request));
                    let body = r#"{"kind":"SecretList","apiVersion":"v1","metadata":{},"items":[]}"#;
                    let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json";
                    let answer = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                    stream.write_all(answer.as_bytes()).await?;
                    stream.shutdown().await
                });
            }
        });
        Self { address, requests }
    }
}

/// Runs the real helm with a kubeconfig, and returns what it did with it: the requests it sent, and whether the file exists
/// that a program of the kubeconfig creates.
async fn run_helm(helm: &Path, kubeconfig: &str, server: &Server, trace: &Path) -> (String, bool) {
    // A trick may also be an error of helm.
    let _result = billhook_charts::manifest_of("shop", "store", kubeconfig, &billhook_charts::Helm::new(helm)).await;
    let requests = std::mem::take(&mut *server.requests.lock().unwrap());
    let ran = trace.exists();
    if ran {
        std::fs::remove_file(trace).unwrap();
    }
    (requests, ran)
}

#[tokio::test]
#[expect(clippy::print_stderr, reason = "a skipped test reports that it is skipped")]
async fn helm_runs_no_program_and_reads_no_file_of_a_target() {
    let Some(helm) = std::env::var_os("BILLHOOK_HELM").map(PathBuf::from) else {
        eprintln!("skipped: set BILLHOOK_HELM to the path of helm, or run `cargo xtask test`");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let [trace, token] = ["trace", "token"].map(|name| folder.path().join(name));
    std::fs::write(&token, "stolen").unwrap();
    let server = Server::start().await;
    let cluster = format!("server: 'https://{}', insecure-skip-tls-verify: true", server.address);
    let [trace_path, token_path] = [&trace, &token].map(|path| path.as_os_str().to_str().unwrap());
    let exec = format!(
        "{{apiVersion: client.authentication.k8s.io/v1, command: touch, args: ['{trace_path}'], interactiveMode: Never}}"
    );
    let user = |user: &str| kubeconfig(&cluster, user);
    let block = |user: &str| kubeconfig(&cluster, "").replace("user: {}", &format!("user:\n{user}"));
    let plain = user(&format!("exec: {exec}"));
    let tricks = [
        plain.clone(),
        user(&format!("tokenFile: '{token_path}'")),
        user(&format!("exec: null, <<: {{exec: {exec}}}")),
        user(&format!("<<: {{exec: {exec}}}, exec: null")),
        user(&format!("tokenFile: null, <<: {{tokenFile: '{token_path}'}}")),
        user(&format!("\"<<\": {{tokenFile: '{token_path}'}}")),
        user(&format!("<<: [{{exec: {exec}}}, {{tokenFile: '{token_path}'}}]")),
        user(&format!("!!merge <<: {{tokenFile: '{token_path}'}}")),
        user(&format!("exec: {exec}, exec: null")),
        user(&format!("exec: null, exec: {exec}")),
        user(&format!("tokenFile: '', tokenFile: '{token_path}'")),
        user(&format!("\"\\x65xec\": {exec}")),
        user(&format!("!!str exec: {exec}")),
        user(&format!("Exec: {exec}")),
        user(&format!("tokenfile: '{token_path}', TOKENFILE: '{token_path}', TokenFile: '{token_path}'")),
        user(&format!("token: '', tokenFile: '{token_path}'")),
        block(&format!("    ? exec\n    : {exec}\n")),
        format!("x: &u\n  exec: {exec}\n{}", user("").replace("user: {}", "user: *u")),
        format!("x: &u {{tokenFile: '{token_path}'}}\n{}", user("").replace("user: {}", "user: {<<: *u}")),
        // Other documents, contexts, and entries with the same name.
        format!("{}---\n{plain}", user("token: harmless")),
        format!("{plain}---\n{}", user("token: harmless")),
        format!("{}...\n---\n{plain}", user("token: harmless")),
        format!("{}- name: a\n  user: {{exec: {exec}}}\n", user("token: harmless")),
        format!("{}- name: b\n  user: {{exec: {exec}}}\n", user("token: harmless")),
        format!("{}users:\n- name: a\n  user: {{exec: {exec}}}\n", user("token: harmless")),
        format!("{}Users:\n- name: a\n  user: {{exec: {exec}}}\n", user("token: harmless")),
        format!("{}current-context: b\n", user("token: harmless")),
        user(&format!(
            "token: harmless, auth-provider: {{name: gcp, config: {{cmd-path: '/bin/sh', cmd-args: '-c touch${{IFS}}{trace_path}'}}}}"
        )),
        // JSON, in which parsers differ in the treatment of duplicate keys and of their case.
        json_with_user(&server.address, &format!(r#""exec": null, "exec": {}"#, json_exec(trace_path))),
        json_with_user(&server.address, &format!(r#""exec": {}, "exec": null"#, json_exec(trace_path))),
        json_with_user(&server.address, &format!(r#""Exec": {}"#, json_exec(trace_path))),
        json_with_user(&server.address, &format!(r#""\u0065xec": {}"#, json_exec(trace_path))),
    ];
    let mut effective = 0;
    for trick in &tricks {
        let (requests, ran) = run_helm(&helm, trick, &server, &trace).await;
        effective += usize::from(ran || requests.contains("stolen"));
        let Ok(access) = read(trick) else { continue };
        let (requests, ran) = run_helm(&helm, &access.kubeconfig(None, None), &server, &trace).await;
        assert!(!ran && !requests.contains("stolen"), "{trick}\n{requests}");
        assert!(requests.contains("GET /api"), "helm can use what is accepted: {trick}\n{requests}");
    }
    assert!(effective >= 5, "without the check, tricks do work: {effective} of {}", tricks.len());

    let access = read(&user("token: harmless")).unwrap();
    let (requests, _) = run_helm(&helm, &access.kubeconfig(None, None), &server, &trace).await;
    assert!(requests.to_lowercase().contains("authorization: bearer harmless"), "{requests}");
}

/// Returns an exec plugin that creates a file, as JSON.
fn json_exec(trace: &str) -> Value {
    json!({ "apiVersion": "client.authentication.k8s.io/v1", "command": "touch", "args": [trace], "interactiveMode": "Never" })
}

/// Returns a kubeconfig in JSON with these fields of its user.
fn json_with_user(server: &str, user: &str) -> String {
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } }],
        "clusters": [{ "name": "a", "cluster": { "server": format!("https://{server}"), "insecure-skip-tls-verify": true } }],
        "users": [{ "name": "a", "user": { "user": null } }],
    });
    text.to_string().replace(r#""user":null"#, user)
}

/// Checks the Target of Landscaper's examples, whose certificates are redacted.
#[test]
#[expect(clippy::print_stderr, reason = "a test prints what it skips")]
fn the_target_of_landscapers_examples_is_accepted() {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/fixtures");
    let fixtures = std::env::var_os("BILLHOOK_FIXTURES").unwrap_or_else(|| default.into());
    let path = Path::new(&fixtures).join("landscaper/21-Helm-cluster-target.yaml");
    let Ok(text) = std::fs::read_to_string(&path) else {
        return eprintln!("skipped: {} does not exist; set BILLHOOK_FIXTURES to a folder with it", path.display());
    };
    // No API server accepts its annotations.
    let spec = yaml::parse(&text).unwrap().remove(0).value["spec"].take();
    let spec: crate::api::TargetSpec = serde_json::from_value(spec).unwrap();
    assert!(spec.r#type == crate::api::KUBERNETES_CLUSTER && spec.secret_ref.is_none());
    let kubeconfig = spec.config.unwrap()["kubeconfig"].as_str().unwrap().to_owned();
    let problem = read(&kubeconfig).err().unwrap();
    assert!(problem.contains("certificate-authority-data"), "{problem}");
    let pem = STANDARD.encode(certificate());
    let access = read(&kubeconfig.replace("<redacted>", &pem)).unwrap();
    let cluster = &access.kubeconfig["clusters"][0]["cluster"];
    let expected = json!({ "server": "https://127.0.0.1:50488", "certificate-authority-data": pem });
    assert_eq!(*cluster, expected);
    assert_eq!(access.kubeconfig["users"][0]["user"]["client-key-data"], pem);
}
