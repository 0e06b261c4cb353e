//! `billhook controller`: reconciles DeployItems until interrupted.

use std::{net::SocketAddr, sync::Arc};

use billhook_charts::{Helm, HelmUsers, UserIds};
use billhook_cluster::LeaseOptions;
use billhook_deployer::{
    Apart, ConnectionRules, Controller, ControllerError, ControllerOptions, MAX_HELMS, Metrics, Mode, Shard,
    TargetSelector,
};
use billhook_hosts::{Dialer, HostPattern, HostRules};
use billhook_policy::{GoDuration, LabelSelector};
use clap::{Args, ValueEnum};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    clock::timestamp,
    commands::{apart::Thread, serving::Server},
    error::{CommandError, Exit},
    log::Log,
    session::{Interrupts, Session},
};

/// Reconcile DeployItems until interrupted: deploy and delete their objects group by group
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ControllerArgs {
    /// Choose what triggers work on an item
    #[arg(long, value_name = "MODE", default_value = "auto")]
    mode: ModeArg,
    /// Reconcile only the items of this namespace; can be repeated [default: all namespaces]
    #[arg(long, value_name = "NAMESPACE")]
    watch_namespace: Vec<String>,
    /// Reconcile only the items of namespaces with these labels, such as team=shop, from when they get them until they lose them
    /// [default: all namespaces]
    #[arg(long, value_name = "SELECTOR", conflicts_with = "watch_namespace")]
    namespace_selector: Option<LabelSelector>,
    /// Reconcile only this share of the items, such as 0/3 [default: 0/1, which is all items]
    #[arg(long, value_name = "INDEX/COUNT", default_value = "0/1", hide_default_value = true)]
    shard: Shard,
    /// Elect a leader among replicas by a Lease in this namespace [default: no leader election]
    #[arg(long, value_name = "NAMESPACE")]
    leader_election_namespace: Option<String>,
    /// Let another replica take the Lease over when it was not renewed for this time
    #[arg(long, value_name = "DURATION", default_value = "15s", requires = "leader_election_namespace")]
    lease_duration: GoDuration,
    /// Stop leading when the Lease could not be renewed for this time, which must be shorter than the lease duration
    #[arg(long, value_name = "DURATION", default_value = "10s", requires = "leader_election_namespace")]
    renew_deadline: GoDuration,
    /// Try to acquire or renew the Lease at this interval; the renew deadline must be longer than 1.2 intervals
    #[arg(long, value_name = "DURATION", default_value = "2s", requires = "leader_election_namespace")]
    retry_period: GoDuration,
    /// Name this replica in Leases and in the status of items [default: host name and process ID]
    #[arg(long, value_name = "NAME")]
    identity: Option<String>,
    /// Work on at most this many items at the same time, those that wait for other parties included; one namespace gets at
    /// most half of them, and an item counts as one for each 64 KiB of its configuration
    #[arg(long, value_name = "NUMBER", default_value = "1000", value_parser = clap::value_parser!(u32).range(2..))]
    max_items: u32,
    /// Let running work go on for this time after SIGTERM or Ctrl-C, before it is asked to stop; a second one ends it at once
    #[arg(long, value_name = "DURATION", default_value = "15s")]
    grace_period: GoDuration,
    /// Serve /metrics, /healthz and /readyz at this address, such as 127.0.0.1:8080 [default: do not serve them]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Connect only to these hosts for Targets and charts: a name, *.DOMAIN, an address, a network such as 10.0.0.0/8, or
    /// loopback; can be repeated [default: all hosts, except those with link-local addresses]
    #[arg(long, value_name = "PATTERN")]
    allow_host: Vec<HostPattern>,
    /// Reject Targets and charts on these hosts, also those that --allow-host matches; can be repeated
    #[arg(long, value_name = "PATTERN")]
    deny_host: Vec<HostPattern>,
    /// Accept proxy-url in the kubeconfig of a Target; the proxy resolves the names of servers, so that their addresses are not
    /// checked [default: reject it]
    #[arg(long)]
    allow_proxy_url: bool,
    /// Handle only DeployItems whose Target matches a selector of Landscaper, such as
    /// '{labels: [{key: env, operator: in, values: [prod]}]}'; can be repeated, and one must match [default: all Targets]
    #[arg(long, value_name = "SELECTOR")]
    target_selector: Vec<TargetSelector>,
    /// Run helm as this user and group, so that it cannot read what only the controller may read; with a range such as
    /// 65600-65615, run helms at the same time as different users. The controller must be root, with the capabilities CHOWN,
    /// DAC_OVERRIDE, KILL, SETGID and SETUID [default: the user of the controller]
    #[arg(long, value_name = "ID")]
    helm_user: Option<UserIds>,
}

const EXAMPLES: &str = "\
Examples:
  billhook controller                      run a single controller from a terminal
  billhook controller --mode landscaper --leader-election-namespace operators
                                           replace Landscaper's deployers, with several replicas
  billhook controller --shard 1/3          run one of three controllers that share the items";

/// The values of `--mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ModeArg {
    /// Use mode landscaper for items of an Execution, and mode standalone for all others
    Auto,
    /// Act on the jobs that Landscaper sets in the status of items
    Landscaper,
    /// Act on the items themselves: their generation, operations, schedules and deletion
    Standalone,
}

/// Runs the command.
pub(crate) async fn run(
    session: &Session,
    interrupts: &mut Interrupts,
    args: ControllerArgs,
) -> Result<Exit, CommandError> {
    let listen = args.listen;
    let mut options = options(session, args)?;
    let connection = session.connection().await?;
    options.connections.home = connection.config.map(Arc::new);
    let metrics = options.metrics.clone();
    let stop = CancellationToken::new();
    let thread = Thread::start("lease")?;
    let mut controller = Controller::new(connection.cluster, options);
    // A sandbox is in this process and has only one client.
    if let Some(home) = session.connection_in(&thread.runtime).await? {
        controller = controller.with_lease_apart(Apart { runtime: thread.runtime.clone(), home });
    }
    let server = match listen {
        Some(address) => {
            let scrape = Arc::new(move || metrics.encode());
            Some(Server::start_apart(&thread.runtime, address, scrape, controller.probes(), &stop).await?)
        }
        None => None,
    };
    let log = session.log();
    log.say("controller-started", json!({}), "reconciling DeployItems; press Ctrl-C to stop");
    let ended = until_interrupted(controller, interrupts, &log, &stop).await;
    stop.cancel();
    if let Some(server) = server {
        server.ended().await;
    }
    log.say("controller-ended", json!({}), "stopped");
    match ended {
        Ok(()) => Ok(Exit::Done),
        Err(error @ ControllerError::NoKind) => Err(CommandError::failed(Exit::Input, &error)),
        Err(ControllerError::Cluster(error)) => Err(error.into()),
    }
}

/// Returns the options of the controller, except what is read from the kubeconfig.
fn options(session: &Session, args: ControllerArgs) -> Result<ControllerOptions, CommandError> {
    let helm_users = args.helm_user.map(|ids| HelmUsers::new(ids, MAX_HELMS)).transpose();
    let helm_users = helm_users.map_err(|error| CommandError::input(format!("--helm-user: {error}")))?;
    let identity = args.identity.unwrap_or_else(|| format!("{}_{}", session.host(), std::process::id()));
    let leader_election = args.leader_election_namespace.map(|namespace| LeaseOptions {
        lease_duration: args.lease_duration.0,
        renew_deadline: args.renew_deadline.0,
        retry_period: args.retry_period.0,
        ..LeaseOptions::new(&namespace, args.shard.lease_name(), &identity)
    });
    if let Some(lease) = &leader_election {
        lease.check().map_err(CommandError::input)?;
    }
    Ok(ControllerOptions {
        mode: match args.mode {
            ModeArg::Auto => Mode::Auto,
            ModeArg::Landscaper => Mode::Landscaper,
            ModeArg::Standalone => Mode::Standalone,
        },
        namespaces: args.watch_namespace,
        namespace_selector: args.namespace_selector,
        identity,
        shard: args.shard,
        connect: Arc::clone(&session.connect),
        now: Arc::new(timestamp),
        helm: Helm::new(session.tool("BILLHOOK_HELM", "helm")).running_as(helm_users),
        target_selectors: args.target_selector,
        connections: ConnectionRules {
            dialer: Dialer::new(Arc::new(HostRules { allow: args.allow_host, deny: args.deny_host })),
            proxy_url: args.allow_proxy_url,
            home: None,
        },
        metrics: Metrics::new(),
        leader_election,
        max_items: usize::try_from(args.max_items).unwrap_or(usize::MAX),
        grace: args.grace_period.0,
    })
}

/// Runs the controller. The first Ctrl-C stops it, and the second one abandons what it still does.
async fn until_interrupted(
    controller: Controller,
    interrupts: &mut Interrupts,
    log: &Log,
    stop: &CancellationToken,
) -> Result<(), ControllerError> {
    let mut controller = std::pin::pin!(controller.run(stop.clone()));
    tokio::select! {
        ended = &mut controller => return ended,
        () = interrupts.next() => {}
    }
    stop.cancel();
    log.say("controller-stopping", json!({}), "stopping; running work may go on until the grace period ends");
    tokio::select! {
        ended = controller => ended,
        () = interrupts.next() => Ok(()),
    }
}
