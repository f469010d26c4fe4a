//! Jobs that are a command (Java: `ScriptJobExecutor`; manual: "Script Job"): `script.command.line` with the context as JSON
//! last argument, and the same in the environment.

mod advice;
mod command_line;
mod inherited;
mod output;
mod process;

use std::time::Duration;

use elasticjob_core::config::{ConfigError, JobConfig};

pub use advice::{missing_programs, shell_warnings};
pub use inherited::withhold;
pub(crate) use process::Script as Command;

use crate::contract::{Context, JobResult, JobType, Props};

/// What the parameters of an item may have in one argument of a program: the limit of Linux is 131,072 bytes with all around them.
const ARGUMENT_MAX: usize = 120_000;
/// The same without the context, for the words of the command (`MAX_ARG_STRLEN` without the byte at the end).
const WORD_MAX: usize = 131_071;
/// The command.
const COMMAND_LINE: &str = "props.script.command.line";
/// `java` asks for Java's literal quotes. By default quotes group words and are then removed.
const QUOTING: &str = "props.elasticjob.script.quoting";
/// Between SIGTERM and SIGKILL, when a script is stopped.
const GRACE: &str = "props.elasticjob.script.grace.milliseconds";
/// Variables of the environment that a script inherits although they have secrets.
const ENVIRONMENT: &str = "props.elasticjob.script.environment";
/// Lines of a run's output that go to the log.
const LINES: &str = "props.elasticjob.script.output.lines";

/// What is left of a script is killed within this after its grace.
const KILL_MAX: Duration = Duration::from_secs(1);

/// The job type `SCRIPT`.
///
/// | property | default | |
/// | --- | --- | --- |
/// | `script.command.line` | required | the command; no shell, no variables |
/// | `elasticjob.script.quoting` | none | `java`: words with spaces reach the program in literal quotes, as with Java |
/// | `elasticjob.script.grace.milliseconds` | 2000 | between SIGTERM and SIGKILL; at most 10000 |
/// | `elasticjob.script.environment` | none | names of variables that the script inherits although the agent read secrets from them |
/// | `elasticjob.script.output.lines` | 1000 | lines of each output stream of an item that go to the log: the first ones and the last 100, each of 4096 bytes at most |
#[derive(Debug, Default)]
pub(crate) struct Script;

/// The properties of a script, checked.
struct Settings {
    words: Vec<String>,
    grace: Duration,
    lines: u64,
    passed: Vec<String>,
}

impl Settings {
    fn read(props: &mut Props<'_>, command: &'static str) -> Settings {
        let java = match props.given(QUOTING) {
            None => false,
            Some("java") => true,
            Some(_) => {
                props.fault(QUOTING, "expected `java`; remove the property to use the default quoting".into());
                false
            }
        };
        let line = props.given(command).unwrap_or_default();
        let words = command_line::words(line, java);
        if let Err(reason) = &words {
            props.fault(command, format!("expected a command: {reason}"));
        }
        let grace = props.millis(GRACE, 0..=10_000, 2_000);
        let passed = props.given(ENVIRONMENT).unwrap_or_default().split(',').map(|name| name.trim().to_owned());
        let passed: Vec<String> = passed.filter(|name| !name.is_empty()).collect();
        if passed.iter().any(|name| name.contains(['=', '\0'])) {
            props.fault(ENVIRONMENT, "expected names of environment variables, separated by commas".into());
        }
        let lines = props.number(LINES, 0..=1_000_000, 1_000);
        Settings { words: words.unwrap_or_default(), grace, lines, passed }
    }
}

/// A command of a property that is not the job's own, as that of a listener.
pub(crate) fn command(props: &mut Props<'_>, key: &'static str) -> Command {
    let settings = Settings::read(props, key);
    Command {
        words: settings.words,
        last_argument: String::new(),
        environment: Vec::new(),
        grace: settings.grace,
        lines: settings.lines,
        passed: settings.passed,
        log: None,
    }
}

impl JobType for Script {
    fn name(&self) -> &str {
        "SCRIPT"
    }

    fn check(&self, config: &JobConfig) -> Vec<ConfigError> {
        let mut props = Props::of(config);
        let settings = Settings::read(&mut props, COMMAND_LINE);
        let mut faults = props.into_faults();
        if let Some(word) = settings.words.iter().find(|word| word.len() > WORD_MAX) {
            let expected = format!("a word of the command has {} bytes; Linux accepts at most {WORD_MAX}", word.len());
            faults.push(ConfigError::new(COMMAND_LINE, word.chars().take(60).collect::<String>(), expected));
        }
        // The last argument has both.
        let longest = (0..config.sharding_total_count).filter_map(|item| config.sharding_item_parameters.get(item));
        let longest = longest.max_by_key(|parameter| parameter.len()).unwrap_or_default();
        if config.job_parameter.len() + longest.len() > ARGUMENT_MAX {
            let of_job = config.job_parameter.len() > longest.len();
            let (key, value) = if of_job {
                ("jobParameter", config.job_parameter.as_str())
            } else {
                ("shardingItemParameters", longest)
            };
            let expected = format!(
                "jobParameter and the item's parameter are passed to the script in one argument, which can have at most {ARGUMENT_MAX} bytes; put large values into a file"
            );
            faults.push(ConfigError::new(key, value.chars().take(60).collect::<String>(), expected));
        }
        faults
    }

    fn grace(&self, config: &JobConfig) -> Duration {
        Settings::read(&mut Props::of(config), COMMAND_LINE).grace + KILL_MAX
    }

    async fn execute(&self, context: Context) -> JobResult {
        let mut props = Props::of(context.config());
        let mut command = command(&mut props, COMMAND_LINE);
        props.ok()?;
        command.last_argument = context.json();
        command.environment = environment(&context);
        command.log = context.run_log().cloned();
        command.run(context.job_name(), Some(context.item()), context.cancelled()).await
    }
}

fn environment(context: &Context) -> Vec<(&'static str, String)> {
    vec![
        ("ELASTICJOB_JOB_NAME", context.job_name().to_owned()),
        ("ELASTICJOB_TASK_ID", context.task_id().to_owned()),
        ("ELASTICJOB_SHARDING_TOTAL_COUNT", context.sharding_total_count().to_string()),
        ("ELASTICJOB_JOB_PARAMETER", context.job_parameter().to_owned()),
        ("ELASTICJOB_SHARDING_ITEM", context.item().to_string()),
        ("ELASTICJOB_SHARDING_PARAMETER", context.parameter().unwrap_or_default().to_owned()),
        ("ELASTICJOB_FENCING_TOKEN", context.fencing_token().to_string()),
        ("ELASTICJOB_DUE_TIME", context.due().to_string()),
        ("ELASTICJOB_SOURCE", context.source().word().to_owned()),
    ]
}
