//! `rig`: living clusters on hosts of their own under faults, judged; `cargo xtask rig` builds and installs what it needs.
//!
//! ```text
//! rig [--mixed] [--minutes 60] [--chapter 15] [--seed 1]
//! rig beside [ROW]
//! ```

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use elasticjob_tests::rig::{self, Plan};

const USAGE: &str = "usage: rig [--mixed] [--minutes M] [--chapter M] [--seed N]
       rig beside [ROW]

  --mixed      two of the four agents are Java's
  --minutes M  for so many minutes under faults (60)
  --chapter M  with a cluster of its own for so many of them (15)
  --seed N     the faults of the first cluster; the next has N + 1 (1)
  beside       what upstream is known for, done to a cluster of Java's and to one of ours: a table, or that row alone
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [first, rest @ ..] = words.as_slice()
        && first == "beside"
        && rest.len() < 2
    {
        return match rig::beside(rest.first().map(String::as_str), say) {
            Ok((table, good)) => {
                say(&format!("\n{table}"));
                if good { ExitCode::SUCCESS } else { ExitCode::from(1) }
            }
            Err(error) => {
                say(&error);
                ExitCode::from(2)
            }
        };
    }
    let Some((minutes, chapter, seed, mixed)) = arguments() else {
        say(USAGE);
        return ExitCode::from(2);
    };
    let chapters = usize::try_from(minutes.div_ceil(chapter)).unwrap_or(1);
    let report = rig::run(&Plan { seed, chapter: Duration::from_secs(chapter * 60), chapters, mixed, say });
    say(&format!("\n{report}"));
    report.violations.iter().chain(&report.failures).for_each(|what| say(what));
    if report.violations.is_empty() && report.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

fn arguments() -> Option<(u64, u64, u64, bool)> {
    let (mut minutes, mut chapter, mut seed, mut mixed) = (60, 15, 1, false);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || words.next()?.parse::<u64>().ok();
        match word.as_str() {
            "--mixed" => mixed = true,
            "--minutes" => minutes = number().filter(|n| *n > 0)?,
            "--chapter" => chapter = number().filter(|n| *n > 0)?,
            "--seed" => seed = number()?,
            _ => return None,
        }
    }
    Some((minutes, chapter.min(minutes), seed, mixed))
}

fn say(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
