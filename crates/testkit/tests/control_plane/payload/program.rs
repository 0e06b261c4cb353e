//! Runs the program in-process with a client that keeps each of its requests.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Result, ensure};
use billhook::{Cluster, World};
use http::{Method, Request};
use kube::{Client, client::Body};
use tokio::sync::mpsc;

/// A program with its cluster and its folder.
pub struct Program {
    client: Client,
    folder: tempfile::TempDir,
}

/// What a run of the program came to.
pub struct Ran {
    pub exit: u8,
    pub stdout: String,
    pub stderr: String,
    pub sent: Vec<Sent>,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Sent {
    method: Method,
    path: String,
    query: String,
}

impl Program {
    /// The namespace of the records is the current one.
    pub fn new(client: Client, namespace: &str) -> Result<Self> {
        let folder = tempfile::TempDir::new()?;
        let kubeconfig = format!(
            "{{apiVersion: v1, kind: Config, current-context: own, clusters: [{{name: own, cluster: {{server: 'http://own'}}}}], \
             users: [{{name: own, user: {{}}}}], \
             contexts: [{{name: own, context: {{cluster: own, user: own, namespace: {namespace}}}}}]}}"
        );
        std::fs::write(folder.path().join("kubeconfig"), kubeconfig)?;
        Ok(Self { client, folder })
    }

    /// Returns a path in its folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a command line.
    pub async fn run(&self, line: &str) -> Ran {
        let (stdout, stderr, sent) = (Output::default(), Output::default(), Arc::new(Mutex::new(Vec::new())));
        let client = keeping(self.client.clone(), Arc::clone(&sent));
        let (_interrupt, interrupts) = mpsc::channel(1);
        let kubeconfig = ("KUBECONFIG".to_owned(), self.path("kubeconfig").display().to_string());
        let world = World {
            args: ["billhook"].into_iter().chain(line.split_whitespace()).map(Into::into).collect(),
            env: BTreeMap::from([kubeconfig]),
            directory: self.folder.path().to_owned(),
            stdin: Box::new(io::empty()),
            stdin_terminal: false,
            stdout: Box::new(stdout.clone()),
            stdout_terminal: false,
            stderr: Box::new(stderr.clone()),
            stderr_terminal: false,
            interrupts,
            connect: Arc::new(move |_, options| Ok(Cluster::from_client(client.clone(), options))),
        };
        let exit = Box::pin(billhook::run(world)).await;
        let sent = std::mem::take(&mut *sent.lock().unwrap_or_else(PoisonError::into_inner));
        Ran { exit, stdout: stdout.text(), stderr: stderr.text(), sent }
    }
}

impl Ran {
    pub fn shown(&self) -> String {
        let Self { exit, stdout, stderr, sent } = self;
        format!("exit {exit}, {} requests\n--- stdout\n{stdout}--- stderr\n{stderr}---", sent.len())
    }

    /// Checks the exit code.
    pub fn exits(&self, expected: &[u8]) -> Result<()> {
        ensure!(expected.contains(&self.exit), "expected {expected:?}: {}", self.shown());
        Ok(())
    }

    /// Checks that no request wrote anything, and that each kind was listed once at most.
    pub fn is_quiet(&self) -> Result<()> {
        self.exits(&[0])?;
        let writes: Vec<_> = self.sent.iter().filter(|sent| sent.method != Method::GET).collect();
        ensure!(writes.is_empty(), "it wrote: {writes:?}\n{}", self.shown());
        let mut lists: BTreeMap<String, usize> = BTreeMap::new();
        for kind in self.sent.iter().filter_map(Sent::collection) {
            *lists.entry(kind).or_default() += 1;
        }
        ensure!(lists.len() > 1, "it listed nothing: {:?}", self.sent);
        let often: Vec<_> = lists.iter().filter(|(_, count)| **count > 1).collect();
        ensure!(often.is_empty(), "listed or watched more than once: {often:?}\n{:#?}", self.sent);
        Ok(())
    }

    /// Returns the lines of standard error that contain a text.
    pub fn lines(&self, containing: &str) -> Vec<&str> {
        self.stderr.lines().filter(|line| line.contains(containing)).collect()
    }
}

impl Sent {
    /// Returns the group and plural of what a list or a watch reads.
    fn collection(&self) -> Option<String> {
        let mut parts = self.path.trim_matches('/').split('/');
        let group = match parts.next()? {
            "api" => "",
            "apis" => parts.next()?,
            _ => return None,
        };
        let _version = parts.next()?;
        let parts: Vec<&str> = parts.collect();
        let plural = match parts[..] {
            [plural] | ["namespaces", _, plural] => plural,
            _ => return None,
        };
        // A watch of the same kind is a second read of it; a further page of a list is not.
        let is_page = self.query.split('&').any(|parameter| parameter.starts_with("continue="));
        (self.method == Method::GET && !is_page).then(|| format!("{plural}.{group}"))
    }
}

/// Returns a client that keeps its requests.
fn keeping(client: Client, sent: Arc<Mutex<Vec<Sent>>>) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (method, uri) = (request.method().clone(), request.uri());
        let (path, query) = (uri.path().to_owned(), uri.query().unwrap_or_default().to_owned());
        sent.lock().unwrap_or_else(PoisonError::into_inner).push(Sent { method, path, query });
        let client = client.clone();
        async move {
            client.send(request).await.map_err(|error| match error {
                kube::Error::Service(inner) => inner,
                other => other.into(),
            })
        }
    });
    Client::new(service, "default")
}

#[derive(Clone, Default)]
struct Output(Arc<Mutex<Vec<u8>>>);

impl Output {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
