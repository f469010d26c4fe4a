//! Jobs of a file, and their properties.

use std::collections::BTreeMap;

use elasticjob::{JobDocument, Overwrite};
use elasticjob_core::config::{ITEM_PARAMETER, ItemParameters};
use elasticjob_core::wire::yaml::{self, Entry, Position, Typed, Yaml};

use super::reader::{Reader, nearest, squeeze};
use super::{AgentFile, FileJob, JOB};

impl Reader {
    pub(super) fn jobs(&mut self, entry: &Entry, file: &mut AgentFile) {
        if entry.value.list().is_some() {
            let text = "key `jobs` is a list: expected a mapping from job names to jobs; below `jobs:` write `report:` without a dash";
            return self.fault(entry.value.at, text);
        }
        let jobs = self.map(entry).to_vec();
        if jobs.is_empty() && (entry.value.map().is_some() || entry.value.is_null()) {
            self.fault(entry.at, "key `jobs`: expected at least one job");
        }
        let is_setting = |entry: &&Entry| {
            let has_name = JOB.iter().any(|key| squeeze(key) == squeeze(&entry.key));
            has_name && entry.value.raw().is_some() && !entry.value.is_null()
        };
        let (settings, jobs): (Vec<&Entry>, Vec<&Entry>) = jobs.iter().partition(is_setting);
        for entry in &settings {
            let text = format!("key `{}` is at the level of the job names: indent it below its job", entry.key);
            self.fault(entry.at, text);
        }
        // A name without settings is that of the job to which they belong.
        for entry in jobs.into_iter().filter(|entry| settings.is_empty() || !entry.value.is_null()) {
            let job = self.job(entry);
            file.jobs.push(job);
        }
    }

    pub(super) fn job(&mut self, entry: &Entry) -> FileJob {
        let name = entry.key.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(&entry.key);
        let mut document = JobDocument::new(name, 0);
        let mut job = FileJob::default_of(document.clone());
        job.places.insert(String::new(), entry.at);
        job.places.insert("jobName".into(), entry.at);
        let inside = format!("job `{name}`");
        let mut mapped = Vec::new();
        for setting in self.settings(entry) {
            let Some(key) = self.key(&setting, JOB, &inside) else { continue };
            job.places.insert(key.to_owned(), setting.value.at);
            match key {
                "elasticJobType" => job.job_type = self.text(&setting),
                "props" => self.props(&setting, &mut document, &mut job.places),
                "shardingItemParameters" if setting.value.map().is_some() => {
                    mapped = self.item_parameters(&setting, &mut document);
                }
                "overwrite" => {
                    job.overwrite = self.overwrite(&setting);
                    document.overwrite = job.overwrite == Overwrite::Always;
                }
                "elasticJobClass" => self.fault(
                    setting.at,
                    format!(
                        "key `{}` in {inside}: the agent cannot load Java classes; use `elasticJobType`, or run the job with the library",
                        setting.key
                    ),
                ),
                _ => self.job_setting(key, &setting, &mut document),
            }
        }
        let listed =
            ItemParameters::parse(document.sharding_item_parameters.as_deref().unwrap_or_default()).unwrap_or_default();
        for (key, at) in &job.places {
            let Some(number) = key.strip_prefix("props.").and_then(|key| key.strip_prefix(ITEM_PARAMETER)) else {
                continue;
            };
            let Ok(item) = number.parse::<u32>() else { continue };
            if mapped.contains(&item) || listed.get(item).is_some() {
                self.fault(
                    *at,
                    format!("key `{key}`: item {item} has two parameters, here and in `shardingItemParameters`"),
                );
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
            document.sharding_total_count = 1;
        }
        if document.cron.is_none() && job.places.contains_key("elasticJobType") {
            self.warn(entry.at, format!("{inside} has no `cron`: it runs only when it is triggered"));
        }
        job.document = document;
        job
    }

    fn overwrite(&mut self, setting: &Entry) -> Overwrite {
        if setting.value.raw().is_some_and(|text| text.eq_ignore_ascii_case("changed")) {
            return Overwrite::Changed;
        }
        match yaml::resolve(setting.value.raw().unwrap_or_default()) {
            Typed::Bool(on) => on.into(),
            Typed::Null | Typed::Int(_) | Typed::Float(_) | Typed::Date | Typed::Text => {
                self.wrong(setting, "true, false or changed");
                Overwrite::Never
            }
        }
    }

    /// Reads `{0: "a=b,c", 1: d}`, in which any text can be a parameter. Returns the items that have one.
    fn item_parameters(&mut self, entry: &Entry, document: &mut JobDocument) -> Vec<u32> {
        let mut parameters = BTreeMap::new();
        for member in self.settings(entry) {
            match member.key.trim().parse::<u32>() {
                Ok(item) => {
                    // As it is written: Java has no such mapping, so no number or flag of YAML is meant.
                    let text = if member.value.is_null() { Some("") } else { member.value.raw() };
                    let text = text.map(str::to_owned).unwrap_or_else(|| self.text(&member));
                    if parameters.insert(item, text).is_some() {
                        self.fault(
                            member.at,
                            format!("key `{}` in `shardingItemParameters`: item {item} has two parameters", member.key),
                        );
                    }
                }
                Err(_) => {
                    let text =
                        format!("key `{}` in `shardingItemParameters`: expected the number of an item", member.key);
                    self.fault(member.at, text);
                }
            }
        }
        let (text, props) = ItemParameters::split(&parameters);
        document.sharding_item_parameters = Some(text);
        document.props.extend(props);
        parameters.into_keys().collect()
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
            "label" => document.label = Some(self.text(setting)),
            "staticSharding" => document.static_sharding = self.flag(setting),
            _ => {
                let text = format!("key `{}` is not used by the Rust agent and is ignored", setting.key);
                self.warn(setting.at, text);
            }
        }
    }

    /// The name of a plug-in; an empty one is the default.
    fn name(&mut self, setting: &Entry) -> Option<String> {
        Some(self.text(setting)).filter(|n| !n.is_empty())
    }

    fn props(&mut self, entry: &Entry, document: &mut JobDocument, places: &mut BTreeMap<String, Position>) {
        for prop in self.map(entry).to_vec() {
            let mut found = Vec::new();
            flatten(&prop.key, &prop.value, &mut |key, value| {
                let text = yaml::property_text(value).unwrap_or_default();
                found.push((key, text, value.clone()));
            });
            for (key, text, value) in found {
                self.reads_otherwise(&key, &value, &text, value.at);
                let at = value.at;
                if let Some(fault) = unknown_property(&key) {
                    self.fault(prop.at, fault);
                } else if JOB.contains(&key.as_str()) {
                    let text = format!(
                        "property `{key}` has no effect, because the job itself has a key of this name; move it from `props` to the job"
                    );
                    self.warn(prop.at, text);
                }
                places.insert(format!("props.{key}"), at);
                document.props.insert(key, text);
            }
        }
    }
}

/// Properties whose names begin like ours, or like those of Java's job types and error handlers, must be known, and so must one
/// that is nearly a known one: a typing error would be silent.
pub(crate) fn unknown_property(key: &str) -> Option<String> {
    if elasticjob::agent::PROPERTIES.contains(&key) {
        return None;
    }
    if let Some(number) = key.strip_prefix(ITEM_PARAMETER) {
        let is_item = number.parse::<u32>().is_ok_and(|item| item.to_string() == number);
        return (!is_item)
            .then(|| format!("unknown property `{key}`: expected {ITEM_PARAMETER} and the number of an item"));
    }
    let prefix = key.split('.').next().unwrap_or_default();
    let is_ours = ["elasticjob", "script", "http", "email", "wechat", "dingtalk"].contains(&prefix);
    let near = nearest(key, elasticjob::agent::PROPERTIES);
    let is_near = near.is_some_and(|near| strsim::osa_distance(near, key) <= NEAR_PROPERTY);
    let hint = near.map(|near| format!(": did you mean `{near}`?")).unwrap_or_default();
    (is_ours || is_near).then(|| format!("unknown property `{key}`{hint}"))
}

/// Letters in which a name of any prefix may differ from a known property to count as a typing error.
const NEAR_PROPERTY: usize = 2;

/// Gives each value with its key: those of nested mappings are joined with dots, members of lists numbered.
fn flatten(key: &str, value: &Yaml, put: &mut dyn FnMut(String, &Yaml)) {
    match &value.value {
        yaml::Value::Scalar { .. } => put(key.to_owned(), value),
        yaml::Value::List(items) => {
            items.iter().enumerate().for_each(|(index, item)| flatten(&format!("{key}.{index}"), item, put));
        }
        yaml::Value::Map(entries) => {
            entries.iter().for_each(|e| flatten(&format!("{key}.{}", e.key), &e.value, put));
        }
    }
}
