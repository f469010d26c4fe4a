//! What a script does not inherit: the variables of this process's environment that have its secrets.

use std::collections::BTreeSet;

use parking_lot::Mutex;

/// Variables with secrets of an agent and its commands, and of exporters of spans.
const SECRETS: [&str; 4] = [
    "ELASTICJOB_DIGEST",
    "ELASTICJOB_DATABASE_PASSWORD",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
];
/// An address, which may have a digest.
const REGISTRY: &str = "ELASTICJOB_REGISTRY";

/// Further variables from which this process has read secrets.
static MORE: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Keeps scripts from inheriting these variables of the environment, in place of those that were named before.
pub fn withhold(names: impl IntoIterator<Item = String>) {
    *MORE.lock() = names.into_iter().collect();
}

/// The variables that a script does not inherit, but for those that its job passes.
pub(super) fn withheld(passed: &[String]) -> Vec<String> {
    let registry = std::env::var(REGISTRY).ok().filter(|address| address.contains("digest="));
    let registry = registry.map(|_| REGISTRY.to_owned());
    let more = MORE.lock().iter().cloned().collect::<Vec<_>>();
    let all = SECRETS.iter().map(|name| (*name).to_owned()).chain(registry).chain(more);
    all.filter(|name| !passed.contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_withheld_unless_the_job_passes_them() {
        withhold(["TEST_OF_WITHHOLD".to_owned()]);
        let found = withheld(&["ELASTICJOB_DIGEST".to_owned()]);
        assert!(!found.contains(&"ELASTICJOB_DIGEST".to_owned()));
        for name in ["ELASTICJOB_DATABASE_PASSWORD", "OTEL_EXPORTER_OTLP_HEADERS", "TEST_OF_WITHHOLD"] {
            assert!(found.contains(&name.to_owned()), "{name}");
        }
    }
}
