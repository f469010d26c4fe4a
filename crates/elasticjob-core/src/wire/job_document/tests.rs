//! Java's own documents, recorded (`tests/vectors/config_yaml.json`).

use serde_json::Value;

use super::*;

fn vectors() -> Value {
    let path = format!("{}/tests/vectors/config_yaml.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).expect("the vectors are part of the crate")).expect("JSON")
}

fn document(config: &Value) -> JobDocument {
    let text = |key: &str| config[key].as_str().map(str::to_owned);
    let flag = |key: &str| config[key].as_bool().expect("bool");
    let int = |key: &str| config[key].as_i64().expect("number");
    JobDocument {
        job_name: text("jobName").expect("name"),
        cron: text("cron"),
        time_zone: text("timeZone"),
        sharding_total_count: int("shardingTotalCount"),
        sharding_item_parameters: text("shardingItemParameters"),
        job_parameter: text("jobParameter"),
        monitor_execution: flag("monitorExecution"),
        failover: flag("failover"),
        misfire: flag("misfire"),
        max_time_diff_seconds: int("maxTimeDiffSeconds"),
        reconcile_interval_minutes: int("reconcileIntervalMinutes"),
        job_sharding_strategy_type: text("jobShardingStrategyType"),
        thread_pool: text("jobExecutorThreadPoolSizeProviderType"),
        thread_pool_key: ThreadPoolKey::SizeProvider,
        job_error_handler_type: text("jobErrorHandlerType"),
        job_listener_types: config["jobListenerTypes"]
            .as_array()
            .expect("list")
            .iter()
            .map(|l| l.as_str().expect("text").to_owned())
            .collect(),
        description: text("description"),
        props: config["props"]
            .as_object()
            .expect("map")
            .iter()
            .map(|(k, v)| (k.clone(), v.as_str().expect("text").to_owned()))
            .collect(),
        disabled: flag("disabled"),
        overwrite: flag("overwrite"),
        label: text("label"),
        static_sharding: flag("staticSharding"),
        kept: Vec::new(),
    }
}

/// Nulls that Java fills in when it reads.
fn filled(mut document: JobDocument) -> JobDocument {
    for text in [&mut document.sharding_item_parameters, &mut document.job_parameter, &mut document.description] {
        text.get_or_insert_default();
    }
    document.thread_pool_key = ThreadPoolKey::SizeProvider;
    document.kept.clear();
    document
}

#[test]
fn documents_are_written_as_java_writes_them() {
    for case in vectors()["write"].as_array().expect("cases") {
        let written = document(&case["effective_configuration"]).to_yaml();
        let expected = case["yaml"].as_str().expect("text");
        // The order inside `props` is Java's hash order, which is no contract: compared as lines.
        let lines = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            if text.contains("\nprops:") {
                lines.sort();
            }
            lines
        };
        // A tracing element is compared below: it is kept, never made by us.
        if !expected.contains("jobExtraConfigurations") {
            assert_eq!(lines(&written), lines(expected), "{}", case["name"]);
        }
    }
}

#[test]
fn what_java_wrote_reads_back_and_is_written_again_byte_for_byte() {
    for case in vectors()["write"].as_array().expect("cases") {
        let text = case["yaml"].as_str().expect("text");
        if text.contains("!!binary") {
            continue; // control characters: read as their base64 text (COMPAT.md)
        }
        let read = JobDocument::parse(text.as_bytes()).unwrap_or_else(|e| panic!("{}: {e}", case["name"]));
        assert_eq!(filled(read.clone()), document(&case["effective_configuration"]), "{}", case["name"]);
        assert_eq!(JobDocument::parse(read.to_yaml().as_bytes()), Ok(read), "{}", case["name"]);
    }
}

#[test]
fn texts_are_accepted_and_refused_as_by_java() {
    // Java dies of an unknown key, and of a class that it has not; we keep both (COMPAT.md).
    let kept = ["unknownKey", "com.acme.Other", "elasticjob.Missing"];
    for case in vectors()["parse"].as_array().expect("cases") {
        let text = case["yaml"].as_str().expect("text");
        let read = JobDocument::parse(text.as_bytes());
        let checked = read.as_ref().is_ok_and(|d| !d.job_name.is_empty() && d.sharding_total_count > 0);
        if kept.iter().any(|k| text.contains(k)) {
            assert_eq!(read.expect(text).kept.len(), 1, "{text}");
            continue;
        }
        assert_eq!(Some(checked), case["accepted"].as_bool(), "{text}: {read:?}");
        // Java prints a date by its own format, here it stays as it is written.
        if checked && !text.contains("2020-01-01}") {
            assert_eq!(filled(read.expect(text)), document(&case["effective_configuration"]), "{text}");
        }
    }
}

#[test]
fn unknown_keys_and_java_elements_survive_a_rewrite() {
    let text = "cron: 0/5 * * * * ?\njobExtraConfigurations:\n- !!org.apache.shardingsphere.elasticjob.tracing.yaml.YamlTracingConfiguration\n  type: RDB\n  url: 'x: y'\njobName: a\nnewKey: [1, {b: c}]\nshardingTotalCount: 2\n";
    let mut document = JobDocument::parse(text.as_bytes()).expect("reads");
    document.disabled = true;
    let written = document.to_yaml();
    assert!(written.contains("- !!org.apache.shardingsphere.elasticjob.tracing.yaml.YamlTracingConfiguration\n  type: RDB\n  url: 'x: y'\n"), "{written}");
    assert!(written.contains("newKey: [1, {b: c}]\n"), "{written}");
    assert!(written.contains("disabled: true\n"), "{written}");

    let flow = r#"{"jobName":"a","shardingTotalCount":2,"newKey":{"b":["c","d"]}}"#;
    let written = JobDocument::parse(flow.as_bytes()).expect("reads").to_yaml();
    assert!(written.contains("newKey: {'b': ['c', 'd']}\n"), "{written}");
    assert_eq!(JobDocument::parse(written.as_bytes()).expect("reads").kept.len(), 1);
}

#[test]
fn an_invalid_value_is_reported_with_its_line() {
    let error = JobDocument::parse(b"jobName: a\nshardingTotalCount: many\n").expect_err("refused");
    assert_eq!(
        error.to_string(),
        "line 2, key `shardingTotalCount`: `many` is not a whole number from -2147483648 to 2147483647"
    );
    assert!(JobDocument::parse(b"a: [").is_err());
    assert!(matches!(JobDocument::parse(&vec![b'a'; 1 << 20]), Err(DocumentError::TooLarge { .. })));
    assert_eq!(JobDocument::parse(b"- a\n"), Err(DocumentError::NotAMapping));
}
