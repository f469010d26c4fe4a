//! What goes wrong in a chapter, and when: from a seed.

use std::fmt;

use elasticjob_sim::Chance;

/// One kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `kill -9` of an agent; it is started again.
    Kill,
    /// SIGTERM to an agent; it is started again.
    Stop,
    /// An agent is paused (SIGSTOP).
    Pause,
    /// An agent's host is cut off.
    Cut,
    /// Nothing arrives at an agent's host.
    Deaf,
    /// Nothing that an agent's host sends arrives.
    Mute,
    /// An agent's host is cut off and back, twice a second.
    Flap,
    /// An agent's host has a slow link.
    Slow,
    /// An agent is started again with a clock that is off, and once more with a right one.
    Clock,
    /// `kill -9` of a ZooKeeper server; it is started again.
    KeeperKill,
    /// A ZooKeeper server is paused.
    KeeperPause,
    /// A ZooKeeper server's host is cut off from all.
    KeeperCut,
    /// A ZooKeeper server does not hear the other two, which hear it.
    KeeperDeaf,
    /// A ZooKeeper server's host has a slow link.
    KeeperSlow,
    /// The disk of a ZooKeeper server is full.
    DiskFull,
    /// All ZooKeeper servers are killed, and started again.
    Outage,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 16] = [
        Kind::Kill,
        Kind::Stop,
        Kind::Pause,
        Kind::Cut,
        Kind::Deaf,
        Kind::Mute,
        Kind::Flap,
        Kind::Slow,
        Kind::Clock,
        Kind::KeeperKill,
        Kind::KeeperPause,
        Kind::KeeperCut,
        Kind::KeeperDeaf,
        Kind::KeeperSlow,
        Kind::DiskFull,
        Kind::Outage,
    ];

    /// Whether a ZooKeeper server has it.
    pub fn is_keeper_s(self) -> bool {
        self >= Kind::KeeperKill
    }

    /// How long it lasts, in milliseconds, from and to.
    fn length(self) -> (u64, u64) {
        match self {
            Kind::Kill => (500, 9_000),
            // Runs are let end.
            Kind::Stop => (4_000, 9_000),
            Kind::Pause | Kind::Cut | Kind::Deaf | Kind::Mute => (500, 12_000),
            Kind::Flap | Kind::Slow => (4_000, 15_000),
            Kind::Clock => (10_000, 20_000),
            Kind::KeeperKill | Kind::KeeperPause | Kind::KeeperCut | Kind::KeeperDeaf => (1_000, 10_000),
            Kind::KeeperSlow | Kind::DiskFull => (5_000, 12_000),
            Kind::Outage => (500, 8_000),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Kill => "agent killed (kill -9)",
            Kind::Stop => "agent stopped (SIGTERM)",
            Kind::Pause => "agent stands still (SIGSTOP)",
            Kind::Cut => "agent's host cut off",
            Kind::Deaf => "agent's host cut one way: hears nothing",
            Kind::Mute => "agent's host cut one way: is not heard",
            Kind::Flap => "agent's link flaps",
            Kind::Slow => "agent's link slow (64 kbit/s)",
            Kind::Clock => "agent's clock off (±1 to 3 s)",
            Kind::KeeperKill => "ZooKeeper server killed (kill -9)",
            Kind::KeeperPause => "ZooKeeper server stands still (SIGSTOP)",
            Kind::KeeperCut => "ZooKeeper server's host cut off",
            Kind::KeeperDeaf => "ZooKeeper server cut one way: hears not the others",
            Kind::KeeperSlow => "ZooKeeper server's link slow (64 kbit/s)",
            Kind::DiskFull => "ZooKeeper server's disk full",
            Kind::Outage => "all ZooKeeper servers killed",
        })
    }
}

/// What is quiet around a fault that is to be alone, in milliseconds: longer than any other one is felt.
const ALONE: u64 = 15_000;

/// One fault of a chapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What.
    pub kind: Kind,
    /// When, in milliseconds from the chapter's beginning.
    pub at: u64,
    /// How long it lasts, in milliseconds.
    pub length: u64,
    /// Which agent's host, from 0 on; of ZooKeeper's servers 0 to 2.
    pub target: u8,
    /// By how many seconds a clock is off.
    pub off: i64,
}

/// The faults of a chapter of that length, in milliseconds: each kind comes as often as the others, at most three at once, of
/// which one is ZooKeeper's, and one host has one at a time. Clocks are off where `ours` says that an agent is one of ours:
/// libfaketime stops the timers of a JVM.
pub(super) fn plan(seed: u64, length: u64, agents: u8, ours: fn(u8) -> bool) -> Vec<Fault> {
    let mut chance = Chance::new(seed);
    let mut faults: Vec<Fault> = Vec::new();
    let mut deck: Vec<Kind> = Vec::new();
    let mut at = 1_000;
    while at < length {
        if deck.is_empty() {
            deck = Kind::ALL.to_vec();
        }
        let kind = deck.swap_remove(usize::try_from(chance.below(deck.len() as u64)).unwrap_or_default());
        let (low, high) = kind.length();
        let length = chance.between(low, high);
        let target = chance.below(if kind.is_keeper_s() { 3 } else { agents.into() });
        let mut target = u8::try_from(target).unwrap_or_default();
        while kind == Kind::Clock && !ours(target) {
            target = (target + 1) % agents;
        }
        let off = i64::try_from(chance.between(1, 3)).unwrap_or(1) * if chance.below(2) == 0 { 1 } else { -1 };
        let fault = Fault { kind, at, length, target, off };
        // What a host needs to be up again counts as the fault's.
        let ends = |other: &Fault| other.at + other.length + 2_000;
        let meets = |other: &&Fault| ends(other) > at;
        let same = |other: &Fault| {
            kind.is_keeper_s() == other.kind.is_keeper_s() && (kind.is_keeper_s() || other.target == target)
        };
        let under_way = faults.iter().filter(meets).count();
        let wait = faults.iter().filter(meets).filter(|other| same(other) || under_way > 2).map(ends).max();
        faults.push(Fault { at: wait.unwrap_or(at), ..fault });
        at = wait.unwrap_or(at) + chance.between(500, 9_000);
        if deck.is_empty() {
            // One death alone, so that no other fault can be the reason for a missing takeover.
            let at_rest = faults.iter().map(|fault| fault.at + fault.length).max().unwrap_or_default() + ALONE;
            let target = u8::try_from(chance.below(agents.into())).unwrap_or_default();
            faults.push(Fault { kind: Kind::Kill, at: at_rest, length: 8_000, target, off: 0 });
            at = at_rest + 8_000 + ALONE;
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_decides_and_no_host_has_two_faults_at_the_same_time() {
        for seed in 0..200 {
            let faults = plan(seed, 300_000, 4, |agent| agent % 2 == 1);
            assert_eq!(faults, plan(seed, 300_000, 4, |agent| agent % 2 == 1));
            assert!(faults.iter().all(|fault| fault.kind != Kind::Clock || fault.target % 2 == 1), "{faults:?}");
            assert!(
                Kind::ALL.iter().all(|kind| faults.iter().any(|fault| fault.kind == *kind)),
                "each kind: {faults:?}"
            );
            for (index, one) in faults.iter().enumerate() {
                for other in &faults[index + 1..] {
                    let at_once = other.at < one.at + one.length;
                    let same = one.kind.is_keeper_s() == other.kind.is_keeper_s()
                        && (one.kind.is_keeper_s() || one.target == other.target);
                    assert!(other.at >= one.at && !(at_once && same), "seed {seed}: {one:?} and {other:?}");
                }
            }
        }
    }
}
