//! The properties of a job, read within their bounds. Each fault names the key, the value and the expectation.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use elasticjob_core::config::{ConfigError, JobConfig};

/// The names of all properties that job types, error handlers, listeners and this implementation read, as data. A property
/// with one of their prefixes and another name is a typing error.
pub const PROPERTIES: &[&str] = &[
    "dingtalk.connectTimeoutMilliseconds",
    "dingtalk.keyword",
    "dingtalk.readTimeoutMilliseconds",
    "dingtalk.secret",
    "dingtalk.webhook",
    "elasticjob.cron.repeated.hour",
    "elasticjob.email.ca.file",
    "elasticjob.email.plain.password",
    "elasticjob.email.starttls",
    "elasticjob.error.handler.interval.seconds",
    "elasticjob.http.ca.file",
    "elasticjob.listener.after.command.line",
    "elasticjob.listener.before.command.line",
    "elasticjob.listener.command.timeout.milliseconds",
    "elasticjob.listener.completed.command.line",
    "elasticjob.listener.completed.timeout.milliseconds",
    "elasticjob.listener.started.command.line",
    "elasticjob.listener.started.timeout.milliseconds",
    "elasticjob.retry.count",
    "elasticjob.retry.delay.max.milliseconds",
    "elasticjob.retry.delay.milliseconds",
    "elasticjob.run.log",
    "elasticjob.run.log.bytes",
    "elasticjob.run.timeout.milliseconds",
    "elasticjob.script.environment",
    "elasticjob.script.grace.milliseconds",
    "elasticjob.script.output.lines",
    "elasticjob.script.quoting",
    "email.bcc",
    "email.cc",
    "email.debug",
    "email.from",
    "email.host",
    "email.password",
    "email.port",
    "email.ssl.trust",
    "email.subject",
    "email.to",
    "email.useSsl",
    "email.username",
    "http.connect.timeout.milliseconds",
    "http.content.type",
    "http.data",
    "http.method",
    "http.read.timeout.milliseconds",
    "http.uri",
    "script.command.line",
    "streaming.process",
    "wechat.connectTimeoutMilliseconds",
    "wechat.readTimeoutMilliseconds",
    "wechat.webhook",
];

/// Reads the properties of a job and collects their faults, for job types, error handlers and listeners.
///
/// A getter returns the default if the key is absent or its value is invalid; the fault is then in [`Props::into_faults`]. Call
/// the same getters in `check` and at run time, so that both apply the same bounds.
///
/// # Examples
///
/// ```
/// use elasticjob::{JobConfig, Props};
///
/// fn check(config: &JobConfig) -> Vec<elasticjob::ConfigError> {
///     let mut props = Props::of(config);
///     props.required("report.address", "the address that receives the report");
///     props.number("report.pages", 1..=100, 10);
///     props.into_faults()
/// }
/// ```
#[derive(Debug)]
pub struct Props<'a> {
    props: &'a BTreeMap<String, String>,
    faults: Vec<ConfigError>,
}

impl<'a> Props<'a> {
    /// Reads the properties of a configuration.
    pub fn of(config: &'a JobConfig) -> Props<'a> {
        Props { props: &config.props, faults: Vec::new() }
    }

    /// Returns the value of a key, if the key is present. The built-in keys are written with `props.` before them, as faults
    /// name them.
    pub fn given(&self, key: &'static str) -> Option<&'a str> {
        let key = key.strip_prefix("props.").unwrap_or(key);
        self.props.get(key).map(String::as_str)
    }

    /// Returns the value of a key, if it is present and not empty.
    pub fn text(&self, key: &'static str) -> Option<&'a str> {
        self.given(key).filter(|text| !text.is_empty())
    }

    /// Returns a value that must be present and not empty. `what` completes the sentence "expected …" of the fault.
    pub fn required(&mut self, key: &'static str, what: &str) -> &'a str {
        let value = self.text(key).unwrap_or_default();
        if value.is_empty() {
            self.fault(key, format!("expected {what}"));
        }
        value
    }

    /// Returns a whole number within bounds.
    pub fn number(&mut self, key: &'static str, bounds: RangeInclusive<u64>, default: u64) -> u64 {
        let Some(text) = self.given(key) else { return default };
        match text.trim().parse() {
            Ok(number) if bounds.contains(&number) => number,
            _ => {
                self.fault(key, format!("expected a whole number from {} to {}", bounds.start(), bounds.end()));
                default
            }
        }
    }

    /// Returns a duration that the property states in milliseconds, within bounds in milliseconds.
    pub fn millis(&mut self, key: &'static str, bounds: RangeInclusive<u64>, default: u64) -> Duration {
        Duration::from_millis(self.number(key, bounds, default))
    }

    /// Returns `true` or `false`. The property may be in upper or lower case.
    pub fn flag(&mut self, key: &'static str, default: bool) -> bool {
        match self.given(key).map(str::to_ascii_lowercase).as_deref() {
            None => default,
            Some("true") => true,
            Some("false") => false,
            Some(_) => {
                self.fault(key, "expected true or false".into());
                default
            }
        }
    }

    /// Adds a fault of the value of a key. `expected` says what was expected instead.
    pub fn fault(&mut self, key: &'static str, expected: String) {
        let value = self.given(key).unwrap_or_default().to_owned();
        self.faults.push(ConfigError::new(key, value, expected));
    }

    /// Returns the first fault as an error, for code that runs an item.
    ///
    /// # Errors
    ///
    /// A value that was read is invalid.
    pub fn ok(&self) -> Result<(), super::JobError> {
        self.faults.first().map_or(Ok(()), |fault| Err(fault.to_string().into()))
    }

    /// Returns all faults.
    pub fn into_faults(self) -> Vec<ConfigError> {
        self.faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each name that the code reads is in the list, and each name in the list is read.
    #[test]
    fn the_list_of_properties_is_that_of_the_code() {
        let mut read = std::collections::BTreeSet::new();
        let mut folders = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
        folders.push(concat!(env!("CARGO_MANIFEST_DIR"), "/../elasticjob-core/src").into());
        while let Some(folder) = folders.pop() {
            for path in std::fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path()) {
                match path.is_dir() {
                    true => folders.push(path),
                    false => {
                        let text = std::fs::read_to_string(&path).expect("a file");
                        let names = text.split("\"props.").skip(1).filter_map(|rest| rest.split('"').next());
                        read.extend(names.filter(|name| name.contains('.') && !name.contains('{')).map(str::to_owned));
                    }
                }
            }
        }
        for test_only in ["a", "b"] {
            read.remove(test_only);
        }
        let read: Vec<&str> = read.iter().map(String::as_str).collect();
        assert_eq!(read, PROPERTIES);
    }
}
