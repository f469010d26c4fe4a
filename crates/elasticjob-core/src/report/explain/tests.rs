//! What is a cause, what only looks like one, and the search for the latest firing.

use jiff::tz::TimeZone;

use super::*;
use crate::cron::Cron;
use crate::wire::Claim;
use crate::wire::JobDocument;

#[test]
fn the_latest_firing_is_the_one_before_now() {
    let zone = TimeZone::UTC;
    let at = |text: &str| Timestamp(text.parse::<jiff::Timestamp>().expect("a time").as_millisecond());
    for (cron, now, expected) in [
        ("* * * * * ?", "2026-11-21T10:00:00.500Z", Some("2026-11-21T10:00:00Z")),
        ("* * * * * ?", "2026-11-21T10:00:01Z", Some("2026-11-21T10:00:01Z")),
        ("0 0 3 * * ?", "2026-11-21T10:00:00Z", Some("2026-11-21T03:00:00Z")),
        ("0 0 3 1 1 ?", "2026-11-21T10:00:00Z", Some("2026-01-01T03:00:00Z")),
        ("0 0 3 29 2 ?", "2026-11-21T10:00:00Z", Some("2024-02-29T03:00:00Z")),
        ("0 0 3 1 1 ? 2030", "2026-11-21T10:00:00Z", None),
        ("* * * ? 1-6 *", "2026-12-01T00:00:00Z", Some("2026-06-30T23:59:59Z")),
        ("* * * * * ? 2024", "2026-11-21T10:00:00Z", Some("2024-12-31T23:59:59Z")),
    ] {
        let found = latest_firing(&Cron::parse(cron).expect("valid"), at(now), &zone);
        assert_eq!(found, expected.map(at), "{cron} at {now}");
    }
}

const ID: &str = "10.0.0.1@-@7";

fn at(seconds: i64) -> Timestamp {
    Timestamp(1_800_000_000_000 + seconds * 1_000)
}

fn node(text: &str, written: Timestamp) -> Node {
    Node::new(text, written.0 / 1_000, 0, written)
}

/// A job each five seconds of two items of ours, registered at 0, of which all is well at 1000.
fn healthy() -> (JobReport, JobDocument) {
    let path = crate::path::JobPath::new("j");
    let mut document = JobDocument::new("j", 2);
    document.cron = Some("0/5 * * * * ?".into());
    let mut state = crate::job_state::JobState::default();
    for (at_path, text) in [
        (path.config(), "config".to_owned()),
        (path.server("10.0.0.1"), "ENABLED".to_owned()),
        (path.instance(ID), crate::wire::instance_yaml(ID, "10.0.0.1")),
        (path.leader_instance(), ID.to_owned()),
    ] {
        state.apply(&path, &at_path, Some(node(&text, at(0))));
    }
    let ledger = |due: i64| {
        let text =
            Ledger { due: at(due), instance: ID.into(), session: 1, begin: 1, at: Some(at(due)), requests: Vec::new() }
                .to_text();
        Some(node(&text, at(due)))
    };
    let item = || ItemReport {
        owner: Some(node(ID, at(1))),
        claims: vec![node(&Claim { instance: ID.into(), at: at(1) }.to_text(), at(1))],
        item: ledger(1_000),
        ..ItemReport::default()
    };
    let items = BTreeMap::from([(0, item()), (1, item())]);
    (
        JobReport { path, state, items, latches: BTreeMap::new(), differences: BTreeMap::new(), denied: Vec::new() },
        document,
    )
}

fn verdicts(report: &JobReport, document: &JobDocument) -> Vec<(CheckName, Verdict)> {
    let zones = |_: Option<&str>| Some(TimeZone::UTC);
    let config = JobConfig::check(document, &zones).map_err(|faults| format!("{faults:?}"));
    let facts = Facts { now: at(1_002), config, registry: "here".into() };
    let explained = explain(report, &facts);
    assert_eq!(explained.checks.iter().map(|c| c.name).collect::<Vec<_>>(), CheckName::ALL);
    let odd = explained.checks.iter().filter(|c| matches!(c.verdict, Verdict::Cause | Verdict::Note));
    odd.map(|check| (check.name, check.verdict)).collect()
}

/// States that look like a problem and are none, next to the problem that they look like.
#[test]
fn a_state_that_only_looks_like_a_problem_is_no_cause() {
    use CheckName as Of;
    use Verdict::{Cause, Note};
    type Change = fn(&mut JobReport, &mut JobDocument);
    type Case = (&'static str, Change, Vec<(CheckName, Verdict)>);
    let cases: [Case; 20] = [
        ("all is well", |_, _| {}, vec![]),
        (
            "a server that has no instance is disabled",
            |p, _| p.state.apply(&p.path.clone(), "/j/servers/10.0.0.2", Some(node("DISABLED", at(0)))),
            vec![],
        ),
        (
            "its own server has no node",
            |p, _| p.state.apply(&p.path.clone(), "/j/servers/10.0.0.1", None),
            vec![(Of::Servers, Cause)],
        ),
        (
            "Java's leader divides at the next firing",
            |p, d| {
                d.cron = Some("0 0 0 1 1 ?".into());
                p.state.necessary = Some(node("", at(900)));
                p.items.clear();
            },
            vec![(Of::Items, Note)],
        ),
        (
            "and should have, when one has passed",
            |p, _| {
                p.state.necessary = Some(node("", at(900)));
                p.items.clear();
            },
            vec![(Of::Items, Cause)],
        ),
        (
            "a second instance, whose server is disabled, owns an item that is not running",
            |p, _| {
                let other = "10.0.0.2@-@8";
                let path = p.path.clone();
                p.state.apply(&path, "/j/servers/10.0.0.2", Some(node("DISABLED", at(500))));
                let instance = crate::wire::instance_text(other, "10.0.0.2");
                p.state.apply(&path, "/j/instances/10.0.0.2@-@8", Some(node(&instance, at(0))));
                p.items.entry(1).or_default().owner = Some(node(other, at(2)));
            },
            vec![(Of::Servers, Note), (Of::Items, Cause)],
        ),
        (
            "a Rust instance that never confirmed its item",
            |p, _| {
                let instance = crate::wire::instance_text(ID, "10.0.0.1");
                p.state.apply(&p.path.clone(), "/j/instances/10.0.0.1@-@7", Some(node(&instance, at(0))));
                p.items.entry(1).or_default().claims.clear();
            },
            vec![(Of::Items, Cause)],
        ),
        (
            "one that has had no time to do so",
            |p, _| {
                let instance = crate::wire::instance_text(ID, "10.0.0.1");
                p.state.apply(&p.path.clone(), "/j/instances/10.0.0.1@-@7", Some(node(&instance, at(0))));
                let item = p.items.entry(1).or_default();
                item.claims.clear();
                item.owner = Some(node(ID, at(995)));
            },
            vec![],
        ),
        (
            "what is left of an item that the job has no more",
            |p, _| {
                let left = || Some(node("", at(5)));
                p.items.insert(7, ItemReport { disabled: left(), misfire: left(), ..ItemReport::default() });
            },
            vec![],
        ),
        (
            "a mark of a misfire that nobody catches up",
            |p, d| {
                d.misfire = false;
                p.items.entry(0).or_default().misfire = Some(node("", at(5)));
            },
            vec![(Of::Misfire, Note)],
        ),
        (
            "a misfire of a job without instances",
            |p, _| {
                p.state.apply(&p.path.clone(), "/j/instances/10.0.0.1@-@7", None);
                p.items.entry(0).or_default().misfire = Some(node("", at(5)));
            },
            vec![(Of::Instances, Cause)],
        ),
        (
            "a clock that was off long ago",
            |p, _| {
                let word = Claim { instance: ID.into(), at: at(90) }.to_text();
                p.items.values_mut().for_each(|i| (i.claims, i.item) = (vec![node(&word, at(60))], None));
            },
            vec![(Of::Clocks, Note), (Of::LastFiring, Cause)],
        ),
        (
            "a commit that took ten seconds",
            |p, _| {
                let text = "due=1800001000000 by=10.0.0.1@-@7 session=1 begin=2 at=1800000990000";
                p.items.entry(0).or_default().item = Some(node(text, at(1_000)));
            },
            vec![],
        ),
        (
            "a clock that is ahead",
            |p, _| {
                let text = "due=1800001010000 by=10.0.0.1@-@7 session=1 begin=2 at=1800001010000";
                p.items.entry(0).or_default().item = Some(node(text, at(1_001)));
            },
            vec![(Of::Clocks, Cause)],
        ),
        (
            "a word of an earlier life",
            |p, _| {
                let word = Claim { instance: ID.into(), at: at(900) }.to_text();
                p.items.entry(0).or_default().claims.push(node(&word, at(-60)));
            },
            vec![],
        ),
        (
            "an item that was just enabled, of a job that fires rarely",
            |p, d| {
                d.cron = Some("0 0/15 * * * ?".into());
                p.items.values_mut().for_each(|i| i.item = None);
            },
            vec![(Of::LastFiring, Note)],
        ),
        (
            "firings that nobody begins, one after the other",
            |p, _| p.items.values_mut().for_each(|i| i.item = None),
            vec![(Of::LastFiring, Cause)],
        ),
        (
            "a server that was just enabled",
            |p, _| {
                p.state.apply(&p.path.clone(), "/j/servers/10.0.0.1", Some(node("ENABLED", at(998))));
                p.items.values_mut().for_each(|i| i.item = None);
            },
            vec![],
        ),
        (
            "a run that is longer than its period, with misfire off",
            |p, d| {
                d.misfire = false;
                p.items.entry(0).or_default().running = Some(node(ID, at(950)));
            },
            vec![(Of::PreviousRun, Cause)],
        ),
        (
            "a run that goes on over the end of its session",
            |p, _| p.items.entry(0).or_default().running = Some(node(ID, at(-5))),
            vec![(Of::PreviousRun, Note)],
        ),
    ];
    for (what, change, expected) in cases {
        let (mut report, mut document) = healthy();
        change(&mut report, &mut document);
        assert_eq!(verdicts(&report, &document), expected, "{what}");
    }
}

#[test]
fn spans_have_a_unit_that_people_read() {
    for (millis, text) in [(7, "7 ms"), (1_999, "1999 ms"), (2_000, "2 s"), (119_999, "119 s"), (120_000, "2 min")] {
        assert_eq!(Span(Duration::from_millis(millis)).to_string(), text);
    }
    assert_eq!(Span(Duration::from_secs(3_600 * 47)).to_string(), "47 h");
    assert_eq!(Span(Duration::from_secs(86_400 * 3)).to_string(), "3 days");
}

/// The run of a dead instance is not taken over while a process holds the latch and does nothing.
#[test]
fn the_first_place_in_the_failover_latch_is_named_beside_an_interrupted_run() {
    let (mut report, document) = healthy();
    let place = format!("{}/_c_1-latch-0000000000", report.path.failover_latch());
    report.items.entry(0).or_default().running = Some(node("10.0.0.2@-@9", at(950)));
    report.latches.insert(place.clone(), Node::new("", 1, 0x2a, at(960)));
    let config =
        JobConfig::check(&document, &|_: Option<&str>| Some(TimeZone::UTC)).map_err(|faults| format!("{faults:?}"));
    let explained = explain(&report, &Facts { now: at(1_002), config, registry: "here".into() });
    let marks = explained.checks.iter().find(|check| check.name == CheckName::Marks).expect("the check");
    assert_eq!(marks.verdict, Verdict::Cause);
    for part in ["mark `running` of item 0", "the queue of the failover latch belongs to session 0x2a", place.as_str()]
    {
        assert!(marks.evidence.contains(part), "{part}: {}", marks.evidence);
    }
}
