//! Replays every sequence under `conformance/` on a real control plane and on the sandbox.
//!
//! `BILLHOOK_CONFORMANCE` selects the servers: `both` (the default), only `real` or `sandbox`, whose responses must be as
//! recorded, or `twice` for two runs on the real one, to show that values that necessarily differ are not compared.

#[path = "conformance/webhooks.rs"]
mod webhooks;

use std::{collections::BTreeMap, path::Path, sync::Arc};

use anyhow::{Context as _, Result, bail, ensure};
use billhook_sandbox::{self as sandbox, Options, Sandbox};
use billhook_testkit::{
    conformance::{Clients, Played, Sequence, differences, play},
    control_plane::{self, ControlPlane, User},
    scenario::ControlPlanes,
};
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;

/// The minimum number of requests for a meaningful test.
const REQUESTS_AT_LEAST: usize = 180;

/// The controllers that the real control plane runs, too.
const CONTROLLERS: &str = "deployment-controller,garbage-collector-controller,job-controller,namespace-controller,\
                           persistentvolumeclaim-protection-controller,replicaset-controller,serviceaccount-controller";

#[derive(Clone, Copy, Debug)]
enum Server {
    Real,
    Sandbox,
}

fn main() -> Result<()> {
    let mut arguments = Arguments::from_args();
    // The sequences mostly wait for controllers.
    arguments.test_threads.get_or_insert(8);
    let servers: &'static [Server] = match std::env::var("BILLHOOK_CONFORMANCE").as_deref().unwrap_or("both") {
        "both" => &[Server::Real, Server::Sandbox],
        "real" => &[Server::Real],
        "sandbox" => &[Server::Sandbox],
        "twice" => &[Server::Real, Server::Real],
        other => bail!("BILLHOOK_CONFORMANCE is {other}: expected both, real, sandbox or twice"),
    };
    let lab = Arc::new(ControlPlanes::default());
    let names: &'static BTreeMap<String, Value> = Box::leak(Box::new(webhooks::serve()?));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance");
    let mut files: Vec<_> = folder.read_dir()?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.sort();
    let (mut trials, mut sequences, mut requests) = (Vec::new(), Vec::new(), 0);
    for file in files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "yaml")) {
        let stem = file.file_stem().unwrap_or_default().display();
        for sequence in Sequence::load(file)? {
            requests += sequence.requests.len();
            sequences.push(sequence.name.clone());
            let lab = Arc::clone(&lab);
            let trial =
                Trial::test(format!("{stem}/{}", sequence.name), move || check(&sequence, servers, names, &lab));
            trials.push(trial);
        }
    }
    trials.push(Trial::test("recording", move || check_recording(&sequences, requests).map_err(failed)));
    let conclusion = libtest_mimic::run(&arguments, trials);
    lab.close();
    conclusion.exit();
}

fn check(
    sequence: &Sequence,
    servers: &[Server],
    names: &BTreeMap<String, Value>,
    lab: &ControlPlanes,
) -> Result<(), Failed> {
    let mut all = Vec::new();
    for (at, server) in servers.iter().enumerate() {
        let slug = format!("{}-{}", ["c", "d"][at], sequence.name);
        all.push(play_on(*server, sequence, &slug, names, lab).map_err(failed)?);
    }
    let mut said = Vec::new();
    for (server, played) in servers.iter().zip(&all) {
        said.extend(played.wrong.iter().map(|mistake| format!("{server:?}: {mistake}")));
    }
    if let [left, right] = &all[..] {
        said.extend(differences(sequence, left, right).iter().map(ToString::to_string));
    }
    if said.is_empty() { Ok(()) } else { Err(said.join("\n").into()) }
}

fn play_on(
    server: Server,
    sequence: &Sequence,
    slug: &str,
    names: &BTreeMap<String, Value>,
    lab: &ControlPlanes,
) -> Result<Played> {
    match server {
        Server::Real => {
            let plane =
                if sequence.exclusive { lab.exclusive(&control_plane::Options::default())? } else { lab.shared()? };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let clients = Clients {
                    admin: client(&plane, User::Admin).await?,
                    restricted: client(&plane, User::Restricted).await?,
                };
                play(sequence, slug, names, &clients).await
            })
        }
        Server::Sandbox => {
            // Each sequence has its own sandbox, under a paused clock.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
            runtime.block_on(async {
                let sandbox = Sandbox::start(Options::default().rbac(true).controllers(CONTROLLERS.parse()?));
                let restricted = sandbox::User::new(User::Restricted.name(), Vec::<String>::new());
                let clients = Clients {
                    admin: sandbox.client(sandbox::User::admin(), ""),
                    restricted: sandbox.client(restricted, ""),
                };
                play(sequence, slug, names, &clients).await
            })
        }
    }
}

async fn client(plane: &ControlPlane, user: User) -> Result<kube::Client> {
    let mut config = plane.client_config(user).await?;
    // No retries: every response is compared, including a 503.
    config.default_retry = false;
    kube::Client::try_from(config).context("create a client")
}

/// Checks that no name is a prefix of another one, and that no sequence is missing.
fn check_recording(names: &[String], requests: usize) -> Result<()> {
    for name in names {
        let same = names.iter().filter(|other| other.contains(name.as_str())).count();
        ensure!(same == 1, "{name} is part of the name of another sequence");
    }
    ensure!(requests >= REQUESTS_AT_LEAST, "{requests} requests, and {REQUESTS_AT_LEAST} are wanted");
    Ok(())
}

fn failed(error: anyhow::Error) -> Failed {
    format!("{error:#}").into()
}
