//! No unknown path: whatever was written is one of Java's nodes, or one that COMPAT.md lists.

use std::collections::BTreeSet;

use elasticjob_core::path::{item_of_trigger, parse_item};

use super::Violation;
use crate::{Evidence, What};

pub(super) const NAME: &str = "paths";

pub(super) fn judge(evidence: &Evidence) -> Vec<Violation> {
    let mut seen = BTreeSet::new();
    let mut violations = Vec::new();
    for change in &evidence.history {
        let written = matches!(change.what, What::Wrote { .. });
        if written && seen.insert(&change.path) && !is_known(evidence.path.root(), &change.path) {
            let what = format!("{} was written", change.path);
            violations.push(Violation { invariant: NAME, at: change.at, what });
        }
    }
    violations
}

fn is_known(root: &str, path: &str) -> bool {
    let Some(rest) = path.strip_prefix(root).filter(|rest| rest.is_empty() || rest.starts_with('/')) else {
        return false;
    };
    let parts: Vec<&str> = rest.split('/').skip(1).collect();
    let is_instance = |id: &str| id.split_once("@-@").is_some_and(|(ip, pid)| !ip.is_empty() && !pid.is_empty());
    let is_item = |name: &str| parse_item(name).is_some();
    match parts.as_slice() {
        []
        | ["config" | "servers" | "instances" | "leader" | "sharding" | "trigger" | "guarantee" | "applied"]
        | ["results"]
        | ["leader", "election" | "sharding" | "failover" | "leaving"]
        | ["leader", "election", "instance" | "latch"]
        | ["leader", "sharding", "necessary" | "processing"]
        | ["leader", "failover", "items" | "latch"]
        | ["systemTime"]
        | ["systemTime", "current"]
        | ["next-job-instance-ip"] => true,
        ["servers", ip] => ip.parse::<std::net::IpAddr>().is_ok(),
        ["trigger" | "results", name] if item_of_trigger(name).is_some() => true,
        ["instances" | "trigger" | "applied", id] => is_instance(id),
        ["leader", "leaving", id] => is_instance(id),
        ["leader", "election" | "failover", "latch", place] => place.contains("latch-"),
        ["leader", "failover", "items", item] => is_item(item),
        ["sharding", item] => is_item(item),
        ["sharding", item, mark] => {
            is_item(item)
                && matches!(*mark, "instance" | "running" | "misfire" | "disabled" | "failover" | "failovering")
        }
        ["sharding", item, "instance", claim] => is_item(item) && claim.starts_with("claim-"),
        [
            "guarantee",
            "started" | "completed" | "started-latch" | "completed-latch" | "started-closed" | "completed-closed",
            ..,
        ] => true,
        _ => false,
    }
}
