//! Which commands and addresses of a stored configuration this process executes. A client that can write the configuration could
//! otherwise run any command as the user of this process.

use std::sync::Arc;
use std::time::Duration;

use elasticjob_core::config::{ConfigError, JobConfig};
use elasticjob_core::wire::JobDocument;
use elasticjob_registry::{Link, Registry};

use crate::clock;

/// The commands of a stored configuration that this process executes where they differ from those of its own: the properties
/// `script.command.line`, `http.uri`, those of script listeners, and those that a custom type names
/// ([`JobType::executes`](crate::JobType::executes)). Changes of other keys need no permission. Java executes all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Commands {
    /// All, if this process has authenticated itself to the registry, and only authenticated clients can write the nodes of the job; else
    /// none. An embedded registry counts as authenticated: its file belongs to this user.
    #[default]
    Authenticated,
    /// None: only those that equal its own.
    File,
    /// All.
    Registry,
}

impl Commands {
    /// Returns the value of the words `authenticated`, `file` and `registry`.
    pub fn of(word: &str) -> Option<Commands> {
        match word {
            "authenticated" => Some(Commands::Authenticated),
            "file" => Some(Commands::File),
            "registry" => Some(Commands::Registry),
            _ => None,
        }
    }
}

/// The built-in properties that are executed.
const EXECUTED: [&str; 6] = [
    "props.elasticjob.listener.after.command.line",
    "props.elasticjob.listener.before.command.line",
    "props.elasticjob.listener.completed.command.line",
    "props.elasticjob.listener.started.command.line",
    "props.http.uri",
    "props.script.command.line",
];
/// Between two questions to a registry that does not answer.
const RETRY: Duration = Duration::from_secs(1);
/// Characters of a value in an error.
const SHOWN_MAX: usize = 80;

/// What a process decided about a job.
#[derive(Clone, Debug)]
pub(crate) struct Permission {
    /// Why commands of the registry are refused; `None` if they are executed.
    refusal: Option<&'static str>,
    own: Arc<JobDocument>,
    more: Vec<&'static str>,
}

impl Permission {
    /// Decides about a job; asks the registry who can write its nodes, as soon as there is a link.
    pub(crate) async fn decide(
        commands: Commands,
        registry: &Arc<dyn Registry>,
        own: &JobDocument,
        more: Vec<&'static str>,
    ) -> Permission {
        let protected = match commands {
            Commands::Authenticated => is_protected(registry, &own.job_name).await,
            Commands::Registry | Commands::File => true,
        };
        if !protected && matches!(registry.protects(Vec::new()).await, Ok(true)) {
            let job = own.job_name.as_str();
            tracing::warn!(
                job,
                "every client can write the nodes of this job although a digest is configured, because they were created without it; to protect \
                 them, run `addauth digest USER:PASSWORD` and `setAcl -R /NAMESPACE/{job} auth::cdrwa` in ZooKeeper's zkCli.sh"
            );
        }
        let refusal = match commands {
            Commands::Registry => None,
            Commands::File => Some("`commands: file` permits only the commands of the file"),
            Commands::Authenticated if protected => None,
            Commands::Authenticated => Some(
                "every client can write this job in the registry; store the file with `elasticjob job apply FILE`, protect the job with a \
                 digest, or permit commands of the registry with `commands: registry` in the file",
            ),
        };
        Permission { refusal, own: Arc::new(own.clone()), more }
    }

    /// The faults of a stored configuration: commands that are not executed.
    pub(crate) fn check(&self, config: &JobConfig) -> Vec<ConfigError> {
        let Some(refusal) = self.refusal else { return Vec::new() };
        let executed = EXECUTED.iter().chain(&self.more);
        let fault = |key: &&'static str| {
            let name = key.strip_prefix("props.").unwrap_or(key);
            let value = config.props.get(name).filter(|value| !value.is_empty())?;
            let own = self.own.props.get(name).filter(|own| !own.is_empty());
            if own == Some(value) {
                return None;
            }
            let own = own.map_or_else(|| "no value".to_owned(), |own| format!("`{}`", short(own)));
            let expected = format!("expected {own}, with which this process was started: {refusal}");
            Some(ConfigError::new(key, short(value), expected))
        };
        executed.filter_map(fault).collect()
    }
}

fn short(text: &str) -> String {
    let shown = elasticjob_core::wire::masked(text);
    match shown.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &shown[..end]),
        None => shown,
    }
}

/// Whether only authenticated clients can write the nodes of a job.
async fn is_protected(registry: &Arc<dyn Registry>, job: &str) -> bool {
    let mut link = registry.link();
    loop {
        let paths = vec![format!("/{job}"), format!("/{job}/config")];
        if let Ok(protected) = registry.protects(paths).await {
            return protected;
        }
        // The registry does not answer, or there is no link: the job cannot start either.
        if matches!(&*link.borrow_and_update(), Link::Closed) {
            return false;
        }
        let _ = clock::within(RETRY, link.changed()).await;
    }
}

#[cfg(test)]
mod tests {
    use elasticjob_registry::memory::Memory;

    use super::*;

    fn document(props: &[(&str, &str)]) -> JobDocument {
        let mut document = JobDocument::new("a", 1);
        document.props = props.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        document
    }

    async fn faults(commands: Commands, own: &[(&str, &str)], stored: &[(&str, &str)]) -> Vec<String> {
        let registry: Arc<dyn Registry> = Arc::new(Memory::new().connect());
        let permission = Permission::decide(commands, &registry, &document(own), vec!["tool.program"]).await;
        let config = JobConfig::check(&document(stored), &clock::zone).expect("valid");
        permission.check(&config).iter().map(ToString::to_string).collect()
    }

    #[tokio::test]
    async fn only_commands_that_differ_from_those_of_the_process_are_refused() {
        let own = [("script.command.line", "true"), ("other", "1")];
        for (stored, refused) in [
            (vec![("script.command.line", "true"), ("other", "2")], None),
            (vec![("other", "2")], None),
            (vec![("script.command.line", "")], None),
            (
                vec![("script.command.line", "rm -r x")],
                Some("`props.script.command.line`: `rm -r x` is invalid: expected `true`"),
            ),
            (vec![("http.uri", "http://h/")], Some("`props.http.uri`")),
            (
                vec![("elasticjob.listener.before.command.line", "id")],
                Some("`props.elasticjob.listener.before.command.line`"),
            ),
            (vec![("tool.program", "id")], Some("`tool.program`")),
        ] {
            let found = faults(Commands::File, &own, &stored).await;
            assert_eq!(found.len(), usize::from(refused.is_some()), "{stored:?}: {found:?}");
            if let Some(refused) = refused {
                assert!(found[0].contains(refused), "{found:?}");
                assert!(found[0].contains("`commands: file` permits only"), "{found:?}");
            }
            for commands in [Commands::Registry, Commands::Authenticated] {
                assert_eq!(
                    faults(commands, &own, &stored).await,
                    Vec::<String>::new(),
                    "a registry in memory has no other client"
                );
            }
        }
    }
}
