//! Tests of starting, restarting and stopping a control plane, and of its users.

#[cfg(feature = "scenarios")]
#[path = "control_plane/deploy.rs"]
mod deploy;
#[cfg(feature = "scenarios")]
#[path = "control_plane/payload.rs"]
mod payload;
#[cfg(feature = "scenarios")]
#[path = "control_plane/schemas.rs"]
mod schemas;
#[cfg(feature = "scenarios")]
#[path = "control_plane/sequences.rs"]
mod sequences;
#[cfg(feature = "scenarios")]
#[path = "control_plane/warnings.rs"]
mod warnings;
#[cfg(feature = "scenarios")]
#[path = "control_plane/webhook.rs"]
mod webhook;

use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use billhook_testkit::control_plane::{ControlPlane, Options, User};

/// Returns the control plane for all tests of this file, which run one at a time because some of them stop it.
fn shared() -> Result<MutexGuard<'static, ControlPlane>> {
    static SHARED: LazyLock<Result<Mutex<ControlPlane>>> =
        LazyLock::new(|| ControlPlane::start(&Options::default()).map(Mutex::new));
    let control_plane = SHARED.as_ref().map_err(|error| anyhow::anyhow!("{error:#}"))?;
    Ok(control_plane.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Runs kubectl and returns whether it succeeded and its output.
fn kubectl(control_plane: &ControlPlane, args: &[&str]) -> Result<(bool, String)> {
    let output = control_plane.kubectl().args(args).output().context("failed to run kubectl")?;
    let said = [output.stdout, output.stderr].concat();
    Ok((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

#[test]
fn the_admin_can_connect_and_see_the_version() -> Result<()> {
    let control_plane = shared()?;
    assert_eq!(kubectl(&control_plane, &["get", "--raw", "/readyz"])?, (true, "ok".to_owned()));
    if std::env::var_os("KUBEBUILDER_ASSETS").is_none() {
        let (_, version) = kubectl(&control_plane, &["get", "--raw", "/version"])?;
        assert!(version.contains(r#""gitVersion": "v1.36.3""#), "{version}");
    }
    Ok(())
}

#[test]
fn the_restricted_user_has_no_permissions_without_a_role_binding() -> Result<()> {
    let control_plane = shared()?;
    let list = ["--context=restricted", "get", "secrets", "-n", "rights"];

    kubectl(&control_plane, &["create", "namespace", "rights"])?;
    let (allowed, said) = kubectl(&control_plane, &list)?;
    assert!(!allowed && said.contains("Forbidden"), "{said}");

    let bind = ["create", "rolebinding", "rights", "-n", "rights", "--clusterrole=admin", "--user=restricted"];
    let (bound, said) = kubectl(&control_plane, &bind)?;
    assert!(bound, "{said}");
    eventually("the restricted user has the permission", || Ok(kubectl(&control_plane, &list)?.0))
}

#[test]
fn the_controllers_collect_garbage_and_empty_namespaces() -> Result<()> {
    let control_plane = shared()?;
    for args in [
        &["create", "namespace", "controllers"][..],
        &["create", "deployment", "web", "-n", "controllers", "--image=web", "--replicas=2"],
    ] {
        let (created, said) = kubectl(&control_plane, args)?;
        assert!(created, "{said}");
    }
    eventually("two pods exist", || {
        let (_, pods) = kubectl(&control_plane, &["get", "pods", "-n", "controllers", "-o", "name"])?;
        Ok(pods.lines().filter(|line| line.starts_with("pod/")).count() == 2)
    })?;

    let (gone, said) = kubectl(&control_plane, &["delete", "namespace", "controllers", "--timeout=60s"])?;
    assert!(gone, "{said}");
    Ok(())
}

#[test]
fn the_api_server_restarts_with_its_data() -> Result<()> {
    let control_plane = shared()?;
    let get = ["get", "configmap", "kept", "--request-timeout=2s"];
    let (created, said) = kubectl(&control_plane, &["create", "configmap", "kept"])?;
    assert!(created, "{said}");

    control_plane.stop_api_server();
    let (found, said) = kubectl(&control_plane, &get)?;
    assert!(!found && said.contains("refused"), "{said}");
    control_plane.start_api_server()?;
    let (found, said) = kubectl(&control_plane, &get)?;
    assert!(found, "{said}");

    control_plane.pause_api_server()?;
    let (found, said) = kubectl(&control_plane, &get)?;
    control_plane.resume_api_server()?;
    assert!(!found, "{said}");
    eventually("the API server responds again", || Ok(kubectl(&control_plane, &get)?.0))?;

    let (deleted, said) = kubectl(&control_plane, &["delete", "configmap", "kept"])?;
    assert!(deleted, "{said}");
    Ok(())
}

#[cfg(feature = "client")]
#[test]
fn a_client_verifies_the_certificate_and_uses_the_token_of_the_user() -> Result<()> {
    let control_plane = shared()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for user in [User::Admin, User::Restricted] {
        let name = runtime.block_on(async {
            let config = control_plane.client_config(user).await?;
            let reviews = kube::Api::all(kube::Client::try_from(config)?);
            let review = k8s_openapi::api::authentication::v1::SelfSubjectReview::default();
            let review = reviews.create(&kube::api::PostParams::default(), &review).await?;
            anyhow::Ok(review.status.and_then(|status| status.user_info).and_then(|user| user.username))
        })?;
        assert_eq!(name.as_deref(), Some(user.name()));
    }
    Ok(())
}

#[test]
fn the_kubeconfig_contains_both_users() -> Result<()> {
    let control_plane = shared()?;
    for user in [User::Admin, User::Restricted] {
        let token = control_plane.token(user);
        assert!(control_plane.kubeconfig().contains(token));
        assert!(control_plane.kubeconfig().contains(&format!("current-context: {}", User::Admin.name())));
    }
    Ok(())
}

#[test]
fn the_error_of_a_failed_start_contains_the_log() {
    let options = Options::default().api_server_flag("--no-such-flag");
    let error = ControlPlane::start(&options).unwrap_err();
    let message = format!("{error:#}");
    assert!(message.contains("kube-apiserver ended (exit status: 1)"), "{message}");
    assert!(message.contains("unknown flag: --no-such-flag"), "{message}");
}

#[test]
fn dropping_a_control_plane_removes_everything() -> Result<()> {
    let control_plane = ControlPlane::start(&Options::default().without_controller_manager())?;
    let (pids, dir) = (control_plane.pids(), control_plane.dir().to_owned());
    assert_eq!(pids.len(), 2);
    drop(control_plane);
    assert!(!dir.exists());
    #[cfg(target_os = "linux")]
    assert!(!pids.iter().any(runs));
    Ok(())
}

/// The variable of the process that the test below kills.
const HOLD: &str = "BILLHOOK_TEST_HOLD_CONTROL_PLANE";

/// Not a test: the next test runs this in a separate process and kills it.
#[test]
fn hold_a_control_plane() -> Result<()> {
    if std::env::var_os(HOLD).is_none() {
        return Ok(());
    }
    // The thread that starts it ends before the process, like the thread of a test.
    let start = || ControlPlane::start(&Options::default());
    let Ok(started) = std::thread::spawn(start).join() else { bail!("the thread panicked") };
    let control_plane = started?;
    let (answers, said) = kubectl(&control_plane, &["get", "--raw", "/readyz"])?;
    ensure!(answers, "it ended with the thread that started it: {said}");
    let pids: Vec<String> = control_plane.pids().iter().map(u32::to_string).collect();
    let report = format!("HELD {} {} {}\n", control_plane.url(), control_plane.dir().display(), pids.join(" "));
    std::io::Write::write_all(&mut std::io::stdout(), report.as_bytes())?;
    loop {
        std::thread::park();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_control_plane_ends_with_a_killed_process() -> Result<()> {
    let mut holder = Command::new(std::env::current_exe()?)
        .args(["--exact", "hold_a_control_plane", "--nocapture"])
        .env(HOLD, "1")
        .stdout(Stdio::piped())
        .spawn()?;
    let output = BufReader::new(holder.stdout.take().context("no output")?);
    // The test harness may have written the beginning of the line.
    let report = output.lines().find_map(|line| Some(line.ok()?.split_once("HELD ")?.1.to_owned()));
    let report = report.context("the holder ended without a report")?;
    let mut words = report.split(' ');
    let address = words.next().and_then(|url| url.strip_prefix("https://")).context("no URL")?.to_owned();
    let dir = Path::new(words.next().context("no folder")?);
    let pids = words.map(str::parse).collect::<Result<Vec<u32>, _>>()?;
    ensure!(pids.len() == 3 && pids.iter().all(runs) && dir.exists(), "not started: {report}");

    holder.kill()?;
    holder.wait()?;

    eventually("the servers have ended", || Ok(!pids.iter().any(runs)))?;
    eventually("the port is closed", || Ok(TcpStream::connect(&address).is_err()))?;
    eventually("the folder is removed", || Ok(!dir.exists()))
}

/// Returns whether a process runs. A process that has ended but not been waited for does not.
#[cfg(target_os = "linux")]
fn runs(pid: &u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// Polls until `is_so` returns true, for a minute at most.
fn eventually(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    for _ in 0..600 {
        if is_so()? {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    bail!("not within a minute: {what}")
}
