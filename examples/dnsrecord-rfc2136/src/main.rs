//! A Gardener extension for DNSRecords of the type `rfc2136`: it writes them to a DNS server by dynamic updates (RFC 2136) that
//! are signed with TSIG (RFC 8945). This file starts the controller, `actuator` says what happens with a DNSRecord, and `dns`
//! talks to the DNS server.

mod actuator;
mod dns;

use std::{future::pending, net::SocketAddr, path::PathBuf};

use billhook_extension::{Controller, Monitor};
use clap::Parser;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use tokio::signal::unix::{SignalKind, signal};

/// Writes DNSRecords of the type rfc2136 to a DNS server.
#[derive(Parser)]
struct Arguments {
    /// Use this kubeconfig; default: the one of the environment, or of the Pod
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Handle only DNSRecords in this namespace
    #[arg(long, value_name = "NS")]
    namespace: Option<String>,
    /// Elect a leader with a Lease in this namespace
    #[arg(long, value_name = "NS")]
    leader_election_namespace: Option<String>,
    /// Serve /healthz, /readyz and /metrics at this address
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let arguments = Arguments::parse();
    let options = KubeConfigOptions::default();
    let config = match arguments.kubeconfig {
        Some(file) => Config::from_custom_kubeconfig(Kubeconfig::read_from(file)?, &options).await?,
        None => Config::infer().await?,
    };
    let (client, monitor) = (billhook_extension::client(config)?, Monitor::new());
    let mut controller = Controller::new(client, actuator::DnsActuator).kind_type("rfc2136").monitor(&monitor);
    if let Some(namespace) = arguments.namespace {
        controller = controller.namespace(namespace);
    }
    if let Some(namespace) = arguments.leader_election_namespace {
        // In a Pod, HOSTNAME is its name. The process number keeps two programs on one machine apart.
        let identity = format!("{}_{}", std::env::var("HOSTNAME").unwrap_or_default(), std::process::id());
        controller = controller.leader_election(namespace, "dnsrecord-rfc2136", identity);
    }
    if let Some(address) = arguments.listen {
        let listener = tokio::net::TcpListener::bind(address).await?;
        tokio::spawn(async move { monitor.serve(listener, pending()).await });
    }
    let mut terminated = signal(SignalKind::terminate())?;
    Ok(controller.run(async { _ = terminated.recv().await }).await?)
}
