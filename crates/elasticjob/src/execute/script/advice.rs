//! What is probably a mistake in the commands of a job, seen before its first run.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use elasticjob_core::config::{ConfigError, JobConfig};

use super::command_line;

/// Properties that hold commands.
const COMMANDS: [&str; 5] = [
    super::COMMAND_LINE,
    "props.elasticjob.listener.before.command.line",
    "props.elasticjob.listener.after.command.line",
    "props.elasticjob.listener.started.command.line",
    "props.elasticjob.listener.completed.command.line",
];
/// Words that mean something to a shell, and nothing to a program.
const OPERATORS: [&str; 11] = ["|", "||", "&&", "&", ";", ">", ">>", "<", "2>", "2>&1", "&>"];
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "zsh", "ksh", "busybox"];

/// Returns a fault for each command of the configuration whose program does not exist or is not executable on this host. Relative
/// paths begin at `folder`; a name without `/` is looked for in `PATH`.
pub fn missing_programs(config: &JobConfig, folder: &Path) -> Vec<ConfigError> {
    let found = commands(config).into_iter().filter_map(|(key, line, words)| {
        let program = words.first()?;
        let expected = missing(program, folder)?;
        Some(ConfigError::new(key, line, expected))
    });
    found.collect()
}

/// Returns a sentence for each command of the configuration that seems to be meant for a shell.
pub fn shell_warnings(config: &JobConfig) -> Vec<(&'static str, String)> {
    let found = commands(config).into_iter().filter_map(|(key, line, words)| {
        let shell = words.first().and_then(|program| Path::new(program).file_name()?.to_str());
        let operator = match shell.is_some_and(|shell| SHELLS.contains(&shell)) {
            // What follows the shell's own argument, as in `sh -c "a" && b`.
            true => {
                let ends_quote = |word: &&str| word.ends_with("\";") || word.ends_with("';");
                let operator = words.iter().map(String::as_str).find(|word| OPERATORS.contains(word));
                operator.or_else(|| line.split(' ').find(ends_quote))?
            }
            false => {
                // A quoted operator is an argument on purpose.
                let plain = line.split(' ').find(|word| {
                    let word = word.trim_end_matches(';');
                    let is_variable = word.starts_with('$') && word.len() > 1;
                    let is_expanded = word.contains("$(") || word.contains('`') || word.starts_with("~/");
                    OPERATORS.contains(&word) || is_variable || is_expanded
                });
                plain.or_else(|| line.split(' ').find(|word| word.len() > 1 && word.ends_with(';')))?
            }
        };
        let text = format!(
            "`{operator}` reaches the program as an argument, since no shell reads the command; for a shell write: sh -c \"…\""
        );
        Some((key, text))
    });
    found.collect()
}

fn commands(config: &JobConfig) -> Vec<(&'static str, &str, Vec<String>)> {
    let of = |key: &'static str| {
        let line = config.props.get(key.strip_prefix("props.")?)?;
        Some((key, line.as_str(), command_line::words(line, false).ok()?))
    };
    COMMANDS.into_iter().filter_map(of).collect()
}

fn missing(program: &str, folder: &Path) -> Option<String> {
    let is_program =
        |path: &Path| path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
    if !program.contains('/') {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path).any(|folder| is_program(&folder.join(program)));
        return (!found).then(|| format!("`{program}` is not in PATH on this host"));
    }
    let path: PathBuf = folder.join(program.trim_start_matches("./"));
    if is_program(&path) {
        return missing_interpreter(&path);
    }
    Some(match path.metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            format!("{} does not exist on this host", path.display())
        }
        Err(error) => format!("{}: {error}", path.display()),
        Ok(found) if found.is_dir() => format!("{} is a folder", path.display()),
        Ok(_) => format!("{0} is not executable; run: chmod +x {0}", path.display()),
    })
}

/// What is wrong with the first line of a script, `#!` and a program: the kernel would say that the script does not exist.
fn missing_interpreter(script: &Path) -> Option<String> {
    let mut start = Vec::new();
    std::fs::File::open(script).ok()?.take(FIRST_LINE_MAX).read_to_end(&mut start).ok()?;
    if start.is_empty() {
        return Some(format!("{} is empty", script.display()));
    }
    // Text without `#!`: the kernel cannot execute it. A program begins with a byte that no text has.
    if !start.starts_with(b"#!") && start.iter().all(|b| *b >= 0x20 || matches!(b, b'\n' | b'\t' | b'\r')) {
        let text = "the first line must name the program that runs it, such as #!/bin/sh";
        return Some(format!("{}: {text}", script.display()));
    }
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?;
    if line.ends_with('\r') {
        return Some(format!(
            "the first line of {} ends with a carriage return, as on Windows; run: sed -i 's/\\r$//' {0}",
            script.display()
        ));
    }
    let mut words = line.split_ascii_whitespace();
    let interpreter = words.next()?;
    if !Path::new(interpreter).exists() {
        return Some(format!("{}, which runs {}, does not exist on this host", interpreter, script.display()));
    }
    // `#!/usr/bin/env NAME`; its options are left alone.
    let name = words.next().filter(|name| interpreter.ends_with("/env") && !name.starts_with('-'))?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&path).any(|folder| folder.join(name).exists());
    (!is_there).then(|| format!("`{name}`, which runs {}, is not in PATH on this host", script.display()))
}

/// The kernel reads no more of the first line.
const FIRST_LINE_MAX: u64 = 256;

#[cfg(test)]
mod tests {
    use elasticjob_core::wire::JobDocument;
    use jiff::tz::TimeZone;

    use super::*;

    fn config(command: &str) -> JobConfig {
        let mut document = JobDocument::new("a", 1);
        document.props.insert("script.command.line".into(), command.into());
        JobConfig::check(&document, &|_| Some(TimeZone::UTC)).expect("valid")
    }

    #[test]
    fn a_program_that_cannot_run_is_named_with_its_whole_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        std::fs::write(folder.join("plain.sh"), "true").expect("a file");
        for (name, first) in [
            ("good.sh", "#!/bin/sh -e"),
            ("env.sh", "#! /usr/bin/env sh"),
            ("gone.sh", "#!/opt/none/python"),
            ("unknown.sh", "#!/usr/bin/env no-such-program-of-ours"),
            ("windows.sh", "#!/bin/sh\r"),
            ("bare.sh", "echo text"),
        ] {
            let file = folder.join(name);
            std::fs::write(&file, format!("{first}\ntrue\n")).expect("a file");
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("a mode");
        }
        for (command, expected) in [
            ("sh -c true", None),
            ("/bin/sh -c true", None),
            ("no-such-program-of-ours x", Some("`no-such-program-of-ours` is not in PATH".to_owned())),
            ("./none.sh", Some(format!("{} does not exist", folder.join("none.sh").display()))),
            ("./plain.sh", Some(format!("is not executable; run: chmod +x {}", folder.join("plain.sh").display()))),
            ("/bin/", Some("is a folder".to_owned())),
            ("./good.sh", None),
            ("./env.sh", None),
            ("./gone.sh", Some("/opt/none/python, which runs ".to_owned())),
            ("./unknown.sh", Some("`no-such-program-of-ours`, which runs ".to_owned())),
            ("./bare.sh", Some("bare.sh: the first line must name the program that runs it".to_owned())),
            ("./windows.sh", Some("windows.sh ends with a carriage return".to_owned())),
        ] {
            let faults = missing_programs(&config(command), folder);
            let told = faults.first().map(|fault| fault.expected.clone());
            let matches = match (&told, &expected) {
                (Some(told), Some(expected)) => told.contains(expected),
                (told, expected) => told == expected,
            };
            assert!(matches, "{command}: {told:?}");
        }
    }

    #[test]
    fn words_for_a_shell_are_seen_where_no_shell_reads_them() {
        for (command, operator) in [
            ("cat x | wc -l", Some("`|`")),
            ("make && make install", Some("`&&`")),
            ("date > out.txt", Some("`>`")),
            ("echo $HOME", Some("`$HOME`")),
            ("echo $(date)", Some("`$(date)`")),
            ("cd /tmp; ls", Some("`/tmp;`")),
            ("sh -c 'cat x | wc -l'", None),
            ("/bin/bash -c \"a && b\"", None),
            ("sh -c \"echo A\" && echo b", Some("`&&`")),
            ("bash -c 'echo B' | cat", Some("`|`")),
            ("sh -c \"exit 1\"; echo b", Some("`1\";`")),
            ("echo ~/x", Some("`~/x`")),
            ("echo `date`", Some("``date``")),
            ("printf 5$", None),
            ("grep a|b file", None),
        ] {
            let warnings = shell_warnings(&config(command));
            let told = warnings.first().map(|(_, text)| text.as_str());
            match operator {
                Some(operator) => assert!(told.is_some_and(|told| told.starts_with(operator)), "{command}: {told:?}"),
                None => assert_eq!(told, None, "{command}"),
            }
        }
    }
}
