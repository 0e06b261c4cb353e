//! What happens with a DNSRecord.
//!
//! An extension has up to three kinds of things to clean up: objects in the seed that a third-party system backs (here the
//! ConfigMap that says what was written), objects in the shoot (here none; they disappear with it), and everything else
//! (here the records on the DNS server, which only `delete` can delete).

use billhook_extension::{Actuator, ActuatorError, Cluster, Context, Outcome, SeedObject};
use k8s_openapi::api::core::v1::{ConfigMap, SecretReference};
use kube::{CustomResource, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::dns::{Server, record_set};

/// The finalizer of the ConfigMap, and its field manager. The ConfigMap remains until the records are deleted.
const NAME: &str = "extensions.gardener.cloud/dnsrecord-rfc2136";

/// The fields of a DNSRecord that this extension uses.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize)]
#[kube(group = "extensions.gardener.cloud", version = "v1alpha1", kind = "DNSRecord", plural = "dnsrecords")]
#[kube(namespaced, schema = "disabled", status = "Value")]
#[serde(rename_all = "camelCase")]
pub(crate) struct DnsRecordSpec {
    secret_ref: SecretReference,
    /// The zone; default: the one in the Secret.
    zone: Option<String>,
    name: String,
    record_type: String,
    values: Vec<String>,
    /// In seconds; default: 120.
    ttl: Option<u32>,
}

/// Writes DNSRecords to the DNS server that their Secret names.
pub(crate) struct DnsActuator;

impl Actuator for DnsActuator {
    type Object = DNSRecord;

    async fn reconcile(&self, context: &Context, record: &DNSRecord, _: &Cluster) -> Result<Outcome, ActuatorError> {
        let DnsRecordSpec { zone, name, record_type, values, ttl, .. } = &record.spec;
        let server = Server::of_secret(&context.secret(&record.spec.secret_ref).await?, zone.as_deref(), name)?;
        let set = record_set(name, record_type, values, ttl.unwrap_or(120))?;
        let written = json!({"zone": server.zone(), "name": name, "type": record_type});
        // After a success, `status.state` says what the note says, so that a steady reconcile needs no note.
        if settled(record) != Some(&written) {
            // What was written under another name or into another zone is deleted as long as the note names it.
            if let Some(former) = noted(context, record).await?.filter(|former| *former != written) {
                delete_noted(context, record, &former).await?;
            }
            // First the note, then the records: whatever happens in between, the note says what may exist.
            context.apply(&note(record), NAME, json!({"metadata": {"finalizers": [NAME]}, "data": written})).await?;
        }
        server.update(context, set).await?;
        Ok(Outcome::done().status(json!({"zone": server.zone(), "state": written})))
    }

    async fn delete(&self, context: &Context, record: &DNSRecord, _: &Cluster) -> Result<Outcome, ActuatorError> {
        // If nothing was ever written, wrong credentials do not matter.
        if let Some(written) = noted(context, record).await? {
            delete_noted(context, record, &written).await?;
            context.remove_by_force(&note(record)).await?;
        }
        Ok(Outcome::done())
    }

    // Gardener takes `status.state` to the next seed. There, `restore` is called, which is `reconcile` by default.
    async fn migrate(&self, context: &Context, record: &DNSRecord, _: &Cluster) -> Result<Outcome, ActuatorError> {
        let Some(written) = noted(context, record).await? else { return Ok(Outcome::done()) };
        // Without its finalizer, the note disappears with the namespace.
        context.apply(&note(record), NAME, json!({"data": written})).await?;
        Ok(Outcome::done().status(json!({"state": written})))
    }

    // `force_delete` is the default: it calls `delete`, removes the ConfigMap by force, and names the records if they remain.

    fn seed_objects(&self, record: &DNSRecord, _: &Cluster) -> Vec<SeedObject> {
        vec![note(record)]
    }

    fn external(&self, record: &DNSRecord, _: &Cluster) -> Vec<String> {
        let DnsRecordSpec { name, record_type, zone, .. } = &record.spec;
        let written = state(record).map(parts);
        let zone = zone.as_deref().or(written.map(|[zone, ..]| zone)).unwrap_or("named in its Secret");
        // What the last success wrote, and what a later try may have written.
        let mut all: Vec<_> = written.into_iter().chain([[zone, name, record_type]]).collect();
        all.dedup();
        all.iter().map(|[zone, name, kind]| format!("DNS record {name} {kind} in zone {zone}")).collect()
    }
}

/// The ConfigMap that says what may be on the DNS server.
fn note(record: &DNSRecord) -> SeedObject {
    let name = format!("dnsrecord-rfc2136-{}", record.name_any());
    SeedObject::new::<ConfigMap>(record.namespace().unwrap_or_default(), name)
}

/// Returns zone, name and type of the records that the note names; if it is lost, of those that the status names.
async fn noted(context: &Context, record: &DNSRecord) -> Result<Option<Value>, ActuatorError> {
    let note = context.read(&note(record)).await?;
    Ok(note.and_then(|note| note.get("data").cloned()).or_else(|| state(record).cloned()))
}

/// Returns what the last success wrote.
fn state(record: &DNSRecord) -> Option<&Value> {
    record.status.as_ref()?.get("state").filter(|state| state.is_object())
}

/// Returns what the note says, if nothing was tried since the last success.
fn settled(record: &DNSRecord) -> Option<&Value> {
    let last = &record.status.as_ref()?["lastOperation"];
    state(record).filter(|_| last["state"] == "Succeeded" && last["type"] != "Migrate")
}

fn parts(written: &Value) -> [&str; 3] {
    ["zone", "name", "type"].map(|key| written[key].as_str().unwrap_or_default())
}

async fn delete_noted(context: &Context, record: &DNSRecord, noted: &Value) -> Result<(), ActuatorError> {
    let [zone, name, kind] = parts(noted);
    let server = Server::of_secret(&context.secret(&record.spec.secret_ref).await?, Some(zone), name)?;
    server.update(context, record_set(name, kind, &[], 0)?).await
}
