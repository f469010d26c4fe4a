//! Files that the Java starter reads (`starter_yaml.json`), and files with faults.

use std::collections::BTreeMap;

use super::*;

/// What a text says, or its faults in the order of their places.
pub(super) fn parse(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<AgentFile, Vec<Fault>> {
    let mut file = super::parse(text, env);
    if file.faults.is_empty() {
        return Ok(file);
    }
    file.faults.sort_by_key(|fault| (fault.at.line, fault.at.column));
    Err(file.faults)
}

pub(super) fn no_environment(_: &str) -> Option<String> {
    None
}

pub(super) fn faults(text: &str) -> Vec<String> {
    match parse(text, &no_environment) {
        Ok(_) => Vec::new(),
        Err(faults) => faults.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn the_java_starter_s_files_are_read_with_the_manual_s_defaults() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../elasticjob-core/tests/vectors/starter_yaml.json");
    let vectors: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(path).expect("vectors")).expect("JSON");
    let mut compared = 0;
    for case in vectors["cases"].as_array().expect("cases") {
        let text = case["yaml"].as_str().expect("text");
        let Some(jobs) = case["jobs"].as_object() else {
            assert!(parse(text, &no_environment).is_err(), "{text}");
            continue;
        };
        // On purpose otherwise than the starter: unknown keys are faults, and a job name with a dot needs no brackets.
        if text.contains("unknownKey") || jobs.values().any(serde_json::Value::is_string) {
            assert!(parse(text, &no_environment).is_err(), "{text}");
            continue;
        }
        let file = parse(text, &no_environment).unwrap_or_else(|f| panic!("{text}: {f:?}"));
        let found: BTreeMap<&str, &FileJob> = file.jobs.iter().map(|j| (j.document.job_name.as_str(), j)).collect();
        for (name, expected) in jobs {
            let job = found[name.as_str()];
            let document = &job.document;
            let string = |key: &str| expected[key].as_str().map(str::to_owned);
            let filled = |text: &Option<String>| Some(text.clone().unwrap_or_default());
            assert_eq!(Some(job.job_type.clone()), string("elasticJobType"), "{name}");
            assert_eq!(filled(&document.cron), Some(string("cron").unwrap_or_default()), "{name}");
            assert_eq!(document.time_zone, string("timeZone"), "{name}");
            assert_eq!(Some(document.sharding_total_count), expected["shardingTotalCount"].as_i64(), "{name}");
            assert_eq!(document.sharding_item_parameters, string("shardingItemParameters"), "{name}");
            assert_eq!(document.job_parameter, string("jobParameter"), "{name}");
            assert_eq!(document.description, string("description"), "{name}");
            assert_eq!(document.job_sharding_strategy_type, string("jobShardingStrategyType"), "{name}");
            assert_eq!(document.thread_pool, string("jobExecutorThreadPoolSizeProviderType"), "{name}");
            assert_eq!(document.job_error_handler_type, string("jobErrorHandlerType"), "{name}");
            let props: BTreeMap<String, String> = expected["props"]
                .as_object()
                .expect("map")
                .iter()
                .map(|(k, v)| (k.clone(), v.as_str().expect("text").to_owned()))
                .collect();
            assert_eq!(document.props, props, "{name}");
            for (key, found, default) in [
                ("monitorExecution", document.monitor_execution, true),
                ("misfire", document.misfire, true),
                ("failover", document.failover, false),
                ("disabled", document.disabled, false),
                ("overwrite", document.overwrite, false),
            ] {
                // The starter leaves monitorExecution and misfire off where they are not set; the manual does not.
                let set = text.contains(key) || text.contains("monitor-execution");
                assert_eq!(Some(found), if set { expected[key].as_bool() } else { Some(default) }, "{name} {key}");
            }
            compared += 1;
        }
    }
    assert!(compared >= 6, "{compared} jobs compared");
}

#[test]
fn every_fault_is_reported_with_its_place_key_value_and_expectation() {
    let text = "elasticjob:
  regCenter:
    serverLists: localhost
    namespace: a
  jobs:
    a:
      elasticJobType: SCRIPT
      corn: '* * * * * ?'
      shardingTotalCount: many
      failover: perhaps
    b:
      elasticJobClass: com.acme.B
      shardingTotalCount: 1
    c: 7
  trace: {}
";
    assert_eq!(
        faults(text),
        [
            "3:18: key `serverLists`: `localhost` is invalid: expected host:port,host:port with ports from 1 to 65535",
            "8:7: unknown key `corn` in job `a`: did you mean `cron`?",
            "9:27: key `shardingTotalCount`: `many` is invalid: expected a whole number from 1 to 10000",
            "10:17: key `failover`: `perhaps` is invalid: expected true or false",
            "12:7: key `elasticJobClass` in job `b`: the agent cannot load Java classes; use `elasticJobType`, or run the job with the library",
            "14:5: key `elasticJobType` is missing in job `c`: expected a type such as SCRIPT",
            "14:5: key `shardingTotalCount` is missing in job `c`: expected a whole number from 1",
            "14:8: key `c`: `7` is not a mapping",
            "15:3: unknown key `trace` in `elasticjob`: did you mean `tracing`?",
        ]
    );
    assert_eq!(faults("spring: {}\n").len(), 1);
    assert_eq!(faults("elasticjob:\n  jobs: [\n").len(), 1);
    assert_eq!(faults("elasticjob:\n  jobs: {}\n"), ["2:3: key `jobs`: expected at least one job"]);
}

#[test]
fn variables_come_from_the_environment_or_from_their_default() {
    let text =
        "elasticjob:\n  jobs:\n    a:\n      elasticJobType: ${TYPE:SCRIPT}\n      shardingTotalCount: ${ITEMS}\n";
    let env = |name: &str| (name == "ITEMS").then(|| "3".to_owned());
    let file = parse(text, &env).expect("read");
    assert_eq!(file.jobs[0].job_type, "SCRIPT");
    assert_eq!(file.jobs[0].document.sharding_total_count, 3);
    let faults = faults(text);
    assert!(faults[0].starts_with("5:27: `${ITEMS}`: the environment has no variable `ITEMS`"), "{faults:?}");
}

#[test]
fn services_listen_on_the_loopback_unless_the_file_says_otherwise() {
    let services = |lines: &str| {
        let jobs = "  jobs: {a: {elasticJobType: SCRIPT, shardingTotalCount: 1}}\n";
        parse(&format!("elasticjob:\n{lines}{jobs}"), &no_environment).map(|file| file.services)
    };
    let at = |text: &str| text.parse().ok();
    assert_eq!(services(""), Ok(Services::default()));
    assert_eq!(services("  dump: {enabled: true}\n"), Ok(Services::default()), "only with a port, as in Java");
    assert_eq!(
        services("  dump: {port: 9888}\n  metrics: {port: 9100, host: 0.0.0.0}\n"),
        Ok(Services { dump: at("127.0.0.1:9888"), metrics: at("0.0.0.0:9100") })
    );
    assert_eq!(services("  dump: {port: 9888, enabled: false}\n"), Ok(Services::default()));
    for (lines, expected) in [
        ("  dump: {port: 65536}\n", "2:16: key `port`: `65536` is invalid: expected a whole number from 0 to 65535"),
        (
            "  metrics: {port: 1, host: everywhere}\n",
            "2:28: key `host`: `everywhere` is invalid: expected an IP address of this host; 0.0.0.0 for all",
        ),
        ("  metrics: {prot: 1}\n", "2:13: unknown key `prot` in `metrics`: did you mean `port`?"),
    ] {
        let faults = services(lines).expect_err(lines);
        assert_eq!(faults.iter().map(ToString::to_string).collect::<Vec<_>>(), [expected]);
    }
}

/// Every key that the file knows, with one letter missing, one doubled, and two exchanged.
#[test]
fn every_key_that_is_mistyped_is_a_fault_that_names_the_right_one() {
    let mistyped = |key: &str| {
        let (middle, chars) = (key.len() / 2, key.chars().collect::<Vec<_>>());
        let mut exchanged = chars.clone();
        exchanged.swap(middle - 1, middle);
        let missing = chars.iter().enumerate().filter(|(at, _)| *at != middle).map(|(_, c)| *c).collect::<String>();
        let doubled =
            chars.iter().enumerate().flat_map(|(at, c)| std::iter::repeat_n(*c, 1 + usize::from(at == middle)));
        [missing, doubled.collect(), exchanged.into_iter().collect()]
    };
    let job = "  jobs: {a: {elasticJobType: SCRIPT, shardingTotalCount: 1";
    let levels: [(&[&str], &str, &str); 6] = [
        (TOP, "", "jobs: {a: {elasticJobType: SCRIPT, shardingTotalCount: 1}}\n"),
        (
            REG_CENTER,
            "  regCenter: {serverLists: 'h:1', namespace: n, ",
            "}\n  jobs: {a: {elasticJobType: SCRIPT, shardingTotalCount: 1}}\n",
        ),
        (
            TRACING,
            "  tracing: {dataSource: {url: 'sqlite:a'}, ",
            "}\n  jobs: {a: {elasticJobType: SCRIPT, shardingTotalCount: 1}}\n",
        ),
        (
            DATA_SOURCE,
            "  tracing: {dataSource: {url: 'sqlite:a', ",
            "}}\n  jobs: {a: {elasticJobType: SCRIPT, shardingTotalCount: 1}}\n",
        ),
        (SERVICE, "  dump: {", "}\n  jobs: {a: {elasticJobType: SCRIPT, shardingTotalCount: 1}}\n"),
        (JOB, job, "}}\n"),
    ];
    let mut tried = 0;
    for (keys, before, after) in levels {
        for key in keys {
            for wrong in mistyped(key) {
                if keys.iter().any(|known| squeeze(known) == squeeze(&wrong)) {
                    continue; // two equal letters
                }
                let text = match before {
                    "" => format!("elasticjob:\n  {wrong}: 1\n  {after}"),
                    _ if keys == JOB => format!("elasticjob:\n{before}, {wrong}: 1{after}"),
                    _ => format!("elasticjob:\n{before}{wrong}: 1{after}"),
                };
                let found = faults(&text);
                let expected = |fault: &String| {
                    fault.contains(&format!("unknown key `{wrong}`")) && fault.contains("did you mean `")
                };
                assert!(found.iter().any(expected), "{wrong} for {key}: {found:?}\n{text}");
                tried += 1;
            }
        }
    }
    for key in elasticjob::agent::PROPERTIES.iter().filter(|key| !key.starts_with("streaming")) {
        for wrong in mistyped(key) {
            if elasticjob::agent::PROPERTIES.contains(&wrong.as_str()) {
                continue;
            }
            let found = faults(&format!("elasticjob:\n{job}, props: {{{wrong}: '1'}}}}}}\n"));
            let expected = format!("unknown property `{wrong}`: did you mean `");
            assert!(found.iter().any(|fault| fault.contains(&expected)), "{wrong}: {found:?}");
            tried += 1;
        }
    }
    assert!(tried > 250, "{tried}");
}

#[test]
fn faults_say_what_to_do() {
    let job = "elasticJobType: SCRIPT, shardingTotalCount: 2";
    for (text, expected) in [
        // The reader of YAML takes `*` for an alias.
        (
            "elasticjob:\n  jobs:\n    a:\n      elasticJobType: SCRIPT\n      cron: * * * * * ?\n".to_owned(),
            "5:13: key `cron`: quote the cron expression, since `*` begins an alias in YAML: cron: \"* * * * * ?\"",
        ),
        (
            format!("elasticjob:\n  jobs:\n    a: {{{job}, script.command.line: x}}\n"),
            "unknown key `script.command.line` in job `a`: it belongs below `props` of a job",
        ),
        (
            format!("elasticjob:\n  jobs:\n    a: {{{job}, retry.count: 3}}\n"),
            "unknown key `retry.count` in job `a`: it belongs below `props` of a job, as `elasticjob.retry.count`",
        ),
        (
            "elasticjob:\n  jobs:\n    a: {elasticJobType: SCRIPT, shardingTotalCount: }\n".to_owned(),
            "key `shardingTotalCount` has no value: expected a whole number from 1 to 10000",
        ),
        (
            format!("elasticjob:\n  cron: x\n  jobs: {{a: {{{job}}}}}\n"),
            "2:3: unknown key `cron` in `elasticjob`: it belongs in a job below `jobs`",
        ),
        (
            format!("elasticjob:\n  serverLists: x\n  jobs: {{a: {{{job}}}}}\n"),
            "2:3: unknown key `serverLists` in `elasticjob`: it belongs below `regCenter`",
        ),
        (
            format!("elasticjob:\n  jobs:\n    - {{name: a, {job}}}\n"),
            "3:5: key `jobs` is a list: expected a mapping from job names to jobs",
        ),
        (format!("elasticjob:\n  zzz: 1\n  jobs: {{a: {{{job}}}}}\n"), "2:3: unknown key `zzz` in `elasticjob`"),
        (
            format!("elasticjob:\n  jobs:\n    a: {{{job}}}\n    a: {{{job}}}\n"),
            "4:5: key `a` is already set in line 3",
        ),
        (format!("elasticjob:\n  jobs:\n    a: {{{job}, cron: x, cron: y}}\n"), "key `cron` is already set in line 3"),
        (
            format!("elasticjob:\n  jobs:\n    a: {{{job}, sharding-total-count: 3}}\n"),
            "key `sharding-total-count` is also set as `shardingTotalCount` in line 3",
        ),
        (
            format!(
                "elasticjob:\n  jobs:\n    a: {{{job}, jobExecutorServiceHandlerType: CPU, jobExecutorThreadPoolSizeProviderType: CPU}}\n"
            ),
            "key `jobExecutorThreadPoolSizeProviderType` is also set as `jobExecutorServiceHandlerType` in line 3",
        ),
        (
            format!("elasticjob:\n  jobs:\n    a: {{{job}, overwrite: sometimes}}\n"),
            "key `overwrite`: `sometimes` is invalid: expected true, false or changed",
        ),
        (
            format!("elasticjob:\n  jobs:\n    a: {{{job}, shardingItemParameters: {{x: y}}}}\n"),
            "key `x` in `shardingItemParameters`: expected the number of an item",
        ),
        (
            format!("elasticjob:\n  report: {{{job}}}\n  jobs: {{a: {{{job}}}}}\n"),
            "2:3: unknown key `report` in `elasticjob`: it looks like a job, which belongs below `jobs`; indent it",
        ),
        (
            "elasticjob:\n  jobs:\n    a:\n    cron: x\n".to_owned(),
            "4:5: key `cron` is at the level of the job names: indent it below its job",
        ),
        (
            format!("elasticjob:\n  jobs:\n    a: {{{job}, <<: {{cron: x}}}}\n"),
            "unknown key `<<` in job `a`: merge keys are not supported; repeat the keys",
        ),
        // A value that could not be read is the cause of other faults, which are not reported beside it.
        (
            format!(
                "elasticjob:\n  regCenter: {{serverLists: 'h:1', namespace: n, sessionTimeoutMilliseconds: -3}}\n  jobs: {{a: {{{job}}}}}\n"
            ),
            "`sessionTimeoutMilliseconds`: `-3` is invalid: expected a whole number from 0",
        ),
        (
            format!(
                "elasticjob:\n  regCenter: {{serverLists: 'h:1', namespace: n, maxRetries: '${{X}}'}}\n  jobs: {{a: {{{job}}}}}\n"
            ),
            "`${X}`: the environment has no variable `X`",
        ),
        (
            format!("elasticjob:\n  jobs:\n    a: {{{job}, cron: ${{X}}}}\n"),
            "inside `{ }`, put quotes around each value that contains `${…}`",
        ),
        (
            format!(
                "elasticjob:\n  dump: {{port: 7000}}\n  metrics: {{port: 7000, host: 0.0.0.0}}\n  jobs: {{a: {{{job}}}}}\n"
            ),
            "1:1: keys `dump` and `metrics`: both have port 7000: expected different ports",
        ),
    ] {
        let found = faults(&text);
        assert!(found.iter().any(|fault| fault.contains(expected)), "{found:?}\n{text}");
        assert_eq!(found.len(), 1, "{found:?}\n{text}");
    }
}

#[test]
fn a_key_of_the_agent_beside_its_root_is_a_fault() {
    let good = "elasticjob:\n  jobs:\n    a: {shardingTotalCount: 1, elasticJobType: SCRIPT, props: {script.command.line: x}}\n";
    for (beside, expected) in [
        (
            "regCenter: {serverLists: 'h:1', namespace: a}",
            "key `regCenter` is beside `elasticjob`: it belongs below it",
        ),
        ("tracing: {dataSource: {url: 'sqlite://t.db'}}", "key `tracing` is beside `elasticjob`"),
        ("jobs: {}", "key `jobs` is beside `elasticjob`"),
        ("reg-center: {}", "it belongs below it, as `regCenter`"),
        ("elasticjob.regCenter.namespace: a", "write `elasticjob:` and below it `regCenter.namespace`"),
        ("elastic-job: {jobs: {}}", "key `elastic-job`: the settings of the agent are already in line 1"),
        ("elasticjobs: {}", "unknown key `elasticjobs`: did you mean `elasticjob`?"),
    ] {
        let Err(crate::Failure::Faults(found)) =
            crate::agent::load_with(&format!("{good}{beside}\n"), "FILE", &|_| None)
        else {
            panic!("{beside}: no fault")
        };
        let lines: Vec<String> = found.lines().filter(|line| !line.contains("warning")).collect();
        assert_eq!(lines.len(), 1, "{beside}: {lines:?}");
        assert!(lines[0].contains(expected) && lines[0].starts_with("FILE:4:1: "), "{beside}: {lines:?}");
    }
    for beside in ["spring: {application: {name: x}}", "server.port: 8080", "logging: {level: info}"] {
        assert!(crate::agent::load_with(&format!("{good}{beside}\n"), "FILE", &|_| None).is_ok(), "{beside}");
    }
}

/// The faults of a file with this job, and the warnings, as `elasticjob check` prints them.
pub(super) fn checked(job: &str) -> (Vec<String>, Vec<String>) {
    let text = format!("elasticjob:\n  jobs:\n    a: {{shardingTotalCount: 1, {job}}}\n");
    match crate::agent::load_with(&text, "FILE", &|_| None) {
        Ok(file) => (Vec::new(), file.warnings.iter().map(ToString::to_string).collect()),
        Err(crate::Failure::Faults(faults)) => (faults.lines().collect(), Vec::new()),
        Err(error) => panic!("{error:?}"),
    }
}

#[test]
fn a_job_whose_properties_have_no_effect_is_a_warning_and_one_that_contradicts_itself_a_fault() {
    let script = "elasticJobType: SCRIPT, cron: '0 0 4 * * ?'";
    for (props, expected) in [
        ("email.to: x", "property `email.to` has no effect without `jobErrorHandlerType: EMAIL`"),
        ("http.uri: x", "property `http.uri` has no effect without `elasticJobType: HTTP`"),
        (
            "elasticjob.error.handler.interval.seconds: -1",
            "has no effect without `jobErrorHandlerType: EMAIL or WECHAT or DINGTALK`",
        ),
        ("elasticjob.listener.started.command.line: x", "has no effect without `jobListenerTypes: DISTRIBUTE_ONCE`"),
    ] {
        let (faults, warnings) = checked(&format!("{script}, props: {{script.command.line: x, {props}}}"));
        assert!(faults.is_empty(), "{faults:?}");
        assert_eq!(warnings.iter().filter(|warning| warning.contains(expected)).count(), 1, "{warnings:?}");
    }
    let listeners =
        "jobListenerTypes: [SCRIPT], props: {script.command.line: x, elasticjob.listener.before.command.line: x}";
    assert_eq!(checked(&format!("{script}, {listeners}")), Default::default());
    for (method, is_warned) in [("GET", true), ("PUT", false), ("DELETE", false), ("HEAD", true)] {
        let props = format!("props: {{http.uri: 'http://h/', http.method: {method}, http.data: x}}");
        let (faults, warnings) = checked(&format!("elasticJobType: HTTP, cron: '0 0 4 * * ?', {props}"));
        let warned = warnings.iter().any(|warning| warning.contains("property `http.data` has no effect"));
        assert_eq!((faults.len(), warned), (0, is_warned), "{method}: {faults:?} {warnings:?}");
    }
    let text = format!(
        "elasticjob:\n  jobs:\n    'a ': {{shardingTotalCount: 1, {script}, props: {{script.command.line: x}}}}\n"
    );
    let file = crate::agent::load_with(&text, "FILE", &|_| None).expect("no fault");
    assert!(file.warnings[0].text.contains("starts or ends with a space"), "{:?}", file.warnings);

    let (_, warnings) = checked("elasticJobType: SCRIPT, cron: '0 0 4 * * ? 2099 5', props: {script.command.line: x}");
    assert!(warnings[0].contains("as in Quartz, `5` after the year field is ignored"), "{warnings:?}");

    let (_, warnings) = checked("elasticJobType: SCRIPT, cron: '0 0 0 ? * MON,FRI#2', props: {script.command.line: x}");
    assert!(warnings[0].contains("fires on only one of its days: of `MON,FRI#2`"), "{warnings:?}");

    let twice = "jobListenerTypes: [SCRIPT, SCRIPT], props: {script.command.line: x, elasticjob.listener.before.command.line: x}";
    let (faults, _) = checked(&format!("{script}, {twice}"));
    assert!(faults.iter().any(|fault| fault.contains("listed more than once; list each listener once")), "{faults:?}");
    for (delays, fault) in [("delay.milliseconds: 90000", false), ("delay.max.milliseconds: 5", false)] {
        let (faults, _) = checked(&format!("{script}, props: {{script.command.line: x, elasticjob.retry.{delays}}}"));
        assert_eq!(!faults.is_empty(), fault, "{faults:?}");
    }
    let both = "elasticjob.retry.delay.milliseconds: 10, elasticjob.retry.delay.max.milliseconds: 5";
    let (faults, _) = checked(&format!("{script}, props: {{script.command.line: x, {both}}}"));
    assert!(faults[0].contains("`5` is invalid: expected at least 10, the first delay"), "{faults:?}");
    for (uri, reason) in [("http://h:99999/ x", "invalid port number"), ("http://", "empty host")] {
        let (faults, _) = checked(&format!(
            "elasticJobType: HTTP, cron: '0 0 4 * * ?', props: {{http.uri: '{uri}', http.method: GET}}"
        ));
        assert!(
            faults[0].contains(&format!("expected an address such as https://example.com/run: {reason}")),
            "{faults:?}"
        );
    }
}

#[test]
fn variables_are_replaced_but_where_two_dollars_keep_them() {
    let env = |name: &str| (name == "SET").then(|| "value".to_owned());
    for (text, expected) in [
        ("a ${SET} b", Ok("a value b")),
        ("${UNSET:x}${SET:x}", Ok("xvalue")),
        ("${UNSET:-1}", Ok("-1")),
        ("$${SET} ${SET} $$${SET}", Ok("${SET} value $${SET}")),
        ("${UNSET", Err("`${` without `}`")),
        ("${UNSET}", Err("or $${UNSET} for a literal ${UNSET}")),
        ("${UNSET:-x}", Err("or $${UNSET:-…} to pass it unchanged to the shell")),
        ("${SET:-x}", Ok("value")),
    ] {
        let found = reader::replace_variables(text, &env);
        match expected {
            Ok(expected) => assert_eq!(found.as_deref(), Ok(expected), "{text}"),
            Err(part) => assert!(found.as_ref().is_err_and(|fault| fault.contains(part)), "{text}: {found:?}"),
        }
    }
}

#[test]
fn a_job_whose_name_comes_again_is_checked_too() {
    let job = "elasticJobType: SCRIPT, shardingTotalCount: 1";
    let text = format!("elasticjob:\n  jobs:\n    a: {{{job}, misfire: maybe}}\n    a: {{{job}}}\n");
    let expected =
        ["3:65: key `misfire`: `maybe` is invalid: expected true or false", "4:5: key `a` is already set in line 3"];
    assert_eq!(faults(&text), expected);
}

#[test]
fn an_item_has_one_parameter() {
    let property = "props: {elasticjob.sharding.item.parameter.0: hidden}";
    for (lines, expected) in [
        (
            "shardingItemParameters: {0: x, \"00\": y}",
            "key `00` in `shardingItemParameters`: item 0 has two parameters",
        ),
        (&format!("shardingItemParameters: {{0: x}}, {property}"), "item 0 has two parameters, here and in"),
        (&format!("{property}, shardingItemParameters: {{0: 'a=b'}}"), "item 0 has two parameters, here and in"),
        (&format!("shardingItemParameters: 0=x, {property}"), "item 0 has two parameters, here and in"),
    ] {
        let text = format!("elasticjob:\n  jobs:\n    a: {{elasticJobType: SCRIPT, shardingTotalCount: 2, {lines}}}\n");
        let found = faults(&text);
        assert!(found.iter().any(|fault| fault.contains(expected)), "{lines}: {found:?}");
    }
    let text = format!(
        "elasticjob:\n  jobs:\n    a: {{elasticJobType: SCRIPT, shardingTotalCount: 2, shardingItemParameters: {{1: x}}, {property}}}\n"
    );
    assert!(parse(&text, &no_environment).is_ok());
}

#[test]
fn a_job_says_which_configuration_wins_and_any_text_can_be_a_parameter() {
    let lines = "overwrite: changed, shardingItemParameters: {0: 'a=b,c', 1: plain, 2: 010}";
    let text = format!("elasticjob:\n  jobs:\n    a: {{elasticJobType: SCRIPT, shardingTotalCount: 3, {lines}}}\n");
    let file = parse(&text, &no_environment).expect("valid");
    let job = &file.jobs[0];
    assert_eq!((job.overwrite, job.document.overwrite), (Overwrite::Changed, false));
    assert_eq!(job.document.sharding_item_parameters.as_deref(), Some("1=plain,2=010"));
    assert_eq!(job.document.props["elasticjob.sharding.item.parameter.0"], "a=b,c");
    let warnings: Vec<String> = file.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings, ["3:5: job `a` has no `cron`: it runs only when it is triggered"]);
    let text = "elasticjob:\n  jobs:\n    a: {elasticJobType: SCRIPT, shardingTotalCount: 1, props: {cron: x}}\n";
    let warnings: Vec<String> =
        parse(text, &no_environment).expect("valid").warnings.iter().map(ToString::to_string).collect();
    let beside = "3:64: property `cron` has no effect, because the job itself has a key of this name; move it from `props` to the job";
    assert!(warnings.contains(&beside.to_owned()), "{warnings:?}");
}

#[test]
fn a_value_that_yaml_reads_as_something_else_is_warned_of() {
    for (lines, expected) in [
        (
            "jobParameter: NO",
            Some("key `jobParameter`: YAML reads `NO` as `false`; put it into quotes to keep it as it is written"),
        ),
        ("props: {region: NO}", Some("key `region`: YAML reads `NO` as `false`; ")),
        ("props: {x: 010}", Some("key `x`: YAML reads `010` as `8`; ")),
        ("props: {email.password: 0123}", Some("key `email.password`: YAML changes the value; put it into quotes")),
        ("props: {x: True, y: 10, z: '010', n: ~}", None),
        ("shardingItemParameters: {0: NO, 1: 1.50, 2: ~}", None),
    ] {
        let text = format!("elasticjob:\n  jobs:\n    a: {{elasticJobType: SCRIPT, shardingTotalCount: 3, {lines}}}\n");
        let warnings: Vec<String> =
            parse(&text, &no_environment).expect("valid").warnings.iter().map(ToString::to_string).collect();
        let found = warnings.iter().find(|warning| warning.contains("YAML "));
        match expected {
            Some(expected) => assert!(found.is_some_and(|found| found.contains(expected)), "{lines}: {warnings:?}"),
            None => assert_eq!(found, None, "{lines}"),
        }
    }
}

/// Found by hostile inputs: a key of 300 KB took ten seconds to be compared with all known ones.
#[test]
fn a_key_of_any_length_is_refused_without_a_suggestion() {
    let key = "script.".repeat(50_000);
    let job = "elasticJobType: SCRIPT\n      shardingTotalCount: 1";
    let text = format!("elasticjob:\n  jobs:\n    a:\n      {job}\n      props:\n        ? {key}x\n        : x\n");
    let found = faults(&text);
    assert!(found[0].contains("unknown property") && !found[0].contains("did you mean"), "{}", &found[0][..60]);
}

#[test]
fn one_pass_reports_all_faults() {
    let tracing = "tracing: {type: FOO, dataSource: {url: 'oracle://x'}}";
    let registry = "regCenter: {serverLists: 'ops:secret@h:1', namespace: n, sessionTimeoutMilliseconds: 1}";
    let job = "elasticJobType: SCRIPT, shardingTotalCount: 1, props: {script.command.line: x}";
    let parameters = "shardingItemParameters: '5=a,6=b,x=y,0=c,0=d'";
    let text = format!(
        "elasticjob:\n  {registry}\n  {tracing}\n  jobs:\n    a: {{{job}, {parameters}}}\n    b: {{{job}, jobParameter: {}}}\n",
        "x".repeat(200_000)
    );
    let Err(crate::Failure::Faults(faults)) = crate::agent::load_with(&text, "FILE", &|_| None) else {
        panic!("it has faults")
    };
    let lines: Vec<String> = faults.lines().collect();
    let all = lines.join("\n");
    for part in [
        "`FOO` is not known: expected RDB",
        "key `url` in `dataSource`",
        "`serverLists`: `***` is invalid: expected host:port,host:port without credentials",
        "`sessionTimeoutMilliseconds`: `1` is invalid: expected 0 for the default of 60000, or at least 100",
        "pair `x=y`: `x` is not an item number",
        "the items are 0 to 0, so no item 5, 6 exists",
        "item 0 has two parameters",
        "one argument, which can have at most 120000 bytes",
    ] {
        assert!(all.contains(part), "{part}:\n{}", all.chars().take(3_000).collect::<String>());
    }
    assert!(!all.contains("secret"), "a password is not repeated");
}

#[test]
fn a_trace_that_names_a_job_which_the_file_lacks_is_a_warning() {
    let text = "elasticjob:\n  tracing: {dataSource: {url: 'sqlite:t.db'}, includeJobNames: [a, reprot]}\n  jobs: {a: {elasticJobType: SCRIPT, shardingTotalCount: 1, cron: x}}\n";
    let file = super::parse(text, &no_environment);
    let warnings: Vec<String> = file.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings, ["2:64: key `includeJobNames` names the job `reprot`, which the file does not contain"]);
}
