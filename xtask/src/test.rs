//! `cargo xtask test`: runs the tests on a machine that has nothing but Rust and Go.

use std::{ffi::OsString, io::Write as _, path::PathBuf, process::ExitCode};

use anyhow::{Result, anyhow};
use billhook_testkit::{browser::chromium, control_plane::Binaries};

use crate::{cargo, exit_code, image, progress, run_to_end};

/// The packages whose tests run kubectl, helm, a registry or a control plane.
const NEED_PROGRAMS: [&str; 7] = [
    "billhook",
    "billhook-charts",
    "billhook-deployer",
    "billhook-extension",
    "billhook-testkit",
    "dnsrecord-rfc2136",
    "xtask",
];

/// The options of `cargo test` for the tests that wait for minutes until locks and Leases expire. When all tests are run, these
/// run beside the others.
const PROCESSES: [&str; 2] = ["--test", "processes"];

/// Build what the tests need, then run them
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Arguments for `cargo test`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    // clap consumes a leading `--` as the end of its own options.
    let no_options = std::env::args_os().nth(2).is_some_and(|first| first == "--");
    let options = if no_options { 0 } else { args.args.iter().position(|arg| arg == "--").unwrap_or(args.args.len()) };
    let (options, for_tests) = args.args.split_at(options);
    let packages = packages(options);
    let test = || {
        let mut command = cargo();
        command.args(["test", "--locked"]).args(options);
        if packages.is_empty() {
            command.arg("--workspace");
        }
        command
    };
    let mut tests = test();
    let everything = args.args.is_empty();
    let mut beside = None;
    if packages.is_empty() || packages.iter().any(|package| NEED_PROGRAMS.contains(&package.as_str())) {
        // Neither cargo nor go keeps two cores busy all the time.
        let programs = std::thread::spawn(programs);
        for targets in [&[][..], &PROCESSES].iter().take(if everything { 2 } else { 1 }) {
            let mut compile = test();
            compile.args(*targets).arg("--no-run");
            let code = run_to_end(compile)?;
            if code != ExitCode::SUCCESS {
                return Ok(code);
            }
        }
        for (variable, program) in programs.join().map_err(|_| anyhow!("building the programs panicked"))?? {
            tests.env(variable, program);
        }
        if everything {
            let mut tests = test();
            tests.args(PROCESSES);
            let processes = std::thread::spawn(move || tests.output());
            // The tests of this package, which are among the last ones, build it otherwise, and report if they cannot.
            let image = std::thread::spawn(image::build_for_tests);
            beside = Some((processes, image));
        }
    }
    if !for_tests.is_empty() {
        tests.args(no_options.then_some("--")).args(for_tests);
    }
    let code = run_to_end(tests)?;
    let Some((processes, image)) = beside else {
        say_left_out(&packages)?;
        return Ok(code);
    };
    drop(image.join());
    let output = processes.join().map_err(|_| anyhow!("starting the tests of processes panicked"))??;
    std::io::stderr().write_all(&output.stderr)?;
    std::io::stdout().write_all(&output.stdout)?;
    say_left_out(&packages)?;
    Ok(if code == ExitCode::SUCCESS { exit_code(output.status) } else { code })
}

/// Says in the last lines which tests have tested nothing.
fn say_left_out(packages: &[String]) -> Result<()> {
    if chromium().is_none() && (packages.is_empty() || packages.iter().any(|package| package == "billhook-testkit")) {
        writeln!(
            std::io::stdout(),
            "\nleft out: the tests of pages in a browser, because there is no Chromium (apt-get install chromium)"
        )?;
    }
    Ok(())
}

/// Returns the packages that options of `cargo test` select.
fn packages(args: &[OsString]) -> Vec<String> {
    let mut args = args.iter().map(|arg| arg.to_string_lossy());
    let mut packages = Vec::new();
    while let Some(arg) = args.next() {
        let inline = arg.strip_prefix("--package=").or_else(|| arg.strip_prefix("-p").filter(|name| !name.is_empty()));
        match inline {
            Some(name) => packages.push(name.to_owned()),
            None if arg == "-p" || arg == "--package" => packages.extend(args.next().map(Into::into)),
            None => {}
        }
    }
    packages
}

/// Finds or builds the programs that tests run. Returns the variables that tell tests the paths of some.
fn programs() -> Result<[(&'static str, PathBuf); 3]> {
    let kubectl = Binaries::locate_or_build(progress)?.kubectl().to_owned();
    let helm = Binaries::helm(progress)?;
    Binaries::registry(progress)?;
    Binaries::crane(progress)?;
    let promtool = Binaries::promtool(progress)?;
    Ok([("BILLHOOK_KUBECTL", kubectl), ("BILLHOOK_HELM", helm), ("BILLHOOK_PROMTOOL", promtool)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_read_from_the_arguments_of_cargo_test() {
        let check = |args: &[&str], expected: &[&str]| {
            let args: Vec<OsString> = args.iter().map(Into::into).collect();
            assert_eq!(packages(&args), expected, "{args:?}");
        };
        check(&[], &[]);
        check(&["-p", "billhook-plan"], &["billhook-plan"]);
        check(&["-pbillhook", "--package=billhook-plan", "--package", "x"], &["billhook", "billhook-plan", "x"]);
    }
}
