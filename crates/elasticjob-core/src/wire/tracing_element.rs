//! The tracing element of a stored configuration (Java: `YamlTracingConfiguration`): where Java writes its event trace.

use std::collections::BTreeMap;

use super::yaml::{self, Yaml};

/// A tracing element, as Java's two generations write it. The document keeps it unchanged; this is only read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TracingElement {
    /// The type; `RDB` is Java's only one.
    pub kind: String,
    /// The class of the data source.
    pub class: String,
    /// Its properties, as `jdbcUrl`, `username` and `password`.
    pub props: BTreeMap<String, String>,
}

impl TracingElement {
    /// The first tracing element of the text of the key `jobExtraConfigurations`.
    pub(super) fn parse(text: &str) -> Option<TracingElement> {
        let root = yaml::parse(text).ok()?;
        let list = &root.map()?.first()?.value;
        let element = list.list()?.iter().find(|e| e.tag.as_deref().is_some_and(is_tracing))?;
        let storage = child(element, "tracingStorageConfiguration")?;
        let mut props = BTreeMap::new();
        for prop in child(storage, "props").and_then(Yaml::map).unwrap_or_default() {
            if let Some(text) = yaml::property_text(&prop.value) {
                props.insert(prop.key.clone(), text);
            }
        }
        let text = |yaml: &Yaml, key| child(yaml, key).and_then(Yaml::raw).unwrap_or_default().to_owned();
        Some(TracingElement { kind: text(element, "type"), class: text(storage, "dataSourceClassName"), props })
    }
}

/// The package moved from one generation to the other.
fn is_tracing(tag: &str) -> bool {
    tag.contains("org.apache.shardingsphere.elasticjob") && tag.ends_with(".YamlTracingConfiguration")
}

fn child<'a>(yaml: &'a Yaml, key: &str) -> Option<&'a Yaml> {
    yaml.map()?.iter().rfind(|e| e.key == key).map(|e| &e.value)
}

#[cfg(test)]
mod tests {
    use crate::wire::JobDocument;

    #[test]
    fn the_element_of_both_generations_is_read_and_kept() {
        for package in ["kernel.tracing", "tracing"] {
            let stored = format!(
                "cron: 0/5 * * * * ?
jobExtraConfigurations:
- !!org.apache.shardingsphere.elasticjob.{package}.yaml.YamlTracingConfiguration
  tracingStorageConfiguration: !!org.apache.shardingsphere.elasticjob.tracing.rdb.yaml.YamlDataSourceConfiguration
    dataSourceClassName: com.zaxxer.hikari.HikariDataSource
    props:
      password: ''
      jdbcUrl: jdbc:h2:mem:t
      username: sa
      maximumPoolSize: 10
  type: RDB
jobName: a
shardingTotalCount: 1
"
            );
            let document = JobDocument::parse(stored.as_bytes()).expect("a document");
            let element = document.tracing().expect("an element");
            assert_eq!((element.kind.as_str(), element.class.as_str()), ("RDB", "com.zaxxer.hikari.HikariDataSource"));
            assert_eq!(element.props["jdbcUrl"], "jdbc:h2:mem:t");
            assert_eq!(element.props["password"], "");
            assert_eq!(element.props["maximumPoolSize"], "10");
            let kept = stored.split("jobName").next().expect("text").split_once("jobExtra").expect("text").1;
            assert!(document.to_yaml().contains(kept), "{}", document.to_yaml());
        }
        assert_eq!(JobDocument::new("a", 1).tracing(), None);
    }
}
