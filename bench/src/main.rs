//! Measures billhook, bare concurrent requests ("the floor") and kubectl side by side, with a control plane on loopback
//! ports.

mod audit;
mod bars;
mod cases;
mod clean;
mod controller;
mod counting;
mod delay;
mod deploy_items;
mod floor;
mod graph;
mod lab;
mod measure;
mod payload;
mod relay;
mod report;
mod samples;
mod timing;
mod virtual_targets;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand, ValueEnum};

use crate::cases::{Case, Sizes};

/// Measure billhook beside bare concurrent requests (the floor) and kubectl
///
/// Starts a control plane on loopback ports, which stops with this program. The first run builds the control plane, which
/// takes about 9 minutes.
#[derive(Parser)]
#[command(name = "billhook-bench", args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    helper: Option<Helper>,
    #[command(flatten)]
    options: Options,
}

/// Other measurements, and the helper programs of a run, which are this same binary so that their memory is comparable.
#[derive(Subcommand)]
enum Helper {
    DeployItems(deploy_items::Args),
    /// Bare concurrent requests
    #[command(hide = true)]
    Floor(floor::Args),
    /// Bare requests in the order of a payload
    #[command(hide = true)]
    FloorGraph(graph::Args),
    /// Bare requests that delete all objects of many kinds
    #[command(hide = true)]
    FloorClean(clean::Args),
    /// Run a program and report its time and its peak memory
    #[command(hide = true)]
    Measure(measure::Args),
}

/// The measurements of kubectl.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kubectl {
    /// Not at all
    Skip,
    /// Once, without added latency, each command for at most a minute
    Short,
    /// Once, also with added latency, each command to its end
    Full,
}

#[derive(clap::Args, Clone, Debug)]
struct Options {
    /// Program to measure; by default it is built and used from target/dist
    #[arg(long, value_name = "PATH")]
    billhook: Option<PathBuf>,
    /// Measure only the floor and kubectl
    #[arg(long, conflicts_with = "billhook")]
    without_billhook: bool,
    /// Measure only cases whose name contains this; can be repeated
    #[arg(long = "case", value_name = "NAME")]
    cases: Vec<String>,
    /// Number of runs of each pair
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Measurements of kubectl
    #[arg(long, value_enum, default_value_t = Kubectl::Short)]
    kubectl: Kubectl,
    /// Skip the runs with 20 ms of added latency
    #[arg(long)]
    no_delay: bool,
    /// Skip the control plane that counts requests
    #[arg(long)]
    no_counts: bool,
    /// Use a tenth of the objects, one run and no kubectl, to check that the benchmark works
    #[arg(long)]
    quick: bool,
    /// Fail if billhook fails or misses a bar
    #[arg(long, conflicts_with = "quick")]
    check: bool,
    /// Write all samples to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            progress(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode> {
    if let Some(Helper::Measure(args)) = &cli.helper {
        return measure::run(args);
    }
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("failed to start tokio")?;
    match cli.helper {
        Some(Helper::DeployItems(args)) => runtime.block_on(deploy_items::run(args)).map(|()| ExitCode::SUCCESS),
        Some(Helper::Floor(args)) => runtime.block_on(floor::run(&args)).map(|()| ExitCode::SUCCESS),
        Some(Helper::FloorGraph(args)) => runtime.block_on(graph::run(&args)).map(|()| ExitCode::SUCCESS),
        Some(Helper::FloorClean(args)) => runtime.block_on(clean::run(&args)).map(|()| ExitCode::SUCCESS),
        _ => runtime.block_on(bench(cli.options)),
    }
}

async fn bench(mut options: Options) -> Result<ExitCode> {
    if options.quick {
        options.runs = 1;
        options.kubectl = Kubectl::Skip;
    }
    let sizes = if options.quick { Sizes::QUICK } else { Sizes::FULL };
    let selected: Vec<Case> = Case::ALL.into_iter().filter(|case| case.is_selected(&options.cases)).collect();
    if selected.is_empty() {
        let names = Case::ALL.map(Case::name).join(", ");
        anyhow::bail!("no case is selected; available cases: {names}");
    }
    let billhook = match (&options.billhook, options.without_billhook) {
        (_, true) => None,
        (Some(path), _) => Some(path.canonicalize().with_context(|| format!("failed to find {}", path.display()))?),
        (None, _) => Some(lab::build_billhook()?),
    };

    let mut samples = samples::Samples::default();
    let versions = timing::run(&options, &selected, &sizes, billhook.as_deref(), &mut samples).await?;
    if !options.no_counts {
        counting::run(&selected, &sizes, billhook.as_deref(), &mut samples).await?;
    }

    let rows = report::rows(&selected, &sizes, &samples);
    report::print(&rows, &options, &sizes, &versions, &samples)?;
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&report::json(&rows, &versions, &samples))?;
        std::fs::write(path, text + "\n").with_context(|| format!("failed to write {}", path.display()))?;
    }
    let missed = rows.iter().any(report::Row::missed) || !samples.failures.is_empty();
    Ok(if options.check && missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Writes a line to standard error, because standard output is only for the table.
#[expect(clippy::print_stderr, reason = "the one place that does it")]
fn progress(line: &str) {
    eprintln!("{line}");
}
