//! Our cron beside Quartz 2.3.2: random expressions, zones and start times, and the nights when clocks change.

use elasticjob::agent::time_zone;
use elasticjob::{Cron, Timestamp};
use elasticjob_tests::java_output;

/// Java's own forms of zones, which are in no database.
const FIXED: [&str; 3] = ["GMT", "GMT+8", "GMT-05:30"];

/// The zones that both databases have with the same rules, from 2009 to 2041; and those whose rules differ, with a reason.
fn zones(folder: &std::path::Path) -> (Vec<String>, Vec<String>) {
    let file = folder.join("zones");
    java_output(&["zones", file.to_str().expect("UTF-8")]);
    let (mut same, mut differ) = (Vec::new(), Vec::new());
    for line in std::fs::read_to_string(&file).expect("zones").lines() {
        let (name, theirs) = line.split_once('|').expect("a zone");
        match time_zone(Some(name)).map(|zone| describe(&zone)) {
            Some(ours) if ours == theirs => same.push(name.to_owned()),
            Some(_) => differ.push(format!("{name} (other rules)")),
            None => differ.push(format!("{name} (not known to this host)")),
        }
    }
    (same, differ)
}

/// As the Java side describes a zone.
fn describe(zone: &jiff::tz::TimeZone) -> String {
    let moment = |text: &str| text.parse::<jiff::Timestamp>().expect("RFC 3339");
    let (first, last) = (moment("2009-01-01T00:00:00Z"), moment("2041-01-01T00:00:00Z"));
    let mut text = format!("{}|", zone.to_offset(first).seconds());
    let mut before = zone.to_offset(first);
    for change in zone.following(first).take_while(|t| t.timestamp() < last) {
        // A change of the name or the flag alone is none of the clock.
        if change.offset() != before {
            text.push_str(&format!("{}:{},", change.timestamp().as_second(), change.offset().seconds()));
            before = change.offset();
        }
    }
    text
}

/// Numbers from a fixed seed (an LCG), so that a failure is found again.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[usize::try_from(self.below(choices.len() as u64)).expect("small")]
    }

    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }
}

/// One member of a field: a value, a range (wrapping too), a step, or everything; now and then out of range.
fn member(dice: &mut Dice, low: u64, high: u64, names: &[&str]) -> String {
    let high_or_over = if dice.below(60) == 0 { high + 1 } else { high };
    let value = |dice: &mut Dice| {
        if !names.is_empty() && dice.below(3) == 0 {
            dice.pick(names).to_owned()
        } else {
            dice.between(low, high_or_over).to_string()
        }
    };
    match dice.below(9) {
        0 => "*".into(),
        1 => format!("*/{}", dice.between(1, high + 1)),
        2 => format!("{}/{}", dice.between(low, high), dice.between(0, high)),
        3 => format!("{}-{}", dice.between(low, high_or_over), dice.between(low, high_or_over)),
        4 => format!("{}-{}/{}", dice.between(low, high), dice.between(low, high), dice.between(1, 9)),
        5 if !names.is_empty() => format!("{}-{}", dice.pick(names), dice.pick(names)),
        _ => value(dice),
    }
}

fn field(dice: &mut Dice, low: u64, high: u64, names: &[&str]) -> String {
    let members = if dice.below(3) == 0 { dice.between(2, 4) } else { 1 };
    (0..members).map(|_| member(dice, low, high, names)).collect::<Vec<_>>().join(",")
}

fn expression(dice: &mut Dice) -> String {
    const MONTHS: [&str; 5] = ["JAN", "feb", "MAR", "OCT", "DEC"];
    const DAYS: [&str; 7] = ["SUN", "MON", "tue", "WED", "THU", "FRI", "SAT"];
    let second = if dice.below(2) == 0 { "0".into() } else { field(dice, 0, 59, &[]) };
    let minute = field(dice, 0, 59, &[]);
    let hour =
        if dice.below(2) == 0 { dice.pick(&["*", "0", "1", "2", "3", "0-4"]).into() } else { field(dice, 0, 23, &[]) };
    let (date, weekday) = match dice.below(12) {
        0..=3 => (field(dice, 1, 31, &[]), "?".into()),
        4 => (dice.pick(&["L", "LW", "L-3", "L-30", "L-3W", "1W", "15W", "31W", "5,10,15W", "L,5"]).into(), "?".into()),
        5..=7 => ("?".into(), field(dice, 1, 7, &DAYS)),
        8 => ("?".into(), dice.pick(&["L", "6L", "FRIL", "1L", "2#1", "FRI#5", "MON#2", "7#3", "5C", "2#6"]).into()),
        9 => ("*".into(), "?".into()),
        10 => ("?".into(), "*".into()),
        _ => (dice.pick(&["*", "?"]).into(), dice.pick(&["*", "?"]).into()),
    };
    let month = if dice.below(2) == 0 { "*".into() } else { field(dice, 1, 12, &MONTHS) };
    let year = match dice.below(8) {
        0 => format!(" {}", dice.between(2_000, 2_040)),
        1 => format!(" {}-{}", dice.between(2_000, 2_020), dice.between(2_015, 2_040)),
        2 => format!(" {}/{}", dice.between(2_000, 2_030), dice.between(1, 7)),
        _ => String::new(),
    };
    format!("{second} {minute} {hour} {date} {month} {weekday}{year}")
}

/// Start times: anywhere from 2010 to 2030, and often within two days of a change of the clocks.
fn start(dice: &mut Dice, zone: &str) -> i64 {
    let any = i64::try_from(dice.between(1_262_304_000, 1_893_456_000)).expect("fits");
    let changes = time_zone(Some(zone)).filter(|_| !zone.starts_with("GMT") && dice.below(2) == 0);
    let near = changes.and_then(|zone| {
        let after = jiff::Timestamp::from_second(any).ok()?;
        let change = zone.following(after).next()?.timestamp().as_second();
        Some(change - 172_800 + i64::try_from(dice.below(180_000)).expect("fits"))
    });
    near.unwrap_or(any) * 1_000
}

#[test]
fn fire_times_equal_quartz_for_random_expressions_zones_and_times() {
    const CASES: usize = 6_000;
    let folder = tempfile::tempdir().expect("a folder");
    let (same, differ) = zones(folder.path());
    println!("left out, {} zones: {}", differ.len(), differ.join(", "));
    assert!(same.len() > 400 && differ.len() < 60, "{} zones are the same, {} differ", same.len(), differ.len());
    let named: Vec<&str> = same.iter().map(String::as_str).chain(FIXED).collect();
    let mut dice = Dice(20_261_121);
    let cases: Vec<(String, &str, i64)> = (0..CASES)
        .map(|_| {
            let zone = dice.pick(&named);
            (expression(&mut dice), zone, start(&mut dice, zone))
        })
        .collect();
    let (asked, answered) = (folder.path().join("in"), folder.path().join("out"));
    let lines: Vec<String> = cases.iter().map(|(e, z, s)| format!("{e}|{z}|{s}\n")).collect();
    std::fs::write(&asked, lines.concat()).expect("a file");
    java_output(&["quartz", asked.to_str().expect("UTF-8"), answered.to_str().expect("UTF-8")]);
    let answers = std::fs::read_to_string(&answered).expect("answers");
    assert_eq!(answers.lines().count(), CASES);
    let (mut fires, mut refused, mut wrong) = (0, 0, Vec::new());
    for ((expression, zone, start), answer) in cases.iter().zip(answers.lines()) {
        let ours = ours(expression, zone, *start);
        if answer == "refused" {
            refused += 1;
        } else {
            fires += answer.split(' ').filter(|t| !t.is_empty()).count();
        }
        if ours != answer {
            wrong.push(format!("`{expression}` in {zone} from {start}: Quartz {answer}, ours {ours}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {CASES} differ:\n{}", wrong.len(), wrong[..wrong.len().min(20)].join("\n"));
    assert!(fires > 10_000 && refused > 100, "{fires} fires, {refused} refused: the cases are too tame");
}

fn ours(expression: &str, zone: &str, start: i64) -> String {
    let Ok(cron) = Cron::parse(expression) else { return "refused".into() };
    let zone = match elasticjob_core::cron::parse_zone(zone).expect("a zone") {
        elasticjob_core::cron::ZoneText::Fixed(zone) => zone,
        elasticjob_core::cron::ZoneText::Named(name) => time_zone(Some(&name)).expect("a known zone"),
        elasticjob_core::cron::ZoneText::Host => unreachable!("each case has a zone"),
    };
    let mut at = Timestamp(start);
    let mut fires = Vec::new();
    while fires.len() < 4
        && let Some(next) = cron.next(at, &zone)
    {
        fires.push(next.0.to_string());
        at = next;
    }
    fires.join(" ")
}
