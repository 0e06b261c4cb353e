//! `billhook sandbox`: an API server in memory for other programs, until it is interrupted.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use billhook_sandbox::{Options, User};
use clap::{ArgGroup, Args};
use serde::Serialize;

use crate::{
    error::{CommandError, Exit, Problem},
    input::{self, Purpose, Sources},
    render::count,
    sandbox,
    session::{Interrupts, Session},
};

/// Start a Kubernetes API server in memory, for kubectl and other clients, until interrupted
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, group = ArgGroup::new("source").multiple(false))]
pub(crate) struct Sandbox {
    #[command(flatten)]
    sources: Sources,
    /// Evaluate Roles and bindings; without it everybody may do everything
    #[arg(long)]
    rbac: bool,
    /// The port on 127.0.0.1 [default: a free one]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// The file that the kubeconfig is written to, and that is removed at the end [default: one in a folder of its own]
    #[arg(long, value_name = "FILE")]
    kubeconfig_out: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  billhook sandbox -f manifests/ -R        with these objects
  billhook sandbox --kubeconfig-out kc     and, in another shell: kubectl --kubeconfig kc get namespaces
  billhook --sandbox plan apply shop -f manifests/
                                           one command on a sandbox of its own";

/// What `-o json` prints.
#[derive(Serialize)]
struct Started<'a> {
    url: &'a str,
    kubeconfig: &'a Path,
}

/// Runs the command.
pub(crate) async fn run(session: &Session, interrupts: &mut Interrupts, args: Sandbox) -> Result<Exit, CommandError> {
    sandbox::refuse_kubeconfig(session, "sandbox")?;
    let manifests = match args.sources.filename.is_empty() && args.sources.kustomize.is_none() {
        true if args.sources.recursive => return Err(CommandError::input("-R needs -f")),
        true => Vec::new(),
        false => interrupts.unless(input::read(session, &args.sources, Purpose::Apply)).await?.manifests,
    };
    let created = manifests.len();
    let sandbox = billhook_sandbox::Sandbox::start(Options::default().rbac(args.rbac));
    let client = sandbox.client(User::admin(), "");
    let namespace = session.common.namespace.as_deref().unwrap_or("default");
    interrupts
        .unless(async {
            sandbox::create_namespace(&client, namespace).await?;
            sandbox::fill(&client, manifests, namespace, "billhook-sandbox").await
        })
        .await?;
    let served = sandbox.serve_at(args.port).await;
    let served = served.map_err(|error| failed(format!("failed to serve on 127.0.0.1:{}", args.port), &error))?;
    let out = args.kubeconfig_out.map(|path| session.path(&path));
    let kubeconfig = Kubeconfig::write(out, &served.kubeconfig())?;
    if session.json() {
        session.printer.json_line(&Started { url: served.url(), kubeconfig: &kubeconfig.path });
    } else {
        let with = if created == 0 { String::new() } else { format!(" with {}", count(created, "object")) };
        let url = served.url();
        session.printer.err(&format!("A Kubernetes API server in memory is at {url}{with}. Ctrl-C ends it."));
        session.printer.err("To use it from another shell:");
        session.printer.out(&format!("export KUBECONFIG={}", quoted(&kubeconfig.path)));
    }
    interrupts.next().await;
    Ok(Exit::Done)
}

/// The file of a kubeconfig, which ends with its server.
struct Kubeconfig {
    path: PathBuf,
    _folder: Option<tempfile::TempDir>,
}

impl Kubeconfig {
    /// Writes it to a new file; a file that is there may be somebody's way to a real cluster.
    fn write(path: Option<PathBuf>, text: &str) -> Result<Self, CommandError> {
        let (path, folder) = match path {
            Some(path) => (path, None),
            None => {
                let folder = tempfile::Builder::new().prefix("billhook-sandbox-").tempdir();
                let folder = folder.map_err(|error| failed("failed to make a folder".to_owned(), &error))?;
                (folder.path().join("kubeconfig"), Some(folder))
            }
        };
        let file = fs::File::create_new(&path);
        match file.and_then(|mut file| file.write_all(text.as_bytes())) {
            Ok(()) => Ok(Self { path, _folder: folder }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let problem = format!("{} is there already", path.display());
                Err(CommandError::input(problem).hint("remove it, or name another file with --kubeconfig-out"))
            }
            Err(error) => Err(failed(format!("failed to write {}", path.display()), &error)),
        }
    }
}

impl Drop for Kubeconfig {
    fn drop(&mut self) {
        let _gone = fs::remove_file(&self.path);
    }
}

fn failed(what: String, error: &io::Error) -> CommandError {
    let problem = Problem::Said(what, vec![error.to_string()]);
    CommandError { exit: Exit::Failed, ..CommandError::inputs(vec![problem]) }
}

/// A path as a shell takes it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-+:@%".contains(c);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}
