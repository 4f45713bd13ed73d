//! `tegmen events`: what happens at an access control server, over its HTTPS interface.

mod stream;

use crate::admin::{Admin, refusal};
use crate::device::describe as device;
use crate::key::describe as key;
use crate::output::{Failure, Output, printable, runtime};
use crate::serve::ended;
use clap::Args;
use http_body_util::BodyExt as _;
use serde_json::Value;
use std::process::ExitCode;
use std::time::Duration;
use stream::{Event, Events};

/// Time without a byte after which a connection is lost. The server sends a comment every 15 seconds.
const SILENCE: Duration = Duration::from_secs(60);
/// The longest pause before another connection.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

#[derive(Args)]
#[command(after_help = "Examples:\n  tegmen events\n  tegmen events --json --after 28480000000000 --count 10\n\n\
    The command connects again when the connection is lost, and continues behind the last event. Ctrl-C ends it.")]
pub(crate) struct Follow {
    /// Begin behind the event of this ID, which --json shows as `id`; otherwise now.
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u64))]
    after: Option<u64>,
    /// Stop after N changes.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    #[command(flatten)]
    admin: Admin,
}

/// The reason why a connection is over.
enum Over {
    /// All changes were printed that are wanted.
    Enough,
    /// It was lost.
    Lost(String),
    /// The server ends it, and lets the client connect again.
    Resume,
}

/// The output so far.
struct Printed {
    out: Output,
    /// The ID of the last event.
    last: Option<String>,
    left: Option<u64>,
    /// True if the server has answered.
    began: bool,
}

impl Printed {
    /// Prints what an event has.
    fn take(&mut self, event: Event) -> Result<Option<Over>, Failure> {
        self.began = true;
        let data: Value = serde_json::from_str(&event.data).unwrap_or_default();
        if event.kind == "end" {
            let text = |field: &str| data[field].as_str().unwrap_or_default();
            return match text("code") {
                "resume" => Ok(Some(Over::Resume)),
                "store-unavailable" => Ok(Some(Over::Lost(text("detail").to_owned()))),
                code => Err(refusal(text("detail"), code)),
            };
        }
        for change in data["changes"].as_array().into_iter().flatten() {
            let object = || {
                let mut object = change.clone();
                if let Some(fields) = object.as_object_mut() {
                    fields.insert("id".to_owned(), event.id.clone().into());
                }
                object
            };
            self.out.line(|| text(change), object);
            if let Some(left) = &mut self.left {
                *left = left.saturating_sub(1);
                if *left == 0 {
                    return Ok(Some(Over::Enough));
                }
            }
        }
        self.last = event.id.or(self.last.take());
        Ok(None)
    }
}

/// A change in one line.
fn text(change: &Value) -> String {
    let field = |name: &str| change[name].as_str().unwrap_or_default();
    let kind = field("change");
    let what = match kind {
        "device-added" | "device-changed" => device(&change["device"]),
        "device-removed" => field("name").to_owned(),
        "policy-applied" => format!("{} by {}", field("file"), field("by")),
        "session-accepted" => format!("{} of {}", field("session"), field("subscriber")),
        "token-revoked" | "revocation-expired" => field("hash").to_owned(),
        "key-created" => key(&change["key"]),
        "key-deleted" => field("id").to_owned(),
        _ => change.to_string(),
    };
    printable(&format!("{kind} {what}"))
}

impl Follow {
    pub(crate) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        let Self { after, count, admin } = self;
        let mut printed = Printed { out, last: after.map(|after| after.to_string()), left: count, began: false };
        runtime()?.block_on(async {
            tokio::select! {
                () = ended() => Ok(ExitCode::SUCCESS),
                outcome = follow(&admin, &mut printed) => outcome.map(|()| ExitCode::SUCCESS),
            }
        })
    }
}

/// Follows the events over one connection after the other.
async fn follow(admin: &Admin, printed: &mut Printed) -> Result<(), Failure> {
    let mut pause = Duration::from_secs(1);
    loop {
        let before = printed.last.clone();
        let lost = match connection(admin, printed).await? {
            Over::Enough => return Ok(()),
            Over::Resume => continue,
            Over::Lost(why) => why,
        };
        if printed.last != before {
            pause = Duration::from_secs(1);
        }
        printed.out.failure(&Failure::new(format!("the connection was lost: {lost}: trying again")));
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Prints the events of one connection.
async fn connection(admin: &Admin, printed: &mut Printed) -> Result<Over, Failure> {
    let (_connection, mut body) = match admin.follow(printed.last.as_deref()).await {
        Ok(opened) => opened?,
        // A server that answered before may be away for a while.
        Err(failure) if printed.began => return Ok(Over::Lost(failure.message)),
        Err(failure) => return Err(failure),
    };
    let mut events = Events::default();
    loop {
        let bytes = match tokio::time::timeout(SILENCE, body.frame()).await {
            Err(_) => return Ok(Over::Lost(format!("nothing came for {} s", SILENCE.as_secs()))),
            Ok(None) => return Ok(Over::Lost("the server closed it".to_owned())),
            Ok(Some(Err(error))) => return Ok(Over::Lost(error.to_string())),
            Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
        };
        for event in events.read(&bytes).map_err(Failure::new)? {
            if let Some(over) = printed.take(event)? {
                return Ok(over);
            }
        }
    }
}
