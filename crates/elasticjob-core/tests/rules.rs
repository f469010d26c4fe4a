//! One machine at a desk: what it asks for over a long time.

mod desk;

use std::time::Duration;

use desk::Desk;
use elasticjob_core::path::JobPath;
use elasticjob_core::tree::{Op, Reason, Refusal};
use elasticjob_core::wire::{JobDocument, Ledger, instance_text, instance_yaml};

/// ZooKeeper's servers may have different trees, where one answers reads and another one decides about writes. Seen in a living
/// cluster, where a job asked five hundred times a second.
#[test]
fn a_step_that_is_rejected_repeatedly_is_retried_less_often_and_reported_once() {
    let mut desk = Desk::new(3, || (0, 0));
    desk.refuse = |ops| {
        let is_begin = ops.iter().any(|op| op.path().ends_with("/running") && matches!(op, Op::Create { .. }));
        is_begin.then_some(Refusal { op: 0, reason: Reason::Version })
    };
    desk.pass(Duration::from_secs(60));
    assert!((20..60).contains(&desk.commits), "{} transactions in a minute", desk.commits);
    let told: Vec<&String> =
        desk.warnings.iter().filter(|text| text.contains("although the state that was read before")).collect();
    assert_eq!(told.len(), 1, "{:?}", desk.warnings);
    // It goes on when the registry is one again, and has the same patience as before.
    desk.refuse = |_| None;
    desk.pass(Duration::from_secs(6));
    desk.commits = 0;
    (0..10).for_each(|_| desk.fire());
    assert_eq!(desk.commits, 20, "a begin and an end for each firing");
}

/// A leader whose resharding is refused goes on with its firings, asks less and less, and says so once.
#[test]
fn a_resharding_that_is_refused_again_and_again_slows_down_alone() {
    let mut desk = Desk::new(3, || (0, 0));
    desk.refuse = |ops| {
        let divides = ops.iter().any(|op| op.path().ends_with("/sharding/4/instance"));
        divides.then_some(Refusal { op: 0, reason: Reason::Version })
    };
    desk.reconfigure("shardingTotalCount: 3", "shardingTotalCount: 5");
    desk.pass(Duration::from_secs(20));
    desk.commits = 0;
    desk.pass(Duration::from_secs(60));
    let told: Vec<&String> =
        desk.warnings.iter().filter(|text| text.contains("although the state that was read before")).collect();
    assert_eq!(told.len(), 1, "{:?}", desk.warnings);
    assert!(told[0].contains("step=resharding attempts=5"), "{told:?}");
    assert!(desk.commits < 120 + 30, "{} transactions in a minute, of which two a firing", desk.commits);
    desk.refuse = |_| None;
    desk.pass(Duration::from_secs(20));
    assert_eq!(desk.owned(), 5, "it goes on when the registry takes it");
}

/// An administrator has taken the right to create nodes below `leader/election`, and the leader is gone.
#[test]
fn an_election_whose_latch_is_denied_is_tried_less_and_less() {
    let mut desk = Desk::new(3, || (0, 0));
    desk.denies_latches = true;
    desk.come_back(&[]);
    desk.latches = 0;
    desk.pass(Duration::from_secs(60));
    assert!((5..40).contains(&desk.latches), "{} requests for a latch in a minute", desk.latches);
    desk.denies_latches = false;
    desk.pass(Duration::from_secs(10));
    assert!(desk.exists(&JobPath::new("job").leader_instance()), "it leads once it can");
}

/// An administrator has changed the rights of its node: no data is written to it, and no child is created below it.
#[test]
fn an_item_whose_begin_is_forbidden_does_not_hold_up_the_others() {
    let mut desk = Desk::new(3, || (0, 0));
    desk.refuse = |ops| {
        let node = JobPath::new("job").item(0);
        let is_denied = |op: &Op| match op {
            Op::Set { path, .. } => *path == node,
            Op::Create { path, .. } => elasticjob_core::path::parent(path) == Some(&node),
            _ => false,
        };
        Some(Refusal { op: ops.iter().position(is_denied)?, reason: Reason::Forbidden })
    };
    desk.begun.clear();
    desk.pass(Duration::from_secs(60));
    let begun = |desk: &Desk, item: u32| desk.begun.iter().filter(|begun| **begun == item).count();
    assert_eq!(begun(&desk, 0), 0);
    assert!((59..=61).contains(&begun(&desk, 1)), "{} begins", begun(&desk, 1));
    assert!(desk.commits < 60 * 2 + 60, "{} transactions", desk.commits);
    assert!(!desk.warnings.iter().any(|text| text.contains("have diverged")), "{:?}", desk.warnings);
    desk.refuse = |_| None;
    desk.pass(Duration::from_secs(20));
    assert!(begun(&desk, 0) >= 14, "{} begins", begun(&desk, 0));
}

/// Both instances lose the registry for a while, and the one that is back first takes all items.
#[test]
fn an_instance_that_comes_back_reports_no_firing_that_another_one_has_begun() {
    let mut desk = Desk::new(2, || (0, 0));
    let path = JobPath::new("job");
    desk.cut_off(Duration::from_secs(20));
    desk.warnings.clear();
    let other = "10.0.0.8@-@8";
    let mut ops = vec![
        Op::create(path.server("10.0.0.8"), "ENABLED"),
        Op::ephemeral(path.instance(other), instance_text(other, "10.0.0.8")),
    ];
    let due = Ledger { due: desk.now(), ..Ledger::parse(b"due=1 by=x session=8 begin=20").expect("a ledger") };
    let ledger = Ledger { instance: other.into(), ..due }.to_text();
    for item in 0..2 {
        ops.extend([Op::set(path.item_owner(item), other), Op::set(path.item(item), ledger.as_str())]);
    }
    desk.come_back(&ops);
    desk.pass(Duration::from_secs(5));
    assert_eq!(desk.warnings, Vec::<String>::new());
}

/// A Java instance takes a run over and keeps the mark of the dead one until its own run ends.
#[test]
fn a_run_that_a_java_instance_has_taken_over_is_looked_at_now_and_then() {
    let every_minute = JobDocument { cron: Some("0 * * * * ?".into()), ..JobDocument::new("job", 1) };
    let mut desk = Desk::with(JobDocument { monitor_execution: true, failover: true, ..every_minute }, || (0, 0));
    let path = JobPath::new("job");
    let java = "10.0.0.8@-@8";
    desk.others(&[Op::ephemeral(path.instance(java), ""), Op::create(path.item_running(0), "10.0.0.9@-@9")]);
    // The begin is rejected at the full minute, and before the mark is looked at for the second time, Java was there.
    desk.pass(Duration::from_secs(10));
    desk.others(&[Op::ephemeral(path.item_failover(0), java)]);
    (desk.reads, desk.commits) = (0, 0);
    desk.pass(Duration::from_secs(600));
    assert!(desk.reads + desk.commits < 700, "{} reads and {} transactions", desk.reads, desk.commits);
}

/// Java reads the owners from a cache that lags, and waits for the leader only where it sees `necessary`.
#[test]
fn beside_a_java_instance_each_resharding_is_announced() {
    for (text, flags) in [(instance_text as fn(&str, &str) -> String, 1), (instance_yaml, 2)] {
        let mut desk = Desk::new(6, || (0, 0));
        let path = JobPath::new("job");
        let join = |desk: &mut Desk, ip: &str| {
            let id = format!("{ip}@-@1");
            let server = Op::create(path.server(ip), "ENABLED");
            desk.others(&[server, Op::ephemeral(path.instance(&id), text(&id, ip))]);
        };
        join(&mut desk, "10.0.0.8");
        while desk.owned() == 6 {
            desk.pass(Duration::from_millis(1));
        }
        assert_eq!((desk.owned(), desk.flags), (3, 1));
        join(&mut desk, "10.0.0.9");
        desk.pass(Duration::from_secs(20));
        assert_eq!((desk.owned(), desk.flags), (2, flags));
    }
}

/// A Java instance that was cut off writes the missing node of its server as `DISABLED` when it is back.
#[test]
fn the_node_of_a_server_without_instances_goes_where_no_java_instance_misses_it() {
    let mut desk = Desk::with_cron("0 0 3 * * ?", 2, || (0, 0));
    let path = JobPath::new("job");
    let (java, rust) = (("10.0.0.8@-@8", "10.0.0.8"), ("10.0.0.7@-@7", "10.0.0.7"));
    let mut join = |(id, ip): (&str, &str), text: String| {
        desk.others(&[Op::create(path.server(ip), "ENABLED"), Op::ephemeral(path.instance(id), text)])
    };
    let of_java = join(java, instance_yaml(java.0, java.1));
    let of_rust = join(rust, instance_text(rust.0, rust.1));
    desk.leaves(of_rust, rust.0);
    desk.pass(Duration::from_secs(1_000));
    assert!(desk.exists(&path.server(rust.1)), "it stays beside a Java instance");
    desk.leaves(of_java, java.0);
    desk.pass(Duration::from_secs(2_000));
    assert!(!desk.exists(&path.server(rust.1)), "it goes");
    assert!(desk.exists(&path.server(java.1)), "it stays for the instance that may come back");
}

/// Two containers of one pod, or two hosts with one address and the same process id.
#[test]
fn an_id_in_use_is_reported_once_and_joins_when_the_other_process_leaves() {
    let mut desk = Desk::new(3, || (0, 0));
    let path = JobPath::new("job");
    let other = desk.come_back(&[Op::ephemeral(path.instance(desk::ID), "")]);
    desk.pass(Duration::from_secs(41));
    let told = |desk: &Desk| desk.warnings.iter().filter(|text| text.contains("another process")).count();
    assert_eq!(told(&desk), 0, "it may be a former life, whose session is about to end: {:?}", desk.warnings);
    desk.pass(Duration::from_secs(600));
    assert_eq!(told(&desk), 1, "{:?}", desk.warnings);
    assert!(!desk.is_joined());
    desk.leaves(other, desk::ID);
    assert!(desk.is_joined());
}

/// A later job of that name is another one's business.
#[test]
fn a_job_that_was_removed_while_its_instance_was_cut_off_is_left() {
    let mut desk = Desk::new(3, || (0, 0));
    desk.remove_job();
    desk.come_back(&[]);
    assert!(
        desk.warnings.iter().any(|text| text.contains("left the job: the job no longer exists in the registry")),
        "{:?}",
        desk.warnings
    );
    assert!(desk.is_left());
}

/// The marks of its runs were deleted with the job. The latch for reading them would create nodes of the job again.
#[test]
fn a_job_that_was_removed_during_a_failover_run_is_not_created_again_by_the_end_of_that_run() {
    let every_minute = JobDocument { cron: Some("0 * * * * ?".into()), ..JobDocument::new("job", 3) };
    let mut desk = Desk::with(JobDocument { monitor_execution: true, failover: true, ..every_minute }, || (0, 0));
    desk.pass_with(Duration::from_secs(90), false);
    desk.remove_job();
    desk.come_back(&[]);
    desk.commits = 0;
    desk.end();
    assert!(desk.is_left());
    assert!(!desk.exists("/job"));
    assert!(desk.commits < 10, "{} transactions", desk.commits);
}

/// Everything is read again every ten minutes (`reconcileIntervalMinutes`). A daily stream that ended then would be idle until the next day.
#[test]
fn a_look_that_finds_what_was_there_before_ends_no_stream() {
    let mut desk = Desk::with_cron("0 0 3 * * ?", 2, || (0, 0));
    // From midnight or later on: the stream begins at three o'clock, and goes on for a part of the day.
    desk.pass_with(Duration::from_secs(86_400), false);
    assert_eq!((desk.commits, desk.yielded), (1, false), "begun, and not told to make room");
    desk.pass_with(Duration::from_secs(86_400), false);
    assert!(desk.yielded, "it is due again");
}
