//! The text of a job's nodes, as Java's snapshot service gives it, with IP addresses masked (Java: `SnapshotService`,
//! `SensitiveInfoUtils`; manual: "Dump").

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use elasticjob_core::job_state::JobState;
use elasticjob_core::path::{self, JobPath};
use elasticjob_registry::{Error, Registry};
use regex::Regex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{OperationError, Operations};
use crate::{clock, watches};

/// An IP as Java's expression finds it: without word boundaries.
const IP: &str = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(?:\.(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])){3}";
/// The largest answer of another process that is read: 64 MiB.
pub const DUMP_ANSWER_MAX: u64 = 64 * 1024 * 1024;
/// What may be an IPv6 address: a whole word with colons, of which the address is the part before a last dot or colon.
const IP6_CANDIDATE: &str = r"[0-9A-Za-z_:.]*[0-9A-Za-z_]";
/// Longer texts are masked without Java's quirk.
const MASKED_AS_JAVA_MAX: usize = 64 * 1024;
/// Longest wait for another process's dump.
const ANSWER_WAIT: Duration = Duration::from_secs(30);

impl Operations {
    /// The nodes of a job with their data, one a line, IP addresses masked.
    ///
    /// # Errors
    ///
    /// There is no such job, or the registry failed.
    pub async fn dump(&self, job: &str) -> Result<String, OperationError> {
        if !super::is_name(job) || self.subtree(&JobPath::new(job)).await?.is_empty() {
            return Err(self.unknown_job(job).await);
        }
        Ok(dump_text(&*self.registry, job, None).await?)
    }
}

/// Asks the dump service of a process, Java's or ours, for a job.
///
/// # Errors
///
/// It does not answer within half a minute, says nothing, or too much.
pub async fn dump_from(host: &str, port: u16, job: &str) -> Result<String, OperationError> {
    let address = format!("{host}:{port}");
    let told = |reason: String| OperationError::Dump { address: address.clone(), reason };
    let talk = async {
        let mut stream = TcpStream::connect((host, port)).await?;
        stream.write_all(format!("dump@{job}\n").as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(DUMP_ANSWER_MAX + 1).read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = clock::within(ANSWER_WAIT, talk).await;
    let answer = answer.ok_or_else(|| told(format!("no answer within {ANSWER_WAIT:?}")))?;
    let answer = answer.map_err(|error| told(error.to_string()))?;
    if answer.len() as u64 > DUMP_ANSWER_MAX {
        return Err(told(format!("the answer has more than {DUMP_ANSWER_MAX} bytes")));
    }
    let text = String::from_utf8_lossy(&answer).into_owned();
    match text.trim().is_empty() {
        true => Err(told(format!("that process runs no job `{job}`"))),
        false => Ok(text),
    }
}

/// The dump of the subtree below `/<job>`; a single line end when it has no nodes. `job` may be a path below a job, as in
/// Java. Where `cache` is a state that a process decides by, nodes that differ from it have what it has beside them.
pub(crate) async fn dump_text(registry: &dyn Registry, job: &str, cache: Option<&JobState>) -> Result<String, Error> {
    let root = format!("/{job}");
    let nodes = watches::subtree(registry, &root).await?;
    let job = JobPath::new(path::job_of(&root).unwrap_or_default());
    let mut entries = Vec::new();
    let mut open: Vec<&String> = nodes.get(&root).map(|(_, below)| below.iter().collect()).unwrap_or_default();
    // Depth first, the last in text order first: what is pushed last comes first.
    while let Some(at) = open.pop() {
        let Some((node, below)) = nodes.get(at) else { continue };
        let cached = cache.and_then(|state| Some((state.watched(&job, at)?, at)));
        entries.push(match cached {
            Some((Some(data), _)) if data == node.data.as_ref() => format!("{at} | {}", node.text()),
            Some((Some(data), _)) => format!("{at} | {} | {at} | {}", node.text(), String::from_utf8_lossy(data)),
            Some((None, _)) => format!("{at} | {} |  | ", node.text()),
            None => format!("{at} | {}", node.text()),
        });
        open.extend(below);
    }
    Ok(format!("{}\n", mask(entries).join("\n")))
}

/// Gives each address a name, by its first appearance in the whole dump. As in Java, every place of a found IPv4 text in an entry
/// is replaced, also where it is the beginning of a longer one. Java leaves IPv6 addresses as they are.
fn mask(entries: Vec<String>) -> Vec<String> {
    let (Ok(ip), Ok(ip6)) = (Regex::new(IP), Regex::new(IP6_CANDIDATE)) else { return entries };
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    let mut masked = |entry: String| {
        let mut name_of = |found: &str| {
            let name = format!("ip{}", names.len() + 1);
            names.entry(found.to_owned()).or_insert(name).clone()
        };
        let entry = if entry.matches(':').count() < 2 {
            entry
        } else {
            let name_of_ip6 = |found: &regex::Captures<'_>| match found[0].parse::<std::net::Ipv6Addr>() {
                Ok(_) if found[0].len() > 2 => name_of(&found[0]),
                _ => found[0].to_owned(),
            };
            ip6.replace_all(&entry, name_of_ip6).into_owned()
        };
        // Java's way takes a time that grows with the square of the text: what no job writes is masked in one go.
        if entry.len() > MASKED_AS_JAVA_MAX {
            return ip.replace_all(&entry, |found: &regex::Captures<'_>| name_of(&found[0])).into_owned();
        }
        let (mut text, mut replaced) = (entry.clone(), BTreeSet::new());
        for found in ip.find_iter(&entry).filter(|found| replaced.insert(found.as_str())) {
            text = text.replace(found.as_str(), &name_of(found.as_str()));
        }
        text
    };
    entries.into_iter().map(&mut masked).collect()
}

#[cfg(test)]
mod tests {
    use elasticjob_core::time::Timestamp;
    use elasticjob_core::tree::{Node, Op};
    use elasticjob_registry::{Link, Outcome, memory};

    use super::*;

    #[test]
    fn addresses_are_masked_as_java_masks_them() {
        let path = format!("{}/../elasticjob-core/tests/vectors/ip.json", env!("CARGO_MANIFEST_DIR"));
        let vectors: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(path).expect("vectors")).expect("JSON");
        assert_eq!(vectors["regex"].as_str(), Some(IP));
        let lines = |value: &serde_json::Value| -> Vec<String> {
            value.as_array().expect("lines").iter().map(|l| l.as_str().expect("a line").to_owned()).collect()
        };
        for case in vectors["snapshot_masking"].as_array().expect("cases") {
            assert_eq!(mask(lines(&case["lines"])), lines(&case["masked"]));
        }
    }

    #[test]
    fn ipv6_addresses_are_masked_and_nothing_that_only_looks_like_one() {
        let lines = [
            "/j/servers/fd00::2 | ENABLED",
            "/j/servers/2001:db8:0:0:0:0:0:7 | ENABLED",
            "/j/sharding/1/instance | fd00::2@-@14958",
            "/j/sharding/1 | due=5 by=::1@-@7 and 10.0.0.1@-@7",
            "/j/config | cron: 0 12:30:45 a:b:c {a: {b: c}} rust::path std::fmt",
        ];
        let masked = mask(lines.map(str::to_owned).to_vec());
        let expected = [
            "/j/servers/ip1 | ENABLED",
            "/j/servers/ip2 | ENABLED",
            "/j/sharding/1/instance | ip1@-@14958",
            "/j/sharding/1 | due=5 by=ip3@-@7 and ip4@-@7",
            lines[4],
        ];
        assert_eq!(masked, expected);
    }

    #[tokio::test]
    async fn nodes_come_depth_first_and_differ_from_the_cache_where_they_do() {
        let registry = memory::Memory::new().connect();
        let Link::Up { session, .. } = registry.link().borrow().clone() else { panic!("there is a link") };
        let create = |path: &str, data: &str| Op::create(path, data);
        let ops = vec![
            create("/j", "class"),
            create("/j/config", "cron: x\n"),
            create("/j/servers", ""),
            create("/j/servers/10.0.0.1", "DISABLED"),
            create("/j/servers/10.0.0.2", "ENABLED"),
            create("/j/sharding", ""),
            create("/j/sharding/0", ""),
            create("/j/sharding/10", ""),
            create("/j/sharding/9", ""),
        ];
        assert!(matches!(registry.commit(session, &ops).await, Outcome::Committed { .. }));
        let text = dump_text(&registry, "j", None).await.expect("a dump");
        let expected = "/j/sharding | \n/j/sharding/9 | \n/j/sharding/10 | \n/j/sharding/0 | \n/j/servers | \n\
                        /j/servers/ip1 | ENABLED\n/j/servers/ip2 | DISABLED\n/j/config | cron: x\n\n";
        assert_eq!(text, expected);
        assert_eq!(dump_text(&registry, "none", None).await.expect("a dump"), "\n");
        assert!(dump_text(&registry, "j/servers", None).await.expect("a dump").starts_with("/j/servers/ip1 | "));

        let mut state = JobState::default();
        let path = JobPath::new("j");
        state.apply(&path, "/j/config", Some(Node::new("cron: x\n", 1, 0, Timestamp(0))));
        state.apply(&path, "/j/servers/10.0.0.1", Some(Node::new("ENABLED", 1, 0, Timestamp(0))));
        let text = dump_text(&registry, "j", Some(&state)).await.expect("a dump");
        assert!(text.contains("/j/servers/ip1 | ENABLED |  | \n"), "{text}");
        assert!(text.contains("/j/servers/ip2 | DISABLED | /j/servers/ip2 | ENABLED\n"), "{text}");
        assert!(text.contains("/j/config | cron: x\n\n"), "{text}");
    }
}
