//! What Java 3.0.5 wrote in 18 recorded scenarios (`tests/vectors/znode_traces.json`): every node is one that we know, of
//! the kind that we make, and its text is the one that we read and write.
//!
//! The order of Java's single writes is not compared: where Java writes one by one, we write one transaction, whose nodes
//! are compared with a running Java in the integration tests.

use std::collections::{BTreeMap, BTreeSet};

use elasticjob_core::path::{JobPath, Place};
use elasticjob_core::wire::{JobDocument, instance_yaml, parse_instance};
use serde_json::Value;

/// Parents, latches, and the nodes of parts that are not in this crate: the guarantee of distribute-once listeners, the
/// clock probe, the rotation of single items.
fn is_known_otherwise(rest: &str) -> bool {
    let parents = [
        "servers",
        "instances",
        "leader",
        "leader/election",
        "leader/election/latch",
        "leader/sharding",
        "leader/failover",
        "leader/failover/items",
        "leader/failover/latch",
        "sharding",
        "trigger",
        "systemTime",
        "systemTime/current",
        "next-job-instance-ip",
    ];
    let item = rest.strip_prefix("sharding/").map(|r| r.split('/').collect::<Vec<_>>());
    let of_item = item.is_some_and(|parts| match parts.as_slice() {
        [number] | [number, "instance" | "running" | "misfire" | "failovering"] => number.parse::<u32>().is_ok(),
        _ => false,
    });
    let latch = rest.rsplit_once('/').is_some_and(|(parent, name)| {
        parent.ends_with("latch") && name.starts_with("_c_<uuid>-latch-") && name.len() == 16 + 10
    });
    parents.contains(&rest) || of_item || latch || rest.starts_with("guarantee")
}

/// Whether Java makes that node ephemeral; `None` where it depends on the configuration.
fn is_ephemeral(place: &Place<'_>, rest: &str) -> Option<bool> {
    match place {
        Place::Instance(_) | Place::Leader | Place::Leaving(_) | Place::Processing | Place::ItemFailover(_) => {
            Some(true)
        }
        Place::ItemRunning(_) => None,
        Place::Other => Some(rest.contains("-latch-0") || rest == "next-job-instance-ip"),
        Place::Root
        | Place::Config
        | Place::Server(_)
        | Place::Necessary
        | Place::FailoverItem(_)
        | Place::Trigger(_)
        | Place::ItemTrigger(..)
        | Place::ItemDisabled(_) => Some(false),
    }
}

#[test]
fn every_node_of_the_recorded_scenarios_is_known_and_reads_back() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/znode_traces.json");
    let vectors: Value = serde_json::from_str(&std::fs::read_to_string(path).expect("vectors")).expect("JSON");
    let (mut configs, mut instances) = (0, 0);
    let mut seen: BTreeMap<&str, BTreeSet<bool>> = BTreeMap::new();
    for scenario in vectors["scenarios"].as_array().expect("scenarios") {
        let job = JobPath::new(scenario["job"].as_str().expect("a job"));
        let steps = scenario["ops"].as_array().expect("operations").iter();
        for op in steps.flat_map(|step| step["multi"].as_array().map_or(vec![step], |ops| ops.iter().collect())) {
            let (Some(kind), Some(path)) = (op["op"].as_str(), op["path"].as_str()) else { continue };
            let Some(path) = path.strip_prefix("/ns").filter(|p| !p.is_empty()) else { continue };
            let rest = path.strip_prefix(job.root()).map(|r| r.trim_start_matches('/'));
            let rest = rest.unwrap_or_else(|| panic!("{path} is not of job {}", job.job()));
            let place = job.place(path).expect("of this job");
            assert!(place != Place::Other || is_known_otherwise(rest), "{path} is not known");
            if let (Some(found), Some(expected)) = (created(kind), is_ephemeral(&place, rest)) {
                assert_eq!(found, expected, "{kind} {path}");
            }
            if let (Place::ItemRunning(_), Some(ephemeral)) = (&place, created(kind)) {
                seen.entry("running").or_default().insert(ephemeral);
            }
            let Some(data) = op["data"].as_str() else { continue };
            match place {
                Place::Config => {
                    let document = JobDocument::parse(data.as_bytes()).unwrap_or_else(|e| panic!("{path}: {e}"));
                    assert_eq!(document.to_yaml(), data, "{path}");
                    configs += 1;
                }
                Place::Instance(id) => {
                    let node = parse_instance(data.as_bytes()).unwrap_or_else(|| panic!("{path}: {data}"));
                    assert_eq!((node.id.as_str(), instance_yaml(id, &node.server_ip).as_str()), (id, data));
                    instances += 1;
                }
                Place::Server(_) => assert!(["ENABLED", "DISABLED"].contains(&data), "{path}: {data}"),
                Place::Leader | Place::ItemFailover(_) | Place::ItemRunning(_) => {
                    assert!(data.contains("@-@"), "{path} holds an instance id: {data}");
                }
                Place::Necessary | Place::Processing | Place::FailoverItem(_) | Place::Trigger(_) => {
                    assert_eq!(data, "", "{path}");
                }
                Place::Leaving(_) | Place::ItemTrigger(..) => panic!("{path}: Java has no such node"),
                Place::Root | Place::ItemDisabled(_) | Place::Other => {}
            }
        }
    }
    assert!(configs >= 18 && instances >= 18, "{configs} configurations, {instances} instances");
    assert_eq!(seen["running"], BTreeSet::from([false, true]), "ephemeral without failover, persistent with it");
}

fn created(kind: &str) -> Option<bool> {
    match kind {
        "create_ephemeral" => Some(true),
        "create_persistent" | "create_container" => Some(false),
        _ => None,
    }
}
