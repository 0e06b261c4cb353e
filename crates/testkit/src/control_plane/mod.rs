//! A real control plane: etcd, kube-apiserver and kube-controller-manager on free loopback ports.
//!
//! There is no kubelet and no scheduler: pods stay Pending. Everything else behaves as it does in a cluster, because
//! deletion is the work of the API server and of the controllers that run here.
//!
//! Nothing survives: the servers and their folder go when a [`ControlPlane`] is dropped, and also when the process that
//! started it ends in any other way, SIGKILL included. (The latter for the servers on Linux only.)

mod binaries;
mod kubeconfig;
mod process;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::process::Signal;

pub use self::binaries::Binaries;
use self::process::{Deadline, RunFolder, Server};

/// How long a control plane may take to start. It takes 4 s on two idle cores, and tests run beside builds.
const START_LIMIT: Duration = Duration::from_secs(120);

/// How often a port is tried; an attempt costs next to nothing.
const PORT_PAUSE: Duration = Duration::from_millis(10);

/// How often the API server is asked; each time a kubectl runs for some 50 ms.
const PROBE_PAUSE: Duration = Duration::from_millis(50);

/// How often new ports are tried when another process has taken one between choosing and listening.
const PORT_ATTEMPTS: usize = 5;

/// The controllers that deletion depends on, those that make the usual dependents, and the one without which the roles
/// `admin`, `edit` and `view` are empty.
const CONTROLLERS: [&str; 8] = [
    "garbage-collector-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "deployment-controller",
    "replicaset-controller",
    "job-controller",
    "persistentvolumeclaim-protection-controller",
    "clusterrole-aggregation-controller",
];

/// A user of the control plane, known by a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// A member of `system:masters`, who may do everything.
    Admin,
    /// A user without any rights but those that a RoleBinding gives to the user `restricted`.
    Restricted,
}

impl User {
    /// The name: of the user, and of the context in the kubeconfig.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Restricted => "restricted",
        }
    }
}

/// What a control plane is started with.
#[derive(Clone, Debug)]
pub struct Options {
    controllers: Vec<String>,
    api_server_flags: Vec<String>,
    controller_manager_flags: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            controllers: CONTROLLERS.map(str::to_owned).to_vec(),
            api_server_flags: Vec::new(),
            controller_manager_flags: Vec::new(),
        }
    }
}

impl Options {
    /// Runs these controllers instead of the usual ones; none means no kube-controller-manager at all.
    #[must_use]
    pub fn controllers(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.controllers = names.into_iter().map(Into::into).collect();
        self
    }

    /// Starts no kube-controller-manager: nothing collects garbage, and no namespace ever goes.
    #[must_use]
    pub fn without_controller_manager(self) -> Self {
        self.controllers([""; 0])
    }

    /// Adds a flag of kube-apiserver, for example `--audit-log-path=…`.
    #[must_use]
    pub fn api_server_flag(mut self, flag: impl Into<String>) -> Self {
        self.api_server_flags.push(flag.into());
        self
    }

    /// Adds a flag of kube-controller-manager.
    #[must_use]
    pub fn controller_manager_flag(mut self, flag: impl Into<String>) -> Self {
        self.controller_manager_flags.push(flag.into());
        self
    }
}

/// A running control plane, which ends when this is dropped.
#[derive(Debug)]
pub struct ControlPlane {
    // Fields are dropped in this order: the clients of a server before the server, and the folder at the end.
    controller_manager: Option<Server>,
    api_server: Mutex<Option<Server>>,
    etcd: Server,
    folder: RunFolder,

    binaries: Binaries,
    api_server_port: u16,
    api_server_args: Vec<String>,
    admin_token: String,
    restricted_token: String,
    ca_pem: String,
    kubeconfig: String,
}

impl ControlPlane {
    /// Starts a control plane and waits until it is ready; blocks for about 4 s.
    ///
    /// Programs that are missing are built first, with progress on standard error.
    ///
    /// # Errors
    ///
    /// When a program is missing and cannot be built, or a server does not start; the message then has its log's end.
    pub fn start(options: &Options) -> Result<Self> {
        // Written directly, so that it is seen while a test runs whose output is captured.
        let binaries = Binaries::locate_or_build(|line| drop(writeln!(std::io::stderr(), "testbed: {line}")))?;
        Self::start_with(binaries, options)
    }

    /// Starts a control plane of these programs and waits until it is ready; blocks for about 4 s.
    ///
    /// # Errors
    ///
    /// When a server does not start; the message has its log's end.
    pub fn start_with(binaries: Binaries, options: &Options) -> Result<Self> {
        let mut attempt = 1;
        loop {
            match Self::try_start(binaries.clone(), options) {
                Err(error) if attempt < PORT_ATTEMPTS && format!("{error:#}").contains("address already in use") => {
                    attempt += 1;
                }
                result => return result.context("failed to start a control plane"),
            }
        }
    }

    fn try_start(binaries: Binaries, options: &Options) -> Result<Self> {
        let deadline = Deadline::after(START_LIMIT);
        let folder = RunFolder::create()?;
        let dir = folder.path();
        let [etcd_port, peer_port, api_server_port] = free_ports()?;

        let (admin_token, restricted_token) = (random_token()?, random_token()?);
        let tokens = dir.join("tokens.csv");
        let lines = format!("{admin_token},admin,admin,system:masters\n{restricted_token},restricted,restricted\n");
        write(&tokens, &lines)?;

        let mut etcd = Server::start("etcd", binaries.etcd(), &etcd_args(dir, etcd_port, peer_port), dir)?;
        // An API server that finds no etcd tries again only after a second.
        etcd.wait_until("it listened", deadline, PORT_PAUSE, || listens(etcd_port))?;

        let mut api_server_args = api_server_args(dir, &tokens, etcd_port, api_server_port);
        api_server_args.extend(options.api_server_flags.iter().cloned());
        let mut control_plane = Self {
            controller_manager: None,
            api_server: Mutex::new(None),
            etcd,
            folder,
            binaries,
            api_server_port,
            api_server_args,
            admin_token,
            restricted_token,
            ca_pem: String::new(),
            kubeconfig: String::new(),
        };
        let mut api_server = control_plane.spawn_api_server()?;
        api_server.wait_until("it listened", deadline, PORT_PAUSE, || listens(api_server_port))?;
        control_plane.write_kubeconfig()?;
        let ready = |path: &'static str| {
            let control_plane = &control_plane;
            move || control_plane.answers(path)
        };
        api_server.wait_until("it was ready", deadline, PROBE_PAUSE, ready("/readyz"))?;

        let mut controller_manager = None;
        if !options.controllers.is_empty() {
            // It gives up when the API server is not ready, and it waits a second between two looks: hence only now.
            let mut args = controller_manager_args(&control_plane, &options.controllers);
            args.extend(options.controller_manager_flags.iter().cloned());
            let program = control_plane.binaries.kube_controller_manager();
            controller_manager = Some(Server::start("kube-controller-manager", program, &args, control_plane.dir())?);
        }
        let exists = ready("/api/v1/namespaces/default");
        api_server.wait_until("the namespace default existed", deadline, PROBE_PAUSE, exists)?;
        if let Some(server) = &mut controller_manager
            && options.controllers.iter().any(|name| name == "serviceaccount-controller")
        {
            let exists = ready("/api/v1/namespaces/default/serviceaccounts/default");
            server.wait_until("the service account default existed", deadline, PROBE_PAUSE, exists)?;
        }
        control_plane.controller_manager = controller_manager;
        control_plane.api_server = Mutex::new(Some(api_server));
        Ok(control_plane)
    }

    /// The programs it runs.
    #[must_use]
    pub fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    /// The folder with its data and its logs, `etcd.log`, `kube-apiserver.log` and `kube-controller-manager.log`.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.folder.path()
    }

    /// The URL of the API server, `https://127.0.0.1:…`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.api_server_port)
    }

    /// The certificate authority of the API server, in PEM.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// The bearer token of a user.
    #[must_use]
    pub fn token(&self, user: User) -> &str {
        match user {
            User::Admin => &self.admin_token,
            User::Restricted => &self.restricted_token,
        }
    }

    /// A kubeconfig with the contexts `admin`, which is the current one, and `restricted`.
    #[must_use]
    pub fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }

    /// The file with the [kubeconfig](Self::kubeconfig).
    #[must_use]
    pub fn kubeconfig_path(&self) -> PathBuf {
        self.dir().join("kubeconfig")
    }

    /// A `kubectl` that talks to this control plane as the admin.
    #[must_use]
    pub fn kubectl(&self) -> Command {
        let mut command = Command::new(self.binaries.kubectl());
        command.env("KUBECONFIG", self.kubeconfig_path());
        // kubectl remembers discovery by host and port, and the port may have been another control plane's.
        command.env("KUBECACHEDIR", self.dir().join("kubectl-cache"));
        command.stdin(Stdio::null());
        command
    }

    /// A client configuration for a user; the namespace is `default`.
    ///
    /// # Errors
    ///
    /// When the kubeconfig cannot be understood.
    #[cfg(feature = "client")]
    pub async fn client_config(&self, user: User) -> Result<kube::Config> {
        let kubeconfig =
            kube::config::Kubeconfig::from_yaml(&self.kubeconfig).context("failed to read a kubeconfig")?;
        let options = kube::config::KubeConfigOptions { context: Some(user.name().to_owned()), ..Default::default() };
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
        config.context("failed to make a client configuration")
    }

    /// Kills the API server: connections break, and its port refuses new ones.
    pub fn stop_api_server(&self) {
        self.lock_api_server().take();
    }

    /// Starts the API server again, on the same port and data, and waits until it is ready; blocks for about 3 s.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub fn start_api_server(&self) -> Result<()> {
        let mut slot = self.lock_api_server();
        if slot.is_none() {
            let deadline = Deadline::after(START_LIMIT);
            let mut server = self.spawn_api_server()?;
            server.wait_until("it listened", deadline, PORT_PAUSE, || listens(self.api_server_port))?;
            server.wait_until("it was ready", deadline, PROBE_PAUSE, || self.answers("/readyz"))?;
            *slot = Some(server);
        }
        Ok(())
    }

    /// Holds the API server: connections stay open, and nothing is answered.
    ///
    /// # Errors
    ///
    /// When the process cannot be signalled.
    pub fn pause_api_server(&self) -> Result<()> {
        self.lock_api_server().as_ref().map_or(Ok(()), |server| server.signal(Signal::STOP))
    }

    /// Lets a held API server go on.
    ///
    /// # Errors
    ///
    /// When the process cannot be signalled.
    pub fn resume_api_server(&self) -> Result<()> {
        self.lock_api_server().as_ref().map_or(Ok(()), |server| server.signal(Signal::CONT))
    }

    /// The process ids of the servers that run.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        let api_server = self.lock_api_server();
        let others = [api_server.as_ref(), self.controller_manager.as_ref()];
        std::iter::once(&self.etcd).chain(others.into_iter().flatten()).map(Server::pid).collect()
    }

    fn lock_api_server(&self) -> MutexGuard<'_, Option<Server>> {
        // A test that failed while it held the lock leaves nothing half done.
        self.api_server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn_api_server(&self) -> Result<Server> {
        Server::start("kube-apiserver", self.binaries.kube_apiserver(), &self.api_server_args, self.dir())
    }

    /// Writes the kubeconfig, with the certificate that the API server has made for itself.
    fn write_kubeconfig(&mut self) -> Result<()> {
        let ca = certificates(self.dir()).join("apiserver.crt");
        self.ca_pem = fs::read_to_string(&ca).with_context(|| format!("failed to read {}", ca.display()))?;
        let tokens = [User::Admin, User::Restricted].map(|user| (user, self.token(user).to_owned()));
        self.kubeconfig = kubeconfig::render(&self.url(), &self.ca_pem, &tokens);
        write(&self.kubeconfig_path(), &self.kubeconfig)
    }

    /// Whether a GET of this path succeeds.
    fn answers(&self, path: &str) -> bool {
        // kubectl is at hand and speaks TLS; a client of our own would have to be compiled into all that starts a testbed.
        let mut command = self.kubectl();
        command.args(["get", "--raw", path, "--request-timeout=5s"]).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }
}

fn certificates(dir: &Path) -> PathBuf {
    dir.join("certificates")
}

fn etcd_args(dir: &Path, client: u16, peer: u16) -> Vec<String> {
    let (client, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
    vec![
        format!("--data-dir={}", dir.join("etcd").display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        // The data goes with the control plane, so a crash of the machine loses nothing of value.
        "--unsafe-no-fsync".to_owned(),
    ]
}

/// The flags of the API server: what it needs to run alone. What clients can see stays as it is by default.
fn api_server_args(dir: &Path, tokens: &Path, etcd: u16, port: u16) -> Vec<String> {
    let certificates = certificates(dir);
    // It makes this key and its certificate itself when it starts first, before it reads the key for service accounts.
    let key = certificates.join("apiserver.key");
    vec![
        format!("--etcd-servers=http://127.0.0.1:{etcd}"),
        "--bind-address=127.0.0.1".to_owned(),
        "--advertise-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        format!("--cert-dir={}", certificates.display()),
        "--authorization-mode=RBAC".to_owned(),
        format!("--token-auth-file={}", tokens.display()),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-signing-key-file={}", key.display()),
        format!("--service-account-key-file={}", key.display()),
        "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
        // Endpoints must not hold a loopback address: the Service `kubernetes` has none.
        "--endpoint-reconciler-type=none".to_owned(),
        // Clusters that run real workloads allow it; it is false here only by default.
        "--allow-privileged=true".to_owned(),
    ]
}

fn controller_manager_args(control_plane: &ControlPlane, controllers: &[String]) -> Vec<String> {
    let key = certificates(control_plane.dir()).join("apiserver.key");
    vec![
        format!("--kubeconfig={}", control_plane.kubeconfig_path().display()),
        format!("--controllers={}", controllers.join(",")),
        format!("--service-account-private-key-file={}", key.display()),
        // Nobody else could lead; and a leader that loses the API server for 10 s would exit.
        "--leader-elect=false".to_owned(),
        // Nobody asks it for its health.
        "--secure-port=0".to_owned(),
        // By default 20 a second: tests would mostly wait for dependents to be made and collected.
        "--kube-api-qps=1000".to_owned(),
        "--kube-api-burst=1000".to_owned(),
    ]
}

/// Ports that were free a moment ago, all different.
fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let bind = |_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    // All are held until the last one is chosen.
    let listeners = std::array::from_fn::<_, N, _>(bind);
    let mut ports = [0; N];
    for (port, listener) in ports.iter_mut().zip(listeners) {
        *port = listener.and_then(|listener| listener.local_addr()).context("failed to find a free port")?.port();
    }
    Ok(ports)
}

fn listens(port: u16) -> bool {
    TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), Duration::from_secs(1)).is_ok()
}

fn random_token() -> Result<String> {
    let mut bytes = [0; 16];
    let mut random = fs::File::open("/dev/urandom").context("failed to open /dev/urandom")?;
    random.read_exact(&mut bytes).context("failed to read /dev/urandom")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("failed to write {}", path.display()))
}
