//! What came of a run of the rig, as a table.

use std::collections::BTreeMap;
use std::fmt;

use elasticjob_core::machine::Source;
use elasticjob_sim::{Evidence, oracle};

use super::faults::{Fault, Kind};

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
    /// Jobs by chapter.
    pub jobs: usize,
    /// Changes of the registry that were judged.
    pub changes: usize,
    /// Runs that ours began.
    pub ours: usize,
    /// Runs that Java began.
    pub java: usize,
    /// Of ours: takeovers.
    pub takeovers: usize,
    /// Of ours: catch-ups.
    pub catch_ups: usize,
    /// Firings of items that ours said they did not begin, by what was said.
    pub told: BTreeMap<&'static str, usize>,
    /// Firings that ours began twice.
    pub doubled: usize,
    /// Runs of ours that went on after their session while the item ran elsewhere: what the fencing token is for.
    pub beyond_lease: usize,
    /// Agents of Java's that were up and ran nothing any more, a job each.
    pub java_silent: usize,
    /// What the oracle found.
    pub violations: Vec<String>,
}

impl Report {
    pub(super) fn add_faults(&mut self, faults: &[Fault]) {
        for fault in faults {
            *self.faults.entry(fault.kind).or_default() += 1;
        }
    }

    /// Adds a job.
    pub(super) fn add(&mut self, what: &str, evidence: &Evidence) {
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
                Source::Failover => self.takeovers += 1,
                Source::Misfire => self.catch_ups += 1,
                Source::Schedule => *begun.entry((run.item, run.due.0)).or_default() += 1,
                Source::Trigger => {}
            }
            let elsewhere = |other: &&elasticjob_sim::Entry| {
                let goes_on = run.end.is_none_or(|end| other.start < end);
                other.item == run.item && other.instance != run.instance && other.start > run.start && goes_on
            };
            let over = |other: &&elasticjob_sim::Entry| run.lease_end.is_some_and(|lease| lease <= other.start);
            // One whose process was killed did not run on: its end is not written.
            if run.end.is_some() && evidence.runs.iter().filter(elsewhere).any(|other| over(&other)) {
                self.beyond_lease += 1;
            }
        }
        self.doubled += begun.values().filter(|count| **count > 1).count();
        for told in &evidence.told {
            let seconds = told.last.since(told.first).as_secs() + 1;
            let firings = if told.word == "passed" { usize::try_from(seconds).unwrap_or(1) } else { 1 };
            *self.told.entry(told.word).or_default() += firings * told.items.len();
        }
        // It is awake: a run by somebody who never was there is found.
        let mut forged = evidence.clone();
        if let Some(run) = evidence.runs.iter().find(|run| !run.java).cloned() {
            forged.runs = vec![elasticjob_sim::Entry { instance: "10.99.9.9@-@1".into(), ..run }];
        }
        if oracle::judge(&forged).is_empty() {
            self.violations.push(format!("{what}: the judge sleeps"));
        }
        let found = oracle::judge(evidence);
        self.violations.extend(found.iter().map(|violation| format!("{what}: {violation}")));
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = if self.mixed { "Rust and Java" } else { "Rust" };
        writeln!(f, "| {who}: {} s under faults in {} clusters | |\n| --- | --- |", self.seconds, self.chapters)?;
        for (kind, count) in &self.faults {
            writeln!(f, "| {kind} | {count} |")?;
        }
        let told = |word: &str| self.told.get(word).copied().unwrap_or_default();
        let rows = [
            ("faults in all", self.faults.values().sum()),
            ("jobs judged", self.jobs),
            ("changes of the registry judged", self.changes),
            ("runs of Rust instances", self.ours),
            ("of these takeovers", self.takeovers),
            ("of these catch-ups of missed firings", self.catch_ups),
            ("runs of Java instances", self.java),
            ("item firings told as missed, since the item ran", told("misfired")),
            ("item firings told as skipped, with the reason", told("skipped")),
            ("item firings told as lost with a connection", told("lost")),
            ("item firings told as passed while nobody was there", told("passed")),
            ("runs that went on after their session while the item ran elsewhere (fenced)", self.beyond_lease),
            ("jobs of Java processes that lived on and ran nothing any more", self.java_silent),
            ("firings begun twice", self.doubled),
            ("violations", self.violations.len()),
        ];
        for (what, count) in rows {
            writeln!(f, "| {what} | {count} |")?;
        }
        Ok(())
    }
}
