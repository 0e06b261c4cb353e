//! Global flags, help, and errors that all commands share.

use crate::call::Place;

/// Collects the words of all commands.
fn commands(command: &clap::Command, words: &str, found: &mut Vec<String>) {
    found.push(words.to_owned());
    for sub in command.get_subcommands() {
        commands(sub, format!("{words} {}", sub.get_name()).trim(), found);
    }
}

#[test]
fn the_command_line_is_consistent() {
    billhook::command().debug_assert();
}

#[test]
fn every_command_has_help_that_names_the_program() {
    let mut all = Vec::new();
    commands(&billhook::command(), "", &mut all);
    assert!(all.contains(&"plan delete".to_owned()), "{all:?}");
    let place = Place::new(&[]);
    for words in all {
        for flag in ["-h", "--help"] {
            let help = place.call(&format!("{words} {flag}"));
            assert_eq!((help.exit, help.err.as_str()), (0, ""), "{words}");
            assert!(help.out.contains(&format!("Usage: billhook {words}")), "{}", help.out);
            let wide: Vec<&str> = help.out.lines().filter(|line| line.chars().count() > 100).collect();
            assert!(wide.is_empty(), "wider than the text that is wrapped: {wide:?}");
        }
        let plugin = place.call_as("/usr/bin/kubectl-billhook", &format!("{words} -h"), "");
        assert!(plugin.out.contains(&format!("Usage: kubectl billhook {words}")), "{}", plugin.out);
        assert!(!plugin.out.contains("  billhook"), "{}", plugin.out);
    }
}

#[test]
fn invalid_arguments_are_rejected() {
    let place = Place::new(&[]);
    for (args, words) in [
        ("", "Usage: billhook"),
        ("aply", "'apply'"),
        ("list -o yaml", "text, json"),
        ("list --as-group g", "--as-group requires --as"),
        ("list --context y", "choose one with --context: x"),
        ("list --kubeconfig nothing", "failed to read the kubeconfig"),
    ] {
        place.rejects(args, words);
    }
}

#[test]
fn a_missing_kubeconfig_is_an_error() {
    let place = Place::new(&[]);
    std::fs::remove_file(place.folder().join("kubeconfig")).unwrap();
    place.call("list").is_input_error("error: no file in $KUBECONFIG exists: kubeconfig\n");
}

#[test]
fn output_is_colored_on_request() {
    let place = Place::new(&[]);
    assert!(!place.call("list --context y").err.contains('\u{1b}'));
    assert!(place.call("list --context y --color always").err.contains('\u{1b}'));
}

#[test]
fn commands_that_keep_running_log_by_default() {
    let logging =
        |args: &str, terminal| billhook::logging(&args.split(' ').map(Into::into).collect::<Vec<_>>(), terminal);
    let json = |args: &str| logging(args, false);
    assert_eq!(json("billhook controller"), json("billhook list --log-level info --log-format json"));
    assert_eq!(logging("billhook controller", true), json("billhook list --log-level info"));
    assert_eq!(json("billhook payload apply p --version 4.1.0 --watch"), json("billhook list --log-level info"));
    assert_eq!(json("billhook payload apply p --version 4.1.0 -v"), json("billhook list --verbose"));
    assert_ne!(
        json("billhook payload apply p --version 4.1.0"),
        json("billhook payload apply p --version 4.1.0 --watch")
    );
    for wrong in ["list -v --log-level info", "list --log-level all", "list --nonsense"] {
        assert_eq!(json(&format!("billhook {wrong}")), None, "{wrong}");
    }
}
