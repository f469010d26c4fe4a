//! The words of an explanation: what is checked, what it came to, and by what.

use crate::time::Timestamp;

/// What is checked, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the word of each is its documentation")]
#[non_exhaustive]
pub enum CheckName {
    Registry,
    Configuration,
    Job,
    Instances,
    Servers,
    Leader,
    Items,
    DisabledItems,
    Clocks,
    Marks,
    PreviousRun,
    Misfire,
    Triggers,
    Schedule,
    LastFiring,
}

impl CheckName {
    /// Every check, in order.
    pub const ALL: [CheckName; 15] = [
        CheckName::Registry,
        CheckName::Configuration,
        CheckName::Job,
        CheckName::Instances,
        CheckName::Servers,
        CheckName::Leader,
        CheckName::Items,
        CheckName::DisabledItems,
        CheckName::Clocks,
        CheckName::Marks,
        CheckName::PreviousRun,
        CheckName::Misfire,
        CheckName::Triggers,
        CheckName::Schedule,
        CheckName::LastFiring,
    ];

    /// Its name for people and programs.
    pub fn word(self) -> &'static str {
        match self {
            CheckName::Registry => "registry",
            CheckName::Configuration => "configuration",
            CheckName::Job => "job",
            CheckName::Instances => "instances",
            CheckName::Servers => "servers",
            CheckName::Leader => "leader",
            CheckName::Items => "items",
            CheckName::DisabledItems => "disabled items",
            CheckName::Clocks => "clocks",
            CheckName::Marks => "marks",
            CheckName::PreviousRun => "previous run",
            CheckName::Misfire => "misfire",
            CheckName::Triggers => "triggers",
            CheckName::Schedule => "schedule",
            CheckName::LastFiring => "last firing",
        }
    }
}

/// What a check came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// As it should be.
    Fine,
    /// Worth knowing; it keeps nothing from running.
    Note,
    /// It keeps the job, or a part of it, from running.
    Cause,
    /// Not judged, since an earlier check says enough.
    Skipped,
}

impl Verdict {
    /// Its word for people and programs.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Fine => "ok",
            Verdict::Note => "note",
            Verdict::Cause => "CAUSE",
            Verdict::Skipped => "-",
        }
    }
}

/// One line of an explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Check {
    /// What was checked.
    pub name: CheckName,
    /// What it came to.
    pub verdict: Verdict,
    /// What it was judged by.
    pub evidence: String,
}

/// All checks of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explained {
    /// In the order of [`CheckName::ALL`].
    pub checks: Vec<Check>,
    /// The next scheduled firing, when there is one.
    pub next: Option<Timestamp>,
}

impl Explained {
    /// The checks that found a cause.
    pub fn causes(&self) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(|check| check.verdict == Verdict::Cause)
    }

    /// Only the registry was asked, and did not answer.
    pub fn without_registry(reason: &str) -> Explained {
        let line = |name| match name {
            CheckName::Registry => Check { name, verdict: Verdict::Cause, evidence: reason.to_owned() },
            _ => Check { name, verdict: Verdict::Skipped, evidence: "the registry cannot be read".into() },
        };
        Explained { checks: CheckName::ALL.map(line).into(), next: None }
    }
}
