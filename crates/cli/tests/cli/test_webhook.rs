//! `webhook`: input, TLS with certificates that are replaced, and the end.

use std::{fs, sync::Arc};

use http_body_util::{BodyExt as _, Full};
use hyper::{Request, StatusCode, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use rcgen::{CertifiedKey, KeyPair};
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs, pki_types::ServerName};
use serde_json::{Value, json};
use tokio::{net::TcpStream, sync::mpsc};
use tokio_rustls::TlsConnector;

use crate::call::{Place, Shared};

const ARGS: &str = "webhook --listen 127.0.0.1:0 --tls-cert tls.crt --tls-key tls.key";

fn certificate() -> CertifiedKey<KeyPair> {
    rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap()
}

/// Returns a folder with this certificate and its key.
fn place(certificate: &CertifiedKey<KeyPair>) -> Place {
    Place::new(&[("tls.crt", &certificate.cert.pem()), ("tls.key", &certificate.signing_key.serialize_pem())])
}

/// A running webhook, seen from the outside.
struct Running<'a> {
    place: &'a Place,
    err: Shared,
    address: String,
}

/// Runs the command until `look` has ended, interrupts it, and returns what it printed.
fn while_served(place: &Place, args: &str, look: impl AsyncFnOnce(&Running<'_>)) -> (String, String) {
    let (out, err) = (Shared::default(), Shared::default());
    let (interrupt, interrupts) = mpsc::channel(1);
    let world = place.world("billhook", args, "", (out.clone(), err.clone()), interrupts);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let look = async {
        let started = if args.contains("json") { out.until("\n").await } else { err.until("press Ctrl-C").await };
        let address = started.split("https://").nth(1).unwrap().split([';', '"']).next().unwrap().to_owned();
        look(&Running { place, err: err.clone(), address }).await;
        interrupt.send(()).await.unwrap();
    };
    let exit = runtime.block_on(async { tokio::join!(billhook::run(world), look).0 });
    assert_eq!(exit, 0, "{}", err.text());
    (out.text(), err.text())
}

impl Running<'_> {
    /// Connects as a client that trusts only this certificate.
    async fn connect(&self, trusted: &CertifiedKey<KeyPair>) -> Result<Connection, std::io::Error> {
        let mut roots = RootCertStore::empty();
        roots.add(trusted.cert.der().clone()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(&self.address).await?;
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Ok(Connection(sender))
    }

    /// Checks which of two certificates a new connection gets.
    async fn presents(&self, this: &CertifiedKey<KeyPair>, other: &CertifiedKey<KeyPair>) {
        assert!(self.connect(other).await.is_err());
        self.connect(this).await.unwrap().answers().await;
    }

    fn write_key(&self, certificate: &CertifiedKey<KeyPair>) {
        self.place.write("tls.key", &certificate.signing_key.serialize_pem());
    }
}

struct Connection(http1::SendRequest<Full<Bytes>>);

impl Connection {
    async fn post(&mut self, path: &str, body: String) -> (StatusCode, String) {
        let request = Request::post(path).header("host", "localhost").body(Full::from(body)).unwrap();
        let response = self.0.send_request(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    /// Sends a review and checks the answer.
    async fn answers(&mut self) {
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "1", "operation": "DELETE", "kind": {"group": "", "version": "v1", "kind": "Secret"},
                "resource": {"group": "", "version": "v1", "resource": "secrets"},
                "oldObject": {"metadata": {"name": "a"}},
            },
        });
        let (status, body) = self.post("/validate-deletion-confirmation", review.to_string()).await;
        let body: Value = serde_json::from_str(&body).unwrap();
        let message =
            "secrets \"a\" is forbidden: must have a \"confirmation.gardener.cloud/deletion\" annotation to delete";
        assert_eq!((status, &body["response"]["status"]["message"]), (StatusCode::OK, &json!(message)));
    }
}

#[test]
fn files_that_cannot_be_used_are_errors() {
    let (certificate, other) = (certificate(), certificate());
    let place = place(&certificate);
    let (cert, key) = (place.folder().join("tls.crt"), place.folder().join("tls.key"));
    let pem = certificate.cert.pem();
    let rejects = |problem: &str| {
        let called = place.call_in_real_time(ARGS);
        assert_eq!((called.exit, called.out.as_str(), called.err), (2, "", format!("error: {problem}\n")));
    };
    place.write("tls.key", &other.signing_key.serialize_pem());
    rejects(&format!("the key in {} is not that of the certificate in {}", key.display(), cert.display()));
    place.write("tls.key", &pem);
    rejects(&format!("{} contains no complete private key in PEM", key.display()));
    place.write("tls.crt", &pem[..pem.len() - 10]);
    rejects(&format!("{} is not a complete PEM file", cert.display()));
    place.write("tls.crt", "");
    rejects(&format!("{} contains no certificate in PEM", cert.display()));
    fs::remove_file(&cert).unwrap();
    rejects(&format!("failed to read {}: No such file or directory (os error 2)", cert.display()));
    place.rejects("webhook", "--tls-key <FILE>");
    place.rejects("webhook --listen nowhere", "invalid socket address");
}

#[test]
fn an_address_in_use_is_an_error() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let called = place(&certificate()).call_in_real_time(&ARGS.replace("127.0.0.1:0", &address));
    assert_eq!(called.exit, 1);
    assert!(called.err.starts_with(&format!("error: failed to listen on {address}\n  caused by: ")), "{}", called.err);
}

#[test]
fn a_new_certificate_is_used_by_new_connections() {
    let (first, second) = (certificate(), certificate());
    let (out, err) = while_served(&place(&first), ARGS, async |running| {
        let mut open = running.connect(&first).await.unwrap();
        open.answers().await;
        running.place.write("tls.crt", &second.cert.pem());
        running.err.until("the former certificate remains in use").await;
        running.presents(&first, &second).await;
        running.write_key(&second);
        running.err.until("loaded the new certificate").await;
        running.presents(&second, &first).await;
        open.answers().await;
    });
    assert_eq!((out.as_str(), err.lines().count()), ("", 4), "{err}");
    let warnings: Vec<&str> = err.lines().filter(|line| line.contains("warning: ")).collect();
    assert!(warnings.len() == 1 && warnings[0].contains("is not that of the certificate"), "{err}");
}

#[test]
fn the_volume_of_a_secret_is_followed() {
    let (first, second) = (certificate(), certificate());
    let place = place(&first);
    let folder = place.folder();
    for (name, certificate) in [("..1", &first), ("..2", &second)] {
        place.write(&format!("{name}/tls.crt"), &certificate.cert.pem());
        place.write(&format!("{name}/tls.key"), &certificate.signing_key.serialize_pem());
    }
    let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, folder.join(name)).unwrap();
    for name in ["tls.crt", "tls.key"] {
        fs::remove_file(folder.join(name)).unwrap();
        link(&format!("..data/{name}"), name);
    }
    link("..1", "..data");
    let (_, err) = while_served(&place, ARGS, async |running| {
        // As the kubelet does.
        link("..2", "..data_tmp");
        fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
        running.err.until("loaded the new certificate").await;
        running.presents(&second, &first).await;
    });
    assert!(!err.contains("warning"), "{err}");
}

#[test]
fn events_are_json_lines() {
    let certificate = certificate();
    let (out, err) = while_served(&place(&certificate), &format!("-o json {ARGS}"), async |running| {
        let mut connection = running.connect(&certificate).await.unwrap();
        let (status, body) = connection.post("/validate-force-deletion", "{}".to_owned()).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert!(body.starts_with("unknown kind"), "{body}");
    });
    let events: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<_> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!((names, err.as_str()), (vec!["webhook-started", "webhook-ended"], ""));
    assert!(events[0]["url"].as_str().unwrap().starts_with("https://127.0.0.1:"), "{out}");
}
