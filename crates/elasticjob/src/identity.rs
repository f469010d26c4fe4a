//! Who this process is: `<ip>@-@<number>` (Java: `IpUtils`, `JobInstance`). The number is the process id, but where that
//! is taken by another life of the same address and id, as in containers, or by another connection of this process.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use elasticjob_core::machine::Identity;
use parking_lot::Mutex;
use regex::Regex;

use crate::Error;

/// The choice of the address by which other instances know this server (Java: the system properties
/// `elasticjob.preferred.network.interface` and `.ip`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NetworkPreference {
    /// The name of an interface. Any by default.
    pub interface: Option<String>,
    /// A prefix of the address, or a regular expression for the whole of it. Any by default.
    pub ip: Option<String>,
}

impl NetworkPreference {
    /// Prefers the addresses of an interface.
    #[must_use]
    pub fn interface(mut self, name: impl Into<String>) -> NetworkPreference {
        self.interface = Some(name.into());
        self
    }

    /// Prefers addresses with a prefix, or that a regular expression matches as a whole.
    #[must_use]
    pub fn address(mut self, pattern: impl Into<String>) -> NetworkPreference {
        self.ip = Some(pattern.into());
        self
    }
}

/// One address of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Address {
    interface: String,
    ip: IpAddr,
    /// Whether its interface is up and connected: the bridge of a container engine without containers is not.
    is_running: bool,
}

/// The address that the preference chooses: as in Java the IPv4 address of an interface, on a host without one an IPv6 address that
/// others can reach.
///
/// `is_shared` says whether other hosts meet this one in the registry. Without them a host that has only its loopback is named by
/// that.
///
/// # Errors
///
/// No address fits the preference, or there is none that other hosts could know this one by.
pub fn server_ip(preference: &NetworkPreference, is_shared: bool) -> Result<String, Error> {
    let found = if_addrs::get_if_addrs().map_err(|e| Error::Identity { reason: e.to_string() })?;
    let addresses: Vec<Address> = found
        .into_iter()
        .filter(|address| !address.ip().is_unspecified())
        .map(|address| Address { ip: address.ip(), is_running: address.is_oper_up(), interface: address.name })
        .collect();
    let ip = choose(&addresses, preference, is_shared)?;
    let others: Vec<String> = others(&addresses, ip).map(|a| format!("{} ({})", a.ip, a.interface)).collect();
    if is_shared && *preference == NetworkPreference::default() && !others.is_empty() {
        tracing::info!(
            server = %ip,
            "this host has several addresses; other instances know it by the one in `server`, and not by {}; ELASTICJOB_PREFERRED_NETWORK_IP chooses another one",
            others.join(", ")
        );
    }
    Ok(ip.to_string())
}

/// Other addresses of the same kind that could have been chosen.
fn others(addresses: &[Address], chosen: IpAddr) -> impl Iterator<Item = &Address> {
    let is_candidate = move |a: &&Address| a.ip != chosen && a.ip.is_ipv4() == chosen.is_ipv4() && a.is_running;
    addresses.iter().filter(|address| !is_local(&address.ip)).filter(is_candidate)
}

/// Addresses that other hosts cannot use. Link-local ones mean nothing without their interface.
fn is_local(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unicast_link_local(),
    }
}

/// Java's rule for addresses of one kind: the named interface, else the last one that has a fitting address; of that one the first
/// such.
fn choose_among(addresses: &[&Address], preference: &NetworkPreference) -> Option<IpAddr> {
    let preferred = |address: &&&Address| preference.ip.as_deref().is_none_or(|p| is_preferred(p, address.ip));
    let interface = match &preference.interface {
        Some(name) => addresses.iter().find(|a| a.interface == *name).map(|a| &a.interface),
        None => addresses.iter().rfind(preferred).map(|a| &a.interface),
    };
    addresses.iter().filter(|a| Some(&a.interface) == interface).find(preferred).map(|address| address.ip)
}

fn choose(addresses: &[Address], preference: &NetworkPreference, is_shared: bool) -> Result<IpAddr, Error> {
    let usable = |is_v4: bool, running: bool| -> Option<IpAddr> {
        let is_usable = |a: &&Address| !is_local(&a.ip) && a.ip.is_ipv4() == is_v4 && (a.is_running || !running);
        choose_among(&addresses.iter().filter(is_usable).collect::<Vec<_>>(), preference)
    };
    // An interface that is down is chosen only where no other one has an address.
    let kinds = [(true, true), (false, true), (true, false), (false, false)];
    let found = kinds.into_iter().find_map(|(is_v4, running)| usable(is_v4, running));
    if let Some(ip) = found {
        return Ok(ip);
    }
    let whole = |text: &str| preference.ip.as_deref() == Some(text);
    let have: Vec<String> = addresses.iter().map(|a| format!("{} {}", a.interface, a.ip)).collect();
    let have = if have.is_empty() { "none".to_owned() } else { have.join(", ") };
    match (&preference.interface, &preference.ip) {
        (None, None) if !is_shared => Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        // A name that was given counts.
        (None, Some(ip)) if whole("127.0.0.1") || whole("::1") => {
            ip.parse().map_err(|_| Error::Identity { reason: format!("`{ip}` is not an IP address") })
        }
        (None, None) => {
            let reason = format!(
                "this host has no address that other hosts can reach; its addresses: {have}; set ELASTICJOB_PREFERRED_NETWORK_IP (127.0.0.1 if all instances run on this host)"
            );
            Err(Error::Identity { reason })
        }
        (interface, ip) => {
            let reason = format!(
                "no address of this host that other hosts can reach matches the preferred interface {:?} and address {:?}; addresses of this host: {have}; change ELASTICJOB_PREFERRED_NETWORK_INTERFACE or ELASTICJOB_PREFERRED_NETWORK_IP",
                interface.as_deref().unwrap_or("any"),
                ip.as_deref().unwrap_or("any"),
            );
            Err(Error::Identity { reason })
        }
    }
}

fn is_preferred(preference: &str, ip: IpAddr) -> bool {
    let text = ip.to_string();
    let whole = || Regex::new(&format!("^(?:{preference})$")).is_ok_and(|r| r.is_match(&text));
    // IPv6 addresses have several spellings.
    let same = || preference.trim_start_matches('[').trim_end_matches(']').parse() == Ok(ip);
    text.starts_with(preference) || same() || whole()
}

/// The lives that connections of this process have, by what their registry calls itself and their address. Who comes at the
/// same moment cannot see it in the registry, and would be the same instance.
static LIVES: Mutex<BTreeSet<(String, String, u32)>> = Mutex::new(BTreeSet::new());

/// One life of this process, until it is dropped: 0 for the process id itself, more where that id is taken.
#[derive(Debug)]
pub(crate) struct LifeOf {
    registry: String,
    server_ip: String,
    life: u32,
}

impl LifeOf {
    /// `None` where another connection of this process has it.
    pub(crate) fn take(registry: &str, server_ip: &str, life: u32) -> Option<LifeOf> {
        let is_free = LIVES.lock().insert((registry.to_owned(), server_ip.to_owned(), life));
        is_free.then(|| LifeOf { registry: registry.to_owned(), server_ip: server_ip.to_owned(), life })
    }

    pub(crate) fn identity(&self) -> Identity {
        // Process ids are below 2^22 on Linux.
        let number = u64::from(std::process::id()) + (u64::from(self.life) << 22);
        Identity { id: format!("{}@-@{number}", self.server_ip), server_ip: self.server_ip.clone() }
    }
}

impl Drop for LifeOf {
    fn drop(&mut self) {
        let own = (std::mem::take(&mut self.registry), std::mem::take(&mut self.server_ip), self.life);
        LIVES.lock().remove(&own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preferred_addresses_are_chosen_as_by_java() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../elasticjob-core/tests/vectors/ip.json");
        let vectors: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(path).expect("vectors")).expect("JSON");
        for case in vectors["preferred_ip"].as_array().expect("cases") {
            let ip: IpAddr = case["address"].as_str().expect("text").parse().expect("an address");
            let preference = case["preferred_network_ip"].as_str().expect("text");
            assert_eq!(Some(is_preferred(preference, ip)), case["preferred"].as_bool(), "{case}");
        }
    }

    #[test]
    fn an_ipv6_address_is_preferred_in_each_of_its_spellings() {
        let ip: IpAddr = "fd00:9::b".parse().expect("an address");
        for preference in ["fd00:9::b", "FD00:9::B", "fd00:9:0:0:0:0:0:b", "[fd00:9::000b]", "fd00:9"] {
            assert!(is_preferred(preference, ip), "{preference}");
        }
        assert!(!is_preferred("fd00:9::c", ip));
    }

    #[test]
    fn two_connections_of_a_process_have_two_lives() {
        let take = |life| LifeOf::take("two-lives", "10.0.0.1", life);
        let first = take(0).expect("free");
        assert!(take(0).is_none());
        let second = take(1).expect("free");
        assert_ne!(first.identity(), second.identity());
        assert!(LifeOf::take("another", "10.0.0.1", 0).is_some(), "another registry");
        drop(first);
        assert!(take(0).is_some());
    }

    fn address(interface: &str, ip: &str) -> Address {
        Address { interface: interface.into(), ip: ip.parse().expect("an address"), is_running: true }
    }

    #[test]
    fn an_interface_that_is_down_and_a_link_local_address_are_not_chosen_while_there_is_another_one() {
        let down = |interface: &str, ip: &str| Address { is_running: false, ..address(interface, ip) };
        let any = preference(None, None);
        let chosen = |host: &[Address]| choose(host, &any, true).map(|ip| ip.to_string()).ok();
        let (up, bridge) = (address("eth0", "192.168.50.5"), down("docker0", "172.17.0.1"));
        assert_eq!(chosen(&[up.clone(), bridge.clone()]).as_deref(), Some("192.168.50.5"));
        assert_eq!(chosen(&[address("eth0", "fd00:10::2"), bridge.clone()]).as_deref(), Some("fd00:10::2"));
        assert_eq!(
            chosen(&[address("eth0", "fd00:10::2"), address("eth0", "169.254.7.7")]).as_deref(),
            Some("fd00:10::2")
        );
        assert_eq!(chosen(std::slice::from_ref(&bridge)).as_deref(), Some("172.17.0.1"), "the only one");
        let named = choose(&[up.clone(), bridge], &preference(Some("docker0"), None), true);
        assert_eq!(named.map(|ip| ip.to_string()).ok().as_deref(), Some("172.17.0.1"), "one that is named counts");
        let host = [up, address("eth1", "10.0.0.1"), address("eth1", "fd00::1"), down("b", "10.9.9.9")];
        let ip = choose(&host, &any, true).expect("an address");
        let found: Vec<String> = others(&host, ip).map(|a| a.ip.to_string()).collect();
        assert_eq!((ip.to_string().as_str(), found), ("10.0.0.1", vec!["192.168.50.5".to_owned()]));
    }

    fn preference(interface: Option<&str>, ip: Option<&str>) -> NetworkPreference {
        NetworkPreference { interface: interface.map(str::to_owned), ip: ip.map(str::to_owned) }
    }

    #[test]
    fn the_interface_is_chosen_first() {
        let host = [
            address("lo", "127.0.0.1"),
            address("a", "10.0.0.1"),
            address("a", "10.0.0.2"),
            address("a", "2001:db8::1"),
            address("b", "192.168.0.1"),
        ];
        for (wanted, expected) in [
            (preference(None, None), Some("192.168.0.1")),
            (preference(Some("a"), None), Some("10.0.0.1")),
            (preference(Some("a"), Some("10.0.0.2")), Some("10.0.0.2")),
            (preference(None, Some("10.")), Some("10.0.0.1")),
            (preference(None, Some("2001:")), Some("2001:db8::1")),
            (preference(None, Some("127.0.0.1")), Some("127.0.0.1")),
            (preference(Some("b"), Some("10.")), None),
            (preference(Some("c"), None), None),
        ] {
            let found = choose(&host, &wanted, true).ok().map(|ip| ip.to_string());
            assert_eq!(found.as_deref(), expected, "{wanted:?}");
        }
        let error = choose(&host, &preference(Some("c"), None), true).expect_err("none fits").to_string();
        assert!(error.contains("a 10.0.0.1, a 10.0.0.2, a 2001:db8::1, b 192.168.0.1"), "{error}");
    }

    #[test]
    fn a_host_without_ipv4_is_known_by_its_ipv6_address_and_one_without_either_says_how_to_name_one() {
        let host = [
            address("lo", "127.0.0.1"),
            address("lo", "::1"),
            address("eth0", "fe80::1"),
            address("eth0", "2001:db8::7"),
            address("eth0", "fd00::7"),
        ];
        let any = preference(None, None);
        assert_eq!(choose(&host, &any, true).map(|ip| ip.to_string()), Ok("2001:db8::7".to_owned()));
        let fits = choose(&host, &preference(None, Some("fd00:.*")), true);
        assert_eq!(fits.map(|ip| ip.to_string()), Ok("fd00::7".to_owned()));
        let error = choose(&host[..3], &any, true).expect_err("nothing usable").to_string();
        assert!(error.contains("ELASTICJOB_PREFERRED_NETWORK_IP"), "{error}");
        assert!(error.contains("lo 127.0.0.1, lo ::1, eth0 fe80::1"), "{error}");
        assert_eq!(choose(&host[..3], &any, false), Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)), "no other host is connected");
        assert!(choose(&[], &any, true).is_err());
    }
}
