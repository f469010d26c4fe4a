//! The embedded registry on a disk that is full, on one that may only be read, and with a damaged file.

use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use elasticjob_tests::{Journal, Process, command, eventually, output};

const PATIENCE: Duration = Duration::from_secs(60);

/// A disk of a megabyte, as root makes one.
struct Disk(PathBuf);

impl Disk {
    fn mount(folder: &Path) -> Disk {
        std::fs::create_dir(folder).expect("a folder");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "elasticjob-test"]).arg(folder).status();
        assert!(mounted.expect("mount").success(), "mounting needs root");
        Disk(folder.to_owned())
    }

    /// Leaves no free page.
    fn fill(&self) {
        let mut file = std::fs::File::options().create(true).append(true).open(self.0.join("filler")).expect("a file");
        while std::io::Write::write_all(&mut file, &[7; 4_096]).is_ok() {}
    }

    fn make_room(&self) {
        std::fs::remove_file(self.0.join("filler")).expect("deletes");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn agent(folder: &Path, file: &Path, log: &Path) -> Process {
    let mut command = command();
    command.args(["agent", "-v"]).arg(file).current_dir(folder);
    Process::start(command, log)
}

/// The file of an agent with two jobs, each with its record. The registry is beside the file.
fn write_file(home: &Path, folder: &Path, port: u16) -> (PathBuf, [Journal; 2]) {
    let file = home.join("jobs.yaml");
    let journals = ["stays", "goes"].map(|name| {
        std::fs::create_dir(folder.join(name)).expect("a folder");
        Journal::new(&folder.join(name))
    });
    let job = |name: &str, journal: &Journal| {
        format!(
            "    {name}:
      elasticJobType: SCRIPT
      cron: '* * * * * ?'
      shardingTotalCount: 1
      props: {{script.command.line: {}}}
",
            journal.command("0")
        )
    };
    let text = format!(
        "elasticjob:\n  metrics: {{port: {port}}}\n  jobs:\n{}{}",
        job("stays", &journals[0]),
        job("goes", &journals[1])
    );
    std::fs::write(&file, text).expect("a file");
    (file, journals)
}

fn get(port: u16, path: &str) -> String {
    crate::services::get(port, path).map(|(_, body)| body).unwrap_or_default()
}

#[test]
fn a_full_disk_stops_jobs_visibly_loses_nothing_and_heals_by_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = Disk::mount(&folder.path().join("disk"));
    let port = elasticjob_tests::free_port();
    let (file, [journal, goes]) = write_file(&disk.0, folder.path(), port);
    let log = folder.path().join("log");
    let mut process = agent(&disk.0, &file, &log);
    let runs = || journal.runs();
    eventually("runs", PATIENCE, || (runs().len() > 4).then_some(()));

    disk.fill();
    eventually("the failure is logged", PATIENCE, || {
        process.log().contains("cannot write the embedded registry").then_some(())
    });
    eventually("it is not ready", PATIENCE, || get(port, "/readyz").contains("registry: No space left").then_some(()));
    assert!(get(port, "/metrics").contains("elasticjob_registry_up 0"), "{}", get(port, "/metrics"));
    let explained = output(&["job", "explain", "goes"], &disk.0);
    assert_eq!(explained.status.code(), Some(1));
    assert!(text(&explained.stdout).contains("No space left on device"), "{}", text(&explained.stdout));
    for operation in [["job", "disable", "goes"], ["job", "trigger", "goes"], ["job", "show", "goes"]] {
        let refused = output(&operation, &disk.0);
        assert_eq!(refused.status.code(), Some(1), "{operation:?}");
        assert!(text(&refused.stderr).contains("No space left on device"), "{}", text(&refused.stderr));
    }
    // Nothing starts while nothing is durable. A file that is opened again may give a page back, which is filled too.
    eventually("a full disk that stays full", PATIENCE, || {
        disk.fill();
        let (count, logged) = (runs().len(), process.log().matches("cannot write the embedded registry").count());
        elasticjob_tests::pause(Duration::from_secs(3));
        assert!(process.log().matches("cannot write the embedded registry").count() <= logged + 1, "{}", process.log());
        (runs().len() == count).then_some(())
    });

    disk.make_room();
    let before = runs().len();
    eventually("runs go on without a restart", PATIENCE, || (runs().len() > before + 4).then_some(()));
    assert!(process.log().contains("is writable again"));
    assert!(get(port, "/readyz").starts_with("ready"), "{}", get(port, "/readyz"));
    assert!(output(&["job", "disable", "goes"], &disk.0).status.success());

    process.kill();
    let mut process = agent(&disk.0, &file, &folder.path().join("log2"));
    let before = runs().len();
    eventually("runs after the restart", PATIENCE, || (runs().len() > before + 2).then_some(()));
    let restarted = process.pid();
    assert!(goes.runs().iter().all(|run| run.pid != restarted), "what was disabled stays disabled");
    for journal in [&journal, &goes] {
        for pair in journal.runs().windows(2) {
            assert!(pair[0].token < pair[1].token, "tokens go back: {pair:?}");
            assert!(pair[0].due < pair[1].due, "a firing ran twice: {pair:?}");
        }
    }
    process.signal("TERM");
    assert_eq!(process.wait(PATIENCE).code(), Some(0), "{}", process.log());
}

#[test]
fn the_command_whose_write_fills_the_disk_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = Disk::mount(&folder.path().join("disk"));
    let file = disk.0.join("file.yaml");
    let job = "elasticJobType: SCRIPT\n      cron: \"* * * * * ?\"\n      shardingTotalCount: 1\n      props: {script.command.line: 'true'}";
    std::fs::write(&file, format!("elasticjob:\n  jobs:\n    rests:\n      {job}\n")).expect("a file");
    let process = agent(&disk.0, &file, &folder.path().join("log"));
    eventually("it has joined", PATIENCE, || process.log().contains("owns items").then_some(()));
    disk.fill();
    let large = folder.path().join("large.yaml");
    let stored = text(&output(&["job", "config", "rests"], &disk.0).stdout);
    let description = "x".repeat(390_000);
    std::fs::write(&large, stored + &format!("description: {description}\n")).expect("a file");
    let large = large.display().to_string();
    let refused = output(&["job", "apply", &large, "--yes"], &disk.0);
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("No space left on device"), "{}", text(&refused.stderr));
}

#[test]
fn tokens_rise_although_an_older_copy_of_the_file_was_put_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, [journal, _]) = write_file(folder.path(), folder.path(), elasticjob_tests::free_port());
    let mut process = agent(folder.path(), &file, &folder.path().join("log"));
    eventually("runs", PATIENCE, || (journal.runs().len() > 2).then_some(()));
    assert!(output(&["registry", "backup", "elasticjob.db", "copy.db"], folder.path()).status.success());
    let before = journal.runs().len();
    eventually("runs after the copy", PATIENCE, || (journal.runs().len() > before + 3).then_some(()));
    process.signal("TERM");
    assert_eq!(process.wait(PATIENCE).code(), Some(0), "{}", process.log());
    let last = journal.runs().iter().map(|run| run.token).max();
    let count = journal.runs().len();
    std::fs::copy(folder.path().join("copy.db"), folder.path().join("elasticjob.db")).expect("copies");
    let _process = agent(folder.path(), &file, &folder.path().join("log2"));
    eventually("runs after the start", PATIENCE, || (journal.runs().len() > count + 2).then_some(()));
    let runs = journal.runs();
    assert!(
        runs[count..].iter().all(|run| Some(run.token) > last),
        "tokens go back: {:?} after {last:?}",
        &runs[count..]
    );
}

/// `ulimit -f` ends a process at a write beyond it, unless the process handles the signal.
#[test]
fn a_limit_of_the_file_size_is_reported_as_a_full_disk_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, [journal, _]) = write_file(folder.path(), folder.path(), elasticjob_tests::free_port());
    let mut process = agent(folder.path(), &file, &folder.path().join("log"));
    eventually("runs", PATIENCE, || (journal.runs().len() > 2).then_some(()));
    let limit = |bytes: &str| {
        let pid = process.pid().to_string();
        let set = Command::new("prlimit").args(["--pid", &pid, &format!("--fsize={bytes}:unlimited")]).status();
        assert!(set.expect("prlimit").success());
    };
    limit("100000");
    eventually("it is logged", PATIENCE, || process.log().contains("cannot write the embedded registry").then_some(()));
    assert!(process.log().contains("File too large"), "{}", process.log());
    limit("unlimited");
    eventually("it goes on", PATIENCE, || process.log().contains("is writable again").then_some(()));
    process.signal("TERM");
    assert_eq!(process.wait(PATIENCE).code(), Some(0), "{}", process.log());
}

#[test]
fn the_history_in_a_file_on_a_full_disk_can_be_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = Disk::mount(&folder.path().join("disk"));
    let file = disk.0.join("file.yaml");
    let job = "elasticJobType: SCRIPT\n      cron: \"* * * * * ?\"\n      shardingTotalCount: 1\n      props: {script.command.line: 'true'}";
    let tracing = "tracing: {type: RDB, dataSource: {url: 'sqlite://trace.db'}}";
    std::fs::write(&file, format!("elasticjob:\n  {tracing}\n  jobs:\n    kept:\n      {job}\n")).expect("a file");
    let history = || output(&["job", "history", "kept", "--database", "sqlite://trace.db"], &disk.0);
    let mut process = agent(&disk.0, &file, &folder.path().join("log"));
    eventually("its history", PATIENCE, || text(&history().stdout).contains("NORMAL_TRIGGER").then_some(()));
    process.signal("TERM");
    assert_eq!(process.wait(PATIENCE).code(), Some(0), "{}", process.log());
    let before = text(&history().stdout);
    disk.fill();
    let after = history();
    assert_eq!(text(&after.stdout), before, "{}", text(&after.stderr));
}

#[test]
fn a_killed_agent_on_a_full_disk_says_so_at_its_start_and_keeps_what_it_had() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = Disk::mount(&folder.path().join("disk"));
    let (file, [journal, _]) = write_file(&disk.0, folder.path(), elasticjob_tests::free_port());
    let mut process = agent(&disk.0, &file, &folder.path().join("log"));
    eventually("runs", PATIENCE, || (journal.runs().len() > 4).then_some(()));
    disk.fill();
    eventually("the failure", PATIENCE, || process.log().contains("cannot write").then_some(()));
    process.kill();
    let tokens = |runs: Vec<elasticjob_tests::Run>| runs.iter().map(|run| run.token).max().unwrap_or_default();
    let last = tokens(journal.runs());
    let count = journal.runs().len();
    let process = agent(&disk.0, &file, &folder.path().join("log2"));
    eventually("it says why", PATIENCE, || process.log().contains("No space left on device").then_some(()));
    elasticjob_tests::pause(Duration::from_secs(2));
    assert_eq!(journal.runs().len(), count, "nothing starts");
    assert!(!process.log().contains("panicked"), "{}", process.log());
    disk.make_room();
    eventually("runs", PATIENCE, || (journal.runs().len() > count).then_some(()));
    let runs = journal.runs();
    assert!(runs[count..].iter().all(|run| run.token > last), "tokens go back: {:?} after {last}", &runs[count..]);
}

#[test]
fn a_damaged_file_is_named_with_what_to_do_and_a_backup_brings_it_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, [journal, _]) = write_file(folder.path(), folder.path(), elasticjob_tests::free_port());
    let mut process = agent(folder.path(), &file, &folder.path().join("log"));
    eventually("runs", PATIENCE, || (journal.runs().len() > 4).then_some(()));
    // Both work while the agent runs.
    let check = output(&["registry", "check", "elasticjob.db"], folder.path());
    assert!(text(&check.stdout).contains("no damage"), "{}{}", text(&check.stdout), text(&check.stderr));
    let backup = output(&["registry", "backup", "elasticjob.db", "copy.db"], folder.path());
    assert!(backup.status.success(), "{}", text(&backup.stderr));
    let restore = output(&["registry", "restore", "elasticjob.db", "copy.db"], folder.path());
    assert_eq!(restore.status.code(), Some(1));
    assert!(text(&restore.stderr).contains("is in use by another process"), "{}", text(&restore.stderr));
    process.kill();

    let path = folder.path().join("elasticjob.db");
    let database = std::fs::File::options().write(true).open(&path).expect("the file");
    let length = database.metadata().expect("the file").len();
    for at in (4_096..length).step_by(4_096) {
        database.write_all_at(&[0xa5; 200], at + 100).expect("damages");
    }
    for arguments in [
        &["agent", "jobs.yaml"] as &[&str],
        &["job", "list"],
        &["registry", "check", "elasticjob.db"],
        &["registry", "backup", "elasticjob.db", "other.db"],
    ] {
        let refused = output(arguments, folder.path());
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains("elasticjob.db is damaged: "), "{arguments:?}: {said}");
        assert!(said.contains("restore a backup with `elasticjob registry restore "), "{arguments:?}: {said}");
        assert!(said.contains("elasticjob.db BACKUP`"), "{arguments:?}: {said}");
        assert!(!said.contains("panicked"), "{arguments:?}: {said}");
    }
    let itself = output(&["registry", "restore", "copy.db", "./copy.db"], folder.path());
    assert!(text(&itself.stderr).contains("cannot restore it from itself"), "{}", text(&itself.stderr));
    let restore = output(&["registry", "restore", "elasticjob.db", "copy.db"], folder.path());
    assert!(restore.status.success(), "{}", text(&restore.stderr));
    let (count, last) = (journal.runs().len(), journal.runs().iter().map(|run| run.token).max());
    let _process = agent(folder.path(), &file, &folder.path().join("log2"));
    eventually("runs", PATIENCE, || (journal.runs().len() > count + 2).then_some(()));
    let runs = journal.runs();
    assert!(runs[count..].iter().all(|run| Some(run.token) > last), "tokens go back: {:?}", &runs[count..]);
}

#[test]
fn a_read_only_file_can_be_listed_and_a_change_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, [journal, _]) = write_file(folder.path(), folder.path(), elasticjob_tests::free_port());
    let mut process = agent(folder.path(), &file, &folder.path().join("log"));
    eventually("runs", PATIENCE, || (journal.runs().len() > 4).then_some(()));
    process.signal("TERM");
    process.wait(PATIENCE);
    let open = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("permissions");
    };
    open(folder.path(), 0o755);
    open(&folder.path().join("elasticjob.db"), 0o644);
    let as_nobody = |arguments: &[&str]| {
        let binary = command();
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(binary.get_program());
        command.args(arguments).current_dir(folder.path()).output().expect("setpriv")
    };
    let list = as_nobody(&["job", "list"]);
    assert!(text(&list.stdout).contains("stays"), "{}{}", text(&list.stdout), text(&list.stderr));
    let refused = as_nobody(&["job", "disable", "stays"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        text(&refused.stderr).contains("cannot open it for writing: Permission denied"),
        "{}",
        text(&refused.stderr)
    );
    let up = as_nobody(&["up"]);
    assert_eq!(up.status.code(), Some(1));
    assert!(text(&up.stderr).contains("cannot open it for writing: Permission denied"), "{}", text(&up.stderr));
    std::fs::remove_file(folder.path().join("elasticjob.db")).expect("deletes");
    let up = as_nobody(&["up"]);
    assert!(text(&up.stderr).contains("elasticjob.db: cannot create it: Permission denied"), "{}", text(&up.stderr));
}

/// Two processes would run the same jobs, if each had a file of its own.
#[test]
fn an_agent_whose_file_was_moved_is_paused_and_no_process_creates_a_new_one_in_its_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let port = elasticjob_tests::free_port();
    let (file, [journal, _]) = write_file(folder.path(), folder.path(), port);
    let process = agent(folder.path(), &file, &folder.path().join("log"));
    eventually("runs", PATIENCE, || (journal.runs().len() > 2).then_some(()));
    let (here, moved) = (folder.path().join("elasticjob.db"), folder.path().join("moved.db"));
    std::fs::rename(&here, &moved).expect("moves");
    eventually("the agent notices", PATIENCE, || {
        process.log().contains("the file was moved, deleted or replaced").then_some(())
    });
    eventually("it is not ready", PATIENCE, || get(port, "/readyz").contains("moved, deleted").then_some(()));
    let explained = output(&["job", "explain", "stays"], folder.path());
    assert!(text(&explained.stdout).contains("moved, deleted or replaced"), "{}", text(&explained.stdout));
    let mut second = agent(folder.path(), &file, &folder.path().join("second"));
    assert_eq!(second.wait(PATIENCE).code(), Some(1), "{}", second.log());
    assert!(second.log().contains("but a process still has it open"), "{}", second.log());
    let restored = output(&["registry", "restore", "elasticjob.db", "moved.db"], folder.path());
    assert_eq!(restored.status.code(), Some(1), "{}", text(&restored.stdout));
    assert!(!here.exists());
    let before = journal.runs().len();
    std::fs::rename(&moved, &here).expect("moves back");
    eventually("it runs again", PATIENCE, || (journal.runs().len() > before + 2).then_some(()));
}

#[test]
fn a_command_gives_up_on_an_agent_that_does_not_act() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, [journal, _]) = write_file(folder.path(), folder.path(), elasticjob_tests::free_port());
    let process = agent(folder.path(), &file, &folder.path().join("log"));
    eventually("runs", PATIENCE, || (!journal.runs().is_empty()).then_some(()));
    process.signal("STOP");
    let explained = output(&["job", "explain", "stays"], folder.path());
    let listed = output(&["job", "list"], folder.path());
    process.signal("CONT");
    assert_eq!(explained.status.code(), Some(1));
    assert_eq!(listed.status.code(), Some(1));
    let said = text(&listed.stderr);
    assert!(said.contains("did not answer within 15 s: it is suspended or stuck"), "{said}");
}

#[test]
fn a_check_and_a_backup_only_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = Disk::mount(&folder.path().join("disk"));
    let (file, [journal, _]) = write_file(&disk.0, folder.path(), elasticjob_tests::free_port());
    let mut process = agent(&disk.0, &file, &folder.path().join("log"));
    eventually("runs", PATIENCE, || (journal.runs().len() > 2).then_some(()));
    process.kill();
    let path = disk.0.join("elasticjob.db");
    let bytes = std::fs::read(&path).expect("reads");
    let mounted = Command::new("mount").args(["-o", "remount,ro"]).arg(&disk.0).status();
    assert!(mounted.expect("mount").success(), "mounting needs root");
    let copy = folder.path().join("copy.db");
    let copy = copy.to_str().expect("a path");
    for arguments in [&["registry", "check", "elasticjob.db"][..], &["registry", "backup", "elasticjob.db", copy]] {
        let done = output(arguments, &disk.0);
        assert!(done.status.success(), "{arguments:?}: {}", text(&done.stderr));
    }
    assert!(std::fs::read(&path).expect("reads") == bytes, "the file is as it was");
    let checked = output(&["registry", "check", copy], folder.path());
    assert!(checked.status.success(), "{}", text(&checked.stderr));
}
