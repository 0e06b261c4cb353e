use std::time::Duration;

use super::*;

fn item(target: &str, failing: bool, waiting: Option<Instant>) -> ItemGauges {
    ItemGauges { kind: "helm", target: target.to_owned(), failing, waiting, queued: false }
}

#[tokio::test(start_paused = true)]
async fn items_are_summed_up_by_target_and_type() {
    let (board, now) = (Board::default(), Instant::now());
    let key = |name: &str| ("n".to_owned(), name.to_owned());
    let earlier = now - Duration::from_secs(5);
    board.set_item(&key("a"), Some(item("t", true, Some(now))));
    board.set_item(&key("b"), Some(item("t", true, Some(earlier))));
    board.set_item(&key("c"), Some(item("u", false, None)));
    board.set_item(&key("d"), Some(ItemGauges { kind: "kubernetes-manifest", ..item("t", false, None) }));
    let sums = |board: &Board| {
        let state = board.state();
        let sums = state
            .sums()
            .into_iter()
            .map(|((_, target, kind), sum)| (format!("{target} {kind}"), sum.failing, sum.oldest));
        sums.collect::<Vec<_>>()
    };
    let expected = [
        ("t helm".to_owned(), 2, Some(earlier)),
        ("t kubernetes-manifest".to_owned(), 0, None),
        ("u helm".to_owned(), 0, None),
    ];
    assert_eq!(sums(&board), expected);
    board.set_item(&key("c"), None);
    board.set_item(&key("b"), Some(item("t", false, None)));
    assert_eq!(sums(&board)[0], ("t helm".to_owned(), 1, Some(now)));
    assert_eq!(sums(&board).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn names_that_tenants_choose_are_limited() {
    let (board, now) = (Board::default(), Instant::now());
    for index in 0..NAMED + 10 {
        let name = format!("{index}");
        let waiting = (index == NAMED + 8).then_some(now);
        board.set_item(&("n".to_owned(), name.clone()), Some(item(&name, index == NAMED + 9, waiting)));
        let target = ("n".to_owned(), name);
        board.add_target(&target);
        board.opened(&target, None);
    }
    let state = board.state();
    let sums = state.sums();
    assert_eq!(sums.len(), NAMED + 1);
    // The worst ones keep their names.
    let (failing, waiting) = (format!("{}", NAMED + 9), format!("{}", NAMED + 8));
    assert_eq!(sums[&("n", failing.as_str(), "helm")].failing, 1);
    assert_eq!(sums[&("n", waiting.as_str(), "helm")].oldest, Some(now));
    assert!(sums.contains_key(&(OTHERS, OTHERS, "helm")));
    assert_eq!(state.targets().len(), NAMED);
}
