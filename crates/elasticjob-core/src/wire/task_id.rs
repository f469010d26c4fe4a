//! Task ids (Java: `TaskContext`): one text for the items that one instance runs together.

use std::fmt::Write as _;

/// `<job>@-@<items joined by ,>@-@READY@-@<instance id>`. Not unique: the same items on the same instance have the same
/// id each time, as in Java.
pub fn task_id(job: &str, items: &[u32], instance: &str) -> String {
    let mut id = String::with_capacity(job.len() + items.len() * 2 + instance.len() + 16);
    id.push_str(job);
    id.push_str("@-@");
    for (place, item) in items.iter().enumerate() {
        let _ = write!(id, "{}{item}", if place == 0 { "" } else { "," }); // into a string: cannot fail
    }
    id.push_str("@-@READY@-@");
    id.push_str(instance);
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_ids_equal_java() {
        let path = format!("{}/tests/vectors/task_id.json", env!("CARGO_MANIFEST_DIR"));
        let vectors: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(path).expect("vectors")).expect("JSON");
        for case in vectors["build"].as_array().expect("cases") {
            let items: Vec<u32> = case["items"]
                .as_array()
                .expect("items")
                .iter()
                .map(|i| u32::try_from(i.as_u64().expect("number")).expect("u32"))
                .collect();
            // Without an instance Java's context falls back to a fixed one.
            let instance = case["instance_id"].as_str().unwrap_or("127.0.0.1@-@1");
            let id = task_id(case["job_name"].as_str().expect("text"), &items, instance);
            assert_eq!(Some(id.as_str()), case["task_id"].as_str());
        }
    }
}
