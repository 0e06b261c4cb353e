//! A delay line: a TCP relay on a loopback port that forwards every byte with a delay.
//!
//! It has no other effect: bytes remain in order, and there is no limit on bytes in flight. TLS passes through. The TCP
//! handshake is not delayed, but the TLS handshake is.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

/// The size of the read buffer.
const CHUNK: usize = 64 * 1024;

/// A running delay line, which closes all its connections when this is dropped.
#[derive(Debug)]
pub(crate) struct DelayLine {
    port: u16,
    relay: JoinHandle<()>,
}

impl DelayLine {
    /// Starts a relay to a local port that delays each direction by `each_way`.
    pub(crate) async fn start(target: u16, each_way: Duration) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("failed to listen")?;
        let port = listener.local_addr().context("failed to read the port")?.port();
        let target = SocketAddr::from((Ipv4Addr::LOCALHOST, target));
        Ok(Self { port, relay: tokio::spawn(accept(listener, target, each_way)) })
    }

    /// Returns the port to connect to.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for DelayLine {
    fn drop(&mut self) {
        self.relay.abort();
    }
}

async fn accept(listener: TcpListener, target: SocketAddr, each_way: Duration) {
    // Dropped with this task, which closes all connections.
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        connections.spawn(relay(client, target, each_way));
    }
}

/// Relays a connection; an error on either side closes both sides.
async fn relay(client: TcpStream, target: SocketAddr, each_way: Duration) {
    let Ok(server) = TcpStream::connect(target).await else { return };
    if client.set_nodelay(true).is_err() || server.set_nodelay(true).is_err() {
        return;
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::join!(one_way(from_client, to_server, each_way), one_way(from_server, to_client, each_way));
}

async fn one_way(from: OwnedReadHalf, to: OwnedWriteHalf, delay: Duration) {
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::join!(take(from, sender, delay), hand_on(to, receiver));
}

async fn take(mut from: OwnedReadHalf, sender: mpsc::UnboundedSender<(Instant, Vec<u8>)>, delay: Duration) {
    let mut buffer = vec![0; CHUNK];
    loop {
        // The end and an error are treated alike: the other side is closed after the delay.
        let length = from.read(&mut buffer).await.unwrap_or(0);
        let sent = sender.send((Instant::now() + delay, buffer[..length].to_vec()));
        if length == 0 || sent.is_err() {
            return;
        }
    }
}

async fn hand_on(mut to: OwnedWriteHalf, mut receiver: mpsc::UnboundedReceiver<(Instant, Vec<u8>)>) {
    while let Some((due, bytes)) = receiver.recv().await {
        sleep_until(due).await;
        if bytes.is_empty() || to.write_all(&bytes).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bytes_come_in_order_and_late_by_a_round_trip() {
        let echo = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let target = echo.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (mut stream, _) = echo.accept().await.unwrap();
            let (mut read, mut write) = stream.split();
            tokio::io::copy(&mut read, &mut write).await.unwrap();
        });
        let line = DelayLine::start(target, Duration::from_millis(10)).await.unwrap();
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, line.port())).await.unwrap();
        let sent: Vec<u8> = (0..1_000_000_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();

        let started = Instant::now();
        stream.write_all(&sent[..10]).await.unwrap();
        let mut first = [0; 10];
        stream.read_exact(&mut first).await.unwrap();
        assert!(started.elapsed() >= Duration::from_millis(20), "{:?}", started.elapsed());

        let (mut read, mut write) = stream.into_split();
        let writing = tokio::spawn({
            let sent = sent.clone();
            async move {
                write.write_all(&sent[10..]).await.unwrap();
                write.shutdown().await.unwrap();
            }
        });
        let mut got = first.to_vec();
        read.read_to_end(&mut got).await.unwrap();
        writing.await.unwrap();
        assert!(got == sent);
    }
}
