//! The stored configuration, `/<job>/config` (Java: `JobConfigurationPOJO` through SnakeYAML).

use std::collections::BTreeMap;

use super::yaml::{self, Entry, Position, Typed, Yaml};
use super::{TracingElement, emit};
use crate::limits::CONFIG_BYTES_MAX;

/// A stored configuration with Java's names, units and quirks: not yet checked.
///
/// What it does not know it keeps: keys of other versions, and the elements of `jobExtraConfigurations` with their Java
/// tags, as the text they had.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each field is the key of that name; the meaning is documented at `JobConfig`")]
pub struct JobDocument {
    pub job_name: String,
    pub cron: Option<String>,
    pub time_zone: Option<String>,
    pub sharding_total_count: i64,
    pub sharding_item_parameters: Option<String>,
    pub job_parameter: Option<String>,
    pub monitor_execution: bool,
    pub failover: bool,
    pub misfire: bool,
    pub max_time_diff_seconds: i64,
    pub reconcile_interval_minutes: i64,
    pub job_sharding_strategy_type: Option<String>,
    pub thread_pool: Option<String>,
    /// The key of `thread_pool`: it has one name up to Java 3.0.4 and another from 3.0.5 on.
    pub thread_pool_key: ThreadPoolKey,
    pub job_error_handler_type: Option<String>,
    pub job_listener_types: Vec<String>,
    pub description: Option<String>,
    pub props: BTreeMap<String, String>,
    pub disabled: bool,
    pub overwrite: bool,
    pub label: Option<String>,
    pub static_sharding: bool,
    /// Keys that we do not know, each with its whole text, line end included.
    pub kept: Vec<(String, String)>,
}

/// The two names of the thread-pool key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ThreadPoolKey {
    /// `jobExecutorServiceHandlerType`, up to 3.0.4: the newest version on Maven Central, so what is written by default.
    #[default]
    ServiceHandler,
    /// `jobExecutorThreadPoolSizeProviderType`, from 3.0.5 on.
    SizeProvider,
}

/// Why a document was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// The text is no YAML.
    #[error("{0}")]
    Yaml(#[from] yaml::YamlError),
    /// The text is too large to be a configuration.
    #[error("{bytes} bytes, expected at most {CONFIG_BYTES_MAX}")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// The document is not a mapping.
    #[error("the configuration is not a YAML mapping; expected lines of the form `key: value`")]
    NotAMapping,
    /// A key has a value of the wrong shape.
    #[error("line {}, key `{key}`: `{value}` is not {expected}", at.line)]
    Key {
        /// The key.
        key: String,
        /// Its value, shortened.
        value: String,
        /// What it should be.
        expected: &'static str,
        /// Its place.
        at: Position,
    },
}

impl JobDocument {
    /// The keys that both Java's instances and ours read. Java fails at any other one.
    pub const KEYS: [&'static str; 23] = [
        "cron",
        "description",
        "disabled",
        "failover",
        "jobErrorHandlerType",
        "jobExecutorServiceHandlerType",
        "jobExecutorThreadPoolSizeProviderType",
        "jobExtraConfigurations",
        "jobListenerTypes",
        "jobName",
        "jobParameter",
        "jobShardingStrategyType",
        "label",
        "maxTimeDiffSeconds",
        "misfire",
        "monitorExecution",
        "overwrite",
        "props",
        "reconcileIntervalMinutes",
        "shardingItemParameters",
        "shardingTotalCount",
        "staticSharding",
        "timeZone",
    ];

    /// What Java's builder would make of only these two: the manual's defaults.
    pub fn new(job_name: &str, sharding_total_count: u32) -> JobDocument {
        JobDocument {
            job_name: job_name.to_owned(),
            sharding_total_count: sharding_total_count.into(),
            sharding_item_parameters: Some(String::new()),
            job_parameter: Some(String::new()),
            description: Some(String::new()),
            monitor_execution: true,
            misfire: true,
            reconcile_interval_minutes: 10,
            ..JobDocument::absent()
        }
    }

    /// Returns `true` if `thread_pool` has the key of Java 3.0.5, `jobExecutorThreadPoolSizeProviderType`.
    pub fn has_thread_pool_size_provider(&self) -> bool {
        self.thread_pool_key == ThreadPoolKey::SizeProvider
    }

    /// Every key missing, as Java reads it.
    fn absent() -> JobDocument {
        JobDocument {
            job_name: String::new(),
            cron: None,
            time_zone: None,
            sharding_total_count: 0,
            sharding_item_parameters: None,
            job_parameter: None,
            monitor_execution: false,
            failover: false,
            misfire: false,
            max_time_diff_seconds: -1,
            reconcile_interval_minutes: 0,
            job_sharding_strategy_type: None,
            thread_pool: None,
            thread_pool_key: ThreadPoolKey::default(),
            job_error_handler_type: None,
            job_listener_types: Vec::new(),
            description: None,
            props: BTreeMap::new(),
            disabled: false,
            overwrite: false,
            label: None,
            static_sharding: false,
            kept: Vec::new(),
        }
    }

    /// Reads a stored document as Java does, but keeps unknown keys instead of failing.
    ///
    /// # Errors
    ///
    /// No YAML, too large, not a mapping, or a key whose value Java would refuse too.
    pub fn parse(data: &[u8]) -> Result<JobDocument, DocumentError> {
        if data.len() > CONFIG_BYTES_MAX {
            return Err(DocumentError::TooLarge { bytes: data.len() });
        }
        let text = String::from_utf8_lossy(data);
        let root = yaml::parse(&text)?;
        let entries = root.map().ok_or(DocumentError::NotAMapping)?;
        let mut document = JobDocument::absent();
        for (index, entry) in entries.iter().enumerate() {
            let end = entries.get(index + 1).map_or(text.len(), |next| next.start);
            document.take(entry, &text, entry.start..end)?;
        }
        Ok(document)
    }

    fn take(&mut self, entry: &Entry, text: &str, bytes: std::ops::Range<usize>) -> Result<(), DocumentError> {
        match entry.key.as_str() {
            "jobName" => self.job_name = string(entry)?.unwrap_or_default(),
            "cron" => self.cron = string(entry)?,
            "timeZone" => self.time_zone = string(entry)?,
            "shardingTotalCount" => self.sharding_total_count = int(entry)?,
            "shardingItemParameters" => self.sharding_item_parameters = string(entry)?,
            "jobParameter" => self.job_parameter = string(entry)?,
            "monitorExecution" => self.monitor_execution = bool(entry)?,
            "failover" => self.failover = bool(entry)?,
            "misfire" => self.misfire = bool(entry)?,
            "maxTimeDiffSeconds" => self.max_time_diff_seconds = int(entry)?,
            "reconcileIntervalMinutes" => self.reconcile_interval_minutes = int(entry)?,
            "jobShardingStrategyType" => self.job_sharding_strategy_type = string(entry)?,
            "jobExecutorServiceHandlerType" => {
                self.thread_pool = string(entry)?;
                self.thread_pool_key = ThreadPoolKey::ServiceHandler;
            }
            "jobExecutorThreadPoolSizeProviderType" => {
                self.thread_pool = string(entry)?;
                self.thread_pool_key = ThreadPoolKey::SizeProvider;
            }
            "jobErrorHandlerType" => self.job_error_handler_type = string(entry)?,
            "jobListenerTypes" => self.job_listener_types = strings(entry)?,
            "description" => self.description = string(entry)?,
            "props" => self.props = props(entry)?,
            "disabled" => self.disabled = bool(entry)?,
            "overwrite" => self.overwrite = bool(entry)?,
            "label" => self.label = string(entry)?,
            "staticSharding" => self.static_sharding = bool(entry)?,
            _ => self.keep(entry, &text[bytes]),
        }
        Ok(())
    }

    /// The first tracing element of `jobExtraConfigurations`.
    pub fn tracing(&self) -> Option<TracingElement> {
        let (_, text) = self.kept.iter().rfind(|(key, _)| key == "jobExtraConfigurations")?;
        TracingElement::parse(text)
    }

    /// Keeps an unknown key. Only of a document in block style, a key a line, can the text be taken as it is; of any other
    /// form the value is formatted again.
    fn keep(&mut self, entry: &Entry, text: &str) {
        if entry.key == "jobExtraConfigurations" && entry.value.list().is_some_and(<[Yaml]>::is_empty) {
            return;
        }
        let block = entry.at.column == 1 && text.starts_with(&entry.key);
        let text = if block { format!("{}\n", text.trim_end()) } else { flow_entry(entry) };
        self.kept.push((entry.key.clone(), text));
    }

    /// The text as Java writes it: keys in alphabetical order, what is null or empty left out.
    pub fn to_yaml(&self) -> String {
        let mut parts: Vec<(&str, String)> = Vec::new();
        let mut texts: Vec<(&str, &Option<String>)> = vec![
            ("cron", &self.cron),
            ("description", &self.description),
            ("jobErrorHandlerType", &self.job_error_handler_type),
            ("jobParameter", &self.job_parameter),
            ("jobShardingStrategyType", &self.job_sharding_strategy_type),
            ("label", &self.label),
            ("shardingItemParameters", &self.sharding_item_parameters),
            ("timeZone", &self.time_zone),
        ];
        texts.push((self.thread_pool_key.name(), &self.thread_pool));
        for (key, text) in texts {
            if let Some(text) = text {
                let mut out = String::new();
                emit::text_entry(&mut out, 0, key, text);
                parts.push((key, out));
            }
        }
        let mut name = String::new();
        emit::text_entry(&mut name, 0, "jobName", &self.job_name);
        parts.push(("jobName", name));
        for (key, value) in [
            ("disabled", self.disabled),
            ("failover", self.failover),
            ("misfire", self.misfire),
            ("monitorExecution", self.monitor_execution),
            ("overwrite", self.overwrite),
            ("staticSharding", self.static_sharding),
        ] {
            parts.push((key, format!("{key}: {value}\n")));
        }
        for (key, value) in [
            ("maxTimeDiffSeconds", self.max_time_diff_seconds),
            ("reconcileIntervalMinutes", self.reconcile_interval_minutes),
            ("shardingTotalCount", self.sharding_total_count),
        ] {
            parts.push((key, format!("{key}: {value}\n")));
        }
        if !self.job_listener_types.is_empty() {
            let mut out = "jobListenerTypes:\n".to_owned();
            self.job_listener_types.iter().for_each(|listener| emit::list_member(&mut out, listener));
            parts.push(("jobListenerTypes", out));
        }
        if !self.props.is_empty() {
            let mut out = "props:\n".to_owned();
            self.props.iter().for_each(|(key, value)| emit::text_entry(&mut out, 2, key, value));
            parts.push(("props", out));
        }
        parts.extend(self.kept.iter().map(|(key, text)| (key.as_str(), text.clone())));
        parts.sort_by(|a, b| a.0.cmp(b.0));
        parts.into_iter().map(|(_, text)| text).collect()
    }
}

impl ThreadPoolKey {
    /// The key's text.
    pub fn name(self) -> &'static str {
        match self {
            ThreadPoolKey::ServiceHandler => "jobExecutorServiceHandlerType",
            ThreadPoolKey::SizeProvider => "jobExecutorThreadPoolSizeProviderType",
        }
    }
}

fn wrong(entry: &Entry, expected: &'static str) -> DocumentError {
    DocumentError::Key { key: entry.key.clone(), value: entry.value.shown(), expected, at: entry.at }
}

fn string(entry: &Entry) -> Result<Option<String>, DocumentError> {
    let text = entry.value.raw().ok_or_else(|| wrong(entry, "a string"))?;
    Ok((!entry.value.is_null()).then(|| text.to_owned()))
}

fn bool(entry: &Entry) -> Result<bool, DocumentError> {
    match yaml::resolve(entry.value.raw().unwrap_or_default()) {
        Typed::Bool(value) => Ok(value),
        Typed::Null | Typed::Int(_) | Typed::Float(_) | Typed::Date | Typed::Text => Err(wrong(entry, "true or false")),
    }
}

fn int(entry: &Entry) -> Result<i64, DocumentError> {
    match yaml::resolve(entry.value.raw().unwrap_or_default()) {
        Typed::Int(value) if i32::try_from(value).is_ok() => Ok(value),
        _ => Err(wrong(entry, "a whole number from -2147483648 to 2147483647")),
    }
}

fn strings(entry: &Entry) -> Result<Vec<String>, DocumentError> {
    let items = entry.value.list().ok_or_else(|| wrong(entry, "a list of strings"))?;
    items.iter().map(|i| i.raw().map(str::to_owned).ok_or_else(|| wrong(entry, "a list of texts"))).collect()
}

fn props(entry: &Entry) -> Result<BTreeMap<String, String>, DocumentError> {
    let expected = "a mapping from strings to strings";
    let entries = entry.value.map().ok_or_else(|| wrong(entry, expected))?;
    let mut props = BTreeMap::new();
    for prop in entries {
        if yaml::resolve(&prop.key) != Typed::Text {
            return Err(wrong(entry, expected));
        }
        let value = yaml::property_text(&prop.value).ok_or_else(|| wrong(prop, "a string"))?;
        props.insert(prop.key.clone(), value);
    }
    Ok(props)
}

fn flow_entry(entry: &Entry) -> String {
    let mut out = format!("{}: ", entry.key);
    flow(&mut out, &entry.value);
    out.push('\n');
    out
}

fn flow(out: &mut String, yaml: &Yaml) {
    if let Some(tag) = &yaml.tag {
        match tag.strip_prefix("tag:yaml.org,2002:") {
            Some(suffix) => out.push_str(&format!("!!{suffix} ")),
            None => out.push_str(&format!("!<{tag}> ")),
        }
    }
    match &yaml.value {
        yaml::Value::Scalar { text, plain: true } => out.push_str(text),
        yaml::Value::Scalar { text, plain: false } => out.push_str(&format!("'{}'", text.replace('\'', "''"))),
        yaml::Value::List(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                flow(out, item);
            }
            out.push(']');
        }
        yaml::Value::Map(entries) => {
            out.push('{');
            for (index, entry) in entries.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                out.push_str(&format!("'{}': ", entry.key.replace('\'', "''")));
                flow(out, &entry.value);
            }
            out.push('}');
        }
    }
}

#[cfg(test)]
mod tests;
