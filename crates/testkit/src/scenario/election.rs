//! Plays a scenario with two controllers, of which only the holder of the Lease may write. One of them loses its connection
//! for some time.

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

/// The client names of the controllers.
const NAMES: [&str; 2] = ["one", "two"];

/// The name of the Lease.
const LEASE: &str = "billhook-controller";

/// The requests that the first controller loses.
#[derive(Clone, Copy, Debug)]
pub enum Cut {
    /// None of its requests reaches the server.
    All,
    /// Only its writes of the Lease do not reach the server.
    Lease,
}

/// A loss of connection.
#[derive(Clone, Copy, Debug)]
pub struct Partition {
    /// The lost requests.
    pub cut: Cut,
    /// The time at which it starts.
    pub at: Duration,
    /// Its duration.
    pub lasts: Duration,
}

/// The writes of both controllers.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// The number of writes of each controller, except those of the Lease.
    pub counts: [usize; 2],
    /// The writes of a controller while another one held the Lease.
    pub against: Vec<String>,
}

/// Plays a scenario with two controllers; without a Lease if `elected` is false.
///
/// # Errors
///
/// Fails if the scenario fails.
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
            // Without a Lease they disturb each other.
            played = stage.steps() => if elected { played? },
            cut = disturbed => cut?,
        }
        Ok(written.lock().unwrap_or_else(PoisonError::into_inner).clone())
    })
}

impl Stage<'_> {
    /// Starts a controller whose writes are recorded.
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
            let recorder = Recorder { index, name: own.clone(), home: home.clone(), written: Arc::clone(&written) };
            Cluster::from_client(recorder.client(sandbox), options)
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

    /// Returns the sandboxes with their host names.
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

/// Records the requests of a controller.
#[derive(Clone)]
struct Recorder {
    index: usize,
    name: String,
    /// The sandbox with the Lease.
    home: Sandbox,
    written: Arc<Mutex<Written>>,
}

impl Recorder {
    fn client(self, sandbox: &Sandbox) -> Client {
        let client = sandbox.client(User::admin(), &self.name);
        let service = tower::service_fn(move |request: Request<Body>| {
            let (recorder, client) = (self.clone(), client.clone());
            async move {
                let writes = request.method() != Method::GET && !is_apart(request.uri().path());
                let (what, holder) = (format!("{} {}", request.method(), request.uri().path()), recorder.holder());
                let response = client.send(request).await?;
                if writes && response.status().is_success() {
                    recorder.note(&what, holder.as_deref());
                }
                Ok::<_, kube::Error>(response)
            }
        });
        Client::new(service, "default")
    }

    /// Returns the holder of the Lease.
    fn holder(&self) -> Option<String> {
        let leases = self.home.objects().into_iter().filter(|object| object["kind"] == "Lease");
        let mut lease = leases.filter(|object| object["metadata"]["name"] == LEASE);
        lease.next().and_then(|lease| lease["spec"]["holderIdentity"].as_str().map(str::to_owned))
    }

    fn note(&self, what: &str, holder: Option<&str>) {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.counts[self.index] += 1;
        if holder != Some(self.name.as_str()) {
            written.against.push(format!("{}: {what}, but {} held the Lease", self.name, holder.unwrap_or("nobody")));
        }
    }
}

/// Returns whether a request writes the Lease itself, or is a POST that changes nothing.
fn is_apart(path: &str) -> bool {
    path.contains("/leases") || path.contains("authorization.k8s.io")
}
