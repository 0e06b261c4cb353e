//! No record is forgotten: whatever is killed, changed or lost, the DNS server has at the end what the DNSRecord says.

use billhook_sandbox::faults::{Fault, Moment, Requests};
use serde_json::{Value, json};

use crate::{
    memory::{CLIENT, Memory, spec},
    server::{DnsServer, OTHER_ZONE},
};

const WWW: &str = "example.org. www.example.org.";

async fn www() -> Memory {
    let memory = Memory::start(DnsServer::start().await).await;
    memory.record("www", spec("www.example.org")).await;
    memory
}

#[tokio::test]
async fn a_controller_that_is_killed_while_a_record_moves_forgets_nothing() {
    for moment in [Moment::Before, Moment::After] {
        // Before the next controller starts, the record moves back, or on.
        for next in ["www", "other"] {
            let mut nth = 1;
            while killed_while_moving(moment, nth, next).await {
                nth += 1;
            }
            // The status and the annotation, two Secrets, the note read and written, and the status.
            assert_eq!(nth, 8, "{moment:?} {next}");
        }
    }
}

/// Returns whether there was a request to kill the controller at.
async fn killed_while_moving(moment: Moment, nth: usize, next: &str) -> bool {
    let memory = www().await;
    let running = memory.run();
    memory.settles("www").await;
    let faults = memory.sandbox.faults();
    faults.inject(Fault::crash(moment).on(Requests::of(CLIENT)).nth(nth));
    memory.change("www", json!({"name": "moved.dev.example.org", "zone": OTHER_ZONE})).await;
    let killed = tokio::select! {
        biased;
        () = faults.crashed(CLIENT) => true,
        () = memory.settles("www") => false,
    };
    running.kill().await;
    faults.clear();
    faults.revive(CLIENT);

    let at = format!("{moment:?} {nth} {next}");
    memory.change("www", json!({"name": format!("{next}.example.org"), "zone": null})).await;
    let running = memory.run();
    memory.settles("www").await;
    assert_eq!(memory.dns.all(), [format!("example.org. {next}.example.org.")], "{at}");
    memory.delete("www").await;
    memory.loses("www").await;
    assert!(memory.dns.all().is_empty(), "{at}: {:?}", memory.dns.all());
    running.stop().await;
    killed
}

#[tokio::test]
async fn a_record_leaves_a_zone_that_is_changed_in_the_spec() {
    let memory = Memory::start(DnsServer::start().await).await;
    memory.record("www", spec("www.dev.example.org")).await;
    let running = memory.run();
    memory.settles("www").await;
    assert_eq!(memory.dns.all(), ["example.org. www.dev.example.org."]);
    memory.change("www", json!({"zone": OTHER_ZONE})).await;
    memory.settles("www").await;
    assert_eq!(memory.dns.all(), ["dev.example.org. www.dev.example.org."]);
    assert_eq!(memory.note("www").await.unwrap()["data"]["zone"], OTHER_ZONE);
    running.stop().await;
}

#[tokio::test]
async fn a_record_leaves_a_zone_that_is_changed_in_the_secret() {
    let memory = Memory::start(DnsServer::start().await).await;
    memory.record("www", spec("www.dev.example.org")).await;
    let running = memory.run();
    memory.settles("www").await;
    memory.set_zone(OTHER_ZONE).await;
    memory.change("www", json!({})).await;
    memory.settles("www").await;
    assert_eq!(memory.dns.all(), ["dev.example.org. www.dev.example.org."]);
    assert_eq!(memory.stored("www").await.unwrap()["status"]["zone"], OTHER_ZONE);
    // What is deleted is what was written, not what the Secret says now.
    memory.set_zone("example.org").await;
    memory.delete("www").await;
    memory.loses("www").await;
    assert!(memory.dns.all().is_empty(), "{:?}", memory.dns.all());
    running.stop().await;
}

#[tokio::test]
async fn either_the_note_or_the_state_may_be_lost() {
    for note in [true, false] {
        let memory = www().await;
        let running = memory.run();
        memory.settles("www").await;
        let lose =
            async || if note { memory.lose_note("www").await } else { memory.set_state("www", Value::Null).await };
        lose().await;
        memory.change("www", spec("moved.example.org")).await;
        memory.settles("www").await;
        assert_eq!(memory.dns.all(), ["example.org. moved.example.org."], "note: {note}");
        // The change has restored it.
        let written = json!({"zone": "example.org", "name": "moved.example.org", "type": "A"});
        assert_eq!(memory.note("www").await.unwrap()["data"], written);
        assert_eq!(memory.stored("www").await.unwrap()["status"]["state"], written);
        lose().await;
        memory.delete("www").await;
        memory.loses("www").await;
        assert!(memory.dns.all().is_empty(), "note: {note}");
        running.stop().await;
    }
}

#[tokio::test]
async fn a_record_is_named_that_is_orphaned_in_the_zone_of_the_secret() {
    let memory = www().await;
    let running = memory.run();
    memory.settles("www").await;
    memory.dns.revoke();
    // A new name that could not be written does not hide the old one.
    memory.change("www", json!({"name": "moved.example.org"})).await;
    memory.reaches("www", "Reconcile Error").await;
    memory.delete("www").await;
    memory.reaches("www", "Delete Error").await;
    memory.force().await;
    memory.loses("www").await;
    let orphans = "orphaned: DNS record www.example.org A in zone example.org, \
                   DNS record moved.example.org A in zone example.org";
    let messages = memory.events("Orphaned").await;
    assert!(messages.len() == 1 && messages[0].ends_with(orphans), "{messages:?}");
    running.stop().await;
}

#[tokio::test]
async fn the_next_seed_knows_what_was_written() {
    let old = www().await;
    let running = old.run();
    old.settles("www").await;
    old.patch("www", json!({"metadata": {"annotations": {"gardener.cloud/operation": "migrate"}}})).await;
    old.settles("www").await;
    running.stop().await;
    // The note does not hold up the namespace.
    let (record, note) = (old.stored("www").await.unwrap(), old.note("www").await.unwrap());
    assert_eq!((&record["metadata"]["finalizers"], &note["metadata"]["finalizers"]), (&Value::Null, &Value::Null));
    assert_eq!(old.dns.all(), [WWW]);

    let new = Memory::start(old.dns.clone()).await;
    new.record("www", spec("moved.example.org")).await;
    new.set_state("www", record["status"]["state"].clone()).await;
    new.patch("www", json!({"metadata": {"annotations": {"gardener.cloud/operation": "restore"}}})).await;
    let running = new.run();
    new.settles("www").await;
    assert_eq!(new.dns.all(), ["example.org. moved.example.org."]);
    assert!(new.note("www").await.is_some());
    running.stop().await;
}

#[tokio::test]
async fn a_record_that_returns_to_its_seed_gets_its_note_back() {
    let memory = www().await;
    let running = memory.run();
    memory.settles("www").await;
    for operation in ["migrate", "restore"] {
        memory.patch("www", json!({"metadata": {"annotations": {"gardener.cloud/operation": operation}}})).await;
        memory.settles("www").await;
    }
    assert!(memory.note("www").await.unwrap()["metadata"]["finalizers"].is_array());
    running.stop().await;
}
