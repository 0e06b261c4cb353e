//! What happens with a DNSRecord.
//!
//! An extension has up to three kinds of things to clean up: objects in the seed that a third-party system backs (here the
//! ConfigMap that says what was written), objects in the shoot (here none; they disappear with it), and everything else
//! (here the records on the DNS server, which only `delete` can delete).

use billhook_extension::{Actuator, ActuatorError, Cluster, Context, Outcome, SeedObject};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, SecretReference};
use kube::api::{Api, Patch, PatchParams};
use kube::{CustomResource, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::dns::{RecordSet, Server, misconfigured};

/// The finalizer of the ConfigMap: it remains until the records are deleted from the DNS server.
const FINALIZER: &str = "extensions.gardener.cloud/dnsrecord-rfc2136";

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
        let server = server(context, record, zone.as_deref()).await?;
        let set = RecordSet::new(name, record_type, values, ttl.unwrap_or(120))?;
        let written = json!({"zone": server.zone(), "name": name, "type": record_type});
        // What was written under another name or into another zone is deleted as long as the note names it.
        if let Some(former) = noted(context, record).await?.filter(|former| *former != written) {
            delete_noted(context, record, &former).await?;
        }
        // First the note, then the records: whatever happens in between, the note says what may exist.
        let note = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": note_name(record), "finalizers": [FINALIZER]},
            "data": written,
        });
        let as_us = PatchParams::apply("dnsrecord-rfc2136").force();
        notes(context, record).patch(&note_name(record), &as_us, &Patch::Apply(note)).await?;
        server.replace(set).await?;
        Ok(Outcome::done().status(json!({"zone": server.zone()})))
    }

    async fn delete(&self, context: &Context, record: &DNSRecord, cluster: &Cluster) -> Result<Outcome, ActuatorError> {
        // Without a note, nothing was ever written, so that wrong credentials do not matter.
        if let Some(written) = noted(context, record).await? {
            delete_noted(context, record, &written).await?;
            for note in self.seed_objects(record, cluster) {
                context.remove_by_force(&note).await?;
            }
        }
        Ok(Outcome::done())
    }

    // `force_delete` is the default: it calls `delete`, removes the ConfigMap by force, and names the records if they remain.

    fn seed_objects(&self, record: &DNSRecord, _: &Cluster) -> Vec<SeedObject> {
        vec![SeedObject::new::<ConfigMap>(record.namespace().unwrap_or_default(), note_name(record))]
    }

    fn external(&self, record: &DNSRecord, _: &Cluster) -> Vec<String> {
        let DnsRecordSpec { name, record_type, zone, .. } = &record.spec;
        let written = record.status.as_ref().and_then(|status| status["zone"].as_str());
        let zone = written.or(zone.as_deref()).map(|zone| format!(" in zone {zone}")).unwrap_or_default();
        vec![format!("DNS record {name} {record_type}{zone}")]
    }
}

fn notes(context: &Context, record: &DNSRecord) -> Api<ConfigMap> {
    Api::namespaced(context.client(), &record.namespace().unwrap_or_default())
}

fn note_name(record: &DNSRecord) -> String {
    format!("dnsrecord-rfc2136-{}", record.name_any())
}

/// Returns what the note says: zone, name and type of the records; none if there is no note.
async fn noted(context: &Context, record: &DNSRecord) -> Result<Option<Value>, ActuatorError> {
    Ok(notes(context, record).get_opt(&note_name(record)).await?.map(|note| json!(note.data)))
}

async fn delete_noted(context: &Context, record: &DNSRecord, noted: &Value) -> Result<(), ActuatorError> {
    let [zone, name, kind] = ["zone", "name", "type"].map(|key| noted[key].as_str().unwrap_or_default());
    server(context, record, Some(zone)).await?.replace(RecordSet::new(name, kind, &[], 0)?).await
}

/// Returns the DNS server that the Secret of a DNSRecord names.
async fn server(context: &Context, record: &DNSRecord, zone: Option<&str>) -> Result<Server, ActuatorError> {
    let SecretReference { name, namespace } = record.spec.secret_ref.clone();
    let (name, namespace) = (name.unwrap_or_default(), namespace.unwrap_or_default());
    let secret = Api::<Secret>::namespaced(context.client(), &namespace).get_opt(&name).await?;
    let missing = || misconfigured(format!("the Secret {namespace}/{name} does not exist"));
    Server::of_secret(&secret.ok_or_else(missing)?, zone)
}
