//! Each due time of each enabled item is accounted for: begun at most once, and if it was not begun, a Rust instance
//! reported it (misfired, skipped, lost with its session, passed while no instance owned the item).
//!
//! Judged between two begins of an item by instances of ours, while its schedule, its being enabled and its ownership stood:
//! an item that Java owns falls under Java's rules, which keep no account.

use std::collections::{BTreeMap, BTreeSet};

use elasticjob_core::cron::Cron;
use elasticjob_core::machine::Source;
use elasticjob_core::time::Timestamp;
use elasticjob_core::wire::{JobDocument, Ledger};

use super::Violation;
use crate::{Entry, Evidence, What};

pub(super) const NAME: &str = "firings";

pub(super) fn judge(evidence: &Evidence) -> Vec<Violation> {
    let schedules = Schedules::of(evidence);
    let mut by_item: BTreeMap<u32, Vec<&Entry>> = BTreeMap::new();
    for run in evidence.runs.iter().filter(|run| !run.java && run.source != Source::Failover) {
        by_item.entry(run.item).or_default().push(run);
    }
    let mut violations = Vec::new();
    for (item, mut runs) in by_item {
        runs.sort_by_key(|run| run.token);
        let mut begun: BTreeMap<Timestamp, &Entry> = BTreeMap::new();
        // A catch-up that a node `misfire` asks for, if its firing is unknown, counts as of its own moment.
        let missed = |run: &Entry| {
            let told = |t: &&crate::Told| t.word == "misfired" && t.items.contains(&item) && t.first == run.due;
            evidence.told.iter().any(|t| told(&t) && t.instance == run.instance)
        };
        let is_firing =
            |run: &&&Entry| run.source == Source::Schedule || (run.source == Source::Misfire && missed(run));
        for run in runs.iter().filter(is_firing) {
            if let Some(before) = begun.insert(run.due, run)
                && !evidence.terms.stepped_back
                && evidence.terms.clock_error <= elasticjob_core::limits::LEDGER_AHEAD
                && !forgotten(evidence, item, before, run)
            {
                let what = format!("item {item} due {} was begun twice: {before:?}, {run:?}", run.due);
                violations.push(Violation { invariant: NAME, at: run.start, what });
            }
            if run.source == Source::Schedule && !schedules.is_due(run) {
                let what =
                    format!("item {item} was begun for {}, which is no firing of its schedule: {run:?}", run.due);
                violations.push(Violation { invariant: NAME, at: run.start, what });
            }
        }
        violations.extend(silent(evidence, item));
        let unsteady = unsteady(evidence, item);
        let ledger = ledger(evidence, item);
        let begun: BTreeSet<Timestamp> = ledger.iter().map(|(_, due)| *due).collect();
        let tokens: BTreeSet<i64> =
            evidence.runs.iter().filter(|run| run.item == item && !run.java).map(|run| run.token).collect();
        let mut latest = Timestamp(0);
        for pair in runs.windows(2) {
            latest = latest.max(pair[0].due);
            let spell = (pair[0].start.min(latest), pair[1].start);
            // An instance that died with its begin in progress has not reported what passed before. If its clock was ahead, its due
            // time is later than that of a later trigger, whose ledger keeps it.
            let kept = ledger.iter().find(|(zxid, _)| *zxid == pair[0].token).map_or(pair[0].due, |(_, due)| *due);
            let died =
                |(zxid, due): &&(i64, Timestamp)| *zxid < pair[0].token && *due <= kept && !tokens.contains(zxid);
            latest = ledger.iter().filter(died).map(|(_, due)| *due).fold(latest, Timestamp::max);
            if unsteady.iter().any(|(from, to)| *from <= spell.1 && *to >= spell.0) {
                continue;
            }
            // Who was cut off learns of another schedule late.
            let well_before = spell.0 - evidence.terms.session_timeout * 3;
            let Some(cron) = schedules.only((well_before, spell.1)) else { continue };
            // Clocks that differ do not see the same firings pass.
            let differ =
                pair[0].instance != pair[1].instance && pair.iter().any(|run| evidence.off.contains(&run.instance));
            if differ || evidence.terms.stepped_back {
                continue;
            }
            // And this side of it.
            let between = |zxid: i64| zxid > pair[0].token && zxid < pair[1].token;
            if ledger.iter().any(|(zxid, _)| between(*zxid) && !tokens.contains(zxid)) {
                continue;
            }
            let mut due = latest;
            while let Some(next) = cron.next(due, &jiff::tz::TimeZone::UTC).filter(|next| *next < pair[1].due) {
                due = next;
                let told = |t: &&crate::Told| t.items.contains(&item) && t.first <= due && due <= t.last;
                if !begun.contains(&due) && !evidence.told.iter().any(|t| told(&t)) {
                    let what = format!(
                        "item {item} due {due} was neither begun nor told, between {:?} and {:?}",
                        pair[0], pair[1]
                    );
                    violations.push(Violation { invariant: NAME, at: due, what });
                }
            }
        }
    }
    violations
}

/// Whether the item, and its ledger with it, was deleted between two begins.
fn forgotten(evidence: &Evidence, item: u32, first: &Entry, second: &Entry) -> bool {
    let path = evidence.path.item(item);
    let between = |change: &&crate::Change| change.zxid > first.token && change.zxid < second.token;
    evidence.history.iter().filter(between).any(|change| change.path == path && change.what == What::Deleted)
}

/// Begins that neither ran nor were reported as lost, although their session lived on.
fn silent(evidence: &Evidence, item: u32) -> Vec<Violation> {
    let path = evidence.path.item(item);
    let mut violations = Vec::new();
    for change in evidence.history.iter().filter(|change| change.path == path) {
        let What::Wrote { data, .. } = &change.what else { continue };
        let Some(ledger) = Ledger::parse(data) else { continue };
        let ran = evidence.runs.iter().any(|run| run.item == item && run.token == change.zxid);
        // Soon: an instance that lived on for longer without a fault had the time to find out.
        let timeout = evidence.terms.session_timeout + evidence.terms.round_trip;
        let mut soon = change.at + timeout;
        for (from, to) in &evidence.troubles {
            if *from <= soon && *to >= change.at {
                soon = soon.max(*to);
            }
        }
        let soon = soon + timeout;
        let is_young = soon > evidence.terms.end;
        let end = |c: &&crate::Change| c.session == change.session && c.what == What::SessionEnded;
        // One that never came back after its session, as where the registry was away for longer than it lived, heard of nothing.
        let own = evidence.path.instance(&ledger.instance);
        let again = |c: &crate::Change| c.zxid > change.zxid && c.session != change.session && c.path == own;
        let is_back = || evidence.history.iter().any(|c| again(c) && matches!(c.what, What::Wrote { .. }));
        let ended = || evidence.history.iter().find(end).is_some_and(|c| c.at <= soon || !is_back());
        let told = || {
            let lost = |t: &&crate::Told| t.word == "lost" && t.items.contains(&item) && t.at >= change.at;
            evidence.told.iter().any(|t| lost(&t) && t.instance == ledger.instance)
        };
        if !ran && !is_young && !ended() && !told() {
            let what = format!("item {item} was begun for {}, and neither ran nor was told as lost", ledger.due);
            violations.push(Violation { invariant: NAME, at: change.at, what });
        }
    }
    violations
}

/// The begins of an item with their transactions, as its ledger had them: one whose process died at once never ran, and
/// failover or no instance runs it again.
fn ledger(evidence: &Evidence, item: u32) -> Vec<(i64, Timestamp)> {
    let path = evidence.path.item(item);
    let texts = evidence.history.iter().filter(|change| change.path == path).filter_map(|change| match &change.what {
        What::Wrote { data, .. } => Ledger::parse(data).map(|ledger| (change.zxid, ledger.due)),
        What::Deleted | What::SessionEnded => None,
    });
    texts.collect()
}

/// The schedules that stood in the registry, each from when on.
struct Schedules(Vec<(Timestamp, Option<Cron>)>);

impl Schedules {
    fn of(evidence: &Evidence) -> Schedules {
        let path = evidence.path.config();
        let mut list = Vec::new();
        for change in evidence.history.iter().filter(|change| change.path == path) {
            let cron = match &change.what {
                What::Wrote { data, .. } => JobDocument::parse(data).ok().and_then(|document| document.cron),
                What::Deleted | What::SessionEnded => None,
            };
            list.push((change.at, cron.and_then(|text| Cron::parse(&text).ok())));
        }
        Schedules(list)
    }

    /// Whether the due time of this run was one, by a schedule that an instance may have held to.
    fn is_due(&self, run: &Entry) -> bool {
        let before = Timestamp(run.due.0 - 1);
        let fires = |cron: &Cron| cron.next(before, &jiff::tz::TimeZone::UTC) == Some(run.due);
        // One that was cut off, or was refused, may hold to the one before for a while.
        let seen = self.0.iter().filter(|(from, _)| *from <= run.start);
        let recent: Vec<_> = seen.collect();
        let of_late = |index: usize| recent.get(index + 1).is_none_or(|(end, _)| run.start.since(*end).as_secs() < 30);
        let refused = recent.last().is_some_and(|(_, cron)| cron.is_none());
        recent
            .iter()
            .enumerate()
            .any(|(index, (_, cron))| cron.as_ref().is_some_and(|cron| (refused || of_late(index)) && fires(cron)))
    }

    /// The one schedule that stood during a spell, and well before it.
    fn only(&self, spell: (Timestamp, Timestamp)) -> Option<&Cron> {
        let first = || self.0.first().filter(|(from, _)| *from <= spell.1);
        let at_begin = self.0.iter().rev().find(|(from, _)| *from <= spell.0).or_else(first)?.1.as_ref()?;
        let others = self.0.iter().filter(|(from, _)| *from > spell.0 && *from <= spell.1);
        let same = |cron: &Option<Cron>| cron.as_ref().is_some_and(|cron| cron.text() == at_begin.text());
        others.clone().all(|(_, cron)| same(cron)).then_some(at_begin)
    }
}

/// Periods in which no instance is responsible for an item: it or a server was disabled, it did not exist, or Java owned it.
fn unsteady(evidence: &Evidence, item: u32) -> Vec<(Timestamp, Timestamp)> {
    let path = &evidence.path;
    let (node, disabled, owner) = (path.item(item), path.item_disabled(item), path.item_owner(item));
    let servers = format!("{}/", path.servers());
    let mut spells: Vec<(Timestamp, Timestamp)> = Vec::new();
    let mut open: BTreeMap<&str, Timestamp> = BTreeMap::new();
    for change in &evidence.history {
        let at = change.path.as_str();
        let text = match &change.what {
            What::Wrote { data, .. } => Some(data.as_ref()),
            What::Deleted => None,
            What::SessionEnded => continue,
        };
        let off = if at == disabled {
            text.is_some()
        } else if at == node {
            if text.is_none() {
                spells.push((change.at, change.at)); // its ledger is gone with it
            }
            continue;
        } else if at == owner {
            text.is_some_and(|id| evidence.java.contains(String::from_utf8_lossy(id).as_ref()))
        } else if at.starts_with(&servers) {
            text.is_none_or(|text| text != b"ENABLED")
        } else {
            continue;
        };
        if off {
            open.entry(at).or_insert(change.at);
        } else if let Some(from) = open.remove(at) {
            // An instance that is notified a little later has missed a firing in the meantime.
            spells.push((from, change.at + evidence.terms.round_trip + evidence.terms.clock_error));
        }
    }
    spells.extend(open.into_values().map(|from| (from, evidence.terms.end)));
    spells
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::time::Duration;

    use elasticjob_core::path::JobPath;

    use super::*;
    use crate::{Change, Terms};

    const ID: &str = "10.0.0.1@-@1";

    /// An instance began, and its session ended that much later; then it was back in another one, or never again.
    fn evidence(ended: Duration, is_back: bool) -> Evidence {
        let path = JobPath::new("job");
        let at = Timestamp(1_700_000_000_000);
        let wrote = |data: &str| What::Wrote { data: data.as_bytes().into(), owner: 0 };
        let ledger = Ledger { due: at, instance: ID.into(), session: 1, begin: 1, at: Some(at), requests: Vec::new() };
        let change =
            |zxid, session, after: Duration, path: String, what| Change { at: at + after, zxid, session, path, what };
        let mut history = vec![
            change(1, 1, Duration::ZERO, path.item(0), wrote(&ledger.to_text())),
            change(2, 1, ended, String::new(), What::SessionEnded),
        ];
        if is_back {
            history.push(change(3, 2, ended + Duration::from_secs(1), path.instance(ID), wrote("")));
        }
        Evidence {
            terms: Terms {
                session_timeout: Duration::from_secs(4),
                round_trip: Duration::from_secs(1),
                run_max: Duration::from_secs(1),
                stepped_back: false,
                clock_error: Duration::ZERO,
                quiet_from: at,
                end: at + Duration::from_secs(100),
                is_at_rest: true,
            },
            path,
            history,
            runs: Vec::new(),
            told: Vec::new(),
            longest_rows: BTreeMap::new(),
            java: BTreeSet::new(),
            off: BTreeSet::new(),
            up: BTreeMap::new(),
            expired: BTreeSet::new(),
            troubles: Vec::new(),
            stuck: Vec::new(),
        }
    }

    #[test]
    fn who_comes_back_tells_what_became_of_its_begin() {
        let found = |seconds, is_back| silent(&evidence(Duration::from_secs(seconds), is_back), 0).len();
        assert_eq!(found(2, true), 0, "its session was over before it could ask");
        assert_eq!(found(30, true), 1);
        // Seen when ZooKeeper answered no client for a minute and a half, and the process was killed in that time.
        assert_eq!(found(30, false), 0);
    }
}
