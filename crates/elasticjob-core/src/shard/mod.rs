//! Who gets which items. The strategies give Java's results, because leadership moves between Java and Rust.

use std::sync::Arc;

use crate::time::Timestamp;

/// One instance with its items, in the order of assignment. An instance may have none.
pub type Assignment = Vec<(String, Vec<u32>)>;

/// Divides the items of a job among its instances (Java: `JobShardingStrategy`).
///
/// Implement it to add a strategy of your own; it must give every item to exactly one of the instances, else the
/// resharding is refused and the old assignment stays. It runs on the leader only.
pub trait ShardingStrategy: Send + Sync + 'static {
    /// The name in `jobShardingStrategyType`.
    fn name(&self) -> &str;

    /// Divides items `0..total` among `instances`, which come in descending text order of their ids.
    ///
    /// `now` is for strategies that rotate with time.
    fn assign(&self, instances: &[String], job: &str, total: u32, now: Timestamp) -> Assignment;
}

/// The strategy that is used when the configuration names none.
pub const DEFAULT: &str = "AVG_ALLOCATION";

/// The name that also selects the single-item rotation of Java 3.0.5.
pub const SINGLE_SHARDING_BALANCE: &str = "SINGLE_SHARDING_BALANCE";

/// The built-in strategies.
pub fn built_in() -> Vec<Arc<dyn ShardingStrategy>> {
    vec![
        Arc::new(BuiltIn { name: DEFAULT, order: |_, _, _, _| {} }),
        Arc::new(BuiltIn { name: "ODEVITY", order: odevity }),
        Arc::new(BuiltIn { name: "ROUND_ROBIN", order: round_robin }),
        Arc::new(BuiltIn { name: SINGLE_SHARDING_BALANCE, order: single_sharding_balance }),
    ]
}

/// Each built-in strategy is an order of the instances, followed by the average allocation.
struct BuiltIn {
    name: &'static str,
    order: fn(&mut [String], &str, u32, Timestamp),
}

impl ShardingStrategy for BuiltIn {
    fn name(&self) -> &str {
        self.name
    }

    fn assign(&self, instances: &[String], job: &str, total: u32, now: Timestamp) -> Assignment {
        let mut instances = instances.to_vec();
        (self.order)(&mut instances, job, total, now);
        average(instances, total)
    }
}

/// `total / n` consecutive items each; the rest one by one from the first instance on.
fn average(instances: Vec<String>, total: u32) -> Assignment {
    let Ok(count @ 1..) = u32::try_from(instances.len()) else { return Vec::new() };
    let (each, rest) = (total / count, total % count);
    let share = |index: u32| {
        let mut items: Vec<u32> = (index * each..(index + 1) * each).collect();
        items.extend((index < rest).then_some(count * each + index));
        items
    };
    (0..count).zip(instances).map(|(index, instance)| (instance, share(index))).collect()
}

/// Reversed when the hash of the job's name is even.
fn odevity(instances: &mut [String], job: &str, _total: u32, _now: Timestamp) {
    if java_hash(job) % 2 == 0 {
        instances.reverse();
    }
}

/// Rotated by the hash of the job's name.
fn round_robin(instances: &mut [String], job: &str, _total: u32, _now: Timestamp) {
    rotate(instances, java_hash(job));
}

/// Rotated by the hash of the job's name and the time.
fn single_sharding_balance(instances: &mut [String], job: &str, _total: u32, now: Timestamp) {
    let low = now.0 as i32; // the low 32 bits, as Java's cast takes them
    rotate(instances, java_hash(job).wrapping_add(low));
}

/// Java takes `Math.abs`, which fails for the smallest number; here that one counts without its sign (COMPAT.md).
fn rotate(instances: &mut [String], hash: i32) {
    if !instances.is_empty() {
        instances.rotate_left(hash.unsigned_abs() as usize % instances.len());
    }
}

/// `java.lang.String.hashCode`: over UTF-16, in 32 bits.
pub fn java_hash(text: &str) -> i32 {
    text.encode_utf16().fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

/// Descending order by UTF-16 code units, in which Java lists children.
pub fn descending(mut names: Vec<String>) -> Vec<String> {
    names.sort_by(|a, b| b.encode_utf16().cmp(a.encode_utf16()));
    names
}

/// Whether an assignment gives each item to exactly one of the instances.
pub fn is_complete(assignment: &Assignment, instances: &[String], total: u32) -> bool {
    let mut owners = vec![0_u32; total as usize];
    for (instance, items) in assignment {
        if !instances.contains(instance) {
            return false;
        }
        for item in items {
            match owners.get_mut(*item as usize) {
                Some(count) => *count += 1,
                None => return false,
            }
        }
    }
    owners.iter().all(|count| *count == 1)
}

#[cfg(test)]
mod tests;
