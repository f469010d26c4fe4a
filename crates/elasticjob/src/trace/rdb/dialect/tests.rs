//! Rows of events, and the statements that write them.

use super::super::super::{End, State};
use super::*;

fn execution(number: u128, end: Option<Option<&str>>) -> TraceEvent {
    TraceEvent::Execution(Execution {
        id: Uuid::from_u128(number),
        job: "j".into(),
        task_id: "t".into(),
        hostname: "h".into(),
        ip: "10.0.0.1".into(),
        item: 2,
        source: "NORMAL_TRIGGER",
        start: Timestamp(1_000),
        end: end.map(|failure| End { at: Timestamp(2_000), failure: failure.map(str::to_owned) }),
    })
}

#[test]
fn begin_and_end_of_one_batch_are_one_row() {
    let events = [execution(1, None), execution(2, None), execution(1, Some(None)), execution(3, Some(Some("why")))];
    let batches = rows(&events, Has { source: true, events: true, logs: true }, &TimeZone::UTC);
    assert_eq!(batches.len(), 1);
    let short = |row: &Vec<Value>| (row[7].clone(), row[8].clone(), row[10] == Value::Time(None));
    let found: Vec<_> = batches[0].rows.iter().map(short).collect();
    let failed = Value::OptionalText(Some("why".into()));
    assert_eq!(
        found,
        [
            (Value::OptionalText(None), Value::Bool(true), false),
            (Value::OptionalText(None), Value::Bool(false), true),
            (failed, Value::Bool(false), false),
        ]
    );
    for dialect in [Dialect::Sqlite, Dialect::Postgres, Dialect::Mysql] {
        let (sql, values) = dialect.write(&batches[0]);
        assert_eq!(values.len(), 33);
        let marks = sql.matches('?').count() + sql.matches('$').count();
        assert_eq!(marks, 33, "{sql}");
    }
}

#[test]
fn a_status_fits_its_columns_and_has_a_source_where_there_is_one() {
    let status = TraceEvent::Status(Status {
        id: Uuid::from_u128(1),
        job: "j".into(),
        task_id: "t".repeat(300).into(),
        ip: "10.0.0.1".into(),
        items: (0..200).collect(),
        state: State::Staging,
        message: "m".into(),
        at: Timestamp(0),
    });
    for has_source in [false, true] {
        let batches =
            rows(std::slice::from_ref(&status), Has { source: has_source, events: true, logs: true }, &TimeZone::UTC);
        let row = &batches[0].rows[0];
        assert_eq!(batches[0].columns.len(), row.len());
        assert_eq!(batches[0].columns.contains(&"source"), has_source);
        let text = |column: &str| {
            let index = batches[0].columns.iter().position(|c| *c == column).expect("a column");
            match &row[index] {
                Value::Text(text) => text.clone(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(text("task_id").len(), 255);
        assert_eq!(text("sharding_item").len(), 100);
        assert!(text("sharding_item").ends_with("..."));
        assert_eq!(text("state"), "TASK_STAGING");
    }
}
