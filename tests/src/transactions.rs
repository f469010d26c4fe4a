//! The transactions that an ensemble of ZooKeeper servers committed, from the transaction logs of each.
//!
//! No log is the whole truth: a leader that was cut off wrote down what nobody followed, and a server that was away for long
//! got a snapshot, and has no log of the time before. So all logs are put together, and what a leader's term ended with is
//! what the next leader's own log has of it. Even that may say too much: a server can log the last transactions of a dying leader
//! without applying them, and then be elected; they are in its log and not in its tree (ZOOKEEPER-3023, ZOOKEEPER-3911; seen with
//! 3.8). Later transactions show which: a node is created that would be there, or deleted that would not. And it may say too little:
//! a server whose disk was full keeps a snapshot of transactions that no log has, and serves it when it comes back (seen with 3.8
//! too, half a transaction of several operations being in it).

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Transactions that may have been under way when a leader's term ended.
const TAIL: i64 = 32;

/// The transactions of one server: their lines by zxid.
pub(crate) type Log = BTreeMap<i64, Vec<String>>;

/// The committed transactions.
#[derive(Debug, PartialEq)]
pub(crate) struct CarriedOut {
    pub(crate) log: Log,
    /// Those that cannot have been, after what the logs have before them, and those that a snapshot has and no log.
    pub(crate) unexplained: Vec<i64>,
}

/// Finds them in the logs of all servers; `snapshots` says up to which transactions their snapshots go.
///
/// # Panics
///
/// When no server has one of those between others: the evidence would have a hole.
pub(crate) fn carried_out(logs: &[Log], snapshots: &[i64]) -> CarriedOut {
    let mut all = Log::new();
    for log in logs {
        all.extend(log.iter().map(|(zxid, lines)| (*zxid, lines.clone())));
    }
    let everything = all.clone();
    let terms: BTreeSet<i64> = all.keys().map(|zxid| term(*zxid)).collect();
    for (this, next) in terms.iter().zip(terms.iter().skip(1)) {
        let first = all.range(next << 32..).next().map(|(zxid, _)| *zxid);
        // Who has the first one of a term was there from its beginning.
        let witnesses = logs.iter().filter(|log| first.is_some_and(|first| log.contains_key(&first)));
        let last =
            witnesses.filter_map(|log| log.range(this << 32..next << 32).next_back()).map(|(zxid, _)| *zxid).max();
        // If none of them has anything of this term, its leader had no followers, or they got it as a snapshot.
        all.retain(|zxid, _| term(*zxid) != *this || last.is_some_and(|last| *zxid <= last));
    }
    let first = all.keys().next().map_or(1, |zxid| zxid & 0xFFFF_FFFF);
    assert!(first == 1, "no server has what came before {first:x}");
    for (one, other) in all.keys().zip(all.keys().skip(1)) {
        let follows = if term(*one) == term(*other) { one + 1 == *other } else { other & 0xFFFF_FFFF == 1 };
        assert!(follows, "no server has what came behind {one:x}, before {other:x}");
    }
    let mut found = settle_ends(all, &everything);
    // One with the number 0 begins a term, and is in no log.
    let is_lost = |zxid: &&i64| *zxid & 0xFFFF_FFFF != 0 && !everything.contains_key(zxid);
    found.unexplained.extend(snapshots.iter().filter(is_lost));
    found.unexplained.sort_unstable();
    found
}

/// Puts the ends of terms where what comes later says that they are. Where no end explains that, it is told.
fn settle_ends(mut all: Log, everything: &Log) -> CarriedOut {
    let (mut unexplained, mut from, mut given_up) = (Vec::new(), 0, None);
    while let Some(at) = contradiction(&all, from) {
        let before = all.range(..term(at) << 32).next_back().map_or(0, |(zxid, _)| *zxid);
        if given_up == Some(before) {
            unexplained.push(at);
            from = at;
            continue;
        }
        let of = term(before);
        // Within that term, or within one behind it of which nothing was taken in.
        let ends: Vec<i64> = everything.range(before - TAIL..term(at) << 32).map(|(zxid, _)| *zxid).rev().collect();
        let with_end = |end: &i64| {
            let mut trial = all.clone();
            trial.retain(|zxid, _| term(*zxid) != of || zxid <= end);
            let more = everything.range(before + 1..).take_while(|(zxid, _)| *zxid <= end);
            let more = more.filter(|(zxid, _)| term(**zxid) == term(*end));
            trial.extend(more.map(|(zxid, lines)| (*zxid, lines.clone())));
            trial
        };
        let ends = ends.iter().filter(|end| **end != before && term(**end) >= of);
        match ends.map(with_end).find(|trial| contradiction(trial, from).is_none_or(|next| next > at)) {
            Some(trial) => all = trial,
            None => {
                unexplained.push(at);
                (from, given_up) = (at, Some(before));
            }
        }
    }
    CarriedOut { log: all, unexplained }
}

/// The first transaction behind that one that cannot have been carried out where all before it were: it creates a node that
/// is there, or writes or deletes one that is not.
fn contradiction(all: &Log, from: i64) -> Option<i64> {
    let mut nodes: HashMap<&str, u64> = HashMap::new();
    for (zxid, lines) in all {
        for line in lines {
            let fields: Vec<&str> = line.split('\t').collect();
            let [_, session, what, node, _, ephemeral] = fields.as_slice() else { continue };
            let session = u64::from_str_radix(session, 16).unwrap_or_default();
            let is_possible = match *what {
                "write" => nodes.insert(node, if *ephemeral == "1" { session } else { 0 }).is_none(),
                "set" => nodes.contains_key(node) || is_system(node),
                "delete" => nodes.remove(node).is_some() || is_system(node),
                "end" => {
                    nodes.retain(|_, owner| *owner == 0 || *owner != session);
                    true
                }
                _ => true,
            };
            if !is_possible && *zxid > from {
                return Some(*zxid);
            }
        }
    }
    None
}

/// Nodes that are there from the beginning.
fn is_system(node: &str) -> bool {
    node == "/" || node.starts_with("/zookeeper")
}

/// The leader's term: the upper half of a zxid.
fn term(zxid: i64) -> i64 {
    zxid >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(ranges: &[(i64, i64, i64)]) -> Log {
        let zxids = ranges.iter().flat_map(|(term, from, to)| (*from..=*to).map(move |n| (term << 32) + n));
        zxids.map(|zxid| (zxid, vec![format!("{zxid:x}")])).collect()
    }

    #[test]
    fn what_a_leader_alone_wrote_does_not_count() {
        // The third one led first, was cut off and wrote 5 and 6; the second one led then.
        let logs = [log(&[(1, 1, 2), (2, 3, 4)]), log(&[(1, 1, 4), (2, 1, 4)]), log(&[(1, 1, 6), (2, 3, 4)])];
        assert_eq!(carried_out(&logs, &[]).log, log(&[(1, 1, 4), (2, 1, 4)]));
        let one = [log(&[(1, 1, 9), (2, 1, 1)])];
        assert_eq!(carried_out(&one, &[]).log, one[0]);
    }

    #[test]
    fn a_leader_without_followers_has_had_no_term() {
        let logs =
            [log(&[(1, 1, 4), (3, 1, 5)]), log(&[(1, 1, 4), (3, 1, 5)]), log(&[(1, 1, 4), (2, 1, 3), (3, 4, 5)])];
        assert_eq!(carried_out(&logs, &[]).log, log(&[(1, 1, 4), (3, 1, 5)]));
    }

    #[test]
    fn a_term_that_is_known_by_snapshots_alone_counts() {
        let line =
            |term: i64, n: i64, what: &str, node: &str| ((term << 32) + n, vec![format!("0\t7\t{what}\t{node}\t\t0")]);
        let followed = Log::from([line(1, 1, "write", "/a"), line(2, 1, "write", "/b"), line(2, 2, "write", "/c")]);
        let snapshot = Log::from([line(1, 1, "write", "/a"), line(3, 1, "delete", "/c")]);
        let all: Log = followed.iter().chain(&snapshot).map(|(zxid, lines)| (*zxid, lines.clone())).collect();
        assert_eq!(carried_out(&[followed, snapshot], &[]), CarriedOut { log: all, unexplained: Vec::new() });
    }

    #[test]
    fn what_a_later_term_does_not_know_was_not_carried_out() {
        let line =
            |term: i64, n: i64, what: &str, node: &str| ((term << 32) + n, vec![format!("0\t7\t{what}\t{node}\t\t0")]);
        let before = [line(1, 1, "write", "/a"), line(1, 2, "write", "/b"), line(1, 3, "set", "/a")];
        let in_logs_alone = [line(1, 4, "delete", "/b"), line(1, 5, "set", "/a")];
        let after = [line(2, 1, "set", "/a"), line(2, 2, "delete", "/b"), line(2, 3, "write", "/b")];
        let all: Log = before.iter().chain(&in_logs_alone).chain(&after).cloned().collect();
        let expected: Log = before.iter().chain(&after).cloned().collect();
        assert_eq!(carried_out(&[all], &[]), CarriedOut { log: expected, unexplained: Vec::new() });
        let consistent: Log = before.iter().chain(&in_logs_alone).chain(&after[..1]).cloned().collect();
        assert_eq!(carried_out(std::slice::from_ref(&consistent), &[]).log, consistent);
    }

    #[test]
    fn what_the_next_leader_did_not_log_may_have_been_carried_out() {
        let line =
            |term: i64, n: i64, what: &str, node: &str| ((term << 32) + n, vec![format!("0\t7\t{what}\t{node}\t\t0")]);
        let first = Log::from([line(1, 1, "write", "/a"), line(1, 2, "write", "/b"), line(1, 3, "write", "/c")]);
        // It has what came last as a snapshot.
        let second = Log::from([line(1, 1, "write", "/a"), line(2, 1, "set", "/b"), line(2, 2, "delete", "/c")]);
        let all: Log = first.iter().chain(&second).map(|(zxid, lines)| (*zxid, lines.clone())).collect();
        assert_eq!(carried_out(&[first, second], &[]), CarriedOut { log: all, unexplained: Vec::new() });
    }

    #[test]
    fn a_transaction_that_no_end_explains_is_reported() {
        let line =
            |term: i64, n: i64, what: &str, node: &str| ((term << 32) + n, vec![format!("0\t7\t{what}\t{node}\t\t0")]);
        let all = Log::from([line(1, 1, "write", "/a"), line(2, 1, "set", "/a"), line(2, 2, "delete", "/b")]);
        let unexplained = vec![(2 << 32) + 2];
        assert_eq!(carried_out(std::slice::from_ref(&all), &[]), CarriedOut { log: all, unexplained });
    }

    #[test]
    fn a_transaction_that_only_a_snapshot_has_is_reported() {
        let logs = [log(&[(1, 1, 4), (2, 1, 3)]), log(&[(1, 1, 4), (2, 1, 2)])];
        let snapshot = |term: i64, n: i64| (term << 32) + n;
        let known = [0, snapshot(1, 4), snapshot(2, 0), snapshot(2, 3)];
        assert_eq!(carried_out(&logs, &known).unexplained, Vec::<i64>::new());
        assert_eq!(carried_out(&logs, &[snapshot(1, 4), snapshot(1, 6)]).unexplained, vec![snapshot(1, 6)]);
    }

    #[test]
    #[should_panic(expected = "no server has what came behind 100000002")]
    fn a_hole_is_no_evidence() {
        carried_out(&[log(&[(1, 1, 2), (1, 4, 5)])], &[]);
    }
}
