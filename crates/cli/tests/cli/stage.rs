//! A release on a sandbox that another operation has locked, and commands that are interrupted.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use billhook::{Cluster, ClusterOptions};
use billhook_cluster::{Begun, HeldLock, Holder};
use billhook_objects::ReleaseName;
use billhook_sandbox::{
    Options, Sandbox, User, Verb,
    faults::{Fault, Requests},
};
use http::StatusCode;
use serde_json::Value;
use tokio::{runtime::Builder, sync::mpsc};

use crate::call::{Called, Place, Shared};

/// How long a command is, at most, held up by a fault.
const LONG: Duration = Duration::from_secs(3600);

/// A folder and a sandbox, on which the client of the commands is called `billhook`.
pub struct Stage {
    pub place: Place,
    pub sandbox: Sandbox,
}

impl Stage {
    pub fn play(files: &[(&str, &str)], script: impl AsyncFnOnce(&Self)) {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let place = Place::new(files);
        runtime.block_on(async { script(&Self { place, sandbox: Sandbox::start(Options::default()) }).await });
    }

    /// Runs `billhook ARGS -n default`.
    pub async fn call(&self, args: &str) -> Called {
        self.place.call_on_sandbox(&self.sandbox, &format!("{args} -n default")).await
    }

    /// Runs a command beside a script, which gets what is printed to both streams and may interrupt it.
    pub async fn beside(&self, args: &str, script: impl AsyncFnOnce(&Shared, &Shared, mpsc::Sender<()>)) -> Called {
        let (out, err) = (Shared::default(), Shared::default());
        let (interrupt, interrupts) = mpsc::channel(1);
        let args = format!("{args} -n default");
        let world = self.place.world_on(&self.sandbox, &args, (out.clone(), err.clone()), interrupts);
        let (exit, ()) = tokio::join!(billhook::run(world), script(&out, &err, interrupt));
        Called { exit, out: out.text(), err: err.text() }
    }

    /// Locks a release for another operation, until it is taken over.
    pub async fn lock(&self, release: &str) -> HeldLock {
        let cluster = Cluster::from_client(self.sandbox.client(User::admin(), "other"), ClusterOptions::default());
        let (store, release) = (cluster.inventory(), ReleaseName::new("default", release).unwrap());
        let head = store.head(&release).await.unwrap();
        match store.lock(&release, head, (&Holder::new("other", 7, None), "apply")).await.unwrap() {
            Begun::Held(lock) => lock,
            Begun::Locked(locked) => unreachable!("{locked}"),
        }
    }

    /// Returns the operation that has locked a release.
    pub fn locked_by(&self, release: &str) -> Option<String> {
        let secret = self.sandbox.object("", "secrets", "default", &format!("billhook.{release}"))?;
        let head = STANDARD.decode(secret["data"]["head"].as_str().unwrap()).unwrap();
        let head: Value = serde_json::from_slice(&head).unwrap();
        head["lock"]["operation"].as_str().map(str::to_owned)
    }

    /// Lets the API server reject a request of the commands: the one of this number.
    pub fn reject(&self, verb: Verb, plural: &str, number: usize) {
        let rejected = Fault::refuse(StatusCode::FORBIDDEN, "Forbidden", "not today");
        self.sandbox.faults().inject(rejected.on(requests(verb, plural)).nth(number));
    }

    /// Lets requests of the commands hang.
    pub fn hang(&self, verb: Verb, plural: &str) {
        self.sandbox.faults().inject(Fault::delay(LONG).on(requests(verb, plural)));
    }
}

/// Returns requests of the commands for a kind of the core group.
pub fn requests(verb: Verb, plural: &str) -> Requests {
    Requests::of("billhook").verb(verb).resource("", plural)
}
