//! A command line as words: with our quoting, and with that of Java (commons-exec 1.3).

/// The words of a command line: spaces divide them, `"` and `'` group. No shell, no variables, no `\`.
///
/// With `java` an argument that holds a space or a quote keeps quotes around it, which reach the program literally
/// (commons-exec 1.3).
///
/// # Errors
///
/// Nothing in it, a quote that is not closed; with `java` also both kinds of quotes in one argument.
pub(super) fn words(line: &str, java: bool) -> Result<Vec<String>, String> {
    let line = if java { line.trim() } else { line };
    let mut words: Vec<String> = Vec::new();
    let (mut word, mut in_word, mut quote) = (String::new(), false, None);
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.push(c),
            (None, '"' | '\'') => {
                quote = Some(c);
                in_word = true;
            }
            (None, ' ') => {
                if in_word {
                    words.push(std::mem::take(&mut word));
                }
                in_word = false;
            }
            (None, c) => {
                word.push(c);
                in_word = true;
            }
        }
    }
    if let Some(open) = quote {
        return Err(format!("a quote {open} is not closed"));
    }
    if in_word {
        words.push(word);
    }
    if words.first().is_none_or(String::is_empty) {
        return Err("a program and its arguments".into());
    }
    if java {
        for word in words.iter_mut().skip(1) {
            *word = java_quotes(word)?;
        }
        words[0] = words[0].replace('\\', "/");
    }
    Ok(words)
}

fn java_quotes(word: &str) -> Result<String, String> {
    let mut inner = word.trim();
    while let Some(stripped) = ['"', '\''].iter().find_map(|q| inner.strip_prefix(*q)?.strip_suffix(*q)) {
        inner = stripped;
    }
    match (inner.contains('"'), inner.contains('\'') || inner.contains(' ')) {
        (true, _) if inner.contains('\'') => {
            Err("one argument mixes single and double quotes, which is not supported".into())
        }
        (true, _) => Ok(format!("'{inner}'")),
        (false, true) => Ok(format!("\"{inner}\"")),
        (false, false) => Ok(inner.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn java_quoting_equals_java() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../elasticjob-core/tests/vectors/script_command_line.json");
        let vectors: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(path).expect("vectors")).expect("JSON");
        for case in vectors["cases"].as_array().expect("cases") {
            let line = case["command_line"].as_str().unwrap_or_default();
            let found = words(line, true);
            let Some(argv) = case["argv"].as_array() else {
                assert!(found.is_err(), "{case}: {found:?}");
                continue;
            };
            let mut expected: Vec<&str> = argv.iter().map(|a| a.as_str().expect("text")).collect();
            expected.pop(); // the context
            assert_eq!(found.unwrap_or_else(|e| panic!("{case}: {e}")), expected, "{case}");
        }
    }

    #[test]
    fn quotes_group_words_and_are_removed() {
        for (line, expected) in [
            ("sh -c 'echo hi'", Some(vec!["sh", "-c", "echo hi"])),
            ("  a  \"b c\"d ''  ", Some(vec!["a", "b cd", ""])),
            ("a \"it's\"", Some(vec!["a", "it's"])),
            ("a 'b", None),
            ("   ", None),
            ("", None),
            ("'' a", None),
        ] {
            assert_eq!(
                words(line, false).ok(),
                expected.map(|e| e.iter().map(ToString::to_string).collect()),
                "{line}"
            );
        }
    }
}
