//! How many requests the example sends, including those of its actuator.

use billhook_sandbox::Verb;
use hickory_proto::rr::RecordType;
use serde_json::json;

use crate::{
    lab::until,
    memory::{CLIENT, Memory, spec},
    server::DnsServer,
};

const OBJECTS: usize = 200;

#[tokio::test]
async fn a_steady_reconcile_takes_four_requests_and_an_idle_controller_sends_none() {
    let memory = Memory::start(DnsServer::start().await).await;
    let running = memory.run_elected();
    let names: Vec<_> = (0..OBJECTS).map(|n| format!("r{n}")).collect();
    for name in &names {
        memory.record(name, spec(&format!("{name}.example.org"))).await;
    }
    for name in &names {
        memory.settles(name).await;
    }

    let before = memory.sandbox.faults().count(CLIENT);
    for name in &names {
        memory.change(name, json!({"values": ["192.0.2.2"]})).await;
    }
    for name in &names {
        memory.settles(name).await;
        assert_eq!(memory.dns.values(&format!("{name}.example.org"), RecordType::A), ["120 192.0.2.2"]);
    }
    let mut sent = memory.requests(before);
    for name in &names {
        let own = |target: &str| target.split('/').any(|part| part == name);
        let patches = sent.iter().filter(|request| request.verb == Verb::Patch && own(&request.target)).count();
        assert_eq!(patches, 3, "{name}: {sent:?}");
    }
    // The fourth is that of the Secret, which all have in common.
    sent.retain(|request| request.verb != Verb::Patch);
    assert!(sent.iter().all(|request| request.to_string().starts_with("get secrets/")), "{sent:?}");
    assert_eq!(sent.len(), OBJECTS);

    let before = memory.sandbox.faults().count(CLIENT);
    for _ in 0..2 {
        let lease = memory.lease().await;
        until("the Lease is renewed", async || memory.lease().await != lease).await;
    }
    let idle = memory.requests(before);
    assert!(idle.is_empty(), "{idle:?}");
    running.stop().await;
}
