//! The actuator in this process, on the sandbox in memory.

use std::ops::Deref;

use billhook_extension::{Controller, ControllerError};
use billhook_sandbox::{Options, Sandbox, User, faults::Logged};
use serde_json::{Value, json};
use tokio::{sync::oneshot, task::JoinHandle};

use crate::{actuator::DnsActuator, lab::Seed, server::DnsServer};

/// The name of the controller's client.
pub const CLIENT: &str = "extension";
const NAMESPACE: &str = "shoot--a";

/// A seed in memory.
pub struct Memory {
    pub sandbox: Sandbox,
    seed: Seed,
}

impl Deref for Memory {
    type Target = Seed;

    fn deref(&self) -> &Seed {
        &self.seed
    }
}

impl Memory {
    pub async fn start(dns: DnsServer) -> Self {
        let sandbox = Sandbox::start(Options::default());
        let seed = Seed::start(sandbox.client(User::admin(), "admin"), NAMESPACE, dns).await;
        Self { sandbox, seed }
    }

    fn controller(&self) -> Controller<DnsActuator> {
        Controller::new(self.sandbox.client(User::admin(), CLIENT), DnsActuator).kind_type("rfc2136")
    }

    /// Starts a controller.
    pub fn run(&self) -> Running {
        Running::start(self.controller())
    }

    /// Starts a controller that elects a leader.
    pub fn run_elected(&self) -> Running {
        Running::start(self.controller().leader_election(NAMESPACE, "dnsrecord-rfc2136", "x"))
    }

    /// Returns the requests of the controller after the first ones, without those of its Lease.
    pub fn requests(&self, after: usize) -> Vec<Logged> {
        let log = self.sandbox.faults().log(CLIENT).into_iter().skip(after);
        log.filter(|request| !request.target.starts_with("leases")).collect()
    }
}

/// Returns the `spec` of an A record.
pub fn spec(name: &str) -> Value {
    json!({"name": name, "recordType": "A", "values": ["192.0.2.1"]})
}

/// A controller that runs.
pub struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), ControllerError>>,
}

impl Running {
    fn start(controller: Controller<DnsActuator>) -> Self {
        let (stop, stopped) = oneshot::channel();
        Self { stop, task: tokio::spawn(controller.run(async { drop(stopped.await) })) }
    }

    pub async fn stop(self) {
        drop(self.stop);
        self.task.await.unwrap().unwrap();
    }

    /// Ends it without giving it a chance to clean up.
    pub async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }
}
