//! After quiet there is a leader where an instance may lead: it is live, its server enabled, and its node its session's own.

use super::{Replay, Violation};
use crate::Evidence;

pub(super) const NAME: &str = "leader";

pub(super) fn judge(evidence: &Evidence) -> Vec<Violation> {
    if !evidence.terms.is_at_rest {
        return Vec::new();
    }
    let replay = Replay::of(&evidence.history);
    let path = &evidence.path;
    let live: Vec<&str> = replay.available(path).collect();
    if live.is_empty() {
        return Vec::new();
    }
    let fault = |what: String| vec![Violation { invariant: NAME, at: evidence.terms.end, what }];
    let Some(leader) = replay.get(&path.leader_instance()) else {
        return fault(format!("nobody leads, of {live:?}"));
    };
    let id = leader.text();
    if !live.contains(&id.as_str()) {
        return fault(format!("{id} leads, which is not there or disabled; live: {live:?}"));
    }
    let own = replay.get(&path.instance(&id)).map(|node| node.owner);
    if own != Some(leader.owner) || leader.owner == 0 {
        return fault(format!("{id} leads in session {:x}, its instance lives in {own:x?}", leader.owner));
    }
    Vec::new()
}
