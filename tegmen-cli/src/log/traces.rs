//! Writes the events of libraries that use the crate `tracing` to the log.

use super::{Level, Log};
use serde_json::json;
use std::fmt::{Debug, Write as _};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt as _};

/// The prefix of the libraries whose events are written: the crates of this project.
const LIBRARIES: &str = "tegmen";

/// From now on, writes the events of all threads to this log. If an earlier call has already set a log, this call has
/// no effect: the events go to the earlier log.
pub(super) fn write_to(log: Log) {
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(Traces(log)));
}

struct Traces(Log);

impl<S: Subscriber> Layer<S> for Traces {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        if !metadata.target().starts_with(LIBRARIES) {
            return;
        }
        let level = match *metadata.level() {
            tracing::Level::ERROR => Level::Error,
            tracing::Level::WARN => Level::Warn,
            tracing::Level::INFO => Level::Info,
            _ => Level::Debug,
        };
        let text = || {
            let mut message = Message::default();
            event.record(&mut message);
            message.0
        };
        self.0.event(level, text, || json!({ "event": "library", "library": metadata.target(), "message": text() }));
    }
}

/// The message of an event, and its fields.
#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // To a String, writing cannot fail.
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}
