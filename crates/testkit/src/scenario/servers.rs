//! What a step does to the servers of the control plane: it stops the controller manager, puts a server behind a Service, writes
//! into storage, or sends a request of its own.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use billhook_objects::{GroupKind, ObjectKey};
use kube::client::Body;
use serde::Deserialize;
use serde_json::Value;

use super::{Step, admin::parse_key, backend, lab::Plane, stage::Stage};

/// A text that is no object.
const NO_OBJECT: &str = "this is not an object";

/// The Lease that the controller manager holds.
const LEASE: &str = "kube-controller-manager";

/// What happens to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Switch {
    /// It is killed.
    Stop,
    /// It is started again.
    Start,
}

/// A request that other steps cannot express.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawRequest {
    /// Method and path: `PUT /api/v1/namespaces/$S/finalize`.
    pub request: String,
    /// The body, as JSON.
    #[serde(default)]
    pub body: Value,
    /// The expected code of the response.
    #[serde(default = "ok")]
    pub expect: u16,
}

fn ok() -> u16 {
    200
}

impl Stage<'_> {
    /// Stops or starts the controller manager, and puts servers behind Services.
    pub(super) async fn prepare_servers(&self, step: &Step) -> Result<()> {
        if let Some(switch) = step.controller_manager {
            self.switch_controllers(switch).await?;
        }
        for service in &step.answering {
            let key = parse_key(service)?;
            let port = match &self.planes[0] {
                Plane::Sandbox(sandbox, _) => {
                    sandbox.answer_ok(key.namespace.as_deref().unwrap_or_default(), &key.name);
                    443
                }
                Plane::Real(_) => backend::serve().await?,
            };
            ensure!(self.port.set(port).is_ok(), "only one server can be put behind Services");
        }
        Ok(())
    }

    async fn switch_controllers(&self, switch: Switch) -> Result<()> {
        match (&self.planes[0], switch) {
            (Plane::Real(plane), Switch::Stop) => plane.stop_controller_manager(),
            (Plane::Real(plane), Switch::Start) => plane.start_controller_manager()?,
            (Plane::Sandbox(sandbox, _), Switch::Stop) => {
                sandbox.pause_controllers(true);
                // What a leader leaves behind that is killed.
                let now = self.clock().await?().strftime("%Y-%m-%dT%H:%M:%S.%6fZ");
                let lease = format!(
                    "{{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {{name: {LEASE}, namespace: kube-system}}, \
                     spec: {{holderIdentity: m_1, leaseDurationSeconds: 15, renewTime: '{now}'}}}}"
                );
                self.admin.create(&lease).await?;
            }
            (Plane::Sandbox(sandbox, _), Switch::Start) => {
                let lease = GroupKind::new("coordination.k8s.io", "Lease");
                self.admin.delete(&ObjectKey::new(lease, Some("kube-system"), LEASE)).await?;
                sandbox.pause_controllers(false);
            }
        }
        Ok(())
    }

    /// Replaces objects in storage by a text that is none.
    pub(super) async fn corrupt(&self, objects: &[String]) -> Result<()> {
        for object in objects {
            let key = parse_key(object)?;
            let url = self.admin.api(&key).await?.resource_url().to_owned();
            let plural = url.rsplit('/').next().unwrap_or_default();
            let namespace = key.namespace.as_deref().unwrap_or_default();
            match &self.planes[0] {
                Plane::Sandbox(sandbox, _) => {
                    ensure!(sandbox.corrupt(&key.kind.group, plural, namespace, &key.name), "{object} does not exist");
                }
                Plane::Real(plane) => {
                    ensure!(self.admin.any(&key).await?, "{object} does not exist");
                    // Only custom resources have their group in the key.
                    let group = if key.kind.group.contains('.') { key.kind.group.as_str() } else { "" };
                    let parts = ["/registry", group, plural, namespace, &key.name];
                    let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
                    let (plane, path) = (Arc::clone(plane), parts.join("/"));
                    tokio::task::spawn_blocking(move || plane.write_to_storage(&path, NO_OBJECT)).await??;
                }
            }
        }
        Ok(())
    }

    /// Sends requests one after another.
    pub(super) async fn send(&self, requests: &[RawRequest]) -> Result<()> {
        for RawRequest { request, body, expect } in requests {
            let (method, path) = request.split_once(' ').context("expected a method and a path")?;
            let sent = http::Request::builder().method(method).uri(path).header("Content-Type", "application/json");
            let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
            let code = self.admin.client().send(sent.body(Body::from(body))?).await?.status().as_u16();
            ensure!(code == *expect, "{request}: the response is {code}, not {expect}");
        }
        Ok(())
    }

    /// Replaces `$UID(OBJECT)`, `$FILL(N)` and `$PORT` in a text.
    pub(super) async fn fill(&self, text: &str) -> Result<String> {
        let mut text = match self.port.get() {
            Some(port) => text.replace("$PORT", &port.to_string()),
            None => text.to_owned(),
        };
        while let Some((before, after)) = text.split_once("$UID(") {
            let (object, rest) = after.split_once(')').context("$UID( is not closed")?;
            let found = self.admin.get(&parse_key(object)?).await?;
            let Some(uid) = found.and_then(|found| found.metadata.uid) else { bail!("{object} does not exist") };
            text = format!("{before}{uid}{rest}");
        }
        while let Some((before, after)) = text.split_once("$FILL(") {
            let (number, rest) = after.split_once(')').context("$FILL( is not closed")?;
            text = format!("{before}{}{rest}", "x".repeat(number.parse().context("read the number in $FILL")?));
        }
        Ok(text)
    }
}
