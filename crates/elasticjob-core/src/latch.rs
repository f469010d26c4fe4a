//! Names of the places in a latch's queue (Curator: `LeaderLatch`, `LockInternals`). Places are ephemeral sequential nodes;
//! the one with the lowest sequence number holds the latch.
//!
//! Each transaction for which we hold a latch begins with the deletion of our own place, so it is refused when the place is
//! gone. The name says so (`guarded`): when the process that holds such a place does not act, others may delete the place and
//! continue. A place of a Java instance guards nothing and must stay: its holder would still act.

use std::time::Duration;

/// A first place that stays for so long is of a process that does not act: its session is alive, or the registry would have
/// deleted the place. Elections and takeovers take milliseconds.
pub const SILENCE_MAX: Duration = Duration::from_secs(10);

/// The text that precedes the sequence number; Curator searches for it.
const SEQUENCE: &str = "latch-";
/// Ours begins as Curator's does, which skips everything before [`SEQUENCE`].
const GUARDED: &str = "-guarded-latch-";

/// The path of a place of this implementation without its sequence number. `unique` distinguishes it from others of the same session.
pub fn guarded_prefix(latch: &str, unique: &str) -> String {
    format!("{latch}/_c_{unique}{GUARDED}")
}

/// Whether the place, a name or a path, may be deleted by others when its process does not act.
pub fn is_guarded(place: &str) -> bool {
    place.rsplit_once(GUARDED).is_some_and(|(_, sequence)| sequence.bytes().all(|b| b.is_ascii_digit()))
}

/// Sorts the names of places, the first in the queue first.
pub fn sort(names: &mut [String]) {
    names.sort_by(|a, b| sequence(a).cmp(sequence(b)));
}

/// The name of the place that holds the latch.
pub fn first(names: &[String]) -> Option<&String> {
    names.iter().min_by(|a, b| sequence(a).cmp(sequence(b)))
}

fn sequence(name: &str) -> &str {
    name.rsplit_once(SEQUENCE).map_or(name, |(_, sequence)| sequence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_sorted_by_their_numbers_for_each_writer() {
        let own = guarded_prefix("/a/leader/election/latch", "x");
        let mut names = vec![
            "_c_0-latch-0000000007".to_owned(),
            format!("{}0000000003", own.rsplit_once('/').expect("a path").1),
            "_c_z-latch-0000000001".to_owned(),
        ];
        assert_eq!(first(&names).map(String::as_str), Some("_c_z-latch-0000000001"));
        sort(&mut names);
        assert_eq!(names, ["_c_z-latch-0000000001", "_c_x-guarded-latch-0000000003", "_c_0-latch-0000000007"]);
    }

    #[test]
    fn only_a_place_of_ours_is_guarded() {
        assert!(is_guarded(&format!("{}0000000003", guarded_prefix("/a/latch", "x"))));
        for name in ["_c_0-latch-0000000007", "_c_guarded-latch-1", "x-guarded-latch-a", "-guarded-latch-1-latch-2", ""]
        {
            assert!(!is_guarded(name), "{name}");
        }
    }
}
