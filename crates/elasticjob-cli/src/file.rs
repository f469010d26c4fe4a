//! FILE: the YAML of the Java Spring Boot starter, read into jobs. Every fault is told with its line, the key, the value and
//! what was expected.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use elasticjob::registry::zookeeper::Settings;
use elasticjob::trace::{DataSource, Retention, rdb};
use elasticjob::{JobDocument, TraceSettings};
use elasticjob_core::wire::yaml::{self, Entry, Position, Typed, Yaml};

use crate::serve::Services;

/// What a file says.
#[derive(Debug, Default)]
pub(crate) struct AgentFile {
    pub(crate) registry: Option<Settings>,
    pub(crate) registry_at: Position,
    pub(crate) jobs: Vec<FileJob>,
    pub(crate) shutdown_timeout: Duration,
    pub(crate) tracing: Option<TraceSettings>,
    pub(crate) services: Services,
    pub(crate) warnings: Vec<Fault>,
}

/// One job of a file.
#[derive(Clone, Debug)]
pub(crate) struct FileJob {
    pub(crate) document: JobDocument,
    pub(crate) job_type: String,
    /// Where each key stands, by Java's name; the job itself under the empty text.
    pub(crate) places: BTreeMap<String, Position>,
}

/// One fault, or warning, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) at: Position,
    pub(crate) text: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.at.line, self.at.column, self.text)
    }
}

const TOP: &[&str] = &["regCenter", "tracing", "dump", "metrics", "jobs", "shutdownTimeoutSeconds", "enabled"];
const REG_CENTER: &[&str] = &[
    "serverLists",
    "namespace",
    "baseSleepTimeMilliseconds",
    "maxSleepTimeMilliseconds",
    "maxRetries",
    "sessionTimeoutMilliseconds",
    "connectionTimeoutMilliseconds",
    "digest",
];
const JOB: &[&str] = &[
    "elasticJobClass",
    "elasticJobType",
    "cron",
    "timeZone",
    "jobBootstrapBeanName",
    "shardingTotalCount",
    "shardingItemParameters",
    "jobParameter",
    "monitorExecution",
    "failover",
    "misfire",
    "maxTimeDiffSeconds",
    "reconcileIntervalMinutes",
    "jobShardingStrategyType",
    "jobExecutorThreadPoolSizeProviderType",
    "jobExecutorServiceHandlerType",
    "jobErrorHandlerType",
    "jobListenerTypes",
    "description",
    "props",
    "disabled",
    "overwrite",
    "label",
    "staticSharding",
];
const TRACING: &[&str] =
    &["type", "dataSource", "includeJobNames", "excludeJobNames", "retentionDays", "retentionRows"];
/// Of `dump` and `metrics`.
const SERVICE: &[&str] = &["enabled", "port", "host"];

/// Reads a file.
///
/// # Errors
///
/// Every fault.
pub(crate) fn read(path: &Path, env: &dyn Fn(&str) -> Option<String>) -> Result<AgentFile, Vec<Fault>> {
    let fault = |text: String| vec![Fault { at: Position { line: 1, column: 1 }, text }];
    let text = std::fs::read_to_string(path).map_err(|e| fault(format!("the file cannot be read: {e}")))?;
    parse(&text, env)
}

/// Reads a text.
///
/// # Errors
///
/// Every fault.
pub(crate) fn parse(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<AgentFile, Vec<Fault>> {
    let mut root = yaml::parse(text).map_err(|e| vec![Fault { at: e.at, text: format!("not YAML: {}", e.reason) }])?;
    let mut reader = Reader::default();
    reader.substitute(&mut root, env);
    let start = Position { line: 1, column: 1 };
    let top = root.map().and_then(|m| m.iter().find(|e| squeeze(&e.key) == "elasticjob"));
    let mut file = AgentFile { shutdown_timeout: Duration::from_secs(30), ..AgentFile::default() };
    match top {
        None => reader.fault(start, "key `elasticjob` is missing: expected `elasticjob:` with `jobs:` below it"),
        Some(top) => reader.top(top, &mut file),
    }
    file.warnings = reader.warnings;
    if reader.faults.is_empty() {
        Ok(file)
    } else {
        reader.faults.sort_by_key(|f| (f.at.line, f.at.column));
        Err(reader.faults)
    }
}

/// Spring's relaxed spelling: case, `-` and `_` do not matter.
fn squeeze(key: &str) -> String {
    key.chars().filter(|c| !matches!(c, '-' | '_')).flat_map(char::to_lowercase).collect()
}

#[derive(Default)]
struct Reader {
    faults: Vec<Fault>,
    warnings: Vec<Fault>,
}

impl Reader {
    fn fault(&mut self, at: Position, text: impl Into<String>) {
        self.faults.push(Fault { at, text: text.into() });
    }

    fn warn(&mut self, at: Position, text: impl Into<String>) {
        self.warnings.push(Fault { at, text: text.into() });
    }

    /// Puts `${NAME}` and `${NAME:default}` in.
    fn substitute(&mut self, yaml: &mut Yaml, env: &dyn Fn(&str) -> Option<String>) {
        let at = yaml.at;
        match &mut yaml.value {
            yaml::Value::Scalar { text, .. } => {
                if text.contains("${") {
                    match replace_variables(text, env) {
                        Ok(replaced) => *text = replaced,
                        Err(reason) => self.fault(at, reason),
                    }
                }
            }
            yaml::Value::List(items) => items.iter_mut().for_each(|i| self.substitute(i, env)),
            yaml::Value::Map(entries) => entries.iter_mut().for_each(|e| self.substitute(&mut e.value, env)),
        }
    }

    /// The known key that an entry means; else a fault that names the nearest one.
    fn key(&mut self, entry: &Entry, known: &[&'static str], inside: &str) -> Option<&'static str> {
        let squeezed = squeeze(&entry.key);
        let found = known.iter().find(|k| squeeze(k) == squeezed).copied();
        if found.is_none() {
            let nearest =
                known.iter().min_by_key(|k| strsim::levenshtein(&squeeze(k), &squeezed)).copied().unwrap_or_default();
            self.fault(entry.at, format!("unknown key `{}` in {inside}: did you mean `{nearest}`?", entry.key));
        }
        found
    }

    fn map<'a>(&mut self, entry: &'a Entry) -> &'a [Entry] {
        match entry.value.map() {
            Some(entries) => entries,
            None if entry.value.is_null() => &[],
            None => {
                let text = format!("key `{}`: `{}` is not a mapping", entry.key, entry.value.shown());
                self.fault(entry.value.at, text);
                &[]
            }
        }
    }

    fn wrong(&mut self, entry: &Entry, expected: &str) {
        let text = format!("key `{}`: `{}` is wrong: expected {expected}", entry.key, entry.value.shown());
        self.fault(entry.value.at, text);
    }

    fn text(&mut self, entry: &Entry) -> String {
        match yaml::property_text(&entry.value) {
            Some(text) => text,
            None if entry.value.is_null() => String::new(),
            None => {
                self.wrong(entry, "a text");
                String::new()
            }
        }
    }

    fn flag(&mut self, entry: &Entry) -> bool {
        match yaml::resolve(entry.value.raw().unwrap_or_default()) {
            Typed::Bool(flag) => flag,
            Typed::Int(number @ (0 | 1)) => number == 1,
            Typed::Null | Typed::Int(_) | Typed::Float(_) | Typed::Date | Typed::Text => {
                self.wrong(entry, "true or false");
                false
            }
        }
    }

    fn number(&mut self, entry: &Entry, low: i64, high: i64) -> i64 {
        match yaml::resolve(entry.value.raw().unwrap_or_default()) {
            Typed::Int(number) if (low..=high).contains(&number) => number,
            _ => {
                self.wrong(entry, &format!("a whole number from {low} to {high}"));
                low.max(1)
            }
        }
    }

    fn list(&mut self, entry: &Entry) -> Vec<String> {
        match entry.value.list() {
            Some(items) => items
                .iter()
                .filter_map(|item| {
                    let text = yaml::property_text(item);
                    if text.is_none() {
                        self.wrong(entry, "a list of texts");
                    }
                    text
                })
                .collect(),
            None => {
                let text = self.text(entry);
                text.split(',').map(str::trim).filter(|t| !t.is_empty()).map(str::to_owned).collect()
            }
        }
    }

    fn top(&mut self, top: &Entry, file: &mut AgentFile) {
        let entries = self.map(top).to_vec();
        let mut jobs_seen = false;
        for entry in &entries {
            match self.key(entry, TOP, "`elasticjob`") {
                Some("regCenter") => self.reg_center(entry, file),
                Some("jobs") => {
                    jobs_seen = true;
                    self.jobs(entry, file);
                }
                Some("shutdownTimeoutSeconds") => {
                    let seconds = self.number(entry, 0, 86_400);
                    file.shutdown_timeout = Duration::from_secs(seconds.unsigned_abs());
                }
                Some("tracing") => self.tracing(entry, file),
                Some("dump") => file.services.dump = self.service(entry, "`dump`"),
                Some("metrics") => file.services.metrics = self.service(entry, "`metrics`"),
                Some(other) => self.warn(entry.at, format!("key `{other}` has no meaning here and is ignored")),
                None => {}
            }
        }
        if !jobs_seen {
            self.fault(top.at, "key `jobs` is missing in `elasticjob`: expected jobs by their names");
        }
    }

    fn reg_center(&mut self, entry: &Entry, file: &mut AgentFile) {
        let mut settings = Settings::new("", "");
        for setting in self.map(entry).to_vec() {
            let millis = |reader: &mut Reader| {
                Duration::from_millis(reader.number(&setting, 0, i64::from(i32::MAX)).unsigned_abs())
            };
            match self.key(&setting, REG_CENTER, "`regCenter`") {
                Some("serverLists") => settings.servers = self.list(&setting).join(","),
                Some("namespace") => settings.namespace = self.text(&setting),
                Some("baseSleepTimeMilliseconds") => settings.base_sleep = millis(self),
                Some("maxSleepTimeMilliseconds") => settings.max_sleep = millis(self),
                Some("maxRetries") => {
                    settings.max_retries = u32::try_from(self.number(&setting, 0, 1_000_000)).unwrap_or_default();
                }
                Some("sessionTimeoutMilliseconds") => settings.session_timeout = millis(self),
                Some("connectionTimeoutMilliseconds") => settings.connection_timeout = millis(self),
                Some("digest") => settings.digest = Some(self.text(&setting)).filter(|d| !d.is_empty()),
                Some(_) | None => {}
            }
        }
        file.registry_at = entry.at;
        if let Err(error) = settings.check() {
            self.fault(entry.at, format!("key {error}"));
        }
        file.registry = Some(settings);
    }

    fn tracing(&mut self, entry: &Entry, file: &mut AgentFile) {
        let mut settings = TraceSettings::rdb("");
        let (mut source_at, mut days, mut rows) = (None, None, None);
        for setting in self.map(entry).to_vec() {
            match self.key(&setting, TRACING, "`tracing`") {
                Some("type") => settings.kind = self.text(&setting),
                Some("dataSource") => {
                    source_at = Some(setting.at);
                    self.data_source(&setting, &mut settings.source);
                }
                Some("includeJobNames") => settings.include = self.list(&setting),
                Some("excludeJobNames") => settings.exclude = self.list(&setting),
                Some("retentionDays") => days = Some(self.number(&setting, 1, 36_500).unsigned_abs()),
                Some("retentionRows") => rows = Some(self.number(&setting, 1, i64::MAX).unsigned_abs()),
                Some(_) | None => {}
            }
        }
        if !settings.include.is_empty() && !settings.exclude.is_empty() {
            self.fault(entry.at, "keys `includeJobNames` and `excludeJobNames`: expected one of the two");
        }
        if days.is_some() || rows.is_some() {
            let age = days.map(|days| Duration::from_secs(days * 24 * 3_600));
            settings.retention = Retention::Limited { age, rows };
        }
        if !settings.kind.eq_ignore_ascii_case("RDB") {
            let text = format!("key `type` in `tracing`: `{}` is not known: expected RDB", settings.kind);
            self.fault(entry.at, text);
        } else if source_at.is_none() {
            self.fault(
                entry.at,
                "key `dataSource` is missing in `tracing`: expected `dataSource:` with `url:` below it",
            );
        } else if let Err(reason) = rdb::check(&settings.source) {
            // The address may have a password: it is not repeated.
            self.fault(source_at.unwrap_or_default(), format!("key `url` in `dataSource`: {reason}"));
        }
        file.tracing = Some(settings);
    }

    fn data_source(&mut self, entry: &Entry, source: &mut DataSource) {
        let mut ignored = Vec::new();
        for setting in self.map(entry).to_vec() {
            match squeeze(&setting.key).as_str() {
                "url" | "jdbcurl" => source.url = self.text(&setting),
                "username" => source.username = Some(self.text(&setting)).filter(|t| !t.is_empty()),
                "password" => source.password = Some(self.text(&setting)).filter(|t| !t.is_empty()),
                _ => ignored.push(format!("`{}`", setting.key)),
            }
        }
        if !ignored.is_empty() {
            let text = format!("keys {} of `dataSource` have no meaning here and are ignored", ignored.join(", "));
            self.warn(entry.at, text);
        }
    }

    /// Something that listens: only when a port is given, and on the loopback unless `host` says otherwise.
    fn service(&mut self, entry: &Entry, inside: &str) -> Option<SocketAddr> {
        let (mut enabled, mut port, mut host) = (true, None, IpAddr::from(Ipv4Addr::LOCALHOST));
        for setting in self.map(entry).to_vec() {
            match self.key(&setting, SERVICE, inside) {
                Some("port") => port = u16::try_from(self.number(&setting, 0, 65_535)).ok(),
                Some("enabled") => enabled = self.flag(&setting),
                Some("host") => match self.text(&setting).parse() {
                    Ok(ip) => host = ip,
                    Err(_) => self.wrong(&setting, "an IP address of this host; 0.0.0.0 for all"),
                },
                Some(_) | None => {}
            }
        }
        port.filter(|_| enabled).map(|port| SocketAddr::new(host, port))
    }

    fn jobs(&mut self, entry: &Entry, file: &mut AgentFile) {
        let jobs = self.map(entry).to_vec();
        if jobs.is_empty() {
            self.fault(entry.at, "key `jobs`: expected at least one job");
        }
        for job in &jobs {
            if let Some(job) = self.job(job) {
                file.jobs.push(job);
            }
        }
    }

    fn job(&mut self, entry: &Entry) -> Option<FileJob> {
        let name = entry.key.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(&entry.key);
        let mut document = JobDocument::new(name, 0);
        let mut job = FileJob { document: document.clone(), job_type: String::new(), places: BTreeMap::new() };
        job.places.insert(String::new(), entry.at);
        job.places.insert("jobName".into(), entry.at);
        let inside = format!("job `{name}`");
        for setting in self.map(entry).to_vec() {
            let Some(key) = self.key(&setting, JOB, &inside) else { continue };
            job.places.insert(key.to_owned(), setting.value.at);
            match key {
                "elasticJobType" => job.job_type = self.text(&setting),
                "props" => self.props(&setting, &mut document, &mut job.places),
                "elasticJobClass" => self.fault(
                    setting.at,
                    format!(
                        "key `{}` in {inside}: a class is code: run it with the library, or use `elasticJobType`",
                        setting.key
                    ),
                ),
                _ => self.job_setting(key, &setting, &mut document),
            }
        }
        if !job.places.contains_key("elasticJobType") && !job.places.contains_key("elasticJobClass") {
            self.fault(
                entry.at,
                format!("key `elasticJobType` is missing in {inside}: expected a type such as SCRIPT"),
            );
        }
        if !job.places.contains_key("shardingTotalCount") {
            self.fault(
                entry.at,
                format!("key `shardingTotalCount` is missing in {inside}: expected a whole number from 1"),
            );
            return None;
        }
        job.document = document;
        Some(job)
    }

    fn job_setting(&mut self, key: &str, setting: &Entry, document: &mut JobDocument) {
        let max = i64::from(i32::MAX);
        match key {
            "cron" => document.cron = Some(self.text(setting)).filter(|c| !c.is_empty()),
            "timeZone" => document.time_zone = Some(self.text(setting)).filter(|z| !z.is_empty()),
            "shardingTotalCount" => {
                document.sharding_total_count = self.number(setting, 1, elasticjob_core::limits::ITEMS_MAX.into());
            }
            "shardingItemParameters" => document.sharding_item_parameters = Some(self.text(setting)),
            "jobParameter" => document.job_parameter = Some(self.text(setting)),
            "monitorExecution" => document.monitor_execution = self.flag(setting),
            "failover" => document.failover = self.flag(setting),
            "misfire" => document.misfire = self.flag(setting),
            "maxTimeDiffSeconds" => document.max_time_diff_seconds = self.number(setting, -1, max),
            "reconcileIntervalMinutes" => document.reconcile_interval_minutes = self.number(setting, 0, max),
            "jobShardingStrategyType" => document.job_sharding_strategy_type = self.name(setting),
            "jobExecutorThreadPoolSizeProviderType" | "jobExecutorServiceHandlerType" => {
                // The default is not written: the two generations of Java call the key by different names.
                document.thread_pool = self.name(setting).filter(|n| !n.eq_ignore_ascii_case("CPU"));
            }
            "jobErrorHandlerType" => document.job_error_handler_type = self.name(setting),
            "jobListenerTypes" => document.job_listener_types = self.list(setting),
            "description" => document.description = Some(self.text(setting)),
            "disabled" => document.disabled = self.flag(setting),
            "overwrite" => document.overwrite = self.flag(setting),
            "label" => document.label = Some(self.text(setting)),
            "staticSharding" => document.static_sharding = self.flag(setting),
            _ => {
                let text = format!("key `{}` has no meaning here and is ignored", setting.key);
                self.warn(setting.at, text);
            }
        }
    }

    /// The name of a plug-in; an empty one is the default.
    fn name(&mut self, setting: &Entry) -> Option<String> {
        Some(self.text(setting)).filter(|n| !n.is_empty())
    }

    fn props(&mut self, entry: &Entry, document: &mut JobDocument, places: &mut BTreeMap<String, Position>) {
        for prop in self.map(entry) {
            flatten(&prop.key, &prop.value, &mut |key, text, at| {
                places.insert(format!("props.{key}"), at);
                document.props.insert(key, text);
            });
        }
    }
}

/// Nested mappings are joined with dots, members of lists numbered; null is an empty text.
fn flatten(key: &str, value: &Yaml, put: &mut dyn FnMut(String, String, Position)) {
    match &value.value {
        yaml::Value::Scalar { .. } => {
            put(key.to_owned(), yaml::property_text(value).unwrap_or_default(), value.at);
        }
        yaml::Value::List(items) => {
            items.iter().enumerate().for_each(|(index, item)| flatten(&format!("{key}.{index}"), item, put));
        }
        yaml::Value::Map(entries) => {
            entries.iter().for_each(|e| flatten(&format!("{key}.{}", e.key), &e.value, put));
        }
    }
}

fn replace_variables(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        out.push_str(&rest[..start]);
        let after = &rest[start + 2..];
        let end = after.find('}').ok_or_else(|| format!("`{text}`: `${{` without `}}`"))?;
        let (name, default) = match after[..end].split_once(':') {
            Some((name, default)) => (name, Some(default)),
            None => (&after[..end], None),
        };
        let value = env(name).or_else(|| default.map(str::to_owned));
        let value = value.ok_or_else(|| {
            format!("`{text}`: the environment has no variable `{name}`; set it, or write ${{{name}:default}}")
        })?;
        out.push_str(&value);
        rest = &after[end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests;
