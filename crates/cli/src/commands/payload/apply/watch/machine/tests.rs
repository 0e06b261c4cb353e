use std::time::Duration;

use tokio::time::Instant;

use super::{Effect, Input, Machine, Reading, StopWhy, Why};

/// The content and the files of a folder are a text and a number.
type Change = Input<&'static str, u32>;
type Done = Effect<&'static str>;

const INTERVAL: Duration = Duration::from_secs(180);
const LOOK: Done = Effect::Look;
const READ: Done = Effect::Read;

fn read(files: u32, content: &'static str) -> Change {
    Input::Read(Reading { before: files, after: files, content: Ok(content) })
}

fn invalid(files: u32, problem: &str) -> Change {
    Input::Read(Reading { before: files, after: files, content: Err(problem.to_owned()) })
}

fn ended() -> Change {
    Input::Ended { failed: false }
}

fn start(content: &'static str, why: Why) -> Done {
    Effect::Start(content, why)
}

/// Plays inputs at times in milliseconds, and checks the effects of each and when the machine wants to be woken up.
fn check(history: Vec<(u64, Change, Vec<Done>, Option<u64>)>) {
    let begin = Instant::now();
    let at = |millis| begin + Duration::from_millis(millis);
    let mut machine = Machine::new(INTERVAL, begin);
    for (number, (millis, input, effects, wake)) in history.into_iter().enumerate() {
        let shown = format!("{number}: {input:?} at {millis}");
        assert_eq!(machine.on(input, at(millis)), effects, "{shown}");
        assert_eq!(machine.wake_at(), wake.map(at), "{shown}");
    }
}

/// Returns a history in which the first payload was read, and its pass has ended at 2.5 s.
fn running(more: Vec<(u64, Change, Vec<Done>, Option<u64>)>) {
    let mut history = vec![
        (0, Input::Time, vec![LOOK], None),
        (0, Input::Looked(1), vec![], Some(2_000)),
        (2_000, Input::Time, vec![READ], None),
        (2_000, read(1, "a"), vec![], None),
        (2_100, Input::Leads, vec![start("a", Why::Leading), LOOK], None),
        (2_100, Input::Looked(1), vec![], None),
        (2_500, ended(), vec![], Some(182_500)),
    ];
    history.extend(more);
    check(history);
}

#[test]
fn a_pass_is_made_after_each_interval() {
    running(vec![
        (182_500, Input::Time, vec![start("a", Why::Interval), LOOK], None),
        (182_500, Input::Looked(1), vec![], None),
        (190_000, ended(), vec![], Some(370_000)),
        (369_999, Input::Time, vec![], Some(370_000)),
        (370_000, Input::Time, vec![start("a", Why::Interval), LOOK], None),
    ]);
}

#[test]
fn nothing_happens_before_the_first_payload_is_complete() {
    check(vec![
        (0, Input::Leads, vec![LOOK], None),
        (0, Input::Looked(1), vec![], Some(2_000)),
        (1_500, Input::Reported, vec![LOOK], None),
        (1_500, Input::Looked(2), vec![], Some(3_500)),
        (2_000, Input::Time, vec![], Some(3_500)),
        (3_500, Input::Time, vec![READ], None),
        (3_500, read(2, "a"), vec![start("a", Why::Leading), LOOK], None),
    ]);
}

#[test]
fn a_folder_that_was_never_usable_is_rejected() {
    check(vec![
        (0, Input::Time, vec![LOOK], None),
        (0, Input::Looked(1), vec![], Some(2_000)),
        (2_000, Input::Time, vec![READ], None),
        (2_000, invalid(1, "no"), vec![Effect::Reject], None),
    ]);
}

#[test]
fn a_changed_folder_is_read_once_it_is_quiet() {
    running(vec![
        (10_000, Input::Reported, vec![LOOK], Some(182_500)),
        (10_000, Input::Looked(2), vec![], Some(12_000)),
        (11_000, Input::Reported, vec![LOOK], Some(182_500)),
        (11_000, Input::Looked(3), vec![], Some(13_000)),
        (12_000, Input::Time, vec![], Some(13_000)),
        (13_000, Input::Time, vec![READ], Some(182_500)),
        (13_000, read(3, "b"), vec![start("b", Why::Changed)], None),
        (13_100, ended(), vec![], Some(193_100)),
    ]);
}

#[test]
fn reports_without_a_change_do_not_postpone_anything() {
    running(vec![
        (10_000, Input::Reported, vec![LOOK], Some(182_500)),
        (10_000, Input::Looked(2), vec![], Some(12_000)),
        (10_100, Input::Reported, vec![], Some(10_500)),
        (10_200, Input::Reported, vec![], Some(10_500)),
        (10_500, Input::Time, vec![LOOK], Some(182_500)),
        (10_600, Input::Reported, vec![], Some(182_500)),
        (11_900, Input::Looked(2), vec![], Some(12_000)),
        (11_950, Input::Reported, vec![], Some(12_000)),
        (12_000, Input::Time, vec![READ], Some(182_500)),
        (12_100, read(2, "b"), vec![start("b", Why::Changed)], Some(12_400)),
        (12_400, Input::Time, vec![LOOK], None),
        (12_400, Input::Looked(2), vec![], None),
        (12_500, ended(), vec![], Some(192_500)),
    ]);
}

#[test]
fn files_that_keep_changing_are_told_once_until_they_are_read() {
    let begin = Instant::now();
    let (mut machine, mut now, mut files) = (Machine::new(INTERVAL, begin), begin, 0);
    assert_eq!(machine.on(Input::Time, now), [LOOK]);
    for (content, usable) in [("a", vec![]), ("a", vec![Effect::TellUsable]), ("b", vec![])] {
        let first = now;
        let mut told = Vec::new();
        for _ in 0..100 {
            files += 1;
            let effects = machine.on(Input::Looked(files), now);
            told.extend(effects.into_iter().map(|effect| (now - first, effect)));
            now += Duration::from_millis(1_500);
            assert_eq!(machine.on(Input::Reported, now), [LOOK]);
        }
        assert_eq!(told, [(Duration::from_secs(60), Effect::TellChanging)]);
        assert!(!machine.is_usable());
        assert_eq!(machine.on(Input::Looked(files), now), []);
        now += Duration::from_millis(500);
        assert_eq!(machine.on(Input::Time, now), [READ]);
        assert_eq!(machine.on(read(files, content), now), usable);
        assert!(machine.is_usable());
        now += Duration::from_secs(1);
        assert_eq!(machine.on(Input::Reported, now), [LOOK]);
    }
}

#[test]
fn a_folder_that_changes_unreported_before_or_while_it_is_read_is_read_again() {
    let torn = Input::Read(Reading { before: 3, after: 4, content: Ok("torn") });
    running(vec![
        (10_000, Input::Reported, vec![LOOK], Some(182_500)),
        (10_000, Input::Looked(2), vec![], Some(12_000)),
        (12_000, Input::Time, vec![READ], Some(182_500)),
        (12_000, read(3, "half"), vec![], Some(14_000)),
        (14_000, Input::Time, vec![READ], Some(182_500)),
        (14_001, torn, vec![], Some(16_001)),
        (16_001, Input::Time, vec![READ], Some(182_500)),
        (16_001, read(4, "b"), vec![start("b", Why::Changed)], None),
    ]);
}

#[test]
fn a_change_that_is_reported_while_the_folder_is_read_is_not_lost() {
    running(vec![
        (10_000, Input::Reported, vec![LOOK], Some(182_500)),
        (10_000, Input::Looked(2), vec![], Some(12_000)),
        (12_000, Input::Time, vec![READ], Some(182_500)),
        (19_000, Input::Reported, vec![], Some(182_500)),
        (20_000, read(2, "b"), vec![start("b", Why::Changed), LOOK], None),
        // So is one that is reported while the files are looked at.
        (21_000, Input::Reported, vec![], None),
        (25_000, Input::Looked(2), vec![], Some(25_500)),
        (25_500, Input::Time, vec![LOOK], None),
        (25_500, Input::Looked(3), vec![], Some(27_500)),
        (27_500, Input::Time, vec![READ], None),
        (27_500, read(3, "c"), vec![Effect::Stop(StopWhy::Changed)], None),
        (27_600, Input::Ended { failed: true }, vec![start("c", Why::Changed)], None),
    ]);
}

#[test]
fn everything_else_continues_while_the_folder_is_read() {
    running(vec![
        (10_000, Input::Reported, vec![LOOK], Some(182_500)),
        (10_000, Input::Looked(2), vec![], Some(12_000)),
        (12_000, Input::Time, vec![READ], Some(182_500)),
        (182_500, Input::Time, vec![start("a", Why::Interval)], None),
        (183_000, ended(), vec![], Some(363_000)),
        (184_000, Input::Lost, vec![], None),
        (185_000, Input::Leads, vec![start("a", Why::Leading)], None),
        (190_000, read(2, "b"), vec![Effect::Stop(StopWhy::Changed), LOOK], None),
        (190_100, ended(), vec![start("b", Why::Changed)], None),
        (190_200, Input::Looked(2), vec![], None),
    ]);
}

#[test]
fn a_change_that_nothing_reported_is_found_at_the_next_pass() {
    running(vec![
        (182_500, Input::Time, vec![start("a", Why::Interval), LOOK], None),
        (182_600, Input::Looked(2), vec![], Some(184_600)),
        (183_000, ended(), vec![], Some(184_600)),
        (184_600, Input::Time, vec![READ], Some(363_000)),
        (184_600, read(2, "b"), vec![start("b", Why::Changed)], None),
    ]);
}

#[test]
fn a_change_that_comes_to_nothing_causes_no_pass() {
    running(vec![
        (10_000, Input::Reported, vec![LOOK], Some(182_500)),
        (10_000, Input::Looked(2), vec![], Some(12_000)),
        (12_000, Input::Time, vec![READ], Some(182_500)),
        (12_000, read(2, "a"), vec![], Some(182_500)),
    ]);
}

#[test]
fn an_unusable_folder_is_told_once_and_the_last_payload_remains() {
    let unusable = |problem: &str| vec![Effect::TellUnusable(problem.to_owned())];
    running(vec![
        (10_000, Input::Reported, vec![LOOK], Some(182_500)),
        (10_000, Input::Looked(2), vec![], Some(12_000)),
        (12_000, Input::Time, vec![READ], Some(182_500)),
        (12_000, invalid(2, "no"), unusable("no"), Some(182_500)),
        (20_000, Input::Reported, vec![LOOK], Some(182_500)),
        (20_000, Input::Looked(3), vec![], Some(22_000)),
        (22_000, Input::Time, vec![READ], Some(182_500)),
        (22_000, invalid(3, "no"), vec![], Some(182_500)),
        (30_000, Input::Reported, vec![LOOK], Some(182_500)),
        (30_000, Input::Looked(4), vec![], Some(32_000)),
        (32_000, Input::Time, vec![READ], Some(182_500)),
        (32_000, invalid(4, "other"), unusable("other"), Some(182_500)),
        (182_500, Input::Time, vec![start("a", Why::Interval), LOOK], None),
        (182_500, Input::Looked(4), vec![], None),
        (182_600, ended(), vec![], Some(362_600)),
        (190_000, Input::Reported, vec![LOOK], Some(362_600)),
        (190_000, Input::Looked(1), vec![], Some(192_000)),
        (192_000, Input::Time, vec![READ], Some(362_600)),
        (192_000, read(1, "a"), vec![Effect::TellUsable], Some(362_600)),
        (200_000, Input::Reported, vec![LOOK], Some(362_600)),
        (200_000, Input::Looked(4), vec![], Some(202_000)),
        (202_000, Input::Time, vec![READ], Some(362_600)),
        (202_000, invalid(4, "other"), unusable("other"), Some(362_600)),
        (210_000, Input::Reported, vec![LOOK], Some(362_600)),
        (210_000, Input::Looked(5), vec![], Some(212_000)),
        (212_000, Input::Time, vec![READ], Some(362_600)),
        (212_000, read(5, "b"), vec![start("b", Why::Changed)], None),
    ]);
}

#[test]
fn a_pass_of_a_replaced_payload_is_stopped_once() {
    running(vec![
        (182_500, Input::Time, vec![start("a", Why::Interval), LOOK], None),
        (182_500, Input::Looked(1), vec![], None),
        (183_000, Input::Reported, vec![LOOK], None),
        (183_000, Input::Looked(2), vec![], Some(185_000)),
        (185_000, Input::Time, vec![READ], None),
        (185_000, read(2, "b"), vec![Effect::Stop(StopWhy::Changed)], None),
        (185_100, Input::Reported, vec![LOOK], None),
        (185_100, Input::Looked(3), vec![], Some(187_100)),
        (187_100, Input::Time, vec![READ], None),
        (187_100, read(3, "c"), vec![], None),
        (187_200, Input::Ended { failed: true }, vec![start("c", Why::Changed)], None),
        (188_000, ended(), vec![], Some(368_000)),
    ]);
}

#[test]
fn pauses_after_failed_passes_grow_up_to_the_interval() {
    let begin = Instant::now();
    for (interval, expected) in [
        (180, &[11_250, 22_500, 45_000, 90_000, 180_000, 180_000][..]),
        (10, &[1_000, 2_000, 4_000, 8_000, 10_000]),
        (1, &[1_000, 1_000]),
    ] {
        let mut machine = Machine::new(Duration::from_secs(interval), begin);
        let mut now = begin + Duration::from_secs(2);
        machine.on(Input::Time, begin);
        machine.on(Input::Looked(1), begin);
        assert_eq!(machine.on(Input::Time, now), [READ]);
        machine.on(read(1, "a"), now);
        assert_eq!(machine.on(Input::Leads, now), [start("a", Why::Leading), LOOK]);
        for pause in expected {
            assert_eq!(machine.on(Input::Looked(1), now), []);
            assert_eq!(machine.on(Input::Ended { failed: true }, now), []);
            let wake = machine.wake_at().unwrap();
            assert_eq!(wake - now, Duration::from_millis(*pause), "{interval}");
            now = wake;
            assert_eq!(machine.on(Input::Time, now), [start("a", Why::Retry), LOOK]);
        }
        assert_eq!(machine.on(ended(), now), []);
        assert_eq!(machine.wake_at(), Some(now + Duration::from_secs(interval)), "a success ends the series");
    }
}

#[test]
fn a_new_payload_ends_a_series_of_failures() {
    running(vec![
        (182_500, Input::Time, vec![start("a", Why::Interval), LOOK], None),
        (182_500, Input::Looked(1), vec![], None),
        (183_000, Input::Ended { failed: true }, vec![], Some(194_250)),
        (184_000, Input::Reported, vec![LOOK], Some(194_250)),
        (184_000, Input::Looked(2), vec![], Some(186_000)),
        (186_000, Input::Time, vec![READ], Some(194_250)),
        (186_000, read(2, "b"), vec![start("b", Why::Changed)], None),
        (187_000, Input::Ended { failed: true }, vec![], Some(198_250)),
    ]);
}

#[test]
fn only_the_leader_makes_passes() {
    running(vec![
        (182_500, Input::Time, vec![start("a", Why::Interval), LOOK], None),
        (182_500, Input::Looked(1), vec![], None),
        (183_000, Input::Lost, vec![Effect::Stop(StopWhy::Lost)], None),
        (183_100, Input::Ended { failed: true }, vec![], None),
        (190_000, Input::Reported, vec![LOOK], None),
        (190_000, Input::Looked(2), vec![], Some(192_000)),
        (192_000, Input::Time, vec![READ], None),
        (192_000, read(2, "b"), vec![], None),
        (500_000, Input::Leads, vec![start("b", Why::Leading), LOOK], None),
        (500_000, Input::Looked(2), vec![], None),
        (500_001, Input::Lost, vec![Effect::Stop(StopWhy::Lost)], None),
        (500_002, ended(), vec![], None),
        (500_003, Input::Lost, vec![], None),
    ]);
}

#[test]
fn the_end_of_pending_deletions_causes_a_pass() {
    running(vec![
        (10_000, Input::Gone, vec![start("a", Why::Gone), LOOK], None),
        (10_000, Input::Looked(1), vec![], None),
        // One that was still waited for when the pass started.
        (10_001, Input::Gone, vec![], None),
        (10_500, ended(), vec![], Some(190_500)),
        (11_000, Input::Lost, vec![], None),
        (12_000, Input::Gone, vec![], None),
        (13_000, Input::Leads, vec![start("a", Why::Leading), LOOK], None),
    ]);
}
