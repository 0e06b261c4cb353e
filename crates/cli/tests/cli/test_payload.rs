//! `payload plan`, `payload lint` and `payload apply --watch`: their flags and formats, and the guide in `docs/payloads.md`.

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::mpsc,
};

use crate::{
    call::{Place, Shared},
    stage::Stage,
};

/// A manifest that counts, with more annotations.
fn manifest(kind: &str, name: &str, annotations: &str) -> String {
    format!(
        "apiVersion: v1\nkind: {kind}\nmetadata:\n  name: {name}\n  annotations:\n    \
         include.release.openshift.io/self-managed-high-availability: \"true\"\n{annotations}"
    )
}

const DELETE: &str = "    release.openshift.io/delete: \"true\"\n";

/// A payload of two levels: one manifest is applied, one left out, one created only, and one deleted.
fn payload() -> Place {
    let gated = "    release.openshift.io/feature-gate: New\n";
    let create_only = "    release.openshift.io/create-only: \"true\"\n    capability.openshift.io/name: Cart\n";
    Place::new(&[
        ("r/0000_10_shop_01_a.yaml", &manifest("ConfigMap", "a", "")),
        ("r/0000_10_shop_02_b.yaml", &manifest("ConfigMap", "b", gated)),
        ("r/0000_20_cart_01_c.yaml", &manifest("Secret", "c", create_only)),
        ("r/0000_20_cart_02_<d>.yaml", &manifest("ConfigMap", "d", DELETE)),
        ("r/README.md", "not a manifest"),
        ("r/deep/e.yaml", "not read"),
    ])
}

const PLAN: &str = "payload plan r --version 4.21.0 --from-version 4.20.0";

fn json(place: &Place, args: &str) -> Value {
    let called = place.call(args);
    assert_eq!((called.exit, called.err.as_str()), (0, ""), "{args}");
    serde_json::from_str(&called.out).unwrap()
}

/// Returns the outcome of each manifest.
fn outcomes(place: &Place, args: &str) -> Vec<String> {
    let found = json(place, &format!("{PLAN} -o json {args}"));
    let manifests = found["manifests"].as_array().unwrap().iter();
    manifests.map(|manifest| manifest["outcome"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_plan_shows_each_manifest_and_the_rule_that_decided() {
    let called = payload().call(PLAN);
    assert_eq!(called.exit, 0, "{}", called.err);
    let lines: Vec<_> = called.out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        lines,
        [
            "payload 4.21.0: updating from 4.20.0, 4 manifests: 1 applied, 1 created only, 1 deleted, 1 left out",
            "up to 16 nodes at a time; a failed manifest is repeated after 10s, 13s",
            "",
            "1 10 shop, 20 cart",
            "applied configmap \"a\" 0000_10_shop_01_a.yaml \
             include.release.openshift.io/self-managed-high-availability=true",
            "created only secret \"c\" 0000_20_cart_01_c.yaml release.openshift.io/create-only=true",
            "deleted configmap \"d\" 0000_20_cart_02_<d>.yaml release.openshift.io/delete=true",
            "",
            "Left out",
            "left out configmap \"b\" 0000_10_shop_02_b.yaml the feature gate New is required and off",
        ]
    );
}

#[test]
fn the_state_follows_from_the_versions_or_is_given() {
    let place = payload();
    let state = |args: &str| json(&place, &format!("payload plan r --version 4.21.0 -o json {args}"));
    for (args, expected, seed) in [
        ("--from-version 4.20.0", "updating", Value::Null),
        ("--from-version 4.21.0", "reconciling", 0.into()),
        ("--state initializing", "initializing", Value::Null),
        ("--state updating", "updating", Value::Null),
        ("--state reconciling", "reconciling", 0.into()),
    ] {
        let found = state(args);
        assert_eq!((&found["state"], &found["seed"]), (&expected.into(), &seed), "{args}");
    }
    let without = place.call("payload plan r --version 4.21.0");
    assert_eq!(without.exit, 1, "{}", without.err);
    assert!(without.err.contains("hint: pass --from-version VERSION or --state STATE"), "{}", without.err);
    place.rejects("payload plan r --from-version 4.21.0", "--version");
    place.rejects(&format!("{PLAN} --state updating"), "cannot be used with");
}

#[test]
fn preconditions_are_part_of_the_plan() {
    let called = payload().call("payload plan r --version 4.22.0 --from-version 4.20.0");
    assert!(called.out.contains("\nblocked: 4.22.0 is more than one minor version beyond the current target 4.20.0"));
}

#[test]
fn flags_and_the_config_file_choose_manifests() {
    let place = payload();
    place.write("c.yaml", "featureGates: [New]\ncapabilities: [Other]\noverrides: [ConfigMap/a]\n");
    assert_eq!(outcomes(&place, ""), ["applied", "leftOut", "createdOnly", "deleted"]);
    assert_eq!(outcomes(&place, "--feature-gate New"), ["applied", "applied", "createdOnly", "deleted"]);
    assert_eq!(outcomes(&place, "--override ConfigMap/x/d"), ["applied", "leftOut", "createdOnly", "leftOut"]);
    let called = place.call(&format!("{PLAN} --config c.yaml"));
    assert!(
        called.out.starts_with("payload 4.21.0: updating from 4.20.0, 4 manifests: 1 applied, 1 deleted, 2 left out")
    );
    assert_eq!(called.err, "warning: no manifest needs the capability Other\n");
    let chosen = "--config c.yaml --feature-gate -New --capability Cart --override ConfigMap/d";
    assert_eq!(outcomes(&place, chosen), ["applied", "leftOut", "createdOnly", "leftOut"]);
    place.rejects(&format!("{PLAN} --override ConfigMap"), "invalid override \"ConfigMap\"");
    place.write("wrong.yaml", "featureGate: New\nname: 3\n");
    place.rejects(
        &format!("{PLAN} --config wrong.yaml"),
        "unknown field \"featureGate\"; did you mean \"featureGates\"?\n --> wrong.yaml:1:1",
    );
    place.rejects(&format!("{PLAN} --config wrong.yaml"), "expected a string, found a number\n --> wrong.yaml:2:7");
}

#[test]
fn settings_without_effect_are_warnings() {
    let called = payload().call(&format!("{PLAN} --profile self-managed --feature-set TechPreview"));
    assert!(called.err.starts_with("warning: no manifest is included in the profile self-managed; the payload has "));
    assert!(called.err.contains("warning: the feature set TechPreview does not exist"));
}

#[test]
fn all_mistakes_of_a_payload_are_errors() {
    let invalid = manifest("ConfigMap", "a", "    release.openshift.io/delete: \"yes\"\n");
    let place = Place::new(&[("r/0000_10_a_1.yaml", &invalid), ("r/0000_10_a_2.yaml", "kind: ConfigMap\n")]);
    place.call("payload plan r --version 4.21.0 --state updating").is_input_error(
        "error: r/0000_10_a_1.yaml:7: configmap \"a\": invalid delete annotation \"release.openshift.io/delete\" value: \
         \"yes\"\nerror: r/0000_10_a_2.yaml:1: a ConfigMap without apiVersion\n",
    );
    place.rejects("payload lint r", "r/0000_10_a_2.yaml:1: a ConfigMap without apiVersion");
    place.rejects("payload lint absent", "absent does not exist");
    place.rejects("payload lint kubeconfig", "kubeconfig is not a directory");
    let nested = Place::new(&[("r/sub/0000_10_a_1.yaml", &invalid), ("empty/0000_10_a_1.yaml", "# later\n")]);
    nested.call("payload lint r").is_input_error(
        "error: r contains no .yaml, .yml or .json files\nhint: subdirectories are not read; name the directory that \
         contains the manifests\n",
    );
    nested.rejects(
        "payload plan empty --version 1.0.0 --state updating",
        "empty/0000_10_a_1.yaml:1: neither this file nor any other of the payload contains a manifest",
    );
}

#[test]
fn pictures_show_levels_components_and_outcomes() {
    let place = payload();
    let print = |format: &str| {
        let called = place.call(&format!("{PLAN} -o {format}"));
        assert_eq!((called.exit, called.err.as_str()), (0, ""), "{format}");
        called.out
    };
    let (dot, svg, html) = (print("dot"), print("svg"), print("html"));
    assert!(dot.starts_with("digraph picture {") && dot.contains("✕ configmap \\\"d\\\"\\l"), "{dot}");
    for part in ["run level 10", "run level 20", ">shop<", ">cart<", "02_&lt;d&gt;.yaml ×1", "✕ configmap", "○ ", "+ "]
    {
        assert!(svg.contains(part), "{part}: {svg}");
    }
    assert!(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\"") && svg.contains("class=\"barrier\""));
    for part in ["run level 10", "\"shop\"", "\"cart\"", "02_\\u003cd>.yaml", "created only"] {
        assert!(html.contains(part), "{part}: {html}");
    }
    assert!(!svg.contains("<d>") && !html.contains("<d>"), "names are escaped");
}

#[test]
fn formats_of_other_commands_are_rejected() {
    let place = payload();
    place.rejects("payload lint r -o svg", "this command does not print results in this format");
    place.rejects("plan delete web -o sarif", "this command does not print results in this format");
    place.rejects(&format!("{PLAN} -o sarif"), "this command does not print results in this format");
    place.rejects("list -o dot", "this command does not print results in this format");
}

#[test]
fn lint_prints_findings_as_text_json_and_sarif() {
    let place = payload();
    let called = place.call("payload lint r");
    assert_eq!((called.exit, called.out.as_str()), (0, "4 manifests checked: 0 findings\n"));
    place.write("r/50 x.yaml", &manifest("ConfigMap", "x", "    release.openshift.io/delete: \"yes\"\n"));
    let called = place.call("payload lint r -o json");
    assert_eq!(called.exit, 2);
    let found: Value = serde_json::from_str(&called.out).unwrap();
    let codes: Vec<_> =
        found.as_array().unwrap().iter().map(|row| (&row["code"], &row["line"], &row["file"])).collect();
    let file = Value::from("r/50 x.yaml");
    let (named, value) = (Value::from("name-not-ordered"), Value::from("delete-value"));
    assert_eq!(codes, [(&named, &1.into(), &file), (&value, &7.into(), &file)]);
    let called = place.call("payload lint r -o sarif");
    assert_eq!(called.exit, 2);
    let log: Value = serde_json::from_str(&called.out).unwrap();
    assert_eq!(log["version"], "2.1.0");
    let run = &log["runs"][0];
    let result = &run["results"][1];
    let rule = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
    assert_eq!((&result["ruleId"], &run["tool"]["driver"]["rules"][rule]["id"]), (&value, &value));
    let place = &result["locations"][0]["physicalLocation"];
    assert_eq!(
        (&place["artifactLocation"]["uri"], &place["region"]["startLine"]),
        (&"r/50%20x.yaml".into(), &7.into())
    );
    assert_eq!((&result["level"], &run["results"][0]["level"]), (&"error".into(), &"warning".into()));
}

#[test]
fn a_value_does_not_begin_a_line() {
    let hostile = |annotation: &str| manifest("ConfigMap", "a", &format!("    {annotation}: \"a\\nb\\e[2J\"\n"));
    let place = Place::new(&[("r/0000_10_a_1.yaml", &hostile("release.openshift.io/delete"))]);
    let called = place.call("payload lint r");
    assert!(called.out.contains("value: \"a\\nb\\x1b[2J\"\n  fix: "), "{}", called.out);
    let place = Place::new(&[("r/0000_10_a_1.yaml", &hostile("release.openshift.io/feature-set"))]);
    let called = place.call("payload plan r --version 1.0.0 --state updating");
    assert!(called.out.contains("unknown feature set \"a\\nb\\x1b[2J\" in "), "{}", called.out);
}

#[test]
fn the_flags_of_a_watch_are_checked() {
    let place = payload();
    let apply = |flags: &str| format!("payload apply r --version 1.0.0 {flags}");
    place.rejects(&apply("--watch=999ms"), "expected at least 1s");
    place.rejects(&apply("--watch=3"), "expected a duration such as 90s, 5m or 1h30m");
    place.rejects(&apply("--watch --to-completion"), "cannot be used with");
    place.rejects(&apply("--listen 127.0.0.1:0"), "--watch");
    // What follows is the version's own argument, not the interval.
    place.rejects("payload apply --watch r --version 1.0.0 --policy absent", "absent does not exist");
}

#[test]
fn a_mistake_at_the_start_of_a_watch_ends_it() {
    let place = payload();
    place.rejects("--sandbox payload apply absent --version 1.0.0 --watch", "absent does not exist");
    place.rejects("--sandbox payload apply kubeconfig --version 1.0.0 --watch", "kubeconfig is not a directory");
    place.write("r/0000_30_x_01_e.yaml", "kind: ConfigMap\n");
    place.rejects(
        "--sandbox payload apply r --version 1.0.0 --watch",
        "error: r/0000_30_x_01_e.yaml:1: a ConfigMap without apiVersion",
    );
    place.rejects("payload apply r --version 1.0.0 --watch --config absent.yaml", "absent.yaml does not exist");
}

/// Sends a GET request, and returns the answer.
async fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// Runs `--sandbox payload apply r ARGS` beside a script, which gets what is printed to both streams and may interrupt it.
fn watch(place: &Place, args: &str, script: impl AsyncFnOnce(&Shared, &Shared, mpsc::Sender<()>)) -> u8 {
    let (out, err) = (Shared::default(), Shared::default());
    let (interrupt, interrupts) = mpsc::channel(1);
    let args = format!("--sandbox payload apply r {args}");
    let world = place.world("billhook", &args, "", (out.clone(), err.clone()), interrupts);
    // The files change in real time.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::join!(billhook::run(world), script(&out, &err, interrupt)).0 })
}

#[test]
fn a_watch_follows_the_folder_and_serves_metrics() {
    let place = payload();
    let exit = watch(&place, "--version 1.0.0 --watch --listen 127.0.0.1:0", async |out, err, interrupt| {
        let printed = err.until("the next pass follows in 3m00s at the latest\n").await;
        let (_, served) = printed.split_once("serving /metrics and /healthz at http://").unwrap();
        let address = served.lines().next().unwrap();
        assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200"));
        let metrics = get(address, "/metrics").await;
        for line in [
            "billhook_payload_info{name=\"payload\",namespace=\"default\",version=\"1.0.0\"} 1",
            "billhook_payload_manifests{result=\"succeeded\"} 3",
            "billhook_payload_manifests{result=\"failed\"} 0",
            "billhook_payload_deletions_pending 0",
            "billhook_payload_passes_total{result=\"done\"} 1",
            "billhook_payload_folder_usable 1",
            "billhook_leader 1",
        ] {
            assert!(metrics.lines().any(|found| found == line), "{line}: {metrics}");
        }
        assert!(!metrics.contains("billhook_payload_last_success_timestamp_seconds 0"), "{metrics}");

        place.write("r/0000_30_x_01_e.yaml", "kind: ConfigMap\n");
        err.until("warning: r cannot be used: r/0000_30_x_01_e.yaml:1: a ConfigMap without apiVersion; still ").await;
        let metrics = get(address, "/metrics").await;
        assert!(metrics.contains("billhook_payload_folder_usable 0"), "{metrics}");
        place.write("r/0000_30_x_01_e.yaml", &manifest("ConfigMap", "e", ""));
        out.until("created ConfigMap default/e").await;
        let printed = err.until("pass 2 done after").await;
        assert!(printed.contains("pass 2: 4 manifests of 1.0.0, because r has changed\n"), "{printed}");
        assert!(!printed.contains("group "), "groups that succeed are not mentioned: {printed}");
        interrupt.send(()).await.unwrap();
        let printed = err.until(" stopped\n").await;
        assert_eq!(printed.matches("cannot be used").count(), 1, "{printed}");
    });
    assert_eq!(exit, 0);
}

#[test]
fn an_interrupted_wait_for_deletions_is_an_error() {
    let finalized = "  finalizers: [example.com/hold]\n";
    let file = "r/0000_10_shop_01_a.yaml";
    Stage::play(&[(file, &(manifest("ConfigMap", "a", "") + finalized))], async |stage| {
        let applied = stage.call("payload apply r --version 1.0.0").await;
        assert_eq!(applied.exit, 0, "{}", applied.err);
        stage.place.write(file, &manifest("ConfigMap", "a", DELETE));
        let waiting = async |_: &Shared, err: &Shared, interrupt: mpsc::Sender<()>| {
            err.until("waiting until 1 object is gone\n").await;
            interrupt.send(()).await.unwrap();
        };
        let called = stage.beside("payload apply r --version 1.1.0 --to-completion", waiting).await;
        assert_eq!(called.exit, 3, "{}", called.err);
        let error = "error: interrupted: requested deletions are pending (1 object)\n\
                     hint: run the same command again to resume\n";
        assert!(called.err.ends_with(error), "{}", called.err);
    });
}

#[test]
fn files_that_are_all_emptied_are_not_used() {
    let place = Place::new(&[("r/0000_10_shop_01_a.yaml", &manifest("ConfigMap", "a", ""))]);
    let exit = watch(&place, "--version 1.0.0 --watch=1s", async |_, err, interrupt| {
        err.until("pass 1 done after").await;
        place.write("r/0000_10_shop_01_a.yaml", "");
        let problem = "warning: r cannot be used: r/0000_10_shop_01_a.yaml:1: neither this file nor any other of the \
                       payload contains a manifest; still ";
        let printed = err.until(problem).await;
        let passes = printed.matches(" done after").count();
        let next = format!("pass {}: 1 manifest of 1.0.0, because the interval is over", passes + 2);
        err.until(&next).await;
        interrupt.send(()).await.unwrap();
    });
    assert_eq!(exit, 0);
}

#[test]
fn a_pass_of_a_replaced_payload_is_stopped() {
    let job = "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: wait\n  annotations:\n    \
               include.release.openshift.io/self-managed-high-availability: \"true\"\nspec:\n  template:\n    spec:\n      \
               restartPolicy: Never\n      containers: [{name: c, image: i}]\n";
    let place = Place::new(&[("r/0000_10_shop_01_job.yaml", job)]);
    let exit = watch(&place, "--version 1.0.0 --watch", async |out, err, interrupt| {
        // Nothing on the sandbox completes it.
        out.until("created Job.batch default/wait").await;
        place.write("r/0000_10_shop_01_job.yaml", &manifest("ConfigMap", "a", ""));
        err.until("pass 1 is stopped: r has changed\n").await;
        err.until("pass 1 stopped after").await;
        err.until("pass 2 done after").await;
        assert!(out.text().contains("created ConfigMap default/a"), "{}", out.text());
        interrupt.send(()).await.unwrap();
    });
    assert_eq!(exit, 0);
}

#[test]
fn a_watch_prints_json_lines() {
    let place = payload();
    let exit = watch(&place, "--version 1.0.0 --watch=1h -o json", async |out, err, interrupt| {
        out.until("\"event\":\"pass-ended\"").await;
        interrupt.send(()).await.unwrap();
        let printed = out.until("\"event\":\"watch-ended\"").await;
        assert_eq!(err.text(), "");
        let lines: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let of = |event: &str| lines.iter().find(|line| line["event"] == event).cloned().unwrap_or_default();
        assert_eq!(
            (&of("watch-started")["interval"], &of("watch-started")["version"]),
            (&"1h".into(), &"1.0.0".into())
        );
        let ended = of("pass-ended");
        assert_eq!((&ended["pass"], &ended["result"], &ended["succeeded"]), (&1.into(), &"done".into(), &3.into()));
        assert!(ended["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{ended}");
        assert!(of("watch-leading").is_object() && of("pass-started").is_object());
    });
    assert_eq!(exit, 0);
}

/// Runs the guide: writes its files, runs its commands, and compares what they print.
#[test]
fn the_guide_shows_what_the_commands_print() {
    let guide = include_str!("../../../../docs/payloads.md");
    let place = Place::new(&[]);
    let mut commands = 0;
    for block in guide.split("\n```").skip(1).step_by(2) {
        let (language, text) = block.split_once('\n').unwrap();
        if language == "yaml" {
            let name = text.lines().next().unwrap().strip_prefix("# FILE: ").unwrap();
            place.write(name, &format!("{text}\n"));
            continue;
        }
        assert_eq!(language, "console");
        for command in text.split("$ billhook ").skip(1) {
            let (args, expected) = command.split_once('\n').unwrap();
            let called = place.call(args);
            assert_eq!(format!("{}{}", called.out, called.err).trim_end(), expected.trim_end(), "{args}");
            commands += 1;
        }
    }
    assert!(commands >= 10, "{commands}");
}

#[test]
fn the_guide_names_every_flag() {
    let guide = include_str!("../../../../docs/payloads.md");
    let command = billhook::command();
    let payload = command.find_subcommand("payload").unwrap();
    let mut missing = Vec::new();
    for command in payload.get_subcommands() {
        let flags = command.get_arguments().filter(|flag| !flag.is_global_set() && !flag.is_hide_set());
        for flag in flags.filter_map(|flag| flag.get_long()).filter(|flag| !matches!(*flag, "help" | "timeout")) {
            if !guide.contains(&format!("--{flag}")) {
                missing.push(format!("{} --{flag}", command.get_name()));
            }
        }
    }
    assert_eq!(missing, [""; 0]);
}
