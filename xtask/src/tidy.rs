//! The rules that no compiler checks; see CONTRIBUTING.md.

use std::path::{Path, PathBuf};

use anyhow::bail;

/// What core must not use: its manifest proves that its decisions are pure.
const NOT_IN_CORE: [&str; 5] = ["tokio", "rand", "tracing", "serde =", "parking_lot"];
/// Words that are in no source file: `(ending, word, why)`.
const NOT_IN_SOURCE: [(&str, &str, &str); 4] = [
    (".rs", concat!("#[ign", "ore"), "a test that is not run rots unseen"),
    (".rs", concat!("zookeeper", "_client::"), "only the folder `zookeeper` of the registry crate knows the client"),
    (".rs", concat!("re", "db::"), "only the folder `embedded` of the registry crate knows the store"),
    (
        ".rs",
        concat!("sql", "x::"),
        "only the folder `trace/rdb` knows SQL, beside tests and bench that read what it wrote",
    ),
];

pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let mut faults = Vec::new();
    let core = std::fs::read_to_string(root.join("crates/elasticjob-core/Cargo.toml"))?;
    let dependencies = core.split("[dev-dependencies]").next().unwrap_or_default();
    for word in NOT_IN_CORE {
        if dependencies.lines().any(|line| line.starts_with(word)) {
            faults.push(format!("crates/elasticjob-core/Cargo.toml: `{word}`: core is pure"));
        }
    }
    let files = files(root)?;
    for file in &files {
        let name = file.strip_prefix(root).unwrap_or(file).display().to_string();
        let Ok(text) = std::fs::read_to_string(file) else { continue };
        for (ending, word, why) in NOT_IN_SOURCE {
            let homes = ["/zookeeper/", "/embedded/", "/trace/rdb/", "tests/src/database.rs", "bench/src/"];
            let home = homes.iter().any(|home| name.contains(home));
            if name.ends_with(ending) && text.contains(word) && !home {
                faults.push(format!("{name}: `{word}`: {why}"));
            }
        }
        if name.ends_with("Cargo.toml") && name != "Cargo.toml" && !text.contains("workspace = true") {
            faults.push(format!("{name}: versions and lints come from the workspace"));
        }
        if name.ends_with(".rs") && !text.starts_with("//!") && !text.starts_with("#![doc = include_str!(") {
            faults.push(format!("{name}: begins with no `//!` that says what it is for"));
        }
    }
    let architecture = std::fs::read_to_string(root.join("ARCHITECTURE.md"))?;
    for folder in std::fs::read_dir(root.join("crates"))? {
        let folder = folder?.file_name().to_string_lossy().into_owned();
        if !architecture.contains(&folder) {
            faults.push(format!("ARCHITECTURE.md: crate `{folder}` is not on the map"));
        }
    }
    if faults.is_empty() { Ok(()) } else { bail!("tidy:\n{}", faults.join("\n")) }
}

fn files(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && name != "target" && name != ".git" {
                folders.push(path);
            } else if path.is_file() {
                found.push(path);
            }
        }
    }
    Ok(found)
}
