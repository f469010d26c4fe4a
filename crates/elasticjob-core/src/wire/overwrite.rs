//! What a start does with a stored configuration that differs from its own: `overwrite` (manual: "Job configuration"), with
//! `changed` as our third mode, a merge of three documents as `kubectl apply` makes it.

use std::collections::{BTreeMap, BTreeSet};

use super::yaml::{self, Entry};
use super::{JobDocument, json_text};
use crate::config::ITEM_PARAMETER;

/// Which configuration wins where this start's and the stored one differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Overwrite {
    /// The stored one, as Java's `overwrite: false`. The default.
    #[default]
    Never,
    /// This start's, as Java's `overwrite: true`.
    Always,
    /// This start's for the keys that changed in it since it was last applied, the stored one for all others.
    Changed,
}

impl From<bool> for Overwrite {
    fn from(on: bool) -> Overwrite {
        if on { Overwrite::Always } else { Overwrite::Never }
    }
}

/// A key with two values. Secrets are masked, long values are cut.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Difference {
    /// The key, as the file has it: `cron`, `props.script.command.line`.
    pub key: String,
    /// The value of this start; empty for the default.
    pub here: String,
    /// The value in the registry; empty for the default.
    pub stored: String,
}

/// Longest value that is shown, in characters.
const SHOWN_MAX: usize = 120;
/// Parts of the names of properties whose values are never shown.
const SECRET_PARTS: [&str; 5] = ["password", "secret", "token", "webhook", "credential"];

/// Returns `true` if the value of that key must not be shown.
pub fn is_secret(key: &str) -> bool {
    let key = key.to_lowercase();
    SECRET_PARTS.iter().any(|part| key.contains(part))
}

/// Masks the secrets in a value: the user and password of an address, and the values of parts such as `password=…` and
/// `access_token=…`.
pub fn masked(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    let mut rest = value;
    while let Some(found) = next_secret(rest) {
        out.push_str(&rest[..found.start]);
        out.push_str("***");
        rest = &rest[found.end..];
    }
    out.push_str(rest);
    out
}

/// The place of the first secret in a text.
fn next_secret(text: &str) -> Option<std::ops::Range<usize>> {
    let ends_address = |c: char| matches!(c, '/' | '?' | '#' | '@') || c.is_whitespace();
    let ends_value = |c: char| matches!(c, '&' | ';' | ',' | '"' | '\'' | '}' | ')') || c.is_whitespace();
    let user_info = text.match_indices("://").find_map(|(at, mark)| {
        let start = at + mark.len();
        let end = start + text[start..].find(ends_address)?;
        (text[end..].starts_with('@') && end > start && &text[start..end] != "***").then_some(start..end)
    });
    let part = text.match_indices(['=', ':']).find_map(|(at, _)| {
        let name = text[..at].trim_end_matches(['"', '\'', ' ']);
        let name =
            &name[name.rfind(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))).map_or(0, |i| i + 1)..];
        let start = at + 1 + text[at + 1..].find(|c: char| !matches!(c, ' ' | '"' | '\''))?;
        // A header's value may have blanks: `Authorization: Bearer …`.
        let is_header = name.eq_ignore_ascii_case("authorization");
        let ends = |c: char| ends_value(c) && !(is_header && c == ' ');
        let end = text[start..].find(ends).map_or(text.len(), |length| start + length);
        let is_hidden = is_secret(name) || is_secret_word(name);
        (is_hidden && end > start && &text[start..end] != "***").then_some(start..end)
    });
    [user_info, part].into_iter().flatten().min_by_key(|range| range.start)
}

/// Names of parts of a value that are secret, besides those of [`is_secret`].
fn is_secret_word(name: &str) -> bool {
    let name = name.to_lowercase();
    ["digest", "pwd", "passwd", "passphrase", "apikey", "api_key", "api-key", "authorization"].contains(&name.as_str())
}

impl Difference {
    fn new(key: &str, here: &str, stored: &str) -> Difference {
        let shown = |value: &str| match value {
            "" => String::new(),
            _ if is_secret(key) => "***".to_owned(),
            value => {
                let value = masked(value);
                match value.chars().count() > SHOWN_MAX {
                    true => format!("{}…", value.chars().take(SHOWN_MAX).collect::<String>()),
                    false => value,
                }
            }
        };
        Difference { key: key.to_owned(), here: shown(here), stored: shown(stored) }
    }

    /// Differences as a node of the registry holds them: a JSON array.
    pub fn to_text(differences: &[Difference]) -> String {
        let one = |d: &Difference| {
            let texts = [&d.key, &d.here, &d.stored].map(|text| json_text(text));
            format!("{{\"key\": {}, \"here\": {}, \"stored\": {}}}", texts[0], texts[1], texts[2])
        };
        format!("[{}]", differences.iter().map(one).collect::<Vec<_>>().join(", "))
    }

    /// Reads what [`Difference::to_text`] wrote; entries of another shape are left out.
    pub fn parse(data: &[u8]) -> Vec<Difference> {
        // JSON is YAML too.
        let Ok(list) = yaml::parse(&String::from_utf8_lossy(data)) else { return Vec::new() };
        let text = |entries: &[Entry], key: &str| {
            entries.iter().find(|entry| entry.key == key).and_then(|entry| entry.value.raw()).map(str::to_owned)
        };
        let one = |entries: &[Entry]| {
            let (key, here, stored) = (text(entries, "key")?, text(entries, "here")?, text(entries, "stored")?);
            Some(Difference { key, here, stored })
        };
        list.list().unwrap_or_default().iter().filter_map(|entry| one(entry.map()?)).collect()
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A line break of a value must not end the line of the log.
        let line = |value: &str| {
            value
                .chars()
                .map(|c| if c.is_control() { c.escape_default().to_string() } else { c.into() })
                .collect::<String>()
        };
        let shown = |value: &str| if value.is_empty() { "not set".to_owned() } else { format!("`{}`", line(value)) };
        write!(f, "`{}` is {} locally and {} in the registry", self.key, shown(&self.here), shown(&self.stored))
    }
}

/// Differences in one sentence.
#[derive(Debug)]
pub struct Differences<'a>(pub &'a [Difference]);

impl std::fmt::Display for Differences<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, difference) in self.0.iter().enumerate() {
            write!(f, "{}{difference}", if index == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

impl JobDocument {
    /// The keys that are compared, with their texts; an empty text is the default. Not among them: the name; `overwrite`, which
    /// is about the start alone; `disabled`, which belongs to the operators; and what this program does not know.
    fn compared(&self) -> BTreeMap<String, String> {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let mut keys: BTreeMap<String, String> = [
            ("cron", text(&self.cron)),
            ("timeZone", text(&self.time_zone)),
            ("shardingTotalCount", self.sharding_total_count.to_string()),
            ("shardingItemParameters", text(&self.sharding_item_parameters)),
            ("jobParameter", text(&self.job_parameter)),
            ("monitorExecution", self.monitor_execution.to_string()),
            ("failover", self.failover.to_string()),
            ("misfire", self.misfire.to_string()),
            ("maxTimeDiffSeconds", self.max_time_diff_seconds.to_string()),
            ("reconcileIntervalMinutes", self.reconcile_interval_minutes.to_string()),
            ("jobShardingStrategyType", text(&self.job_sharding_strategy_type)),
            ("jobExecutorThreadPoolSizeProviderType", text(&self.thread_pool)),
            ("jobErrorHandlerType", text(&self.job_error_handler_type)),
            ("jobListenerTypes", self.job_listener_types.join(",")),
            ("description", text(&self.description)),
            ("label", text(&self.label)),
            ("staticSharding", self.static_sharding.to_string()),
        ]
        .map(|(key, text)| (key.to_owned(), text))
        .into();
        // An item may have an empty parameter, which is another one than none.
        let text = |key: &str, value: &str| match value.is_empty() && key.starts_with(ITEM_PARAMETER) {
            true => "''".to_owned(),
            false => value.to_owned(),
        };
        keys.extend(self.props.iter().map(|(key, value)| (format!("props.{key}"), text(key, value))));
        keys
    }

    /// Takes the value of one key from another document.
    fn take_key(&mut self, key: &str, from: &JobDocument) {
        match key {
            "cron" => self.cron.clone_from(&from.cron),
            "timeZone" => self.time_zone.clone_from(&from.time_zone),
            "shardingTotalCount" => self.sharding_total_count = from.sharding_total_count,
            "shardingItemParameters" => self.sharding_item_parameters.clone_from(&from.sharding_item_parameters),
            "jobParameter" => self.job_parameter.clone_from(&from.job_parameter),
            "monitorExecution" => self.monitor_execution = from.monitor_execution,
            "failover" => self.failover = from.failover,
            "misfire" => self.misfire = from.misfire,
            "maxTimeDiffSeconds" => self.max_time_diff_seconds = from.max_time_diff_seconds,
            "reconcileIntervalMinutes" => self.reconcile_interval_minutes = from.reconcile_interval_minutes,
            "jobShardingStrategyType" => self.job_sharding_strategy_type.clone_from(&from.job_sharding_strategy_type),
            "jobExecutorThreadPoolSizeProviderType" => self.thread_pool.clone_from(&from.thread_pool),
            "jobErrorHandlerType" => self.job_error_handler_type.clone_from(&from.job_error_handler_type),
            "jobListenerTypes" => self.job_listener_types.clone_from(&from.job_listener_types),
            "description" => self.description.clone_from(&from.description),
            "label" => self.label.clone_from(&from.label),
            "staticSharding" => self.static_sharding = from.static_sharding,
            _ => {
                let Some(property) = key.strip_prefix("props.") else { return };
                match from.props.get(property) {
                    Some(value) => drop(self.props.insert(property.to_owned(), value.clone())),
                    None => drop(self.props.remove(property)),
                }
            }
        }
    }

    /// The keys in which this start's document differs from the stored one, in text order.
    pub fn differences(&self, stored: &JobDocument) -> Vec<Difference> {
        let (mut here, mut there) = (self.compared(), stored.compared());
        // One that is disabled by an operator alone is no difference of the files.
        if self.disabled && !stored.disabled {
            here.insert("disabled".to_owned(), "true".to_owned());
            there.insert("disabled".to_owned(), "false".to_owned());
        }
        let value = |keys: &BTreeMap<String, String>, key: &String| keys.get(key).cloned().unwrap_or_default();
        let keys: BTreeSet<&String> = here.keys().chain(there.keys()).collect();
        let pairs = keys.into_iter().map(|key| (key, value(&here, key), value(&there, key)));
        pairs
            .filter(|(_, here, there)| here != there)
            .map(|(key, here, there)| Difference::new(key, &here, &there))
            .collect()
    }

    /// The configuration that a start with this document stores where another one is stored already. `applied` is what a start
    /// applied last, for [`Overwrite::Changed`]; where nothing was applied yet, all keys count as changed.
    ///
    /// What is disabled stays disabled: only an operator enables a job. Keys that this program does not know stay.
    #[must_use]
    pub fn overwriting(&self, stored: &JobDocument, mode: Overwrite, applied: Option<&JobDocument>) -> JobDocument {
        let mut document = stored.clone();
        let changed = match (mode, applied) {
            (Overwrite::Never, _) => return document,
            (Overwrite::Changed, Some(applied)) => self.changed_since(applied),
            (Overwrite::Always | Overwrite::Changed, _) => self.changed_since(stored),
        };
        changed.iter().for_each(|key| document.take_key(key, self));
        let disables = match applied {
            Some(applied) if mode == Overwrite::Changed => self.disabled && !applied.disabled,
            Some(_) | None => self.disabled,
        };
        document.disabled |= disables;
        document.overwrite = self.overwrite;
        document
    }

    fn changed_since(&self, other: &JobDocument) -> Vec<String> {
        self.differences(other).into_iter().map(|difference| difference.key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(lines: &str) -> JobDocument {
        let text = format!("jobName: a\nshardingTotalCount: 3\nmonitorExecution: true\n{lines}");
        JobDocument::parse(text.as_bytes()).expect("valid")
    }

    #[test]
    fn secrets_inside_values_are_masked() {
        for (value, expected) in [
            (
                "http://svc:S3CRET2@127.0.0.1:1/run?access_token=T2&x=1",
                "http://***@127.0.0.1:1/run?access_token=***&x=1",
            ),
            ("password=hunter2", "password=***"),
            ("jdbc:postgresql://db/x?user=a&password=P2", "jdbc:postgresql://db/x?user=a&password=***"),
            ("postgres://u:pgpw2@h/db", "postgres://***@h/db"),
            (
                "curl -H 'Authorization: Bearer a.b' --data {\"api_key\": \"abc\"}",
                "curl -H 'Authorization: ***' --data {\"api_key\": \"***\"}",
            ),
            ("0/5 * * * * ?", "0/5 * * * * ?"),
            ("mail ops@example.com at http://host/x", "mail ops@example.com at http://host/x"),
            ("0=Beijing,1=Shanghai", "0=Beijing,1=Shanghai"),
        ] {
            assert_eq!(masked(value), expected);
            assert_eq!(masked(expected), expected, "masked twice");
        }
    }

    #[test]
    fn an_empty_parameter_of_an_item_that_is_gone_from_the_file_is_gone_from_the_registry() {
        let stored = document("props: {elasticjob.sharding.item.parameter.2: '', x: ''}\n");
        let here = document("cron: '1 * * * * ?'\n");
        let found: Vec<String> = here.differences(&stored).iter().map(ToString::to_string).collect();
        assert_eq!(
            found[1],
            "`props.elasticjob.sharding.item.parameter.2` is not set locally and `''` in the registry"
        );
        for (mode, applied) in [(Overwrite::Always, None), (Overwrite::Changed, Some(&stored))] {
            let merged = here.overwriting(&stored, mode, applied);
            assert!(!merged.props.contains_key("elasticjob.sharding.item.parameter.2"), "{mode:?}: {merged:?}");
        }
        let broken = Difference { key: "a".into(), here: "1\n2".into(), stored: String::new() };
        assert_eq!(broken.to_string(), "`a` is `1\\n2` locally and not set in the registry");
    }

    #[test]
    fn differences_name_key_and_both_values_and_mask_secrets() {
        let here = document("cron: '1 * * * * ?'\nprops: {email.password: new, a: '1'}\n");
        let stored =
            document("cron: '2 * * * * ?'\nprops: {email.password: old, b: '2'}\ndisabled: true\noverwrite: true\n");
        let found: Vec<String> = here.differences(&stored).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "`cron` is `1 * * * * ?` locally and `2 * * * * ?` in the registry",
                "`props.a` is `1` locally and not set in the registry",
                "`props.b` is not set locally and `2` in the registry",
                "`props.email.password` is `***` locally and `***` in the registry",
            ]
        );
        assert_eq!(
            Difference::parse(Difference::to_text(&here.differences(&stored)).as_bytes()),
            here.differences(&stored)
        );
        assert!(here.differences(&here).is_empty());
        assert_eq!(Difference::parse(b"[1, {\"key\": 2}]"), []);
        let long = document(&format!("description: {}\n", "x".repeat(1_000)));
        assert_eq!(long.differences(&here)[1].here.chars().count(), SHOWN_MAX + 1);
    }

    /// Which value of a key wins: this start's, the stored one's.
    #[test]
    fn who_wins() {
        let text = |cron: &str| document(&format!("cron: '{cron} * * * * ?'\n"));
        for (mode, applied, here, stored, expected) in [
            (Overwrite::Never, Some("1"), "2", "1", "1"),
            (Overwrite::Always, Some("1"), "1", "2", "1"),
            (Overwrite::Changed, Some("1"), "2", "1", "2"), // changed in the file
            (Overwrite::Changed, Some("1"), "1", "2", "2"), // changed in the registry
            (Overwrite::Changed, Some("1"), "2", "3", "2"), // changed in both
            (Overwrite::Changed, None, "2", "1", "2"),      // never applied
        ] {
            let applied = applied.map(text);
            let merged = text(here).overwriting(&text(stored), mode, applied.as_ref());
            assert_eq!(merged, text(expected), "{mode:?} {applied:?} {here} {stored}");
        }
    }

    #[test]
    fn a_merge_goes_key_by_key_and_property_by_property_and_keeps_what_it_does_not_know() {
        let applied = document("cron: '1 * * * * ?'\nfailover: true\nprops: {a: '1', b: '1', c: '1'}\n");
        let here = document("cron: '1 * * * * ?'\nfailover: false\nprops: {a: '2', b: '1'}\n");
        let stored =
            document("cron: '9 * * * * ?'\nfailover: true\nprops: {a: '1', b: '9', c: '1', d: '9'}\nfuture: x\n");
        let merged = here.overwriting(&stored, Overwrite::Changed, Some(&applied));
        let expected = document("cron: '9 * * * * ?'\nfailover: false\nprops: {a: '2', b: '9', d: '9'}\nfuture: x\n");
        assert_eq!(merged, expected);
    }

    /// Every key that is compared can be taken over: a key that was forgotten in one of the two would be lost in silence.
    #[test]
    fn every_key_is_merged() {
        let other = JobDocument::parse(
            b"jobName: a\ncron: c\ntimeZone: z\nshardingTotalCount: 9\nshardingItemParameters: p\njobParameter: j\n\
              monitorExecution: false\nfailover: true\nmisfire: true\nmaxTimeDiffSeconds: 9\nreconcileIntervalMinutes: 9\n\
              jobShardingStrategyType: s\njobExecutorServiceHandlerType: t\njobErrorHandlerType: e\njobListenerTypes: [l]\n\
              description: d\nlabel: l\nstaticSharding: true\nprops: {x: y}\n",
        )
        .expect("valid");
        let merged = other.overwriting(&document(""), Overwrite::Always, None);
        assert!(other.differences(&merged).is_empty(), "{:?}", other.differences(&merged));
        assert_eq!(other.differences(&document("")).len(), 18);
    }

    #[test]
    fn no_start_enables_what_is_disabled() {
        let (on, off) = (document(""), document("disabled: true\n"));
        for mode in [Overwrite::Never, Overwrite::Always, Overwrite::Changed] {
            for applied in [None, Some(&on), Some(&off)] {
                assert!(on.overwriting(&off, mode, applied).disabled, "{mode:?} {applied:?}");
            }
        }
        assert!(off.overwriting(&on, Overwrite::Always, None).disabled);
        assert!(off.overwriting(&on, Overwrite::Changed, Some(&on)).disabled, "newly disabled in the file");
        assert!(!off.overwriting(&on, Overwrite::Changed, Some(&off)).disabled, "an operator enabled it");
    }
}
