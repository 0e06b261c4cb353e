//! TLS connections to the servers of charts.

use std::{io, sync::Arc};

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::CryptoProvider,
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
    server::ParsedCertificate,
};
use tokio::{net::TcpStream, sync::OnceCell};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Makes connections. Clones share the certificates that the machine trusts, which are read once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tls {
    trusted: Arc<OnceCell<RootCertStore>>,
}

impl Tls {
    /// Secures a connection to a host. `authorities` are certificates in PEM to trust as well.
    pub(crate) async fn connect(
        &self,
        stream: TcpStream,
        host: &str,
        authorities: Option<&str>,
    ) -> io::Result<TlsStream<TcpStream>> {
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let name = ServerName::try_from(host.trim_end_matches('.').to_owned()).map_err(io::Error::other)?;
        let mut roots = self.trusted.get_or_try_init(trusted).await?.clone();
        let own = authorities.map(|pem| CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>());
        let own = own.transpose().map_err(io::Error::other)?.unwrap_or_default();
        roots.add_parsable_certificates(own.iter().cloned());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let inner = WebPkiServerVerifier::builder_with_provider(roots.into(), Arc::clone(&provider));
        let verifier = Verifier { inner: inner.build().map_err(io::Error::other)?, own };
        let config = config(provider, verifier).map_err(io::Error::other)?;
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }
}

/// Reads the certificates that the machine trusts.
async fn trusted() -> io::Result<RootCertStore> {
    let read = || {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots
    };
    tokio::task::spawn_blocking(read).await.map_err(io::Error::other)
}

fn config(provider: Arc<CryptoProvider>, verifier: Verifier) -> Result<ClientConfig, rustls::Error> {
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Verifies certificates as usual, but also accepts one that is itself among the trusted ones, as programs in Go do: many
/// self-signed certificates are marked as those of an authority.
#[derive(Debug)]
struct Verifier {
    inner: Arc<WebPkiServerVerifier>,
    own: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match self.inner.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            // The error of an authority that is used as a server; an expired certificate has another one.
            Err(rustls::Error::InvalidCertificate(CertificateError::Other(_))) if self.own.contains(certificate) => {
                verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
