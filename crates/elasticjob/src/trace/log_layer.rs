//! What the code of a job logs with `tracing`, for the log of its run.

use std::cell::RefCell;
use std::fmt::{self, Write};
use std::sync::Arc;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, dynamic_filter_fn};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::SPANS;
use crate::contract::RunLines;

thread_local! {
    /// The log of the run whose span this thread creates at this moment.
    static OPENING: RefCell<Option<Arc<dyn RunLines>>> = const { RefCell::new(None) };
}

/// Creates the span of a run. The layer finds the log of the run in it.
pub(crate) fn opening(log: Option<Arc<dyn RunLines>>, create: impl FnOnce() -> tracing::Span) -> tracing::Span {
    OPENING.set(log);
    let span = create();
    OPENING.set(None);
    span
}

/// Returns a layer for a `tracing_subscriber` registry. It copies the events of level `INFO` and above that the code of a job
/// emits into the log of its run. Code that runs in a task or thread of its own belongs to the run if it is in the span of the run,
/// as with `tracing::Instrument::in_current_span`. [`RunLogs`](crate::trace::RunLogs) says whose log is recorded.
pub fn run_log_layer<S>() -> impl Layer<S> + Send + Sync
where
    S: Subscriber + for<'s> LookupSpan<'s> + Send + Sync,
{
    let wanted = dynamic_filter_fn(|metadata: &Metadata<'_>, _: &Context<'_, S>| {
        if metadata.target() == SPANS { OPENING.with_borrow(Option::is_some) } else { *metadata.level() <= Level::INFO }
    });
    Lines.with_filter(wanted.with_max_level_hint(LevelFilter::INFO))
}

struct Lines;

impl<S: Subscriber + for<'s> LookupSpan<'s>> Layer<S> for Lines {
    fn on_new_span(&self, _: &span::Attributes<'_>, id: &span::Id, context: Context<'_, S>) {
        let log = OPENING.with_borrow(Clone::clone);
        if let (Some(log), Some(span)) = (log, context.span(id)) {
            span.extensions_mut().insert(log);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut spans = context.event_scope(event).into_iter().flatten();
        let log = spans.find_map(|span| span.extensions().get::<Arc<dyn RunLines>>().cloned());
        if let Some(log) = log {
            let mut text = Text::default();
            event.record(&mut text);
            log.write(event.metadata().level().as_str(), &format!("{}{}", text.message, text.fields));
        }
    }
}

/// An event as text: the message, then its fields.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.message.push_str(value),
            _ => self.record_debug(field, &value),
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[derive(Debug, Default)]
    struct Kept(Mutex<Vec<String>>);

    impl RunLines for Kept {
        fn write(&self, source: &str, text: &str) {
            self.0.lock().push(format!("{source} {text}"));
        }
    }

    #[test]
    fn events_inside_the_span_of_a_run_are_copied_into_its_log_and_no_others() {
        let kept = Arc::new(Kept::default());
        let subscriber = tracing_subscriber::registry().with(run_log_layer());
        tracing::subscriber::with_default(subscriber, || {
            let create = || tracing::info_span!(target: SPANS, "run");
            let span = opening(Some(Arc::clone(&kept) as Arc<dyn RunLines>), create);
            tracing::info!("outside");
            span.in_scope(|| {
                tracing::info!(rows = 3, name = "a b", "read");
                tracing::debug!("too fine");
                tracing::info_span!("inner").in_scope(|| tracing::warn!("deep"));
            });
            opening(None, create).in_scope(|| tracing::info!("of a run without a log"));
        });
        assert_eq!(*kept.0.lock(), ["INFO read rows=3 name=\"a b\"", "WARN deep"]);
    }
}
