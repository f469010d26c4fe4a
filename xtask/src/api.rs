//! The public surface of the library as text, compared with the stored one: a change of it is seen in review.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use anyhow::{Context, bail};

use crate::{root, tell};

/// The stored surface.
const STORED: &str = "crates/elasticjob/public-api.txt";

/// Compares the surface with the stored one, or stores it.
pub(crate) fn run(write: bool) -> anyhow::Result<()> {
    let now = surface()?;
    let path = root().join(STORED);
    if write {
        std::fs::write(&path, &now)?;
        return Ok(());
    }
    let stored = std::fs::read_to_string(&path).with_context(|| format!("cannot read {STORED}"))?;
    if stored == now {
        return Ok(());
    }
    let has = |text: &str, line: &str| text.lines().any(|other| other == line);
    for line in stored.lines().filter(|line| !has(&now, line)) {
        tell(&format!("- {line}"));
    }
    for line in now.lines().filter(|line| !has(&stored, line)) {
        tell(&format!("+ {line}"));
    }
    bail!("the public surface of elasticjob changed; run `cargo xtask api --write`, and add a line to CHANGELOG.md");
}

/// Every public item of the library with all features, one a line.
fn surface() -> anyhow::Result<String> {
    // The JSON output of rustdoc is unstable. The variable that allows it is set for rustdoc alone: for cargo it would build every
    // dependency again.
    let folder = root().join("target/xtask");
    std::fs::create_dir_all(&folder)?;
    let rustdoc = folder.join("rustdoc");
    std::fs::write(&rustdoc, "#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc \"$@\"\n")?;
    std::fs::set_permissions(&rustdoc, std::fs::Permissions::from_mode(0o755))?;
    let mut cargo = Command::new("cargo");
    cargo.args(["rustdoc", "--quiet", "--package", "elasticjob", "--lib", "--all-features", "--"]);
    cargo.args(["-Z", "unstable-options", "--output-format", "json", "--cap-lints", "allow"]);
    if !cargo.env("RUSTDOC", &rustdoc).current_dir(root()).status()?.success() {
        bail!("cargo rustdoc failed");
    }
    let api = public_api::Builder::from_rustdoc_json(root().join("target/doc/elasticjob.json"))
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()?;
    Ok(format!("{api}"))
}
