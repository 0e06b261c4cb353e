//! A relay in front of a server on a loopback port that counts the requests by verb and resource, independently of the client.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, bail};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// The number of requests by verb and resource.
pub(crate) type Counts = BTreeMap<(&'static str, String), u64>;

/// A running relay, which closes all its connections when this is dropped.
#[derive(Debug)]
pub(crate) struct Relay {
    port: u16,
    counts: Arc<Mutex<Counts>>,
    task: JoinHandle<()>,
}

impl Relay {
    /// Starts a relay to a local port.
    pub(crate) async fn start(target: u16) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("failed to listen")?;
        let port = listener.local_addr().context("failed to read the port")?.port();
        let counts = Arc::<Mutex<Counts>>::default();
        let target = SocketAddr::from((Ipv4Addr::LOCALHOST, target));
        let task = tokio::spawn(accept(listener, target, Arc::clone(&counts)));
        Ok(Self { port, counts, task })
    }

    /// Returns the port to connect to.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the counts since the last call.
    pub(crate) fn take_counts(&self) -> Counts {
        std::mem::take(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, target: SocketAddr, counts: Arc<Mutex<Counts>>) {
    // Dropped with this task, which closes all connections.
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        connections.spawn(relay(client, target, Arc::clone(&counts)));
    }
}

/// Relays a connection; an error on either side closes both sides.
async fn relay(client: TcpStream, target: SocketAddr, counts: Arc<Mutex<Counts>>) {
    let Ok(server) = TcpStream::connect(target).await else { return };
    if client.set_nodelay(true).is_err() || server.set_nodelay(true).is_err() {
        return;
    }
    let (from_client, mut to_client) = client.into_split();
    let (mut from_server, to_server) = server.into_split();
    tokio::select! {
        _ended = requests(from_client, to_server, &counts) => {}
        _ended = tokio::io::copy(&mut from_server, &mut to_client) => {}
    }
}

/// Forwards the requests of a connection, and counts them.
async fn requests(from: OwnedReadHalf, mut to: OwnedWriteHalf, counts: &Mutex<Counts>) -> Result<()> {
    let mut from = BufReader::with_capacity(64 * 1024, from);
    loop {
        let (mut head, mut length) = (Vec::new(), 0);
        loop {
            let begun = head.len();
            if from.read_until(b'\n', &mut head).await? == 0 {
                return Ok(());
            }
            let line = String::from_utf8_lossy(&head[begun..]).to_ascii_lowercase();
            if begun == 0 {
                *counts.lock().unwrap_or_else(PoisonError::into_inner).entry(request(&head)).or_default() += 1;
            } else if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().context("a request has no valid length")?;
            } else if line.starts_with("transfer-encoding:") {
                bail!("a request has no length");
            } else if line.trim().is_empty() {
                break;
            }
        }
        to.write_all(&head).await?;
        tokio::io::copy(&mut (&mut from).take(length), &mut to).await?;
    }
}

/// Returns the verb and the resource of a request, from its first line.
fn request(line: &[u8]) -> (&'static str, String) {
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let rest = match parts.as_slice() {
        ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest,
        _ => &[],
    };
    let rest = match rest {
        ["namespaces", _, rest @ ..] if !rest.is_empty() => rest,
        rest => rest,
    };
    let (resource, is_named) = match rest {
        [] => ("discovery".to_owned(), true),
        [resource] => ((*resource).to_owned(), false),
        [resource, _] => ((*resource).to_owned(), true),
        [resource, _, subresource, ..] => (format!("{resource}/{subresource}"), true),
    };
    let verb = match method {
        "GET" if query.contains("watch=") => "watch",
        "GET" if is_named => "get",
        "GET" => "list",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "other",
    };
    (verb, resource)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_verb_and_resource() {
        for (line, verb, resource) in [
            ("GET /api HTTP/1.1", "get", "discovery"),
            ("GET /apis/apps/v1 HTTP/1.1", "get", "discovery"),
            ("GET /api/v1/namespaces/a/configmaps?limit=5 HTTP/1.1", "list", "configmaps"),
            ("GET /api/v1/configmaps?watch=true&limit=5 HTTP/1.1", "watch", "configmaps"),
            ("GET /api/v1/namespaces/a HTTP/1.1", "get", "namespaces"),
            ("PATCH /apis/x.example/v1/namespaces/a/items/b/status?x=y HTTP/1.1", "patch", "items/status"),
            ("POST /api/v1/namespaces HTTP/1.1", "create", "namespaces"),
        ] {
            assert_eq!(request(line.as_bytes()), (verb, resource.to_owned()), "{line}");
        }
    }
}
