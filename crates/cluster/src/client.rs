//! The HTTP client: kube's own stack without two delays that every new connection would have.

use std::sync::Arc;

use billhook_hosts::HostRules;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use tower::{BoxError, ServiceBuilder, util::MapRequestLayer};
use tower_http::decompression::DecompressionLayer;

use crate::{bearer::Bearer, guarded_body::guard, resolver::Resolver};

/// Makes a client from a configuration, without retries of its own.
///
/// kube's own stack leaves Nagle's algorithm on, so that the first request of a connection waits 40 ms for the server's
/// delayed acknowledgement of the TLS handshake. And the feature `prefer-post-quantum` offers the key share that servers
/// written in Go 1.24 or later request (X25519MLKEM768) at once, which saves a round trip.
///
/// # Errors
///
/// When the configuration is unusable, for example because of an unreadable certificate or an unknown proxy.
pub fn connect(config: kube::Config) -> kube::Result<kube::Client> {
    connect_within(config, None, None)
}

/// Makes a client as [`connect`] does, which connects only to addresses that the rules allow. If there is a proxy, it resolves
/// the names, so addresses are not checked, and fences are checked only when a request is handed to the client.
pub(crate) fn connect_within(
    mut config: kube::Config,
    rules: Option<Arc<HostRules>>,
    bearer: Option<Bearer>,
) -> kube::Result<kube::Client> {
    let authorize = MapRequestLayer::new(move |request: http::Request<Body>| match &bearer {
        Some(bearer) => bearer.add(request),
        None => request,
    });
    config.default_retry = false;
    if config.proxy_url.is_some() {
        return Ok(ClientBuilder::try_from(config)?.with_layer(&authorize).build());
    }
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Fails only if another thread has just installed one.
        let _already = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }
    let mut connector = HttpConnector::new_with_resolver(Resolver::new(rules));
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(config.connect_timeout);
    let connector = config.rustls_https_connector_with_connector(connector)?;
    let service = ServiceBuilder::new()
        .layer(authorize)
        .layer(config.base_uri_layer())
        .layer(DecompressionLayer::new().gzip(!config.disable_compression))
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .map_request(guard)
        .service(Client::builder(TokioExecutor::new()).build(connector));
    Ok(ClientBuilder::new(service, config.default_namespace).build())
}
