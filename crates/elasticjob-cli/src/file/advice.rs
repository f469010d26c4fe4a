//! What a job's configuration says that has another effect than it seems to have.

use elasticjob::Timestamp;
use elasticjob::agent::shell_warnings;
use elasticjob_core::config::JobConfig;

use super::FileJob;

/// Fields of a cron expression; the last one, the year, is optional.
const CRON_FIELDS: usize = 7;

/// The warnings of a job, each with the key whose place it has.
pub(crate) fn of(job: &FileJob, config: &JobConfig) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    found.extend(shell_warnings(config).into_iter().map(|(key, text)| (key.to_owned(), text)));
    found.extend(clock_warning(config).map(|text| ("cron".to_owned(), text)));
    found.extend(ignored_fields(config).map(|text| ("cron".to_owned(), text)));
    found.extend(ignored_days(config).map(|text| ("cron".to_owned(), text)));
    found.extend(body_that_is_not_sent(config).map(|text| ("props.http.data".to_owned(), text)));
    found.extend(spaces_around(&config.name).map(|text| (String::new(), text)));
    for name in config.props.keys() {
        found.extend(reader_that_is_missing(name, job, config).map(|text| (format!("props.{name}"), text)));
    }
    found
}

/// Only some methods send a body.
fn body_that_is_not_sent(config: &JobConfig) -> Option<String> {
    config.props.get("http.data")?;
    let method = config.props.get("http.method")?;
    let sends = ["POST", "PUT", "DELETE"].iter().any(|name| method.eq_ignore_ascii_case(name));
    (!sends).then(|| format!("property `http.data` has no effect with `http.method: {method}`, which sends no body"))
}

/// Such a name looks like another one in every list and command.
fn spaces_around(name: &str) -> Option<String> {
    (name.trim() != name).then(|| "its name starts or ends with a space, which no list shows".to_owned())
}

/// A job that fires more often than hourly rests in the hour that comes twice.
fn clock_warning(config: &JobConfig) -> Option<String> {
    let cron = config.cron.as_ref()?;
    let (begin, end) =
        cron.rests_in_repeated_hour(Timestamp(jiff::Timestamp::now().as_millisecond()), &config.time_zone)?;
    let local = |moment: Timestamp| {
        let moment = jiff::Timestamp::from_millisecond(moment.0).ok()?.to_zoned(config.time_zone.clone());
        Some(moment.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string())
    };
    Some(format!(
        "key `cron`: clocks go back: as in Quartz, the job does not fire from {} until {}; with the property \
         `elasticjob.cron.repeated.hour: twice`, it fires in both hours",
        local(begin)?,
        local(end)?
    ))
}

/// Quartz ignores all fields after the year.
fn ignored_fields(config: &JobConfig) -> Option<String> {
    let beyond: Vec<&str> = config.cron.as_ref()?.text().split_whitespace().skip(CRON_FIELDS).collect();
    (!beyond.is_empty())
        .then(|| format!("key `cron`: as in Quartz, `{}` after the year field is ignored", beyond.join(" ")))
}

/// Quartz uses only the first day of a list that contains `#`.
fn ignored_days(config: &JobConfig) -> Option<String> {
    let days = config.cron.as_ref()?.text().split_whitespace().nth(5)?;
    (days.contains(',') && days.contains('#')).then(|| {
        format!("key `cron`: as in Quartz, a list with `#` fires on only one of its days: of `{days}`, the one with the lowest number (SUN is 1); use one job for each day")
    })
}

/// A property of a job type, an error handler or a listener that this job does not have is without effect.
fn reader_that_is_missing(name: &str, job: &FileJob, config: &JobConfig) -> Option<String> {
    let (_, key, readers) = READERS.iter().find(|(prefix, ..)| name.starts_with(prefix))?;
    let used: Vec<&str> = match *key {
        "elasticJobType" => vec![&job.job_type],
        "jobErrorHandlerType" => vec![&config.error_handler],
        _ => config.listeners.iter().map(String::as_str).collect(),
    };
    let is_read = used.iter().any(|used| readers.iter().any(|reader| used.eq_ignore_ascii_case(reader)));
    let readers = readers.join(" or ");
    (!is_read).then(|| format!("property `{name}` has no effect without `{key}: {readers}`"))
}

/// Who reads the properties with a prefix: the key of the job that names the reader, and its values. The first prefix that fits counts.
const READERS: &[(&str, &str, &[&str])] = &[
    ("script.", "elasticJobType", &["SCRIPT"]),
    ("elasticjob.script.output.", "elasticJobType", &["SCRIPT"]),
    ("http.", "elasticJobType", &["HTTP"]),
    ("email.", "jobErrorHandlerType", &["EMAIL"]),
    ("elasticjob.email.", "jobErrorHandlerType", &["EMAIL"]),
    ("wechat.", "jobErrorHandlerType", &["WECHAT"]),
    ("dingtalk.", "jobErrorHandlerType", &["DINGTALK"]),
    ("elasticjob.error.handler.", "jobErrorHandlerType", &["EMAIL", "WECHAT", "DINGTALK"]),
    ("elasticjob.listener.before.", "jobListenerTypes", &["SCRIPT"]),
    ("elasticjob.listener.after.", "jobListenerTypes", &["SCRIPT"]),
    ("elasticjob.listener.started.", "jobListenerTypes", &["DISTRIBUTE_ONCE"]),
    ("elasticjob.listener.completed.", "jobListenerTypes", &["DISTRIBUTE_ONCE"]),
    ("elasticjob.listener.", "jobListenerTypes", &["SCRIPT", "DISTRIBUTE_ONCE"]),
];
