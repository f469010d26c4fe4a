//! The sharding context as JSON, as scripts and HTTP jobs get it (Java: `ShardingContext` through Gson).

/// The data that an item receives about its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the keys of the JSON object")]
pub struct ContextFields<'a> {
    pub job_name: &'a str,
    pub task_id: &'a str,
    pub sharding_total_count: u32,
    pub job_parameter: &'a str,
    pub sharding_item: u32,
    pub sharding_parameter: Option<&'a str>,
}

/// One object without spaces, keys in Java's order, a missing parameter left out, with Gson's HTML-safe escapes.
pub fn context_json(fields: ContextFields<'_>) -> String {
    let mut out = String::from("{\"jobName\":");
    quote(&mut out, fields.job_name);
    out.push_str(",\"taskId\":");
    quote(&mut out, fields.task_id);
    out.push_str(&format!(",\"shardingTotalCount\":{},\"jobParameter\":", fields.sharding_total_count));
    quote(&mut out, fields.job_parameter);
    out.push_str(&format!(",\"shardingItem\":{}", fields.sharding_item));
    if let Some(parameter) = fields.sharding_parameter {
        out.push_str(",\"shardingParameter\":");
        quote(&mut out, parameter);
    }
    out.push('}');
    out
}

/// A text as JSON, with Gson's HTML-safe escapes.
pub fn json_text(text: &str) -> String {
    let mut out = String::new();
    quote(&mut out, text);
    out
}

fn quote(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..='\u{1f}' | '<' | '>' | '&' | '=' | '\'' | '\u{2028}' | '\u{2029}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_equals_java() {
        let path = format!("{}/tests/vectors/sharding_context_json.json", env!("CARGO_MANIFEST_DIR"));
        let vectors: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(path).expect("vectors")).expect("JSON");
        let cases = vectors["cases"].as_array().expect("cases");
        assert!(!cases.is_empty());
        for case in cases {
            let json = context_json(ContextFields {
                job_name: "job",
                task_id: "job@-@0@-@READY@-@1.1.1.1@-@22",
                sharding_total_count: 3,
                job_parameter: case["job_parameter"].as_str().unwrap_or("jp"),
                sharding_item: 0,
                sharding_parameter: case["sharding_parameter"].as_str(),
            });
            assert_eq!(Some(json.as_str()), case["json"].as_str(), "{case}");
        }
    }
}
