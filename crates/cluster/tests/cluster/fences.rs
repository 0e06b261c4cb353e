//! Fences of a client with real connections.

use std::sync::atomic::{AtomicU32, Ordering};

use billhook_cluster::{Cluster, DeleteOptions, ErrorKind, Fence, Options};
use billhook_objects::{GroupKind, ObjectKey, Uid};
use tokio::{io::AsyncReadExt as _, net::TcpListener};

use crate::fake::configmaps;

#[tokio::test]
async fn a_request_that_waits_for_its_connection_while_the_fence_closes_is_not_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let cluster = Cluster::connect(kube::Config::new(url.parse().unwrap()), Options::default()).unwrap();
    // It closes after the check that precedes the connection.
    let checks = AtomicU32::new(0);
    let fence = Fence::new("another process leads", move || checks.fetch_add(1, Ordering::Relaxed) == 0);
    let received = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).await.unwrap();
        String::from_utf8(received).unwrap()
    };
    let options = DeleteOptions { uid: Some(Uid::new("1")), ..DeleteOptions::default() };
    let (fenced, key) = (cluster.fenced(fence), ObjectKey::new(GroupKind::new("", "ConfigMap"), Some("default"), "x"));
    let resource = configmaps();
    let (received, answer) = tokio::join!(received, fenced.delete(&resource, &key, &options));
    assert_eq!(received, "");
    let error = answer.unwrap_err();
    assert_eq!((error.kind(), error.may_have_taken_effect()), (&ErrorKind::Stopped, false));
    assert!(error.to_string().contains("another process leads"), "{error}");
}
