//! Which commands and addresses of a stored configuration this process executes. A client that can write the configuration could
//! otherwise run any command as the user of this process.

use std::sync::{Arc, Weak};
use std::time::Duration;

use elasticjob_core::config::{ConfigError, JobConfig};
use elasticjob_core::wire::{JobDocument, is_secret};
use elasticjob_registry::{Link, Protection, Registry};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::clock;

/// The commands of a stored configuration that this process executes where they differ from those of its own: the properties
/// `script.command.line`, `http.uri`, those of script listeners, the addresses of error handlers, `elasticjob.script.environment`, and
/// those that a custom type names ([`JobType::executes`](crate::JobType::executes)). Changes of other keys need no permission. Java
/// executes all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Commands {
    /// All, if this process has authenticated itself to the registry, and only its user can write the nodes of the job; else none. An embedded registry counts as authenticated: its file belongs to this user.
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

/// The built-in properties that decide what is executed, and where secrets and the output of runs are sent.
const EXECUTED: [&str; 11] = [
    "props.dingtalk.webhook",
    "props.elasticjob.email.plain.password",
    "props.elasticjob.listener.after.command.line",
    "props.elasticjob.listener.before.command.line",
    "props.elasticjob.listener.completed.command.line",
    "props.elasticjob.listener.started.command.line",
    "props.elasticjob.script.environment",
    "props.email.host",
    "props.http.uri",
    "props.script.command.line",
    "props.wechat.webhook",
];
/// Between two questions to a registry that does not answer.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);
/// How often it is looked whether a job still runs.
const STILL_USED: Duration = Duration::from_secs(60);
/// Characters of a value in an error.
const SHOWN_MAX: usize = 80;

/// What a process decided about the commands of a job's stored configuration.
#[derive(Clone, Debug)]
pub(crate) struct Permission {
    /// Why commands of the registry are refused; `None` if they are executed.
    refusal: Arc<Mutex<Option<&'static str>>>,
    own: Arc<JobDocument>,
    more: Vec<&'static str>,
}

/// The reasons of refusals.
const ONLY_FILE: &str = "`commands: file` permits only the commands of the file";
const OPEN: &str = "other clients can write this job in the registry; store the file with `elasticjob job apply FILE`, protect the job with a digest, or \
                    permit commands of the registry with `commands: registry` in the file";

impl Permission {
    /// Decides about a job. For [`Commands::Authenticated`], the registry says who can write the nodes of the job: once there is a connection,
    /// and again after each reconnect.
    pub(crate) async fn decide(
        commands: Commands,
        registry: &Arc<dyn Registry>,
        own: &JobDocument,
        more: Vec<&'static str>,
    ) -> Permission {
        let refusal = Arc::new(Mutex::new(match commands {
            Commands::Registry => None,
            Commands::File => Some(ONLY_FILE),
            Commands::Authenticated => Some(OPEN),
        }));
        if commands == Commands::Authenticated {
            let mut watching = Watching {
                refusal: Arc::downgrade(&refusal),
                registry: Arc::clone(registry),
                link: registry.link(),
                job: own.job_name.clone(),
                warned: false,
            };
            let first = watching.ask().await;
            // A registry that serves one user, and one without a login, stay so.
            if registry.is_shared() && first != Some(Protection::None) {
                tokio::spawn(watching.run(first));
            }
        }
        Permission { refusal, own: Arc::new(own.clone()), more }
    }

    /// Whether commands of the registry are executed.
    pub(crate) fn is_given(&self) -> bool {
        self.refusal.lock().is_none()
    }

    /// The faults of a stored configuration: commands that are not executed.
    pub(crate) fn check(&self, config: &JobConfig) -> Vec<ConfigError> {
        let Some(refusal) = *self.refusal.lock() else { return Vec::new() };
        let executed = EXECUTED.iter().chain(&self.more);
        let fault = |key: &&'static str| {
            let name = key.strip_prefix("props.").unwrap_or(key);
            let value = config.props.get(name).filter(|value| !value.is_empty())?;
            let own = self.own.props.get(name).filter(|own| !own.is_empty());
            if own == Some(value) {
                return None;
            }
            let own = own.map_or_else(|| "no value".to_owned(), |own| format!("`{}`", shown(key, own)));
            let expected = format!("expected {own}, with which this process was started: {refusal}");
            Some(ConfigError::new(key, shown(key, value), expected))
        };
        executed.filter_map(fault).collect()
    }
}

/// Follows who can write the nodes of a job, for as long as its permission is used.
struct Watching {
    refusal: Weak<Mutex<Option<&'static str>>>,
    registry: Arc<dyn Registry>,
    link: watch::Receiver<Link>,
    job: String,
    warned: bool,
}

impl Watching {
    /// Asks once, as soon as the registry answers, and sets the permission; `None` if it will never answer.
    async fn ask(&mut self) -> Option<Protection> {
        let mut pause = RETRY;
        loop {
            self.link.mark_unchanged();
            let paths = vec![format!("/{}", self.job), format!("/{}/config", self.job)];
            if let Ok(protection) = self.registry.protects(paths).await {
                if let Some(refusal) = self.refusal.upgrade() {
                    *refusal.lock() = (protection != Protection::Whole).then_some(OPEN);
                }
                if protection == Protection::Open && !std::mem::replace(&mut self.warned, true) {
                    let job = self.job.as_str();
                    tracing::warn!(
                        job,
                        "other clients can write the nodes of this job, although a digest is configured; the job was probably created without it. To \
                         protect it, run `addauth digest USER:PASSWORD` and `setAcl -R /NAMESPACE/{job} auth::cdrwa` in ZooKeeper's zkCli.sh, and restart the agents"
                    );
                }
                return Some(protection);
            }
            // There is no connection: the job cannot start either.
            if matches!(&*self.link.borrow(), Link::Closed) {
                return None;
            }
            let _ = clock::within(pause, self.link.changed()).await;
            pause = (pause * 2).min(RETRY_MAX);
        }
    }

    /// Asks again while nodes are missing, since another client may create them first, and after each reconnect.
    async fn run(mut self, first: Option<Protection>) {
        let (mut found, mut pause) = (first, RETRY);
        while found.is_some() && self.refusal.strong_count() > 0 {
            match found {
                Some(Protection::Absent) => {
                    clock::sleep(pause).await;
                    pause = (pause * 2).min(RETRY_MAX);
                }
                _ => {
                    // The permission may be dropped while the connection stays as it is.
                    let changed = clock::within(STILL_USED, self.link.changed()).await;
                    match changed {
                        None => continue,
                        Some(Err(_)) => return,
                        Some(Ok(())) => {}
                    }
                }
            }
            found = self.ask().await;
        }
    }
}

/// A value for messages.
fn shown(key: &str, value: &str) -> String {
    if is_secret(key) { "***".to_owned() } else { short(value) }
}

fn short(text: &str) -> String {
    let shown = elasticjob_core::wire::masked(text);
    match shown.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &shown[..end]),
        None => shown,
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
            (vec![("wechat.webhook", "http://h/?key=k")], Some("`props.wechat.webhook`: `***`")),
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
