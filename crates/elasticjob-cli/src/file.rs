//! FILE: the YAML of the Java Spring Boot starter, read into jobs. Every fault is told with its line, the key, the value and
//! what was expected.

pub(crate) mod advice;
pub(crate) mod job;
mod reader;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use elasticjob::registry::Error as RegistryError;
use elasticjob::registry::zookeeper::Settings;
use elasticjob::trace::{DataSource, Retention, RunLogs, rdb};
use elasticjob::{Commands, JobDocument, Overwrite, TraceSettings};
use elasticjob_core::wire::yaml::{self, Entry, Position};

use crate::serve::Services;
use reader::{Reader, nearest, squeeze};

/// What a file says.
#[derive(Debug, Default)]
pub(crate) struct AgentFile {
    pub(crate) registry: Option<Settings>,
    pub(crate) registry_at: Position,
    pub(crate) jobs: Vec<FileJob>,
    pub(crate) shutdown_timeout: Duration,
    /// Which commands of stored configurations are executed.
    pub(crate) commands: Commands,
    pub(crate) tracing: Option<TraceSettings>,
    /// Where its data source is.
    pub(crate) tracing_at: Position,
    pub(crate) services: Services,
    pub(crate) warnings: Vec<Fault>,
    /// The variables of the environment from which secrets of the agent were read.
    pub(crate) secret_variables: BTreeSet<String>,
    /// The places of values that could not be read, of which the faults say why.
    pub(crate) unread: HashSet<Position>,
    /// Every fault of the text; jobs have further ones, which are found when they are checked.
    pub(crate) faults: Vec<Fault>,
}

/// One job of a file.
#[derive(Clone, Debug)]
pub(crate) struct FileJob {
    pub(crate) document: JobDocument,
    pub(crate) job_type: String,
    pub(crate) overwrite: Overwrite,
    /// The place of each key, by Java's name; the job itself has the empty key.
    pub(crate) places: BTreeMap<String, Position>,
}

impl FileJob {
    fn default_of(document: JobDocument) -> FileJob {
        FileJob { document, job_type: String::new(), overwrite: Overwrite::Never, places: BTreeMap::new() }
    }

    /// Returns `true` if both jobs are described in the same way.
    pub(crate) fn is_same(&self, other: &FileJob) -> bool {
        (&self.document, &self.job_type, self.overwrite) == (&other.document, &other.job_type, other.overwrite)
    }
}

/// One fault, or warning, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) at: Position,
    pub(crate) text: String,
}

/// The faults of a file that an agent cannot use, and its warnings; in the order of the file.
#[derive(Debug)]
pub(crate) struct FileFaults {
    /// The path of the file, or another name of the text.
    pub(crate) name: String,
    /// Number of jobs in it.
    pub(crate) jobs: usize,
    pub(crate) warnings: Vec<Fault>,
    pub(crate) faults: Vec<Fault>,
}

impl FileFaults {
    /// The lines that a person reads: the warnings, then the faults.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        let warnings = self.warnings.iter().map(|warning| warning.warning_in(&self.name));
        warnings.chain(self.faults.iter().map(|fault| format!("{}:{fault}", self.name)))
    }
}

impl Fault {
    /// The line that reports this as a warning about the file with that name.
    pub(crate) fn warning_in(&self, name: &str) -> String {
        format!("{name}:{}:{}: warning: {}", self.at.line, self.at.column, self.text)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.at.line, self.at.column, self.text)
    }
}

const TOP: &[&str] =
    &["regCenter", "tracing", "dump", "metrics", "jobs", "shutdownTimeoutSeconds", "commands", "enabled"];
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
const TRACING: &[&str] = &[
    "type",
    "dataSource",
    "includeJobNames",
    "excludeJobNames",
    "retentionDays",
    "retentionRows",
    "runLog",
    "runLogBytes",
];
/// Of `dataSource`; what else a Java pool has is ignored.
const DATA_SOURCE: &[&str] = &["url", "jdbcUrl", "username", "password"];
/// Of `dump` and `metrics`.
const SERVICE: &[&str] = &["enabled", "port", "host"];

/// Reads a file, with every fault of its text in [`AgentFile::faults`].
pub(crate) fn read(path: &Path, env: &dyn Fn(&str) -> Option<String>) -> AgentFile {
    match std::fs::read_to_string(path) {
        Ok(text) => {
            let mut file = parse(&text, env);
            if let Some(tracing) = &mut file.tracing {
                tracing.source.url = absolute_sqlite(&tracing.source.url, &crate::agent::folder_of(path));
                let registry = crate::agent::folder_of(path).join(crate::agent::DEFAULT_REGISTRY);
                let registry = file.registry.is_none().then_some(registry);
                if let Some(fault) = sqlite_fault(&tracing.source.url, registry.as_deref()) {
                    file.faults
                        .push(Fault { at: file.tracing_at, text: format!("key `url` in `dataSource`: {fault}") });
                }
            }
            file
        }
        Err(error) => {
            let text = format!("cannot read the file: {error}");
            AgentFile { faults: vec![Fault { at: START, text }], ..AgentFile::default() }
        }
    }
}

const SQLITE: [&str; 3] = ["jdbc:sqlite:", "sqlite://", "sqlite:"];

/// The first bytes of an SQLite file.
const SQLITE_HEAD: &[u8] = b"SQLite format 3\0";

/// Why an SQLite file cannot hold a trace, as far as that can be seen now. A missing file is created, its folder is not.
fn sqlite_fault(url: &str, registry: Option<&Path>) -> Option<String> {
    use std::io::Read;
    let path = SQLITE.iter().find_map(|prefix| url.strip_prefix(prefix))?;
    let path = Path::new(path.split('?').next().filter(|path| !path.starts_with(':'))?);
    if registry == Some(path) {
        return Some(format!("{} is the file of the embedded registry; expected another one", path.display()));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.exists()) {
        return Some(format!("the folder {} does not exist", folder.display()));
    }
    let metadata = std::fs::metadata(path).ok()?;
    if !metadata.is_file() {
        return Some(format!("{} is not a file", path.display()));
    }
    let mut head = Vec::new();
    std::fs::File::open(path).ok()?.take(SQLITE_HEAD.len() as u64).read_to_end(&mut head).ok()?;
    (!head.is_empty() && head != SQLITE_HEAD).then(|| format!("{} is not an SQLite database", path.display()))
}

/// A relative path of SQLite begins at the folder of the file.
fn absolute_sqlite(url: &str, folder: &Path) -> String {
    let prefix = SQLITE.into_iter().find(|prefix| url.starts_with(prefix));
    match prefix {
        Some(prefix) if !url[prefix.len()..].starts_with(['/', ':']) && url.len() > prefix.len() => {
            format!("{prefix}{}", folder.join(&url[prefix.len()..]).display())
        }
        Some(_) | None => url.to_owned(),
    }
}

/// The key of an agent's settings, in any of Spring's spellings.
const ROOT: &str = "elasticjob";

const START: Position = Position { line: 1, column: 1 };

/// Reads a text, with every fault in [`AgentFile::faults`].
pub(crate) fn parse(text: &str, env: &dyn Fn(&str) -> Option<String>) -> AgentFile {
    let mut file = AgentFile { shutdown_timeout: Duration::from_secs(30), ..AgentFile::default() };
    let (mut root, duplicates) = match yaml::parse_with_duplicates(text) {
        Ok(parsed) => parsed,
        Err(error) => {
            file.faults.push(Fault { at: error.at, text: syntax(text, &error) });
            return file;
        }
    };
    let mut reader = Reader::default();
    for duplicate in &duplicates {
        let text = format!("key `{}` is already set in line {}", duplicate.key, duplicate.first.at.line);
        reader.fault(duplicate.at, text);
    }
    reader.substitute("", &mut root, env);
    let top = root.map().and_then(|m| m.iter().find(|e| squeeze(&e.key) == ROOT));
    reader.beside(root.map().unwrap_or_default(), top);
    match top {
        None => reader.fault(START, "key `elasticjob` is missing: expected `elasticjob:` with `jobs:` below it"),
        Some(top) => {
            reader.top(top, &mut file);
            // A job whose name is repeated is checked too, so that one pass reports all faults.
            let places: Vec<Position> = file.jobs.iter().filter_map(|job| job.places.get("jobName").copied()).collect();
            for duplicate in duplicates.iter().filter(|duplicate| places.contains(&duplicate.at)) {
                let job = reader.job(&duplicate.first);
                file.jobs.push(job);
            }
        }
    }
    for (at, key, name) in std::mem::take(&mut reader.named) {
        if !file.jobs.iter().any(|job| job.document.job_name == name) {
            reader.warn(at, format!("key `{key}` names the job `{name}`, which the file does not contain"));
        }
    }
    file.warnings = reader.warnings;
    file.faults = reader.faults;
    file.unread = reader.unread;
    file.secret_variables = reader.secret_variables;
    file
}

/// What is wrong with the syntax, with advice for the most frequent cause: a cron expression that begins with `*` is an alias to
/// YAML.
fn syntax(text: &str, error: &yaml::YamlError) -> String {
    let line = text.lines().nth(error.at.line.saturating_sub(1)).unwrap_or_default();
    let value = line.split_once("cron:").map(|(_, value)| value.trim());
    match value {
        Some(value) if value.starts_with('*') => {
            format!("key `cron`: quote the cron expression, since `*` begins an alias in YAML: cron: \"{value}\"")
        }
        _ if line
            .split("${")
            .next()
            .is_some_and(|before| before.len() < line.len() && before.trim_end().ends_with([':', ',', '['])) =>
        {
            format!(
                "cannot read it as YAML: {}; inside `{{ }}`, put quotes around each value that contains `${{…}}`, because `{{` begins a mapping in YAML",
                error.reason
            )
        }
        _ => format!("cannot read it as YAML: {}", error.reason),
    }
}

impl Reader {
    /// The other keys of the file, which may be those of a Spring application. A key of the agent among them has no effect.
    fn beside(&mut self, entries: &[Entry], top: Option<&Entry>) {
        for entry in entries.iter().filter(|entry| top.is_none_or(|top| top.at != entry.at)) {
            let key = squeeze(&entry.key);
            let known = TOP.iter().find(|known| squeeze(known) == key);
            if key == ROOT {
                let line = top.map_or(1, |top| top.at.line);
                self.fault(
                    entry.at,
                    format!("key `{}`: the settings of the agent are already in line {line}", entry.key),
                );
            } else if let Some(inner) = entry.key.split_once('.').filter(|(root, _)| squeeze(root) == ROOT) {
                self.fault(entry.at, format!("key `{}`: write `elasticjob:` and below it `{}`", entry.key, inner.1));
            } else if let Some(known) = known {
                self.fault(
                    entry.at,
                    format!("key `{}` is beside `elasticjob`: it belongs below it, as `{known}`", entry.key),
                );
            } else if top.is_some() && key.len() < 2 * ROOT.len() && strsim::osa_distance(&key, ROOT) <= 2 {
                self.fault(entry.at, format!("unknown key `{}`: did you mean `elasticjob`?", entry.key));
            }
        }
    }

    fn top(&mut self, top: &Entry, file: &mut AgentFile) {
        let entries = self.settings(top);
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
                Some("commands") => match Commands::of(&self.text(entry)) {
                    Some(commands) => file.commands = commands,
                    None => self.wrong(entry, "`authenticated`, `file` or `registry`"),
                },
                Some("tracing") => self.tracing(entry, file),
                Some("dump") => file.services.dump = self.service(entry, "`dump`"),
                Some("metrics") => file.services.metrics = self.service(entry, "`metrics`"),
                Some(other) => {
                    self.warn(entry.at, format!("key `{other}` is not used by the Rust agent and is ignored"))
                }
                None => {}
            }
        }
        if let (Some(dump), Some(metrics)) = (file.services.dump, file.services.metrics)
            && dump.port() == metrics.port()
            && dump.port() != 0
            && (dump.ip() == metrics.ip() || dump.ip().is_unspecified() || metrics.ip().is_unspecified())
        {
            let text = format!("keys `dump` and `metrics`: both have port {}: expected different ports", dump.port());
            self.fault(top.at, text);
        }
        if !jobs_seen {
            self.fault(top.at, "key `jobs` is missing in `elasticjob`: expected a mapping from job names to jobs");
        }
    }

    fn reg_center(&mut self, entry: &Entry, file: &mut AgentFile) {
        let mut settings = Settings::new("", "");
        let mut places: BTreeMap<&'static str, Position> = BTreeMap::new();
        for setting in self.settings(entry) {
            let millis = |reader: &mut Reader| {
                Duration::from_millis(reader.number(&setting, 0, i64::from(i32::MAX)).unsigned_abs())
            };
            let key = self.key(&setting, REG_CENTER, "`regCenter`");
            places.extend(key.map(|key| (key, setting.value.at)));
            match key {
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
        for error in settings.faults() {
            let place = match &error {
                RegistryError::Setting { key, .. } => places.get(key).copied(),
                _ => None,
            };
            if !place.is_some_and(|place| self.unread.contains(&place)) {
                self.fault(place.unwrap_or(entry.at), format!("key {error}"));
            }
        }
        file.registry = Some(settings);
    }

    fn tracing(&mut self, entry: &Entry, file: &mut AgentFile) {
        let mut settings = TraceSettings::rdb("");
        let (mut source_at, mut days, mut rows) = (None, None, None);
        for setting in self.settings(entry) {
            match self.key(&setting, TRACING, "`tracing`") {
                Some("type") => settings.kind = self.text(&setting),
                Some("dataSource") => {
                    source_at = Some(setting.at);
                    self.data_source(&setting, &mut settings.source);
                }
                Some("includeJobNames") => {
                    settings.include = self.list(&setting);
                    self.name_jobs(&setting, "includeJobNames", &settings.include);
                }
                Some("excludeJobNames") => {
                    settings.exclude = self.list(&setting);
                    self.name_jobs(&setting, "excludeJobNames", &settings.exclude);
                }
                Some("retentionDays") => days = Some(self.number(&setting, 1, 36_500).unsigned_abs()),
                Some("runLog") => match RunLogs::of(&self.text(&setting)) {
                    Some(what) => settings.run_logs = what,
                    None => self.wrong(&setting, "`off`, `failed` or `all`"),
                },
                Some("runLogBytes") => {
                    let bytes = self.number(&setting, 1_024, 1_048_576).unsigned_abs();
                    settings.run_log_bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
                }
                Some("retentionRows") => rows = Some(self.number(&setting, 1, i64::MAX).unsigned_abs()),
                Some(_) | None => {}
            }
        }
        if !settings.include.is_empty() && !settings.exclude.is_empty() {
            self.fault(
                entry.at,
                "keys `includeJobNames` and `excludeJobNames` are both set: expected at most one of them",
            );
        }
        if days.is_some() || rows.is_some() {
            let age = days.map(|days| Duration::from_secs(days * 24 * 3_600));
            settings.retention = Retention::Limited { age, rows };
        }
        if !settings.kind.eq_ignore_ascii_case("RDB") {
            let text = format!("key `type` in `tracing`: `{}` is not known: expected RDB", settings.kind);
            self.fault(entry.at, text);
        }
        if source_at.is_none() {
            self.fault(
                entry.at,
                "key `dataSource` is missing in `tracing`: expected `dataSource:` with `url:` below it",
            );
        } else if let Err(reason) = rdb::check(&settings.source) {
            // The address may have a password: it is not repeated.
            self.fault(source_at.unwrap_or_default(), format!("key `url` in `dataSource`: {reason}"));
        }
        file.tracing_at = source_at.unwrap_or(entry.at);
        file.tracing = Some(settings);
    }

    fn name_jobs(&mut self, setting: &Entry, key: &'static str, names: &[String]) {
        self.named.extend(names.iter().map(|name| (setting.value.at, key, name.clone())));
    }

    fn data_source(&mut self, entry: &Entry, source: &mut DataSource) {
        let mut ignored = Vec::new();
        for setting in self.settings(entry) {
            match squeeze(&setting.key).as_str() {
                "url" | "jdbcurl" => source.url = self.text(&setting),
                "username" => source.username = Some(self.text(&setting)).filter(|t| !t.is_empty()),
                "password" => source.password = Some(self.text(&setting)).filter(|t| !t.is_empty()),
                _ if nearest(&setting.key, DATA_SOURCE).is_some() => {
                    self.key(&setting, DATA_SOURCE, "`dataSource`");
                }
                _ => ignored.push(format!("`{}`", setting.key)),
            }
        }
        if !ignored.is_empty() {
            let text =
                format!("keys {} of `dataSource` are not used by the Rust agent and are ignored", ignored.join(", "));
            self.warn(entry.at, text);
        }
    }

    /// Something that listens: only when a port is given, and on the loopback unless `host` says otherwise.
    fn service(&mut self, entry: &Entry, inside: &str) -> Option<SocketAddr> {
        let (mut enabled, mut port, mut host) = (true, None, IpAddr::from(Ipv4Addr::LOCALHOST));
        for setting in self.settings(entry) {
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
        if enabled && port.is_none() {
            self.warn(entry.at, format!("no `port` in {inside}, so nothing is served"));
        }
        port.filter(|_| enabled).map(|port| SocketAddr::new(host, port))
    }
}

#[cfg(test)]
mod mistakes;
#[cfg(test)]
mod tests;
