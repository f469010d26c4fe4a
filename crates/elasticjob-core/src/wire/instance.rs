//! `instances/<id>` (Java: `JobInstance` through SnakeYAML) and the texts of servers.

use super::emit;
use super::yaml;

/// What an instance node says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceNode {
    /// `<ip>@-@<number>`; the number is the process id but where that is taken (see `elasticjob::identity`).
    pub id: String,
    /// The server's IP; servers are enabled and disabled by it.
    pub server_ip: String,
    /// Whether an instance of this project wrote it, and not one of Java.
    pub is_rust: bool,
}

/// The last line of the nodes that instances of this project write. Readers of YAML ignore it.
const MARK: &str = "# elasticjob in Rust\n";

/// The text that an instance of this project writes.
pub fn instance_text(id: &str, server_ip: &str) -> String {
    let mut out = instance_yaml(id, server_ip);
    out.push_str(MARK);
    out
}

/// The text of an instance node as Java writes it: exactly two keys, since Java refuses any other.
pub fn instance_yaml(id: &str, server_ip: &str) -> String {
    let mut out = String::new();
    emit::text_entry(&mut out, 0, "jobInstanceId", id);
    emit::text_entry(&mut out, 0, "serverIp", server_ip);
    out
}

/// Reads an instance node. A missing `serverIp` is taken from the id, where Java takes its own.
///
/// `None` when the text is no such document: that instance is not available.
pub fn parse_instance(data: &[u8]) -> Option<InstanceNode> {
    let root = yaml::parse(std::str::from_utf8(data).ok()?).ok()?;
    let field = |key: &str| {
        let entry = root.map()?.iter().find(|e| e.key == key)?;
        (!entry.value.is_null()).then(|| entry.value.raw().map(str::to_owned)).flatten()
    };
    let id = field("jobInstanceId")?;
    let server_ip = field("serverIp").unwrap_or_else(|| ip_of(&id).to_owned());
    Some(InstanceNode { id, server_ip, is_rust: data.ends_with(MARK.as_bytes()) })
}

/// The IP in an instance id: the text before `@-@`. Java compares by prefix, so that 10.0.0.1 is found in 10.0.0.10.
fn ip_of(id: &str) -> &str {
    id.split("@-@").next().unwrap_or(id)
}

/// Whether a child of `servers` names a server: one dotted IPv4 address without leading zeros.
pub fn is_server_ip(name: &str) -> bool {
    let parts: Vec<&str> = name.split('.').collect();
    parts.len() == 4 && parts.iter().all(|p| p.parse::<u8>().is_ok_and(|n| n.to_string() == *p))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instance_nodes_are_written_and_read_as_by_java() {
        let path = format!("{}/tests/vectors/config_yaml.json", env!("CARGO_MANIFEST_DIR"));
        let vectors: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(path).expect("vectors")).expect("JSON");
        let mut written = 0;
        for case in vectors["job_instance"].as_array().expect("cases") {
            let (id, ip) = (case["job_instance_id"].as_str().expect("id"), case["server_ip"].as_str().expect("ip"));
            let yaml = case["yaml"].as_str().expect("yaml");
            let node = InstanceNode { id: id.to_owned(), server_ip: ip.to_owned(), is_rust: false };
            assert_eq!(parse_instance(yaml.as_bytes()), Some(node.clone()));
            let node = InstanceNode { is_rust: true, ..node };
            assert_eq!(parse_instance(instance_text(id, ip).as_bytes()), Some(node));
            // The other case has labels, which no version of Java sets and we never write.
            if case["labels"].is_null() {
                assert_eq!(instance_yaml(id, ip), yaml);
                written += 1;
            }
        }
        assert_eq!(written, 1);
        assert_eq!(parse_instance(b""), None);
        assert_eq!(parse_instance(b"\xff"), None);
        assert_eq!(parse_instance(b"just text"), None);
    }

    #[test]
    fn server_nodes_are_recognised_as_by_java() {
        let path = format!("{}/tests/vectors/ip.json", env!("CARGO_MANIFEST_DIR"));
        let vectors: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(path).expect("vectors")).expect("JSON");
        for case in vectors["server_path"].as_array().expect("cases") {
            let segment = case["segment"].as_str().expect("text");
            assert_eq!(Some(is_server_ip(segment)), case["is_server_path"].as_bool(), "{segment:?}");
        }
    }
}
