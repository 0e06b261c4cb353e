//! Runs the program in-process, in a temporary folder.

use std::{
    collections::BTreeMap,
    io::{Cursor, Write},
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use billhook::{Cluster, World};
use billhook_sandbox::{Sandbox, User};
use tokio::{
    runtime::Runtime,
    sync::{Notify, mpsc},
    time::timeout,
};

/// How long a text that is waited for may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The kubeconfig of a cluster that does not exist: input is checked before the first request.
const KUBECONFIG: &str = "
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]
contexts: [{name: x, context: {cluster: c, namespace: shop}}]
current-context: x
";

/// The result of a run.
pub struct Called {
    pub exit: u8,
    pub out: String,
    pub err: String,
}

/// A temporary folder with files, and a kubeconfig whose cluster does not exist.
pub struct Place(tempfile::TempDir);

impl Place {
    pub fn new(files: &[(&str, &str)]) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        place.write("kubeconfig", KUBECONFIG);
        files.iter().for_each(|(name, text)| place.write(name, text));
        place
    }

    pub fn folder(&self) -> &Path {
        self.0.path()
    }

    pub fn write(&self, name: &str, text: &str) {
        let path = self.folder().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Runs `billhook ARGS`; the arguments are split at spaces.
    pub fn call(&self, args: &str) -> Called {
        self.call_as("billhook", args, "")
    }

    pub fn call_with(&self, args: &str, stdin: &str) -> Called {
        self.call_as("billhook", args, stdin)
    }

    pub fn call_as(&self, program: &str, args: &str, stdin: &str) -> Called {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        self.call_on(&runtime, program, args, stdin)
    }

    /// Runs `billhook ARGS` on a clock that is not paused, for commands that use sockets.
    pub fn call_in_real_time(&self, args: &str) -> Called {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        self.call_on(&runtime, "billhook", args, "")
    }

    /// Asserts that the program rejects the arguments with an error that contains these words.
    pub fn rejects(&self, args: &str, words: &str) {
        let called = self.call(args);
        assert_eq!((called.exit, called.out.as_str()), (2, ""), "{args}: {}", called.err);
        assert!(called.err.contains(words), "{args}: {}", called.err);
    }

    fn call_on(&self, runtime: &Runtime, program: &str, args: &str, stdin: &str) -> Called {
        let (out, err) = (Shared::default(), Shared::default());
        let (_interrupt, interrupts) = mpsc::channel(1);
        let world = self.world(program, args, stdin, (out.clone(), err.clone()), interrupts);
        let exit = runtime.block_on(billhook::run(world));
        Called { exit, out: out.text(), err: err.text() }
    }

    /// Runs `billhook ARGS` on a sandbox.
    pub async fn call_on_sandbox(&self, sandbox: &Sandbox, args: &str) -> Called {
        let (out, err) = (Shared::default(), Shared::default());
        let (_interrupt, interrupts) = mpsc::channel(1);
        let exit = billhook::run(self.world_on(sandbox, args, (out.clone(), err.clone()), interrupts)).await;
        Called { exit, out: out.text(), err: err.text() }
    }

    /// Builds the world of a run on a sandbox, which knows it as the client `billhook`.
    pub fn world_on(
        &self,
        sandbox: &Sandbox,
        args: &str,
        streams: (Shared, Shared),
        interrupts: mpsc::Receiver<()>,
    ) -> World {
        let client = sandbox.client(User::admin(), "billhook");
        World {
            connect: Arc::new(move |_, options| Ok(Cluster::from_client(client.clone(), options))),
            ..self.world("billhook", args, "", streams, interrupts)
        }
    }

    /// Builds the world of a run.
    pub fn world(
        &self,
        program: &str,
        args: &str,
        stdin: &str,
        (out, err): (Shared, Shared),
        interrupts: mpsc::Receiver<()>,
    ) -> World {
        World {
            args: std::iter::once(program).chain(args.split_whitespace()).map(Into::into).collect(),
            env: BTreeMap::from([("KUBECONFIG".to_owned(), "kubeconfig".to_owned())]),
            directory: self.folder().to_owned(),
            stdin: Box::new(Cursor::new(stdin.to_owned())),
            stdin_terminal: false,
            stdout: Box::new(out),
            stdout_terminal: false,
            stderr: Box::new(err),
            stderr_terminal: false,
            interrupts,
            connect: Arc::new(Cluster::connect),
        }
    }
}

impl Called {
    /// Asserts that the input was rejected with exactly this error.
    pub fn is_input_error(&self, words: &str) {
        assert_eq!((self.err.as_str(), self.out.as_str(), self.exit), (words, "", 2));
    }
}

/// An output stream whose content can be read.
#[derive(Clone, Default)]
pub struct Shared(Arc<Mutex<Vec<u8>>>, Arc<Notify>);

impl Shared {
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// Waits until this text was printed, and returns everything that was.
    pub async fn until(&self, text: &str) -> String {
        let printed = async {
            loop {
                let more = self.1.notified();
                if self.text().contains(text) {
                    break;
                }
                more.await;
            }
        };
        let _late = timeout(PATIENCE, printed).await;
        let printed = self.text();
        assert!(printed.contains(text), "{text:?} was not printed: {printed}");
        printed
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        self.1.notify_one();
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
