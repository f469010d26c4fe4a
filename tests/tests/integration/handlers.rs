//! Error handlers against real servers. Whatever a server does, runs go on.

use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use elasticjob::{ErrorHandler, Failure, Plugins};
use elasticjob_tests::{Server, Speech, eventually};

use crate::ways::{BOTH, Job, connect, start_agent};

const PATIENCE: Duration = Duration::from_secs(30);

/// A job that writes a line each second and fails.
fn failing(folder: &Path) -> Job {
    let (out, script) = (folder.join("out"), folder.join("fail.sh"));
    std::fs::write(&script, format!("echo run >> {}; exit 3", out.display())).expect("a script");
    Job::new("SCRIPT", 1).prop("script.command.line", format!("sh {}", script.display()))
}

fn runs(folder: &Path) -> usize {
    std::fs::read_to_string(folder.join("out")).unwrap_or_default().lines().count()
}

fn mailing(folder: &Path, port: u16) -> Job {
    failing(folder)
        .handler("EMAIL")
        .prop("email.host", "localhost")
        .prop("email.port", port)
        .prop("email.username", "ops")
        .prop("email.from", "jobs@example.com")
        .prop("email.to", "ops@example.com, boss@example.com")
}

#[test]
fn a_failure_is_mailed_by_each_kind_of_connection() {
    for way in BOTH {
        for speech in [Speech::Plain, Speech::StartTls, Speech::Tls] {
            let folder = tempfile::tempdir().expect("a folder");
            let server = Server::smtp(speech);
            let mut job = mailing(folder.path(), server.port())
                .prop("email.password", "secret")
                .prop("email.subject", "Störung")
                .prop("email.cc", "cc@example.com")
                .prop("email.bcc", "bcc@example.com");
            if speech != Speech::Tls {
                job = job.prop("email.useSsl", "false");
            }
            if speech != Speech::Plain {
                job = job.prop("elasticjob.email.ca.file", server.authority().display());
            }
            if speech == Speech::StartTls {
                job = job.prop("elasticjob.email.starttls", "true");
            }
            let _running = job.start(way, folder.path());
            let mail = &server.wait(1)[0];
            assert_eq!(mail["from"], "jobs@example.com", "{way:?} {speech:?}");
            let to = ["ops@example.com", "boss@example.com", "cc@example.com", "bcc@example.com"];
            assert_eq!(mail["to"], serde_json::json!(to));
            assert_eq!((&mail["subject"], &mail["cc"]), (&"Störung".into(), &"cc@example.com".into()));
            assert_eq!(mail["kind"], "multipart/mixed text/html");
            assert_eq!((&mail["user"], &mail["tls"]), (&"ops".into(), &(speech != Speech::Plain).into()));
            let body = mail["body"].as_str().expect("a text");
            let expected =
                "Job 'watched' exception occur in job processing, caused by the script ended with exit code 3";
            assert!(body.contains(expected) && body.contains("In item 0 on "), "{body}");
        }
    }
}

#[test]
fn a_mail_server_that_refuses_or_hangs_is_reported_and_jobs_keep_running() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let refusing = Server::smtp(Speech::Plain);
    let untrusted = Server::smtp(Speech::Tls);
    for (port, ssl, trust, told) in [
        (silent.local_addr().expect("an address").port(), "false", "", "cannot send failure notification by EMAIL"),
        (refusing.port(), "false", "", "cannot send failure notification by EMAIL: permanent error (535)"),
        (untrusted.port(), "true", "", "UnknownIssuer"),
        // With the host trusted, the same server is asked, and refuses the password.
        (untrusted.port(), "true", "localhost", "cannot send failure notification by EMAIL: permanent error (535)"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let job = mailing(folder.path(), port)
            .prop("email.password", "wrong")
            .prop("email.useSsl", ssl)
            .prop("email.ssl.trust", trust);
        let agent = start_agent(folder.path(), &format!("elasticjob:\n  jobs:\n{}", job.yaml()));
        eventually(told, PATIENCE, || agent.log().contains(told).then_some(()));
        let before = runs(folder.path());
        eventually("runs go on", PATIENCE, || (runs(folder.path()) >= before + 2).then_some(()));
        assert!(!agent.log().contains("misfire"), "no run waited for the handler");
    }
    assert!(refusing.asked().is_empty() && untrusted.asked().is_empty());
}

#[test]
fn wechat_and_dingtalk_get_their_messages_signed() {
    for way in BOTH {
        for (handler, speech) in [("WECHAT", Speech::Plain), ("DINGTALK", Speech::Tls)] {
            let folder = tempfile::tempdir().expect("a folder");
            let server = Server::web(speech);
            let (scheme, prefix) = if speech == Speech::Tls { ("https", "dingtalk") } else { ("http", "wechat") };
            let address = format!("{scheme}://localhost:{}/robot?access_token=t", server.port());
            let mut job = failing(folder.path()).handler(handler);
            job = match prefix {
                "wechat" => job.prop("wechat.webhook", address),
                _ => job
                    .prop("dingtalk.webhook", address)
                    .prop("dingtalk.keyword", "Alarm: ")
                    .prop("dingtalk.secret", "SEC000")
                    .prop("elasticjob.http.ca.file", server.authority().display()),
            };
            let _running = job.start(way, folder.path());
            let message = &server.wait(1)[0];
            let path = message["path"].as_str().expect("a path");
            assert_eq!(message["method"], "POST", "{way:?} {handler}");
            assert!(message["headers"]["content-type"].as_str().expect("a type").starts_with("application/json"));
            let body: serde_json::Value =
                serde_json::from_str(message["body"].as_str().expect("a body")).expect("JSON");
            assert_eq!(body["msgtype"], "text");
            let content = body["text"]["content"].as_str().expect("a text");
            let start = if prefix == "wechat" { "Job 'watched' exception" } else { "Alarm: Job 'watched' exception" };
            assert!(content.starts_with(start), "{content}");
            // What the signature is, the vectors hold; here it is that it is sent, with the moment that it is about.
            let signed = path.contains("/robot?access_token=t&timestamp=") && path.contains("&sign=");
            assert_eq!(signed, prefix == "dingtalk", "{path}");
        }
    }
}

#[test]
fn messages_that_a_service_refuses_are_reported_without_the_token_of_its_address() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::web(Speech::Plain);
    let mut jobs = String::from("elasticjob:\n  jobs:\n");
    for (name, address) in [
        ("refused", format!("http://localhost:{}/robot-refuses?access_token=SECRET", server.port())),
        ("broken", format!("http://localhost:{}/fail?access_token=SECRET", server.port())),
        ("away", "http://localhost:1/robot?access_token=SECRET".to_owned()),
        ("silent", format!("http://localhost:{}/silent?access_token=SECRET", server.port())),
    ] {
        let job = failing(folder.path())
            .handler("DINGTALK")
            .prop("dingtalk.webhook", address)
            .prop("dingtalk.readTimeoutMilliseconds", 500);
        jobs.push_str(&job.yaml().replace("watched", name));
    }
    let agent = start_agent(folder.path(), &jobs);
    for (job, text) in [
        ("refused", "the service rejected the message: 310000 sign not match"),
        ("broken", "status 503 Service Unavailable"),
        ("away", "refused"),
        ("silent", "timed out"),
    ] {
        eventually(&format!("{job}: {text}"), PATIENCE, || {
            let lines = agent.log();
            let told = |l: &str| l.contains("cannot send failure notification by DINGTALK") && l.contains(text);
            lines.lines().any(|l| told(l) && l.contains(&format!("job=\"{job}\""))).then_some(())
        });
    }
    assert!(!agent.log().contains("SECRET"), "{}", agent.log());
}

#[test]
fn a_job_that_fails_each_second_sends_few_messages_and_says_how_many_it_held_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::web(Speech::Plain);
    let job = failing(folder.path())
        .handler("WECHAT")
        .prop("wechat.webhook", format!("http://localhost:{}/robot", server.port()))
        .prop("elasticjob.error.handler.interval.seconds", 3);
    let _agent = start_agent(folder.path(), &format!("elasticjob:\n  jobs:\n{}", job.yaml()));
    let messages = server.wait(3);
    let runs = runs(folder.path());
    let content = |index: usize| messages[index]["body"].as_str().expect("a body").to_owned();
    assert!(!content(0).contains("held back"), "the first goes at once: {}", content(0));
    let mut told = 3;
    for index in [1, 2] {
        let number = content(index)
            .split(" earlier failures were not reported separately")
            .next()
            .map(|text| text.rsplit("\\n").next().and_then(|n| n.parse::<usize>().ok()));
        told += number.flatten().unwrap_or_else(|| panic!("{}", content(index)));
    }
    assert!(told > 3 && told <= runs, "every failure is counted in one message: {told} of {runs}");
}

#[test]
fn log_throw_and_ignore_do_what_they_say() {
    for (handler, lines) in [("LOG", true), ("THROW", true), ("IGNORE", false)] {
        let folder = tempfile::tempdir().expect("a folder");
        let job = failing(folder.path()).handler(handler);
        let agent = start_agent(folder.path(), &format!("elasticjob:\n  jobs:\n{}", job.yaml()));
        eventually("three runs", PATIENCE, || (runs(folder.path()) >= 3).then_some(()));
        let told = agent.log().contains("ERROR item failed: the script ended with exit code 3 job=\"watched\" item=0");
        assert_eq!(told, lines, "{handler}: {}", agent.log());
    }
}

/// Hangs on the first failure, panics on the second, and writes the others down.
struct Rude(Arc<Mutex<Vec<String>>>);

impl ErrorHandler for Rude {
    fn name(&self) -> &str {
        "RUDE"
    }

    async fn handle(&self, failure: &Failure) {
        let seen = {
            let mut seen = self.0.lock().expect("a lock");
            seen.push(failure.to_string());
            seen.len()
        };
        match seen {
            1 => std::future::pending().await,
            2 => panic!("a rude handler"),
            _ => {}
        }
    }
}

#[test]
fn a_handler_of_ones_own_may_hang_and_panic_and_runs_go_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let job = failing(folder.path()).handler("rude");
    let started = runtime.block_on(async {
        let connection = connect(Plugins::default().error_handler(Rude(Arc::clone(&seen))));
        job.described().of_type("SCRIPT").start(&connection).await
    });
    let _handle = started.expect("starts");
    eventually("five failures were handled", PATIENCE, || (seen.lock().expect("a lock").len() >= 5).then_some(()));
    assert!(seen.lock().expect("a lock").iter().all(|text| text == "the script ended with exit code 3"));
    runtime.shutdown_background();
}
