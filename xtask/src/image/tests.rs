//! Tests of the image: its parts, and the whole, pushed to a registry and run with nothing else.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, ChildStderr, Stdio},
};

use serde_json::{Value, json};

use super::*;

mod run;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn text(path: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(path)).unwrap()
}

/// Returns a program that `cargo xtask test` has built; `None`, with a message, if the variable is not set. In CI that is a
/// failure.
fn tool(variable: &str) -> Option<PathBuf> {
    let named = std::env::var_os(variable).map(PathBuf::from);
    if named.is_none() {
        assert!(std::env::var_os("CI").is_none(), "{variable} must be set in CI: run `cargo xtask test`");
        progress(&format!("skipped: set {variable} to the path of the program, or run `cargo xtask test`"));
    }
    named
}

/// Runs a command, which must succeed, and returns what it prints.
fn stdout(command: &mut Command) -> Vec<u8> {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[test]
fn a_layer_is_the_same_archive_whatever_the_order_and_has_the_modes() {
    let one = Layer::new("a").file("usr/bin/x", 0o755, "x").file("etc/b", 0o644, "b").folder("tmp", 0o1777);
    let other = Layer::new("a").folder("tmp", 0o1777).file("etc/b", 0o644, "b").file("usr/bin/x", 0o755, "x");
    let archive = one.tar().unwrap();
    assert_eq!(archive, other.tar().unwrap());
    assert_eq!(layer::compress(&archive).unwrap(), layer::compress(&archive).unwrap());
    assert_eq!(
        run::listing(&archive),
        [
            ("etc/", 0o755),
            ("etc/b", 0o644),
            ("tmp/", 0o1777),
            ("usr/", 0o755),
            ("usr/bin/", 0o755),
            ("usr/bin/x", 0o755)
        ]
        .map(|(path, mode)| (path.to_owned(), mode))
    );
    let folder = tempfile::tempdir().unwrap();
    one.unpack(&folder.path().join("a")).unwrap();
    let mode = |path: &str| {
        use std::os::unix::fs::PermissionsExt as _;
        fs::metadata(folder.path().join("a").join(path)).unwrap().permissions().mode() & 0o7777
    };
    assert_eq!([mode("tmp"), mode("usr/bin/x"), mode("etc/b")], [0o1777, 0o755, 0o644]);
}

#[test]
fn only_static_programs_are_packed() {
    let check = |content: &[u8], expected: &str| {
        let problem = program::architecture_of_static(content, Path::new("p")).unwrap_err().to_string();
        assert!(problem.contains(expected), "{problem}");
    };
    // Cargo links this test dynamically.
    let this = read(&std::env::current_exe().unwrap()).unwrap();
    check(&this, "p is linked dynamically");
    check(&this[..40], "p is not a program for 64-bit Linux");
    check(b"#!/bin/sh\n", "p is not a program for 64-bit Linux");
    check(b"", "p is not a program for 64-bit Linux");
}

#[test]
fn a_folder_that_is_no_layout_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("precious"), "x").unwrap();
    let layers = [Layer::new("base").folder("tmp", 0o1777)];
    let problem = layout::write(folder.path(), &layers, "amd64").unwrap_err().to_string();
    assert!(problem.contains("is no image layout"), "{problem}");
    assert!(folder.path().join("precious").exists());

    // An earlier layout is, without what only that one contains.
    let out = folder.path().join("layout");
    layout::write(&out, &[Layer::new("base").folder("old", 0o755)], "amd64").unwrap();
    let digest = layout::write(&out, &layers, "amd64").unwrap();
    assert_eq!(layout::write(&out, &layers, "amd64").unwrap(), digest);
    assert_ne!(layout::write(&folder.path().join("other"), &layers, "arm64").unwrap(), digest);
    assert_eq!(fs::read_dir(out.join("blobs/sha256")).unwrap().count(), 3, "layer, configuration and manifest");
}

#[test]
fn a_repository_is_named_without_a_tag() {
    for right in ["registry.example/billhook", "127.0.0.1:5000/a/b-c.d_e", "localhost:5000/billhook"] {
        release::check_repository(right).unwrap();
    }
    for wrong in [
        "",
        "billhook",
        "/billhook",
        "registry.example/",
        "registry.example/a:1",
        "r.example/a@sha256:0",
        "r:x/a",
        "r/a b",
    ] {
        assert!(release::check_repository(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn the_dockerfile_builds_the_same_image() {
    let dockerfile = text("Dockerfile");
    let (build, image) = dockerfile.split_once("\nFROM scratch\n").unwrap();
    let channel =
        text("rust-toolchain.toml").lines().find_map(|line| line.strip_prefix("channel = ").map(str::to_owned));
    let channel = channel.unwrap();
    let channel = channel.trim_matches('"');
    assert!(build.contains(&format!("FROM docker.io/library/rust:{channel}-")), "{build}");
    assert!(build.contains(&format!("\nENV RUSTUP_TOOLCHAIN={channel}\n")), "{build}");
    let go = text("testbed/helm/go.mod");
    let go = go.lines().find_map(|line| line.strip_prefix("go ")).unwrap().rsplit_once('.').unwrap().0;
    assert!(build.contains(&format!("--from=docker.io/library/golang:{go}-")), "{build}");
    assert!(build.ends_with("RUN cargo xtask image --layers /layers\n"), "{build}");

    let copies = ["base", "helm", "billhook"].map(|layer| format!("COPY --from=build /layers/{layer} /"));
    let labels = contents::LABELS.map(|(key, value)| format!("LABEL {key}={value:?}"));
    let rest = [
        format!("ENV PATH={}", contents::PATH),
        format!("USER {}", contents::USER),
        format!("VOLUME [{:?}]", contents::VOLUME),
        "WORKDIR /".to_owned(),
        format!("ENTRYPOINT [{:?}]", contents::ENTRYPOINT),
    ];
    assert_eq!(image.lines().collect::<Vec<_>>(), [copies.as_slice(), &labels, &rest].concat());
}

#[test]
fn a_release_refers_to_the_image_by_version_and_digest_everywhere() {
    let (Some(helm), Some(kubectl)) = (tool("BILLHOOK_HELM"), tool("BILLHOOK_KUBECTL")) else { return };
    let folder = tempfile::tempdir().unwrap();
    let deploy = folder.path().join("deploy");
    let digest = layout::digest(b"");
    release::write(&Path::new(ROOT).join("deploy"), &deploy, "registry.example:5000/a/billhook", &digest).unwrap();
    let expected = format!("image: registry.example:5000/a/billhook:{VERSION}@{digest}");
    let images = |command: &mut Command| {
        let printed = String::from_utf8(stdout(command)).unwrap();
        let images: Vec<_> = printed.lines().map(str::trim).filter(|line| line.starts_with("image: ")).collect();
        images.iter().map(|image| (*image).to_owned()).collect::<Vec<_>>()
    };
    for kustomization in ["kustomize/example", "kustomize/webhook-example"] {
        let found = images(Command::new(&kubectl).arg("kustomize").arg(deploy.join(kustomization)));
        assert_eq!(found, [&*expected], "{kustomization}");
    }
    let values = ["--set=webhook.create=true,webhook.certManager=true,dashboard.create=true"];
    let found = images(Command::new(&helm).args(["template", "billhook"]).arg(deploy.join("chart")).args(values));
    assert_eq!(found, [&*expected, &*expected]);
}

/// A registry on a loopback port, which ends with this.
struct Registry {
    process: Child,
    host: String,
    _config: tempfile::NamedTempFile,
    _log: BufReader<ChildStderr>,
}

impl Registry {
    fn start() -> Self {
        let config = tempfile::NamedTempFile::new().unwrap();
        let settings = json!({
            "version": "0.1",
            "log": { "level": "info" },
            "storage": { "inmemory": {} },
            "http": { "addr": "127.0.0.1:0" },
        });
        write(config.path(), settings.to_string()).unwrap();
        let mut command = Command::new(Binaries::registry(progress).unwrap());
        command.arg("serve").arg(config.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap());
        let mut printed = String::new();
        let host = loop {
            assert_ne!(log.read_line(&mut printed).unwrap(), 0, "the registry has ended: {printed}");
            if let Some((_, rest)) = printed.split_once("listening on ") {
                break rest.split([',', '"', ' ', '\n']).next().unwrap().to_owned();
            }
        };
        Self { process, host, _config: config, _log: log }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _ended = self.process.wait();
    }
}

/// Reads a blob of a layout.
fn blob(layout: &Path, descriptor: &Value) -> Vec<u8> {
    let digest = descriptor["digest"].as_str().unwrap();
    let content = read(&layout.join("blobs").join(digest.replace(':', "/"))).unwrap();
    assert_eq!(layout::digest(&content), digest);
    content
}

#[test]
fn the_pushed_image_contains_two_programs_and_runs() {
    if tool("BILLHOOK_HELM").is_none() {
        return;
    }
    let (billhook, helm) = (build_for_tests().unwrap(), Binaries::helm(progress).unwrap());
    let crane = Binaries::crane(progress).unwrap();
    let (layers, architecture) = contents::layers(&billhook, &helm).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("layout");
    let digest = layout::write(&out, &layers, architecture).unwrap();
    let registry = Registry::start();
    let repository = format!("{}/billhook", registry.host);
    let reference = format!("{repository}:{VERSION}");
    push(&crane, &out, &repository, &digest, false).unwrap();

    // The second time, there is nothing to do; another image does not take the tag away unless that is requested.
    push(&crane, &out, &repository, &digest, false).unwrap();
    let other = folder.path().join("other");
    let of_other = layout::write(&other, &layers[..1], architecture).unwrap();
    let problem = push(&crane, &other, &repository, &of_other, false).unwrap_err().to_string();
    assert!(problem.contains(&format!("is another image ({digest})")), "{problem}");
    push(&crane, &other, &repository, &of_other, true).unwrap();
    push(&crane, &out, &repository, &digest, true).unwrap();

    // What others pull is what was written.
    let pulled = folder.path().join("pulled");
    stdout(Command::new(&crane).args(["pull", "--format=oci", &reference]).arg(&pulled));
    let index: Value = serde_json::from_slice(&read(&pulled.join("index.json")).unwrap()).unwrap();
    assert_eq!(index["manifests"][0]["digest"], *digest);
    let manifest: Value = serde_json::from_slice(&blob(&pulled, &index["manifests"][0])).unwrap();
    assert_eq!(manifest["annotations"]["org.opencontainers.image.version"], VERSION);
    let configuration: Value = serde_json::from_slice(&blob(&pulled, &manifest["config"])).unwrap();
    assert_eq!([&configuration["os"], &configuration["architecture"]], ["linux", architecture]);
    let config = &configuration["config"];
    assert_eq!(config["Entrypoint"], json!(["/usr/local/bin/billhook"]));
    assert_eq!([&config["User"], &config["WorkingDir"]], ["65532:65532", "/"]);
    assert_eq!(config["Env"], json!(["PATH=/usr/local/bin"]));
    assert_eq!(config["Labels"], manifest["annotations"]);
    assert_eq!(config["Cmd"], Value::Null);

    let parents = [("usr/", 0o755), ("usr/local/", 0o755), ("usr/local/bin/", 0o755)];
    let program = |path| [parents.as_slice(), &[(path, 0o755)]].concat();
    let base = vec![
        ("etc/", 0o755),
        ("etc/group", 0o644),
        ("etc/nsswitch.conf", 0o644),
        ("etc/passwd", 0o644),
        ("etc/ssl/", 0o755),
        ("etc/ssl/certs/", 0o755),
        ("etc/ssl/certs/ca-certificates.crt", 0o644),
        ("tmp/", 0o1777),
        ("usr/", 0o755),
        ("usr/share/", 0o755),
        ("usr/share/licenses/", 0o755),
        ("usr/share/licenses/Apache-2.0.txt", 0o644),
        ("usr/share/licenses/CDLA-Permissive-2.0.txt", 0o644),
    ];
    let expected = [base, program("usr/local/bin/helm"), program("usr/local/bin/billhook")];
    let descriptors = manifest["layers"].as_array().unwrap();
    let diff_ids = configuration["rootfs"]["diff_ids"].as_array().unwrap();
    assert_eq!([descriptors.len(), diff_ids.len()], [3; 2]);
    for ((descriptor, diff_id), expected) in descriptors.iter().zip(diff_ids).zip(expected) {
        let tar = run::decompress(&blob(&pulled, descriptor));
        assert_eq!(*diff_id, *layout::digest(&tar));
        let listing = run::listing(&tar);
        let listing: Vec<_> = listing.iter().map(|(path, mode)| (path.as_str(), *mode)).collect();
        assert_eq!(listing, expected);
    }

    let root = folder.path().join("root");
    let tar = stdout(Command::new(&crane).args(["export", &reference, "-"]));
    layer::unpack(&tar, &root).unwrap();
    run::check(&root);
}
