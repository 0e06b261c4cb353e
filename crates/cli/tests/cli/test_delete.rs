//! `delete`: its arguments, and what it reports before it asks.

use std::io::Cursor;

use billhook::World;
use tokio::sync::mpsc;

use crate::{
    call::{Place, Shared},
    stage::Stage,
};

#[test]
fn invalid_arguments_are_rejected() {
    let place = Place::new(&[]);
    for (args, words) in [
        ("delete", "NAME"),
        ("delete -k dir -R", "-R requires -f"),
        ("delete web -f a.yaml", "cannot be used with"),
        ("delete web --target other", "NAME=KUBECONFIG"),
        ("delete web --target a=kubeconfig --target a=kubeconfig", "--target a is given twice"),
        ("delete web --target a=nothing", "failed to read the kubeconfig"),
    ] {
        place.rejects(args, words);
    }
}

#[test]
fn a_lock_is_reported_without_a_question() {
    Stage::play(&[("m.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}")], async |stage| {
        stage.call("apply web -f m.yaml").await;
        let _lock = stage.lock("web").await;
        let (out, err) = (Shared::default(), Shared::default());
        let (_interrupt, interrupts) = mpsc::channel(1);
        let sent = stage.sandbox.faults().count("billhook");
        let world = stage.place.world_on(&stage.sandbox, "delete web -n default", (out, err.clone()), interrupts);
        let exit = billhook::run(World { stdin_terminal: true, stdin: Box::new(Cursor::new("y\n")), ..world }).await;
        assert_eq!(exit, 4, "{}", err.text());
        assert!(err.text().starts_with("error: another operation works on release default/web"), "{}", err.text());
        let planned = stage.sandbox.faults().count("billhook") - sent;
        stage.call("plan delete web").await;
        assert_eq!(stage.sandbox.faults().count("billhook") - sent, 2 * planned, "no request is sent for the lock");
    });
}
