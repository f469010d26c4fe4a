//! A job's configuration, checked once (Java: `JobConfiguration`; manual: "Job configuration").

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;

use crate::cron::{Cron, ZoneText, parse_zone};
use crate::limits::{CONFIG_WRITE_MAX, ITEMS_MAX, JOB_NAME_CHARS_MAX};
use crate::shard;
use crate::wire::{JobDocument, TracingElement};

/// Looks a zone up by its IANA name, or gives the host's zone for `None`. This crate looks nothing up itself.
pub type ZoneLookup = dyn Fn(Option<&str>) -> Option<TimeZone> + Send + Sync;

/// A checked configuration. Durations are durations, a zone is a zone; names that the manual leaves to plug-ins
/// (strategy, handlers, listeners) are checked by the runtime, which knows the plug-ins.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JobConfig {
    /// The job's name: one path segment, unique in its namespace.
    pub name: String,
    /// When it fires; `None` for a one-off job.
    pub cron: Option<Cron>,
    /// The zone of `cron`; the host's by default.
    pub time_zone: TimeZone,
    /// The text of `timeZone`, empty by default.
    pub time_zone_text: String,
    /// Into how many items it is cut; 1 to [`ITEMS_MAX`], required.
    pub sharding_total_count: u32,
    /// `0=a,1=b`: a parameter per item; none by default.
    pub sharding_item_parameters: ItemParameters,
    /// A parameter for all items; empty by default.
    pub job_parameter: String,
    /// Whether a running item is marked in the registry, which keeps it from running twice; true by default.
    pub monitor_execution: bool,
    /// Whether others run again what a dead instance was running; false by default, needs `monitor_execution`.
    pub failover: bool,
    /// Whether a firing that could not begin in time is caught up once; true by default.
    pub misfire: bool,
    /// The largest difference to the registry's clock; `None` (-1) by default: not checked.
    pub max_time_diff: Option<Duration>,
    /// How often the state of the registry is read again; 10 minutes by default, `None` for 0: never.
    pub reconcile_interval: Option<Duration>,
    /// The sharding strategy's name; `AVG_ALLOCATION` by default.
    pub sharding_strategy: String,
    /// The thread pool: `CPU` (two threads a processor, the default) or `SINGLE_THREAD`, or a custom one's name.
    pub thread_pool: String,
    /// What is done with the failure of an item; `LOG` by default.
    pub error_handler: String,
    /// The listeners' names, in the order in which they are called.
    pub listeners: Vec<String>,
    /// Free text.
    pub description: String,
    /// Properties of the job type, the handlers, and our own extensions (keys under `elasticjob.`).
    pub props: BTreeMap<String, String>,
    /// Whether a start registers its server as disabled; false by default.
    pub disabled: bool,
    /// Whether a start replaces the stored configuration; false by default: the stored one wins.
    pub overwrite: bool,
    /// Free text that Java keeps and does not use.
    pub label: Option<String>,
    /// Whether items stay with their owner after the first assignment; false by default.
    pub static_sharding: bool,
    /// Where Java instances of this job write their event trace, if they do.
    pub tracing: Option<Arc<TracingElement>>,
}

/// One fault of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigError {
    /// The key, as Java names it.
    pub key: &'static str,
    /// Its value.
    pub value: String,
    /// What was expected.
    pub expected: String,
}

impl ConfigError {
    /// Creates a fault. `expected` says what was expected instead of the value.
    pub fn new(key: &'static str, value: impl Into<String>, expected: impl Into<String>) -> ConfigError {
        ConfigError { key, value: value.into(), expected: expected.into() }
    }
}

impl std::error::Error for ConfigError {}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConfigError { key, value, expected } = self;
        match value.as_str() {
            "" => write!(f, "`{key}` is missing or empty: {expected}"),
            _ => write!(f, "`{key}`: `{value}` is invalid: {expected}"),
        }
    }
}

impl JobConfig {
    /// Checks a document.
    ///
    /// # Errors
    ///
    /// Every fault that it has: an empty or impossible name, a count out of range, a wrong cron or zone, malformed item
    /// parameters, and bounds of the numbers.
    pub fn check(document: &JobDocument, zones: &ZoneLookup) -> Result<JobConfig, Vec<ConfigError>> {
        let (config, faults) = JobConfig::best_effort(document, zones);
        if faults.is_empty() { Ok(config) } else { Err(faults) }
    }

    /// Checks a document, and returns a configuration in any case: a default replaces each invalid value. So other checks can go on
    /// and find the rest.
    pub fn best_effort(document: &JobDocument, zones: &ZoneLookup) -> (JobConfig, Vec<ConfigError>) {
        let mut faults = Vec::new();
        check_name(&document.job_name, &mut faults);
        let total = u32::try_from(document.sharding_total_count).ok().filter(|n| (1..=ITEMS_MAX).contains(n));
        if total.is_none() {
            let expected = format!("expected a whole number from 1 to {ITEMS_MAX}");
            faults.push(fault("shardingTotalCount", document.sharding_total_count, expected));
        }
        let cron = match document.cron.as_deref() {
            None | Some("") => None,
            Some(text) => Cron::parse(text).map_err(|e| faults.push(fault("cron", text, e))).ok(),
        };
        let twice = match document.props.get(REPEATED_HOUR).map(String::as_str) {
            None | Some("once") => false,
            Some("twice") => true,
            Some(other) => {
                faults.push(fault("props.elasticjob.cron.repeated.hour", other, "expected once or twice"));
                false
            }
        };
        let cron = cron.map(|cron| cron.twice_in_repeated_hours(twice));
        let zone_text = document.time_zone.clone().unwrap_or_default();
        let time_zone = zone(&zone_text, zones).map_err(|e| faults.push(fault("timeZone", &zone_text, e)));
        let text = document.sharding_item_parameters.as_deref().unwrap_or_default();
        let parameters = ItemParameters::parse(text).map_err(|e| faults.push(fault("shardingItemParameters", text, e)));
        let max_time_diff = u64::try_from(document.max_time_diff_seconds).ok().map(Duration::from_secs);
        let minutes = u64::try_from(document.reconcile_interval_minutes).unwrap_or_default();
        let named = |text: &Option<String>, default: &str| {
            text.clone().filter(|t| !t.is_empty()).unwrap_or_else(|| default.to_owned())
        };
        let config = JobConfig {
            name: document.job_name.clone(),
            cron,
            time_zone: time_zone.unwrap_or(TimeZone::UTC),
            time_zone_text: zone_text,
            sharding_total_count: total.unwrap_or(1),
            sharding_item_parameters: parameters.unwrap_or_default().with_properties(&document.props),
            job_parameter: document.job_parameter.clone().unwrap_or_default(),
            monitor_execution: document.monitor_execution,
            // Java checks this at each use: without marks nothing can be found to take over.
            failover: document.failover && document.monitor_execution,
            misfire: document.misfire,
            max_time_diff,
            reconcile_interval: (minutes > 0).then(|| Duration::from_secs(minutes * 60)),
            sharding_strategy: named(&document.job_sharding_strategy_type, shard::DEFAULT),
            thread_pool: named(&document.thread_pool, "CPU"),
            error_handler: named(&document.job_error_handler_type, "LOG"),
            listeners: document.job_listener_types.clone(),
            description: document.description.clone().unwrap_or_default(),
            props: document.props.clone(),
            disabled: document.disabled,
            overwrite: document.overwrite,
            label: document.label.clone(),
            static_sharding: document.static_sharding,
            tracing: document.tracing().map(Arc::new),
        };
        (config, faults)
    }

    /// Faults that a start refuses although Java takes them, because they do not do what they say.
    pub fn contradictions(document: &JobDocument) -> Vec<ConfigError> {
        let mut faults = Vec::new();
        if document.failover && !document.monitor_execution {
            let expected = "failover requires `monitorExecution: true`, because interrupted runs are found by their `running` nodes";
            faults.push(fault("failover", true, expected));
        }
        if document.max_time_diff_seconds < -1 {
            let expected = "expected seconds, or -1 for no check";
            faults.push(fault("maxTimeDiffSeconds", document.max_time_diff_seconds, expected));
        }
        if document.reconcile_interval_minutes < 0 {
            let expected = "expected minutes, or 0 for never";
            faults.push(fault("reconcileIntervalMinutes", document.reconcile_interval_minutes, expected));
        }
        faults.extend(unstorable(document));
        let parameters = document.sharding_item_parameters.as_deref().unwrap_or_default();
        let total = document.sharding_total_count;
        let (parsed, _) = ItemParameters::read(parameters);
        let list = |items: &[i64]| items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let beyond: Vec<i64> = parsed.items().filter(|i| !(0..total).contains(i)).collect();
        let twice = &parsed.repeated;
        let expected = [
            (!beyond.is_empty())
                .then(|| format!("the items are 0 to {}, so no item {} exists", total - 1, list(&beyond))),
            (!twice.is_empty()).then(|| format!("item {} has two parameters", list(twice))),
        ];
        faults.extend(expected.into_iter().flatten().map(|text| fault("shardingItemParameters", parameters, text)));
        for (key, item) in document.props.keys().filter_map(|key| Some((key, item_of_property(key)?))) {
            if !(0..total).contains(&i64::from(item)) {
                faults.push(fault("props", key, format!("the items are 0 to {}, so no item {item} exists", total - 1)));
            }
        }
        let listeners = &document.job_listener_types;
        if let Some(again) = (1..listeners.len()).find(|at| listeners[..*at].contains(&listeners[*at])) {
            faults.push(fault("jobListenerTypes", &listeners[again], "listed more than once; list each listener once"));
        }
        let bytes = document.to_yaml().len();
        if bytes > CONFIG_WRITE_MAX {
            let texts = [
                ("shardingItemParameters", parameters),
                ("jobParameter", document.job_parameter.as_deref().unwrap_or_default()),
                ("description", document.description.as_deref().unwrap_or_default()),
                ("label", document.label.as_deref().unwrap_or_default()),
            ];
            let (of_items, others): (Vec<_>, Vec<_>) =
                document.props.iter().partition(|(name, _)| item_of_property(name).is_some());
            let bytes_of = |props: &[(&String, &String)]| props.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
            let (of_items, properties) = (bytes_of(&of_items), bytes_of(&others));
            let size = |(key, text): &(&str, &str)| match *key {
                "shardingItemParameters" => text.len() + of_items,
                _ => text.len(),
            };
            let longest = texts.into_iter().max_by_key(size).filter(|text| size(text) > properties);
            let by_size = || document.props.iter().max_by_key(|(_, value)| value.len());
            let (largest, value) = longest
                .or_else(|| by_size().map(|(name, _)| ("props", name.as_str())))
                .unwrap_or(("shardingTotalCount", ""));
            let value = if largest == "shardingItemParameters" && value.is_empty() { "(a mapping)" } else { value };
            let expected = format!(
                "the configuration has {bytes} bytes, more than the limit of {CONFIG_WRITE_MAX}; store large values elsewhere"
            );
            faults.push(fault(largest, value.chars().take(60).collect::<String>(), expected));
        }
        faults
    }
}

/// Texts with a control character cannot be stored: they would be read back as another text.
fn unstorable(document: &JobDocument) -> Vec<ConfigError> {
    let texts = [
        ("shardingItemParameters", &document.sharding_item_parameters),
        ("jobParameter", &document.job_parameter),
        ("description", &document.description),
        ("label", &document.label),
    ];
    let texts = texts.into_iter().filter_map(|(key, text)| Some((key, text.as_deref()?, None)));
    let props =
        document.props.iter().flat_map(|(name, value)| [name, value].map(|text| ("props", text.as_str(), Some(name))));
    let found = texts.chain(props).filter_map(|(key, text, property)| {
        let c = crate::wire::emit::unstorable(text)?;
        let escaped = |text: &str| text.chars().take(60).flat_map(char::escape_default).collect::<String>();
        let of = property.map(|name| format!(" of `{}`", escaped(name))).unwrap_or_default();
        let expected =
            format!("the value{of} contains the control character {}, which cannot be stored", c.escape_default());
        Some(fault(key, escaped(text), expected))
    });
    let mut found: Vec<ConfigError> = found.collect();
    found.dedup();
    found
}

/// Properties with this prefix and a number hold the parameter of that item, where its text cannot stand in
/// `shardingItemParameters`: with `=`, `,` or spaces around it. Java instances do not see them.
pub const ITEM_PARAMETER: &str = "elasticjob.sharding.item.parameter.";

/// What a cron expression does in the hour that comes twice at the end of daylight saving: `once`, the default, fires in the second
/// one as Quartz does; `twice` fires in both.
pub const REPEATED_HOUR: &str = "elasticjob.cron.repeated.hour";

fn item_of_property(key: &str) -> Option<u32> {
    key.strip_prefix(ITEM_PARAMETER)?.parse().ok()
}

fn fault(key: &'static str, value: impl ToString, expected: impl ToString) -> ConfigError {
    ConfigError { key, value: value.to_string(), expected: expected.to_string() }
}

fn check_name(name: &str, faults: &mut Vec<ConfigError>) {
    let expected = if name.is_empty() {
        "expected a name".to_owned()
    } else if name.chars().count() > JOB_NAME_CHARS_MAX {
        format!("expected at most {JOB_NAME_CHARS_MAX} characters")
    } else if name.contains('/') || name == "." || name == ".." || name.chars().any(char::is_control) {
        "expected one path segment: no `/`, no control characters, not `.` or `..`".to_owned()
    } else if name.contains("@-@") {
        "expected no `@-@`, which separates the parts of a task id".to_owned()
    } else if let Some(c) = name.chars().find(|c| !is_registry_char(*c)) {
        format!("expected only characters that ZooKeeper allows in node names; U+{:04X} is not allowed", u32::from(c))
    } else if name == "zookeeper" {
        "this name is reserved by ZooKeeper".to_owned()
    } else {
        return;
    };
    faults.push(fault("jobName", name, expected));
}

/// Returns `true` for a character that ZooKeeper takes in the name of a node (`PathUtils.validatePath`): it counts in units of
/// UTF-16, so that characters beyond U+FFFF are refused.
pub fn is_registry_char(c: char) -> bool {
    !c.is_control() && !matches!(c, '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..='\u{ffff}') && u32::from(c) <= 0xffff
}

fn zone(text: &str, zones: &ZoneLookup) -> Result<TimeZone, String> {
    match parse_zone(text)? {
        ZoneText::Host => {
            zones(None).ok_or_else(|| "cannot determine the time zone of this host; set `timeZone`".to_owned())
        }
        ZoneText::Fixed(zone) => Ok(zone),
        ZoneText::Named(name) => zones(Some(&name)).ok_or_else(|| {
            "expected GMT, GMT+8, GMT+08:00 or an IANA name such as Asia/Shanghai that this host knows".to_owned()
        }),
    }
}

/// The parameters of the items, `0=a,1=b` (Java: `ShardingItemParameters`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ItemParameters {
    text: String,
    parameters: Arc<BTreeMap<i64, String>>,
    /// The items that have two parameters, of which the last one counts.
    repeated: Vec<i64>,
}

impl ItemParameters {
    /// Reads the text; of equal keys the last one counts.
    ///
    /// # Errors
    ///
    /// The pairs that are not `item=text`.
    pub fn parse(text: &str) -> Result<ItemParameters, String> {
        let (parameters, faults) = ItemParameters::read(text);
        if faults.is_empty() { Ok(parameters) } else { Err(faults.join("; ")) }
    }

    /// Reads the valid pairs, and returns the fault of each other one.
    fn read(text: &str) -> (ItemParameters, Vec<String>) {
        let (mut parameters, mut repeated, mut faults) = (BTreeMap::new(), Vec::new(), Vec::new());
        let mut pairs: Vec<&str> = text.split(',').collect();
        while pairs.last().is_some_and(|p| p.is_empty()) {
            pairs.pop();
        }
        for pair in pairs {
            let mut parts: Vec<&str> = pair.trim().split('=').collect();
            while parts.len() > 1 && parts.last().is_some_and(|p| p.is_empty()) {
                parts.pop();
            }
            let [key, value] = parts.as_slice() else {
                faults.push(format!(
                    "pair `{pair}`: expected item=parameter, where the parameter contains no `=` or `,`; for a parameter that does, write a YAML mapping: {{0: \"a=b,c\"}}"
                ));
                continue;
            };
            let Ok(number) = key.trim().parse::<i32>() else {
                faults.push(format!("pair `{pair}`: `{}` is not an item number", key.trim()));
                continue;
            };
            if parameters.insert(number.into(), value.trim().to_owned()).is_some() {
                repeated.push(number.into());
            }
        }
        (ItemParameters { text: text.to_owned(), parameters: Arc::new(parameters), repeated }, faults)
    }

    /// Adds the parameters that stand in properties, see [`ITEM_PARAMETER`].
    fn with_properties(self, props: &BTreeMap<String, String>) -> ItemParameters {
        let from_props =
            props.range(ITEM_PARAMETER.to_owned()..).take_while(|(key, _)| key.starts_with(ITEM_PARAMETER));
        let found: Vec<(i64, String)> =
            from_props.filter_map(|(key, value)| Some((i64::from(item_of_property(key)?), value.clone()))).collect();
        if found.is_empty() {
            return self;
        }
        let mut parameters = (*self.parameters).clone();
        parameters.extend(found);
        ItemParameters { parameters: Arc::new(parameters), ..self }
    }

    /// Splits parameters into the text that Java reads too and the properties for those that it cannot hold.
    pub fn split(parameters: &BTreeMap<u32, String>) -> (String, BTreeMap<String, String>) {
        let fits = |value: &str| !value.is_empty() && !value.contains(['=', ',']) && value.trim() == value;
        let (text, props): (Vec<_>, Vec<_>) = parameters.iter().partition(|(_, value)| fits(value));
        let text = text.iter().map(|(item, value)| format!("{item}={value}")).collect::<Vec<_>>().join(",");
        let props = props.into_iter().map(|(item, value)| (format!("{ITEM_PARAMETER}{item}"), value.clone()));
        (text, props.collect())
    }

    /// The parameter of an item.
    pub fn get(&self, item: u32) -> Option<&str> {
        self.parameters.get(&i64::from(item)).map(String::as_str)
    }

    /// The text that it was read from.
    pub fn text(&self) -> &str {
        &self.text
    }

    fn items(&self) -> impl Iterator<Item = i64> {
        self.parameters.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_cannot_be_stored_are_refused_and_a_configuration_that_is_too_large_names_its_largest_key() {
        let faults = |change: &dyn Fn(&mut JobDocument)| {
            let mut document = JobDocument::new("a", 10_000);
            change(&mut document);
            JobConfig::contradictions(&document).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let text = || Some("a\u{7}b".to_owned());
        assert_eq!(
            faults(&|d| d.job_parameter = text()),
            [
                "`jobParameter`: `a\\u{7}b` is invalid: the value contains the control character \\u{7}, which cannot be stored"
            ]
        );
        let of_props = faults(&|d| drop(d.props.insert("script.command.line".into(), "echo \u{1b}[0m".into())));
        assert!(
            of_props[0].contains("of `script.command.line` contains the control character \\u{1b}"),
            "{of_props:?}"
        );
        for fine in ["tab\t", "line\nline", "\u{85}", "😀 Zürich"] {
            assert!(faults(&|d| d.description = Some(fine.to_owned())).is_empty(), "{fine:?}");
        }
        let large = faults(&|d| {
            d.props.insert("script.command.line".into(), "echo".into());
            for item in 0..10_000 {
                d.props.insert(format!("{ITEM_PARAMETER}{item}"), "=".into());
            }
        });
        assert!(large[0].starts_with("`shardingItemParameters`"), "{large:?}");
    }

    fn zones() -> Box<ZoneLookup> {
        Box::new(|name| match name {
            None => Some(TimeZone::UTC),
            Some(name) => TimeZone::get(name).ok(),
        })
    }

    #[test]
    fn item_parameters_are_read_as_by_java() {
        let path = format!("{}/tests/vectors/sharding_item_parameters.json", env!("CARGO_MANIFEST_DIR"));
        let vectors: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(path).expect("vectors")).expect("JSON");
        for case in vectors.as_array().expect("cases") {
            let parsed = ItemParameters::parse(case["input"].as_str().unwrap_or_default());
            let Some(map) = case["map"].as_object() else {
                assert!(parsed.is_err(), "{case}");
                continue;
            };
            let parsed = parsed.unwrap_or_else(|e| panic!("{case}: {e}"));
            let expected: BTreeMap<i64, String> =
                map.iter().map(|(k, v)| (k.parse().expect("number"), v.as_str().expect("text").to_owned())).collect();
            assert_eq!(*parsed.parameters, expected, "{case}");
        }
    }

    #[test]
    fn every_fault_is_reported_with_its_key_and_value() {
        let mut document = JobDocument::new("a/b", 1);
        document.sharding_total_count = 0;
        document.cron = Some("0 0 0 * * *".into());
        document.time_zone = Some("Mars/Base".into());
        document.sharding_item_parameters = Some("0=A,x=B".into());
        let faults = JobConfig::check(&document, &*zones()).expect_err("refused");
        let told: Vec<String> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "`jobName`: `a/b` is invalid: expected one path segment: no `/`, no control characters, not `.` or `..`",
                "`shardingTotalCount`: `0` is invalid: expected a whole number from 1 to 10000",
                "`cron`: `0 0 0 * * *` is invalid: day-of-month `*` and day-of-week `*`: exactly one of the two must be `?`",
                "`timeZone`: `Mars/Base` is invalid: expected GMT, GMT+8, GMT+08:00 or an IANA name such as Asia/Shanghai that this host knows",
                "`shardingItemParameters`: `0=A,x=B` is invalid: pair `x=B`: `x` is not an item number",
            ]
        );
    }

    #[test]
    fn a_start_refuses_what_cannot_do_what_it_says() {
        let mut document = JobDocument::new("a", 2);
        document.failover = true;
        document.monitor_execution = false;
        document.sharding_item_parameters = Some("2=C".into());
        let keys: Vec<&str> = JobConfig::contradictions(&document).iter().map(|f| f.key).collect();
        assert_eq!(keys, ["failover", "shardingItemParameters"]);
        assert!(!JobConfig::check(&document, &*zones()).expect("Java takes it").failover);
    }

    #[test]
    fn what_a_registry_would_refuse_is_a_fault_of_the_configuration() {
        for (name, expected) in [
            ("night 🌙", "U+1F319 is not allowed"),
            ("a\u{e001}", "U+E001 is not allowed"),
            ("a\u{fffd}", "U+FFFD is not allowed"),
            ("a\u{7f}", "no control characters"),
        ] {
            let faults = JobConfig::check(&JobDocument::new(name, 1), &*zones()).expect_err(name);
            assert!(faults[0].expected.contains(expected), "{name}: {}", faults[0]);
        }
        assert!(JobConfig::check(&JobDocument::new("nächtlich 夜間", 1), &*zones()).is_ok());
        let mut document = JobDocument::new("a", 8_000);
        let parameters: Vec<String> = (0..8_000).map(|item| format!("{item}={}", "x".repeat(130))).collect();
        document.sharding_item_parameters = Some(parameters.join(","));
        let faults = JobConfig::contradictions(&document);
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert_eq!(faults[0].key, "shardingItemParameters");
        assert!(faults[0].expected.contains("bytes, more than the limit of 409600"), "{}", faults[0]);
        assert!(faults[0].value.len() <= 60);
        let mut document = JobDocument::new("a", 1);
        document.description = Some("x".repeat(500_000));
        document.props = [("small", 1), ("large", 400)].map(|(name, size)| (name.into(), "x".repeat(size))).into();
        assert_eq!(JobConfig::contradictions(&document)[0].key, "description");
        document.props.insert("large".into(), "x".repeat(600_000));
        let faults = JobConfig::contradictions(&document);
        assert_eq!((faults[0].key, faults[0].value.as_str()), ("props", "large"));
    }

    #[test]
    fn every_text_can_be_the_parameter_of_an_item() {
        let parameters: BTreeMap<u32, String> =
            [(0, "a=b,c"), (1, "plain"), (2, " spaces "), (3, "")].map(|(item, text)| (item, text.to_owned())).into();
        let (text, props) = ItemParameters::split(&parameters);
        assert_eq!(text, "1=plain");
        let mut document = JobDocument::new("a", 4);
        document.sharding_item_parameters = Some(text);
        document.props = props;
        let config = JobConfig::check(&document, &*zones()).expect("valid");
        for (item, text) in &parameters {
            assert_eq!(config.sharding_item_parameters.get(*item), Some(text.as_str()));
        }
        assert!(JobConfig::contradictions(&document).is_empty());
        document.sharding_total_count = 2;
        let expected: Vec<String> = JobConfig::contradictions(&document).iter().map(ToString::to_string).collect();
        assert!(expected[0].contains("the items are 0 to 1"), "{expected:?}");
        document.props.clear();
        document.sharding_item_parameters = Some("0=a,0=b".into());
        let expected: Vec<String> = JobConfig::contradictions(&document).iter().map(ToString::to_string).collect();
        assert_eq!(expected, ["`shardingItemParameters`: `0=a,0=b` is invalid: item 0 has two parameters"]);
    }

    #[test]
    fn the_defaults_are_the_manual_s() {
        let config = JobConfig::check(&JobDocument::new("a", 1), &*zones()).expect("valid");
        assert!(config.monitor_execution && config.misfire && !config.failover && !config.disabled);
        assert_eq!(config.reconcile_interval, Some(Duration::from_secs(600)));
        assert_eq!(config.max_time_diff, None);
        assert_eq!(
            (config.sharding_strategy.as_str(), config.thread_pool.as_str(), config.error_handler.as_str()),
            ("AVG_ALLOCATION", "CPU", "LOG")
        );
    }
}
