//! Every registry path, built and parsed here and nowhere else (Java: `JobNodePath` and the `*Node` classes).
//!
//! Paths are relative to the namespace: `/<job>/config`. What the namespace is, only the registry knows.

use std::fmt::{self, Write as _};

/// The paths of one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobPath {
    root: String,
}

/// What a path below a job means to the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place<'a> {
    /// `/<job>`: the class text.
    Root,
    /// `config`.
    Config,
    /// `servers/<ip>`.
    Server(&'a str),
    /// `instances/<id>`.
    Instance(&'a str),
    /// `leader/election/instance`.
    Leader,
    /// `leader/sharding/necessary`.
    Necessary,
    /// `leader/sharding/processing`.
    Processing,
    /// `leader/failover/items/<item>`.
    FailoverItem(u32),
    /// `leader/leaving/<id>`.
    Leaving(&'a str),
    /// `trigger/<id>`.
    Trigger(&'a str),
    /// `trigger/<item>` or `trigger/<item>-<request>`, with the name.
    ItemTrigger(u32, &'a str),
    /// `sharding/<item>/disabled`.
    ItemDisabled(u32),
    /// `sharding/<item>/failover`.
    ItemFailover(u32),
    /// `sharding/<item>/running`.
    ItemRunning(u32),
    /// A parent, a latch, or a node of another program.
    Other,
}

impl JobPath {
    /// Paths of the job of that name. The name is one path segment (checked by the configuration).
    pub fn new(job: &str) -> JobPath {
        JobPath { root: format!("/{job}") }
    }

    /// The job's name.
    pub fn job(&self) -> &str {
        &self.root[1..]
    }

    /// `/<job>`; its data is the class text.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// Any path below the job.
    pub fn below(&self, rest: &str) -> String {
        format!("{}/{rest}", self.root)
    }

    /// `config`.
    pub fn config(&self) -> String {
        self.below("config")
    }

    /// `servers`.
    pub fn servers(&self) -> String {
        self.below("servers")
    }

    /// `servers/<ip>`.
    pub fn server(&self, ip: &str) -> String {
        format!("{}/servers/{ip}", self.root)
    }

    /// `instances`.
    pub fn instances(&self) -> String {
        self.below("instances")
    }

    /// `instances/<id>`.
    pub fn instance(&self, id: &str) -> String {
        format!("{}/instances/{id}", self.root)
    }

    /// `leader`.
    pub fn leader(&self) -> String {
        self.below("leader")
    }

    /// `leader/election/instance`: the leader's id.
    pub fn leader_instance(&self) -> String {
        self.below("leader/election/instance")
    }

    /// `leader/election/latch`.
    pub fn election_latch(&self) -> String {
        self.below("leader/election/latch")
    }

    /// `leader/failover/latch`.
    pub fn failover_latch(&self) -> String {
        self.below("leader/failover/latch")
    }

    /// `leader/sharding/necessary`.
    pub fn necessary(&self) -> String {
        self.below("leader/sharding/necessary")
    }

    /// `leader/sharding/processing`.
    pub fn processing(&self) -> String {
        self.below("leader/sharding/processing")
    }

    /// `leader/failover/items`.
    pub fn failover_items(&self) -> String {
        self.below("leader/failover/items")
    }

    /// `leader/failover/items/<item>`.
    pub fn failover_item(&self, item: u32) -> String {
        format!("{}/leader/failover/items/{item}", self.root)
    }

    /// `leader/leaving`: the instances that leave while items run there; ours only, see COMPAT.md.
    pub fn leaving(&self) -> String {
        self.below("leader/leaving")
    }

    /// `leader/leaving/<id>`.
    pub fn leaving_instance(&self, id: &str) -> String {
        format!("{}/leader/leaving/{id}", self.root)
    }

    /// `results`: the results of triggers whose caller waits; Rust only, see COMPAT.md.
    pub fn results(&self) -> String {
        self.below("results")
    }

    /// `results/<name>`, with the name of the trigger.
    pub fn result(&self, trigger: &str) -> String {
        format!("{}/results/{trigger}", self.root)
    }

    /// `trigger`.
    pub fn triggers(&self) -> String {
        self.below("trigger")
    }

    /// `trigger/<id>`.
    pub fn trigger(&self, id: &str) -> String {
        format!("{}/trigger/{id}", self.root)
    }

    /// `applied`: what a start with `overwrite: changed` applied last; ours only, see COMPAT.md.
    pub fn applied(&self) -> String {
        self.below("applied")
    }

    /// `applied/<id>`: how the configuration of that instance's start differs from the stored one.
    pub fn applied_by(&self, id: &str) -> String {
        format!("{}/applied/{id}", self.root)
    }

    /// `sharding`.
    pub fn sharding(&self) -> String {
        self.below("sharding")
    }

    /// `sharding/<item>`; its data is our ledger, empty with Java.
    pub fn item(&self, item: u32) -> String {
        self.of_item(item, "")
    }

    /// In one allocation: each run asks for half a dozen.
    fn of_item(&self, item: u32, rest: impl fmt::Display) -> String {
        const LONGEST: usize = "/sharding/4294967295/instance/claim-0123456789abcdef".len();
        let mut path = String::with_capacity(self.root.len() + LONGEST);
        path.push_str(&self.root);
        let _ = write!(path, "/sharding/{item}{rest}"); // into a string: cannot fail
        path
    }

    /// `sharding/<item>/instance`: the owner's id.
    pub fn item_owner(&self, item: u32) -> String {
        self.of_item(item, "/instance")
    }

    /// `sharding/<item>/instance/claim-<session>`: ours only, see ARCHITECTURE.md.
    pub fn item_claim(&self, item: u32, session: u64) -> String {
        self.of_item(item, format_args!("/instance/claim-{session:016x}"))
    }

    /// `sharding/<item>/running`: the runner's id.
    pub fn item_running(&self, item: u32) -> String {
        self.of_item(item, "/running")
    }

    /// `sharding/<item>/misfire`.
    pub fn item_misfire(&self, item: u32) -> String {
        self.of_item(item, "/misfire")
    }

    /// `sharding/<item>/disabled`.
    pub fn item_disabled(&self, item: u32) -> String {
        self.of_item(item, "/disabled")
    }

    /// `sharding/<item>/failover`: the taker's id.
    pub fn item_failover(&self, item: u32) -> String {
        self.of_item(item, "/failover")
    }

    /// `sharding/<item>/failovering`: the taker's id, persistent.
    pub fn item_failovering(&self, item: u32) -> String {
        self.of_item(item, "/failovering")
    }

    /// `guarantee`: what the distribute-once listeners of all instances tell each other.
    pub fn guarantee(&self) -> String {
        self.below("guarantee")
    }

    /// `guarantee/<moment>`: one child for each item that has come there; `moment` is `started` or `completed`.
    pub fn guarantee_moment(&self, moment: &str) -> String {
        format!("{}/guarantee/{moment}", self.root)
    }

    /// `guarantee/<moment>/<item>`.
    pub fn guarantee_item(&self, moment: &str, item: u32) -> String {
        format!("{}/guarantee/{moment}/{item}", self.root)
    }

    /// `guarantee/<moment>-latch`: who calls the listener.
    pub fn guarantee_latch(&self, moment: &str) -> String {
        format!("{}/guarantee/{moment}-latch", self.root)
    }

    /// `guarantee/<moment>-closed`: ours only; a child for each listener says how the latest firing was closed for it.
    pub fn guarantee_closed(&self, moment: &str) -> String {
        format!("{}/guarantee/{moment}-closed", self.root)
    }

    /// What `path` means, `None` when it is not of this job.
    pub fn place<'a>(&self, path: &'a str) -> Option<Place<'a>> {
        let rest = path.strip_prefix(self.root.as_str())?;
        if rest.is_empty() {
            return Some(Place::Root);
        }
        let rest = rest.strip_prefix('/')?;
        let mut parts = rest.split('/');
        let parts = [parts.next(), parts.next(), parts.next(), parts.next(), parts.next()];
        Some(match parts {
            [Some("config"), None, ..] => Place::Config,
            [Some("servers"), Some(ip), None, ..] => Place::Server(ip),
            [Some("instances"), Some(id), None, ..] => Place::Instance(id),
            [Some("trigger"), Some(name), None, ..] => match item_of_trigger(name) {
                Some(item) => Place::ItemTrigger(item, name),
                None => Place::Trigger(name),
            },
            [Some("leader"), Some("leaving"), Some(id), None, _] => Place::Leaving(id),
            [Some("leader"), Some("election"), Some("instance"), None, _] => Place::Leader,
            [Some("leader"), Some("sharding"), Some("necessary"), None, _] => Place::Necessary,
            [Some("leader"), Some("sharding"), Some("processing"), None, _] => Place::Processing,
            [Some("leader"), Some("failover"), Some("items"), Some(item), None] => {
                parse_item(item).map_or(Place::Other, Place::FailoverItem)
            }
            [Some("sharding"), Some(item), Some(mark), None, _] => match (parse_item(item), mark) {
                (Some(item), "disabled") => Place::ItemDisabled(item),
                (Some(item), "failover") => Place::ItemFailover(item),
                (Some(item), "running") => Place::ItemRunning(item),
                _ => Place::Other,
            },
            _ => Place::Other,
        })
    }
}

/// The job that a path belongs to: its first segment.
pub fn job_of(path: &str) -> Option<&str> {
    let rest = path.strip_prefix('/')?;
    let job = rest.split('/').next()?;
    (!job.is_empty()).then_some(job)
}

/// The parent of a path, `None` for `/` and for what is directly below it.
pub fn parent(path: &str) -> Option<&str> {
    match path.rfind('/') {
        Some(0) | None => None,
        Some(at) => Some(&path[..at]),
    }
}

/// The last segment of a path.
pub fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// An item number in plain decimal: no sign, no leading zero. Anything else below `sharding` is a foreign node.
pub fn parse_item(text: &str) -> Option<u32> {
    let item: u32 = text.parse().ok()?;
    (item.to_string() == text).then_some(item)
}

/// The item of a trigger of one item: `<item>`, or `<item>-<request>` where the caller waits. Every other name is that
/// of an instance.
pub fn item_of_trigger(name: &str) -> Option<u32> {
    parse_item(name.split_once('-').map_or(name, |(item, _)| item))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_recognised_by_its_shape() {
        let job = JobPath::new("a");
        for (path, place) in [
            ("/a", Some(Place::Root)),
            ("/a/config", Some(Place::Config)),
            ("/a/servers/10.0.0.1", Some(Place::Server("10.0.0.1"))),
            ("/a/servers", Some(Place::Other)),
            ("/a/instances/10.0.0.1@-@7", Some(Place::Instance("10.0.0.1@-@7"))),
            ("/a/leader/leaving/10.0.0.1@-@7", Some(Place::Leaving("10.0.0.1@-@7"))),
            ("/a/trigger/10.0.0.1@-@7", Some(Place::Trigger("10.0.0.1@-@7"))),
            ("/a/trigger/10", Some(Place::ItemTrigger(10, "10"))),
            ("/a/trigger/10-0a1b", Some(Place::ItemTrigger(10, "10-0a1b"))),
            ("/a/leader/election/instance", Some(Place::Leader)),
            ("/a/leader/election/latch/_c_x-latch-0000000000", Some(Place::Other)),
            ("/a/leader/failover/items/11", Some(Place::FailoverItem(11))),
            ("/a/leader/failover/items/011", Some(Place::Other)),
            ("/a/sharding/2/failover", Some(Place::ItemFailover(2))),
            ("/a/sharding/x/failover", Some(Place::Other)),
            ("/ab/config", None),
            ("/b", None),
        ] {
            assert_eq!(job.place(path), place, "{path}");
        }
        assert_eq!(job_of("/a/config"), Some("a"));
        assert_eq!(job_of("/"), None);
        assert_eq!(parent("/a/b/c"), Some("/a/b"));
        assert_eq!(parent("/a"), None);
    }
}
