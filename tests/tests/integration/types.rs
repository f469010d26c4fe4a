//! Job types against real things: processes that do not want to end, a web server with TLS.

use std::path::Path;
use std::time::Duration;

use elasticjob_tests::{Server, Speech, eventually, logged, wall_clock_millis};

use crate::ways::{BOTH, Job, start_agent};

const PATIENCE: Duration = Duration::from_secs(30);

fn lines(file: &Path) -> Vec<String> {
    std::fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect()
}

fn wait_for_lines(file: &Path, count: usize) -> Vec<String> {
    eventually(&format!("{count} lines in {}", file.display()), PATIENCE, || {
        Some(lines(file)).filter(|lines| lines.len() >= count)
    })
}

fn script(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("a script");
    format!("sh {}", path.display())
}

fn is_alive(pid: &str) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Behind the name in brackets stands the state; one that was killed and nobody has asked for is `Z`.
    state.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[test]
fn a_script_gets_its_context_twice_and_a_token_that_rises() {
    for way in BOTH {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("out");
        let text = format!(
            "echo \"$1|$2|$ELASTICJOB_SHARDING_ITEM|$ELASTICJOB_SHARDING_PARAMETER|$ELASTICJOB_FENCING_TOKEN\
             |$ELASTICJOB_SOURCE\" >> {}",
            out.display()
        );
        let command = format!("{} 'two words'", script(folder.path(), "run.sh", &text));
        let job = Job::new("SCRIPT", 1).prop("script.command.line", command);
        let _running = job.start(way, folder.path());
        let lines = wait_for_lines(&out, 3);
        let mut before = 0;
        for line in lines {
            let parts: Vec<&str> = line.split('|').collect();
            let [words, context, item, parameter, token, source] = parts.as_slice() else { panic!("{line}") };
            assert_eq!((*words, *item, *parameter, *source), ("two words", "0", "Zürich", "schedule"), "{way:?}");
            let json: serde_json::Value = serde_json::from_str(context).expect("JSON");
            assert_eq!((&json["jobName"], &json["shardingParameter"]), (&"watched".into(), &"Zürich".into()));
            let token: i64 = token.parse().expect("a number");
            assert!(token > before, "{token} after {before}");
            before = token;
        }
    }
}

/// Writes down its pids and when SIGTERM came; one child is in its group, one has left it by `setsid`. None wants to end.
const STUBBORN: &str = r#"
trap 'echo "term $(date +%s%3N)" >> "$0.out"' TERM
(trap '' TERM; exec sleep 1000) &
echo "pid $!" >> "$0.out"
setsid sh -c 'trap "" TERM; echo "pid $$" >> "$0.out"; exec sleep 1000' "$0" &
echo "pid $$" >> "$0.out"
while true; do sleep 0.1; done
"#;

#[test]
fn a_script_that_ignores_sigterm_is_gone_with_its_children_one_second_after_its_grace_and_its_item_is_free() {
    for way in BOTH {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("run.sh.out");
        let job = Job::new("SCRIPT", 1)
            .prop("script.command.line", script(folder.path(), "run.sh", STUBBORN))
            .prop("elasticjob.run.timeout.milliseconds", 1_000)
            .prop("elasticjob.script.grace.milliseconds", 500);
        let mut running = job.start(way, folder.path());
        let (mut seen, mut took) = (0, Vec::new());
        for _ in 0..2 {
            let lines = eventually("three processes and SIGTERM", PATIENCE, || {
                let lines = lines(&out).split_off(seen);
                let told = |word: &str| lines.iter().filter(|l| l.starts_with(word)).count();
                (told("pid") >= 3 && told("term") >= 1).then_some(lines)
            });
            seen += lines.len();
            let pids: Vec<String> = lines.iter().filter_map(|l| l.strip_prefix("pid ").map(str::to_owned)).collect();
            let term = lines.iter().find_map(|l| l.strip_prefix("term ")?.parse::<i64>().ok()).expect("a time");
            eventually("all of its processes are gone", PATIENCE, || {
                (!pids.iter().take(3).any(|pid| is_alive(pid))).then_some(())
            });
            took.push(wall_clock_millis() - term);
        }
        // The second after the grace is what is promised; this looks at it each 20 ms. A machine that stands still for a
        // moment does so once.
        assert!(took.iter().all(|t| *t >= 450), "{way:?}: not before the grace: {took:?}");
        assert!(took.iter().any(|t| *t <= 1_550), "{way:?}: gone so many ms after SIGTERM: {took:?}");
        // The third run is under way or comes: leaving kills it too.
        eventually("another run", PATIENCE, || (lines(&out).len() >= seen + 3).then_some(()));
        let pids: Vec<String> =
            lines(&out).iter().skip(seen).filter_map(|l| l.strip_prefix("pid ").map(str::to_owned)).collect();
        running.stop(0);
        assert!(!pids.iter().any(|pid| is_alive(pid)), "{way:?}: gone when the job has left");
    }
}

#[test]
fn a_script_that_prints_for_ever_fills_neither_log_nor_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let job = Job::new("SCRIPT", 1)
        .prop("script.command.line", "yes elasticjob")
        .prop("elasticjob.script.output.lines", 100)
        .prop("elasticjob.run.timeout.milliseconds", 1_500);
    let agent = start_agent(folder.path(), &format!("elasticjob:\n  jobs:\n{}", job.yaml()));
    eventually("two runs were cut off", PATIENCE, || {
        (agent.log().matches("the time limit of 1500 ms").count() >= 2).then_some(())
    });
    let log = agent.log();
    let failed = log.match_indices("the time limit of 1500 ms").nth(1).expect("the second run's failure").0;
    assert_eq!(log[..failed].matches("omitted lines of output").count(), 2, "said for each run, before its result");
    let runs = log.matches("omitted lines of output").count();
    assert!(log.matches("INFO elasticjob").count() <= 100 * (runs + 1), "bounded");
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.pid())).expect("a status");
    let peak = status.lines().find_map(|l| l.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    assert!(peak.expect("a size") < 200_000, "{peak:?} kB");
}

/// Without a reader of its output it would be killed by SIGPIPE at its first line.
#[test]
fn what_a_script_leaves_in_the_background_prints_and_runs_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let done = folder.path().join("done");
    let go = folder.path().join("go");
    // Its loop waits for the file, not for time.
    let background = format!(
        "(echo first; while [ ! -e {} ]; do sleep 0.1; done; for i in $(seq 100); do echo line $i; done; echo {} >> {}) &\n",
        go.display(),
        "$ELASTICJOB_DUE_TIME",
        done.display()
    );
    let job = Job::new("SCRIPT", 1).prop("script.command.line", script(folder.path(), "run.sh", &background));
    let agent = start_agent(folder.path(), &format!("elasticjob:\n  jobs:\n{}", job.yaml()));
    eventually("the run ends without it", PATIENCE, || {
        (logged(&agent.log(), "completed items", "items=[0]") > 0).then_some(())
    });
    std::fs::write(&go, "").expect("a file");
    wait_for_lines(&done, 1);
    assert!(!agent.log().contains("line 1 "), "what comes later is dropped");
}

#[test]
fn a_failed_item_is_retried_with_pauses_and_its_failure_is_reported_once() {
    for way in BOTH {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("out");
        // Fails twice of each three times.
        let text = format!("echo $ELASTICJOB_DUE_TIME >> {0}; [ $(($(wc -l < {0}) % 3)) = 0 ]", out.display());
        let job = Job::new("SCRIPT", 1)
            .prop("script.command.line", script(folder.path(), "run.sh", &text))
            .prop("elasticjob.retry.count", 2)
            .prop("elasticjob.retry.delay.milliseconds", 50);
        let _running = job.start(way, folder.path());
        let lines = wait_for_lines(&out, 6);
        for run in lines[..6].chunks(3) {
            assert!(run.iter().all(|due| *due == run[0]), "{way:?}: three attempts of one firing: {lines:?}");
        }
        assert_ne!(lines[0], lines[3]);
    }
}

#[test]
fn an_http_job_calls_a_server_with_tls_and_keeps_its_connection() {
    for way in BOTH {
        let folder = tempfile::tempdir().expect("a folder");
        let server = Server::web(Speech::Tls);
        let job = Job::new("HTTP", 1)
            .prop("http.uri", format!("https://localhost:{}/ok?x=1", server.port()))
            .prop("http.method", "POST")
            .prop("http.data", "sum=1")
            .prop("elasticjob.http.ca.file", server.authority().display());
        let _running = job.start(way, folder.path());
        let asked = server.wait(3);
        let mut token = 0;
        for request in &asked {
            assert_eq!((&request["method"], &request["path"]), (&"POST".into(), &"/ok?x=1".into()), "{way:?}");
            assert_eq!(request["body"], "sum=1");
            let headers = &request["headers"];
            assert_eq!(headers["content-type"], "application/x-www-form-urlencoded");
            let context: serde_json::Value =
                serde_json::from_str(headers["shardingcontext"].as_str().expect("a header")).expect("JSON");
            assert_eq!((&context["shardingItem"], &context["shardingParameter"]), (&0.into(), &"Zürich".into()));
            let next: i64 = headers["elasticjob-fencing-token"].as_str().expect("a header").parse().expect("a number");
            assert!(next > token);
            token = next;
            assert_eq!(request["connection"], asked[0]["connection"], "one connection for all");
        }
    }
}

#[test]
fn a_certificate_of_an_unknown_issuer_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::web(Speech::Tls);
    let job = Job::new("HTTP", 1)
        .prop("http.uri", format!("https://localhost:{}/ok", server.port()))
        .prop("http.method", "GET");
    let agent = start_agent(folder.path(), &format!("elasticjob:\n  jobs:\n{}", job.yaml()));
    eventually("the failure is told", PATIENCE, || agent.log().contains("UnknownIssuer").then_some(()));
    assert!(server.asked().is_empty());
}

#[test]
fn answers_of_400_and_above_silence_and_gigabytes_are_failures_that_are_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::web(Speech::Plain);
    let mut jobs = String::from("elasticjob:\n  jobs:\n");
    for path in [
        "ok",
        "fail",
        "fail-empty",
        "moved",
        "moved-to-tls",
        "moved-for-ever",
        "moved-elsewhere",
        "forged",
        "silent",
        "gigabyte",
    ] {
        let job = Job::new("HTTP", 1)
            .prop("http.uri", format!("http://localhost:{}/{path}", server.port()))
            .prop("http.method", "GET")
            .prop("http.read.timeout.milliseconds", 700);
        jobs.push_str(&job.yaml().replace("watched", path));
    }
    jobs.push_str(
        "    refused:\n      elasticJobType: HTTP\n      cron: '* * * * * ?'\n      shardingTotalCount: 1\n      props:\n        \
         http.uri: http://user:in-the-address@localhost:1/?token=in-a-query\n        http.method: GET\n",
    );
    let agent = start_agent(folder.path(), &jobs);
    let told = |job: &str, text: &str| {
        agent.log().lines().any(|l| l.contains("ERROR") && l.contains(text) && l.contains(&format!("job=\"{job}\"")))
    };
    for (job, text) in [
        ("fail", "item failed: status 503 Service Unavailable: out of order: xxx"),
        ("fail-empty", "item failed: status 404 Not Found: no body"),
        ("moved-to-tls", "the redirect to https://localhost/ is not followed"),
        ("moved-for-ever", "/moved-for-ever is not followed"),
        ("moved-elsewhere", "/stolen is not followed: a redirect is followed only to the same scheme, host and port"),
        ("forged", "status 500 Internal Server Error: oops\\nINFO a forged line\\u{1b}[2J\\u{0}"),
        ("silent", "timed out"),
        ("refused", "item failed: GET http://localhost:1/: "),
    ] {
        eventually(&format!("{job}: {text}"), PATIENCE, || told(job, text).then_some(()));
    }
    let log = agent.log();
    let line = log.lines().find(|l| l.contains("out of order")).expect("a line");
    assert!(line.len() < 700, "only the start of the body: {line}");
    eventually("the gigabyte was not read", PATIENCE, || {
        server.asked().iter().find(|r| r["path"] == "/gigabyte-sent").map(|record| {
            let sent = record["sent"].as_u64().expect("a number");
            assert!(sent < 1 << 27, "{sent} bytes were taken from the server");
        })
    });
    assert!(agent.log().contains("is longer than 65536 bytes; ignoring the rest"));
    assert!(
        server.asked().iter().all(|request| request["path"] != "/stolen"),
        "the context is for the first host only"
    );
    for secret in ["in-the-address", "in-a-query"] {
        assert!(!agent.log().contains(secret), "{secret}");
    }
    let context = |r: &&serde_json::Value| r["headers"]["shardingcontext"].is_string();
    eventually("the redirect is followed", PATIENCE, || {
        let asked = server.asked();
        let moved = asked.iter().position(|r| r["path"] == "/moved")?;
        asked[moved..].iter().find(|r| r["path"] == "/ok").filter(context).map(|_| ())
    });
    assert!(!log.lines().any(|l| l.contains("ERROR") && l.contains("job=\"ok\"")), "a good answer is no failure");
}

/// The answers for a job that must not start, in a file of their own.
fn faults(job: &Job) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let mut agent = start_agent(folder.path(), &format!("elasticjob:\n  jobs:\n{}", job.yaml()));
    assert_eq!(agent.wait(PATIENCE).code(), Some(2), "{}", agent.log());
    agent.log()
}

#[test]
fn wrong_properties_end_the_start_with_key_value_and_expectation() {
    let script = || Job::new("SCRIPT", 1).prop("script.command.line", "true");
    let http = || Job::new("HTTP", 1).prop("http.uri", "http://localhost/").prop("http.method", "GET");
    let email = || script().handler("EMAIL").prop("email.host", "localhost").prop("email.port", "25");
    for (job, told) in [
        (
            Job::new("SCRIPT", 1).prop("x", "y"),
            vec!["key `props.script.command.line` is missing or empty: expected a command"],
        ),
        (
            Job::new("SCRIPT", 1).prop("script.command.line", "a 'b"),
            vec!["`a 'b` is invalid", "a quote ' is not closed"],
        ),
        (
            script().prop("elasticjob.script.grace.milliseconds", "-1"),
            vec!["`-1` is invalid: expected a whole number from 0 to 10000"],
        ),
        (
            script().prop("elasticjob.run.timeout.milliseconds", "soon"),
            vec!["key `props.elasticjob.run.timeout.milliseconds`: `soon`"],
        ),
        (
            script().prop("elasticjob.retry.count", "1001"),
            vec!["`props.elasticjob.retry.count`: `1001` is invalid: expected a whole number from 0 to 1000"],
        ),
        (
            Job::new("HTTP", 1).prop("http.method", "GET"),
            vec!["key `props.http.uri` is missing or empty: expected the address"],
        ),
        (
            http().prop("http.uri", "ftp://localhost/"),
            vec!["`ftp://localhost/` is invalid: expected an address that begins with http"],
        ),
        (http().prop("http.method", "post"), vec!["`post` is invalid: expected one of GET, POST", "in upper case"]),
        (
            http().prop("http.read.timeout.milliseconds", "0"),
            vec!["`0` is invalid: expected a whole number from 1 to 3600000"],
        ),
        (
            http().prop("elasticjob.http.ca.file", "/none.pem"),
            vec!["`/none.pem` is invalid: expected a file of certificates"],
        ),
        (
            script().handler("MAIL"),
            vec![
                "key `jobErrorHandlerType`: `MAIL` is invalid: expected one of LOG, THROW, IGNORE, EMAIL, WECHAT, DINGTALK",
            ],
        ),
        (
            script().handler("EMAIL"),
            vec![
                "props.email.host",
                "props.email.port",
                "props.email.username",
                "props.email.password",
                "props.email.from",
                "props.email.to",
            ],
        ),
        (
            email()
                .prop("email.username", "")
                .prop("email.password", "")
                .prop("email.from", "a@b.c")
                .prop("email.to", "nobody"),
            vec!["key `props.email.to`: `nobody` is invalid"],
        ),
        (
            email().prop("email.port", "x"),
            vec!["`props.email.port`: `x` is invalid: expected a whole number from 1 to 65535"],
        ),
        (script().handler("WECHAT"), vec!["key `props.wechat.webhook` is missing or empty"]),
        (script().handler("DINGTALK"), vec!["key `props.dingtalk.webhook` is missing or empty"]),
        (
            script()
                .handler("DINGTALK")
                .prop("dingtalk.webhook", "http://localhost/")
                .prop("dingtalk.readTimeoutMilliseconds", "x"),
            vec!["`props.dingtalk.readTimeoutMilliseconds`: `x` is invalid"],
        ),
        (
            script().listener("NOBODY"),
            vec!["key `jobListenerTypes`: `NOBODY` is invalid: expected one of SCRIPT, DISTRIBUTE_ONCE"],
        ),
        (
            script().listener("SCRIPT"),
            vec![
                "key `props.elasticjob.listener.before.command.line` is missing or empty: expected a command, here or in",
            ],
        ),
        (
            script().listener("DISTRIBUTE_ONCE").prop("elasticjob.listener.started.timeout.milliseconds", "0"),
            vec![
                "`props.elasticjob.listener.started.command.line`",
                "`props.elasticjob.listener.started.timeout.milliseconds`: `0` is invalid",
            ],
        ),
    ] {
        // Of two equal keys the last one counts.
        let log = faults(&job);
        for text in told {
            assert!(log.contains(text), "{text}\nis not in\n{log}\nof\n{}", job.yaml());
        }
        let error = job.described().of_type(job.kind).check(&elasticjob::Plugins::default());
        assert!(error.is_err(), "the library refuses the same: {}", job.yaml());
    }
}

#[test]
fn a_change_to_wrong_properties_is_refused_and_the_job_goes_on_as_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let command = script(folder.path(), "run.sh", &format!("echo $ELASTICJOB_JOB_PARAMETER >> {}", out.display()));
    let job = Job::new("SCRIPT", 1).prop("script.command.line", command);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let connection = crate::ways::connect(elasticjob::Plugins::default());
        let described = job.described().job_parameter("before");
        described.of_type("SCRIPT").start(&connection).await.expect("starts");
        let change = |from: &'static str, to: &'static str| {
            let registry = std::sync::Arc::clone(connection.registry());
            async move {
                let path = "/watched/config".to_owned();
                let query = elasticjob_core::query::Query::Node(path.clone());
                let text = registry.read(vec![query]).await.expect("an answer")[0].node().expect("a node").text();
                let elasticjob::registry::Link::Up { session, .. } = *registry.link().borrow() else {
                    panic!("no link")
                };
                let ops = vec![elasticjob_core::tree::Op::set(path, text.replace(from, to))];
                let outcome = registry.commit(session, &ops).await;
                assert!(matches!(outcome, elasticjob_registry::Outcome::Committed { .. }), "{outcome:?}");
            }
        };
        wait_for_lines(&out, 1);
        change("jobParameter: before", "jobParameter: broken").await;
        let used = |word: &'static str| {
            eventually(&format!("`{word}` is used"), PATIENCE, || {
                std::fs::read_to_string(&out).expect("a file").contains(word).then_some(())
            })
        };
        used("broken");
        change("script.command.line: sh", "script.command.line: sh '").await;
        let seen = lines(&out).len();
        let lines = wait_for_lines(&out, seen + 3);
        assert!(lines[seen..].iter().all(|line| line == "broken"), "as it was before the wrong one: {lines:?}");
        change("script.command.line: sh '", "script.command.line: sh").await;
        change("jobParameter: broken", "jobParameter: mended").await;
        used("mended");
    });
}
