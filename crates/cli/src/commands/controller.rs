//! `billhook controller`: reconciles DeployItems until it is interrupted.

use std::{net::SocketAddr, sync::Arc};

use billhook_cluster::LeaseOptions;
use billhook_deployer::{
    Controller as Deployer, ControllerError, ControllerOptions, Metrics, Mode, Shard, router, serve,
};
use clap::{Args, ValueEnum};
use tokio_util::sync::CancellationToken;

use crate::{
    error::{CommandError, Exit},
    session::{Interrupts, Session, timestamp},
};

/// Reconcile DeployItems: deploy and delete what they say, group by group, until interrupted
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Controller {
    /// What starts the work on an item
    #[arg(long, value_name = "MODE", default_value = "auto")]
    mode: WorkMode,
    /// A namespace whose items are reconciled [default: all]; may be repeated
    #[arg(long, value_name = "NAMESPACE")]
    watch_namespace: Vec<String>,
    /// The part of the items that this controller reconciles, such as 0/3
    #[arg(long, value_name = "INDEX/COUNT", default_value = "0/1", hide_default_value = true)]
    shard: Shard,
    /// Work only as the one of several replicas that holds a Lease in this namespace [default: always work]
    #[arg(long, value_name = "NAMESPACE")]
    leader_election_namespace: Option<String>,
    /// What this replica is called in Leases and in the status of items [default: the host's name]
    #[arg(long, value_name = "NAME")]
    identity: Option<String>,
    /// Where /metrics, /healthz and /readyz are served, such as 127.0.0.1:8080 [default: nowhere]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
}

const EXAMPLES: &str = "\
Examples:
  billhook controller                      on its own, from a terminal
  billhook controller --mode landscaper --leader-election-namespace operators
                                           in place of Landscaper's two deployers, one of several
  billhook controller --shard 1/3          one of three that share the items";

/// What starts the work on an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum WorkMode {
    /// Landscaper's jobs for items that belong to an Execution, else the items themselves
    Auto,
    /// The jobs that Landscaper sets in the status of items
    Landscaper,
    /// The items themselves: their generation, operations, schedules and deletion
    Standalone,
}

/// Runs the command.
pub(crate) async fn run(
    session: &Session,
    interrupts: &mut Interrupts,
    args: Controller,
) -> Result<Exit, CommandError> {
    let connection = session.connection().await?;
    let identity = args.identity.unwrap_or_else(|| host(session));
    let metrics = Metrics::new();
    let name = format!("billhook-controller{}", args.shard.suffix());
    let lease = args.leader_election_namespace.map(|namespace| LeaseOptions::new(namespace, name, identity.as_str()));
    let options = ControllerOptions {
        mode: match args.mode {
            WorkMode::Auto => Mode::Auto,
            WorkMode::Landscaper => Mode::Landscaper,
            WorkMode::Standalone => Mode::Standalone,
        },
        namespaces: args.watch_namespace,
        identity,
        shard: args.shard,
        connect: Arc::clone(&session.connect),
        now: Arc::new(timestamp),
        helm: session.tool("BILLHOOK_HELM", "helm"),
        metrics: metrics.clone(),
        leader_election: lease,
    };
    let stop = CancellationToken::new();
    let controller = Deployer::new(connection.cluster, options);
    let server = match args.listen {
        Some(address) => {
            let listener = tokio::net::TcpListener::bind(address).await;
            let listener = listener
                .map_err(|error| CommandError::new(Exit::Failed, format!("failed to listen on {address}: {error}")))?;
            Some(tokio::spawn(serve(listener, router(metrics, controller.probes()), stop.clone())))
        }
        None => None,
    };
    session.printer.err("reconciling DeployItems; Ctrl-C ends it");
    let mut controller = std::pin::pin!(controller.run(stop.clone()));
    let ended = tokio::select! {
        ended = &mut controller => ended,
        () = interrupts.next() => {
            stop.cancel();
            controller.await
        }
    };
    stop.cancel();
    if let Some(server) = server {
        let _ended = server.await;
    }
    match ended {
        Ok(()) => Ok(Exit::Done),
        Err(error @ ControllerError::NoKind) => Err(CommandError::failed(Exit::Input, &error)),
        Err(ControllerError::Cluster(error)) => Err(error.into()),
    }
}

/// The name of the host, which in a pod is the pod's.
fn host(session: &Session) -> String {
    let name = session.env.get("HOSTNAME").cloned().filter(|name| !name.is_empty());
    // Shells do not hand their HOSTNAME on, and two machines must not call themselves the same.
    let name = name.unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned());
    format!("{name}_{}", std::process::id())
}
