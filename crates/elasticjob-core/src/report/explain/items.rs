//! Whether every item has an owner that can run it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::spans::Span;
use super::{CheckName, ItemReport, Look, Ranges, SKIPPED_AFTER, Verdict, shard};
use crate::wire::{Claim, parse_instance};

/// An owner that has not claimed an item after this hangs.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(10);
impl Look<'_> {
    pub(super) fn items(&mut self) {
        use CheckName::{Configuration, Instances, Job, Leader, Servers};
        if self.skip(CheckName::Items, &[Configuration, Job, Instances, Servers, Leader]) {
            return;
        }
        let items = self.items_of_job();
        let mut owners: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        let (mut unowned, mut orphaned, mut resting) = (Vec::new(), Vec::new(), Vec::new());
        let mut unconfirmed: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for (item, nodes) in &items {
            match nodes.owner_id() {
                None => unowned.push(*item),
                Some(id) if !self.is_live(&id) => orphaned.push(*item),
                // An instance that leaves keeps the items that it is running.
                Some(id) if !self.report.state.available().contains(&id) && nodes.running.is_none() => {
                    resting.push(*item);
                }
                Some(id) if self.is_unconfirmed(&id, nodes) => unconfirmed.entry(id).or_default().push(*item),
                Some(id) => owners.entry(id).or_default().push(*item),
            }
        }
        let asked = self.report.state.necessary.as_ref().map(|node| node.created);
        let since = asked.map(|since| format!("resharding requested {}", self.ago(since)));
        if !unconfirmed.is_empty() {
            let each = |(id, items): (&String, &Vec<u32>)| format!("items {} of {id}", Ranges(items));
            let evidence = format!(
                "the owner has not confirmed {} for more than {}, so it starts nothing there; its process may hang: see its log, or restart it",
                unconfirmed.iter().map(each).collect::<Vec<_>>().join("; "),
                Span(CONFIRMED_WITHIN)
            );
            return self.push(CheckName::Items, Verdict::Cause, evidence);
        }
        if unowned.is_empty() && orphaned.is_empty() && resting.is_empty() {
            let mut parts: Vec<String> =
                owners.iter().map(|(id, items)| format!("{} on {id}", Ranges(items))).collect();
            let verdict = if asked.is_some() { Verdict::Note } else { Verdict::Fine };
            parts.extend(since);
            // Jobs with few items meet on the same instances.
            let few = items.len() < self.report.state.available().len();
            if few && self.config.is_some_and(|c| c.sharding_strategy.eq_ignore_ascii_case(shard::DEFAULT)) {
                parts.push(format!(
                    "the strategy {} assigns the items of all jobs with few items to the same instances; `jobShardingStrategyType: ROUND_ROBIN` spreads them",
                    shard::DEFAULT
                ));
            }
            return self.push(CheckName::Items, verdict, parts.join("; "));
        }
        let mut parts = Vec::new();
        if !unowned.is_empty() {
            parts.push(format!("items {} have no owner", Ranges(&unowned)));
        }
        if !orphaned.is_empty() {
            parts.push(format!("items {} are owned by instances that have left", Ranges(&orphaned)));
        }
        if !resting.is_empty() {
            parts.push(format!(
                "items {} are owned by instances that start nothing, because they are leaving or their server is disabled",
                Ranges(&resting)
            ));
        }
        parts.extend(since);
        // A leader of Java divides when the job fires, or is triggered, and not before.
        let fired = asked.is_none_or(|asked| self.latest(SKIPPED_AFTER).is_some_and(|due| due > asked));
        if !fired {
            parts.push("a Java leader reshards at the next firing".into());
        }
        self.push(CheckName::Items, if fired { Verdict::Cause } else { Verdict::Note }, parts.join("; "));
    }

    /// Whether a Rust instance has not claimed an item that was assigned to it a while ago. Java instances have no claims.
    fn is_unconfirmed(&self, id: &str, nodes: &ItemReport) -> bool {
        let is_rust = self.report.state.instances.get(id).and_then(|node| parse_instance(&node.data));
        let is_old = nodes.owner.as_ref().is_some_and(|owner| self.facts.now.since(owner.modified) > CONFIRMED_WITHIN);
        let is_claimed = || nodes.claims.iter().filter_map(|node| Claim::parse(&node.data)).any(|c| c.instance == id);
        is_rust.is_some_and(|instance| instance.is_rust) && is_old && !is_claimed()
    }
}
