//! Arguments: what is wrong with them is said, and help is no error.

use crate::call::Place;

/// Every command, as words.
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
        }
        let plugin = place.call_as("/usr/bin/kubectl-billhook", &format!("{words} -h"), "");
        assert!(plugin.out.contains(&format!("Usage: kubectl billhook {words}")), "{}", plugin.out);
        assert!(!plugin.out.contains("  billhook"), "{}", plugin.out);
    }
}

#[test]
fn wrong_arguments_are_exit_2_and_say_what_is_meant() {
    let place = Place::new(&[("a.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}")]);
    for (args, words) in [
        ("", "Usage: billhook"),
        ("aply", "'apply'"),
        ("apply", "<NAME>"),
        ("apply web", "--filename"),
        ("apply -f a.yaml web", "hint: NAME stands before -f"),
        ("apply web -f a.yaml -k dir", "cannot be used with"),
        ("apply web -f a.yaml --set a=b", "--chart <REF>"),
        ("apply web -f a.yaml --timeout 5", "expected a duration such as 90s"),
        ("apply web -f a.yaml --dry-run maybe", "none, client, server"),
        ("apply web -f a.yaml --wait=perhaps", "--wait"),
        ("delete -k dir -R", "there is no -f"),
        ("apply UPPER -f a.yaml", "as the name or namespace of a release"),
        ("delete", "NAME"),
        ("delete web -f a.yaml", "cannot be used with"),
        ("delete web --target other", "NAME=KUBECONFIG"),
        ("delete web --target a=kubeconfig --target a=kubeconfig", "--target a is given twice"),
        ("delete web --target a=nothing", "failed to read the kubeconfig"),
        ("plan", "Usage: billhook plan"),
        ("list -o yaml", "text, json"),
        ("list --as-group g", "--as-group needs --as"),
        ("list --context y", "choose one with --context: x"),
        ("list --kubeconfig nothing", "failed to read the kubeconfig"),
        ("completion tcl", "bash"),
    ] {
        let called = place.call(args);
        assert_eq!(called.exit, 2, "{args}: {}", called.err);
        assert!(called.err.contains(words), "{args}: {}", called.err);
        assert_eq!(called.out, "", "{args}");
    }
}

#[test]
fn without_a_kubeconfig_it_says_what_to_do() {
    let place = Place::new(&[]);
    std::fs::remove_file(place.folder().join("kubeconfig")).unwrap();
    let called = place.call("list");
    called.is_input_error("error: $KUBECONFIG names kubeconfig, which does not exist\n");
}

#[test]
fn a_server_that_does_not_answer_is_named() {
    let called = Place::new(&[]).call("list");
    assert_eq!(
        (called.exit, called.err.as_str()),
        (
            1,
            "error: failed to list releases: the server cannot be reached (Connection refused (os error 111))\n\
             hint: the server is http://127.0.0.1:1/; is it the right one, and does it run?\n"
        )
    );
}

#[test]
fn colour_is_only_where_it_is_asked_for() {
    let place = Place::new(&[]);
    assert!(!place.call("list --context y").err.contains('\u{1b}'));
    assert!(place.call("list --context y --color always").err.contains('\u{1b}'));
}

#[test]
fn completions_are_printed() {
    let called = Place::new(&[]).call("completion bash");
    assert_eq!(called.exit, 0);
    assert!(called.out.contains("_billhook()"));
}

#[test]
fn the_verbosity_is_counted() {
    let count = |args: &str| billhook::verbosity(&args.split(' ').map(Into::into).collect::<Vec<_>>());
    assert_eq!(count("billhook list"), 0);
    assert_eq!(count("billhook -v list"), 1);
    assert_eq!(count("billhook list -vv"), 2);
    assert_eq!(count("billhook list --verbose --nonsense"), 0);
}
