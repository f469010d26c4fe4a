//! Quartz's own answers, recorded (`tests/vectors/cron.json`, `time_zone.json`).

use serde_json::Value;

use super::*;

fn vectors(name: &str) -> Value {
    let path = format!("{}/tests/vectors/{name}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).expect("the vectors are part of the crate")).expect("JSON")
}

fn zone(text: &str) -> jiff::tz::TimeZone {
    match parse_zone(text).expect("a zone") {
        ZoneText::Host => jiff::tz::TimeZone::UTC,
        ZoneText::Fixed(zone) => zone,
        ZoneText::Named(name) => jiff::tz::TimeZone::get(&name).expect("a known zone"),
    }
}

fn moment(text: &str) -> Timestamp {
    Timestamp(text.parse::<jiff::Timestamp>().expect("RFC 3339").as_millisecond())
}

fn fires(cron: &Cron, from: Timestamp, zone: &jiff::tz::TimeZone, count: usize) -> Vec<Timestamp> {
    let mut fires = Vec::new();
    let mut at = from;
    while fires.len() < count {
        let Some(next) = cron.next(at, zone) else { break };
        fires.push(next);
        at = next;
    }
    fires
}

#[test]
fn next_fire_times_equal_quartz() {
    let mut compared = 0;
    for case in vectors("cron.json")["valid"].as_array().expect("cases") {
        let text = case["expression"].as_str().expect("text");
        let Some(next) = case["next"].as_array() else {
            assert!(Cron::parse(text).is_err(), "{text} is refused by Quartz");
            continue;
        };
        let cron = Cron::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        let expected: Vec<Timestamp> = next.iter().map(|t| moment(t.as_str().expect("text"))).collect();
        let zone_text = case["zone"].as_str().expect("text");
        let base = case["base"].as_str().expect("text");
        let found = fires(&cron, moment(base), &zone(zone_text), expected.len().max(1));
        assert_eq!(found, expected, "{text} in {zone_text} from {base}");
        compared += 1;
    }
    assert!(compared > 250, "{compared}");
}

#[test]
fn the_same_expressions_are_refused_as_by_quartz() {
    for case in vectors("cron.json")["edge_or_invalid"].as_array().expect("cases") {
        let text = case["expression"].as_str().expect("text");
        let accepted = case["accepted_by_parser"].as_bool().expect("bool");
        let cron = Cron::parse(text);
        assert_eq!(cron.is_ok(), accepted, "{text}: {cron:?}");
        if let (Ok(cron), Some(next)) = (cron, case["next"].as_array()) {
            let expected: Vec<Timestamp> = next.iter().map(|t| moment(t.as_str().expect("text"))).collect();
            let found = fires(&cron, moment("2026-03-07T23:58:57Z"), &jiff::tz::TimeZone::UTC, expected.len().max(1));
            assert_eq!(found, expected, "{text}");
        }
    }
}

#[test]
fn a_refusal_names_the_field_and_what_was_expected() {
    for (text, message) in [
        (
            "* * * * *",
            "5 fields, expected at least 6: second minute hour day-of-month month day-of-week [year]; in Quartz format this Unix expression is `0 * * * * ?`",
        ),
        ("0 0 0 32 * ?", "day-of-month `32`: values must be between 1 and 31"),
        ("0 0 0 * * *", "day-of-month `*` and day-of-week `*`: exactly one of the two must be `?`"),
        ("0 0 0 ? * 1#6", "day-of-week `1#6`: `#` must be followed by a number between 1 and 5"),
        (
            "0 0 0 1 XXX ?",
            "month `XXX`: unknown name in `XXX`; expected JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC",
        ),
    ] {
        assert_eq!(Cron::parse(text).expect_err(text).to_string(), message);
    }
}

#[test]
fn time_zones_are_read_as_in_java_but_malformed_ones_are_refused() {
    // Java reads these silently as GMT; here they are errors (COMPAT.md).
    let refused = ["GMT+24", "GMT+8:60", "GMT8", "GMT+", "GMT/x", "GMT+08:00:00"];
    // Java refuses every name that does not begin with GMT; here IANA names are taken (COMPAT.md).
    let names = ["UTC", "Asia/Shanghai", "gmt+8"];
    for case in vectors("time_zone.json").as_array().expect("cases") {
        let text = case["input"].as_str().unwrap_or_default();
        let parsed = parse_zone(text);
        if refused.contains(&text) {
            assert!(parsed.is_err(), "{text}");
        } else if names.contains(&text) {
            assert_eq!(parsed, Ok(ZoneText::Named(text.to_owned())));
        } else if let Some(minutes) = case["offset_minutes"].as_i64() {
            let Ok(ZoneText::Fixed(zone)) = parsed else { panic!("{text}: {parsed:?}") };
            let offset = zone.to_fixed_offset().expect("fixed").seconds();
            assert_eq!(i64::from(offset), minutes * 60, "{text}");
        } else {
            assert_eq!(parsed, Ok(ZoneText::Host), "{text}");
        }
    }
}

/// Found by hostile inputs.
#[test]
fn a_range_of_two_billion_years_and_a_zone_of_letters_are_read_immediately() {
    let cron = Cron::parse("0 15 10 ? * 6L 2002002-2099002002").expect("Quartz takes it");
    let utc = jiff::tz::TimeZone::UTC;
    assert_eq!(cron.next(moment("2026-01-01T00:00:00Z"), &utc), None);
    let cron = Cron::parse("0 0 0 1 1 ? 2027-2099002002").expect("Quartz takes it");
    assert_eq!(cron.next(moment("2026-01-01T00:00:00Z"), &utc), Some(moment("2027-01-01T00:00:00Z")));
    for text in ["GMT+8\u{e9}\u{e9}", "GMT-\u{feff}", "GMT+\u{fffd}0"] {
        assert!(parse_zone(text).is_err(), "{text}");
    }
}

#[test]
fn a_unix_expression_is_refused_with_its_form_in_this_dialect() {
    for (unix, quartz) in [
        ("*/5 * * * *", Some("0 */5 * * * ?")),
        ("30 2 * * 1-5", Some("0 30 2 ? * MON-FRI")),
        ("0 0 * * 0", Some("0 0 0 ? * SUN")),
        ("0 0 * * 7,3", Some("0 0 0 ? * SUN,WED")),
        ("0 0 1 1 *", Some("0 0 0 1 1 ?")),
        ("0 0 * * mon", Some("0 0 0 ? * MON")),
        ("0 0 1 * 1", None), // either day
        ("0 0 99 * *", None),
        ("* * * *", None),
    ] {
        let Err(CronError::FieldsMissing { quartz: found, .. }) = Cron::parse(unix) else { panic!("{unix}") };
        assert_eq!(found.as_deref(), quartz, "{unix}");
    }
}

#[test]
fn an_hour_that_comes_twice_rests_as_in_quartz_or_fires_twice() {
    let berlin = zone("Europe/Berlin");
    let begin = moment("2026-10-25T00:00:00Z"); // 02:00 for the first time
    let every_minute = Cron::parse("0 * * * * ?").expect("valid");
    let count = |cron: &Cron, from: &str| {
        let until = moment(from) + std::time::Duration::from_secs(3 * 3_600);
        fires(cron, moment(from), &berlin, 1_000).into_iter().filter(|at| *at <= until).count()
    };
    assert_eq!(count(&every_minute, "2026-10-24T23:00:00Z"), 120, "an hour without a firing, as in Quartz");
    let end = Timestamp(begin.0 + 3_600_000);
    assert_eq!(every_minute.rests_in_repeated_hour(moment("2026-01-01T00:00:00Z"), &berlin), Some((begin, end)));
    let twice = every_minute.twice_in_repeated_hours(true);
    assert_eq!(count(&twice, "2026-10-24T23:00:00Z"), 180);
    assert_eq!(twice.rests_in_repeated_hour(moment("2026-01-01T00:00:00Z"), &berlin), None);
    assert_eq!(count(&twice, "2026-03-29T00:00:00Z"), 180, "the hour that does not come is not missed");
    for (text, from, expected) in [
        ("0 30 2 * * ?", "2026-10-24T22:00:00Z", ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"]),
        ("0 0 2,3 * * ?", "2026-10-24T22:00:00Z", ["2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z"]),
        ("0 30 2 * * ?", "2026-03-28T12:00:00Z", ["2026-03-30T00:30:00Z", "2026-03-31T00:30:00Z"]),
        ("0 0 3 * * ?", "2026-03-28T12:00:00Z", ["2026-03-29T01:00:00Z", "2026-03-30T01:00:00Z"]),
    ] {
        let cron = Cron::parse(text).expect("valid").twice_in_repeated_hours(true);
        assert_eq!(fires(&cron, moment(from), &berlin, 2), expected.map(moment), "{text} from {from}");
    }
    for (text, zone_text) in
        [("0 * * * * ?", "Asia/Shanghai"), ("0 * * * * ?", "UTC"), ("0 30 2 * * ?", "Europe/Berlin")]
    {
        let cron = Cron::parse(text).expect("valid");
        assert_eq!(
            cron.rests_in_repeated_hour(moment("2026-01-01T00:00:00Z"), &zone(zone_text)),
            None,
            "{text} {zone_text}"
        );
    }
}

/// Where no local time comes twice, both searches are one.
#[test]
fn both_searches_agree_but_for_repeated_hours() {
    for case in vectors("cron.json")["valid"].as_array().expect("cases") {
        let (text, zone_text) = (case["expression"].as_str().expect("text"), case["zone"].as_str().expect("text"));
        let (Ok(cron), zone) = (Cron::parse(text), jiff::tz::TimeZone::UTC) else { continue };
        let base = moment(case["base"].as_str().expect("text"));
        let twice = cron.clone().twice_in_repeated_hours(true);
        assert_eq!(fires(&cron, base, &zone, 20), fires(&twice, base, &zone, 20), "{text} {zone_text}");
    }
}
