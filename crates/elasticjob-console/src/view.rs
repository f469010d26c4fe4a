//! A job as people see it: its states with their reasons, its items, its instances. Pure: everything comes from one report.

use std::collections::BTreeMap;

use elasticjob::Operations;
use elasticjob_core::config::JobConfig;
use elasticjob_core::job_state::ServerState;
use elasticjob_core::report::{ItemReport, JobReport};
use elasticjob_core::time::Timestamp;
use elasticjob_core::tree::Node;
use elasticjob_core::wire::{JobDocument, Ledger, masked, parse_instance};
use serde::Serialize;
use utoipa::ToSchema;

/// The state of a job, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum StateKind {
    /// The registry does not show nodes of the job.
    Denied,
    /// The stored configuration is invalid.
    BadConfiguration,
    /// No instance runs the job.
    Offline,
    /// A mark of an instance that has left is not taken over.
    Stuck,
    /// Items wait for a new assignment, or have no owner that can run them.
    Resharding,
    /// Some, but not all, servers or items are disabled.
    PartlyDisabled,
    /// All servers are disabled.
    Disabled,
    /// An item is running.
    Running,
    /// No item was ever assigned: the job has not fired yet.
    Waiting,
    /// None of the others.
    Ok,
}

impl StateKind {
    /// Whether a job in this state fires at its due times.
    pub(crate) fn fires(self) -> bool {
        !matches!(self, StateKind::Disabled | StateKind::Offline | StateKind::BadConfiguration | StateKind::Denied)
    }

    /// Whether a person should look at the job.
    pub(crate) fn needs_attention(self) -> bool {
        self <= StateKind::Resharding
    }
}

/// A state with its reason. The reason is a code with arguments, so that pages can show it in any language.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct State {
    /// The state.
    pub(crate) kind: StateKind,
    /// The code of the reason.
    pub(crate) reason: &'static str,
    /// The arguments of the reason, by name.
    pub(crate) args: BTreeMap<&'static str, String>,
    /// Since when, in milliseconds since 1970; null if the registry does not record it.
    pub(crate) since: Option<i64>,
}

/// A line about a job.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct JobLine {
    /// The name.
    pub(crate) name: String,
    /// The description.
    pub(crate) description: String,
    /// The label.
    pub(crate) label: String,
    /// The parameter of the job.
    pub(crate) parameter: String,
    /// The most urgent state.
    pub(crate) state: State,
    /// The cron expression; null for a one-off job.
    pub(crate) cron: Option<String>,
    /// The time zone of the expression; empty for that of the hosts.
    pub(crate) zone: String,
    /// The next firing, in milliseconds since 1970; null if there is none.
    pub(crate) next: Option<i64>,
    /// The number of items.
    pub(crate) items: usize,
    /// The number of items that have an owner that lives.
    pub(crate) owned: usize,
    /// The number of items that are running.
    pub(crate) running: usize,
    /// The number of instances.
    pub(crate) instances: usize,
    /// The addresses of the servers.
    pub(crate) servers: Vec<String>,
    /// The number of servers on which the job is disabled.
    pub(crate) disabled_servers: usize,
    /// Whether `disabled` is set in the configuration: servers that join later are disabled too.
    pub(crate) disabled: bool,
    /// Whether runs are recorded in the registry (`monitorExecution`). Otherwise it is not known which items are running.
    pub(crate) monitored: bool,
}

/// A job with its items and instances.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct JobDetail {
    /// The line about it.
    pub(crate) job: JobLine,
    /// All states that apply, the most urgent first.
    pub(crate) states: Vec<State>,
    /// The items, by number.
    pub(crate) items: Vec<Item>,
    /// The instances, by id.
    pub(crate) instances: Vec<Instance>,
    /// The servers, by address.
    pub(crate) servers: Vec<Server>,
    /// The stored configuration, with masked secrets.
    pub(crate) configuration: String,
}

/// An item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Item {
    /// The number.
    pub(crate) item: u32,
    /// The parameter.
    pub(crate) parameter: String,
    /// The id of the owner; null without one.
    pub(crate) owner: Option<String>,
    /// Whether the owner is registered.
    pub(crate) owner_alive: bool,
    /// Whether an operator disabled it.
    pub(crate) disabled: bool,
    /// The id of the instance that runs it; null if none does.
    pub(crate) running_on: Option<String>,
    /// Since when it runs, in milliseconds since 1970.
    pub(crate) running_since: Option<i64>,
    /// Whether the instance that runs it is registered.
    pub(crate) runner_alive: bool,
    /// The id of the instance that has taken it over; null if none has.
    pub(crate) taken_over_by: Option<String>,
    /// Whether a firing waits to be caught up.
    pub(crate) misfire: bool,
    /// The due time of the last start on a Rust instance, in milliseconds since 1970.
    pub(crate) last_due: Option<i64>,
}

/// An instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Instance {
    /// The id.
    pub(crate) id: String,
    /// The address of its server.
    pub(crate) server: String,
    /// `rust` or `java`.
    pub(crate) kind: &'static str,
    /// Whether it leads.
    pub(crate) leader: bool,
    /// Whether it is leaving the job.
    pub(crate) leaving: bool,
    /// Since when it is registered, in milliseconds since 1970.
    pub(crate) since: i64,
    /// The number of items that it owns.
    pub(crate) items: usize,
}

/// A server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Server {
    /// The IP address.
    pub(crate) ip: String,
    /// Whether the job is disabled on it.
    pub(crate) disabled: bool,
    /// The number of its instances of this job.
    pub(crate) instances: usize,
}

/// One job, with what was computed from its report once.
pub(crate) struct JobView<'a> {
    report: &'a JobReport,
    config: Result<JobConfig, String>,
    document: Option<JobDocument>,
    now: Timestamp,
}

impl<'a> JobView<'a> {
    pub(crate) fn new(report: &'a JobReport, now: Timestamp) -> JobView<'a> {
        let data = report.state.config.as_ref().map(|node| node.data.as_ref()).unwrap_or_default();
        let config = match report.state.config {
            Some(_) => Operations::checked_config(data),
            None => Err("the job has no configuration".to_owned()),
        };
        JobView { report, config, document: JobDocument::parse(data).ok(), now }
    }

    pub(crate) fn line(&self) -> JobLine {
        let state = &self.report.state;
        let text = |get: fn(&JobDocument) -> Option<&String>| {
            self.document.as_ref().and_then(|document| get(document).cloned()).unwrap_or_default()
        };
        let config = self.config.as_ref().ok();
        let next = config.and_then(|config| config.cron.as_ref()?.next(self.now, &config.time_zone));
        let items = self.items();
        JobLine {
            name: self.report.path.job().to_owned(),
            description: text(|d| d.description.as_ref()),
            label: text(|d| d.label.as_ref()),
            parameter: masked(&text(|d| d.job_parameter.as_ref())),
            state: self.states().remove(0),
            cron: self.document.as_ref().and_then(|document| document.cron.clone()),
            zone: text(|d| d.time_zone.as_ref()),
            next: next.map(|next| next.0),
            items: items.len(),
            owned: items.iter().filter(|item| item.owner_alive).count(),
            running: items.iter().filter(|item| item.running_on.is_some()).count(),
            instances: state.instances.len(),
            servers: state.servers.keys().cloned().collect(),
            disabled_servers: state.servers.keys().filter(|ip| state.server(ip) == Some(ServerState::Disabled)).count(),
            disabled: self.document.as_ref().is_some_and(|document| document.disabled),
            monitored: self.document.as_ref().is_some_and(|document| document.monitor_execution),
        }
    }

    pub(crate) fn detail(&self, configuration: String) -> JobDetail {
        let (items, state) = (self.items(), &self.report.state);
        let instance = |(id, node): (&String, &Node)| {
            let parsed = parse_instance(&node.data);
            Instance {
                id: id.clone(),
                server: parsed.as_ref().map_or_else(|| ip_of(id), |instance| instance.server_ip.clone()),
                kind: if parsed.is_some_and(|instance| instance.is_rust) { "rust" } else { "java" },
                leader: state.leader.as_ref().is_some_and(|leader| leader.text() == *id),
                leaving: state.leaving.contains(id),
                since: node.created.0,
                items: items.iter().filter(|item| item.owner.as_ref() == Some(id)).count(),
            }
        };
        let instances: Vec<Instance> = state.instances.iter().map(instance).collect();
        let server = |ip: &String| Server {
            ip: ip.clone(),
            disabled: state.server(ip) == Some(ServerState::Disabled),
            instances: instances.iter().filter(|instance| instance.server == *ip).count(),
        };
        JobDetail {
            job: self.line(),
            states: self.states(),
            servers: state.servers.keys().map(server).collect(),
            items,
            instances,
            configuration,
        }
    }

    /// The items of the configuration, and those of the registry beyond it that still have a mark or an owner.
    fn items(&self) -> Vec<Item> {
        let total = self.config.as_ref().map_or_else(
            |_| self.document.as_ref().map_or(0, |d| u32::try_from(d.sharding_total_count).unwrap_or_default()),
            |config| config.sharding_total_count,
        );
        let none = ItemReport::default();
        let nodes = |item: u32| self.report.items.get(&item).unwrap_or(&none);
        // Of items that the job has no more, those that still have an owner or a mark.
        let has_rest = |nodes: &ItemReport| {
            let marks = [&nodes.owner, &nodes.running, &nodes.failover, &nodes.failovering, &nodes.misfire];
            marks.into_iter().any(Option::is_some)
        };
        let beyond = self.report.items.iter().filter(|(item, nodes)| **item >= total && has_rest(nodes));
        // A count that is stored and was never checked may be huge.
        (0..total.min(ITEMS_MAX))
            .chain(beyond.map(|(item, _)| *item))
            .map(|item| self.item(item, nodes(item)))
            .collect()
    }

    fn item(&self, item: u32, nodes: &ItemReport) -> Item {
        let state = &self.report.state;
        let is_live = |id: &Option<String>| id.as_ref().is_some_and(|id| state.instances.get(id).is_some());
        let owner = nodes.owner_id();
        let running_on = nodes.running.as_ref().map(|node| named(node).or_else(|| owner.clone()).unwrap_or_default());
        let ledger = nodes.item.as_ref().and_then(|node| Ledger::parse(&node.data));
        let parameter = self.config.as_ref().ok().and_then(|config| config.sharding_item_parameters.get(item));
        Item {
            item,
            parameter: masked(parameter.unwrap_or_default()),
            owner_alive: is_live(&owner),
            owner,
            disabled: nodes.disabled.is_some(),
            runner_alive: is_live(&running_on),
            running_on,
            running_since: nodes.running.as_ref().map(|node| node.modified.0),
            taken_over_by: nodes.failover.as_ref().map(|node| node.text()),
            misfire: nodes.misfire.is_some(),
            last_due: ledger.map(|ledger| ledger.due.0),
        }
    }

    /// All states that apply, the most urgent first; never empty.
    pub(crate) fn states(&self) -> Vec<State> {
        let mut found = Vec::new();
        if let Some(path) = self.report.denied.first() {
            // Nothing else can be said of what was not read.
            return vec![state(StateKind::Denied, "denied", [("path", path.clone())])];
        }
        found.extend(self.bad_configuration());
        found.extend(self.offline());
        found.extend(self.stuck());
        let disabled = self.disabled();
        // While every server is disabled, no assignment is made.
        if disabled.as_ref().is_none_or(|state| state.kind != StateKind::Disabled) {
            found.extend(self.resharding());
        }
        found.extend(disabled);
        found.extend(self.running());
        if found.is_empty() {
            found.push(state(StateKind::Ok, "ok", []));
        }
        found.sort_by_key(|state| state.kind);
        found
    }

    fn bad_configuration(&self) -> Option<State> {
        let text = self.config.as_ref().err()?;
        let since = self.report.state.config.as_ref().map(|node| node.modified.0);
        Some(State { since, ..state(StateKind::BadConfiguration, "bad-configuration", [("text", text.clone())]) })
    }

    fn offline(&self) -> Option<State> {
        self.report.state.instances.is_empty().then(|| state(StateKind::Offline, "offline", []))
    }

    /// The oldest mark whose instance is gone.
    fn stuck(&self) -> Option<State> {
        let mut oldest: Option<State> = None;
        for (item, nodes) in &self.report.items {
            let marks =
                [("running", &nodes.running), ("failover", &nodes.failover), ("failovering", &nodes.failovering)];
            for (mark, node) in marks {
                let Some(node) = node else { continue };
                let Some(instance) = named(node) else { continue };
                if self.report.state.instances.get(&instance).is_some() {
                    continue;
                }
                let args = [("item", item.to_string()), ("mark", mark.to_owned()), ("instance", instance)];
                let found = State { since: Some(node.modified.0), ..state(StateKind::Stuck, "stuck", args) };
                if oldest.as_ref().is_none_or(|oldest| found.since < oldest.since) {
                    oldest = Some(found);
                }
            }
        }
        oldest
    }

    fn resharding(&self) -> Option<State> {
        let state_of_job = &self.report.state;
        if state_of_job.instances.is_empty() {
            return None;
        }
        let owners = || self.report.items.iter().filter_map(|(item, nodes)| Some((item, nodes.owner_id()?)));
        if owners().next().is_none() {
            return Some(state(StateKind::Waiting, "waiting", []));
        }
        if let Some(node) = state_of_job.necessary.as_ref().or(state_of_job.processing.as_ref()) {
            return Some(State { since: Some(node.created.0), ..state(StateKind::Resharding, "resharding", []) });
        }
        if let Some((item, owner)) = owners().find(|(_, owner)| state_of_job.instances.get(owner).is_none()) {
            let args = [("item", item.to_string()), ("instance", owner)];
            return Some(state(StateKind::Resharding, "owner-gone", args));
        }
        let total = self.config.as_ref().map_or(0, |config| config.sharding_total_count);
        let is_unowned = |item: &u32| self.report.items.get(item).and_then(ItemReport::owner_id).is_none();
        let item = (0..total.min(ITEMS_MAX)).find(is_unowned)?;
        Some(state(StateKind::Resharding, "no-owner", [("item", item.to_string())]))
    }

    fn disabled(&self) -> Option<State> {
        let servers = &self.report.state.servers;
        let is_disabled = |ip: &&String| self.report.state.server(ip) == Some(ServerState::Disabled);
        let disabled = servers.keys().filter(is_disabled).count();
        let instances = &self.report.state.instances;
        // The node of a server outlives it: an enabled one without an instance runs nothing.
        let runs_nothing = !instances.is_empty()
            && self.report.state.available().is_empty()
            && !instances.keys().all(|id| self.report.state.leaving.contains(id));
        if disabled > 0 && (disabled == servers.len() || runs_nothing) {
            return Some(state(StateKind::Disabled, "disabled", [("servers", disabled.to_string())]));
        }
        let items: Vec<u32> =
            self.report.items.iter().filter(|(_, nodes)| nodes.disabled.is_some()).map(|(item, _)| *item).collect();
        if disabled == 0 && items.is_empty() {
            return None;
        }
        let shown = items.iter().take(NAMED_MAX).map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let more = if items.len() > NAMED_MAX { ", …" } else { "" };
        let args = [
            ("disabled", disabled.to_string()),
            ("servers", servers.len().to_string()),
            ("items", format!("{shown}{more}")),
        ];
        let reason = match (disabled, items.is_empty()) {
            (0, _) => "items-disabled",
            (_, true) => "servers-disabled",
            (_, false) => "partly-disabled",
        };
        Some(state(StateKind::PartlyDisabled, reason, args))
    }

    fn running(&self) -> Option<State> {
        let running = || self.report.items.values().filter_map(|nodes| nodes.running.as_ref());
        let since = running().map(|node| node.modified.0).min()?;
        let args = [("count", running().count().to_string())];
        Some(State { since: Some(since), ..state(StateKind::Running, "running", args) })
    }
}

/// Maximum number of items that are shown one by one.
const ITEMS_MAX: u32 = 10_000;
/// Maximum number of items that a reason names.
const NAMED_MAX: usize = 10;

fn state<const N: usize>(kind: StateKind, reason: &'static str, args: [(&'static str, String); N]) -> State {
    State { kind, reason, args: args.into(), since: None }
}

/// The instance that a mark names. A mark of Java without data names none.
fn named(node: &Node) -> Option<String> {
    Some(node.text()).filter(|text| !text.is_empty())
}

fn ip_of(id: &str) -> String {
    id.split("@-@").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use elasticjob_core::path::JobPath;
    use elasticjob_core::query::{Answer, Query};
    use elasticjob_core::report::{Detail, Known};

    use super::*;

    const NOW: Timestamp = Timestamp(1_700_000_100_000);
    const CONFIG: &str = "cron: 0/5 * * * * ?\njobName: j\nshardingTotalCount: 2\nmonitorExecution: true\nshardingItemParameters: 0=a,1=b\n";
    const ALIVE: &str = "10.0.0.1@-@1";

    /// A report of a job with these nodes, the last of two with one path.
    fn report(nodes: &[(&str, &str)]) -> JobReport {
        let path = JobPath::new("j");
        let mut tree: BTreeMap<String, Node> = BTreeMap::new();
        for (at, data) in nodes {
            let node = Node::new(data, 1, 0, Timestamp(1_700_000_000_000));
            tree.insert(format!("/j/{at}"), node);
        }
        let mut known = Known::new();
        loop {
            let open: Vec<Query> = JobReport::queries(&path, Detail::Full, &known)
                .into_iter()
                .filter(|q| !known.contains_key(q))
                .collect();
            if open.is_empty() {
                return JobReport::build(&path, &known);
            }
            for query in open {
                let answer = match &query {
                    Query::Node(at) => Answer::Node(tree.get(at).cloned()),
                    Query::Children(at) => {
                        let below =
                            |path: &String| Some(path.strip_prefix(&format!("{at}/"))?.split('/').next()?.to_owned());
                        let names: std::collections::BTreeSet<String> = tree.keys().filter_map(below).collect();
                        Answer::Children((!names.is_empty()).then(|| names.into_iter().collect()))
                    }
                };
                known.insert(query, answer);
            }
        }
    }

    fn instance() -> String {
        elasticjob_core::wire::instance_text(ALIVE, "10.0.0.1")
    }

    #[test]
    fn each_state_has_its_reason_and_its_age() {
        let alive = instance();
        let base = |more: &[(&'static str, &str)]| -> JobReport {
            let mut nodes = vec![
                ("config", CONFIG),
                ("servers/10.0.0.1", "ENABLED"),
                ("servers/10.0.0.2", "ENABLED"),
                ("instances/10.0.0.1@-@1", alive.as_str()),
                ("sharding/0/instance", ALIVE),
                ("sharding/1/instance", ALIVE),
            ];
            nodes.extend_from_slice(more);
            report(&nodes)
        };
        let gone = "10.0.0.9@-@9";
        type Case<'a> = (JobReport, StateKind, &'a str, Vec<(&'a str, &'a str)>);
        let cases: Vec<Case<'_>> = vec![
            (base(&[]), StateKind::Ok, "ok", vec![]),
            (base(&[("sharding/1/running", ALIVE)]), StateKind::Running, "running", vec![("count", "1")]),
            (
                base(&[("sharding/1/running", gone)]),
                StateKind::Stuck,
                "stuck",
                vec![("instance", gone), ("item", "1"), ("mark", "running")],
            ),
            (base(&[("leader/sharding/necessary", "")]), StateKind::Resharding, "resharding", vec![]),
            (
                base(&[("sharding/0/instance", gone)]),
                StateKind::Resharding,
                "owner-gone",
                vec![("instance", gone), ("item", "0")],
            ),
            (base(&[("sharding/1/instance", "")]), StateKind::Resharding, "no-owner", vec![("item", "1")]),
            (
                base(&[("servers/10.0.0.1", "DISABLED"), ("leader/sharding/necessary", "")]),
                StateKind::Disabled,
                "disabled",
                vec![("servers", "1")],
            ),
            (
                base(&[("sharding/1/disabled", ""), ("servers/10.0.0.2", "DISABLED")]),
                StateKind::PartlyDisabled,
                "partly-disabled",
                vec![("disabled", "1"), ("items", "1"), ("servers", "2")],
            ),
            (
                base(&[("servers/10.0.0.1", "DISABLED"), ("servers/10.0.0.2", "DISABLED")]),
                StateKind::Disabled,
                "disabled",
                vec![("servers", "2")],
            ),
            (
                report(&[("config", CONFIG), ("servers/10.0.0.1", "ENABLED"), ("instances/10.0.0.1@-@1", &alive)]),
                StateKind::Waiting,
                "waiting",
                vec![],
            ),
            (report(&[("config", CONFIG), ("servers/10.0.0.1", "ENABLED")]), StateKind::Offline, "offline", vec![]),
        ];
        for (report, kind, reason, args) in cases {
            let first = JobView::new(&report, NOW).states().remove(0);
            let found: Vec<(&str, &str)> = first.args.iter().map(|(name, value)| (*name, value.as_str())).collect();
            assert_eq!((first.kind, first.reason, found), (kind, reason, args));
            let has_age = [StateKind::Running, StateKind::Stuck].contains(&kind) || reason == "resharding";
            assert_eq!(first.since.is_some(), has_age, "{kind:?}");
        }
    }

    #[test]
    fn a_bad_configuration_comes_before_everything_else_and_hides_nothing() {
        let alive = instance();
        let bad = CONFIG.replace("0/5 * * * * ?", "not a cron");
        let report = report(&[("config", &bad), ("instances/10.0.0.1@-@1", &alive), ("sharding/0/running", "x@-@1")]);
        let view = JobView::new(&report, NOW);
        let kinds: Vec<StateKind> = view.states().iter().map(|state| state.kind).collect();
        assert_eq!(kinds, [StateKind::BadConfiguration, StateKind::Stuck, StateKind::Running, StateKind::Waiting]);
        assert!(view.states()[0].args["text"].contains("not a cron"));
        let line = view.line();
        assert_eq!((line.next, line.items, line.cron.as_deref()), (None, 2, Some("not a cron")));
    }

    #[test]
    fn a_line_counts_items_and_a_detail_names_owners_runners_and_takers() {
        let alive = instance();
        let report = report(&[
            ("config", CONFIG),
            ("servers/10.0.0.1", "ENABLED"),
            ("instances/10.0.0.1@-@1", &alive),
            ("leader/election/instance", ALIVE),
            ("sharding/0/instance", ALIVE),
            ("sharding/0", &format!("due=1700000095000 by={ALIVE} session=00000000000000aa begin=7 at=1700000095001")),
            ("sharding/1/instance", "10.0.0.9@-@9"),
            ("sharding/1/failover", ALIVE),
            ("sharding/1/running", ALIVE),
            ("sharding/1/misfire", ""),
            ("sharding/5/running", "10.0.0.9@-@9"),
        ]);
        let view = JobView::new(&report, NOW);
        let line = view.line();
        assert_eq!((line.items, line.owned, line.running, line.instances), (3, 1, 2, 1));
        assert_eq!(line.next, Some(1_700_000_105_000));
        let detail = view.detail(String::new());
        assert_eq!(
            detail.items.iter().map(|item| item.item).collect::<Vec<_>>(),
            [0, 1, 5],
            "5 is left of a larger count"
        );
        assert_eq!(detail.items[0].last_due, Some(1_700_000_095_000));
        assert_eq!((detail.items[0].parameter.as_str(), detail.items[0].owner_alive), ("a", true));
        let second = &detail.items[1];
        assert!(!second.owner_alive && second.misfire && second.runner_alive);
        assert_eq!((second.running_on.as_deref(), second.taken_over_by.as_deref()), (Some(ALIVE), Some(ALIVE)));
        let instance = &detail.instances[0];
        assert_eq!((instance.kind, instance.leader, instance.items), ("rust", true, 1));
        assert_eq!(detail.servers, [Server { ip: "10.0.0.1".into(), disabled: false, instances: 1 }]);
    }
}
