//! Faults and operators.

use std::time::Duration;

use elasticjob_core::machine::Input;
use elasticjob_core::tree::Op;
use elasticjob_core::wire::JobDocument;

use super::{Body, Happening, News, World};
use crate::{Fault, Mark, Order};

/// An instance that never existed.
const GHOST: &str = "10.9.9.9@-@1";

impl World {
    pub(super) fn fault(&mut self, index: usize, fault: Fault) {
        let timeout = self.options.session_timeout;
        let up = self.processes[index].is_up();
        let life = self.processes[index].life;
        match fault {
            Fault::Join if up => {}
            Fault::Join => self.start(index),
            Fault::Order(order) => self.order(index, &order),
            Fault::Operator(ops) => drop(self.transact(0, &ops)),
            Fault::Failover(length) => self.fail_over(length),
            Fault::Full(length) => {
                for index in 0..self.processes.len() {
                    let session = self.processes[index].session;
                    if self.tree.has_session(session) {
                        self.expired.insert(session);
                        self.end_session(session);
                    }
                }
                self.fail_over(length);
            }
            Fault::Clock(millis) => {
                self.processes[index].clock += millis;
                self.stepped_back |= millis < 0 && up;
                if up {
                    self.off.insert(self.processes[index].id.clone());
                    self.plan(self.now, Happening::Wake { process: index, life });
                }
            }
            // No process exists for the fault.
            _ if !up => {}
            Fault::Crash { restart } => {
                self.trouble(restart.unwrap_or_default() + timeout);
                self.end(index);
                if let Some(restart) = restart {
                    let down = self.processes[index].life;
                    self.plan(self.now + restart, Happening::Start { process: index, down });
                }
            }
            Fault::Cut(length) => {
                self.trouble(length + timeout);
                self.disconnect(index, length);
            }
            Fault::Silence(length) => self.block(index, length, true, true),
            Fault::Deaf(length) => self.block(index, length, false, true),
            Fault::Mute(length) => self.block(index, length, true, false),
            Fault::Pause(length) => self.pause(index, length),
            Fault::Stuck(length) => {
                self.trouble(length + timeout);
                let until = self.now + length;
                let process = &mut self.processes[index];
                process.paused_until = process.paused_until.max(until);
                process.stuck_until = process.stuck_until.max(until);
                self.stuck.push((process.id.clone(), self.now, until));
            }
            Fault::Stop { restart } => {
                self.trouble(restart.unwrap_or_default() + Duration::from_secs(1));
                let down = life + 1;
                if let Body::Java(_) = self.processes[index].body {
                    self.learn(index, News::Stop);
                } else {
                    // The third one's is in a hurry.
                    let grace = if index == 2 { 200 } else { 30_000 };
                    let deadline = self.now
                        + Duration::from_millis(grace)
                        + Duration::from_millis(self.processes[index].clock.max(0).unsigned_abs());
                    self.learn(index, News::Input(Box::new(Input::Stop { deadline })));
                }
                if let Some(restart) = restart {
                    let at = self.now + restart + Duration::from_millis(self.options.run_millis.1);
                    self.plan(at, Happening::Start { process: index, down });
                }
            }
            Fault::Expire => {
                self.trouble(timeout);
                let session = self.processes[index].session;
                if self.tree.has_session(session) {
                    self.expired.insert(session);
                    self.end_session(session);
                    let after = Duration::from_millis(self.chance.between(0, 20));
                    let link = self.processes[index].link;
                    self.plan(
                        self.now + after,
                        Happening::Deliver { process: index, link, asked: self.now, parcel: super::Parcel::Connected },
                    );
                }
            }
        }
    }

    /// Remembers that something is wrong for that long.
    fn trouble(&mut self, length: Duration) {
        self.troubles.push((self.now, self.now + length));
    }

    fn block(&mut self, index: usize, length: Duration, mute: bool, deaf: bool) {
        let timeout = self.options.session_timeout;
        self.trouble(length + timeout);
        let until = self.now + length;
        if mute {
            self.not_heard(index);
            let process = &mut self.processes[index];
            process.mute_until = process.mute_until.max(until);
        }
        let process = &mut self.processes[index];
        if deaf {
            process.deaf_until = process.deaf_until.max(until);
        }
        let link = process.link;
        // It hears nothing, or no answer to its pings.
        self.plan(self.now + timeout * 2 / 3, Happening::Notice { process: index, link });
        if mute {
            // The registry hears of it again, unless its session is over.
            let (session, at) = (self.processes[index].session, until + timeout);
            self.plan(at, Happening::Expire { process: index, session });
        }
    }

    fn pause(&mut self, index: usize, length: Duration) {
        let timeout = self.options.session_timeout;
        self.trouble(length + timeout);
        self.not_heard(index);
        let until = self.now + length;
        let process = &mut self.processes[index];
        process.paused_until = process.paused_until.max(until);
        process.stuck_until = self.now;
        if length > timeout * 2 / 3 {
            // It finds that it has not heard anything for too long; whether before or after it has acted is a matter of luck.
            let at = until + Duration::from_millis(if self.chance.below(2) == 0 { 0 } else { 15 });
            self.plan(at, Happening::Strike { process: index, fault: Fault::Cut(Duration::from_millis(20)) });
        }
    }

    /// All connections break. The registry's next leader counts the session times from zero.
    fn fail_over(&mut self, length: Duration) {
        self.trouble(length + self.options.session_timeout);
        self.registry_down_until = self.registry_down_until.max(self.now + length);
        for index in 0..self.processes.len() {
            let after = length + Duration::from_millis(self.chance.between(0, 300));
            self.disconnect(index, after);
        }
    }

    fn order(&mut self, index: usize, order: &Order) {
        let path = self.path.clone();
        let ip = format!("10.0.0.{}", index + 1);
        let id = self.processes[index].id.clone();
        self.trouble(Duration::from_secs(1));
        let transactions: Vec<Vec<Op>> = match order {
            Order::Disable => vec![vec![Op::set(path.server(&ip), "DISABLED")]],
            Order::Enable => vec![vec![Op::set(path.server(&ip), "ENABLED")]],
            Order::DisableItem(item) => vec![vec![Op::create(path.item_disabled(*item), "")]],
            Order::EnableItem(item) => vec![vec![Op::delete(path.item_disabled(*item))]],
            Order::Items(count) => self.reconfigure(|document| document.sharding_total_count = (*count).into()),
            Order::Cron(cron) => self.reconfigure(|document| document.cron = Some(cron.clone())),
            Order::Failover(on) => self.reconfigure(|document| document.failover = *on),
            Order::Misfire(on) => self.reconfigure(|document| document.misfire = *on),
            Order::BadConfig => self.reconfigure(|document| document.cron = Some("sometimes".into())),
            Order::Restore => {
                let mut all = vec![vec![Op::set(path.config(), self.options.document.to_yaml())]];
                let servers = self.tree.children(&path.servers()).unwrap_or_default();
                all.extend(servers.iter().map(|ip| vec![Op::set(path.server(ip), "ENABLED")]));
                let items = self.tree.children(&path.sharding()).unwrap_or_default();
                let items = items.iter().filter_map(|name| elasticjob_core::path::parse_item(name));
                all.extend(items.map(|item| vec![Op::delete(path.item_disabled(item))]));
                all
            }
            Order::Trigger => {
                let instances = self.tree.children(&path.instances()).unwrap_or_default();
                let mut all = vec![vec![Op::Ensure(path.triggers())]];
                all.extend(instances.iter().map(|id| vec![Op::create(path.trigger(id), "")]));
                all
            }
            Order::TriggerItems => {
                let items = self.tree.children(&path.sharding()).unwrap_or_default();
                let mut all = vec![vec![Op::Ensure(path.triggers())]];
                all.extend(items.iter().map(|item| vec![Op::create(path.trigger(item), "")]));
                all
            }
            Order::ShutDown => vec![vec![Op::delete(path.instance(&id))]],
            Order::Mark(mark, item) => self.mark(*mark, *item),
        };
        for ops in transactions {
            let _ = self.transact(0, &ops);
        }
    }

    fn reconfigure(&self, change: impl FnOnce(&mut JobDocument)) -> Vec<Vec<Op>> {
        let stored = self.tree.get(&self.path.config()).and_then(|node| JobDocument::parse(&node.data).ok());
        let Some(mut document) = stored else { return Vec::new() };
        change(&mut document);
        vec![vec![Op::set(self.path.config(), document.to_yaml())]]
    }

    fn mark(&self, mark: Mark, item: u32) -> Vec<Vec<Op>> {
        let path = &self.path;
        match mark {
            Mark::Running => vec![vec![Op::create(path.item_running(item), GHOST)]],
            Mark::Failover => vec![vec![Op::create(path.item_failover(item), GHOST)]],
            Mark::Failovering => vec![vec![Op::create(path.item_failovering(item), GHOST)]],
            Mark::Misfire => vec![vec![Op::create(path.item_misfire(item), "")]],
            Mark::FailoverItem => vec![
                vec![Op::Ensure(path.below("leader/failover")), Op::Ensure(path.failover_items())],
                vec![Op::create(path.failover_item(item), "")],
            ],
            Mark::Processing => vec![vec![Op::create(path.processing(), "")]],
            Mark::Necessary => vec![vec![Op::create(path.necessary(), "")]],
            Mark::Trigger => vec![vec![Op::Ensure(path.triggers()), Op::create(path.trigger(GHOST), "")]],
            Mark::Server => vec![vec![Op::create(path.server("10.9.9.9"), "ENABLED")]],
        }
    }
}
