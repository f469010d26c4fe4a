//! Jobs that are a command (Java: `ScriptJobExecutor`): `script.command.line` with the context as JSON last argument.

use std::process::Stdio;
use std::sync::Arc;

use elasticjob_core::config::{ConfigError, JobConfig};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use process_wrap::tokio::{ChildWrapper, CommandWrap, KillOnDrop, ProcessGroup};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use super::{Context, ItemExecutor, JobResult, JobType};

/// The property with the command.
pub const COMMAND_LINE: &str = "script.command.line";
/// The property that asks for Java's literal quotes: `java`. By default quotes group words and are then removed.
pub const QUOTING: &str = "elasticjob.script.quoting";
/// Lines of a run's output that go to the log, and bytes of each.
const LINES_MAX: usize = 1_000;
const LINE_BYTES_MAX: usize = 4_096;

/// The job type `SCRIPT`.
#[derive(Debug, Default)]
pub struct Script;

impl JobType for Script {
    fn name(&self) -> &str {
        "SCRIPT"
    }

    fn check(&self, config: &JobConfig) -> Result<(), Vec<ConfigError>> {
        let fault = |key, value: &str, expected: String| ConfigError { key, value: value.to_owned(), expected };
        let line = config.props.get(COMMAND_LINE).map(String::as_str).unwrap_or_default();
        let quoting = config.props.get(QUOTING).map(String::as_str);
        let mut faults = Vec::new();
        if let Err(reason) = arguments(line, quoting == Some("java")) {
            faults.push(fault("props.script.command.line", line, format!("expected a command: {reason}")));
        }
        if let Some(other) = quoting.filter(|q| *q != "java") {
            let expected = "expected `java`, or no such property".to_owned();
            faults.push(fault("props.elasticjob.script.quoting", other, expected));
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }

    fn executor(&self) -> Arc<dyn ItemExecutor> {
        Arc::new(Script)
    }
}

impl ItemExecutor for Script {
    fn execute(&self, context: Context) -> BoxFuture<'static, JobResult> {
        run(context).boxed()
    }
}

async fn run(context: Context) -> JobResult {
    let mut child = start(&context)?;
    let name: Arc<str> = context.job_name().into();
    let out = child.stdout().take().map(|o| tokio::spawn(log(o, Arc::clone(&name), context.item())));
    let err = child.stderr().take().map(|e| tokio::spawn(log(e, name, context.item())));
    let mut cancelled = context.cancelled();
    let status = tokio::select! {
        status = child.wait() => Some(status?),
        () = cancelled.wait() => None,
    };
    let Some(status) = status else {
        child.start_kill()?;
        child.wait().await?;
        return Err("the script was killed: the process is leaving".into());
    };
    for output in [out, err].into_iter().flatten() {
        // A grandchild may hold the pipe open for ever; the run is over all the same.
        let wait = crate::clock::sleep(std::time::Duration::from_millis(200));
        let abort = output.abort_handle();
        tokio::select! {
            _ = output => {}
            () = wait => abort.abort(),
        }
    }
    match status.code() {
        Some(0) => Ok(()),
        Some(code) => Err(format!("the script ended with exit code {code}").into()),
        None => Err(format!("the script was ended by a signal: {status}").into()),
    }
}

fn start(context: &Context) -> Result<Box<dyn ChildWrapper>, super::JobError> {
    let config = context.config();
    let line = config.props.get(COMMAND_LINE).map(String::as_str).unwrap_or_default();
    let java = config.props.get(QUOTING).is_some_and(|q| q == "java");
    let arguments = arguments(line, java).map_err(|reason| format!("{COMMAND_LINE} `{line}`: {reason}"))?;
    let mut command = CommandWrap::with_new(&arguments[0], |command| {
        command.args(&arguments[1..]).arg(context.json());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("ELASTICJOB_JOB_NAME", context.job_name());
        command.env("ELASTICJOB_TASK_ID", context.task_id());
        command.env("ELASTICJOB_SHARDING_TOTAL_COUNT", context.sharding_total_count().to_string());
        command.env("ELASTICJOB_JOB_PARAMETER", context.job_parameter());
        command.env("ELASTICJOB_SHARDING_ITEM", context.item().to_string());
        command.env("ELASTICJOB_SHARDING_PARAMETER", context.parameter().unwrap_or_default());
        command.env("ELASTICJOB_FENCING_TOKEN", context.fencing_token().to_string());
        command.env("ELASTICJOB_DUE_TIME", context.due().to_string());
        command.env("ELASTICJOB_SOURCE", context.source());
    });
    command.wrap(KillOnDrop).wrap(ProcessGroup::leader());
    command.spawn().map_err(|e| format!("the script `{}` cannot be started: {e}", arguments[0]).into())
}

/// Copies the output to the log, line by line, up to a bound; what is beyond is read and counted.
async fn log(output: impl AsyncRead + Unpin, job: Arc<str>, item: u32) {
    let mut reader = BufReader::new(output);
    let (mut lines, mut line) = (0_usize, Vec::new());
    while let Ok(chunk) = reader.fill_buf().await {
        if chunk.is_empty() {
            break;
        }
        let end = chunk.iter().position(|b| *b == b'\n');
        let taken = end.map_or(chunk.len(), |end| end + 1);
        let room = LINE_BYTES_MAX.saturating_sub(line.len());
        line.extend_from_slice(&chunk[..end.unwrap_or(taken).min(room)]);
        reader.consume(taken);
        if end.is_some() {
            lines += 1;
            if lines <= LINES_MAX {
                tracing::info!(job = &*job, item, "{}", String::from_utf8_lossy(&line));
            }
            line.clear();
        }
    }
    if !line.is_empty() && lines < LINES_MAX {
        tracing::info!(job = &*job, item, "{}", String::from_utf8_lossy(&line));
    }
    if lines > LINES_MAX {
        tracing::warn!(job = &*job, item, "{} more lines of output are not shown", lines - LINES_MAX);
    }
}

/// The words of a command line: spaces divide them, `"` and `'` group. No shell, no variables, no `\`.
///
/// With `java` an argument that holds a space or a quote keeps quotes around it, which reach the program literally
/// (commons-exec 1.3).
///
/// # Errors
///
/// Nothing in it, a quote that is not closed; with `java` also both kinds of quotes in one argument.
pub fn arguments(line: &str, java: bool) -> Result<Vec<String>, String> {
    let line = if java { line.trim() } else { line };
    let mut words: Vec<String> = Vec::new();
    let (mut word, mut in_word, mut quote) = (String::new(), false, None);
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.push(c),
            (None, '"' | '\'') => {
                quote = Some(c);
                in_word = true;
            }
            (None, ' ') => {
                if in_word {
                    words.push(std::mem::take(&mut word));
                }
                in_word = false;
            }
            (None, c) => {
                word.push(c);
                in_word = true;
            }
        }
    }
    if let Some(open) = quote {
        return Err(format!("a quote {open} is not closed"));
    }
    if in_word {
        words.push(word);
    }
    if words.first().is_none_or(String::is_empty) {
        return Err("it is empty".into());
    }
    if java {
        for word in words.iter_mut().skip(1) {
            *word = java_quotes(word)?;
        }
        words[0] = words[0].replace('\\', "/");
    }
    Ok(words)
}

fn java_quotes(word: &str) -> Result<String, String> {
    let mut inner = word.trim();
    while let Some(stripped) = ['"', '\''].iter().find_map(|q| inner.strip_prefix(*q)?.strip_suffix(*q)) {
        inner = stripped;
    }
    match (inner.contains('"'), inner.contains('\'') || inner.contains(' ')) {
        (true, _) if inner.contains('\'') => Err("single and double quotes in one argument".into()),
        (true, _) => Ok(format!("'{inner}'")),
        (false, true) => Ok(format!("\"{inner}\"")),
        (false, false) => Ok(inner.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn java_quoting_equals_java() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../elasticjob-core/tests/vectors/script_command_line.json");
        let vectors: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(path).expect("vectors")).expect("JSON");
        for case in vectors["cases"].as_array().expect("cases") {
            let line = case["command_line"].as_str().unwrap_or_default();
            let found = arguments(line, true);
            let Some(argv) = case["argv"].as_array() else {
                assert!(found.is_err(), "{case}: {found:?}");
                continue;
            };
            let mut expected: Vec<&str> = argv.iter().map(|a| a.as_str().expect("text")).collect();
            expected.pop(); // the context
            assert_eq!(found.unwrap_or_else(|e| panic!("{case}: {e}")), expected, "{case}");
        }
    }

    #[test]
    fn quotes_group_words_and_are_removed() {
        for (line, expected) in [
            ("sh -c 'echo hi'", Some(vec!["sh", "-c", "echo hi"])),
            ("  a  \"b c\"d ''  ", Some(vec!["a", "b cd", ""])),
            ("a \"it's\"", Some(vec!["a", "it's"])),
            ("a 'b", None),
            ("   ", None),
            ("", None),
            ("'' a", None),
        ] {
            assert_eq!(
                arguments(line, false).ok(),
                expected.map(|e| e.iter().map(ToString::to_string).collect()),
                "{line}"
            );
        }
    }
}
