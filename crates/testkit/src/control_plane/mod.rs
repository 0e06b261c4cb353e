//! A real control plane: etcd, kube-apiserver and kube-controller-manager on free loopback ports.
//!
//! There is no kubelet and no scheduler, so Pods remain Pending. Everything else behaves as in a cluster, because deletion
//! is done by the API server and the controllers that run here.
//!
//! Nothing outlives the process: the servers are killed and their folder is removed when a [`ControlPlane`] is dropped, and
//! also when the process ends in any other way, including SIGKILL (the servers on Linux only).

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

/// The time limit for starting a control plane. It takes 4 s on two idle cores, but tests run beside builds.
const START_LIMIT: Duration = Duration::from_secs(120);

/// The interval between attempts to connect to a port, which are cheap.
const PORT_PAUSE: Duration = Duration::from_millis(10);

/// The interval between probes of the API server, each of which runs kubectl for some 50 ms.
const PROBE_PAUSE: Duration = Duration::from_millis(50);

/// The number of attempts with new ports, as another process may take a port before a server listens on it.
const PORT_ATTEMPTS: usize = 5;

/// The controllers that deletion depends on, those that create the usual dependents, and the one that fills the roles
/// `admin`, `edit` and `view`.
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

/// A user of the control plane, who authenticates with a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// A member of `system:masters`, with all permissions.
    Admin,
    /// A user with only the permissions that RoleBindings grant to the user `restricted`.
    Restricted,
}

impl User {
    /// Returns the name of the user and of the context in the kubeconfig.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Restricted => "restricted",
        }
    }
}

/// The options of a control plane.
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
    /// Runs these controllers instead of the default ones; with none, kube-controller-manager does not run.
    #[must_use]
    pub fn controllers(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.controllers = names.into_iter().map(Into::into).collect();
        self
    }

    /// Disables kube-controller-manager, so that no garbage is collected and no namespace is ever finalized.
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

/// A running control plane, which is stopped when this is dropped.
#[derive(Debug)]
pub struct ControlPlane {
    // Fields are dropped in this order: the clients of a server before the server, and the folder last.
    controller_manager: Mutex<Option<Server>>,
    api_server: Mutex<Option<Server>>,
    etcd: Server,
    folder: RunFolder,

    binaries: Binaries,
    #[cfg_attr(not(feature = "scenarios"), expect(dead_code, reason = "only scenarios write to storage"))]
    etcd_port: u16,
    api_server_port: u16,
    api_server_args: Vec<String>,
    /// Empty if it does not run.
    controller_manager_args: Vec<String>,
    admin_token: String,
    restricted_token: String,
    ca_pem: String,
    kubeconfig: String,
}

impl ControlPlane {
    /// Starts a control plane and waits until it is ready; blocks for about 4 s.
    ///
    /// Missing programs are built first, with progress on standard error.
    ///
    /// # Errors
    ///
    /// Fails if a program is missing and cannot be built, or if a server does not start; the error then contains the end of
    /// its log.
    pub fn start(options: &Options) -> Result<Self> {
        // Written directly, so that it is visible even if the output of a test is captured.
        let binaries = Binaries::locate_or_build(|line| drop(writeln!(std::io::stderr(), "testbed: {line}")))?;
        Self::start_with(binaries, options)
    }

    /// Starts a control plane with these programs and waits until it is ready; blocks for about 4 s.
    ///
    /// # Errors
    ///
    /// Fails if a server does not start; the error contains the end of its log.
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
        // An API server that cannot reach etcd retries only after a second.
        etcd.wait_until("it listened", deadline, PORT_PAUSE, || listens(etcd_port))?;

        let mut api_server_args = api_server_args(dir, &tokens, etcd_port, api_server_port);
        api_server_args.extend(options.api_server_flags.iter().cloned());
        let mut control_plane = Self {
            controller_manager: Mutex::new(None),
            api_server: Mutex::new(None),
            etcd,
            folder,
            binaries,
            etcd_port,
            api_server_port,
            api_server_args,
            controller_manager_args: Vec::new(),
            admin_token,
            restricted_token,
            ca_pem: String::new(),
            kubeconfig: String::new(),
        };
        let mut api_server = control_plane.spawn_api_server()?;
        api_server.wait_until("it listened", deadline, PORT_PAUSE, || listens(api_server_port))?;
        control_plane.write_kubeconfig()?;
        if !options.controllers.is_empty() {
            let mut args = controller_manager_args(&control_plane, &options.controllers);
            args.extend(options.controller_manager_flags.iter().cloned());
            control_plane.controller_manager_args = args;
        }
        let ready = |path: &'static str| {
            let control_plane = &control_plane;
            move || control_plane.answers(path)
        };
        api_server.wait_until("it was ready", deadline, PROBE_PAUSE, ready("/readyz"))?;

        let mut controller_manager = None;
        if !options.controllers.is_empty() {
            // It exits if the API server is not ready, and polls only every second, so it is started only now.
            controller_manager = Some(control_plane.spawn_controller_manager()?);
        }
        let exists = ready("/api/v1/namespaces/default");
        api_server.wait_until("the namespace default existed", deadline, PROBE_PAUSE, exists)?;
        if let Some(server) = &mut controller_manager
            && options.controllers.iter().any(|name| name == "serviceaccount-controller")
        {
            let exists = ready("/api/v1/namespaces/default/serviceaccounts/default");
            server.wait_until("the service account default existed", deadline, PROBE_PAUSE, exists)?;
        }
        control_plane.controller_manager = Mutex::new(controller_manager);
        control_plane.api_server = Mutex::new(Some(api_server));
        Ok(control_plane)
    }

    /// Returns the programs of the control plane.
    #[must_use]
    pub fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    /// Returns the folder with the data and the logs `etcd.log`, `kube-apiserver.log` and `kube-controller-manager.log`.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the URL of the API server, `https://127.0.0.1:…`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.api_server_port)
    }

    /// Returns the certificate authority of the API server, in PEM.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// Returns the bearer token of a user.
    #[must_use]
    pub fn token(&self, user: User) -> &str {
        match user {
            User::Admin => &self.admin_token,
            User::Restricted => &self.restricted_token,
        }
    }

    /// Returns a kubeconfig with the contexts `admin`, which is the current one, and `restricted`.
    #[must_use]
    pub fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }

    /// Returns the file with the [kubeconfig](Self::kubeconfig).
    #[must_use]
    pub fn kubeconfig_path(&self) -> PathBuf {
        self.dir().join("kubeconfig")
    }

    /// Returns a `kubectl` command for this control plane with the user `admin`.
    #[must_use]
    pub fn kubectl(&self) -> Command {
        let mut command = Command::new(self.binaries.kubectl());
        command.env("KUBECONFIG", self.kubeconfig_path());
        // kubectl caches discovery by host and port, and another control plane may have used the port.
        command.env("KUBECACHEDIR", self.dir().join("kubectl-cache"));
        command.stdin(Stdio::null());
        command
    }

    /// Returns a client configuration for a user; the namespace is `default`.
    ///
    /// # Errors
    ///
    /// Fails if the kubeconfig cannot be parsed.
    #[cfg(feature = "client")]
    pub async fn client_config(&self, user: User) -> Result<kube::Config> {
        let kubeconfig =
            kube::config::Kubeconfig::from_yaml(&self.kubeconfig).context("failed to read a kubeconfig")?;
        let options = kube::config::KubeConfigOptions { context: Some(user.name().to_owned()), ..Default::default() };
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
        config.context("failed to create a client configuration")
    }

    /// Kills the API server: open connections break, and new ones are refused.
    pub fn stop_api_server(&self) {
        self.lock_api_server().take();
    }

    /// Starts the API server again, on the same port and data, and waits until it is ready; blocks for about 3 s.
    ///
    /// # Errors
    ///
    /// Fails if it does not start.
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

    /// Pauses the API server: connections remain open, but requests get no response.
    ///
    /// # Errors
    ///
    /// Fails if the process cannot be signalled.
    pub fn pause_api_server(&self) -> Result<()> {
        self.lock_api_server().as_ref().map_or(Ok(()), |server| server.signal(Signal::STOP))
    }

    /// Resumes a paused API server.
    ///
    /// # Errors
    ///
    /// Fails if the process cannot be signalled.
    pub fn resume_api_server(&self) -> Result<()> {
        self.lock_api_server().as_ref().map_or(Ok(()), |server| server.signal(Signal::CONT))
    }

    /// Kills kube-controller-manager: it releases no Lease that it holds.
    pub fn stop_controller_manager(&self) {
        self.lock_controller_manager().take();
    }

    /// Starts kube-controller-manager again, if it ran before.
    ///
    /// # Errors
    ///
    /// Fails if it does not start.
    pub fn start_controller_manager(&self) -> Result<()> {
        let mut slot = self.lock_controller_manager();
        if slot.is_none() && !self.controller_manager_args.is_empty() {
            *slot = Some(self.spawn_controller_manager()?);
        }
        Ok(())
    }

    /// Writes a value into etcd, past the API server.
    ///
    /// # Errors
    ///
    /// Fails if etcd rejects it.
    #[cfg(feature = "scenarios")]
    pub fn write_to_storage(&self, key: &str, value: &str) -> Result<()> {
        use base64::{Engine as _, engine::general_purpose::STANDARD};

        let body = serde_json::json!({"key": STANDARD.encode(key), "value": STANDARD.encode(value)}).to_string();
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.etcd_port)).context("failed to reach etcd")?;
        let length = body.len();
        write!(stream, "POST /v3/kv/put HTTP/1.0\r\nHost: etcd\r\nContent-Length: {length}\r\n\r\n{body}")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).context("failed to read the answer of etcd")?;
        let status = answer.lines().next().unwrap_or_default();
        anyhow::ensure!(status.ends_with(" 200 OK"), "etcd answered: {answer}");
        Ok(())
    }

    /// Returns the process ids of the running servers.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        let (api_server, controller_manager) = (self.lock_api_server(), self.lock_controller_manager());
        let others = [api_server.as_ref(), controller_manager.as_ref()];
        std::iter::once(&self.etcd).chain(others.into_iter().flatten()).map(Server::pid).collect()
    }

    fn lock_api_server(&self) -> MutexGuard<'_, Option<Server>> {
        // A test that failed with the lock held leaves no incomplete state.
        self.api_server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_controller_manager(&self) -> MutexGuard<'_, Option<Server>> {
        self.controller_manager.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn_controller_manager(&self) -> Result<Server> {
        let program = self.binaries.kube_controller_manager();
        Server::start("kube-controller-manager", program, &self.controller_manager_args, self.dir())
    }

    fn spawn_api_server(&self) -> Result<Server> {
        Server::start("kube-apiserver", self.binaries.kube_apiserver(), &self.api_server_args, self.dir())
    }

    /// Writes the kubeconfig with the certificate that the API server created.
    fn write_kubeconfig(&mut self) -> Result<()> {
        let ca = certificates(self.dir()).join("apiserver.crt");
        self.ca_pem = fs::read_to_string(&ca).with_context(|| format!("failed to read {}", ca.display()))?;
        let tokens = [User::Admin, User::Restricted].map(|user| (user, self.token(user).to_owned()));
        self.kubeconfig = kubeconfig::render(&self.url(), &self.ca_pem, &tokens);
        write(&self.kubeconfig_path(), &self.kubeconfig)
    }

    /// Returns whether a GET request for this path succeeds.
    fn answers(&self, path: &str) -> bool {
        // kubectl supports TLS and is always available; a client would be compiled into every program that starts a testbed.
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
        // The data is removed with the control plane, so it need not survive a crash of the machine.
        "--unsafe-no-fsync".to_owned(),
    ]
}

/// Returns the flags that the API server needs to run alone. Everything that clients can observe keeps its default.
fn api_server_args(dir: &Path, tokens: &Path, etcd: u16, port: u16) -> Vec<String> {
    let certificates = certificates(dir);
    // It creates this key and its certificate on the first start, before it reads the key for service accounts.
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
        // Endpoints cannot have a loopback address, so the Service `kubernetes` has no endpoints.
        "--endpoint-reconciler-type=none".to_owned(),
        // Real clusters enable this; only the default of the flag is false.
        "--allow-privileged=true".to_owned(),
    ]
}

fn controller_manager_args(control_plane: &ControlPlane, controllers: &[String]) -> Vec<String> {
    let key = certificates(control_plane.dir()).join("apiserver.key");
    vec![
        format!("--kubeconfig={}", control_plane.kubeconfig_path().display()),
        format!("--controllers={}", controllers.join(",")),
        format!("--service-account-private-key-file={}", key.display()),
        // There is no other replica, and a leader that cannot reach the API server for 10 s would exit.
        "--leader-elect=false".to_owned(),
        // Its health endpoint is not used.
        "--secure-port=0".to_owned(),
        // The default of 20 requests per second would make tests wait for the creation and collection of dependents.
        "--kube-api-qps=1000".to_owned(),
        "--kube-api-burst=1000".to_owned(),
    ]
}

/// Returns different ports that are free at the moment.
fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let bind = |_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    // All listeners are kept open until the last port is chosen.
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
