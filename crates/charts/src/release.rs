//! Deploys and deletes releases with helm.

use std::{ffi::OsString, time::Duration};

use billhook_objects::Manifest;
use tokio::time::Instant;

use crate::{
    chart::Chart,
    error::{Error, ErrorKind},
    fetch::locate,
    helm::Helm,
    home::Home,
    input::Release,
    output::sort_out,
    program::{Program, ProgramError},
};

/// How long helm may take to end by itself after it is asked to stop. It ends its requests and records the failed operation.
pub const STOP_GRACE: Duration = Duration::from_secs(10);
/// The part of the remaining time that helm's own time limit leaves at most, so that helm ends before it is stopped.
const RESERVE: Duration = Duration::from_secs(5);
/// The shortest time limit for helm: `0` would mean another one in some versions.
const SHORTEST: Duration = Duration::from_secs(1);

/// How long helm may work on a release.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeLimit {
    /// The time limit for each operation of helm (`--timeout`); helm's default is 5 minutes.
    pub timeout: Option<Duration>,
    /// When the caller stops helm. helm gets a time limit that ends earlier.
    pub deadline: Option<Instant>,
}

impl TimeLimit {
    /// Returns the flag for a helm that starts now.
    fn flag(self, atomic: bool) -> Option<[String; 2]> {
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let limit = shortest(self.timeout, left, atomic)?;
        Some(["--timeout".to_owned(), format!("{}ms", limit.as_millis())])
    }
}

/// Returns helm's time limit if it is stopped after `left`. With `atomic`, a rollback may take as long as the operation that
/// failed, so each gets half of the time.
fn shortest(timeout: Option<Duration>, left: Option<Duration>, atomic: bool) -> Option<Duration> {
    let Some(left) = left else { return timeout };
    let usable = left.saturating_sub(RESERVE.min(left / 10)) / if atomic { 2 } else { 1 };
    Some(timeout.map_or(usable, |timeout| timeout.min(usable)).max(SHORTEST))
}

/// The options of `helm upgrade --install`. Flags that helm 3.8 lacks are used only if their option is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeployOptions {
    /// Waits until the objects are ready (`--wait`).
    pub wait: bool,
    /// How long helm may work.
    pub time: TimeLimit,
    /// Rolls back after a failure: `--rollback-on-failure`, or `--atomic` before helm 4. Implies `wait`.
    pub atomic: bool,
    /// Replaces objects that cannot be updated: `--force-replace` without server-side apply, or `--force` before
    /// helm 4.
    pub force: bool,
    /// Creates the release's namespace if it does not exist (`--create-namespace`).
    pub create_namespace: bool,
    /// Skips the validation of the values against the chart's schema (`--skip-schema-validation`, helm 3.16).
    pub skip_schema_validation: bool,
    /// Takes over existing objects, even those of other releases (`--take-ownership`, helm 3.17).
    pub take_ownership: bool,
}

/// Installs a release, or upgrades an existing one: `helm upgrade --install`.
///
/// `kubeconfig` is the text of a kubeconfig; it is in a private file while helm runs. Dropping the future kills helm and
/// leaves the release *pending*: helm rejects further runs until the Secret of the pending revision (labels `owner: helm`,
/// `name` and `status: pending-install` or `pending-upgrade`) is deleted, or marked with [`crate::as_failed`].
///
/// # Errors
///
/// When the chart cannot be fetched, or helm cannot be run or fails (with the error that it printed).
pub async fn install_or_upgrade(
    chart: &Chart,
    release: &Release<'_>,
    options: &DeployOptions,
    kubeconfig: &str,
    helm: &Helm,
) -> Result<(), Error> {
    let deploy = async {
        let home = helm.home()?;
        let located = locate(chart, helm, &home).await?;
        let program = with_cluster(located.helm, kubeconfig, &home)?.with_grace(STOP_GRACE);
        let version = version(&program).await?;
        let flags = flags(options, version.0).into_iter().chain(helm.label_flag(version));
        let mut arguments: Vec<OsString> = ["upgrade", "--install"].map(Into::into).into();
        arguments.extend(flags.map(Into::into));
        arguments.extend(located.flags);
        arguments.extend(release.arguments(&home)?);
        // After `--`, neither name can be parsed as a flag.
        arguments.extend(["--".into(), release.name.into(), located.chart]);
        program.run(&arguments).await.map_err(ErrorKind::Program)?;
        Ok(())
    };
    let fail = |kind| Error { what: format!("install or upgrade release {}", release.name), kind };
    deploy.await.map_err(fail)
}

/// Deletes a release: `helm uninstall`. Succeeds if the release does not exist.
///
/// # Errors
///
/// When helm cannot be run or fails (with the error that it printed).
pub async fn uninstall(
    name: &str,
    namespace: &str,
    wait: bool,
    time: TimeLimit,
    kubeconfig: &str,
    helm: &Helm,
) -> Result<(), Error> {
    let mut arguments = vec!["uninstall".to_owned()];
    if wait {
        arguments.push("--wait".to_owned());
    }
    arguments.extend(time.flag(false).into_iter().flatten());
    let ended = on_release(arguments, name, namespace, kubeconfig, helm).await;
    ended.map(drop).map_err(|kind| Error { what: format!("uninstall release {name}"), kind })
}

/// Returns the objects of a release without its hooks: `helm get manifest`; `None` if the release does not exist. Objects
/// keep the namespaces that the templates set.
///
/// # Errors
///
/// When helm cannot be run or fails (with the error that it printed), or when its output contains documents that are not
/// objects.
pub async fn manifest_of(
    name: &str,
    namespace: &str,
    kubeconfig: &str,
    helm: &Helm,
) -> Result<Option<Vec<Manifest>>, Error> {
    let fail = |kind| Error { what: format!("read the manifest of release {name}"), kind };
    let arguments = ["get", "manifest"].map(str::to_owned).into();
    let output = on_release(arguments, name, namespace, kubeconfig, helm).await.map_err(fail)?;
    let rendered = output.map(|output| sort_out(&output, name)).transpose().map_err(fail)?;
    Ok(rendered.map(|rendered| rendered.manifests))
}

/// Runs helm on a release; returns `None` if helm reports that the release does not exist.
///
/// There is no flag for this: `uninstall` has `--ignore-not-found` only since helm 3.13, and `get` does not have it.
async fn on_release(
    arguments: Vec<String>,
    name: &str,
    namespace: &str,
    kubeconfig: &str,
    helm: &Helm,
) -> Result<Option<String>, ErrorKind> {
    let home = helm.home()?;
    let program = with_cluster(home.isolate(helm.program()), kubeconfig, &home)?.with_grace(STOP_GRACE);
    let mut arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
    arguments.extend(["--namespace", namespace, "--", name].map(Into::into));
    match program.run(&arguments).await {
        Ok(output) => Ok(Some(output)),
        Err(ProgramError::Failed { stderr, .. }) if stderr.contains("release: not found") => Ok(None),
        Err(error) => Err(ErrorKind::Program(error)),
    }
}

/// Gives helm access to a cluster.
pub(crate) fn with_cluster(helm: Program, kubeconfig: &str, home: &Home) -> Result<Program, ErrorKind> {
    let file = home.write("kubeconfig", kubeconfig.as_bytes()).map_err(ErrorKind::Folder)?;
    Ok(helm.with("KUBECONFIG", file))
}

/// Returns the major and minor version of helm, such as 4 and 3 for `v4.3.1`.
async fn version(helm: &Program) -> Result<(u32, u32), ErrorKind> {
    let arguments = ["version", "--template", "{{.Version}}"].map(Into::into);
    let version = helm.run(&arguments).await.map_err(ErrorKind::Program)?;
    let mut numbers = version.trim().trim_start_matches('v').split('.').map(|number| number.parse().ok());
    let found = numbers.next().flatten().zip(Some(numbers.next().flatten().unwrap_or_default()));
    found.ok_or(ErrorKind::Version(version))
}

/// Returns the flags of `helm upgrade --install` for options.
fn flags(options: &DeployOptions, major: u32) -> Vec<String> {
    let (atomic, force) = match major {
        ..4 => ("--atomic", ["--force"].as_slice()),
        // helm cannot replace objects while it uses server-side apply.
        _ => ("--rollback-on-failure", ["--force-replace", "--server-side=false"].as_slice()),
    };
    let chosen = [
        (options.wait, ["--wait"].as_slice()),
        (options.atomic, &[atomic]),
        (options.force, force),
        (options.create_namespace, &["--create-namespace"]),
        (options.skip_schema_validation, &["--skip-schema-validation"]),
        (options.take_ownership, &["--take-ownership"]),
    ];
    let chosen = chosen.into_iter().filter(|(wanted, _)| *wanted).flat_map(|(_, flags)| flags).map(|f| (*f).to_owned());
    chosen.chain(options.time.flag(options.atomic).into_iter().flatten()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_depend_on_the_version() {
        fn check(options: DeployOptions, helm_3: &str, helm_4: &str) {
            assert_eq!(flags(&options, 3).join(" "), helm_3, "{options:?}");
            assert_eq!(flags(&options, 4).join(" "), helm_4, "{options:?}");
        }
        let none = DeployOptions::default();
        check(none, "", "");
        let all = DeployOptions {
            wait: true,
            time: TimeLimit { timeout: Some(Duration::from_secs(90)), deadline: None },
            atomic: true,
            force: true,
            create_namespace: true,
            skip_schema_validation: true,
            take_ownership: true,
        };
        let rest = "--create-namespace --skip-schema-validation --take-ownership --timeout 90000ms";
        check(
            all,
            &format!("--wait --atomic --force {rest}"),
            &format!("--wait --rollback-on-failure --force-replace --server-side=false {rest}"),
        );
    }

    #[test]
    fn the_label_needs_helm_3_13() {
        let helm = Helm::new("helm").labelling("a/b=c".to_owned());
        let flags = [(3, 8), (3, 12), (3, 13), (4, 0)].map(|version| helm.label_flag(version));
        let flag = || Some("--labels=a/b=c".to_owned());
        assert_eq!(flags, [None, None, flag(), flag()]);
        assert_eq!(Helm::new("helm").label_flag((4, 3)), None);
    }

    #[test]
    fn helm_ends_before_it_is_stopped_and_has_time_for_a_rollback() {
        let check = |timeout: Option<u64>, left: Option<u64>, atomic, expected: Option<u64>| {
            let [timeout, left, expected] = [timeout, left, expected].map(|time| time.map(Duration::from_millis));
            assert_eq!(shortest(timeout, left, atomic), expected, "{timeout:?} {left:?} {atomic}");
        };
        check(None, None, true, None);
        check(Some(90_000), None, true, Some(90_000));
        check(None, Some(600_000), false, Some(595_000));
        check(None, Some(600_000), true, Some(297_500));
        check(Some(90_000), Some(600_000), true, Some(90_000));
        check(Some(900_000), Some(600_000), false, Some(595_000));
        check(None, Some(20_000), true, Some(9_000));
        check(Some(10), Some(0), false, Some(1_000));
    }
}
