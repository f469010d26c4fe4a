//! A live process joins again by itself: after quiet each running Rust process is registered, in its own session.

use super::{Replay, Violation};
use crate::Evidence;

pub(super) const NAME: &str = "members";

pub(super) fn judge(evidence: &Evidence) -> Vec<Violation> {
    if !evidence.terms.is_at_rest {
        return Vec::new();
    }
    let replay = Replay::of(&evidence.history);
    let mut violations = Vec::new();
    let mut fault = |what| violations.push(Violation { invariant: NAME, at: evidence.terms.end, what });
    for (id, session) in &evidence.up {
        match replay.get(&evidence.path.instance(id)) {
            None => fault(format!("{id} is up and not registered")),
            Some(node) if session.is_some_and(|session| session != node.owner) => {
                fault(format!("{id} is registered in session {:x}, and lives in {session:x?}", node.owner));
            }
            Some(_) => {}
        }
    }
    for (id, node) in replay.below(&evidence.path.instances()) {
        if !evidence.up.contains_key(id) && !evidence.java.contains(id) {
            fault(format!("{id} is registered in session {:x}, and no process has it", node.owner));
        }
    }
    violations
}
