//! Builds what the comparison needs, then runs it: `bench/src/bench`.

use anyhow::Context;

use crate::{install, root, run};

pub(crate) fn run_bench(arguments: &[String]) -> anyhow::Result<()> {
    install::servers()?;
    install::java_project(&root().join("bench/java"), "workload.jar")?;
    install::java_project(&root().join("tests/java"), "peer.jar")?;
    run("cargo", &["build", "--release", "--quiet", "--package", "elasticjob-bench", "--package", "elasticjob-cli"])?;
    let bench = root().join("target/release/bench");
    let bench = bench.to_str().context("the path is not UTF-8")?;
    run(bench, &arguments.iter().map(String::as_str).collect::<Vec<_>>())
}
