//! Two controllers, of which one may write: the one that the Lease names. One of them is cut off for a while.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result};
use billhook::{Cluster, ClusterOptions};
use billhook_cluster::LeaseOptions;
use billhook_deployer::ControllerOptions;
use billhook_sandbox::{
    Sandbox, User,
    faults::{Fault, Moment, Requests},
};
use http::{Method, Request};
use kube::{Client, client::Body};

use super::{Lab, Scenario, lab::Plane, stage::Stage};

/// The controllers.
const NAMES: [&str; 2] = ["one", "two"];

/// The Lease.
const LEASE: &str = "billhook-controller";

/// How the first controller is cut off.
#[derive(Clone, Copy, Debug)]
pub enum Cut {
    /// None of its requests arrives.
    All,
    /// It can write all but the Lease.
    Lease,
}

/// When, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Partition {
    /// How it is cut off.
    pub cut: Cut,
    /// When it begins.
    pub at: Duration,
    /// How long it lasts.
    pub lasts: Duration,
}

/// What was written.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// How often each controller has written something other than the Lease.
    pub counts: [usize; 2],
    /// What one has written while the Lease named another one.
    pub against: Vec<String>,
}

/// Plays a scenario beside two controllers, without a Lease where `elected` is false.
///
/// # Errors
///
/// When the scenario fails.
pub fn play(scenario: &Scenario, partition: Partition, elected: bool) -> Result<Written> {
    let lab = Lab::Sandbox;
    lab.block_on(scenario, async {
        let stage = Stage::set_without_controller(scenario, &lab).await?;
        let written = Arc::new(Mutex::new(Written::default()));
        for (index, name) in NAMES.into_iter().enumerate() {
            stage.start_watched(index, name, elected, &written).await?;
        }
        let disturbed = async {
            stage.cut(partition).await?;
            std::future::pending::<Result<()>>().await
        };
        tokio::select! {
            // Without a Lease they hinder each other.
            played = stage.steps() => if elected { played? },
            cut = disturbed => cut?,
        }
        Ok(written.lock().unwrap_or_else(PoisonError::into_inner).clone())
    })
}

impl Stage<'_> {
    /// Starts a controller whose writes are looked at.
    async fn start_watched(
        &self,
        index: usize,
        name: &str,
        elected: bool,
        written: &Arc<Mutex<Written>>,
    ) -> Result<()> {
        let (sandboxes, written) = (self.sandboxes(), Arc::clone(written));
        let own = name.to_owned();
        let home = sandboxes.first().context("no sandbox")?.1.clone();
        let watched = move |sandbox: &Sandbox, options| {
            let eye = Eye { index, name: own.clone(), home: home.clone(), written: Arc::clone(&written) };
            Cluster::from_client(eye.client(sandbox), options)
        };
        let cluster = watched(self.sandbox()?, ClusterOptions::default());
        let options = self.controller_options(name).await?;
        let by_name = Arc::clone(&options.connect);
        let connect = move |config: kube::Config, options: ClusterOptions| {
            let host = config.cluster_url.host().unwrap_or_default();
            match sandboxes.iter().find(|(of, _)| *of == host) {
                Some((_, sandbox)) => Ok(watched(sandbox, options)),
                None => by_name(config, options),
            }
        };
        let leader_election = elected.then(|| LeaseOptions::new(&self.scenario.slug, LEASE, name));
        self.controllers.start(cluster, ControllerOptions { leader_election, connect: Arc::new(connect), ..options });
        Ok(())
    }

    /// The sandboxes, with the hosts that stand for them.
    fn sandboxes(&self) -> Vec<(&'static str, Sandbox)> {
        let of = |plane: &Plane| match plane {
            Plane::Sandbox(sandbox, host) => Some((*host, sandbox.clone())),
            Plane::Real(_) => None,
        };
        self.planes.iter().filter_map(of).collect()
    }

    async fn cut(&self, Partition { cut, at, lasts }: Partition) -> Result<()> {
        tokio::time::sleep(at).await;
        let which = match cut {
            Cut::All => Requests::of(NAMES[0]),
            Cut::Lease => Requests::of(NAMES[0]).resource("coordination.k8s.io", "leases"),
        };
        for (_, sandbox) in self.sandboxes() {
            sandbox.faults().inject(Fault::broken(Moment::Before).on(which.clone()));
            sandbox.faults().cut_watches(&which);
        }
        tokio::time::sleep(lasts).await;
        self.sandboxes().iter().for_each(|(_, sandbox)| sandbox.faults().clear());
        Ok(())
    }
}

/// Looks at the requests of a controller.
#[derive(Clone)]
struct Eye {
    index: usize,
    name: String,
    /// Where the Lease lies.
    home: Sandbox,
    written: Arc<Mutex<Written>>,
}

impl Eye {
    fn client(self, sandbox: &Sandbox) -> Client {
        let client = sandbox.client(User::admin(), &self.name);
        let service = tower::service_fn(move |request: Request<Body>| {
            let (eye, client) = (self.clone(), client.clone());
            async move {
                let writes = request.method() != Method::GET && !is_apart(request.uri().path());
                let (what, holder) = (format!("{} {}", request.method(), request.uri().path()), eye.holder());
                let response = client.send(request).await?;
                if writes && response.status().is_success() {
                    eye.note(&what, holder.as_deref());
                }
                Ok::<_, kube::Error>(response)
            }
        });
        Client::new(service, "default")
    }

    /// Who holds the Lease.
    fn holder(&self) -> Option<String> {
        let leases = self.home.objects().into_iter().filter(|object| object["kind"] == "Lease");
        let mut lease = leases.filter(|object| object["metadata"]["name"] == LEASE);
        lease.next().and_then(|lease| lease["spec"]["holderIdentity"].as_str().map(str::to_owned))
    }

    fn note(&self, what: &str, holder: Option<&str>) {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.counts[self.index] += 1;
        if holder != Some(self.name.as_str()) {
            written.against.push(format!("{}: {what}, and {} held the Lease", self.name, holder.unwrap_or("nobody")));
        }
    }
}

/// What is written to the Lease itself, and questions that are POSTed.
fn is_apart(path: &str) -> bool {
    path.contains("/leases") || path.contains("authorization.k8s.io")
}
