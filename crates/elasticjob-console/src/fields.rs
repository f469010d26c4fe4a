//! The fields of a JSON body, as lenient as ElasticJob-UI reads them: numbers may be texts, and unknown fields are ignored.

use elasticjob::Timestamp;
use serde_json::{Map, Value};

use crate::failure::Failure;

/// Longest part of a value in an error.
const SHOWN_MAX: usize = 100;

/// The fields of a request.
#[derive(Debug)]
pub(crate) struct Fields(Map<String, Value>);

impl Fields {
    /// Parses a body.
    ///
    /// # Errors
    ///
    /// The body is no JSON object.
    pub(crate) fn parse(body: &[u8]) -> Result<Fields, Failure> {
        if body.is_empty() {
            return Err(Failure::invalid("the request has no body; expected a JSON object"));
        }
        match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => Ok(Fields(fields)),
            Ok(other) => Err(Failure::invalid(format!("the body is `{}`; expected a JSON object", shown(&other)))),
            Err(error) => Err(Failure::invalid(format!("the body is not valid JSON: {error}"))),
        }
    }

    /// Fails on a field whose name is not one of these.
    pub(crate) fn only(&self, names: &[&str]) -> Result<(), Failure> {
        match self.0.keys().find(|name| !names.contains(&name.as_str())) {
            Some(name) => {
                Err(Failure::invalid(format!("unknown field `{}`; expected {}", short(name), names.join(", "))))
            }
            None => Ok(()),
        }
    }

    fn value(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// A text; `None` if it is null or missing. Numbers and booleans count as their text.
    pub(crate) fn text(&self, name: &str) -> Result<Option<String>, Failure> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(value @ (Value::Number(_) | Value::Bool(_))) => Ok(Some(value.to_string())),
            Some(other) => Err(invalid(name, other, "a text")),
        }
    }

    /// A text that must have a visible character.
    pub(crate) fn required(&self, name: &str) -> Result<String, Failure> {
        match self.text(name)? {
            Some(text) if !text.trim().is_empty() => Ok(text),
            _ => Err(Failure::invalid(format!("field `{name}` is missing or empty; expected a text"))),
        }
    }

    /// A whole number; `default` if the field is missing. Null is an error if `default` is one that null does not mean.
    pub(crate) fn number(&self, name: &str, default: i64) -> Result<i64, Failure> {
        match self.value(name) {
            None => Ok(default),
            Some(value @ Value::Number(number)) => {
                number.as_i64().ok_or_else(|| invalid(name, value, "a whole number"))
            }
            Some(Value::String(text)) if text.trim().is_empty() => Ok(default),
            Some(value @ Value::String(text)) => {
                text.trim().parse().map_err(|_| invalid(name, value, "a whole number"))
            }
            Some(other) => Err(invalid(name, other, "a whole number")),
        }
    }

    /// Fails if the field is null.
    pub(crate) fn not_null(&self, name: &str) -> Result<(), Failure> {
        match self.0.get(name) {
            Some(Value::Null) => Err(Failure::invalid(format!("field `{name}` is null; expected a whole number"))),
            _ => Ok(()),
        }
    }

    /// A boolean; `None` if it is null, empty or missing.
    pub(crate) fn flag(&self, name: &str) -> Result<Option<bool>, Failure> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(Value::String(text)) if text.is_empty() => Ok(None),
            Some(Value::String(text)) if text == "true" => Ok(Some(true)),
            Some(Value::String(text)) if text == "false" => Ok(Some(false)),
            Some(other) => Err(invalid(name, other, "true or false")),
        }
    }

    /// A time: milliseconds since 1970, or ISO 8601; without a zone it is UTC, and without a time of day midnight. `None` if it is null,
    /// empty or missing.
    pub(crate) fn moment(&self, name: &str) -> Result<Option<Timestamp>, Failure> {
        let expected = "a time in ISO 8601, such as 2026-03-01T08:00:00Z, or in milliseconds since 1970";
        match self.value(name) {
            None => Ok(None),
            Some(Value::String(text)) if text.is_empty() => Ok(None),
            Some(value @ Value::String(text)) => match moment(text) {
                Some(moment) => Ok(Some(moment)),
                None => Err(invalid(name, value, expected)),
            },
            Some(value) => match value.as_i64() {
                Some(millis) => Ok(Some(Timestamp(millis))),
                None => Err(invalid(name, value, expected)),
            },
        }
    }

    /// A list of texts; empty if it is null or missing.
    pub(crate) fn texts(&self, name: &str) -> Result<Vec<String>, Failure> {
        let expected = "a list of texts";
        match self.value(name) {
            None => Ok(Vec::new()),
            Some(list @ Value::Array(values)) => {
                let text =
                    |value: &Value| value.as_str().map(str::to_owned).ok_or_else(|| invalid(name, list, expected));
                values.iter().map(text).collect()
            }
            Some(other) => Err(invalid(name, other, expected)),
        }
    }

    /// An object of texts; empty if it is null or missing. Numbers and booleans count as their text.
    pub(crate) fn properties(&self, name: &str) -> Result<Vec<(String, String)>, Failure> {
        let Some(value) = self.value(name) else { return Ok(Vec::new()) };
        let Value::Object(map) = value else { return Err(invalid(name, value, "an object of texts")) };
        let fields = Fields(map.clone());
        let property = |key: &String| Ok(fields.text(key)?.map(|text| (key.clone(), text)));
        map.keys().filter_map(|key| property(key).transpose()).collect()
    }
}

fn invalid(name: &str, value: &Value, expected: &str) -> Failure {
    Failure::invalid(format!("field `{name}`: `{}` is not {expected}", shown(value)))
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => short(text),
        other => short(&other.to_string()),
    }
}

/// The beginning of a text, without control characters: it goes into an error.
pub(crate) fn short(text: &str) -> String {
    let clean: String = text.chars().take(SHOWN_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().count() > SHOWN_MAX { format!("{clean}…") } else { clean }
}

fn moment(text: &str) -> Option<Timestamp> {
    // Java's form needs the `T`; the form with a blank is refused, as ElasticJob-UI does.
    if text.contains(' ') {
        return None;
    }
    if let Ok(moment) = text.parse::<jiff::Timestamp>() {
        return Some(Timestamp(moment.as_millisecond()));
    }
    let civil = text.parse::<jiff::civil::DateTime>().ok()?;
    let zoned = civil.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
    Some(Timestamp(zoned.timestamp().as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Fields {
        Fields::parse(text.as_bytes()).expect("an object")
    }

    #[test]
    fn times_have_the_forms_of_jackson() {
        for (text, expected) in [
            (r#""2024-03-01T08:06:10.130Z""#, Some(1_709_280_370_130)),
            (r#""2024-03-01T16:06:10.130+08:00""#, Some(1_709_280_370_130)),
            (r#""2024-03-01T08:06:10.130""#, Some(1_709_280_370_130)),
            (r#""2024-03-01""#, Some(1_709_251_200_000)),
            ("1709280740260", Some(1_709_280_740_260)),
            (r#""""#, None),
            ("null", None),
        ] {
            let found = fields(&format!(r#"{{"at":{text}}}"#)).moment("at").expect(text);
            assert_eq!(found.map(|at| at.0), expected, "{text}");
        }
        for text in [r#""2024-03-01 08:06:10""#, r#""yesterday""#, "true", "[]"] {
            let error = fields(&format!(r#"{{"at":{text}}}"#)).moment("at").expect_err(text);
            assert!(error.text.starts_with("field `at`: `"), "{error}");
        }
    }

    #[test]
    fn numbers_and_texts_are_read_in_both_forms_and_faults_name_field_value_and_expectation() {
        let fields = fields(r#"{"n":"5","t":7,"b":"true","list":["a"],"props":{"a":1},"bad":{}}"#);
        assert_eq!(fields.number("n", 0), Ok(5));
        assert_eq!(fields.number("missing", 10), Ok(10));
        assert_eq!(fields.text("t"), Ok(Some("7".into())));
        assert_eq!(fields.flag("b"), Ok(Some(true)));
        assert_eq!(fields.texts("list"), Ok(vec!["a".to_owned()]));
        assert_eq!(fields.properties("props"), Ok(vec![("a".to_owned(), "1".to_owned())]));
        let error = fields.number("bad", 0).expect_err("no number");
        assert_eq!(error.text, "field `bad`: `{}` is not a whole number");
        let error = Fields::parse(b"{\"n\":").expect_err("no JSON");
        assert!(error.text.starts_with("the body is not valid JSON"), "{error}");
    }
}
