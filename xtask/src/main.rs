//! `cargo xtask …`: all automation. Each command installs what it needs and is missing.

mod api;
mod bench;
mod figures;
mod install;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

const USAGE: &str = "usage: cargo xtask COMMAND

  ci            run all checks and tests
  integ [ARGS]  run the tests with real servers and the Java peer; ARGS go to the test runner
  up [ARGS]     build the pages of the console, and run `elasticjob up` with ARGS
  ui            build the pages of the console, which the next build of the program contains; installs Node if it is missing
  rig [ARGS]    run clusters on hosts of their own under faults for an hour, and judge them; --mixed: two of four agents are Java
  rig beside    apply known faults to a cluster of Java instances and to one of Rust instances, and print a table
  bench [ROWS]  run the workload in Rust and in Java, and print tables; all rows take about an hour; --help
  tidy          check the rules that no compiler checks
  figures       name the pages whose figures are older than the kernel
  features      check each cargo feature of the library alone
  api [--write] compare the public surface of the library with the stored one, or store it
  package       check that each published crate can be packaged
  fix           format, and apply what the lints can apply
";

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next().unwrap_or_default();
    let rest: Vec<String> = arguments.collect();
    match command.as_str() {
        "ci" => ci(),
        "integ" => integ(&rest),
        "ui" => ui(),
        "up" => up(&rest),
        "rig" => rig(&rest),
        "bench" => bench::run_bench(&rest),
        "tidy" => tidy::run(&root()),
        "figures" => figures::run(&root()),
        "features" => features(),
        "api" => api::run(rest.iter().any(|argument| argument == "--write")),
        "package" => package(),
        "fix" => fix(),
        _ => bail!("{USAGE}"),
    }
}

/// The folder of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_owned).unwrap_or_default()
}

/// Runs a program in the workspace.
pub(crate) fn run(program: &str, arguments: &[&str]) -> anyhow::Result<()> {
    run_in(&root(), program, arguments)
}

/// Runs a program in that folder, after printing its command line.
pub(crate) fn run_in(folder: &Path, program: &str, arguments: &[&str]) -> anyhow::Result<()> {
    tell(&format!("+ {program} {}", arguments.join(" ")));
    let status = Command::new(program).args(arguments).current_dir(folder).status();
    let status = status.with_context(|| format!("{program} cannot be started"))?;
    if !status.success() {
        bail!("{program} {} failed: {status}", arguments.join(" "));
    }
    Ok(())
}

/// Prints a line for the person who runs the command.
pub(crate) fn tell(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

fn ci() -> anyhow::Result<()> {
    tidy::run(&root())?;
    figures::run(&root())?;
    run("cargo", &["fmt", "--all", "--check"])?;
    run("cargo", &["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
    run("cargo", &["test", "--workspace", "--exclude", "elasticjob-tests"])?;
    run("cargo", &["run", "--quiet", "--package", "elasticjob-fuzz", "--bin", "inputs", "--", "--seconds", "60"])?;
    let seeds = ["--seeds", "0..30000"];
    let fuzz = ["run", "--quiet", "--release", "--package", "elasticjob-sim", "--bin", "fuzz", "--"];
    run("cargo", &[fuzz.as_slice(), seeds.as_slice()].concat())?;
    integ(&[])?;
    features()?;
    package()?;
    // Rustdoc's own lints, with those for missing documentation.
    let mut doc = Command::new("cargo");
    doc.args(["doc", "--quiet", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings").current_dir(root());
    if !doc.status()?.success() {
        bail!("cargo doc failed");
    }
    api::run(false)?;
    tell("all checks passed");
    Ok(())
}

/// The cargo features of the library. All of them together are checked with the workspace.
const FEATURES: [&str; 11] = [
    "",
    "zookeeper",
    "embedded",
    "rdb-sqlite",
    "rdb-postgres",
    "rdb-mysql",
    "http",
    "mail",
    "webhook",
    "otel",
    "run-log",
];

fn features() -> anyhow::Result<()> {
    for feature in FEATURES {
        let library = ["clippy", "--quiet", "--package", "elasticjob", "--no-default-features", "--features", feature];
        run("cargo", &[library.as_slice(), &["--", "-D", "warnings"]].concat())?;
    }
    Ok(())
}

/// The crates that are published, dependencies first.
const PUBLISHED: [&str; 6] = [
    "elasticjob-core",
    "elasticjob-zookeeper",
    "elasticjob-registry",
    "elasticjob",
    "elasticjob-console",
    "elasticjob-cli",
];

fn package() -> anyhow::Result<()> {
    let mut arguments = vec!["package", "--quiet", "--no-verify", "--allow-dirty"];
    PUBLISHED.iter().for_each(|name| arguments.extend(["--package", name]));
    run("cargo", &arguments)
}

fn integ(arguments: &[String]) -> anyhow::Result<()> {
    install::servers()?;
    install::java_project(&root().join("tests/java"), "peer.jar")?;
    ui()?;
    run("cargo", &["build", "--quiet", "--package", "elasticjob-cli"])?;
    let mut test = vec!["test", "--package", "elasticjob-tests", "--test", "integration", "--"];
    // Two cores share the JVMs and the clusters of two tests; more would only starve them.
    test.push("--test-threads=2");
    test.extend(arguments.iter().map(String::as_str));
    run("cargo", &test)
}

/// Builds the pages of the console.
fn ui() -> anyhow::Result<()> {
    let console = root().join("crates/elasticjob-console");
    if install::pages(&console.join("ui"))? {
        // The files of a build have new names: the module that embeds them must be compiled again.
        let module = console.join("src/pages.rs");
        std::fs::write(&module, std::fs::read(&module)?)?;
    }
    Ok(())
}

/// Builds the pages of the console, then runs `elasticjob up`.
fn up(arguments: &[String]) -> anyhow::Result<()> {
    ui()?;
    let mut command = vec!["run", "--quiet", "--bin", "elasticjob", "--", "up"];
    command.extend(arguments.iter().map(String::as_str));
    // Ctrl-C ends the process that runs the jobs, and this one waits for it.
    tell(&format!("+ cargo {}", command.join(" ")));
    Err(std::os::unix::process::CommandExt::exec(Command::new("cargo").args(command).current_dir(root())).into())
}

fn rig(arguments: &[String]) -> anyhow::Result<()> {
    install::servers()?;
    install::java_project(&root().join("tests/java"), "peer.jar")?;
    run("cargo", &["build", "--quiet", "--package", "elasticjob-cli", "--package", "elasticjob-tests"])?;
    let rig = root().join("target/debug/rig");
    let rig = rig.to_str().context("the path is not UTF-8")?;
    run(rig, &arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

fn fix() -> anyhow::Result<()> {
    run("cargo", &["clippy", "--workspace", "--all-targets", "--fix", "--allow-dirty", "--allow-staged"])?;
    run("cargo", &["fmt", "--all"])
}
