//! Java's own results, recorded (`tests/vectors/sharding_strategies.json`).

use serde_json::Value;

use super::*;

fn vectors() -> Value {
    let path = format!("{}/tests/vectors/sharding_strategies.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).expect("the vectors are part of the crate")).expect("JSON")
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().expect("array").iter().map(|v| v.as_str().expect("text").to_owned()).collect()
}

#[test]
fn assignments_equal_java() {
    let mut compared = 0;
    for case in vectors()["cases"].as_array().expect("cases") {
        let name = case["strategy"].as_str().expect("text");
        let strategy = built_in().into_iter().find(|s| s.name() == name).expect("a built-in strategy");
        let instances = strings(&case["instances_in"]);
        let job = case["job_name"].as_str().expect("text");
        let total = u32::try_from(case["sharding_total_count"].as_u64().expect("number")).expect("u32");
        let now = Timestamp(case["now_ms"].as_i64().unwrap_or_default());
        let found = strategy.assign(&instances, job, total, now);
        let Some(result) = case["result"].as_array() else {
            // Java fails with an index error here: the hash is the smallest integer.
            assert!(is_complete(&found, &instances, total), "{case}");
            continue;
        };
        let expected: Assignment = result
            .iter()
            .map(|entry| {
                let items = entry["items"].as_array().expect("items");
                let items = items.iter().map(|i| u32::try_from(i.as_u64().expect("number")).expect("u32"));
                (entry["instance"].as_str().expect("text").to_owned(), items.collect())
            })
            .collect();
        assert_eq!(found, expected, "{case}");
        compared += 1;
    }
    assert!(compared > 50, "{compared}");
}

#[test]
fn hashes_and_orders_equal_java() {
    let vectors = vectors();
    for case in vectors["java_string_hash_codes"].as_array().expect("cases") {
        let hash = java_hash(case["string"].as_str().expect("text"));
        assert_eq!(Some(i64::from(hash)), case["java_hash_code"].as_i64(), "{case}");
    }
    for case in vectors["children_order"].as_array().expect("cases") {
        assert_eq!(descending(strings(&case["input"])), strings(&case["children_keys_order"]));
    }
}

#[test]
fn the_single_item_rotation_equals_java() {
    for case in vectors()["single_sharding_balance"].as_array().expect("cases") {
        let Some(offset) = case["offset"].as_u64() else { continue }; // Java fails: the smallest integer
        let size = case["size"].as_u64().expect("number");
        let instances: Vec<String> = (0..size).map(|i| format!("h{i}")).collect();
        let strategy = built_in().into_iter().find(|s| s.name() == SINGLE_SHARDING_BALANCE).expect("built in");
        let now = Timestamp(case["now_ms"].as_i64().expect("number"));
        let found = strategy.assign(&instances, case["job_name"].as_str().expect("text"), 1, now);
        assert_eq!(found[0].0, format!("h{offset}"), "{case}");
    }
}

#[test]
fn an_incomplete_assignment_is_seen() {
    let instances = vec!["b".to_owned(), "a".to_owned()];
    for (assignment, complete) in [
        (vec![("b".to_owned(), vec![0]), ("a".to_owned(), vec![1])], true),
        (vec![("b".to_owned(), vec![0])], false),
        (vec![("b".to_owned(), vec![0, 1]), ("a".to_owned(), vec![1])], false),
        (vec![("c".to_owned(), vec![0, 1])], false),
        (vec![("b".to_owned(), vec![0, 1, 2])], false),
    ] {
        assert_eq!(is_complete(&assignment, &instances, 2), complete, "{assignment:?}");
    }
}
