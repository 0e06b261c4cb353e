//! The arguments of `billhook payload apply`.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use billhook_policy::{DurationError, GoDuration};
use clap::Args;

use crate::commands::payload::SettingsArgs;

/// Install or update a release payload in run-level order, and request the deletions that its annotations ask for
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PayloadApplyArgs {
    /// Apply the manifests of this directory
    #[arg(value_name = "DIR")]
    pub(super) folder: PathBuf,
    /// The version of the payload
    #[arg(long)]
    pub(super) version: String,
    /// Apply the version although its preconditions are not met
    #[arg(long)]
    pub(super) force: bool,
    /// Repeat until all requested deletions are done
    #[arg(long)]
    pub(super) to_completion: bool,
    /// Keep reconciling: every INTERVAL, and at once when DIR changes; one process at a time does [default interval: 3m]
    #[arg(
        long,
        value_name = "INTERVAL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "3m",
        value_parser = interval,
        conflicts_with = "to_completion"
    )]
    pub(in crate::commands::payload) watch: Option<Duration>,
    /// Serve /metrics, /healthz and /readyz at this address, such as 127.0.0.1:8080 [default: do not serve them]
    #[arg(long, value_name = "ADDRESS", requires = "watch")]
    pub(super) listen: Option<SocketAddr>,
    #[command(flatten)]
    pub(super) settings: SettingsArgs,
    /// Use this policy file to delete the release later [default: groups in reverse run-level order]
    #[arg(long, value_name = "FILE")]
    pub(super) policy: Option<PathBuf>,
    /// Adopt existing objects that belong to no release, and take over those whose label or record is missing
    #[arg(long)]
    pub(super) adopt: bool,
    /// Create missing namespaces, which remain when the release is deleted
    #[arg(long)]
    pub(super) create_namespace: bool,
    /// Take over conflicting fields from other field managers
    #[arg(long)]
    pub(super) force_conflicts: bool,
    /// Change nothing if more than N objects are deleted, not even with --yes
    #[arg(long, value_name = "N")]
    pub(super) max_deletions: Option<usize>,
    /// Time limit for the whole operation, with --watch for each pass; 0 means no limit [default: 10m]
    #[arg(long, value_name = "DURATION")]
    pub(super) timeout: Option<GoDuration>,
    /// Carry out the plan even if it has dangerous notes
    #[arg(long, short)]
    pub(super) yes: bool,
    /// Take over from another operation that works on the release, which then stops [default: refuse]
    #[arg(long)]
    pub(super) take_over: bool,
}

const EXAMPLES: &str = "\
Examples:
  billhook payload apply release/ --version 4.20.0
  billhook payload apply release/ --version 4.21.0 --to-completion --timeout 30m
  billhook payload apply release/ --version 4.21.0 --watch=5m --listen 127.0.0.1:8080

Exit codes: 0 if all manifests succeeded and nothing is being deleted, 3 if requested deletions are pending.";

/// Parses the pause between the passes of `--watch`.
fn interval(text: &str) -> Result<Duration, String> {
    const SHORTEST: Duration = Duration::from_secs(1);
    let interval: GoDuration = text.parse().map_err(|error: DurationError| error.to_string())?;
    if interval.0 < SHORTEST { Err("expected at least 1s".to_owned()) } else { Ok(interval.0) }
}
