//! A registry and a repository on free loopback ports, with TLS and a password.

use std::{
    ffi::OsStr,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, LazyLock},
};

use axum::{
    Router,
    extract::Request,
    http::{StatusCode, header},
    response::{IntoResponse as _, Redirect, Response},
    serve::Listener,
};
use billhook_charts::Helm;
use billhook_testkit::control_plane::Binaries;
use rcgen::{CertifiedKey, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// Prints the progress of the build of the testbed.
fn progress(line: &str) {
    eprintln!("{line}");
}

/// The helm program: `BILLHOOK_HELM`, or that of the testbed.
pub static HELM: LazyLock<PathBuf> = LazyLock::new(|| {
    let named = std::env::var_os("BILLHOOK_HELM").map(PathBuf::from);
    named.unwrap_or_else(|| Binaries::helm(progress).unwrap())
});

/// [`HELM`] as the operations take it.
pub static PROGRAM: LazyLock<Helm> = LazyLock::new(|| Helm::new(&*HELM));

/// Runs helm and returns its output, including standard error.
pub fn helm(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> String {
    let output = Command::new(&*HELM).args(arguments).stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{text}");
    text
}

/// Packs a version of the chart `shop`: a ConfigMap with the version and the value `color`.
pub fn pack(folder: &Path, version: &str) -> PathBuf {
    let chart = folder.join(format!("shop-{version}"));
    std::fs::create_dir_all(chart.join("templates")).unwrap();
    let config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shop}\n\
                  data: {version: \"{{ .Chart.Version }}\", color: \"{{ .Values.color }}\"}\n";
    let schema = r#"{"type": "object", "properties": {"color": {"type": "string"}}}"#;
    std::fs::write(chart.join("Chart.yaml"), format!("apiVersion: v2\nname: shop\nversion: {version}\n")).unwrap();
    std::fs::write(chart.join("values.yaml"), "color: red\n").unwrap();
    std::fs::write(chart.join("values.schema.json"), schema).unwrap();
    std::fs::write(chart.join("templates/config.yaml"), config).unwrap();
    helm([OsStr::new("package"), "--destination".as_ref(), folder.as_ref(), chart.as_ref()]);
    folder.join(format!("shop-{version}.tgz"))
}

/// Packs version 1.0.0 of the chart `shop` with another file, and returns the archive.
pub fn pack_with(folder: &Path, name: &str, text: &str) -> Vec<u8> {
    let path = folder.join("shop-1.0.0").join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    std::fs::read(pack(folder, "1.0.0")).unwrap()
}

/// Creates a self-signed certificate for loopback.
pub fn certificate() -> CertifiedKey<KeyPair> {
    rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap()
}

/// A registry that stores charts in memory.
pub struct Registry {
    process: Child,
    pub folder: TempDir,
    /// `127.0.0.1:PORT`
    pub host: String,
    pub password: String,
    pub ca: String,
}

/// The user that a registry creates, with a generated password, if its file of users does not exist.
pub const USER: &str = "docker";

impl Registry {
    /// Starts a registry with TLS that only its user can access.
    pub fn private() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let certificate = certificate();
        let file = |name: &str| folder.path().join(name);
        std::fs::write(file("certificate.pem"), certificate.cert.pem()).unwrap();
        std::fs::write(file("key.pem"), certificate.signing_key.serialize_pem()).unwrap();
        let tls = json!({"certificate": file("certificate.pem"), "key": file("key.pem")});
        let auth = json!({"htpasswd": {"realm": "charts", "path": file("users")}});
        Self::start(folder, Some(tls), Some(auth), certificate.cert.pem())
    }

    /// Starts a registry without TLS that everybody can access.
    pub fn open() -> Self {
        Self::start(tempfile::tempdir().unwrap(), None, None, String::new())
    }

    fn start(folder: TempDir, tls: Option<Value>, auth: Option<Value>, ca: String) -> Self {
        let mut http = json!({"addr": "127.0.0.1:0"});
        if let Some(tls) = tls {
            http["tls"] = tls;
        }
        let mut config =
            json!({"version": "0.1", "log": {"formatter": "json"}, "storage": {"inmemory": {}}, "http": http});
        if let Some(auth) = auth {
            config["auth"] = auth;
        }
        let file = folder.path().join("config.json");
        std::fs::write(&file, config.to_string()).unwrap();
        let program = Binaries::registry(progress).unwrap();
        let mut command = Command::new(program);
        command.arg("serve").arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap());
        let (mut password, mut host, mut printed) = (String::new(), None, String::new());
        while host.is_none() {
            let mut line = String::new();
            assert_ne!(log.read_line(&mut line).unwrap(), 0, "the registry has ended: {printed}");
            let entry: Value = serde_json::from_str(&line).unwrap_or_default();
            let text = |name: &str| entry[name].as_str().unwrap_or_default();
            if let Some(given) = entry["password"].as_str() {
                password = given.to_owned();
            }
            let address = text("msg").strip_prefix("listening on ").and_then(|rest| rest.split(',').next());
            host = address.map(str::to_owned);
            printed += &line;
        }
        // Without a reader, a full pipe would block the registry.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Self { process, folder, host: host.unwrap(), password, ca }
    }

    /// Pushes a packed chart to `charts/` and returns its digest.
    pub fn push(&self, archive: &Path) -> String {
        let ca = self.folder.path().join("certificate.pem");
        let target = format!("oci://{}/charts", self.host);
        let mut arguments: Vec<&OsStr> = vec!["push".as_ref(), archive.as_ref(), target.as_ref()];
        if self.ca.is_empty() {
            arguments.push("--plain-http".as_ref());
        } else {
            arguments.extend([OsStr::new("--ca-file"), ca.as_ref(), "--username".as_ref(), USER.as_ref()]);
            arguments.extend([OsStr::new("--password"), self.password.as_ref()]);
        }
        let output = helm(arguments);
        let digest = output.lines().find_map(|line| line.strip_prefix("Digest: "));
        digest.unwrap_or_else(|| panic!("{output}")).trim().to_owned()
    }

    /// Returns the content of a pull secret for the registry.
    pub fn docker_config(&self, password: &str) -> String {
        json!({"auths": {&self.host: {"username": USER, "password": password}}}).to_string()
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        // The process may already have ended.
        let _ended = self.process.kill();
        let _ended = self.process.wait();
    }
}

/// The header for the user `me` with the password `sesame`.
pub const HEADER: &str = "Basic bWU6c2VzYW1l";

/// Serves the files of a folder over HTTPS until the test's runtime ends, and returns the URL and the certificate. Requests
/// need [`HEADER`], except below `/open/`. `/moved/FILE` redirects to `/FILE`.
pub async fn repository(folder: &Path) -> (String, String) {
    let folder = folder.to_owned();
    serve(move |request| answer(&folder, request)).await
}

/// Serves answers over HTTPS until the test's runtime ends, and returns the URL and the certificate.
pub async fn serve(answer: impl Fn(&Request) -> Response + Clone + Send + Sync + 'static) -> (String, String) {
    let certificate = certificate();
    let key = PrivatePkcs8KeyDer::from(certificate.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth();
    let config = config.with_single_cert(vec![certificate.cert.der().clone()], key.into()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let listener = Tls { listener, acceptor: TlsAcceptor::from(Arc::new(config)) };
    let router = Router::new().fallback(move |request: Request| {
        let answer = answer(&request);
        async move { answer }
    });
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, certificate.cert.pem())
}

/// Answers like a registry with the chart `charts/shop:1.2.3` that wants a token from `/token`, which user `me` with the password
/// `sesame` gets.
pub fn token_registry(archive: &[u8], request: &Request) -> Response {
    let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (path, host) = (request.uri().path(), header(header::HOST));
    let digest = |bytes: &[u8]| {
        let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        format!("sha256:{hex}")
    };
    let blob = digest(archive);
    if path == "/token" {
        let wanted = "service=a.example&scope=repository%3Acharts%2Fshop%3Apull";
        let allowed = header(header::AUTHORIZATION) == HEADER && request.uri().query() == Some(wanted);
        return if allowed { r#"{"token": "abc"}"#.into_response() } else { StatusCode::UNAUTHORIZED.into_response() };
    }
    if path == "/storage" {
        return archive.to_vec().into_response();
    }
    if header(header::AUTHORIZATION) != "Bearer abc" {
        let challenge =
            format!(r#"Bearer realm="https://{host}/token",service="a.example",scope="repository:charts/shop:pull""#);
        return (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, challenge)]).into_response();
    }
    let layer = json!({"mediaType": "application/vnd.cncf.helm.chart.content.v1.tar+gzip", "digest": blob});
    match path.strip_prefix("/v2/charts/shop/") {
        Some("manifests/1.2.3") => {
            json!({"layers": [{"mediaType": "x", "digest": "y"}, layer]}).to_string().into_response()
        }
        Some("manifests/empty") => json!({"layers": []}).to_string().into_response(),
        Some("manifests/forged") => {
            let layer = json!({"mediaType": layer["mediaType"], "digest": digest(b"another")});
            json!({"layers": [layer]}).to_string().into_response()
        }
        Some(path) if path.starts_with("blobs/") => Redirect::temporary("/storage").into_response(),
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

fn answer(folder: &Path, request: &Request) -> Response {
    let path = request.uri().path();
    let allowed = request.headers().get(header::AUTHORIZATION).is_some_and(|value| value == HEADER);
    let file = match path.strip_prefix("/open/") {
        Some(file) => file,
        None if !allowed => return StatusCode::UNAUTHORIZED.into_response(),
        None => path.trim_start_matches('/'),
    };
    match file.strip_prefix("moved/") {
        Some(file) => Redirect::to(&format!("/{file}")).into_response(),
        None => std::fs::read(folder.join(file)).map_err(|_| StatusCode::NOT_FOUND).into_response(),
    }
}

struct Tls {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl Listener for Tls {
    type Io = TlsStream<TcpStream>;
    type Addr = std::net::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = self.listener.accept().await.unwrap();
            // A client that does not trust the certificate closes the connection.
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}
