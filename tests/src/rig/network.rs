//! Hosts of their own on one machine: a network namespace each, joined by a router whose links can be cut and slowed.
//!
//! A cut is a routing rule of the router that drops what comes from a host, goes to one, or both: the hosts' own sockets see
//! nothing of it, as with a switch that lost its way.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Namespaces of this process until now: several networks do not meet.
static NETWORKS: AtomicU32 = AtomicU32::new(0);

/// Several hosts and the router between them. They are gone with this value.
#[derive(Debug)]
pub(super) struct Network {
    prefix: String,
    hosts: u8,
}

/// What does not pass any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// What this host sends.
    From(u8),
    /// What is sent to it.
    To(u8),
    /// What the first sends to the second.
    Between(u8, u8),
}

impl Network {
    /// So many hosts, numbered from 1 on, who all reach each other.
    ///
    /// # Panics
    ///
    /// Without the rights of root, and where `ip` is not installed.
    pub(super) fn new(hosts: u8) -> Network {
        sweep();
        let number = NETWORKS.fetch_add(1, Ordering::Relaxed);
        let network = Network { prefix: format!("{PREFIX}{}-{number}-", std::process::id()), hosts };
        let router = network.router();
        ip(&["netns", "add", &router]);
        let forward = "echo 1 > /proc/sys/net/ipv4/ip_forward";
        ip(&["netns", "exec", &router, "sh", "-c", forward]);
        for host in 1..=hosts {
            let (space, link) = (network.space(host), link(host));
            ip(&["netns", "add", &space]);
            let peer = ["peer", "name", "eth0", "netns", &space];
            ip(&[["link", "add", &link, "netns", &router, "type", "veth"].as_slice(), &peer].concat());
            let (near, far) = (format!("10.77.{host}.1"), format!("{}/30", address(host)));
            ip(&["-n", &router, "addr", "add", &format!("{near}/30"), "dev", &link]);
            ip(&["-n", &space, "addr", "add", &far, "dev", "eth0"]);
            ip(&["-n", &router, "link", "set", &link, "up"]);
            ip(&["-n", &space, "link", "set", "eth0", "up"]);
            ip(&["-n", &space, "link", "set", "lo", "up"]);
            ip(&["-n", &space, "route", "add", "default", "via", &near]);
        }
        network
    }

    /// That command, on that host.
    pub(super) fn on(&self, host: u8, command: &Command) -> Command {
        let mut there = Command::new("ip");
        there.args(["netns", "exec", &self.space(host)]).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => there.env(name, value),
                None => there.env_remove(name),
            };
        }
        there
    }

    /// Cuts something.
    ///
    /// # Panics
    ///
    /// When it is cut already.
    pub(super) fn cut(&self, cut: Cut) {
        self.rule("add", cut);
    }

    /// Mends it.
    ///
    /// # Panics
    ///
    /// When it was not cut.
    pub(super) fn mend(&self, cut: Cut) {
        self.rule("del", cut);
    }

    fn rule(&self, what: &str, cut: Cut) {
        let router = self.router();
        let mut arguments = vec!["-n", &router, "rule", what];
        let (from, to) = match cut {
            Cut::From(host) => (Some(link(host)), None),
            Cut::To(host) => (None, Some(address(host))),
            Cut::Between(one, other) => (Some(link(one)), Some(address(other))),
        };
        arguments.extend(from.iter().flat_map(|link| ["iif", link.as_str()]));
        arguments.extend(to.iter().flat_map(|address| ["to", address.as_str()]));
        arguments.push("blackhole");
        ip(&arguments);
    }

    /// Lets a host's link carry so many bits a second, both ways.
    ///
    /// # Panics
    ///
    /// When it is slow already.
    pub(super) fn slow(&self, host: u8, bits: u32) {
        for (space, link) in [(self.router(), link(host)), (self.space(host), "eth0".to_owned())] {
            let rate = format!("{bits}bit");
            let shape = ["tbf", "rate", &rate, "burst", "2kb", "latency", "3s"];
            run("tc", &[["-n", &space, "qdisc", "add", "dev", &link, "root"].as_slice(), &shape].concat());
        }
    }

    /// Lets it carry all again.
    ///
    /// # Panics
    ///
    /// When it was not slow.
    pub(super) fn quicken(&self, host: u8) {
        for (space, link) in [(self.router(), link(host)), (self.space(host), "eth0".to_owned())] {
            run("tc", &["-n", &space, "qdisc", "del", "dev", &link, "root"]);
        }
    }

    fn router(&self) -> String {
        format!("{}router", self.prefix)
    }

    fn space(&self, host: u8) -> String {
        format!("{}{host}", self.prefix)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let spaces = (1..=self.hosts).map(|host| self.space(host)).chain([self.router()]);
        spaces.for_each(|space| remove(&space));
    }
}

const PREFIX: &str = "elasticjob-";

/// A host's address.
pub(super) fn address(host: u8) -> String {
    format!("10.77.{host}.2")
}

/// The router's end of a host's link.
fn link(host: u8) -> String {
    format!("host{host}")
}

/// Namespaces of processes that were killed before they could remove theirs.
fn sweep() {
    let Ok(spaces) = std::fs::read_dir("/run/netns") else { return };
    for space in spaces.flatten() {
        let name = space.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            remove(&name);
        }
    }
}

fn remove(space: &str) {
    // Somebody else may be sweeping too.
    let _ = Command::new("ip").args(["netns", "del", space]).output();
}

fn ip(arguments: &[&str]) {
    run("ip", arguments);
}

pub(super) fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    let hint = "network namespaces want the rights of root and Debian's package iproute2";
    assert!(output.status.success(), "{program} {}: {} ({hint})", arguments.join(" "), errors.trim());
}
