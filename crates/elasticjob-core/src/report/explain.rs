//! Why a job does not run: one check after the other, each with what it was judged by.
//!
//! A check that finds what keeps the job, or a part of it, from running is a *cause*. What cannot be judged because of an
//! earlier cause is skipped, so that each problem is reported once.

mod check;
mod clocks;
mod items;
mod spans;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub use check::{Check, CheckName, Explained, Verdict};
use spans::{Span, latest_firing};

use super::{ItemReport, JobReport};
use crate::config::JobConfig;
use crate::job_state::ServerState;
use crate::latch;
use crate::ranges::Ranges;
use crate::shard;
use crate::time::Timestamp;
use crate::tree::Node;
use crate::wire::{Ledger, parse_instance};

/// A firing that no instance has begun is reported this long after it was due: the caller's clock may differ.
const OVERDUE_AFTER: Duration = Duration::from_secs(60);
/// Two firings in a row that no instance has begun within this are a cause. Where firings are rarer, an item that was enabled
/// lately looks alike until its next one, so that it is a note.
const OVERDUE_WITHIN: Duration = Duration::from_secs(600);
/// A run is longer than its period only if it continues this long after a firing, by the caller's clock.
const SKIPPED_AFTER: Duration = Duration::from_secs(10);
/// Running items that are described one by one.
const SHOWN_MAX: usize = 10;

/// What is known beside the report.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The clock of who asks.
    pub now: Timestamp,
    /// The stored configuration, checked; or its faults.
    pub config: Result<JobConfig, String>,
    /// What was seen of the registry.
    pub registry: String,
}

/// Explains a job by its report, which must be of [`super::Detail::Full`].
pub fn explain(report: &JobReport, facts: &Facts) -> Explained {
    let mut look = Look { report, facts, config: facts.config.as_ref().ok(), checks: Vec::new() };
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
    look.triggers();
    let next = look.schedule();
    look.last_firing();
    Explained { checks: look.checks, next }
}

struct Look<'a> {
    report: &'a JobReport,
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
            _ => "not checked, because of a cause above",
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
        self.report.state.is_live(id)
    }

    /// The items that the job is cut into; a missing node counts as one without owner and marks.
    fn items_of_job(&self) -> Vec<(u32, ItemReport)> {
        let total = self.config.map_or(0, |c| c.sharding_total_count);
        (0..total).map(|item| (item, self.report.items.get(&item).cloned().unwrap_or_default())).collect()
    }

    fn configuration(&mut self) {
        match &self.facts.config {
            Err(faults) => self.push(CheckName::Configuration, Verdict::Cause, faults.clone()),
            Ok(config) => {
                let since = self.report.state.config.as_ref().map_or(Timestamp(0), |node| node.modified);
                let evidence = format!("{} items, written {}", config.sharding_total_count, self.ago(since));
                if self.report.differences.is_empty() {
                    return self.push(CheckName::Configuration, Verdict::Fine, evidence);
                }
                let told = self.report.differences.iter().map(|(id, found)| {
                    let keys: Vec<String> =
                        found.iter().map(|d| format!("`{}` `{}` instead of `{}`", d.key, d.here, d.stored)).collect();
                    format!("{id} was started with {}", keys.join(", "))
                });
                let cure = "the stored configuration is in force; to replace it, run `elasticjob job apply FILE`";
                let evidence = format!("{evidence}; {}; {cure}", told.collect::<Vec<_>>().join("; "));
                self.push(CheckName::Configuration, Verdict::Note, evidence);
            }
        }
    }

    fn job(&mut self) {
        let state = &self.report.state;
        let enabled: Vec<&str> = state
            .servers
            .keys()
            .filter(|ip| state.server(ip) == Some(ServerState::Enabled))
            .map(String::as_str)
            .collect();
        match self.config {
            None => self.push(CheckName::Job, Verdict::Skipped, "needs a configuration"),
            Some(config) if config.disabled && enabled.is_empty() => {
                let evidence = "`disabled: true` in the stored configuration, and the job is enabled on no server; enable it with `elasticjob job enable`";
                self.push(CheckName::Job, Verdict::Cause, evidence);
            }
            Some(config) if config.disabled => {
                let evidence = format!(
                    "`disabled: true` in the stored configuration, but the job is enabled on servers {}",
                    enabled.join(", ")
                );
                self.push(CheckName::Job, Verdict::Note, evidence);
            }
            Some(_) => self.push(CheckName::Job, Verdict::Fine, "not disabled"),
        }
    }

    fn instances(&mut self) {
        let state = &self.report.state;
        if state.instances.is_empty() {
            let evidence = "no instance runs this job; start an agent whose file contains it, or reload the file with SIGHUP; if an agent runs, its log and /readyz show why the job has not joined";
            return self.push(CheckName::Instances, Verdict::Cause, evidence);
        }
        let evidence = joined(state.instances.keys());
        if !state.leaving.is_empty() {
            let leaves =
                if state.leaving.len() == 1 { "leaves when its runs end" } else { "leave when their runs end" };
            let evidence = format!("{evidence}; {} {leaves}", joined(state.leaving.iter()));
            return self.push(CheckName::Instances, Verdict::Note, evidence);
        }
        self.push(CheckName::Instances, Verdict::Fine, evidence);
    }

    /// Servers decide by the instances that they have: a disabled one without any keeps nothing from running.
    fn servers(&mut self) {
        if self.skip(CheckName::Servers, &[CheckName::Job, CheckName::Instances]) {
            return;
        }
        let state = &self.report.state;
        let word = |ip: &str| match state.server(ip) {
            Some(ServerState::Enabled) => "enabled",
            Some(ServerState::Disabled) => "disabled",
            Some(ServerState::Garbled) => "has a server node with an invalid value (expected ENABLED or DISABLED)",
            None => "has no server node",
        };
        let mut states: BTreeMap<String, &str> = BTreeMap::new();
        for (id, node) in &state.instances {
            match parse_instance(&node.data) {
                Some(instance) => drop(states.insert(instance.server_ip.clone(), word(&instance.server_ip))),
                None => drop(states.insert(format!("the node of instance {id}"), "unreadable")),
            }
        }
        let resting = state.servers.keys().filter(|ip| state.server(ip) == Some(ServerState::Disabled));
        let resting: Vec<&String> = resting.filter(|ip| !states.contains_key(*ip)).collect();
        let (fine, wrong): (Vec<_>, Vec<_>) = states.iter().partition(|(_, state)| **state == "enabled");
        let told = |states: &[(&String, &&str)]| -> String {
            states.iter().map(|(ip, state)| format!("{ip} {state}")).collect::<Vec<_>>().join(", ")
        };
        let cure = if wrong.iter().any(|(_, state)| **state == "disabled") {
            "; enable it with `elasticjob job enable` or `elasticjob server enable`"
        } else {
            ""
        };
        if fine.is_empty() {
            return self.push(CheckName::Servers, Verdict::Cause, format!("{}{cure}", told(&wrong)));
        }
        let mut parts = vec![told(&fine)];
        parts.extend((!wrong.is_empty()).then(|| format!("{}{cure}", told(&wrong))));
        let others = joined(resting.into_iter());
        parts.extend(
            (!others.is_empty()).then(|| format!("{others} disabled, but without an instance, so without effect")),
        );
        let verdict = if wrong.is_empty() { Verdict::Fine } else { Verdict::Note };
        self.push(CheckName::Servers, verdict, parts.join("; "));
    }

    fn leader(&mut self) {
        if self.skip(CheckName::Leader, &[CheckName::Job, CheckName::Instances, CheckName::Servers]) {
            return;
        }
        let found = match self.report.state.leader_id() {
            None => {
                let queue = Some(self.queue("election")).filter(|queue| !queue.is_empty());
                let parts = ["no instance leads, so no instance assigns the items".to_owned()].into_iter().chain(queue);
                Err(parts.collect::<Vec<_>>().join("; "))
            }
            Some(id) if self.is_live(&id) => Ok(id),
            Some(id) => Err(format!("the registered leader {id} has left; a new election is pending")),
        };
        match found {
            Ok(evidence) => self.push(CheckName::Leader, Verdict::Fine, evidence),
            Err(evidence) => self.push(CheckName::Leader, Verdict::Cause, evidence),
        }
    }

    /// Who is first in the queue of a latch: where nothing goes on, its process does not act.
    fn queue(&self, latch: &str) -> String {
        let prefix = self.report.path.below(&format!("leader/{latch}/latch/"));
        let Some((place, node)) = self.report.latches.iter().find(|(place, _)| place.starts_with(&prefix)) else {
            return String::new();
        };
        let instances = &self.report.state.instances;
        let instance = instances.iter().find(|(_, instance)| instance.owner == node.owner).map(|(id, _)| id.as_str());
        let way_out = if latch::is_guarded(place) {
            "the next instance in the queue continues without that process; if no instance is queued, restart that process".to_owned()
        } else {
            format!("end that process, or delete the node {place}")
        };
        format!(
            "the first node in the queue of the {latch} latch belongs to session {:#x} ({}), since {}; if this does not change, that process is stuck: {way_out}",
            node.owner,
            instance.unwrap_or("process unknown"),
            self.ago(node.created)
        )
    }

    /// The items of the job with that mark; what is left of items that it has no more keeps nothing from running.
    fn marked(&self, mark: impl Fn(&ItemReport) -> bool) -> Vec<u32> {
        let total = self.config.map_or(u32::MAX, |config| config.sharding_total_count);
        let items = self.report.items.iter().filter(|(item, nodes)| **item < total && mark(nodes));
        items.map(|(item, _)| *item).collect()
    }

    fn disabled_items(&mut self) {
        let disabled = self.marked(|nodes| nodes.disabled.is_some());
        if disabled.is_empty() {
            return self.push(CheckName::DisabledItems, Verdict::Fine, "none");
        }
        let evidence = format!("items {} are disabled; enable with `elasticjob shard enable`", Ranges(&disabled));
        self.push(CheckName::DisabledItems, Verdict::Cause, evidence);
    }

    /// What the mark says, when who made it is not there.
    fn orphan(&self, mark: Option<&Node>) -> Option<String> {
        let node = mark?;
        let id = node.text();
        match self.report.state.instances.get(&id) {
            None => Some(format!("set at {}, by instance {id}, which has left", self.ago(node.created))),
            // The instance came back in a new session under its old name.
            Some(live) if node.owner != 0 && live.owner != node.owner => {
                Some(format!("set at {}, by an earlier process with the id {id}", self.ago(node.created)))
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
        for (item, nodes) in &self.report.items {
            for (word, mark) in [("running", &nodes.running), ("failover", &nodes.failover)] {
                if let Some(told) = self.orphan(mark.as_ref()) {
                    orphans.push(format!("mark `{word}` of item {item}: {told}"));
                }
            }
            let taken = nodes.failovering.as_ref().filter(|_| nodes.failover.is_none());
            if let Some(told) = self.orphan(taken) {
                orphans.push(format!("mark `failovering` of item {item}: {told}"));
            }
        }
        let waiting = &self.report.state.failover_items;
        if !waiting.is_empty() {
            let items: Vec<u32> = waiting.iter().copied().collect();
            orphans.push(format!("the interrupted runs of items {} wait for a takeover", Ranges(&items)));
        }
        let queue = self.queue("failover");
        if !orphans.is_empty() && !queue.is_empty() {
            orphans.push(queue);
        }
        if orphans.is_empty() {
            return self.push(
                CheckName::Marks,
                Verdict::Fine,
                "no `running` or `failover` node of an instance that has left",
            );
        }
        self.push(CheckName::Marks, Verdict::Cause, orphans.join("; "));
    }

    /// The items that run on an instance that is there, and since when.
    fn running(&self) -> Vec<(u32, &Node)> {
        let running = self.report.items.iter().filter_map(|(item, nodes)| Some((*item, nodes.running.as_ref()?)));
        running.filter(|(_, node)| self.orphan(Some(node)).is_none()).collect()
    }

    /// The latest firing that is past.
    fn latest(&self, back: Duration) -> Option<Timestamp> {
        let config = self.config?;
        latest_firing(config.cron.as_ref()?, self.facts.now - back, &config.time_zone)
    }

    fn previous_run(&mut self) {
        use CheckName::{Instances, Job, Servers};
        let running = self.running();
        if running.is_empty() {
            return self.push(CheckName::PreviousRun, Verdict::Fine, "nothing is running");
        }
        let tell = |(item, node): &(u32, &Node)| {
            let id = node.text();
            // A run outlives its session; so does a mark that no instance deleted.
            let life = self.report.state.instances.get(&id).map(|instance| instance.czxid);
            let before = if life.is_some_and(|life| node.czxid < life) {
                ", started before that instance registered again"
            } else {
                ""
            };
            format!("item {item} has been running on {id} since {}{before}", self.ago(node.created))
        };
        let mut told: Vec<String> = running.iter().take(SHOWN_MAX).map(tell).collect();
        if running.len() > SHOWN_MAX {
            told.push(format!("{} more items are running", running.len() - SHOWN_MAX));
        }
        let latest = self.latest(SKIPPED_AFTER);
        let skipped = latest.filter(|due| running.iter().any(|(_, n)| *due > n.created + Duration::from_secs(1)));
        let misfire = self.config.is_none_or(|c| c.misfire);
        match skipped {
            Some(due) if !misfire && self.blocked_by(&[Job, Instances, Servers]).is_none() => {
                let evidence = format!(
                    "{}: the firing due {due} was skipped because the items were still running and `misfire` is off",
                    told.join("; ")
                );
                self.push(CheckName::PreviousRun, Verdict::Cause, evidence);
            }
            _ => self.push(CheckName::PreviousRun, Verdict::Note, told.join("; ")),
        }
    }

    fn misfire(&mut self) {
        use CheckName::{Instances, Job, Servers};
        if self.skip(CheckName::Misfire, &[Job, Instances, Servers]) {
            return;
        }
        let missed = self.marked(|nodes| nodes.misfire.is_some());
        if missed.is_empty() {
            return self.push(CheckName::Misfire, Verdict::Fine, "no firing to catch up");
        }
        if self.config.is_some_and(|config| !config.misfire) {
            // Java marks them all the same, and leaves the marks.
            let evidence = format!(
                "items {} have a misfire mark, but `misfire` is off, so the firing is not caught up",
                Ranges(&missed)
            );
            return self.push(CheckName::Misfire, Verdict::Note, evidence);
        }
        let running = self.running().iter().any(|(item, _)| missed.contains(item));
        let when = if running { "when their run ends" } else { "after their next run" };
        let evidence = format!(
            "items {} have a misfire: they were still running at their due time; one catch-up run starts {when}",
            Ranges(&missed)
        );
        self.push(CheckName::Misfire, Verdict::Cause, evidence);
    }

    /// Instances act on triggers immediately, except for items that are running.
    fn triggers(&mut self) {
        let state = &self.report.state;
        let mut waiting: Vec<u32> = state.item_triggers.iter().map(|(item, _)| *item).collect();
        waiting.dedup();
        let running: Vec<u32> = self.running().iter().map(|(item, _)| *item).collect();
        let (after, stuck): (Vec<u32>, Vec<u32>) = waiting.into_iter().partition(|item| running.contains(item));
        let mut told = Vec::new();
        if !after.is_empty() {
            told.push(format!(
                "items {} were triggered while running; they run again after their current run",
                Ranges(&after)
            ));
        }
        if !stuck.is_empty() {
            let owner = |item: &u32| self.report.items.get(item).and_then(ItemReport::owner_id);
            let owners: BTreeSet<String> = stuck.iter().filter_map(owner).collect();
            let owners = if owners.is_empty() { "an owner".to_owned() } else { joined(owners.iter()) };
            told.push(format!("items {} were triggered and wait for {owners} to start them", Ranges(&stuck)));
        }
        let gone = joined(state.triggers.iter().filter(|id| !state.is_live(id)));
        if !gone.is_empty() {
            told.push(format!(
                "a trigger is pending for {gone}, which has left; the leader passes it on to the owners of its items"
            ));
        }
        match told.is_empty() {
            true => self.push(CheckName::Triggers, Verdict::Fine, "none pending"),
            false => self.push(CheckName::Triggers, Verdict::Note, told.join("; ")),
        }
    }

    fn schedule(&mut self) -> Option<Timestamp> {
        let Some(config) = self.config else {
            self.push(CheckName::Schedule, Verdict::Skipped, "needs a configuration");
            return None;
        };
        let Some(cron) = &config.cron else {
            self.push(CheckName::Schedule, Verdict::Note, "no `cron`: the job runs only when triggered");
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
            return self.push(CheckName::LastFiring, Verdict::Skipped, "not checked, because of a cause above");
        }
        let slack = OVERDUE_AFTER + self.config.and_then(|c| c.max_time_diff).unwrap_or_default();
        let Some(due) = self.latest(slack) else {
            return self.push(CheckName::LastFiring, Verdict::Fine, "none yet");
        };
        // No firing was due before the job existed.
        if self.report.state.config.as_ref().is_some_and(|config| due < config.created) {
            let evidence = format!("no firing is more than {} old yet, and younger ones are not judged", Span(slack));
            return self.push(CheckName::LastFiring, Verdict::Fine, evidence);
        }
        let before = self.latest(self.facts.now.since(due) + Duration::from_millis(1));
        let running: Vec<u32> = self.running().iter().map(|(item, _)| *item).collect();
        let since = |node: Option<&Node>| node.map_or(Timestamp(0), |n| n.modified);
        let (mut begun, mut owed, mut twice) = (Vec::new(), BTreeMap::<String, Vec<u32>>::new(), false);
        for (item, nodes) in self.items_of_job() {
            let Some(owner) = nodes.owner_id().filter(|_| !nodes.claims.is_empty()) else { continue };
            let state = &self.report.state;
            let instance = state.instances.get(&owner);
            let server = instance.and_then(|n| parse_instance(&n.data)).and_then(|i| state.servers.get(&i.server_ip));
            // Since when it could have begun one, as far as nodes tell.
            let settled = [instance, nodes.owner.as_ref(), server, state.config.as_ref()].map(since);
            let settled = settled.into_iter().max().unwrap_or_default() + Duration::from_secs(1);
            let ledger = nodes.item.as_ref().and_then(|node| Ledger::parse(&node.data));
            let accounted = ledger.map_or(settled, |ledger| ledger.due.max(settled));
            if accounted >= due || running.contains(&item) {
                begun.push(item);
                continue;
            }
            twice |= before.is_some_and(|before| accounted < before && self.facts.now.since(before) <= OVERDUE_WITHIN);
            owed.entry(owner).or_default().push(item);
        }
        if owed.is_empty() {
            let told = if begun.is_empty() {
                "not checked: no item is owned by a Rust instance, and Java instances do not record their starts"
                    .to_owned()
            } else {
                let unchecked = self
                    .items_of_job()
                    .iter()
                    .map(|(item, _)| *item)
                    .filter(|item| !begun.contains(item))
                    .collect::<Vec<_>>();
                let rest = match unchecked.is_empty() {
                    true => String::new(),
                    false => format!(
                        "; items {} are not checked, because Java instances do not record their starts",
                        Ranges(&unchecked)
                    ),
                };
                format!("no start is missing; checked items {}{rest}", Ranges(&begun))
            };
            let evidence = format!("due {due}, the latest firing that is more than {} old: {told}", Span(slack));
            return self.push(CheckName::LastFiring, Verdict::Fine, evidence);
        }
        let told: Vec<String> =
            owed.iter().map(|(id, items)| format!("items {} owned by {id}", Ranges(items))).collect();
        let evidence = format!(
            "the firing due {due} was not started: {}; if no check above explains this, see the log of the instance",
            told.join("; ")
        );
        let misfire = self.config.is_none_or(|c| c.misfire);
        self.push(CheckName::LastFiring, if twice && misfire { Verdict::Cause } else { Verdict::Note }, evidence);
    }
}

fn joined<'a>(names: impl Iterator<Item = &'a String>) -> String {
    names.map(String::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
