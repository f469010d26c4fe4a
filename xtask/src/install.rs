//! What the tests need beside Rust: Java, Maven and ZooKeeper, by Debian package; the Java programs, by Maven.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::bail;

use crate::{run, run_in, tell};

/// A package, and whether what it brings is there.
type Package = (&'static str, fn() -> bool);

/// Debian packages, each with a test of whether it is there.
const PACKAGES: [Package; 8] = [
    ("openjdk-17-jdk-headless", || answers("javac", "-version")),
    ("maven", || answers("mvn", "--version")),
    ("zookeeper", || Path::new("/usr/share/java/zookeeper.jar").exists()),
    ("postgresql", || Path::new("/usr/lib/postgresql").exists()),
    ("mariadb-server", || Path::new("/usr/sbin/mariadbd").exists()),
    // Debian's own Python with it, which runs the tests' web server too.
    ("python3-aiosmtpd", || Path::new("/usr/lib/python3/dist-packages/aiosmtpd").exists()),
    // Hosts of their own, and links that are cut.
    ("iproute2", || answers("ip", "-V") && answers("tc", "-V")),
    // Clocks that are off.
    ("libfaketime", || {
        let folders = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
        folders.into_iter().any(|folder| folder.path().join("faketime/libfaketime.so.1").exists())
    }),
];

fn answers(program: &str, argument: &str) -> bool {
    let output = Command::new(program).arg(argument).stdout(Stdio::null()).stderr(Stdio::null()).status();
    output.is_ok_and(|status| status.success())
}

/// Installs what is missing.
pub(crate) fn servers() -> anyhow::Result<()> {
    let missing: Vec<&str> = PACKAGES.iter().filter(|(_, there)| !there()).map(|(name, _)| *name).collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !Path::new("/etc/debian_version").exists() || !answers("apt-get", "--version") {
        bail!("these are missing, and this is no Debian to install them on: {}", missing.join(" "));
    }
    // No questions, and the databases are not started as services: the tests start their own.
    let mut apt = vec!["env", "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1", "apt-get"];
    if !is_root() {
        apt.insert(0, "sudo");
    }
    let (program, apt) = (apt[0], &apt[1..]);
    run(program, &[apt, &["update", "--quiet"]].concat())?;
    run(program, &[apt, &["install", "--yes", "--no-install-recommends"], &missing].concat())?;
    match PACKAGES.iter().find(|(_, there)| !there()) {
        Some((name, _)) => bail!("{name} was installed, and is not found all the same"),
        None => Ok(()),
    }
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout == b"0\n")
}

/// Builds a Maven project, when its jar is missing or older than a source.
pub(crate) fn java_project(folder: &Path, jar: &str) -> anyhow::Result<()> {
    let jar = folder.join("target").join(jar);
    let built = std::fs::metadata(&jar).and_then(|m| m.modified()).ok();
    let mut changed = false;
    let mut folders = vec![folder.join("src")];
    let mut sources = vec![folder.join("pom.xml")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() { folders.push(path) } else { sources.push(path) }
        }
    }
    for source in sources {
        let modified = std::fs::metadata(source)?.modified()?;
        changed |= built.is_none_or(|built| modified > built);
    }
    if !changed {
        return Ok(());
    }
    tell(&format!("builds {}", folder.display()));
    run_in(folder, "mvn", &["--quiet", "--batch-mode", "clean", "package"])
}
