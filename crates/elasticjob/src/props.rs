//! Properties of a job, read within their bounds. Each fault names the key, the value and what was expected.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use elasticjob_core::config::{ConfigError, JobConfig};

/// Reads properties; keys are written with `props.` before them, as faults name them.
#[derive(Debug)]
pub(crate) struct Props<'a> {
    props: &'a BTreeMap<String, String>,
    faults: Vec<ConfigError>,
}

impl<'a> Props<'a> {
    pub(crate) fn of(config: &'a JobConfig) -> Props<'a> {
        Props { props: &config.props, faults: Vec::new() }
    }

    /// The value as it stands, when the key is there.
    pub(crate) fn given(&self, key: &'static str) -> Option<&'a str> {
        let key = key.strip_prefix("props.").unwrap_or(key);
        self.props.get(key).map(String::as_str)
    }

    /// The value, when there is one that is not empty.
    pub(crate) fn text(&self, key: &'static str) -> Option<&'a str> {
        self.given(key).filter(|text| !text.is_empty())
    }

    /// A value that must be there and not empty.
    pub(crate) fn required(&mut self, key: &'static str, what: &str) -> &'a str {
        let value = self.text(key).unwrap_or_default();
        if value.is_empty() {
            self.fault(key, format!("expected {what}"));
        }
        value
    }

    /// A whole number within bounds.
    pub(crate) fn number(&mut self, key: &'static str, bounds: RangeInclusive<u64>, default: u64) -> u64 {
        let Some(text) = self.given(key) else { return default };
        match text.trim().parse() {
            Ok(number) if bounds.contains(&number) => number,
            _ => {
                self.fault(key, format!("expected a whole number from {} to {}", bounds.start(), bounds.end()));
                default
            }
        }
    }

    /// Milliseconds within bounds.
    pub(crate) fn millis(&mut self, key: &'static str, bounds: RangeInclusive<u64>, default: u64) -> Duration {
        Duration::from_millis(self.number(key, bounds, default))
    }

    /// `true` or `false` in any case.
    pub(crate) fn flag(&mut self, key: &'static str, default: bool) -> bool {
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

    /// Notes a fault of the value of that key.
    pub(crate) fn fault(&mut self, key: &'static str, expected: String) {
        let value = self.given(key).unwrap_or_default().to_owned();
        self.faults.push(ConfigError { key, value, expected });
    }

    /// What was found.
    pub(crate) fn faults(self) -> Vec<ConfigError> {
        self.faults
    }
}
