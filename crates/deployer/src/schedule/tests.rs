use std::time::Duration;

use billhook_policy::GoDuration;

use super::Schedule;

/// Checks the next time, as `robfig/cron` v3.0.1 computes it.
fn check(spec: &str, after: &str, next: &str) {
    let schedule = Schedule::cron(spec).unwrap_or_else(|error| panic!("{error}"));
    let found = schedule.next(after.parse().unwrap()).map(|time| time.to_string());
    assert_eq!(found.as_deref(), Some(next), "{spec} after {after}");
}

#[test]
fn the_next_time_is_the_same_as_in_robfig_cron() {
    check("* * * * *", "2026-01-01T00:00:00.5Z", "2026-01-01T00:01:00Z");
    check("* * * * ?", "2026-01-01T00:00:59Z", "2026-01-01T00:01:00Z");
    check("*/15 * * * *", "2026-01-01T00:07:00Z", "2026-01-01T00:15:00Z");
    check("*/15 * * * *", "2026-01-01T00:45:00Z", "2026-01-01T01:00:00Z");
    check("5/20 * * * *", "2026-01-01T00:20:00Z", "2026-01-01T00:25:00Z");
    check("10-30/10,55 * * * *", "2026-01-01T00:50:00Z", "2026-01-01T00:55:00Z");
    check("1,,5 * * * *", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z");
    check("30 9-17/4 * * *", "2026-01-01T12:00:00Z", "2026-01-01T13:30:00Z");
    check("30 9-17/4 * * *", "2026-01-01T18:00:00Z", "2026-01-02T09:30:00Z");
    check("0 0 31 * *", "2026-01-31T23:59:00Z", "2026-03-31T00:00:00Z");
    check("0 0 29 2 *", "2026-02-01T00:00:00Z", "2028-02-29T00:00:00Z");
    check("0 0 29 2 *", "2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z");
    check("0 0 1 JAN,jul-SEP *", "2026-01-01T00:00:00Z", "2026-07-01T00:00:00Z");
    check("0 0 1 2/5 *", "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z");
    check("0 22 * * Mon-Fri", "2026-01-02T22:00:00Z", "2026-01-05T22:00:00Z");
    check("0 0 * * sun", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z");
}

#[test]
fn either_day_matches_if_both_days_are_restricted() {
    check("0 12 13 * fri", "2026-01-01T00:00:00Z", "2026-01-02T12:00:00Z");
    check("0 12 13 * ?", "2026-01-01T00:00:00Z", "2026-01-13T12:00:00Z");
    check("0 0 */2 * mon", "2026-01-01T00:00:00Z", "2026-01-03T00:00:00Z");
    check("0 0 1-31 * mon", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
    check("0 0 *,9 * mon", "2026-01-03T00:00:00Z", "2026-01-05T00:00:00Z");
}

#[test]
fn descriptors_are_short_for_fields() {
    check("@hourly", "2026-06-15T10:30:00Z", "2026-06-15T11:00:00Z");
    check("@daily", "2026-06-15T10:30:00Z", "2026-06-16T00:00:00Z");
    check("@midnight", "2026-06-15T10:30:00Z", "2026-06-16T00:00:00Z");
    check("@weekly", "2026-06-15T10:30:00Z", "2026-06-21T00:00:00Z");
    check("@monthly", "2026-06-15T10:30:00Z", "2026-07-01T00:00:00Z");
    check("@yearly", "2026-06-15T10:30:00Z", "2027-01-01T00:00:00Z");
    check("@annually", "2026-06-15T10:30:00Z", "2027-01-01T00:00:00Z");
    check("@every 1h30m", "2026-06-15T10:30:00.25Z", "2026-06-15T12:00:00Z");
    check("@every 10ms", "2026-06-15T10:30:00Z", "2026-06-15T10:30:01Z");
}

#[test]
fn a_time_zone_shifts_the_time_with_its_daylight_saving() {
    check("TZ=UTC 0 9 * * *", "2026-06-15T10:30:00Z", "2026-06-16T09:00:00Z");
    check("CRON_TZ=Asia/Tokyo 0 9 * * *", "2026-06-15T10:30:00Z", "2026-06-16T00:00:00Z");
    check("CRON_TZ=Asia/Tokyo @daily", "2026-06-15T10:30:00Z", "2026-06-15T15:00:00Z");
    check("CRON_TZ=Europe/Berlin 0 9 * * *", "2026-01-15T10:30:00Z", "2026-01-16T08:00:00Z");
    check("CRON_TZ=Europe/Berlin 0 9 * * *", "2026-06-15T10:30:00Z", "2026-06-16T07:00:00Z");
    check("CRON_TZ=Europe/Berlin 30 2 * * *", "2026-03-28T12:00:00Z", "2026-03-30T00:30:00Z");
    check("CRON_TZ=Europe/Berlin 30 2 * * *", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z");
    check("CRON_TZ=Europe/Berlin 30 2 * * *", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z");
}

#[test]
fn a_period_is_counted_in_whole_seconds() {
    let next = |period| Schedule::every(period).next("2026-01-01T00:00:00.75Z".parse().unwrap());
    let every = |text: &str| next(text.parse().unwrap());
    assert_eq!(every("90s").unwrap().to_string(), "2026-01-01T00:01:30Z");
    assert_eq!(every("1500ms").unwrap().to_string(), "2026-01-01T00:00:01Z");
    assert_eq!(every("0s").unwrap().to_string(), "2026-01-01T00:00:01Z");
    assert_eq!(next(GoDuration(Duration::from_secs(90_000_000 * 3600))), None, "no such year");
    let both =
        [billhook_policy::Schedule::Every("1m".parse().unwrap()), billhook_policy::Schedule::Cron("@hourly".into())];
    let next = both
        .map(|s| Schedule::try_from(&s).unwrap().next("2026-01-01T00:30:00Z".parse().unwrap()).unwrap().to_string());
    assert_eq!(next, ["2026-01-01T00:31:00Z", "2026-01-01T01:00:00Z"]);
}

#[test]
fn an_error_names_the_field_and_its_syntax() {
    let check = |spec: &str, expected: &str| match Schedule::cron(spec) {
        Ok(_) => panic!("{spec} is accepted"),
        Err(error) => assert_eq!(error.to_string(), format!("parse schedule {spec:?}: {expected}")),
    };
    let minutes = "write 0-59, *, a range 1-5, a list 1,5 or a step */2";
    check("60 * * * *", &format!("minute \"60\": 60 is not in 0-59; {minutes}"));
    check("*/0 * * * *", &format!("minute \"*/0\": a step must be a number greater than 0; {minutes}"));
    check("*/2/3 * * * *", &format!("minute \"*/2/3\": a step must be a number greater than 0; {minutes}"));
    check("1-2-3 * * * *", &format!("minute \"1-2-3\": unknown value \"2-3\"; {minutes}"));
    check("-5 * * * *", &format!("minute \"-5\": unknown value \"\"; {minutes}"));
    check(", * * * *", &format!("minute \",\": it is empty; {minutes}"));
    check("* 24 * * *", "hour \"24\": 24 is not in 0-23; write 0-23, *, a range 1-5, a list 1,5 or a step */2");
    check("* * L * *", "day of month \"L\": unknown value \"L\"; write 1-31, *, a range 1-5, a list 1,5 or a step */2");
    let months = "write 1-12 or jan-dec, *, a range 1-5, a list 1,5 or a step */2";
    check("* * * foo *", &format!("month \"foo\": unknown value \"foo\"; {months}"));
    let days = "write 0-6 or sun-sat, *, a range 1-5, a list 1,5 or a step */2";
    check("* * * * 7", &format!("day of week \"7\": 7 is not in 0-6; {days}"));
    check("* * * * fri-mon", &format!("day of week \"fri-mon\": the range fri-mon ends before it starts; {days}"));
    check("* * * *", "it has 4 fields: write five (minute, hour, day of month, month, day of week)");
    check("0 * * * * *", "it has 6 fields: write five (minute, hour, day of month, month, day of week)");
    check("", "it has 0 fields: write five (minute, hour, day of month, month, day of week)");
    let named = "write @yearly, @monthly, @weekly, @daily, @hourly, or @every with a duration like 1h30m";
    check("@reboot", named);
    check("@every", named);
    check("@every soon", "expected a duration such as 90s, 5m or 1h30m, found \"soon\"");
    check("0 0 30 2 *", "no year has such a day");
    check("TZ=Mars/Base * * * * *", "unknown time zone \"Mars/Base\": write a name like Europe/Berlin");
    check("TZ=UTC", "there is no schedule after the time zone");
}
