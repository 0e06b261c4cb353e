use std::{
    net::{IpAddr, Ipv4Addr},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use super::*;
use crate::HostRules;

/// A server that counts its connections, and answers everything that it gets with `hello` in front.
async fn server() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, count) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            counted.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                stream.write_all(b"hello ").await.unwrap();
                let (mut read, mut write) = stream.split();
                tokio::io::copy(&mut read, &mut write).await.unwrap();
            });
        }
    });
    (port, count)
}

/// A dialer with a resolver that returns these addresses, one after another, and the last one again and again.
fn dialer(rules: HostRules, addresses: &[IpAddr]) -> Dialer {
    let addresses = Mutex::new(addresses.to_vec());
    Dialer::new(Arc::new(rules)).resolving_with(Arc::new(move |_| {
        let mut addresses = addresses.lock().unwrap();
        let next = if addresses.len() > 1 { addresses.remove(0) } else { addresses[0] };
        Box::pin(async move { Ok(vec![next]) })
    }))
}

/// Sends bytes through a relay, and returns all that comes back.
async fn send(relay: &Relay, request: &str) -> String {
    let mut stream = TcpStream::connect(relay.address()).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

fn open() -> Gate {
    Gate::new(|| true)
}

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

#[tokio::test]
async fn a_program_reaches_the_server_and_no_other_one() {
    let (port, count) = server().await;
    let relay = Relay::start(dialer(HostRules::default(), &[LOOPBACK]), open(), "a.example", port, Behind::Server);
    let relay = relay.await.unwrap();
    let connect = |authority: &str| format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
    assert_eq!(send(&relay, &connect(&format!("A.example:{port}"))).await, "HTTP/1.1 200 OK\r\n\r\nhello ");
    let request = format!("GET http://a.example:{port}/x HTTP/1.1\r\nHost: a.example\r\n\r\n");
    assert_eq!(send(&relay, &request).await, format!("hello {request}"));
    assert_eq!(count.load(Ordering::Relaxed), 2);
    for other in
        [format!("b.example:{port}"), "a.example:1".to_owned(), format!("127.0.0.1:{port}"), "a.example".to_owned()]
    {
        let answer = send(&relay, &connect(&other)).await;
        assert!(
            answer.starts_with("HTTP/1.1 403 connections to other servers are not allowed\r\n"),
            "{other}: {answer}"
        );
    }
    assert_eq!(count.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_name_that_resolves_to_a_denied_address_later_is_not_connected_to() {
    let (port, count) = server().await;
    let rules = HostRules { allow: Vec::new(), deny: vec!["loopback".parse().unwrap()] };
    // What is checked first is harmless; what the second resolution finds is the machine itself.
    let dialer = dialer(rules, &[IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), LOOPBACK]);
    dialer.check("a.example").await.unwrap();
    for behind in [Behind::Server, Behind::Proxy] {
        let relay = Relay::start(dialer.clone(), open(), "a.example", port, behind).await.unwrap();
        let answer = send(&relay, &format!("CONNECT a.example:{port} HTTP/1.1\r\n\r\n")).await;
        let expected = "HTTP/1.1 403 connections to a.example are not allowed: it is denied by the configuration\r\n";
        assert!(answer.starts_with(expected), "{answer}");
    }
    assert_eq!(count.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn bytes_for_a_proxy_are_forwarded_as_they_are() {
    let (port, _) = server().await;
    let relay = Relay::start(dialer(HostRules::default(), &[LOOPBACK]), open(), "proxy.example", port, Behind::Proxy);
    let request = "CONNECT b.example:443 HTTP/1.1\r\n\r\n";
    assert_eq!(send(&relay.await.unwrap(), request).await, format!("hello {request}"));
}

#[tokio::test]
async fn the_error_of_a_connection_is_in_the_status_line() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let relay = Relay::start(Dialer::default(), open(), "127.0.0.1", port, Behind::Server).await.unwrap();
    let answer = send(&relay, &format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n")).await;
    assert!(answer.starts_with(&format!("HTTP/1.1 502 connect to 127.0.0.1, port {port}: ")), "{answer}");
}

#[tokio::test]
async fn dropping_a_relay_ends_its_connections() {
    let (port, _) = server().await;
    let relay = Relay::start(Dialer::default(), open(), "127.0.0.1", port, Behind::Server).await.unwrap();
    let address = relay.address();
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n").as_bytes()).await.unwrap();
    let mut first = [0; 25];
    stream.read_exact(&mut first).await.unwrap();
    drop(relay);
    // It ends, with or without an error.
    let _ended = stream.read_to_end(&mut Vec::new()).await;
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn nothing_passes_a_closed_gate_not_even_what_was_sent_before() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let is_open = Arc::new(AtomicBool::new(true));
    let gate = Gate::new({
        let is_open = Arc::clone(&is_open);
        move || is_open.load(Ordering::Relaxed)
    });
    let relay = Relay::start(Dialer::default(), gate, "127.0.0.1", port, Behind::Proxy).await.unwrap();
    let mut stream = TcpStream::connect(relay.address()).await.unwrap();
    stream.write_all(b"first").await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    let mut first = [0; 5];
    server.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"first");
    // The relay runs in this thread, so that it sees these bytes and the closed gate at once.
    assert_eq!(stream.try_write(b"second").unwrap(), 6);
    is_open.store(false, Ordering::Relaxed);
    let mut rest = Vec::new();
    let _ended = server.read_to_end(&mut rest).await;
    assert_eq!(rest, b"");
    let _ended = stream.read_to_end(&mut rest).await;
    assert_eq!(rest, b"");
}
