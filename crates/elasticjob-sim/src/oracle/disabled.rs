//! What is disabled rests: an instance of ours begins nothing once it can know that its server, or the item, is disabled.

use std::collections::BTreeMap;

use elasticjob_core::machine::Source;
use elasticjob_core::time::Timestamp;

use super::Violation;
use crate::{Evidence, What};

pub(super) const NAME: &str = "disabled";

pub(super) fn judge(evidence: &Evidence) -> Vec<Violation> {
    // Spells in which a node said "disabled".
    let mut spells: BTreeMap<&str, Vec<(Timestamp, Option<Timestamp>)>> = BTreeMap::new();
    for change in &evidence.history {
        let is_server = change.path.starts_with(&format!("{}/", evidence.path.servers()));
        let is_item = change.path.ends_with("/disabled");
        if !is_server && !is_item {
            continue;
        }
        let off = match &change.what {
            What::Wrote { data, .. } => is_item || data.as_ref() == b"DISABLED",
            What::Deleted | What::SessionEnded => false,
        };
        let spells = spells.entry(change.path.as_str()).or_default();
        match (off, spells.last_mut()) {
            (true, Some((_, Some(_))) | None) => spells.push((change.at, None)),
            (false, Some((_, end @ None))) => *end = Some(change.at),
            _ => {}
        }
    }
    // The instance received the change while its begin was in progress.
    let grace = evidence.terms.round_trip * 2;
    let mut violations = Vec::new();
    for run in evidence.runs.iter().filter(|run| !run.java) {
        let ip = run.instance.split("@-@").next().unwrap_or_default();
        let (asked, begun) = evidence.begin_of(run);
        let mut nodes = vec![evidence.path.server(ip)];
        if run.source != Source::Failover {
            nodes.push(evidence.path.item_disabled(run.item));
        } else {
            continue; // what was taken before is run
        }
        for node in nodes {
            let off = spells.get(node.as_str()).into_iter().flatten().find(|(from, to)| {
                // One that has no link hears of it when it is back, and begins nothing before.
                let mut known = *from + grace + evidence.terms.session_timeout + evidence.terms.clock_error;
                for (_, since, until) in evidence.stuck.iter().filter(|(id, ..)| *id == run.instance) {
                    if *since <= known && *from <= *until {
                        known = known.max(*until + grace);
                    }
                }
                known < asked && to.is_none_or(|to| begun < to)
            });
            if let Some((from, _)) = off {
                let what = format!("{node} is disabled since {from}, yet {} began {run:?}", run.instance);
                violations.push(Violation { invariant: NAME, at: run.start, what });
            }
        }
    }
    violations
}
