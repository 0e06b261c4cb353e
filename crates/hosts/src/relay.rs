//! A door to one host for another program, which neither resolves the host's name nor chooses an address.

use std::{fmt, io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, copy},
    net::{TcpListener, TcpStream, tcp::WriteHalf},
    task::{AbortHandle, JoinSet},
};

use crate::dial::{DialError, Dialer};

/// The maximum size of the head of a request for a tunnel.
const MAX_HEAD: usize = 8 << 10;
/// How many connections may be open at once.
const MAX_OPEN: usize = 256;
/// How much is forwarded at once.
const BUFFER: usize = 16 << 10;
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

/// Tells at any time whether the program may still send something.
#[derive(Clone)]
pub struct Gate(Arc<dyn Fn() -> bool + Send + Sync>);

impl Gate {
    /// Makes a gate that calls this function before anything is sent.
    pub fn new(may_send: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(may_send))
    }

    fn check(&self) -> io::Result<()> {
        if (self.0)() { Ok(()) } else { Err(io::ErrorKind::ConnectionAborted.into()) }
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gate").field(&(self.0)()).finish()
    }
}

/// A listener on loopback, all connections of which end at one host.
///
/// A program that is given the relay as its HTTP proxy reaches that host alone, at an address that was checked for this very
/// connection: not an address to which the name resolves later, and not a server to which the host redirects. Nothing that the
/// program sends passes a closed gate, also not if it was sent before. Dropping the relay ends all connections.
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
    pub async fn start(dialer: Dialer, gate: Gate, host: &str, port: u16, behind: Behind) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let place = Arc::new(Place { dialer, gate, host: host.to_owned(), port, behind });
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
    gate: Gate,
    host: String,
    port: u16,
    behind: Behind,
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
        let mut server = match self.dialer.dial(&self.host, self.port).await {
            Ok(server) => server,
            Err(error @ DialError::Denied(_)) => return refuse(&mut stream, &format!("403 {error}")).await,
            Err(error) => return refuse(&mut stream, &format!("502 {error}")).await,
        };
        let (mut from_program, mut to_program) = stream.split();
        let (mut from_server, mut to_server) = server.split();
        match tunnel {
            Some(_) => to_program.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?,
            None => self.send(&head, &to_server).await?,
        }
        let requests = self.pass(&mut from_program, &mut to_server);
        let answers = async {
            copy(&mut from_server, &mut to_program).await?;
            to_program.shutdown().await
        };
        tokio::try_join!(requests, answers).map(drop)
    }

    /// Forwards what the program sends until it has sent all.
    async fn pass(&self, program: &mut (impl AsyncRead + Unpin), server: &mut WriteHalf<'_>) -> io::Result<()> {
        let mut buffer = vec![0; BUFFER];
        loop {
            match program.read(&mut buffer).await? {
                0 => return server.shutdown().await,
                count => self.send(&buffer[..count], server).await?,
            }
        }
    }

    /// Sends bytes while the gate is open. It is asked each time the connection takes some: this process may have been frozen in
    /// between.
    async fn send(&self, mut bytes: &[u8], server: &WriteHalf<'_>) -> io::Result<()> {
        while !bytes.is_empty() {
            server.writable().await?;
            self.gate.check()?;
            match server.try_write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns whether `HOST:PORT` is this place.
    fn is_authority(&self, authority: &str) -> bool {
        let Some((host, port)) = authority.rsplit_once(':') else { return false };
        host.eq_ignore_ascii_case(&self.host) && port.parse() == Ok(self.port)
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
