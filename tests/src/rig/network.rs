//! Hosts of their own on one machine: a network namespace each, joined by a router whose links can be cut and slowed.
//!
//! A cut is a routing rule of the router that drops what comes from a host, goes to one, or both: the hosts' own sockets see
//! nothing of it, as with a switch that lost its way.

use std::cell::RefCell;
use std::collections::BTreeSet;
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
    cuts: RefCell<BTreeSet<Cut>>,
}

/// What does not pass any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
        let network =
            Network { prefix: format!("{PREFIX}{}-{number}-", std::process::id()), hosts, cuts: RefCell::default() };
        let router = network.router();
        ip(&["netns", "add", &router]);
        // Without a check of the way back, which a one-way cut does not have.
        let forward =
            "cd /proc/sys/net/ipv4; echo 1 > ip_forward; echo 0 > conf/all/rp_filter; echo 0 > conf/default/rp_filter";
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
        // It ends with us, however we end.
        there.args(["netns", "exec", &self.space(host), "setpriv", "--pdeathsig", "KILL"]);
        there.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => there.env(name, value),
                None => there.env_remove(name),
            };
        }
        there
    }

    /// Cuts something, or mends it; what is as it should be stays so.
    pub(super) fn set(&self, cut: Cut, off: bool) {
        let mut cuts = self.cuts.borrow_mut();
        let changed = if off { cuts.insert(cut) } else { cuts.remove(&cut) };
        if changed {
            self.rule(if off { "add" } else { "del" }, cut);
        }
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

/// Namespaces and disks of processes that were killed before they could remove theirs.
fn sweep() {
    let is_left = |name: &str| {
        let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
    };
    for space in std::fs::read_dir("/run/netns").into_iter().flatten().flatten() {
        let name = space.file_name().to_string_lossy().into_owned();
        if is_left(&name) {
            remove(&name);
        }
    }
    for mount in std::fs::read_to_string("/proc/mounts").unwrap_or_default().lines() {
        let mut words = mount.split(' ');
        if let (Some(name), Some(folder)) = (words.next(), words.next())
            && is_left(name)
        {
            let _ = Command::new("umount").args(["--lazy", folder]).output();
        }
    }
}

/// The name of a disk of this process.
pub(super) fn disk() -> String {
    format!("{PREFIX}{}-disk", std::process::id())
}

fn remove(space: &str) {
    // Another process may be cleaning up too.
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
