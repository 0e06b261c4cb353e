//! Servers that others choose.

use std::{io, net, sync::Arc};

use billhook_cluster::{Cluster, ErrorKind, Options, check_host};
use billhook_hosts::HostRules;
use tokio::net::TcpListener;

use crate::fake::{Answer, cluster_with};

/// Returns rules that deny loopback by its addresses, so that its name is resolved.
fn rules() -> Arc<HostRules> {
    let deny = ["127.0.0.0/8", "::1"].map(|pattern| pattern.parse().unwrap()).to_vec();
    Arc::new(HostRules { deny, ..HostRules::default() })
}

fn connect(url: &str, foreign: Option<Arc<HostRules>>) -> Result<Cluster, billhook_cluster::Error> {
    let config = kube::Config::new(url.parse().unwrap());
    Cluster::connect(config, Options { foreign, ..Options::default() })
}

#[tokio::test]
async fn a_name_is_checked_again_when_it_is_resolved() {
    let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let cluster = connect(&format!("http://localhost:{port}"), Some(rules())).unwrap();
    let error = cluster.version().await.unwrap_err();
    let text = "read the server's version: connections to localhost are not allowed: it is denied by the configuration";
    assert_eq!((error.to_string().as_str(), error.kind()), (text, &ErrorKind::Other));
    assert!(!error.is_transient());
    assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock, "no connection was opened");

    let listener = TcpListener::from_std(listener).unwrap();
    let cluster = connect(&format!("http://localhost:{port}"), Some(Arc::default())).unwrap();
    let (_, accepted) = tokio::select! {
        answer = cluster.version() => panic!("{answer:?}"),
        accepted = listener.accept() => accepted.unwrap(),
    };
    assert!(accepted.ip().is_loopback());
}

#[tokio::test]
async fn an_address_is_checked_without_a_request() {
    for (url, allowed) in [
        ("http://127.0.0.1:1", false),
        ("http://[::1]:1", false),
        ("http://169.254.169.254", false),
        ("http://2130706433", false),
        ("http://10.0.0.1", true),
        ("http://a.example", true),
    ] {
        assert_eq!(connect(url, Some(rules())).is_ok(), allowed, "{url}");
        assert!(connect(url, None).is_ok(), "{url}");
    }
    assert!(check_host(&rules(), "localhost").await.is_err());
    assert!(check_host(&rules(), "[::1]").await.is_err());
    assert!(check_host(&HostRules::default(), "localhost").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn errors_quote_only_answers_of_an_api_server() {
    for (foreign, quoted) in [
        (None, "read the server's version: password"),
        (Some(rules()), "read the server's version: the server answered 404"),
    ] {
        let options = Options { foreign, ..Options::default() };
        let (cluster, _) = cluster_with(options, |_| Answer::Text(404, "password"));
        assert_eq!(cluster.version().await.unwrap_err().to_string(), quoted);
    }
}
