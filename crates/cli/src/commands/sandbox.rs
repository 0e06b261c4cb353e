//! `billhook sandbox`: serves an in-memory Kubernetes API to other programs.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use billhook_sandbox::{ControllerSet, Options, User};
use clap::{ArgGroup, Args};
use serde::Serialize;

use crate::{
    error::{CommandError, Exit},
    input::{self, Sources},
    render::count,
    sandbox,
    session::{Interrupts, Session},
    text::quoted,
};

/// Serve an in-memory Kubernetes API for kubectl and other clients, until interrupted
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, group = ArgGroup::new("source").multiple(false))]
pub(crate) struct SandboxArgs {
    #[command(flatten)]
    sources: Sources,
    /// Enforce RBAC [default: allow all requests]
    #[arg(long)]
    rbac: bool,
    /// Run these controllers: all, none, or names as in kube-controller-manager, separated by commas [default: all]
    #[arg(long, value_name = "NAMES", default_value = "all", hide_default_value = true)]
    controllers: ControllerSet,
    /// Listen on this port of 127.0.0.1 [default: a free port]
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// Write the kubeconfig to this new file, and delete it at exit [default: a file in a temporary directory]
    #[arg(long, value_name = "FILE")]
    kubeconfig_out: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  billhook sandbox -f manifests/ -R        start with these objects
  billhook sandbox --kubeconfig-out kc     then: kubectl --kubeconfig kc get namespaces
  billhook sandbox --controllers none      only the API server, for tests of controllers
  billhook --sandbox plan apply shop -f manifests/
                                           run a single command on a sandbox of its own";

/// What `-o json` prints.
#[derive(Serialize)]
struct Started<'a> {
    url: &'a str,
    kubeconfig: &'a Path,
}

/// Runs the command.
pub(crate) async fn run(
    session: &Session,
    interrupts: &mut Interrupts,
    args: SandboxArgs,
) -> Result<Exit, CommandError> {
    sandbox::reject_cluster_flags(session, "the sandbox command")?;
    let manifests = match args.sources.filename.is_empty() && args.sources.kustomize.is_none() {
        true if args.sources.recursive => return Err(CommandError::input("-R requires -f")),
        true => Vec::new(),
        false => interrupts.unless(input::read(session, &args.sources, None)).await?.manifests,
    };
    let created = manifests.len();
    let sandbox = billhook_sandbox::Sandbox::start(Options::default().rbac(args.rbac).controllers(args.controllers));
    let client = sandbox.client(User::admin(), "");
    let namespace = session.global.namespace.as_deref().unwrap_or("default");
    interrupts
        .unless(async {
            sandbox::create_namespace(&client, namespace).await?;
            sandbox::create_all(&client, manifests, namespace, "billhook-sandbox").await
        })
        .await?;
    let served = sandbox.serve_at(args.port).await;
    let served =
        served.map_err(|error| CommandError::failed_to(format_args!("serve on 127.0.0.1:{}", args.port), error))?;
    let out = args.kubeconfig_out.map(|path| session.path(&path));
    let kubeconfig = KubeconfigFile::write(out, &served.kubeconfig())?;
    if session.json() {
        session.printer.json_line(&Started { url: served.url(), kubeconfig: &kubeconfig.path });
    } else {
        let with = if created == 0 { String::new() } else { format!(" with {}", count(created, "object")) };
        let url = served.url();
        session.printer.err(&format!("Serving an in-memory Kubernetes API{with} at {url}; press Ctrl-C to stop."));
        session.printer.err("To use it from another shell:");
        session.printer.out(&format!("export KUBECONFIG={}", quoted(&kubeconfig.path.display().to_string())));
    }
    interrupts.next().await;
    Ok(Exit::Done)
}

/// A kubeconfig file that is deleted when the server stops.
struct KubeconfigFile {
    path: PathBuf,
    _folder: Option<tempfile::TempDir>,
}

impl KubeconfigFile {
    /// Writes a new file: an existing one may be the user's kubeconfig of a real cluster.
    fn write(path: Option<PathBuf>, text: &str) -> Result<Self, CommandError> {
        let (path, folder) = match path {
            Some(path) => (path, None),
            None => {
                let folder = tempfile::Builder::new().prefix("billhook-sandbox-").tempdir();
                let folder = folder.map_err(|error| CommandError::failed_to("create a temporary directory", error))?;
                (folder.path().join("kubeconfig"), Some(folder))
            }
        };
        let file = fs::File::create_new(&path);
        match file.and_then(|mut file| file.write_all(text.as_bytes())) {
            Ok(()) => Ok(Self { path, _folder: folder }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let problem = format!("{} already exists", path.display());
                Err(CommandError::input(problem).hint("delete it, or choose another file with --kubeconfig-out"))
            }
            Err(error) => Err(CommandError::failed_to(format_args!("write {}", path.display()), error)),
        }
    }
}

impl Drop for KubeconfigFile {
    fn drop(&mut self) {
        let _result = fs::remove_file(&self.path);
    }
}
