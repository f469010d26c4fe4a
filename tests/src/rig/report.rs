//! What came of a run of the rig, as a table.

use std::collections::BTreeMap;
use std::fmt;

use elasticjob_core::machine::Source;
use elasticjob_core::time::Timestamp;
use elasticjob_sim::{Entry, Evidence, What, oracle};

use super::faults::Kind;

/// What the jobs of a run did, and what was done to them.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Whether instances of Java's took part.
    pub mixed: bool,
    /// Seconds under faults.
    pub seconds: u64,
    /// Chapters, each a cluster of its own.
    pub chapters: usize,
    /// Faults by kind.
    pub faults: BTreeMap<Kind, usize>,
    /// Agents that had not ended seconds after SIGTERM, something else being wrong, and were killed.
    pub forced: usize,
    /// ZooKeeper servers that started with an empty log, since a full disk had damaged it.
    pub damaged: usize,
    /// Transactions that cannot follow from what ZooKeeper's servers have logged before them, or that a snapshot has and no log: its
    /// servers had different trees.
    pub contradictions: usize,
    /// Chapters that were replaced by others, since there were such and the oracle complained.
    pub void: usize,
    /// Jobs by chapter.
    pub jobs: usize,
    /// Changes of the registry that were judged.
    pub changes: usize,
    /// Runs that ours began.
    pub ours: usize,
    /// Runs that Java began.
    pub java: usize,
    /// How long after the end of a session its runs were taken over by ours, in milliseconds.
    pub takeovers: Vec<u64>,
    /// Of ours: catch-ups.
    pub catch_ups: usize,
    /// Firings of items that ours said they did not begin, by what was said.
    pub told: BTreeMap<&'static str, usize>,
    /// Firings that ours began twice by their schedule.
    pub doubled: usize,
    /// Runs of ours that went on after their session while the item ran elsewhere: what the fencing token is for.
    pub beyond_lease: usize,
    /// Agents of Java's that were up and ran nothing any more, a job each.
    pub java_silent: usize,
    /// The findings of the oracle, and actions of our agents without a request.
    pub violations: Vec<String>,
    /// What could not be judged, since the rig itself failed.
    pub failures: Vec<String>,
}

impl Report {
    pub(super) fn add_fault(&mut self, kind: Kind) {
        *self.faults.entry(kind).or_default() += 1;
    }

    /// Adds a job with so many seconds between its firings.
    pub(super) fn add(&mut self, what: &str, period: u64, evidence: &Evidence) {
        self.jobs += 1;
        self.changes += evidence.history.len();
        let mut begun: BTreeMap<(u32, i64), usize> = BTreeMap::new();
        for run in &evidence.runs {
            if run.java {
                self.java += 1;
                continue;
            }
            self.ours += 1;
            match run.source {
                Source::Failover => self.takeovers.extend(waited(evidence, run)),
                Source::Misfire => self.catch_ups += 1,
                Source::Schedule => *begun.entry((run.item, run.due.0)).or_default() += 1,
                Source::Trigger => {}
            }
            let elsewhere = |other: &&Entry| {
                let goes_on = run.end.is_some_and(|end| other.start < end);
                other.item == run.item && other.instance != run.instance && other.start > run.start && goes_on
            };
            let over = |other: &Entry| run.lease_end.is_some_and(|lease| lease <= other.start);
            if evidence.runs.iter().filter(elsewhere).any(over) {
                self.beyond_lease += 1;
            }
        }
        self.doubled += begun.values().filter(|count| **count > 1).count();
        for told in &evidence.told {
            let firings = usize::try_from(told.last.since(told.first).as_secs() / period + 1).unwrap_or(1);
            *self.told.entry(told.word).or_default() += firings * told.items.len();
        }
        let forgeries = forged(evidence);
        if forgeries.is_empty() {
            self.failures.push(format!("{what}: no run that could be forged"));
        }
        for (invariant, forged) in forgeries {
            if !oracle::judge(&forged).iter().any(|violation| violation.invariant == invariant) {
                self.failures.push(format!("{what}: the judge sleeps: it does not see what is wrong by `{invariant}`"));
            }
        }
        let found = oracle::judge(evidence);
        self.violations.extend(found.iter().map(|violation| format!("{what}: {violation}")));
    }

    /// Whether what was found says nothing of the jobs: a registry whose servers have different trees shows each client
    /// another world. Where nothing was found in spite of that, the chapter counts.
    pub(super) fn is_void(&self) -> bool {
        self.contradictions > 0 && !(self.violations.is_empty() && self.failures.is_empty())
    }

    /// Adds a chapter.
    pub(super) fn join(&mut self, other: Report) {
        self.seconds += other.seconds;
        self.chapters += other.chapters;
        other.faults.iter().for_each(|(kind, count)| *self.faults.entry(*kind).or_default() += count);
        other.told.iter().for_each(|(word, count)| *self.told.entry(word).or_default() += count);
        self.forced += other.forced;
        self.damaged += other.damaged;
        self.contradictions += other.contradictions;
        self.void += other.void;
        self.jobs += other.jobs;
        self.changes += other.changes;
        self.ours += other.ours;
        self.java += other.java;
        self.takeovers.extend(other.takeovers);
        self.catch_ups += other.catch_ups;
        self.doubled += other.doubled;
        self.beyond_lease += other.beyond_lease;
        self.java_silent += other.java_silent;
        self.violations.extend(other.violations);
        self.failures.extend(other.failures);
    }
}

/// How long after the end of the session that had the run before this takeover began, in milliseconds.
fn waited(evidence: &Evidence, taken: &Entry) -> Option<u64> {
    let path = evidence.path.item(taken.item);
    let mut begins = evidence.history.iter().filter(|c| c.path == path && c.zxid < taken.token);
    let session = begins.rfind(|c| matches!(c.what, What::Wrote { .. }))?.session;
    let ended = evidence.history.iter().find(|c| c.session == session && c.what == What::SessionEnded)?;
    u64::try_from(taken.start.0 - ended.at.0).ok()
}

/// The same evidence with something wrong in it, and which invariant must see that.
fn forged(evidence: &Evidence) -> Vec<(&'static str, Evidence)> {
    let with = |run: Entry| {
        let mut evidence = evidence.clone();
        evidence.runs.push(run);
        evidence
    };
    // Where runs last longer than their period, and Java shares the job, nearly all Rust runs are catch-ups or takeovers.
    let of = |source: Source| {
        let ended = move |run: &&Entry| !run.java && run.source == source && run.end.is_some();
        evidence.runs.iter().find(ended).cloned()
    };
    let Some(run) = of(Source::Schedule).or_else(|| of(Source::Misfire)).or_else(|| of(Source::Failover)) else {
        return Vec::new();
    };
    let by_schedule = Entry { source: Source::Schedule, ..run.clone() };
    let again = Entry { start: Timestamp(run.start.0 + 1), ..by_schedule.clone() };
    let mut twice = with(by_schedule);
    twice.runs.push(again);
    vec![("assignment", with(Entry { instance: "10.99.9.9@-@1".into(), ..run })), ("firings", twice)]
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = if self.mixed { "Rust and Java" } else { "Rust" };
        writeln!(f, "| {who}: {} s under faults in {} clusters | |\n| --- | --- |", self.seconds, self.chapters)?;
        for (kind, count) in &self.faults {
            writeln!(f, "| {kind} | {count} |")?;
        }
        let told = |word: &str| self.told.get(word).copied().unwrap_or_default();
        let mut waits = self.takeovers.clone();
        waits.sort_unstable();
        let wait = |part: usize| waits.get(waits.len().saturating_sub(1) * part / 100).copied().unwrap_or_default();
        let rows = [
            ("**faults**", self.faults.values().sum::<usize>().to_string()),
            ("agents that took longer than some seconds to stop, and were killed", self.forced.to_string()),
            ("ZooKeeper servers that began anew, a full disk having damaged their log", self.damaged.to_string()),
            (
                "transactions that cannot follow from what ZooKeeper's servers logged before them, or that no log has",
                self.contradictions.to_string(),
            ),
            (
                "clusters that were replaced by others, the oracle having complained where there were such",
                self.void.to_string(),
            ),
            ("jobs judged", self.jobs.to_string()),
            ("changes of the registry judged", self.changes.to_string()),
            ("**runs** of Rust instances", self.ours.to_string()),
            ("runs of Java instances", self.java.to_string()),
            ("**takeovers** by Rust instances", waits.len().to_string()),
            ("from a session's end to the takeover: median, longest", format!("{} ms, {} ms", wait(50), wait(100))),
            ("catch-ups of missed firings", self.catch_ups.to_string()),
            ("item firings told as missed, since the item ran", told("misfired").to_string()),
            ("item firings told as skipped, with the reason", told("skipped").to_string()),
            ("item firings told as **lost** with a connection", told("lost").to_string()),
            ("item firings told as passed while no Rust instance had the item", told("passed").to_string()),
            ("firings that Rust instances began twice (**doubled**)", self.doubled.to_string()),
            ("runs that outlived their session while the item ran elsewhere (fenced)", self.beyond_lease.to_string()),
            ("jobs of Java processes that lived on and ran nothing any more", self.java_silent.to_string()),
            ("**violations**", self.violations.len().to_string()),
        ];
        for (what, count) in rows {
            writeln!(f, "| {what} | {count} |")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use elasticjob_core::wire::JobDocument;
    use elasticjob_sim::{Options, World};

    use super::*;

    #[test]
    fn complaints_count_unless_zookeeper_s_servers_contradict_each_other() {
        let report = |contradictions, complaints: usize| Report {
            contradictions,
            violations: vec!["one".to_owned(); complaints],
            ..Report::default()
        };
        let void = [report(0, 0), report(0, 2), report(3, 0), report(3, 2)].map(|report| report.is_void());
        assert_eq!(void, [false, false, false, true]);
    }

    /// Whatever started the Rust runs, one of them can be forged, and the oracle finds that.
    #[test]
    fn a_run_of_each_source_can_be_forged() {
        let mut document = JobDocument::new("job", 2);
        document.cron = Some("* * * * * ?".into());
        let mut world = World::new(Options::new(1, document, 2));
        world.run_until(Duration::from_secs(12));
        let evidence = world.evidence(Duration::from_secs(8));
        assert!(oracle::judge(&evidence).is_empty());
        for source in [Source::Schedule, Source::Misfire, Source::Failover] {
            let mut evidence = evidence.clone();
            evidence.runs.iter_mut().for_each(|run| run.source = source);
            let forgeries = forged(&evidence);
            assert_eq!(forgeries.len(), 2, "{source:?}");
            for (invariant, forged) in forgeries {
                assert!(oracle::judge(&forged).iter().any(|violation| violation.invariant == invariant), "{source:?}");
            }
        }
        let nothing = Evidence { runs: Vec::new(), ..evidence };
        assert!(forged(&nothing).is_empty());
    }
}
