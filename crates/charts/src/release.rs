//! Releases that helm itself deploys and deletes.

use std::{ffi::OsString, path::Path, time::Duration};

use billhook_objects::Manifest;

use crate::{Chart, Error, ErrorKind, ProgramError, Release, home::Home, hooks, program::Program};

/// How `helm upgrade --install` goes about it. Flags that helm 3.8 lacks are only used where they are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeployOptions {
    /// Waits until the objects are ready (`--wait`).
    pub wait: bool,
    /// How long helm waits for any single thing; helm's own 5 minutes where there is none.
    pub timeout: Option<Duration>,
    /// Undoes what it did when it fails: `--rollback-on-failure`, and `--atomic` before helm 4. It makes helm wait.
    pub atomic: bool,
    /// Replaces objects that cannot be changed: `--force-replace`, without server-side apply, and `--force` before
    /// helm 4.
    pub force: bool,
    /// Makes the release's namespace if it is not there (`--create-namespace`).
    pub create_namespace: bool,
    /// Does not hold the values against the chart's `values.schema.json` (`--skip-schema-validation`, helm 3.16).
    pub skip_schema_validation: bool,
    /// Takes objects that are there and belong to no release or another one (`--take-ownership`, helm 3.17).
    pub take_ownership: bool,
}

/// Installs a release, or upgrades it if it is there: `helm upgrade --install`.
///
/// `kubeconfig` is the text of one; it lies in a private file while helm runs. A run that is killed, as it is when the
/// future is dropped, leaves the release *pending*: helm then refuses the next one until the Secret of that revision
/// (labels `owner: helm`, `name` and `status: pending-install` or `pending-upgrade`) is gone, or
/// marked [`crate::as_failed`].
///
/// # Errors
///
/// When the chart cannot be had, or helm cannot be run or fails, with its own words.
pub async fn install_or_upgrade(
    chart: &Chart,
    release: &Release<'_>,
    options: &DeployOptions,
    kubeconfig: &str,
    helm: &Path,
) -> Result<(), Error> {
    let deploy = async {
        let home = Home::new().map_err(ErrorKind::Folder)?;
        let told = chart.tell(helm, &home).await?;
        let program = with_cluster(told.helm, kubeconfig, &home)?;
        let flags = flags(options, major_version(&program).await?);
        let mut arguments: Vec<OsString> = ["upgrade", "--install"].map(Into::into).into();
        arguments.extend(flags.into_iter().map(Into::into));
        arguments.extend(told.flags);
        arguments.extend(release.arguments(&home)?);
        // Neither name may be taken for a flag.
        arguments.extend(["--".into(), release.name.into(), told.chart]);
        program.run(&arguments).await.map_err(ErrorKind::Program)?;
        Ok(())
    };
    let fail = |kind| Error { what: format!("install or upgrade release {}", release.name), kind };
    deploy.await.map_err(fail)
}

/// Deletes a release: `helm uninstall`. One that is not there is no error.
///
/// # Errors
///
/// When helm cannot be run or fails, with its own words.
pub async fn uninstall(
    name: &str,
    namespace: &str,
    wait: bool,
    timeout: Option<Duration>,
    kubeconfig: &str,
    helm: &Path,
) -> Result<(), Error> {
    let mut arguments = vec!["uninstall".to_owned()];
    if wait {
        arguments.push("--wait".to_owned());
    }
    arguments.extend(timeout.into_iter().flat_map(timeout_flag));
    let ended = on_release(arguments, name, namespace, kubeconfig, helm).await;
    ended.map(drop).map_err(|kind| Error { what: format!("uninstall release {name}"), kind })
}

/// The objects of a release as helm deployed them last, its hooks left out: `helm get manifest`; `None` where there is
/// no such release. Objects keep the namespace the templates gave them.
///
/// # Errors
///
/// When helm cannot be run or fails (then with its own words), or when its output is not made of objects.
pub async fn manifest_of(
    name: &str,
    namespace: &str,
    kubeconfig: &str,
    helm: &Path,
) -> Result<Option<Vec<Manifest>>, Error> {
    let fail = |kind| Error { what: format!("read the manifest of release {name}"), kind };
    let arguments = ["get", "manifest"].map(str::to_owned).into();
    let output = on_release(arguments, name, namespace, kubeconfig, helm).await.map_err(fail)?;
    let rendered = output.map(|output| hooks::sort_out(&output, name)).transpose().map_err(fail)?;
    Ok(rendered.map(|rendered| rendered.manifests))
}

/// Runs helm on a release that is there; `None` where it says that there is none.
///
/// Before helm 3.13 `uninstall` has no `--ignore-not-found`, and `get` never had it.
async fn on_release(
    arguments: Vec<String>,
    name: &str,
    namespace: &str,
    kubeconfig: &str,
    helm: &Path,
) -> Result<Option<String>, ErrorKind> {
    let home = Home::new().map_err(ErrorKind::Folder)?;
    let program = with_cluster(home.isolate(Program::helm(helm)), kubeconfig, &home)?;
    let mut arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
    arguments.extend(["--namespace", namespace, "--", name].map(Into::into));
    match program.run(&arguments).await {
        Ok(output) => Ok(Some(output)),
        Err(ProgramError::Failed { stderr, .. }) if stderr.contains("release: not found") => Ok(None),
        Err(error) => Err(ErrorKind::Program(error)),
    }
}

fn with_cluster(helm: Program, kubeconfig: &str, home: &Home) -> Result<Program, ErrorKind> {
    let file = home.write("kubeconfig", kubeconfig.as_bytes()).map_err(ErrorKind::Folder)?;
    Ok(helm.with("KUBECONFIG", file))
}

/// The `4` of `v4.3.1`.
async fn major_version(helm: &Program) -> Result<u32, ErrorKind> {
    let arguments = ["version", "--template", "{{.Version}}"].map(Into::into);
    let version = helm.run(&arguments).await.map_err(ErrorKind::Program)?;
    let major = version.trim().trim_start_matches('v').split('.').next().and_then(|major| major.parse().ok());
    major.ok_or(ErrorKind::Version(version))
}

/// The flags of `helm upgrade --install` for options.
fn flags(options: &DeployOptions, major: u32) -> Vec<String> {
    let (atomic, force) = match major {
        ..4 => ("--atomic", ["--force"].as_slice()),
        // helm refuses to replace where it applies by the server.
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
    chosen.chain(options.timeout.into_iter().flat_map(timeout_flag)).collect()
}

fn timeout_flag(timeout: Duration) -> [String; 2] {
    ["--timeout".to_owned(), format!("{}ms", timeout.as_millis())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_become_the_flags_of_the_version() {
        fn check(options: DeployOptions, helm_3: &str, helm_4: &str) {
            assert_eq!(flags(&options, 3).join(" "), helm_3, "{options:?}");
            assert_eq!(flags(&options, 4).join(" "), helm_4, "{options:?}");
        }
        let none = DeployOptions::default();
        check(none, "", "");
        let all = DeployOptions {
            wait: true,
            timeout: Some(Duration::from_secs(90)),
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
}
