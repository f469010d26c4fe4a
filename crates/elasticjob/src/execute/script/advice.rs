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
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "zsh", "ksh", "busybox"];
/// Other programs whose first argument is a file that they execute.
const INTERPRETERS: [&str; 5] = ["python3", "python", "perl", "ruby", "php"];

/// Returns a fault for each command of the configuration whose program does not exist or is not executable on this host. Relative
/// paths begin at `folder`; a name without `/` is looked for in `PATH`.
pub fn missing_programs(config: &JobConfig, folder: &Path) -> Vec<ConfigError> {
    let found = commands(config).into_iter().filter_map(|(key, line, words)| {
        let program = words.first()?;
        let expected = missing(program, folder).or_else(|| missing_script(&words, folder))?;
        Some(ConfigError::new(key, line, expected))
    });
    found.collect()
}

/// Returns a sentence for each command of the configuration that seems to be meant for a shell.
pub fn shell_warnings(config: &JobConfig) -> Vec<(&'static str, String)> {
    let found = commands(config).into_iter().filter_map(|(key, line, words)| {
        let program = words.first().and_then(|program| Path::new(program).file_name()?.to_str());
        let word = word_for_a_shell(line, program.is_some_and(|program| SHELLS.contains(&program)))?;
        let text = format!(
            "`{word}` reaches the program as an argument, since no shell reads the command; for a shell write: sh -c \"…\"; for an argument, put it into single quotes"
        );
        Some((key, text))
    });
    found.collect()
}

/// The first word of a command line that a shell would not pass on as it is. What is in single quotes is an argument on purpose.
/// With `has_shell`, a shell reads its own argument, and only what follows it is for another one, as in `sh -c "a" && b`.
fn word_for_a_shell(line: &str, has_shell: bool) -> Option<&str> {
    let plain = without_quoted(line, has_shell);
    let mut at = 0;
    plain.split(' ').find_map(|word| {
        let original = &line[at..at + word.len()];
        at += word.len() + 1;
        (is_operator(word) || (!has_shell && is_expanded(word))).then_some(original)
    })
}

/// The line with the same length, where quoted text is masked: it means nothing to a shell. In double quotes, `$` and backquotes do.
fn without_quoted(line: &str, masks_double: bool) -> String {
    let mut quote = None;
    let mut plain = String::with_capacity(line.len());
    for c in line.chars() {
        let is_quote = match quote {
            Some(open) => c == open,
            None => matches!(c, '"' | '\''),
        };
        if is_quote {
            quote = if quote.is_some() { None } else { Some(c) };
        }
        let is_shown = quote.is_none() || (quote == Some('"') && !masks_double && is_expanding(c));
        match is_shown && !is_quote {
            true => plain.push(c),
            false => plain.extend(std::iter::repeat_n('x', c.len_utf8())),
        }
    }
    plain
}

fn is_expanding(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '$' | '`' | '{' | '(' | '_' | ' ')
}

/// Redirections, pipes and the ends of commands. An address may contain `&` and `;`.
fn is_operator(word: &str) -> bool {
    let is_address = word.contains("://");
    word.contains(['|', '<', '>'])
        || word.contains("&&")
        || word == "&"
        || (word.ends_with('&') && word.len() > 1 && !is_address)
        || (word.contains(';') && !is_address)
}

/// Variables, commands, the home folder and patterns of file names.
fn is_expanded(word: &str) -> bool {
    let is_address = word.contains("://");
    let is_variable = word.char_indices().any(|(at, c)| {
        let next = word[at + c.len_utf8()..].chars().next();
        c == '$' && next.is_some_and(|next| next.is_ascii_alphanumeric() || matches!(next, '_' | '{' | '('))
    });
    let is_list = word
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'))
        .is_some_and(|(list, _)| list.contains(',') && !list.contains([':', '"']));
    is_variable
        || word.contains('`')
        || word == "~"
        || word.starts_with("~/")
        || (!is_address && (word.contains('*') || word.contains('?') || is_list))
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

/// The file that an interpreter is to read, as in `sh run.sh`, if it does not exist. What follows an option is left alone.
fn missing_script(words: &[String], folder: &Path) -> Option<String> {
    let program = Path::new(words.first()?).file_name()?.to_str()?;
    let script = words.get(1).filter(|word| !word.is_empty() && !word.starts_with(['-', '$']))?;
    let path = folder.join(script);
    let is_interpreter = SHELLS.contains(&program) || INTERPRETERS.contains(&program);
    // `busybox` has its own commands.
    let is_missing = is_interpreter && program != "busybox" && !path.exists();
    is_missing.then(|| format!("{}, which `{program}` is to read, does not exist on this host", path.display()))
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
            ("sh good.sh", None),
            (
                "sh none.sh x",
                Some(format!("{}, which `sh` is to read, does not exist", folder.join("none.sh").display())),
            ),
            ("/usr/bin/env none.sh", None),
            ("sh $FILE", None),
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
            ("sh -c \"exit 1\"; echo b", Some("`\"exit 1\";`")),
            ("echo ~/x", Some("`~/x`")),
            ("echo `date`", Some("``date``")),
            ("printf 5$", None),
            ("grep 'a|b' file", None),
            ("grep a|b file", Some("`a|b`")),
            ("ls 2>/dev/null", Some("`2>/dev/null`")),
            ("ls >>out", Some("`>>out`")),
            ("ls a>out", Some("`a>out`")),
            ("ls &>out", Some("`&>out`")),
            ("ls <in", Some("`<in`")),
            ("ls a||b", Some("`a||b`")),
            ("ls a&&ls b", Some("`a&&ls`")),
            ("ls a;ls b", Some("`a;ls`")),
            ("ls ;", Some("`;`")),
            ("ls \"$HOME\"", Some("`\"$HOME\"`")),
            ("ls \"a b $HOME\"", Some("`$HOME\"`")),
            ("env FOO=$BAR ls", Some("`FOO=$BAR`")),
            ("ls ~", Some("`~`")),
            ("ls *.txt ü", Some("`*.txt`")),
            ("ls ü ?.txt", Some("`?.txt`")),
            ("ls {a,b}", Some("`{a,b}`")),
            ("ls '*.txt' '$HOME' '>'", None),
            ("curl http://h/?a=1&b=2;c", None),
            ("post {\"a\":1,\"b\":2} a=b x-y", None),
            ("sh -c \"ls *.txt > $HOME/out\"", None),
            ("sh -c \"ls\" >out", Some("`>out`")),
            ("sh run.sh $1", None),
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
