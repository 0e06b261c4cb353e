//! Runs the image's programs with the image as their file system, as a container engine would: the root is read-only, `/tmp` is
//! a volume, and the user is that of the image.

use std::{
    fs::{self, File},
    io::Read as _,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, Stdio},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use billhook_testkit::control_plane::{ControlPlane, Options};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use rustix::process::{Pid, Signal, kill_process_group};

use super::{VERSION, stdout, text, write};
use crate::progress;

/// Makes the folder `$1` the root of a program, which has the environment of the image and `$2`.
const CONTAINER: &str = r#"
root=$1; kubeconfig=$2; user=$3; shift 3
chroot=$(command -v chroot)
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -o remount,bind,ro "$root"
exec env -i PATH=/usr/local/bin KUBECONFIG="$kubeconfig" "$chroot" $user "$root" "$@"
"#;

/// Returns the paths and modes in an archive. Everything in it belongs to root and has no time.
pub(super) fn listing(tar: &[u8]) -> Vec<(String, u32)> {
    let mut archive = tar::Archive::new(tar);
    let entries = archive.entries().unwrap().map(|entry| {
        let entry = entry.unwrap();
        let header = entry.header();
        let facts = [header.uid().unwrap(), header.gid().unwrap(), header.mtime().unwrap()];
        assert_eq!(facts, [0; 3], "{:?}", entry.path());
        (entry.path().unwrap().to_str().unwrap().to_owned(), header.mode().unwrap())
    });
    entries.collect()
}

pub(super) fn decompress(content: &[u8]) -> Vec<u8> {
    let mut tar = Vec::new();
    GzDecoder::new(content).read_to_end(&mut tar).unwrap();
    tar
}

/// Returns a command that runs another one in its own namespaces, which end with it. Only root has other users to change to.
fn unshare() -> (Command, &'static str) {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child"]);
    if rustix::process::geteuid().is_root() {
        (command, "--userspec=65532:65532 --groups=")
    } else {
        command.arg("--map-root-user");
        (command, "")
    }
}

/// Returns a command that runs a program of the image.
fn inside(root: &Path, args: &[&str]) -> Command {
    let (mut command, user) = unshare();
    command.args(["sh", "-euc", CONTAINER, "sh"]).arg(root).args(["/kubeconfig", user]).args(args);
    command
}

/// A program in a process group of its own, which ends as a whole. `--kill-child` is not enough: a process that changes its user
/// loses the signal that this asks for.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ended = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ended = self.0.wait();
    }
}

/// Runs both programs; then the controller deploys a chart to a real control plane.
pub(super) fn check(root: &Path) {
    let possible = unshare().0.arg("true").stderr(Stdio::null()).status().is_ok_and(|status| status.success());
    if !possible {
        assert!(std::env::var_os("CI").is_none(), "this machine does not allow new namespaces");
        return progress("skipped: this machine does not allow new namespaces, in which the image could run");
    }
    // Container engines create these.
    for folder in ["proc", "dev"] {
        fs::create_dir(root.join(folder)).unwrap();
    }
    let plane = ControlPlane::start(&Options::default()).unwrap();
    write(&root.join("kubeconfig"), plane.kubeconfig()).unwrap();

    let said = |args: &[&str]| String::from_utf8(stdout(&mut inside(root, args))).unwrap();
    assert_eq!(said(&["/usr/local/bin/billhook", "--version"]).trim(), format!("billhook {VERSION}"));
    assert!(said(&["/usr/local/bin/helm", "version", "--short"]).starts_with("v4."));

    let kubectl = |args: &[&str]| stdout(plane.kubectl().args(args).current_dir(super::ROOT));
    let kubeconfig = format!("--from-file=kubeconfig={}", plane.kubeconfig_path().display());
    for args in [
        &["create", "namespace", "billhook-walk"][..],
        &["apply", "-f", "deploy/crds"],
        &["wait", "--for=condition=Established", "--timeout=60s", "-f", "deploy/crds"],
        &["create", "secret", "generic", "cluster", "-n", "billhook-walk", &kubeconfig],
        &["apply", "-n", "billhook-walk", "-f", "demo/deployitem/target.yaml"],
    ] {
        kubectl(args);
    }
    let mut chart = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    chart.append_dir_all("shop", Path::new(super::ROOT).join("demo/deployitem/shop")).unwrap();
    let chart = BASE64_STANDARD.encode(chart.into_inner().unwrap().finish().unwrap());
    let item = root.with_file_name("item.yaml");
    write(&item, text("demo/deployitem/item.yaml").replace("CHART", &chart)).unwrap();
    kubectl(&["apply", "-n", "billhook-walk", "-f", item.to_str().unwrap()]);

    let log = root.with_file_name("controller.log");
    let arguments = ["/usr/local/bin/billhook", "controller", "--mode=standalone", "--watch-namespace=billhook-walk"];
    let mut controller = inside(root, &arguments);
    controller.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log).unwrap());
    let _controller = Running(controller.process_group(0).spawn().unwrap());
    let wait = [
        "wait",
        "-n",
        "billhook-walk",
        "deployitem/shop",
        "--for=jsonpath={.status.phase}=Succeeded",
        "--timeout=120s",
    ];
    let waited = plane.kubectl().args(wait).output().unwrap();
    assert!(
        waited.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&waited.stderr),
        fs::read_to_string(&log).unwrap()
    );
    kubectl(&["get", "-n", "billhook-walk", "configmap/books", "serviceaccount/clerk"]);
}
