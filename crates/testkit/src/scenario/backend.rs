//! A server that answers every request with 200 and `ok`: an API server that is healthy, but has no documents.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;

const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";

/// Serves on a free port of loopback until the runtime ends, and returns the port.
pub(super) async fn serve() -> Result<u16> {
    let certificate = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let key = PrivatePkcs8KeyDer::from(certificate.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = config.with_no_client_auth().with_single_cert(vec![certificate.cert.der().clone()], key.into())?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.context("bind a port for a backend")?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(acceptor.clone(), stream));
        }
    });
    Ok(port)
}

/// Reads a request without a body, and answers it. A client that closes the connection needs no answer.
async fn answer(acceptor: TlsAcceptor, stream: TcpStream) -> Result<()> {
    let mut stream = BufReader::new(acceptor.accept(stream).await?);
    let mut line = String::new();
    while stream.read_line(&mut line).await? > 0 && line != "\r\n" {
        line.clear();
    }
    stream.write_all(ANSWER).await?;
    stream.shutdown().await?;
    Ok(())
}
