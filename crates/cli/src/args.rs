//! Global flags, and flag values that several commands share.

use billhook_engine::DeletionOrder;
use billhook_policy::{GoDuration, Propagation, UpdateStrategy};
use clap::{Args, ValueEnum};

/// The flags of all commands, named as in kubectl.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct GlobalArgs {
    /// Use a temporary in-memory Kubernetes API server instead of a cluster
    #[cfg_attr(feature = "sandbox", arg(long, global = true))]
    #[cfg_attr(not(feature = "sandbox"), arg(skip))]
    pub(crate) sandbox: bool,
    /// Use this kubeconfig file [default: $KUBECONFIG, ~/.kube/config, or the in-cluster configuration]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<String>,
    /// Use this context of the kubeconfig [default: its current context]
    #[arg(long, global = true)]
    pub(crate) context: Option<String>,
    /// Use this cluster of the kubeconfig [default: the cluster of the context]
    #[arg(long, global = true, hide_short_help = true)]
    pub(crate) cluster: Option<String>,
    /// Use this user of the kubeconfig [default: the user of the context]
    #[arg(long, global = true, hide_short_help = true)]
    pub(crate) user: Option<String>,
    /// Use this namespace for the release and for objects that specify none [default: the namespace of the context]
    #[arg(long, short, global = true)]
    pub(crate) namespace: Option<String>,
    /// Impersonate this user, on the clusters of --target as well
    #[arg(long = "as", global = true, hide_short_help = true, value_name = "USER")]
    pub(crate) as_user: Option<String>,
    /// Impersonate this group; requires --as; can be repeated
    #[arg(long, global = true, hide_short_help = true, value_name = "GROUP")]
    pub(crate) as_group: Vec<String>,
    /// Time limit for a single request; 0 means no limit [default: 30s]
    #[arg(long, global = true, hide_short_help = true, value_name = "DURATION")]
    pub(crate) request_timeout: Option<GoDuration>,
    /// Print results in this format; with json, commands that change the cluster print one event per line
    #[arg(long, short, global = true, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: OutputFormat,
    /// Color the output
    #[arg(long, global = true, hide_short_help = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: ColorChoice,
    /// Log messages of this level and above to standard error [default: info for commands that keep running, otherwise none]
    #[arg(long, global = true, hide_short_help = true, value_name = "LEVEL", conflicts_with = "verbose")]
    pub(crate) log_level: Option<LogLevel>,
    /// Log in this format [default: json for controller unless standard error is a terminal, otherwise text]
    #[arg(long, global = true, hide_short_help = true, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
    /// Increase verbosity: -v shows unchanged objects and requests, -vv adds HTTP client internals
    #[arg(short, long = "verbose", global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// The values of `--output`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    Text,
    Json,
    /// A graph for Graphviz, for plan, why and payload plan
    Dot,
    /// A picture, for plan, why and payload plan
    Svg,
    /// A page, for plan, why and payload plan
    Html,
    /// For code hosts, for payload lint
    Sarif,
}

/// The values of `--log-level`, the most important one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
}

/// The values of `--log-format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// One JSON object per line
    Json,
    Text,
}

/// The values of `--color`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorChoice {
    Auto,
    Always,
    Never,
}

/// The values of `--dry-run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DryRun {
    /// Run the command
    None,
    /// Print the plan and send no changes
    Client,
    /// Print the plan, send all changes with dryRun=All, and print the server's answers
    Server,
}

/// The values of `--order`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Order {
    /// The groups of the policy
    Policy,
    /// Instances before their controllers, these before their rights, webhooks and APIServices before their backends; else the
    /// groups of the policy
    Safe,
}

impl From<Order> for DeletionOrder {
    fn from(order: Order) -> Self {
        match order {
            Order::Policy => Self::Policy,
            Order::Safe => Self::Safe,
        }
    }
}

/// The values of `--cascade`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cascade {
    /// Delete the owner first, then its dependents
    Background,
    /// Delete the dependents first, then their owner
    Foreground,
    /// Delete the owner and keep its dependents
    Orphan,
}

impl From<Cascade> for Propagation {
    fn from(cascade: Cascade) -> Self {
        match cascade {
            Cascade::Background => Self::Background,
            Cascade::Foreground => Self::Foreground,
            Cascade::Orphan => Self::Orphan,
        }
    }
}

/// The values of `--create-namespace`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CreateNamespace {
    /// The namespaces remain when the release is deleted
    Kept,
    /// The namespaces belong to the release and are deleted with it
    Owned,
}

/// The values of `--update-strategy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum UpdateStrategyArg {
    /// Use server-side apply: set the manifest's fields, remove those it no longer sets, keep all others
    ServerSide,
    /// Replace the object, but keep immutable fields that the manifest does not set
    Update,
    /// Send the difference between the object and the manifest as a merge patch
    Patch,
    /// Set only those fields of the manifest that the object lacks
    Merge,
    /// Set the manifest's fields and keep all others
    MergeOverwrite,
}

impl From<UpdateStrategyArg> for UpdateStrategy {
    fn from(strategy: UpdateStrategyArg) -> Self {
        match strategy {
            UpdateStrategyArg::ServerSide => Self::ServerSide,
            UpdateStrategyArg::Update => Self::Update,
            UpdateStrategyArg::Patch => Self::Patch,
            UpdateStrategyArg::Merge => Self::Merge,
            UpdateStrategyArg::MergeOverwrite => Self::MergeOverwrite,
        }
    }
}
