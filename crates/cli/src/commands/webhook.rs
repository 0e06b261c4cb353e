//! `billhook webhook`: serves admission reviews of confirmation annotations until interrupted.

mod certificate;
mod server;
mod warn;

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use billhook_cluster::Cluster;
use billhook_engine::Outlook;
use billhook_extension::admission;
use clap::Args;
use serde_json::json;
use tokio::{net::TcpListener, sync::watch};
use tokio_util::sync::CancellationToken;

use self::{
    certificate::{Files, follow, not_watched},
    server::{LIMITS, serve},
    warn::Warner,
};
use super::apart::Thread;
use crate::{
    error::{CommandError, Exit},
    session::{Interrupts, Session},
    watched::Watched,
};

/// Serve an admission webhook that guards the force deletion of Shoots and the deletion of objects, until interrupted
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WebhookArgs {
    /// Serve at this address
    #[arg(long, value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Use the certificates in this PEM file, that of the server first; it is read again when it changes
    #[arg(long, value_name = "FILE")]
    tls_cert: PathBuf,
    /// Use the private key in this PEM file; it is read again when it changes
    #[arg(long, value_name = "FILE")]
    tls_key: PathBuf,
    /// Also serve /warn-on-delete, which needs the right to list and watch the kinds that it warns of
    #[arg(long)]
    warn_on_delete: bool,
    /// Warn service accounts, too
    #[arg(long, requires = "warn_on_delete")]
    warn_service_accounts: bool,
    /// Also watch the metadata of Secrets, for warnings about those with finalizers; this needs the right to read them
    #[arg(long, requires = "warn_on_delete")]
    watch_secrets: bool,
}

const EXAMPLES: &str = "\
Endpoints:
  /validate-force-deletion                 check changes of a Shoot's annotation for force deletion
  /validate-deletion-confirmation          check that the deletion of an object is confirmed
  /warn-on-delete                          warn of what hangs or is lost when an object is deleted
  /healthz                                 answer probes

Examples:
  billhook webhook --listen 0.0.0.0:8443 --tls-cert /tls/tls.crt --tls-key /tls/tls.key";

/// Runs the command.
pub(crate) async fn run(
    session: &Session,
    interrupts: &mut Interrupts,
    args: WebhookArgs,
) -> Result<Exit, CommandError> {
    let files = Files { cert: session.path(&args.tls_cert), key: session.path(&args.tls_key) };
    // Watched before they are read, so that no change is missed. A machine may have no watch left.
    let watched = Watched::new(|| files.places()).inspect_err(not_watched).ok();
    let (pair, config) = files.load().map_err(CommandError::input)?;
    let bound = TcpListener::bind(args.listen).await.and_then(|listener| Ok((listener.local_addr()?, listener)));
    let (address, listener) =
        bound.map_err(|error| CommandError::failed_to(format_args!("listen on {}", args.listen), error))?;

    let mut router = admission::router();
    let mut lookout = None;
    if args.warn_on_delete {
        let outlook = Arc::new(Outlook::new(args.watch_secrets));
        router = router.merge(Warner::new(Arc::clone(&outlook), args.warn_service_accounts).router());
        lookout = Some(Lookout::new(session, outlook).await?);
    }
    let looking = async {
        match lookout {
            Some(lookout) => lookout.run().await,
            None => std::future::pending().await,
        }
    };

    let log = session.log();
    let url = format!("https://{address}");
    let text = format!("serving admission reviews at {url}; press Ctrl-C to stop");
    log.say("webhook-started", json!({"url": url}), &text);
    let (configs, config) = watch::channel(Arc::new(config));
    let stop = CancellationToken::new();
    let serving = serve(listener, router, config, LIMITS, stop.clone());
    let following = follow(files, pair, watched, configs, &log);
    let stopping = async {
        interrupts.next().await;
        stop.cancel();
    };
    tokio::select! {
        ((), ()) = async { tokio::join!(serving, stopping) } => {}
        error = looking => return Err(error),
        error = following => return Err(CommandError::failed_to("read the certificate", error)),
    }
    log.say("webhook-ended", json!({}), "stopped");
    Ok(Exit::Done)
}

/// What keeps an outlook current: in a thread of its own, because that is much work in a large cluster, for which reviews must not
/// wait.
struct Lookout {
    outlook: Arc<Outlook>,
    cluster: Cluster,
    /// None for a sandbox, which is in this process and has only one client.
    thread: Option<Thread>,
}

impl Lookout {
    async fn new(session: &Session, outlook: Arc<Outlook>) -> Result<Self, CommandError> {
        let thread = Thread::start("outlook")?;
        Ok(match session.connection_in(&thread.runtime).await? {
            Some(cluster) => Self { outlook, cluster, thread: Some(thread) },
            None => Self { outlook, cluster: session.connection().await?.cluster, thread: None },
        })
    }

    /// Returns only if it has failed.
    async fn run(self) -> CommandError {
        let Self { outlook, cluster, thread } = self;
        let following = async move { outlook.follow(&cluster).await };
        let Some(thread) = thread else { match following.await {} };
        match thread.runtime.spawn(following).await {
            Ok(never) => match never {},
            Err(error) => CommandError::failed_to("watch the cluster", error),
        }
    }
}
