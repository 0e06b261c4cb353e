//! Runs the commands of `docs/walk-deployitems.md` in their order on a real control plane.

use std::{path::Path, process::Command};

use billhook_testkit::control_plane::{Binaries, ControlPlane, Options};

#[test]
fn the_commands_of_the_walk_print_what_it_shows() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(top.join("docs/walk-deployitems.md")).unwrap();
    let plane = ControlPlane::start(&Options::default()).unwrap();
    let helm = Binaries::helm(|_| ()).unwrap();
    let path = format!("{}:{}", helm.parent().unwrap().display(), std::env::var("PATH").unwrap_or_default());
    let run = Command::new("bash")
        .args(["-euo", "pipefail", "-c", &blocks(&text)])
        .current_dir(&top)
        .env("BILLHOOK", env!("CARGO_BIN_EXE_billhook"))
        .env("KUBECTL", plane.binaries().kubectl())
        .env("KUBECONFIG", plane.kubeconfig_path())
        .env("PATH", path)
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{}\n{out}\n{err}", run.status);
    // What the commands must print, in this order.
    let mut rest = &*out;
    for line in [
        "Succeeded",
        r#"{"currency":"CHF"}"#,
        "1 left: ConfigMap/billhook-walk/books held by finalizer shop.example/close-the-books",
        "group 1 of 3",
        "group 2 of 3",
        "group 3 of 3",
    ] {
        let (_, after) = rest.split_once(line).unwrap_or_else(|| panic!("{line:?} is not in {rest}"));
        rest = after;
    }
}

/// Returns the code blocks marked `sh`, joined.
fn blocks(text: &str) -> String {
    let mut script = String::new();
    let mut inside = false;
    for line in text.lines() {
        match line {
            "```sh" => inside = true,
            "```" => inside = false,
            line if inside => script += &format!("{line}\n"),
            _ => {}
        }
    }
    script
}
