//! Clocks: what instances wrote of their own time, beside the registry's time of that write.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{CheckName, Look, Span, Verdict, joined};
use crate::time::Timestamp;
use crate::wire::{Claim, Ledger};

/// A clock that is further off than this is reported, where `maxTimeDiffSeconds` sets no bound: below, a slow commit looks alike.
const CLOCK_LIMIT: Duration = Duration::from_secs(5);
/// A slow clock is reported from one observation alone only above this, since no commit takes longer.
const COMMIT_MAX: Duration = Duration::from_secs(60);
/// What an instance said of its time longer ago is out of date.
const WORD_AGE_MAX: Duration = Duration::from_secs(600);

impl Look<'_> {
    /// The words of each live instance on its own time, beside the registry's time of that word, the newest first. A write
    /// takes time, so that a clock that is right looks a little slow.
    fn words(&self) -> BTreeMap<String, Vec<Word>> {
        let mut words: BTreeMap<String, Vec<Word>> = BTreeMap::new();
        let mut hear = |instance: String, word: Word| {
            // What an earlier life of that name has said does not count.
            let life = self.report.state.instances.get(&instance).map(|node| node.czxid);
            if life.is_some_and(|life| word.zxid >= life) {
                words.entry(instance).or_default().push(word);
            }
        };
        for nodes in self.report.items.values() {
            for (claim, node) in nodes.claims.iter().filter_map(|node| Some((Claim::parse(&node.data)?, node))) {
                hear(claim.instance, Word { zxid: node.czxid, at: claim.at, registry: node.created });
            }
            if let Some((ledger, node)) = nodes.item.as_ref().and_then(|n| Some((Ledger::parse(&n.data)?, n)))
                && let Some(at) = ledger.at
            {
                hear(ledger.instance, Word { zxid: node.mzxid, at, registry: node.modified });
            }
        }
        words.values_mut().for_each(|words| words.sort_by_key(|word| std::cmp::Reverse(word.zxid)));
        words
    }

    pub(super) fn clocks(&mut self) {
        if self.skip(CheckName::Clocks, &[CheckName::Instances]) {
            return;
        }
        let set = self.config.and_then(|c| c.max_time_diff);
        let limit = set.map_or(CLOCK_LIMIT, |set| set.max(Duration::from_secs(1)));
        let (mut off, mut old, mut fine) = (Vec::new(), Vec::new(), Vec::new());
        for (instance, words) in self.words() {
            let Some(newest) = words.first() else { continue };
            let (ahead, behind) = (newest.ahead(), newest.behind());
            let agree = words.len() > 1 && words.iter().all(|word| word.behind() > limit);
            let slow = behind > limit && (agree || behind > COMMIT_MAX);
            if ahead <= limit && !slow {
                fine.push(instance);
                continue;
            }
            let (span, word) = if slow { (behind, "behind") } else { (ahead, "ahead of") };
            let since = self.ago(newest.registry);
            let told = format!("the clock of {instance} was {} {word} the registry's clock at {since}", Span(span));
            let known = self.facts.now.since(newest.registry) <= WORD_AGE_MAX;
            if known { off.push(told) } else { old.push(told) }
        }
        if !off.is_empty() {
            let evidence = format!("{}; synchronize the clocks (NTP)", off.join("; "));
            return self.push(CheckName::Clocks, Verdict::Cause, evidence);
        }
        if !old.is_empty() {
            return self.push(CheckName::Clocks, Verdict::Note, old.join("; "));
        }
        if fine.is_empty() {
            let evidence = "no instance has written its time into the registry yet; Java instances never do";
            return self.push(CheckName::Clocks, Verdict::Fine, evidence);
        }
        let evidence =
            format!("the clocks of {} are within {} of the registry's clock", joined(fine.iter()), Span(limit));
        self.push(CheckName::Clocks, Verdict::Fine, evidence);
    }
}

/// What an instance said of its time.
struct Word {
    /// The transaction with which it said it.
    zxid: i64,
    /// Its clock.
    at: Timestamp,
    /// The registry's.
    registry: Timestamp,
}

impl Word {
    fn ahead(&self) -> Duration {
        self.at.since(self.registry)
    }

    fn behind(&self) -> Duration {
        self.registry.since(self.at)
    }
}
