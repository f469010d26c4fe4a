//! Why a job does not run: one check after the other, each with what it was judged by.
//!
//! A check that finds what keeps the job, or a part of it, from running is a *cause*. What cannot be judged because of an
//! earlier cause is skipped, so that one trouble is told once.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use jiff::tz::TimeZone;

use super::{ItemView, Picture};
use crate::config::JobConfig;
use crate::cron::Cron;
use crate::time::Timestamp;
use crate::tree::Node;
use crate::view::ServerState;
use crate::wire::{Claim, Ledger};

/// A clock that is further off than this is told, where `maxTimeDiffSeconds` sets no bound: below, a slow commit looks alike.
const CLOCK_LIMIT: Duration = Duration::from_secs(5);
/// A firing that nobody has begun is told so long after it was due.
const OVERDUE_AFTER: Duration = Duration::from_secs(10);
/// How far back the latest firing is searched: beyond the longest distance of yearly ones.
const LOOK_BACK_MAX: Duration = Duration::from_secs(5 * 366 * 86_400);

/// What is checked, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the word of each is its documentation")]
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
    Schedule,
    LastFiring,
}

impl CheckName {
    /// Every check, in order.
    pub const ALL: [CheckName; 14] = [
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
            CheckName::Schedule => "schedule",
            CheckName::LastFiring => "last firing",
        }
    }
}

/// What a check came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
            _ => Check { name, verdict: Verdict::Skipped, evidence: "the registry does not answer".into() },
        };
        Explained { checks: CheckName::ALL.map(line).into(), next: None }
    }
}

/// What is known beside the picture.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The clock of who asks.
    pub now: Timestamp,
    /// The stored configuration, checked; or its faults.
    pub config: Result<JobConfig, String>,
    /// What was seen of the registry.
    pub registry: String,
}

/// Explains a job by its picture, which must be of [`super::Detail::Full`].
pub fn explain(picture: &Picture, facts: &Facts) -> Explained {
    let mut look = Look { picture, facts, config: facts.config.as_ref().ok(), checks: Vec::new() };
    look.push(CheckName::Registry, Verdict::Fine, facts.registry.clone());
    look.configuration();
    look.job();
    look.instances();
    look.servers();
    look.leader();
    look.items();
    look.disabled_items();
    look.clocks();
    look.marks();
    look.previous_run();
    look.misfire();
    let next = look.schedule();
    look.last_firing();
    Explained { checks: look.checks, next }
}

struct Look<'a> {
    picture: &'a Picture,
    facts: &'a Facts,
    config: Option<&'a JobConfig>,
    checks: Vec<Check>,
}

impl Look<'_> {
    fn push(&mut self, name: CheckName, verdict: Verdict, evidence: impl Into<String>) {
        self.checks.push(Check { name, verdict, evidence: evidence.into() });
    }

    fn is_cause(&self, name: CheckName) -> bool {
        self.checks.iter().any(|c| c.name == name && c.verdict == Verdict::Cause)
    }

    /// The first of these that is a cause, so that what hangs on it is skipped.
    fn blocked_by(&self, names: &[CheckName]) -> Option<&'static str> {
        names.iter().find(|name| self.is_cause(**name)).map(|name| match name {
            CheckName::Configuration => "needs a configuration",
            CheckName::Job => "the job is disabled",
            CheckName::Instances => "needs an instance",
            CheckName::Servers => "needs an instance whose server is enabled",
            CheckName::Leader => "needs a leader",
            _ => "see above",
        })
    }

    /// Skips the check when one of these is a cause.
    fn skip(&mut self, name: CheckName, after: &[CheckName]) -> bool {
        let reason = self.blocked_by(after);
        if let Some(reason) = reason {
            self.push(name, Verdict::Skipped, reason);
        }
        reason.is_some()
    }

    fn ago(&self, then: Timestamp) -> String {
        format!("{then}, {} ago", Span(self.facts.now.since(then)))
    }

    fn is_live(&self, id: &str) -> bool {
        self.picture.view.is_live(id)
    }

    /// The items that the job is cut into; a missing node counts as one without owner and marks.
    fn items_of_job(&self) -> Vec<(u32, ItemView)> {
        let total = self.config.map_or(0, |c| c.sharding_total_count);
        (0..total).map(|item| (item, self.picture.items.get(&item).cloned().unwrap_or_default())).collect()
    }

    fn configuration(&mut self) {
        match &self.facts.config {
            Err(faults) => self.push(CheckName::Configuration, Verdict::Cause, faults.clone()),
            Ok(config) => {
                let since = self.picture.view.config.as_ref().map_or(Timestamp(0), |node| node.modified);
                let evidence = format!("{} items, written {}", config.sharding_total_count, self.ago(since));
                self.push(CheckName::Configuration, Verdict::Fine, evidence);
            }
        }
    }

    fn job(&mut self) {
        let view = &self.picture.view;
        let enabled: Vec<&str> = view
            .servers
            .keys()
            .filter(|ip| view.server(ip) == Some(ServerState::Enabled))
            .map(String::as_str)
            .collect();
        match self.config {
            None => self.push(CheckName::Job, Verdict::Skipped, "needs a configuration"),
            Some(config) if config.disabled && enabled.is_empty() => {
                let evidence = "`disabled: true` in its configuration, and no server is enabled: `elasticjob job enable` undoes it";
                self.push(CheckName::Job, Verdict::Cause, evidence);
            }
            Some(config) if config.disabled => {
                let evidence = format!("`disabled: true` in its configuration, but enabled on {}", enabled.join(", "));
                self.push(CheckName::Job, Verdict::Note, evidence);
            }
            Some(_) => self.push(CheckName::Job, Verdict::Fine, "not disabled"),
        }
    }

    fn instances(&mut self) {
        let view = &self.picture.view;
        if view.instances.is_empty() {
            let evidence = "no process runs this job: start an agent whose file has it";
            return self.push(CheckName::Instances, Verdict::Cause, evidence);
        }
        let evidence = joined(view.instances.keys());
        self.push(CheckName::Instances, Verdict::Fine, evidence);
    }

    fn servers(&mut self) {
        if self.skip(CheckName::Servers, &[CheckName::Job, CheckName::Instances]) {
            return;
        }
        let view = &self.picture.view;
        let mut states: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for ip in view.servers.keys() {
            match view.server(ip) {
                Some(ServerState::Enabled) | None => {}
                Some(ServerState::Disabled) => states.entry("disabled").or_default().push(ip.clone()),
                Some(ServerState::Garbled) => {
                    states.entry("neither ENABLED nor DISABLED").or_default().push(ip.clone())
                }
            }
        }
        let told: Vec<String> = states.iter().map(|(state, ips)| format!("{} {state}", ips.join(", "))).collect();
        let available = view.available();
        let (verdict, evidence) = match (available.is_empty(), told.is_empty()) {
            (true, true) => (Verdict::Cause, "no server node of a live instance: its process wrote none".to_owned()),
            (true, false) => (Verdict::Cause, format!("{}: `elasticjob server enable` undoes it", told.join("; "))),
            (false, true) => (Verdict::Fine, format!("{} enabled", joined(view.servers.keys()))),
            (false, false) => {
                (Verdict::Note, format!("{}; {} may run its items", told.join("; "), joined(available.iter())))
            }
        };
        self.push(CheckName::Servers, verdict, evidence);
    }

    fn leader(&mut self) {
        if self.skip(CheckName::Leader, &[CheckName::Job, CheckName::Instances, CheckName::Servers]) {
            return;
        }
        let found = match self.picture.view.leader_id() {
            None => Err("no instance leads: nobody would divide the items".to_owned()),
            Some(id) if self.is_live(&id) => Ok(id),
            Some(id) => Err(format!("`leader/election/instance` names {id}, which is not there")),
        };
        match found {
            Ok(evidence) => self.push(CheckName::Leader, Verdict::Fine, evidence),
            Err(evidence) => self.push(CheckName::Leader, Verdict::Cause, evidence),
        }
    }

    fn items(&mut self) {
        use CheckName::{Configuration, Instances, Job, Leader, Servers};
        if self.skip(CheckName::Items, &[Configuration, Job, Instances, Servers, Leader]) {
            return;
        }
        let items = self.items_of_job();
        let mut owners: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        let (mut unowned, mut orphaned) = (Vec::new(), Vec::new());
        for (item, nodes) in &items {
            match nodes.owner_id() {
                None => unowned.push(*item),
                Some(id) if self.is_live(&id) => owners.entry(id).or_default().push(*item),
                Some(_) => orphaned.push(*item),
            }
        }
        let asked = self.picture.view.necessary.as_ref();
        let asked = asked.map(|node| format!("to be divided anew since {}", self.ago(node.created)));
        if unowned.is_empty() && orphaned.is_empty() {
            let mut told: Vec<String> = owners.iter().map(|(id, items)| format!("{items:?} on {id}")).collect();
            let verdict = if asked.is_some() { Verdict::Note } else { Verdict::Fine };
            told.extend(asked);
            return self.push(CheckName::Items, verdict, told.join("; "));
        }
        let mut told = Vec::new();
        if !unowned.is_empty() {
            told.push(format!("{unowned:?} belong to nobody"));
        }
        if !orphaned.is_empty() {
            told.push(format!("{orphaned:?} belong to instances that are not there"));
        }
        told.extend(asked);
        self.push(CheckName::Items, Verdict::Cause, told.join("; "));
    }

    fn disabled_items(&mut self) {
        let disabled: Vec<u32> =
            self.picture.items.iter().filter(|(_, nodes)| nodes.disabled.is_some()).map(|(item, _)| *item).collect();
        if disabled.is_empty() {
            return self.push(CheckName::DisabledItems, Verdict::Fine, "none");
        }
        let evidence = format!("{disabled:?}: `elasticjob shard enable` undoes it");
        self.push(CheckName::DisabledItems, Verdict::Cause, evidence);
    }

    /// The newest word of each live instance on its own time, beside the registry's time of that word. A write takes time, so
    /// that a clock that is right looks a little slow.
    fn clocks(&mut self) {
        if self.skip(CheckName::Clocks, &[CheckName::Instances]) {
            return;
        }
        let mut words: BTreeMap<String, (i64, Timestamp, Timestamp)> = BTreeMap::new();
        let mut hear = |instance: String, at: Timestamp, zxid: i64, registry: Timestamp| {
            let newest = words.entry(instance).or_insert((i64::MIN, at, registry));
            if newest.0 < zxid {
                *newest = (zxid, at, registry);
            }
        };
        for nodes in self.picture.items.values() {
            for (claim, node) in nodes.claims.iter().filter_map(|node| Some((Claim::parse(&node.data)?, node))) {
                hear(claim.instance, claim.at, node.czxid, node.created);
            }
            if let Some((ledger, node)) = nodes.item.as_ref().and_then(|n| Some((Ledger::parse(&n.data)?, n))) {
                hear(ledger.instance, ledger.at, node.mzxid, node.modified);
            }
        }
        let set = self.config.and_then(|c| c.max_time_diff);
        let limit = set.map_or(CLOCK_LIMIT, |set| set.max(Duration::from_secs(1)));
        let (mut off, mut fine) = (Vec::new(), Vec::new());
        for (instance, (_, at, registry)) in words.iter().filter(|(id, _)| self.is_live(id)) {
            let (ahead, behind) = (at.since(*registry), registry.since(*at));
            if ahead.max(behind) <= limit {
                fine.push(instance.clone());
            } else {
                let (span, word) = if ahead > behind { (ahead, "ahead of") } else { (behind, "behind") };
                off.push(format!("{instance} is {} {word} the registry's clock", Span(span)));
            }
        }
        if !off.is_empty() {
            return self.push(CheckName::Clocks, Verdict::Cause, off.join("; "));
        }
        if fine.is_empty() {
            let evidence = "no instance has told its time yet: those of Java never do";
            return self.push(CheckName::Clocks, Verdict::Fine, evidence);
        }
        let evidence = format!("{} within {} of the registry's", joined(fine.iter()), Span(limit));
        self.push(CheckName::Clocks, Verdict::Fine, evidence);
    }

    /// What the mark says, when who made it is not there.
    fn orphan(&self, mark: Option<&Node>) -> Option<String> {
        let node = mark?;
        let id = node.text();
        match self.picture.view.instances.get(&id) {
            None => Some(format!("of {id}, which is not there, since {}", self.ago(node.created))),
            // The instance came back in a new session under its old name.
            Some(live) if node.owner != 0 && live.owner != node.owner => {
                Some(format!("of an earlier life of {id}, since {}", self.ago(node.created)))
            }
            Some(_) => None,
        }
    }

    fn marks(&mut self) {
        use CheckName::{Instances, Job, Servers};
        if self.skip(CheckName::Marks, &[Job, Instances, Servers]) {
            return;
        }
        let mut orphans = Vec::new();
        for (item, nodes) in &self.picture.items {
            for (word, mark) in [("running", &nodes.running), ("failover", &nodes.failover)] {
                if let Some(told) = self.orphan(mark.as_ref()) {
                    orphans.push(format!("`{word}` of item {item} {told}"));
                }
            }
            let taken = nodes.failovering.as_ref().filter(|_| nodes.failover.is_none());
            if let Some(told) = self.orphan(taken) {
                orphans.push(format!("`failovering` of item {item} {told}"));
            }
        }
        let waiting = &self.picture.view.failover_items;
        if !waiting.is_empty() {
            orphans.push(format!("items {waiting:?} wait to be taken over"));
        }
        if orphans.is_empty() {
            return self.push(CheckName::Marks, Verdict::Fine, "none without its owner");
        }
        self.push(CheckName::Marks, Verdict::Cause, orphans.join("; "));
    }

    /// The items that run on an instance that is there, and since when.
    fn running(&self) -> Vec<(u32, &Node)> {
        let running = self.picture.items.iter().filter_map(|(item, nodes)| Some((*item, nodes.running.as_ref()?)));
        running.filter(|(_, node)| self.orphan(Some(node)).is_none()).collect()
    }

    /// The latest firing that is past.
    fn latest(&self, back: Duration) -> Option<Timestamp> {
        let config = self.config?;
        latest_firing(config.cron.as_ref()?, self.facts.now - back, &config.time_zone)
    }

    fn previous_run(&mut self) {
        let running = self.running();
        if running.is_empty() {
            return self.push(CheckName::PreviousRun, Verdict::Fine, "nothing runs at the moment");
        }
        let told: Vec<String> = running
            .iter()
            .map(|(item, node)| format!("item {item} runs on {} since {}", node.text(), self.ago(node.created)))
            .collect();
        let latest = self.latest(Duration::ZERO);
        let skipped = latest.filter(|due| running.iter().any(|(_, n)| *due > n.created + Duration::from_secs(1)));
        let misfire = self.config.is_none_or(|c| c.misfire);
        match skipped {
            Some(due) if !misfire => {
                let evidence = format!("{}: the firing due {due} was skipped, since `misfire` is off", told.join("; "));
                self.push(CheckName::PreviousRun, Verdict::Cause, evidence);
            }
            _ => self.push(CheckName::PreviousRun, Verdict::Note, told.join("; ")),
        }
    }

    fn misfire(&mut self) {
        let missed: Vec<u32> =
            self.picture.items.iter().filter(|(_, nodes)| nodes.misfire.is_some()).map(|(item, _)| *item).collect();
        if missed.is_empty() {
            return self.push(CheckName::Misfire, Verdict::Fine, "no firing is to be caught up");
        }
        let running = self.running().iter().any(|(item, _)| missed.contains(item));
        let when = if running { "when their run ends" } else { "after their next run" };
        let evidence = format!("items {missed:?} missed a firing, since they were running: caught up once, {when}");
        self.push(CheckName::Misfire, Verdict::Cause, evidence);
    }

    fn schedule(&mut self) -> Option<Timestamp> {
        let Some(config) = self.config else {
            self.push(CheckName::Schedule, Verdict::Skipped, "needs a configuration");
            return None;
        };
        let Some(cron) = &config.cron else {
            self.push(CheckName::Schedule, Verdict::Note, "no `cron`: it runs when it is triggered");
            return None;
        };
        let zone =
            if config.time_zone_text.is_empty() { String::new() } else { format!(" in {}", config.time_zone_text) };
        let next = cron.next(self.facts.now, &config.time_zone);
        match next {
            Some(next) => {
                let wait = Span(next.since(self.facts.now));
                let evidence = format!("`{}`{zone}, next firing {next}, in {wait}", cron.text());
                self.push(CheckName::Schedule, Verdict::Fine, evidence);
            }
            None => {
                let evidence = format!("`{}`{zone} never fires again", cron.text());
                self.push(CheckName::Schedule, Verdict::Cause, evidence);
            }
        }
        next
    }

    /// Whether each item has begun the latest firing that it owed; what Java instances run leaves no record.
    fn last_firing(&mut self) {
        if self.checks.iter().any(|check| check.verdict == Verdict::Cause) {
            return self.push(CheckName::LastFiring, Verdict::Skipped, "see above");
        }
        let Some(due) = self.latest(OVERDUE_AFTER) else {
            return self.push(CheckName::LastFiring, Verdict::Fine, "none yet");
        };
        let running: Vec<u32> = self.running().iter().map(|(item, _)| *item).collect();
        let since = |node: Option<&Node>| node.map_or(Timestamp(0), |n| n.modified);
        let (mut begun, mut owed) = (Vec::new(), BTreeMap::<String, Vec<u32>>::new());
        for (item, nodes) in self.items_of_job() {
            let Some(owner) = nodes.owner_id().filter(|_| !nodes.claims.is_empty()) else { continue };
            let instance = self.picture.view.instances.get(&owner);
            let settled =
                since(instance).max(since(nodes.owner.as_ref())).max(since(self.picture.view.config.as_ref()));
            let ledger = nodes.item.as_ref().and_then(|node| Ledger::parse(&node.data));
            if ledger.is_some_and(|ledger| ledger.due >= due) {
                begun.push(item);
            } else if due > settled + Duration::from_secs(1) && !running.contains(&item) {
                owed.entry(owner).or_default().push(item);
            }
        }
        if owed.is_empty() {
            let told = if begun.is_empty() { "no item owes it".to_owned() } else { format!("begun by {begun:?}") };
            return self.push(CheckName::LastFiring, Verdict::Fine, format!("due {due}: {told}"));
        }
        let told: Vec<String> = owed.iter().map(|(id, items)| format!("items {items:?} of {id}")).collect();
        let evidence = format!(
            "due {due}: not begun by {}, and nothing in the registry says why: read the log of that process",
            told.join("; ")
        );
        self.push(CheckName::LastFiring, Verdict::Cause, evidence);
    }
}

fn joined<'a>(names: impl Iterator<Item = &'a String>) -> String {
    names.map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// The latest firing that is not later than `now`. Windows that double find it in about as many steps as there are
/// firings in the last one.
fn latest_firing(cron: &Cron, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    let mut window = Duration::from_secs(2);
    while window < LOOK_BACK_MAX {
        let mut latest = cron.next(now - window, zone).filter(|first| *first <= now);
        while let Some(next) = latest.and_then(|at| cron.next(at, zone)).filter(|next| *next <= now) {
            latest = Some(next);
        }
        if latest.is_some() {
            return latest;
        }
        window *= 2;
    }
    None
}

/// A span of time in the largest unit of which it has two.
struct Span(Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        let seconds = self.0.as_secs();
        match seconds {
            0 | 1 => write!(f, "{millis} ms"),
            2..120 => write!(f, "{seconds} s"),
            120..7_200 => write!(f, "{} min", seconds / 60),
            7_200..172_800 => write!(f, "{} h", seconds / 3_600),
            _ => write!(f, "{} days", seconds / 86_400),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        ] {
            let found = latest_firing(&Cron::parse(cron).expect("valid"), at(now), &zone);
            assert_eq!(found, expected.map(at), "{cron} at {now}");
        }
    }

    #[test]
    fn spans_have_a_unit_that_people_read() {
        for (millis, text) in [(7, "7 ms"), (1_999, "1999 ms"), (2_000, "2 s"), (119_999, "119 s"), (120_000, "2 min")]
        {
            assert_eq!(Span(Duration::from_millis(millis)).to_string(), text);
        }
        assert_eq!(Span(Duration::from_secs(3_600 * 47)).to_string(), "47 h");
        assert_eq!(Span(Duration::from_secs(86_400 * 3)).to_string(), "3 days");
    }
}
