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
            "5 of at least 6 fields given; expected: second minute hour day-of-month month day-of-week [year]",
        ),
        ("0 0 0 32 * ?", "day-of-month `32`: values must be between 1 and 31"),
        ("0 0 0 * * *", "day-of-month `*` and day-of-week `*`: one of the two must be `?` and the other must not"),
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
fn a_range_of_two_billion_years_and_a_zone_of_letters_are_read_at_once() {
    let cron = Cron::parse("0 15 10 ? * 6L 2002002-2099002002").expect("Quartz takes it");
    let utc = jiff::tz::TimeZone::UTC;
    assert_eq!(cron.next(moment("2026-01-01T00:00:00Z"), &utc), None);
    let cron = Cron::parse("0 0 0 1 1 ? 2027-2099002002").expect("Quartz takes it");
    assert_eq!(cron.next(moment("2026-01-01T00:00:00Z"), &utc), Some(moment("2027-01-01T00:00:00Z")));
    for text in ["GMT+8\u{e9}\u{e9}", "GMT-\u{feff}", "GMT+\u{fffd}0"] {
        assert!(parse_zone(text).is_err(), "{text}");
    }
}
