//! What a sequence deletes.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_deletion_is_requested_once_and_verified_by_a_later_pass() {
    let world = World::new();
    assert_eq!(world.pass(&Payload::new(&["one: a b c"])).await.status, Status::Done);
    world.patch("a", json!({"metadata": {"finalizers": ["a.example/x"]}})).await;
    let next = || Payload::new(&["one: -a -b c"]).of_version("2");

    let summary = world.pass(&next()).await;
    assert_eq!((summary.status, summary.gone, summary.left.len()), (Status::Done, 0, 0));
    assert_eq!(summary.requested, [key("a"), key("b")]);
    assert_eq!(world.requests("delete "), 2);
    assert!(world.config_map("a").unwrap()["metadata"]["deletionTimestamp"].is_string());
    let inventory = world.inventory().await;
    assert!(inventory.entries.contains_key(&key("a")) && inventory.entries.contains_key(&key("b")));

    // The status reads the same from the cluster and the record.
    let status = billhook_engine::release_status(&world.clusters, &release()).await.unwrap();
    let of_a = status.objects.iter().find(|object| object.object == key("a")).unwrap();
    assert!(of_a.deleted_at.is_some() && of_a.state == billhook_engine::ObjectState::Deleting, "{of_a:?}");
    assert!(matches!(&of_a.blockers[..], [Blocker::Finalizer { finalizer, .. }] if finalizer == "a.example/x"));
    assert_eq!(status.history.len(), 2);

    // A restart while the finalizer blocks it: the live object shows the deletion, and no request is sent.
    let states = world.found(&next()).await;
    assert!(
        matches!(states[..], [DeletionState::Deleting { deleted_at: Some(_) }, DeletionState::NotFound]),
        "{states:?}"
    );
    assert_eq!(world.pass(&next()).await.status, Status::Done);
    assert_eq!(world.requests("delete "), 2);
    let inventory = world.inventory().await;
    assert!(inventory.entries.contains_key(&key("a")) && !inventory.entries.contains_key(&key("b")));
    assert_eq!(inventory.deleted.keys().collect::<Vec<_>>(), [&key("b")]);

    world.patch("a", json!({"metadata": {"finalizers": null}})).await;
    world.pass(&next()).await;
    let inventory = world.inventory().await;
    assert_eq!(inventory.deleted.into_keys().collect::<Vec<_>>(), [key("a"), key("b")]);
    assert_eq!(inventory.entries.into_keys().collect::<Vec<_>>(), [key("c")]);
    let versions: Vec<_> = inventory.history.iter().map(|of| (of.version.as_str(), of.state)).collect();
    assert_eq!(versions, [("2", VersionState::Completed), ("1", VersionState::Completed)]);

    // Everything is done: neither cluster is written.
    let (writes, records) = (world.writes().len(), world.home.count());
    let revision = inventory.revision;
    world.pass(&next()).await;
    assert_eq!((world.writes().len(), world.home.count()), (writes, records));
    assert_eq!(world.inventory().await.revision, revision);

    // Another client recreates it.
    world.given("b", json!({"theirs": "yes"})).await;
    let summary = world.pass(&next()).await;
    assert_eq!((summary.status, summary.requested), (Status::Done, vec![key("b")]));
    assert_eq!(world.config_map("b"), None);

    // A version that applies it again.
    world.pass(&Payload::new(&["one: b c"]).of_version("3")).await;
    let inventory = world.inventory().await;
    assert!(inventory.deleted.is_empty() && inventory.entries.contains_key(&key("b")));
}

/// The object tells what the lost answer said: there is no other request, and no failure.
#[tokio::test(start_paused = true)]
async fn a_deletion_without_an_answer_is_recognized_by_its_object() {
    let lost: [fn() -> Fault; 2] = [|| Fault::broken(Moment::After), Fault::timeout];
    for (fault, held) in [(lost[0], false), (lost[0], true), (lost[1], false), (lost[1], true)] {
        let world = World::new();
        world.pass(&Payload::new(&["one: a b"])).await;
        if held {
            world.patch("a", json!({"metadata": {"finalizers": ["a.example/x"]}})).await;
        }
        world.target.faults().inject(fault().on(Requests::of(CLIENT).verb(Verb::Delete)).first(1));
        let summary = world.pass(&Payload::new(&["one: -a", "two after 0: b"])).await;
        assert_eq!((summary.status, &summary.requested, summary.left.len()), (Status::Done, &vec![key("a")], 0));
        assert_eq!(world.requests("delete "), 1);
        assert_eq!(world.config_map("a").is_some(), held);
        let finalizers = |event: &Event| match event {
            Event::Deleting { finalizers, .. } => Some(finalizers.len()),
            _ => None,
        };
        let events: Vec<_> = world.events.lock().unwrap().iter().filter_map(finalizers).collect();
        assert_eq!(events, [usize::from(held)]);
        assert_eq!(world.count(|event| matches!(event, Event::Refused { .. } | Event::Gone { .. })), 0);
    }
}

/// A connection that breaks before the request took effect: the object shows that, and it is sent again.
#[tokio::test(start_paused = true)]
async fn a_deletion_that_took_no_effect_is_sent_again() {
    let world = World::new();
    world.pass(&Payload::new(&["one: a b"])).await;
    world.target.faults().inject(Fault::broken(Moment::Before).on(Requests::of(CLIENT).verb(Verb::Delete)).first(2));
    let summary = world.pass(&Payload::new(&["one: -a b"])).await;
    assert_eq!((summary.status, summary.requested), (Status::Done, vec![key("a")]));
    assert_eq!((world.requests("delete "), world.config_map("a")), (3, None));
}

/// Without the right to read, another request is the only way to know.
#[tokio::test(start_paused = true)]
async fn a_deletion_without_an_answer_is_sent_again_if_its_object_may_not_be_read() {
    let world = World::new();
    world.pass(&Payload::new(&["one: a b"])).await;
    world.patch("a", json!({"metadata": {"finalizers": ["a.example/x"]}})).await;
    world.target.faults().inject(Fault::broken(Moment::After).on(Requests::of(CLIENT).verb(Verb::Delete)).first(1));
    world.target.faults().inject(forbidden().on(Requests::of(CLIENT).verb(Verb::Get).name("a")));
    let summary = world.pass(&Payload::new(&["one: -a b"])).await;
    assert_eq!((summary.status, summary.requested), (Status::Done, vec![key("a")]));
    assert_eq!(world.requests("delete "), 2);
}

/// An interruption while the object is read: whether the request took effect is not known, so the object is listed.
#[tokio::test(start_paused = true)]
async fn an_interruption_after_a_lost_answer_lists_the_object() {
    let world = World::new();
    world.pass(&Payload::new(&["one: a b"])).await;
    world.patch("a", json!({"metadata": {"finalizers": ["a.example/x"]}})).await;
    let faults = world.target.faults();
    faults.inject(Fault::broken(Moment::After).on(Requests::of(CLIENT).verb(Verb::Delete)).first(1));
    faults.inject(Fault::delay(Duration::from_secs(3)).on(Requests::of(CLIENT).verb(Verb::Get).name("a")).first(1));
    faults.inject(Fault::unavailable().on(Requests::of(CLIENT).verb(Verb::Get).name("a")).nth(1));
    let options = world.options();
    let stop = options.stop.clone();
    let interrupt = async {
        sleep(Duration::from_secs(1)).await;
        stop.cancel();
    };
    let payload = Payload::new(&["one: -a b"]);
    let ((_, summary), ()) = tokio::join!(world.run(payload.input(), &options), interrupt);
    assert_eq!(summary.status, Status::Interrupted);
    let left = left(&summary);
    assert!(matches!(left[..], [("a", Blocker::Finalizer { .. }), ("b", Blocker::NotRequested)]), "{left:?}");
    assert_eq!(world.requests("delete "), 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_deleted_unless_the_graph_says_so() {
    let world = World::new();
    world.pass(&Payload::new(&["one: a b"])).await;
    let quiet = Payload::new(&["one: -a b"]).with(|graph| graph.deletes = false);
    let (writes, summary) = (world.writes().len(), world.pass(&quiet).await);
    assert_eq!((summary.status, world.writes().len()), (Status::Done, writes));
    assert_eq!(world.found(&quiet).await, [DeletionState::Left]);
    // Not even an object of another client is a problem then.
    world.given("theirs", json!({})).await;
    let theirs = |deletes| Payload::new(&["one: -theirs b"]).with(|graph| graph.deletes = deletes);
    assert_eq!(world.found(&theirs(false)).await, [DeletionState::Left]);
    let refused = prepare_apply(&world.clusters, theirs(true).input()).await.err().unwrap();
    assert!(refused.to_string().contains("ConfigMap default/theirs exists and belongs to no release"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_was_recreated_since_the_plan_is_not_deleted() {
    let world = World::new();
    world.pass(&Payload::new(&["one: a"])).await;
    let prepared = prepare_apply(&world.clusters, Payload::new(&["one: -a"]).input()).await.unwrap();
    world.admin().delete("a", &DeleteParams::default()).await.unwrap();
    world.given("a", json!({"theirs": "yes"})).await;
    let summary = billhook_engine::apply(&world.clusters, prepared, &world.options()).await.unwrap();
    let failures: Vec<_> = summary.failures().map(|failed| failed.error.to_owned()).collect();
    assert_eq!((summary.status, failures), (Status::Failed, vec!["another client has created it again".to_owned()]));
    assert_eq!((summary.recreated, world.data("a")), (vec![key("a")], json!({"theirs": "yes"})));
    // The manifest still asks for its deletion, so the version is only complete without it.
    let summary = world.pass(&Payload::new(&["one: -a"])).await;
    assert_eq!((summary.status, world.config_map("a")), (Status::Done, None));
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_being_deleted_fails_its_step_until_it_is_gone() {
    let world = World::new();
    world.pass(&Payload::new(&["one: a", "two: b"])).await;
    world.patch("a", json!({"metadata": {"finalizers": ["a.example/x"]}})).await;
    world.admin().delete("a", &DeleteParams::default()).await.unwrap();
    let next = || Payload::new(&["one: a", "two: b c"]).of_version("2");
    let prepared = prepare_apply(&world.clusters, next().input()).await.unwrap();
    let summary = billhook_engine::apply(&world.clusters, prepared, &world.options()).await.unwrap();
    let failures: Vec<_> = summary.failures().map(|failed| failed.error.to_owned()).collect();
    assert_eq!((summary.status, failures), (Status::Failed, vec!["it is being deleted".to_owned()]));
    assert!(world.config_map("c").is_some(), "the other node does not depend on it");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_another_client_has_created_again_fails_its_step() {
    let world = World::new();
    world.pass(&Payload::new(&["one: a"])).await;
    world.patch("a", json!({"metadata": {"finalizers": ["a.example/x"]}})).await;
    world.admin().delete("a", &DeleteParams::default()).await.unwrap();
    let prepared = prepare_apply(&world.clusters, Payload::new(&["one: a"]).of_version("2").input()).await.unwrap();
    world.patch("a", json!({"metadata": {"finalizers": null}})).await;
    world.given("a", json!({"theirs": "yes"})).await;
    let summary = billhook_engine::apply(&world.clusters, prepared, &world.options()).await.unwrap();
    let failures: Vec<_> = summary.failures().map(|failed| failed.error.to_owned()).collect();
    assert_eq!((summary.status, failures), (Status::Failed, vec!["another client has created it again".to_owned()]));
    assert_eq!(world.data("a"), json!({"theirs": "yes"}));
}

/// Its annotations are read in each version that another client writes.
#[tokio::test(start_paused = true)]
async fn an_object_that_keeps_changing_is_not_deleted_unread() {
    let world = World::new();
    world.pass(&Payload::new(&["one: a"])).await;
    let prepared = prepare_apply(&world.clusters, Payload::new(&["one: -a"]).input()).await.unwrap();
    world.patch("a", json!({"metadata": {"annotations": {"example.org/n": "1"}}})).await;
    // The answer to the first read is delayed, so that the object changes again before the next DELETE.
    let reads = Requests::of(CLIENT).verb(Verb::Get).name("a");
    world.target.faults().inject(Fault::delay(Duration::from_secs(5)).on(reads).first(1));
    let options = world.options();
    let mut apply = std::pin::pin!(billhook_engine::apply(&world.clusters, prepared, &options));
    tokio::select! {
        _ = &mut apply => panic!("the apply ended"),
        () = tokio::time::sleep(Duration::from_secs(1)) => {}
    }
    world.patch("a", json!({"metadata": {"annotations": {"billhook.dev/keep-object": "true"}}})).await;
    let summary = apply.await.unwrap();
    assert_eq!((summary.status, summary.uncovered.len()), (Status::Done, 1));
    assert!(world.config_map("a").is_some());
}
