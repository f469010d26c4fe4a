//! A disk that fails at each of its writes, and a file with each of its pages damaged.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use elasticjob_core::query::Query;
use elasticjob_core::tree::Op;
use parking_lot::Mutex;

use super::*;
use crate::local::Connection;
use crate::{Link, Outcome, Registry};

const PAUSE: Duration = Duration::from_millis(5);

/// A disk in memory. From write `full_from` on it has no space, until it is given some.
#[derive(Clone, Debug)]
struct Disk {
    bytes: Arc<Mutex<Vec<u8>>>,
    writes: Arc<AtomicU64>,
    full_from: Arc<AtomicU64>,
    opened: Arc<AtomicU64>,
}

impl Disk {
    fn new(bytes: Vec<u8>) -> Disk {
        let full_from = Arc::new(AtomicU64::new(u64::MAX));
        Disk { bytes: Arc::new(Mutex::new(bytes)), writes: Arc::default(), full_from, opened: Arc::default() }
    }

    fn fill_after(&self, writes: u64) {
        self.full_from.store(self.writes.load(Ordering::SeqCst) + writes, Ordering::SeqCst);
    }

    fn is_full(&self) -> bool {
        self.writes.load(Ordering::SeqCst) >= self.full_from.load(Ordering::SeqCst)
    }

    fn make_room(&self) {
        self.full_from.store(u64::MAX, Ordering::SeqCst);
    }

    fn count(&self) -> io::Result<()> {
        if self.is_full() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.writes.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn open(&self) -> Connection {
        let disk = self.clone();
        let (tree, writer) = start(Path::new("disk"), source(disk), PAUSE).expect("opens");
        Connection::new(Store::new(tree, Some(Box::new(writer)), "disk".to_owned()), None)
    }
}

fn source(disk: Disk) -> Source {
    let open = move || {
        disk.opened.fetch_add(1, Ordering::SeqCst);
        Box::new(disk.clone()) as Box<dyn StorageBackend>
    };
    Source { open: Box::new(open), is_in_place: Box::new(|| true) }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.lock().len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let (bytes, from) = (self.bytes.lock(), usize::try_from(offset).expect("small"));
        let part = bytes.get(from..from + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(part);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.count()?;
        self.bytes.lock().resize(usize::try_from(len).expect("small"), 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.count()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.count()?;
        let from = usize::try_from(offset).expect("small");
        self.bytes.lock().get_mut(from..from + data.len()).ok_or(io::ErrorKind::UnexpectedEof)?.copy_from_slice(data);
        Ok(())
    }
}

async fn session(registry: &Connection) -> u64 {
    let mut link = registry.link();
    let up = link.wait_for(|link| matches!(link, Link::Up { .. })).await.expect("a link").clone();
    let Link::Up { session, .. } = up else { panic!("up") };
    session
}

/// Data of 5,000 bytes, so that some commits make the file grow.
fn data(number: u32) -> Vec<u8> {
    format!("{number:05}").repeat(1_000).into_bytes()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_is_full_at_any_write_costs_no_answered_commit_and_no_token_goes_back() {
    let fresh = Disk::new(Vec::new());
    let registry = fresh.open();
    registry.commit(session(&registry).await, &[Op::create("/a", "")]).await;
    registry.close().await;
    let start = fresh.bytes.lock().clone();
    let mut failures = 0;
    for write in 0..60 {
        let disk = Disk::new(start.clone());
        let registry = disk.open();
        let before = session(&registry).await;
        let (mut answered, mut unknown, mut last) = (Vec::new(), Vec::new(), 0);
        disk.fill_after(write);
        for number in 0..6 {
            let ops = [Op::create(format!("/a/{number}"), data(number)), Op::set("/a", "")];
            match registry.commit(before, &ops).await {
                Outcome::Committed { zxid } => {
                    assert!(zxid > last, "write {write}: token {zxid} after {last}");
                    last = zxid;
                    answered.push(number);
                }
                Outcome::Unknown => unknown.push(number),
                Outcome::Failed(error) => assert!(error.to_string().contains("no storage space"), "{write}: {error}"),
                Outcome::Refused(refusal) => panic!("write {write}: {refusal:?}"),
            }
        }
        if !unknown.is_empty() {
            failures += 1;
            assert_eq!(unknown.len(), 1, "write {write}: after the first failure nothing is tried");
            assert!(
                matches!(&*registry.link().borrow(), Link::Down { reason, .. } if reason.contains("no storage space"))
            );
            assert!(registry.read(vec![Query::Node("/a".into())]).await.is_err(), "no read from what is not durable");
        }
        disk.make_room();
        let after = session(&registry).await;
        assert_eq!(after == before, unknown.is_empty(), "write {write}: the sessions of before have ended");
        let Outcome::Committed { zxid } = registry.commit(after, &[Op::set("/a", "again")]).await else {
            panic!("write {write}: it is writable again")
        };
        assert!(zxid > last, "write {write}: token {zxid} after {last}");
        registry.close().await;
        // What a new process finds on that disk.
        let again = disk.open();
        let paths = answered.iter().map(|number| Query::Node(format!("/a/{number}"))).collect();
        for (number, answer) in answered.iter().zip(again.read(paths).await.expect("reads")) {
            assert_eq!(answer.node().map(|n| n.data.to_vec()), Some(data(*number)), "write {write}: {number} is lost");
        }
        let Outcome::Committed { zxid: next } = again.commit(session(&again).await, &[Op::set("/a", "")]).await else {
            panic!("write {write}: commits")
        };
        assert!(next > zxid, "write {write}: token {next} after {zxid}, over a restart");
        again.close().await;
    }
    assert!(failures >= 20, "only {failures} of 60 points failed: is the disk ever full?");
}

/// The lines that this process logs .
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn of_this_process() -> Lines {
        static LINES: OnceLock<Lines> = OnceLock::new();
        let install = || {
            let (lines, subscriber) = (Lines::default(), tracing_subscriber::fmt().with_ansi(false));
            let writer = lines.clone();
            subscriber.with_writer(move || writer.clone()).init();
            lines
        };
        LINES.get_or_init(install).clone()
    }

    fn with(&self, text: &str) -> usize {
        String::from_utf8_lossy(&self.0.lock()).lines().filter(|line| line.contains(text)).count()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_logged_again_after_sixty_attempts_and_its_end_once() {
    let (lines, disk) = (Lines::of_this_process(), Disk::new(Vec::new()));
    let (tree, writer) = start(Path::new("logged-disk"), source(disk.clone()), PAUSE).expect("opens");
    let registry = Connection::new(Store::new(tree, Some(Box::new(writer)), "disk".to_owned()), None);
    let session_id = session(&registry).await;
    disk.fill_after(0);
    let opened = disk.opened.load(Ordering::SeqCst);
    assert_eq!(registry.commit(session_id, &[Op::create("/a", "")]).await, Outcome::Unknown);
    while lines.with("cannot write the embedded registry logged-disk") < 3 {
        clock::sleep(PAUSE).await;
    }
    let attempts = disk.opened.load(Ordering::SeqCst) - opened;
    assert!(attempts >= 2 * u64::from(REPORT_EVERY), "three lines after {attempts} attempts");
    disk.make_room();
    let session_id = session(&registry).await;
    for number in 0..2 {
        registry.commit(session_id, &[Op::create(format!("/{number}"), "")]).await;
    }
    assert_eq!(lines.with("the embedded registry logged-disk is writable again"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_sees_a_change_only_when_it_is_durable() {
    let disk = Disk::new(Vec::new());
    let registry = disk.open();
    let session_id = session(&registry).await;
    registry.commit(session_id, &[Op::create("/a", "old")]).await;
    let seen = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&seen);
    let sink: crate::Sink = Arc::new(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    let _watch = registry.watch(crate::Target::Node("/a".into()), sink).await.expect("a watch");
    assert!(matches!(registry.commit(session_id, &[Op::set("/a", "new")]).await, Outcome::Committed { .. }));
    assert_eq!(seen.load(Ordering::SeqCst), 1, "it is announced before the commit is answered");
    disk.fill_after(0);
    assert_eq!(registry.commit(session_id, &[Op::set("/a", "refused")]).await, Outcome::Unknown);
    assert_eq!(seen.load(Ordering::SeqCst), 1, "what the disk refused is not announced");
}

#[tokio::test]
async fn tokens_rise_although_the_nodes_that_held_them_were_removed() {
    let disk = Disk::new(Vec::new());
    let registry = disk.open();
    let session_id = session(&registry).await;
    let mut last = 0;
    for _ in 0..10 {
        registry.commit(session_id, &[Op::create("/job", "")]).await;
        let Outcome::Committed { zxid } = registry.commit(session_id, &[Op::set("/job", "")]).await else {
            panic!("commits")
        };
        last = zxid;
        registry.commit(session_id, &[Op::delete("/job")]).await;
    }
    registry.close().await;
    let registry = disk.open();
    let Outcome::Committed { zxid } = registry.commit(session(&registry).await, &[Op::create("/job", "")]).await else {
        panic!("commits")
    };
    assert!(zxid > last, "{zxid} after {last}");
}

#[tokio::test]
async fn damage_anywhere_is_an_error_or_harmless_and_never_other_data() {
    let disk = Disk::new(Vec::new());
    let registry = disk.open();
    let session_id = session(&registry).await;
    registry.commit(session_id, &[Op::create("/a", "")]).await;
    for number in 0..40 {
        registry.commit(session_id, &[Op::create(format!("/a/{number}"), data(number))]).await;
    }
    registry.close().await;
    let sound = disk.bytes.lock().clone();
    let (mut damaged, mut harmless) = (0, 0);
    for at in (0..sound.len()).step_by(1_531) {
        let mut bytes = sound.clone();
        let end = (at + 64).min(bytes.len());
        bytes[at..end].iter_mut().for_each(|byte| *byte ^= 0x5a);
        let disk = Disk::new(bytes);
        let read = start(Path::new("disk"), source(disk), PAUSE);
        match read {
            Ok((tree, _)) => {
                harmless += 1;
                for number in 0..40 {
                    let node =
                        tree.get(&format!("/a/{number}")).unwrap_or_else(|| panic!("byte {at}: {number} is lost"));
                    assert_eq!(node.data.as_ref(), data(number), "byte {at}");
                }
            }
            Err(Error::Damaged { reason, .. }) => {
                damaged += 1;
                assert!(!reason.is_empty(), "byte {at}: no reason");
            }
            Err(Error::File { reason, .. }) => {
                damaged += 1;
                assert!(at < 4_096, "byte {at}: only the head says what a file is: {reason}");
            }
            Err(error) => panic!("byte {at}: {error}"),
        }
    }
    assert!(damaged >= 20 && harmless >= 1, "{damaged} found, {harmless} harmless");
}
