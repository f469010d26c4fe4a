//! Reports figures that are older than the kernel: pages name the commit at which theirs were measured.

use std::path::Path;
use std::process::Command;

use crate::tell;

const KERNEL: &str = "crates/elasticjob-core/src/machine";
/// The pages with figures. The last row of the schedules' table has its commit in a column.
const PAGES: [&str; 3] = ["README.md", "docs/performance.md", "crates/elasticjob-sim/seeds.md"];

/// Prints one line for each page whose figures were measured before the last change of the kernel. It never fails: measuring
/// again takes an hour, and a small change may not be worth it.
pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    for page in PAGES {
        let text = std::fs::read_to_string(root.join(page))?;
        let Some(commit) = commit(&text) else {
            anyhow::bail!("{page}: names no commit for its figures");
        };
        match changes_since(root, commit) {
            Some(0) => {}
            Some(count) => {
                tell(&format!("{page}: the figures are older than {count} changes of {KERNEL} (commit {commit})"))
            }
            None => tell(&format!("{page}: commit {commit} of the figures is not in this clone")),
        }
    }
    Ok(())
}

/// Returns the commit that a page names: in its last table row with a commit, or after the word `commit`.
fn commit(text: &str) -> Option<&str> {
    let row = text.lines().rev().filter(|line| line.starts_with("| ")).find_map(|line| {
        let cell = line.split('|').map(str::trim).nth(2)?;
        is_commit(cell).then_some(cell)
    });
    let word = || {
        text.split("commit ").skip(1).find_map(|rest| {
            let word = rest.split(|c: char| !c.is_ascii_alphanumeric()).next()?;
            is_commit(word).then_some(word)
        })
    };
    row.or_else(word)
}

/// Returns `true` for an abbreviated hash.
fn is_commit(word: &str) -> bool {
    word.len() == 7 && word.chars().all(|c| c.is_ascii_hexdigit())
}

/// Returns the number of commits that changed the kernel since; `None` if git does not know the commit.
fn changes_since(root: &Path, commit: &str) -> Option<usize> {
    let range = format!("{commit}..HEAD");
    let output =
        Command::new("git").args(["rev-list", "--count", &range, "--", KERNEL]).current_dir(root).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::commit;

    #[test]
    fn the_commit_of_figures_is_found() {
        assert_eq!(commit("Figures at commit 0a12ea7: Java"), Some("0a12ea7"));
        assert_eq!(commit("to commit a change\nat commit 0a12ea7, commit de97589"), Some("0a12ea7"));
        assert_eq!(commit("| seeds | commit |\n| 0..9 | d6e82e4 | 65 |\n| 0..10 | 02f5685 | 69 |\n"), Some("02f5685"));
        assert_eq!(commit("no figures"), None);
    }
}
