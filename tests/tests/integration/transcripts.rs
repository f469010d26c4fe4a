//! The transcripts of the documentation: each command is run as it stands, and must print what the page says.
//!
//! Times, addresses, ids and spans differ from run to run: they are compared as such. `UPDATE_TRANSCRIPTS=1` writes what was
//! printed into the pages instead.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use elasticjob_tests::{Process, command, eventually, field, output};
use regex::Regex;

const PATIENCE: Duration = Duration::from_secs(60);

fn pages() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").join("docs/commands");
    let mut pages: Vec<PathBuf> = std::fs::read_dir(folder).expect("the folder").flatten().map(|e| e.path()).collect();
    pages.sort();
    pages
}

/// One command of a page, and the lines that it says to be printed.
#[derive(Debug)]
struct Step {
    command: String,
    expected: Vec<String>,
}

/// The steps of all transcripts of a page.
fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for block in text.split("```console\n").skip(1) {
        for line in block.split("```").next().unwrap_or_default().lines() {
            match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => steps.push(Step { command: command.to_owned(), expected: Vec::new() }),
                (None, Some(step)) => step.expected.push(line.to_owned()),
                (None, None) => panic!("a transcript begins with a command: {line}"),
            }
        }
    }
    steps
}

/// The page with other outputs in its transcripts.
fn rewritten(text: &str, outputs: &[Vec<String>]) -> String {
    let (mut out, mut inside, mut step) = (String::new(), false, 0);
    for line in text.lines() {
        match (inside, line) {
            (false, "```console") => inside = true,
            (true, "```") => inside = false,
            (true, line) if !line.starts_with("$ ") => continue,
            _ => {}
        }
        out.push_str(line);
        out.push('\n');
        if inside && line.starts_with("$ ") {
            outputs[step].iter().for_each(|line| out.push_str(&format!("{line}\n")));
            step += 1;
        }
    }
    out
}

/// What differs from run to run, made equal: pattern and what stands for it. The first ones are for the pages too.
const SHOWN: [(&str, &str); 3] =
    [(r"@-@\d+", "@-@4711"), (r"\b\d+\.\d+\.\d+\.\d+\b", "192.0.2.1"), (r"/\S*\.tmp\w{6}", "/srv/jobs")];
const COMPARED: [(&str, &str); 10] = [
    (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "RUN"),
    (r"(NORMAL_TRIGGER +[0-9.]+ +)[0-9a-f]{8}\b", "${1}RUN"),
    (r"\d{4}-\d\d-\d\dT[0-9:.]+Z", "TIME"),
    (r"\b\d+ (ms|s|min)\b", "SPAN"),
    (r"due=\d+", "due=N"),
    (r"begin=\d+", "begin=N"),
    (r"at=\d+", "at=N"),
    (r"session=[0-9a-f]{16}", "session=N"),
    (r"claim-[0-9a-f]{16}", "claim-N"),
    (r" +", " "),
];

fn replaced(line: &str, patterns: &[(&str, &str)]) -> String {
    let replace = |line: String, (pattern, by): &(&str, &str)| {
        Regex::new(pattern).expect("a pattern").replace_all(&line, *by).into_owned()
    };
    patterns.iter().fold(line.trim_end().to_owned(), replace)
}

fn shown(line: &str) -> String {
    replaced(line, &SHOWN)
}

fn normal(line: &str) -> String {
    replaced(&shown(line), &COMPARED)
}

/// Runs a line in a shell that finds the binary.
fn shell(line: &str, folder: &Path, variables: &[(String, String)]) -> Output {
    let binary = PathBuf::from(command().get_program());
    let path =
        format!("{}:{}", binary.parent().expect("its folder").display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).current_dir(folder).env("PATH", path).env_remove("ELASTICJOB_REGISTRY");
    shell.envs(variables.iter().map(|(name, value)| (name, value)));
    shell.output().expect("a shell")
}

/// What a command that runs on prints: every line, in any order; then it is interrupted.
fn runs_on(step: &Step, folder: &Path) {
    let mut words = step.command.split(' ');
    assert_eq!(words.next(), Some("elasticjob"));
    let mut command = command();
    command.args(words).current_dir(folder);
    let mut process = Process::start(command, &folder.join("runs-on"));
    for line in &step.expected {
        let wanted = normal(line);
        let found = |log: &str| log.lines().any(|line| normal(line).contains(wanted.trim_start_matches("INFO")));
        eventually(&format!("{}: {line}", step.command), PATIENCE, || found(&process.log()).then_some(()));
    }
    process.signal("INT");
    assert_eq!(process.wait(PATIENCE).code(), Some(0), "{}", process.log());
}

/// Runs the page from its first step to its last; gives what each printed.
fn run(page: &Path, text: &str) -> Vec<Vec<String>> {
    let folder = tempfile::tempdir().expect("a folder");
    let yaml = text.split("```yaml\n").nth(1).map(|rest| rest.split("```").next().unwrap_or_default());
    if let Some(yaml) = yaml {
        std::fs::write(folder.path().join("jobs.yaml"), yaml).expect("a file");
    }
    let steps = steps(text);
    assert!(!steps.is_empty(), "{} has no transcript", page.display());
    let on_jobs =
        |step: &Step| ["job ", "server ", "shard "].iter().any(|w| step.command.contains(&format!("elasticjob {w}")));
    let agent = steps.iter().any(on_jobs).then(|| {
        let mut command = command();
        match yaml {
            Some(_) => command.args(["agent", "-v", "jobs.yaml"]),
            None => command.args(["up", "-v"]),
        };
        command.current_dir(folder.path());
        let process = Process::start(command, &folder.path().join("log"));
        // All jobs have run and the trace is written.
        let jobs = if yaml.is_some() { 1 } else { 2 };
        eventually("all jobs ran", PATIENCE, || {
            let log = process.log();
            let ended: BTreeSet<&str> =
                log.lines().filter(|l| l.contains("completed items")).filter_map(|l| field(l, "job")).collect();
            (ended.len() == jobs && log.matches("completed items").count() >= 4).then_some(())
        });
        process
    });
    let (mut outputs, mut code, mut variables, mut codes) = (Vec::new(), 0, Vec::new(), Vec::new());
    for step in &steps {
        if ["elasticjob up", "elasticjob agent"].iter().any(|c| step.command.starts_with(c)) {
            runs_on(step, folder.path());
            outputs.push(step.expected.clone());
            continue;
        }
        if step.command == "echo $?" {
            outputs.push(vec![code.to_string()]);
            continue;
        }
        // NAME=$(…) sets a variable for what follows.
        if let Some((name, value)) = step.command.split_once("=$(") {
            let value = shell(value.trim_end_matches(')'), folder.path(), &variables);
            variables.push((name.to_owned(), String::from_utf8_lossy(&value.stdout).trim().to_owned()));
            outputs.push(Vec::new());
            continue;
        }
        let found = shell(&step.command, folder.path(), &variables);
        code = found.status.code().unwrap_or(-1);
        let printed = [found.stdout, found.stderr].concat();
        codes.push((step.command.clone(), code));
        outputs.push(String::from_utf8_lossy(&printed).lines().map(shown).collect());
    }
    drop(agent);
    // A page shows the exit code of what fails.
    let shown = |command: &String| steps.windows(2).any(|w| w[0].command == *command && w[1].command == "echo $?");
    for (command, code) in codes {
        assert!(code == 0 || shown(&command), "{}: `{command}` ends with {code}", page.display());
    }
    outputs
}

/// How often a page is run until it prints what it says: a run of a job that is on its way for a moment shows in a list.
const TRIES: usize = 3;

#[test]
fn each_transcript_is_what_the_commands_print() {
    let update = std::env::var("UPDATE_TRANSCRIPTS").is_ok();
    for page in pages() {
        let text = std::fs::read_to_string(&page).expect("a page");
        if update {
            std::fs::write(&page, rewritten(&text, &run(&page, &text))).expect("the page");
            continue;
        }
        let lines = |lines: &[String]| lines.iter().map(|l| normal(l)).collect::<Vec<String>>();
        let wanted: Vec<(String, Vec<String>)> =
            steps(&text).into_iter().map(|step| (step.command, lines(&step.expected))).collect();
        let print = || -> Vec<(String, Vec<String>)> {
            let printed = run(&page, &text);
            wanted.iter().map(|(command, _)| command.clone()).zip(printed.iter().map(|p| lines(p))).collect()
        };
        let mut printed = print();
        for _ in 1..TRIES {
            if printed != wanted {
                printed = print();
            }
        }
        assert_eq!(printed, wanted, "{}", page.display());
    }
}

#[test]
fn every_command_has_its_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let written = output(&["man", "pages"], folder.path());
    assert!(written.status.success());
    let manual: BTreeSet<String> = std::fs::read_dir(folder.path().join("pages"))
        .expect("the pages")
        .flatten()
        .map(|e| e.file_name().to_string_lossy().trim_end_matches(".1").replace('-', " "))
        .collect();
    let leaf = |name: &&String| !manual.iter().any(|other| other.starts_with(&format!("{name} ")));
    let commands: Vec<&String> = manual.iter().filter(leaf).collect();
    assert!(commands.len() >= 26, "{commands:?}");
    let told: Vec<String> = pages()
        .iter()
        .flat_map(|page| steps(&std::fs::read_to_string(page).expect("a page")))
        .map(|s| s.command)
        .collect();
    for command in commands {
        let used = |line: &String| line.contains(&format!("{command} ")) || line.ends_with(command.as_str());
        assert!(told.iter().any(used), "`{command}` is in no transcript");
    }
}
