//! A door to one host for another program, which neither resolves the host's name nor chooses an address.

use std::{
    fmt, io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf, copy_bidirectional},
    net::{TcpListener, TcpStream},
    task::{AbortHandle, JoinSet},
};

use crate::dial::{DialError, Dialer};

/// The maximum size of the head of a request for a tunnel.
const MAX_HEAD: usize = 8 << 10;
/// How many connections may be open at once.
const MAX_OPEN: usize = 256;
/// How long a program may take to ask for a tunnel after it has connected.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a program finds behind a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// A server. The relay is its HTTP proxy: it answers `CONNECT` for this server and for no other one, and forwards requests
    /// without TLS as they are.
    Server,
    /// A proxy. All bytes are forwarded as they are.
    Proxy,
}

/// Whether bytes of the program may still pass.
#[derive(Clone)]
pub struct Gate(Arc<dyn Fn() -> bool + Send + Sync>);

impl Gate {
    /// Makes a gate that asks this function before each connection, and before each write to one.
    pub fn new(is_open: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(is_open))
    }

    fn is_open(&self) -> bool {
        (self.0)()
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gate").field(&self.is_open()).finish()
    }
}

/// A listener on loopback, all connections of which end at one host.
///
/// A program that is given the relay as its HTTP proxy reaches that host alone, at an address that was checked for this very
/// connection: not an address to which the name resolves later, and not a server to which the host redirects. Dropping it
/// ends all connections. So does its [`Gate`] once it is closed, with the first bytes that the program sends after that: a
/// process that was frozen together with the program passes nothing on when it wakes up, even before it can drop the relay.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    task: AbortHandle,
}

impl Relay {
    /// Starts a relay to a port of a host, as it is written in a URL.
    ///
    /// # Errors
    ///
    /// When there is no free port on loopback.
    pub async fn start(dialer: Dialer, host: &str, port: u16, behind: Behind, gate: Gate) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let place = Arc::new(Place { dialer, host: host.to_owned(), port, behind, gate });
        let task = tokio::spawn(serve(listener, place)).abort_handle();
        Ok(Self { address, task })
    }

    /// Returns the address that it listens at.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Where connections end.
struct Place {
    dialer: Dialer,
    host: String,
    port: u16,
    behind: Behind,
    gate: Gate,
}

async fn serve(listener: TcpListener, place: Arc<Place>) {
    let mut open = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let place = Arc::clone(&place);
                open.spawn(async move {
                    // The program sees that the connection ends.
                    let _ended = place.forward(stream).await;
                });
            }
            // Perhaps too many files are open.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
        while open.try_join_next().is_some() {}
        if open.len() >= MAX_OPEN {
            open.join_next().await;
        }
    }
}

impl Place {
    async fn forward(&self, mut stream: TcpStream) -> io::Result<()> {
        let head = match self.behind {
            Behind::Server => tokio::time::timeout(PATIENCE, head(&mut stream)).await??,
            Behind::Proxy => Vec::new(),
        };
        let tunnel = tunnel(&head);
        if tunnel.is_some_and(|authority| !self.is_authority(authority)) {
            return refuse(&mut stream, "403 connections to other servers are not allowed").await;
        }
        if !self.gate.is_open() {
            return refuse(&mut stream, "403 this process may not connect any more").await;
        }
        let server = match self.dialer.dial(&self.host, self.port).await {
            Ok(server) => server,
            Err(error @ DialError::Denied(_)) => return refuse(&mut stream, &format!("403 {error}")).await,
            Err(error) => return refuse(&mut stream, &format!("502 {error}")).await,
        };
        let mut server = Gated { server, gate: &self.gate };
        match tunnel {
            Some(_) => stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?,
            None => server.write_all(&head).await?,
        }
        copy_bidirectional(&mut stream, &mut server).await.map(drop)
    }

    /// Returns whether `HOST:PORT` is this place.
    fn is_authority(&self, authority: &str) -> bool {
        let Some((host, port)) = authority.rsplit_once(':') else { return false };
        host.eq_ignore_ascii_case(&self.host) && port.parse() == Ok(self.port)
    }
}

/// A connection to the server that writes only while the gate is open.
struct Gated<'a> {
    server: TcpStream,
    gate: &'a Gate,
}

impl AsyncRead for Gated<'_> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.server).poll_read(cx, buf)
    }
}

impl AsyncWrite for Gated<'_> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if !self.gate.is_open() {
            return Poll::Ready(Err(io::ErrorKind::PermissionDenied.into()));
        }
        Pin::new(&mut self.server).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.server).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.server).poll_shutdown(cx)
    }
}

/// Reads the head of the first request.
async fn head(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(1024);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() >= MAX_HEAD {
            // The rest of a long one is forwarded.
            break;
        }
        if stream.read_buf(&mut head).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(head)
}

/// Returns the server to which a request asks for a tunnel.
fn tunnel(head: &[u8]) -> Option<&str> {
    let authority = head.strip_prefix(b"CONNECT ")?;
    let end = authority.iter().position(|byte| *byte == b' ')?;
    str::from_utf8(&authority[..end]).ok()
}

/// Answers with an error; programs print the rest of the status line.
async fn refuse(stream: &mut TcpStream, status: &str) -> io::Result<()> {
    let status = status.replace(['\r', '\n'], " ");
    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    // If bytes of the program were left unread, the answer might be lost.
    let drain = async { while stream.read(&mut [0; 1024]).await.is_ok_and(|count| count > 0) {} };
    let _done = tokio::time::timeout(Duration::from_secs(1), drain).await;
    Ok(())
}

#[cfg(test)]
mod tests;
