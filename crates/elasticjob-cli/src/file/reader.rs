//! The shapes of values, and what is said of a wrong one: place, key, value, expectation.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet};

use elasticjob_core::wire::is_secret;
use elasticjob_core::wire::yaml::{self, Entry, Position, Typed, Yaml};

use super::{DATA_SOURCE, Fault, JOB, REG_CENTER, SERVICE, TOP, TRACING};

/// Faults and warnings while a file is read.
#[derive(Default)]
pub(super) struct Reader {
    pub(super) faults: Vec<Fault>,
    pub(super) warnings: Vec<Fault>,
    /// The jobs that `includeJobNames` or `excludeJobNames` names, with the place of that key.
    pub(super) named: Vec<(Position, &'static str, String)>,
    /// The places of values that could not be read, for example since a variable is not set: nothing else is said of them.
    pub(super) unread: HashSet<Position>,
    /// The variables of the environment from which secrets of the agent were read.
    pub(super) secret_variables: BTreeSet<String>,
}

impl Reader {
    pub(super) fn fault(&mut self, at: Position, text: impl Into<String>) {
        self.faults.push(Fault { at, text: text.into() });
    }

    pub(super) fn warn(&mut self, at: Position, text: impl Into<String>) {
        self.warnings.push(Fault { at, text: text.into() });
    }

    /// Puts `${NAME}` and `${NAME:default}` into the value of a key, and notes the names if the value is a secret of the agent.
    pub(super) fn substitute(&mut self, key: &str, yaml: &mut Yaml, env: &dyn Fn(&str) -> Option<String>) {
        let at = yaml.at;
        match &mut yaml.value {
            yaml::Value::Scalar { text, .. } => {
                if text.contains("${") {
                    let read = RefCell::new(Vec::new());
                    let noted = |name: &str| {
                        read.borrow_mut().push(name.to_owned());
                        env(name)
                    };
                    let replaced = replace_variables(text, &noted);
                    if is_secret_of_agent(key) {
                        let names = read.into_inner().into_iter().filter(|name| !ORDINARY.contains(&name.as_str()));
                        self.secret_variables.extend(names);
                    }
                    match replaced {
                        Ok(replaced) => *text = replaced,
                        Err(reason) => {
                            self.fault(at, reason);
                            self.unread.insert(at);
                        }
                    }
                }
            }
            yaml::Value::List(items) => items.iter_mut().for_each(|i| self.substitute(key, i, env)),
            yaml::Value::Map(entries) => {
                entries.iter_mut().for_each(|e| self.substitute(&e.key, &mut e.value, env));
            }
        }
    }

    /// The known key that an entry means; else a fault that names the nearest one, or the place where the key belongs.
    pub(super) fn key(&mut self, entry: &Entry, known: &[&'static str], inside: &str) -> Option<&'static str> {
        let squeezed = squeeze(&entry.key);
        let found = known.iter().find(|k| squeeze(k) == squeezed).copied();
        if found.is_none() {
            let advice = match (home(&entry.key), nearest(&entry.key, known)) {
                _ if entry.key == "<<" => ": merge keys are not supported; repeat the keys".to_owned(),
                _ if is_job(&entry.value) => ": it looks like a job, which belongs below `jobs`; indent it".to_owned(),
                (Some(home), _) => format!(": it belongs {home}"),
                (None, Some(near)) => format!(": did you mean `{near}`?"),
                (None, None) => String::new(),
            };
            self.fault(entry.at, format!("unknown key `{}` in {inside}{advice}", entry.key));
        }
        found
    }

    /// The entries of a mapping. A key that is set twice, also in two spellings, is a fault.
    pub(super) fn settings(&mut self, entry: &Entry) -> Vec<Entry> {
        let entries = self.map(entry).to_vec();
        let mut seen: HashMap<String, &Entry> = HashMap::new();
        for second in &entries {
            let first = *seen.entry(same_key(&second.key)).or_insert(second);
            if first.at != second.at {
                let text = format!("key `{}` is also set as `{}` in line {}", second.key, first.key, first.at.line);
                self.fault(second.at, text);
            }
        }
        entries
    }

    pub(super) fn map<'a>(&mut self, entry: &'a Entry) -> &'a [Entry] {
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

    pub(super) fn wrong(&mut self, entry: &Entry, expected: &str) {
        if !self.unread.insert(entry.value.at) {
            return;
        }
        let text = match entry.value.is_null() {
            true => format!("key `{}` has no value: expected {expected}", entry.key),
            false => format!("key `{}`: `{}` is invalid: expected {expected}", entry.key, entry.value.shown()),
        };
        self.fault(entry.value.at, text);
    }

    pub(super) fn text(&mut self, entry: &Entry) -> String {
        match yaml::property_text(&entry.value) {
            Some(text) => {
                self.reads_otherwise(&entry.key, &entry.value, &text, entry.at);
                text
            }
            None if entry.value.is_null() => String::new(),
            None => {
                self.wrong(entry, "a string");
                String::new()
            }
        }
    }

    /// Warns if YAML reads a value as a number or a flag that has another text.
    pub(super) fn reads_otherwise(&mut self, key: &str, value: &Yaml, text: &str, at: Position) {
        let raw = value.raw().unwrap_or_default();
        if text.eq_ignore_ascii_case(raw) || value.is_null() {
            return;
        }
        let change = match is_secret_of_agent(key) {
            true => "changes the value".to_owned(),
            false => format!("reads `{raw}` as `{text}`"),
        };
        self.warn(at, format!("key `{key}`: YAML {change}; put it into quotes to keep it as it is written"));
    }

    pub(super) fn flag(&mut self, entry: &Entry) -> bool {
        match yaml::resolve(entry.value.raw().unwrap_or_default()) {
            Typed::Bool(flag) => flag,
            Typed::Int(number @ (0 | 1)) => number == 1,
            Typed::Null | Typed::Int(_) | Typed::Float(_) | Typed::Date | Typed::Text => {
                self.wrong(entry, "true or false");
                false
            }
        }
    }

    pub(super) fn number(&mut self, entry: &Entry, low: i64, high: i64) -> i64 {
        match yaml::resolve(entry.value.raw().unwrap_or_default()) {
            Typed::Int(number) if (low..=high).contains(&number) => number,
            _ => {
                self.wrong(entry, &format!("a whole number from {low} to {high}"));
                low.max(1)
            }
        }
    }

    pub(super) fn list(&mut self, entry: &Entry) -> Vec<String> {
        match entry.value.list() {
            Some(items) => items
                .iter()
                .filter_map(|item| {
                    let text = yaml::property_text(item);
                    if text.is_none() {
                        self.wrong(entry, "a list of strings");
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
}

/// Whether a mapping has the keys that each job has.
fn is_job(value: &Yaml) -> bool {
    let entries = value.map().unwrap_or_default();
    ["elasticjobtype", "shardingtotalcount"].iter().any(|key| entries.iter().any(|entry| squeeze(&entry.key) == *key))
}

/// Spellings of one key, and its names in two generations of Java, are the same key.
fn same_key(key: &str) -> String {
    let (old, new) = ("jobExecutorServiceHandlerType", "jobExecutorThreadPoolSizeProviderType");
    let squeezed = squeeze(key);
    if squeezed == squeeze(old) { squeeze(new) } else { squeezed }
}

/// Spring's relaxed spelling: case, `-` and `_` do not matter.
pub(super) fn squeeze(key: &str) -> String {
    key.chars().filter(|c| !matches!(c, '-' | '_')).flat_map(char::to_lowercase).collect()
}

/// Longer keys are like no known one.
const KEY_COMPARED_MAX: usize = 200;

/// The most similar known key, if it is close: at most a third of the letters differ.
pub(super) fn nearest(key: &str, known: &[&'static str]) -> Option<&'static str> {
    // The comparison takes as long as both are long, and no key is nearly as long as this.
    if key.len() > KEY_COMPARED_MAX {
        return None;
    }
    let squeezed = squeeze(key);
    let far = |other: &str| strsim::osa_distance(&squeeze(other), &squeezed);
    let best = known.iter().min_by_key(|other| far(other)).copied()?;
    let longer = squeezed.chars().count().max(squeeze(best).chars().count());
    (far(best) <= longer.div_ceil(3)).then_some(best)
}

/// The section to which a key belongs that was found in another one.
fn home(key: &str) -> Option<String> {
    let squeezed = squeeze(key);
    let levels: [(&[&str], &str); 6] = [
        (TOP, "directly below `elasticjob`"),
        (JOB, "in a job below `jobs`"),
        (REG_CENTER, "below `regCenter`"),
        (TRACING, "below `tracing`"),
        (SERVICE, "below `dump` or `metrics`"),
        (DATA_SOURCE, "below `dataSource` in `tracing`"),
    ];
    let known = |keys: &[&str]| keys.iter().any(|known| squeeze(known) == squeezed);
    if let Some((_, home)) = levels.iter().find(|(keys, _)| known(keys)) {
        return Some((*home).to_owned());
    }
    if elasticjob::agent::PROPERTIES.contains(&key) || key.starts_with("elasticjob.") {
        return Some("below `props` of a job".to_owned());
    }
    // `retry.count` for `elasticjob.retry.count`.
    let whole = |known: &&&str| known.strip_suffix(key).is_some_and(|prefix| prefix.ends_with('.'));
    let found = elasticjob::agent::PROPERTIES.iter().find(whole).filter(|_| key.contains('.'));
    found.map(|whole| format!("below `props` of a job, as `{whole}`"))
}

/// Credentials of the registry, of databases and of error handlers. The address of a database may have a password.
fn is_secret_of_agent(key: &str) -> bool {
    is_secret(key) || matches!(squeeze(key).as_str(), "digest" | "url" | "jdbcurl")
}

/// Variables that have no secrets, and that programs need.
const ORDINARY: [&str; 9] = ["HOME", "HOSTNAME", "LANG", "LOGNAME", "PATH", "PWD", "TMPDIR", "TZ", "USER"];

/// `$${` is a literal `${`.
pub(super) fn replace_variables(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        if let Some(before) = rest[..start].strip_suffix('$') {
            out.push_str(before);
            out.push_str("${");
            rest = &rest[start + 2..];
            continue;
        }
        out.push_str(&rest[..start]);
        let after = &rest[start + 2..];
        let end = after.find('}').ok_or_else(|| format!("`{text}`: `${{` without `}}`"))?;
        let (name, default) = match after[..end].split_once(':') {
            Some((name, default)) => (name, Some(default)),
            None => (&after[..end], None),
        };
        // `-1` is a number.
        let is_shell_s = |default: &str| {
            default.strip_prefix('-').is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        if default.is_some_and(is_shell_s) && env(name).is_none() {
            return Err(format!(
                "`{text}`: the default after `:` begins with `-`, which is shell syntax; write ${{{name}:default}}, or $${{{name}:-…}} to pass it unchanged to the \
                 shell"
            ));
        }
        let value = env(name).or_else(|| default.map(str::to_owned));
        let value = value.ok_or_else(|| {
            format!(
                "`{text}`: the environment has no variable `{name}`; set it, write ${{{name}:default}}, or $${{{name}}} for a literal ${{{name}}}"
            )
        })?;
        out.push_str(&value);
        rest = &after[end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}
