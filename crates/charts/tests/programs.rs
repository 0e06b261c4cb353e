//! Charts and kustomizations rendered by the real programs.
//!
//! `BILLHOOK_HELM` and `BILLHOOK_KUBECTL` name the programs; `cargo xtask test` sets both. The default is the PATH.

#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "a test fails by panicking, and reports what it skips")]

use std::{
    error::Error as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use billhook_charts::{
    Capabilities, Chart, DeployOptions, Error, ErrorKind, Helm, HelmUsers, ProgramError, Release, RepositoryAuth,
    Source, install_or_upgrade, kustomize, template,
};
use billhook_objects::ObjectKey;
use billhook_policy::ChartSource;
use flate2::{Compression, write::GzEncoder};
use tokio_util::sync::CancellationToken;

/// Returns the program to test with; `None`, with a message, if there is none. In CI that is a failure.
fn program(variable: &str, name: &str) -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(variable) {
        return Some(path.into());
    }
    assert!(std::env::var_os("CI").is_none(), "{variable} must be set in CI: run `cargo xtask test`");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file());
    if found.is_none() {
        eprintln!("skipped: {name} is not on the PATH; set {variable} to its path");
    }
    found
}

/// Returns helm; `None`, with a message, if there is none.
fn helm() -> Option<Helm> {
    program("BILLHOOK_HELM", "helm").map(Helm::new)
}

fn write(folder: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

const CRD: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: widgets.a.example
";

const CONFIG_MAPS: &str = r#"{{- range list "a" "b" }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ $.Release.Name }}-{{ . }}
  namespace: {{ $.Release.Namespace }}
data:
  color: {{ $.Values.color | quote }}
  size: {{ $.Values.size | quote }}
  shape: {{ $.Values.shape | quote }}
  kubernetes: {{ $.Capabilities.KubeVersion.Version | quote }}
  widgets: {{ $.Capabilities.APIVersions.Has "a.example/v1" | quote }}
{{- end }}
"#;

const HOOKS: &str = r#"{{- range $name, $events := dict "first" "pre-install,pre-upgrade" "last" "post-delete" "mixed" "post-upgrade, pre-delete" "back" "pre-rollback" "probe" "test" "old-probe" "test-success" }}
---
apiVersion: v1
kind: Pod
metadata:
  name: {{ $name }}
  annotations:
    "helm.sh/hook": {{ $events | quote }}
{{- end }}
"#;

fn chart(folder: &Path) -> Chart {
    write(
        folder,
        &[
            ("Chart.yaml", "apiVersion: v2\nname: demo\nversion: 1.2.3\n"),
            ("values.yaml", "color: red\nsize: small\nshape: flat\n"),
            ("crds/widgets.yaml", CRD),
            ("templates/config.yaml", CONFIG_MAPS),
            ("templates/hooks.yaml", HOOKS),
            ("templates/empty.yaml", "{{- if false }}\nkind: Nothing\n{{- end }}\n"),
            ("templates/NOTES.txt", "Thank you for installing {{ .Chart.Name }}.\n"),
        ],
    );
    reference(&folder.display().to_string())
}

fn reference(reference: &str) -> Chart {
    Source::Reference { reference: reference.to_owned(), version: None }.into()
}

const RELEASE: Release<'_> = Release { name: "shop", namespace: "store", values: None, values_files: &[], set: &[] };

fn names(keys: &[ObjectKey]) -> Vec<&str> {
    let mut names: Vec<_> = keys.iter().map(|key| key.name.as_str()).collect();
    names.sort_unstable();
    names
}

/// Returns the text of an error with all its causes.
fn message(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

#[tokio::test]
async fn a_chart_is_rendered_to_crds_objects_and_hooks_without_tests() {
    let Some(helm) = helm() else { return };
    let folder = tempfile::tempdir().unwrap();
    let rendered = template(&chart(folder.path()), &RELEASE, None, None, &helm).await.unwrap();
    let keys: Vec<_> = rendered.manifests.iter().map(|m| m.key.to_string()).collect();
    assert_eq!(
        keys,
        [
            "CustomResourceDefinition.apiextensions.k8s.io/widgets.a.example",
            "ConfigMap/store/shop-a",
            "ConfigMap/store/shop-b",
            "Pod/first",
            "Pod/mixed",
        ]
    );
    assert_eq!(names(&rendered.hooks_deployed), ["first", "mixed"]);
    assert_eq!(names(&rendered.hooks_left_out), ["back", "last"]);
    assert_eq!(names(&rendered.tests_left_out), ["old-probe", "probe"]);
    let files: Vec<_> = rendered.manifests.iter().map(|m| m.source.file.as_ref()).collect();
    assert_eq!(files[..2], ["demo/crds/widgets.yaml", "demo/templates/config.yaml"]);
    assert_eq!(files[4], "demo/templates/hooks.yaml");
}

#[tokio::test]
async fn values_and_capabilities_reach_the_templates() {
    let Some(helm) = helm() else { return };
    let folder = tempfile::tempdir().unwrap();
    let chart = chart(&folder.path().join("demo"));
    write(folder.path(), &[("one.yaml", "color: green\nsize: large\n"), ("two.yaml", "color: blue\n")]);
    let files = ["one.yaml", "two.yaml"].map(|file| folder.path().join(file));
    let values = serde_json::json!({"color": "white", "shape": "round"});
    let set = ["size=huge".to_owned()];
    let release = Release { values: Some(&values), values_files: &files, set: &set, ..RELEASE };
    let capabilities =
        Capabilities { kube_version: "v1.31.7".to_owned(), api_versions: vec!["a.example/v1".to_owned()] };
    let rendered = template(&chart, &release, Some(&capabilities), None, &helm).await.unwrap();
    let value = rendered.manifests[1].value();
    let data = &value["data"];
    let expected = serde_json::json!({"color": "blue", "size": "huge", "shape": "round", "kubernetes": "v1.31.7", "widgets": "true"});
    assert_eq!(data, &expected);
}

#[tokio::test]
async fn the_error_contains_the_message_of_helm() {
    let Some(helm) = helm() else { return };
    let folder = tempfile::tempdir().unwrap();
    let chart = chart(folder.path());
    write(folder.path(), &[("templates/broken.yaml", "a: {{ required \"color of the moon\" .Values.moon }}\n")]);
    let error = template(&chart, &RELEASE, None, None, &helm).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Program(ProgramError::Failed { .. })), "{error:?}");
    assert!(message(&error).starts_with(&format!("render chart {}: ", chart.source)), "{}", message(&error));
    assert!(message(&error).contains("color of the moon"), "{}", message(&error));
}

#[tokio::test]
async fn a_chart_is_not_parsed_as_a_flag() {
    let Some(helm) = helm() else { return };
    let chart = reference("--help");
    assert!(template(&chart, &RELEASE, None, None, &helm).await.is_err());
}

#[tokio::test]
async fn an_invalid_object_is_reported_with_its_template() {
    let Some(helm) = helm() else { return };
    let folder = tempfile::tempdir().unwrap();
    write(
        folder.path(),
        &[
            ("Chart.yaml", "apiVersion: v2\nname: demo\nversion: 1.2.3\n"),
            ("templates/a.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {generateName: a-}\n"),
            ("templates/b.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {}\n"),
        ],
    );
    let chart = reference(&folder.path().display().to_string());
    let error = template(&chart, &RELEASE, None, None, &helm).await.unwrap_err();
    let ErrorKind::Manifests(errors) = &error.kind else { panic!("{error:?}") };
    let mut files: Vec<_> = errors.iter().map(|error| error.source_line.file.as_ref()).collect();
    files.sort_unstable();
    assert_eq!(files, ["demo/templates/a.yaml", "demo/templates/b.yaml"]);
}

#[tokio::test]
async fn the_error_for_a_missing_program_tells_what_to_install() {
    let nowhere = Helm::new("/nowhere/helm");
    let chart = reference("demo");
    let error = template(&chart, &RELEASE, None, None, &nowhere).await.unwrap_err();
    assert_eq!(message(&error), "render chart demo: program /nowhere/helm not found: install helm 3.8 or newer");
    let error = kustomize(Path::new("base"), Path::new("/nowhere/kubectl")).await.unwrap_err();
    assert_eq!(message(&error), "render kustomization base: program /nowhere/kubectl not found: install kubectl");
}

/// Returns a packed chart without templates.
fn packed() -> Vec<u8> {
    packed_with(&[])
}

/// Returns a packed chart with these files.
fn packed_with(files: &[(&str, &str)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (name, text) in [("Chart.yaml", "apiVersion: v2\nname: demo\nversion: 1.2.3\n")].iter().chain(files) {
        let mut header = tar::Header::new_ustar();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, format!("demo/{name}"), text.as_bytes()).unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap()
}

/// Creates a script that is used in place of helm.
fn script(folder: &Path, text: &str) -> Helm {
    write(folder, &[("helm", text)]);
    let path = folder.join("helm");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    Helm::new(path)
}

#[tokio::test]
async fn helm_gets_no_credentials_and_its_files_are_readable_for_nobody_else_and_not_left_behind() {
    let folder = tempfile::tempdir().unwrap();
    // The script records its folder, the permissions of all files in it, and what contains a password.
    let helm = script(
        folder.path(),
        "#!/bin/sh\numask 077\nexec 3>>\"$(dirname \"$0\")/out\"\npwd >&3\n\
         find \"$PWD\" -exec ls -ld {} + | cut -c1-10 >&3\necho \"arguments: $*\" >&3\n\
         grep -rc sesame \"$PWD\" | grep -v ':0$' >&3\nenv | grep sesame >&3\n\
         echo '{kind: Pod, apiVersion: v1, metadata: {name: a}}'\n",
    );
    let mut chart = Chart::from(ChartSource::Archive(packed()));
    chart.credentials.repositories.push(RepositoryAuth {
        url: "https://a.example".to_owned(),
        auth_header: Some("Bearer sesame".to_owned()),
        ..RepositoryAuth::default()
    });
    let config = r#"{"auths": {"https://b.example/v1/": {"username": "me", "password": "sesame"}}}"#;
    chart.credentials.add_docker_config(config).unwrap();
    template(&chart, &RELEASE, None, None, &helm).await.unwrap();
    let out = std::fs::read_to_string(folder.path().join("out")).unwrap();
    let lines = |prefix: &str| -> Vec<_> { out.lines().filter_map(|line| line.strip_prefix(prefix)).collect() };
    assert_eq!(lines("arguments: ").len(), 1, "{out}");
    assert!(!out.contains("sesame"), "{out}");
    assert!(lines("d").iter().chain(&lines("-")).all(|rights| rights.ends_with("------")), "{out}");
    assert!(lines("d").len() > 1 && !lines("-").is_empty(), "{out}");
    assert!(lines("/").iter().all(|folder| !Path::new(&format!("/{folder}")).exists()), "{out}");
    let debug = format!("{chart:?}");
    assert!(!debug.contains("sesame"), "{debug}");
}

#[tokio::test]
async fn values_with_characters_that_yaml_treats_specially_reach_the_chart_as_they_are() {
    let Some(helm) = helm() else { return };
    let template_of_text =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {text: '{{ .Values.text | b64enc }}'}\n";
    let chart = Chart::from(ChartSource::Archive(packed_with(&[("templates/a.yaml", template_of_text)])));
    for text in [
        "a \u{85} b",
        "a \u{2028} b",
        "a \u{2029} b",
        "\u{feff}a",
        "\u{7f}",
        "\u{80}\u{9f}",
        "\u{fffe}",
        "é\u{1f600}\\u0085\"\n",
    ] {
        let values = serde_json::json!({ "text": text });
        let release = Release { values: Some(&values), ..RELEASE };
        let rendered = template(&chart, &release, None, None, &helm).await.map_err(|error| message(&error)).unwrap();
        let found = rendered.manifests[0].value()["data"]["text"].as_str().unwrap().to_owned();
        let expected = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text);
        assert_eq!(found, expected, "{text:?}");
    }
}

#[tokio::test]
async fn helm_is_killed_when_the_future_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let helm = script(folder.path(), "#!/bin/sh\nexec >\"$(dirname \"$0\")/pipe\"\nexec sleep 1000\n");
    let chart = reference("demo");
    let mut opened = tokio::task::spawn_blocking(move || std::fs::File::open(pipe));
    let mut file = tokio::select! {
        rendered = template(&chart, &RELEASE, None, None, &helm) => panic!("{rendered:?}"),
        file = &mut opened => file.unwrap().unwrap(),
    };
    // Reading ends when no program has the pipe open for writing.
    let read = tokio::task::spawn_blocking(move || std::io::Read::read(&mut file, &mut [0; 1]));
    assert_eq!(read.await.unwrap().unwrap(), 0);
}

/// A script in place of helm that prints a version, and otherwise opens the pipe `pipe` beside it and runs `rest`.
fn waiting(folder: &Path, rest: &str) -> (Helm, PathBuf) {
    let pipe = folder.join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let text = format!("#!/bin/sh\n[ \"$1\" = version ] && echo v4.3.1 && exit\n{rest}");
    (script(folder, &text.replace("PIPE", pipe.to_str().unwrap())), pipe)
}

/// Deploys a release, stops it as soon as helm has opened the pipe, and returns what was written to the pipe.
async fn stop_deployment(helm: &Helm, pipe: PathBuf) -> (Result<(), Error>, String) {
    let stop = CancellationToken::new();
    // A blocking task of the runtime would hold a paused clock.
    let opened = std::thread::spawn({
        let stop = stop.clone();
        move || {
            let mut file = std::fs::File::open(pipe).unwrap();
            let mut first = [0; 6];
            std::io::Read::read_exact(&mut file, &mut first).unwrap();
            assert_eq!(&first, b"ready\n");
            stop.cancel();
            // Reading ends when no program has the pipe open for writing.
            std::io::read_to_string(file).unwrap()
        }
    });
    let chart = Chart::from(ChartSource::Archive(packed()));
    let helm = helm.stopped_by(stop);
    let ended = install_or_upgrade(&chart, &RELEASE, &DeployOptions::default(), "{}", &helm).await;
    (ended, opened.join().unwrap())
}

#[tokio::test]
async fn helm_is_asked_to_stop_and_can_end_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let rest = "exec 3>PIPE\ntrap 'echo rolled back >&3; echo interrupted >&2; exit 1' TERM\necho ready >&3\n\
                sleep 1000 &\nwait\n";
    let (helm, pipe) = waiting(folder.path(), rest);
    let (ended, written) = stop_deployment(&helm, pipe).await;
    assert_eq!(written, "rolled back\n");
    let error = message(&ended.unwrap_err());
    assert!(error.ends_with("interrupted"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_helm_that_does_not_stop_is_killed_with_its_programs() {
    let folder = tempfile::tempdir().unwrap();
    let rest = "exec 3>PIPE\ntrap '' TERM\nsleep 1000 &\necho ready >&3\nsleep 1000\n";
    let (helm, pipe) = waiting(folder.path(), rest);
    let (ended, written) = stop_deployment(&helm, pipe).await;
    assert_eq!(written, "");
    let error = message(&ended.unwrap_err());
    assert!(error.ends_with("was stopped"), "{error}");
}

#[tokio::test]
async fn helm_inherits_no_variables_and_has_limits() {
    let folder = tempfile::tempdir().unwrap();
    let helm = script(
        folder.path(),
        "#!/bin/sh\nexec 3>\"$(dirname \"$0\")/out\"\nenv >&3\ngrep NoNewPrivs /proc/self/status >&3\ncat /proc/self/limits >&3\n",
    );
    template(&Chart::from(ChartSource::Archive(packed())), &RELEASE, None, None, &helm).await.unwrap();
    let out = std::fs::read_to_string(folder.path().join("out")).unwrap();
    // cargo sets variables for its tests.
    assert!(std::env::vars().any(|(name, _)| name.starts_with("CARGO")));
    assert!(!out.contains("CARGO") && !out.contains("USER="), "{out}");
    let set =
        |name: &str| out.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name}: {out}"));
    assert_ne!(set("HOME="), std::env::var("HOME").unwrap_or_default(), "{out}");
    assert_eq!(set("TMPDIR="), format!("{}/tmp", set("HOME=")));
    if cfg!(target_os = "linux") {
        let words = |name| set(name).split_whitespace().next().unwrap().parse::<u64>().unwrap();
        let limits = ["NoNewPrivs:", "Max data size", "Max cpu time", "Max core file size"].map(words);
        assert_eq!(limits, [1, 512 << 20, 300, 0], "{out}");
    }
}

/// Returns the users that helm runs as in tests; `None`, with a message, if this process cannot run programs as others.
fn other_users(ids: &str) -> Option<HelmUsers> {
    match HelmUsers::new(ids.parse().unwrap(), 2) {
        Ok(user) => Some(user),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

fn permit(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn helm_runs_as_another_user_who_cannot_read_what_only_the_controller_may_read() {
    let Some(users) = other_users("64123") else { return };
    let folder = tempfile::tempdir().unwrap();
    // The script writes beside itself what it sees, and leaves files that the controller has to read and to delete.
    let helm = script(
        folder.path(),
        "#!/bin/sh\numask 077\nhere=$(dirname \"$0\")\nexec 3>>\"$here/out\"\n\
         echo \"user: $(id -u) $(id -g) $(id -G)\" >&3\necho \"home: $(stat -c '%u %g %a' \"$HOME\")\" >&3\n\
         cat \"$here/token\" >&3 || echo unreadable >&3\n\
         cat /proc/$PPID/environ >&3 2>&1 || echo no environment >&3\n\
         cat \"$HOME/chart.tgz\" | wc -c >&3\npwd >&3\n\
         mkdir -p left/behind && echo x >left/behind/file\n\
         grep -E '^(NoNewPrivs|CapEff)' /proc/self/status >&3\n\
         echo '{kind: Pod, apiVersion: v1, metadata: {name: a}}'\n",
    );
    permit(folder.path(), 0o755);
    permit(&folder.path().join("helm"), 0o755);
    std::fs::write(folder.path().join("token"), "sesame").unwrap();
    permit(&folder.path().join("token"), 0o600);
    std::fs::write(folder.path().join("out"), "").unwrap();
    permit(&folder.path().join("out"), 0o666);
    let chart = Chart::from(ChartSource::Archive(packed()));
    template(&chart, &RELEASE, None, None, &helm.running_as(Some(users))).await.unwrap();
    let out = std::fs::read_to_string(folder.path().join("out")).unwrap();
    assert!(out.contains("user: 64123 64123 64123\n"), "{out}");
    assert!(out.contains("home: 64123 64123 700\n"), "{out}");
    assert!(out.contains("unreadable\n") && !out.contains("sesame"), "{out}");
    assert!(out.contains("no environment\n"), "{out}");
    assert!(out.contains(&format!("\n{}\n", packed().len())), "{out}");
    assert!(out.contains("NoNewPrivs:\t1\n") && out.contains("CapEff:\t0000000000000000\n"), "{out}");
    let home = out.lines().find(|line| line.starts_with('/')).unwrap();
    assert!(!Path::new(home).exists(), "{out}");
}

/// Runs helm twice at the same time and once after that. Each run tells its user, how many files of another run it can read, how many
/// other runs it can signal, and how many files its user has left elsewhere.
async fn three_runs(users: HelmUsers) -> String {
    const RUN: &str = "#!/bin/sh\numask 077\nhere=$(dirname \"$0\")\nall=$(dirname \"$HOME\")\n\
        readable=$(cat $(cat \"$here/left\") 2>/dev/null | grep -c mine)\n\
        signalled=$(for pid in $(cat \"$here/pids\"); do kill -0 \"$pid\" 2>/dev/null && echo yes; done | grep -c yes)\n\
        left=$(find \"$all\" -maxdepth 1 -user \"$(id -u)\" ! -path \"$HOME\" 2>/dev/null | wc -l)\n\
        echo mine >\"$TMPDIR/left\"\necho \"$TMPDIR/left\" >>\"$here/left\"\necho $$ >>\"$here/pids\"\n\
        echo \"$(id -u) $readable $signalled $left\" >>\"$here/out\"\nread -r line <\"$here/end\"\n\
        echo '{kind: Pod, apiVersion: v1, metadata: {name: a}}'\n";
    let folder = tempfile::tempdir().unwrap();
    let helm = script(folder.path(), RUN).running_as(Some(users));
    let end = folder.path().join("end");
    assert!(std::process::Command::new("mkfifo").arg(&end).status().unwrap().success());
    for name in ["out", "pids", "left"] {
        std::fs::write(folder.path().join(name), "").unwrap();
    }
    for (name, mode) in [("", 0o755), ("helm", 0o755), ("out", 0o666), ("pids", 0o666), ("left", 0o666), ("end", 0o666)]
    {
        permit(&folder.path().join(name), mode);
    }
    // Open for reading, too, so that lines remain until a run reads them.
    let mut end = std::fs::OpenOptions::new().read(true).write(true).open(end).unwrap();
    let told = async |count: usize| {
        loop {
            let out = std::fs::read_to_string(folder.path().join("out")).unwrap();
            if out.lines().count() == count {
                return out;
            }
            tokio::task::yield_now().await;
        }
    };
    let chart = Chart::from(ChartSource::Archive(packed()));
    let run = async |before: usize| {
        told(before).await;
        template(&chart, &RELEASE, None, None, &helm).await.unwrap();
    };
    let let_end = async {
        told(2).await;
        std::io::Write::write_all(&mut end, b"\n\n").unwrap();
    };
    tokio::join!(run(0), run(1), let_end);
    std::io::Write::write_all(&mut end, b"\n").unwrap();
    run(2).await;
    told(3).await
}

#[tokio::test]
async fn runs_at_the_same_time_are_different_users_and_leave_nothing_to_the_next() {
    let (Some(two), Some(one)) = (other_users("64200-64201"), other_users("64300")) else { return };
    assert_eq!(three_runs(two).await, "64200 0 0 0\n64201 0 0 0\n64200 0 0 0\n");
    // One user is not separated from itself.
    assert_eq!(three_runs(one).await, "64300 0 0 0\n64300 1 1 1\n64300 0 0 0\n");
}

#[tokio::test(start_paused = true)]
async fn a_helm_of_another_user_can_be_stopped() {
    let Some(users) = other_users("64123") else { return };
    let folder = tempfile::tempdir().unwrap();
    let rest = "exec 3>PIPE\ntrap '' TERM\nsleep 1000 &\necho ready >&3\nsleep 1000\n";
    let (helm, pipe) = waiting(folder.path(), rest);
    permit(folder.path(), 0o755);
    permit(&folder.path().join("helm"), 0o755);
    permit(&pipe, 0o666);
    let (ended, written) = stop_deployment(&helm.running_as(Some(users)), pipe).await;
    assert_eq!(written, "");
    assert!(message(&ended.unwrap_err()).ends_with("was stopped"));
}

#[test]
fn helm_does_not_run_as_root_or_as_the_user_of_the_controller() {
    let own = rustix::process::geteuid().as_raw();
    for user in [0, own] {
        let error = HelmUsers::new(user.to_string().parse().unwrap(), 2).unwrap_err();
        assert_eq!(error.to_string(), "it must be another user than root and than that of the controller");
    }
    if own != 0 {
        let error = HelmUsers::new("64123".parse().unwrap(), 2).unwrap_err();
        assert_eq!(error.to_string(), "the controller must run as root to run helm as another user");
    }
}

/// Runs a script in place of helm, which waits until it is killed. Only for the test below.
#[tokio::test]
#[ignore = "started by the next test"]
async fn run_the_script_that_the_next_test_names() {
    let helm = Helm::new(std::env::var_os("BILLHOOK_TEST_SCRIPT").unwrap());
    template(&Chart::from(ChartSource::Archive(packed())), &RELEASE, None, None, &helm).await.unwrap();
}

#[test]
#[cfg(target_os = "linux")]
fn helm_ends_with_the_process_that_runs_it() {
    let folder = tempfile::tempdir().unwrap();
    let (_, pipe) = waiting(folder.path(), "exec 3>PIPE\necho ready >&3\nexec sleep 1000\n");
    let mut process = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "run_the_script_that_the_next_test_names"])
        .env("BILLHOOK_TEST_SCRIPT", folder.path().join("helm"))
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut file = std::fs::File::open(pipe).unwrap();
    std::io::Read::read_exact(&mut file, &mut [0; 6]).unwrap();
    process.kill().unwrap();
    process.wait().unwrap();
    // Reading ends when no program has the pipe open for writing.
    assert_eq!(std::io::read_to_string(file).unwrap(), "");
}

#[tokio::test]
async fn the_output_of_helm_is_limited() {
    let folder = tempfile::tempdir().unwrap();
    let helm = script(folder.path(), "#!/bin/sh\nhead -c 70000000 /dev/zero\n");
    let error = message(&template(&reference("demo"), &RELEASE, None, None, &helm).await.unwrap_err());
    assert!(error.ends_with("/helm is larger than 64 MiB"), "{error}");
}

#[tokio::test]
async fn a_chart_that_needs_too_much_memory_is_an_error_that_names_the_limit() {
    let Some(helm) = helm() else { return };
    let text =
        "{{ $all := dict }}{{ range until 100 }}{{ $_ := set $all (toString .) (repeat 100000000 \"x\") }}{{ end }}";
    let chart = Chart::from(ChartSource::Archive(packed_with(&[("templates/large.yaml", text)])));
    let error = message(&template(&chart, &RELEASE, None, None, &helm).await.unwrap_err());
    assert!(error.ends_with("reached its limit of 512 MiB of memory"), "{error}");
}

#[tokio::test]
async fn a_kustomization_is_rendered() {
    let Some(kubectl) = program("BILLHOOK_KUBECTL", "kubectl") else { return };
    let folder = tempfile::tempdir().unwrap();
    write(
        folder.path(),
        &[
            ("base/kustomization.yaml", "resources: [config.yaml]\n"),
            ("base/config.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {port: \"0644\"}\n"),
            ("live/kustomization.yaml", "resources: [../base]\nnamePrefix: live-\nnamespace: store\n"),
        ],
    );
    let live = folder.path().join("live");
    let manifests = kustomize(&live, &kubectl).await.unwrap();
    let [manifest] = manifests.as_slice() else { panic!("{manifests:?}") };
    assert_eq!(manifest.key.to_string(), "ConfigMap/store/live-a");
    assert_eq!(manifest.value()["data"]["port"], "0644");
    assert_eq!(manifest.source.to_string(), format!("{}:1", live.display()));

    let error = kustomize(&folder.path().join("nothing"), &kubectl).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Program(ProgramError::Failed { .. })), "{error:?}");
    assert!(message(&error).contains("nothing"), "{}", message(&error));
}
