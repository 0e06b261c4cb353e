//! The program as a process, against a DNS server in this process, on the sandbox and on a real control plane. What depends on
//! single requests is tested with the actuator in this process, in `requests` and `notes`.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "../../src/actuator.rs"]
mod actuator;
#[path = "../../src/dns.rs"]
mod dns;
mod docs;
mod lab;
mod memory;
mod notes;
mod requests;
mod server;

use std::time::Duration;

use hickory_proto::rr::RecordType;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::lab::{on_both, until};

fn www(zone: &str) -> Value {
    json!({"zone": zone, "name": "www.example.org", "recordType": "A", "values": ["192.0.2.1"]})
}

#[tokio::test]
async fn a_record_is_written_changed_and_deleted() {
    on_both(async |lab| {
        lab.record("www", json!({"name": "www.example.org", "recordType": "A", "values": ["192.0.2.1"]})).await;
        lab.reaches("www", "Create Succeeded").await;
        assert_eq!(lab.dns.values("www.example.org", RecordType::A), ["120 192.0.2.1"]);
        let status = lab.stored("www").await.unwrap()["status"].clone();
        assert_eq!(status["zone"], "example.org");
        let created = &status["conditions"][0];
        assert_eq!((&created["type"], &created["status"]), (&json!("Created"), &json!("True")));
        let note = lab.note("www").await.unwrap();
        assert_eq!(note["data"], json!({"zone": "example.org", "name": "www.example.org", "type": "A"}));

        let annotations = json!({"gardener.cloud/operation": "reconcile"});
        let spec = json!({"values": ["192.0.2.2", "192.0.2.3"], "ttl": 60});
        lab.patch("www", json!({"metadata": {"annotations": annotations}, "spec": spec})).await;
        lab.reaches("www", "Reconcile Succeeded").await;
        assert_eq!(lab.dns.values("www.example.org", RecordType::A), ["60 192.0.2.2", "60 192.0.2.3"]);

        lab.delete("www").await;
        lab.loses("www").await;
        assert!(lab.dns.values("www.example.org", RecordType::A).is_empty());
    })
    .await;
}

#[tokio::test]
async fn every_type_of_record_is_written() {
    on_both(async |lab| {
        for (name, record_type, value, kind) in [
            ("a", "A", "192.0.2.1", RecordType::A),
            ("b", "AAAA", "2001:db8::1", RecordType::AAAA),
            ("c", "CNAME", "www.example.com", RecordType::CNAME),
            ("d", "TXT", "some text", RecordType::TXT),
        ] {
            let fqdn = format!("{name}.example.org");
            lab.record(name, json!({"name": fqdn, "recordType": record_type, "values": [value]})).await;
            lab.reaches(name, "Create Succeeded").await;
            let values = lab.dns.values(&fqdn, kind);
            assert!(values.len() == 1 && values[0].contains(value), "{record_type}: {values:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn problems_have_the_codes_that_gardener_expects() {
    on_both(async |lab| {
        let namespace = &lab.namespace;
        let missing = format!("the Secret {namespace}/none does not exist");
        for (name, spec, text) in [
            (
                "type",
                json!({"name": "a.example.org", "recordType": "MX", "values": ["x"]}),
                "must be A, AAAA, CNAME or TXT",
            ),
            (
                "value",
                json!({"name": "a.example.org", "recordType": "A", "values": ["x"]}),
                "is no value for the type A",
            ),
            (
                "zone",
                json!({"name": "a.example.com", "recordType": "A", "values": ["192.0.2.1"]}),
                "is not in the zone",
            ),
            (
                "secret",
                json!({"secretRef": {"name": "none", "namespace": namespace}, "name": "a.example.org", "recordType": "A", "values": []}),
                &missing,
            ),
        ] {
            lab.record(name, spec).await;
            lab.reaches(name, "Create Error").await;
            lab.has_failed(name, "ERR_CONFIGURATION_PROBLEM", text).await;
        }
        // Nothing was written or noted for the wrong name.
        lab.change("zone", json!({"name": "a.example.org"})).await;
        lab.reaches("zone", "Create Succeeded").await;
        lab.dns.refuse(true);
        lab.record("refused", json!({"name": "r.example.org", "recordType": "A", "values": ["192.0.2.1"]})).await;
        lab.reaches("refused", "Create Error").await;
        lab.has_failed("refused", "ERR_INFRA_UNAUTHORIZED", "to an update of example.org.").await;
        lab.dns.refuse(false);
        // It is tried again.
        lab.reaches("refused", "Create Succeeded").await;
    })
    .await;
}

#[tokio::test]
#[expect(clippy::print_stdout, reason = "the time is a figure of the documentation")]
async fn a_shoot_whose_key_was_revoked_is_deleted_by_force() {
    on_both(async |lab| {
        lab.record("www", www("example.org")).await;
        lab.reaches("www", "Create Succeeded").await;
        lab.dns.revoke();
        lab.delete("www").await;
        lab.reaches("www", "Delete Error").await;
        lab.has_failed("www", "ERR_INFRA_UNAUTHENTICATED", "NotAuth").await;
        let finalizers = lab.stored("www").await.unwrap()["metadata"]["finalizers"].clone();
        assert_eq!(finalizers, json!(["extensions.gardener.cloud/dnsrecord"]));

        let annotated = Instant::now();
        lab.force().await;
        lab.loses("www").await;
        let took = annotated.elapsed();
        println!("{}: gone {took:.1?} after the annotation", lab.server);
        assert!(took < Duration::from_secs(5), "{}: {took:?}", lab.server);
        let orphan = "orphaned: DNS record www.example.org A in zone example.org";
        let messages = lab.events("Orphaned").await;
        assert!(messages.len() == 1 && messages[0].ends_with(orphan), "{messages:?}");
        let log = lab.stop().await;
        assert!(log.contains(orphan), "{log}");
    })
    .await;
}

#[tokio::test]
async fn a_record_that_was_never_created_is_deleted_although_the_key_is_wrong() {
    on_both(async |lab| {
        lab.dns.revoke();
        lab.record("www", www("example.org")).await;
        lab.reaches("www", "Create Error").await;
        lab.has_failed("www", "ERR_INFRA_UNAUTHENTICATED", "NotAuth").await;
        let created = lab.stored("www").await.unwrap()["status"]["conditions"][0].clone();
        assert_eq!((&created["type"], &created["status"]), (&json!("Created"), &json!("False")));
        assert!(lab.note("www").await.is_some());
        lab.delete("www").await;
        lab.loses("www").await;
        assert!(lab.events("Orphaned").await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn probes_are_served() {
    on_both(async |lab| {
        until("it has started", async || lab.lease().await.is_some()).await;
        for path in ["/healthz", "/readyz", "/metrics"] {
            let answer = lab.http(path).await;
            assert!(answer.starts_with("HTTP/1.0 200") || answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
        }
    })
    .await;
}
