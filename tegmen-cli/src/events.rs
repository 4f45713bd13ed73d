//! `tegmen events`: prints changes at an access control server as they happen, over its HTTPS interface.

mod stream;

use crate::admin::{Admin, refusal};
use crate::device::describe as device;
use crate::key::describe as key;
use crate::members::{describe, describe_member as member, path, warning};
use crate::output::{Failure, Output, printable, runtime};
use crate::serve::ended;
use clap::Args;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::Duration;
use stream::{Event, Events};

/// Time without a byte after which a connection counts as lost. The server sends a comment every 15 seconds.
const SILENCE: Duration = Duration::from_secs(60);
/// The longest pause before a new connection.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

#[derive(Args)]
#[command(after_help = "Examples:\n  tegmen events\n  tegmen events --json --after 28480000000000 --count 10\n\n\
    The command connects again when the connection is lost, and continues behind the last event. Ctrl-C ends it.")]
pub(crate) struct Follow {
    /// Begin after the event with this ID, which --json shows as `id`. Default: begin now.
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u64))]
    after: Option<u64>,
    /// Stop after N changes.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    #[command(flatten)]
    admin: Admin,
}

/// The reason why the output of one connection ended.
enum Over {
    /// All requested changes were printed.
    Enough,
    /// The connection was lost.
    Lost(String),
    /// The server ended the connection, and the client can connect again at once.
    Resume,
}

/// The output of the command: the last printed event, the number of changes still to print, and the watched group.
struct Printed {
    out: Output,
    /// The ID of the last event; `None` before the first event.
    last: Option<String>,
    left: Option<u64>,
    /// True if the server has sent an event since the command began, on any connection of this command.
    began: bool,
    /// The group to watch. Changes of other groups are not printed.
    watched: Option<Watched>,
}

/// A group that is watched.
struct Watched {
    name: String,
    /// True if a change of the group has arrived since the group was read.
    is_stale: bool,
    /// True if the group has been printed.
    is_shown: bool,
    /// The shortages of the group (such as few epochs left) when the group was read last.
    lacks: Vec<String>,
}

impl Watched {
    /// Records a change of this group. Returns false if the change belongs to another object.
    fn takes(&mut self, change: &Value) -> bool {
        let is_its = change["group"] == self.name.as_str();
        if is_its {
            self.is_stale = change["change"] != "group-deleted";
        }
        is_its
    }

    /// Reads the group. The first call prints the whole group. A later call prints only the shortages (such as few
    /// epochs left) that the group did not have at the previous call.
    async fn refresh(&mut self, admin: &Admin, out: Output) -> Result<(), Failure> {
        let mut group = admin.read(&format!("{}?limit=1", path(&self.name))).await?;
        self.is_stale = false;
        let lacks: Vec<String> = group["lacks"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|lack| lack.as_str().map(str::to_owned))
            .collect();
        if !self.is_shown {
            self.is_shown = true;
            // Members are many; tegmen group show lists them.
            if let Some(fields) = group.as_object_mut() {
                fields.retain(|field, _| field != "members" && field != "next");
            }
            out.line(|| describe(&group), || group.clone());
        } else {
            for lack in lacks.iter().filter(|lack| !self.lacks.contains(lack)) {
                out.line(|| printable(&warning(lack)), || json!({ "group": self.name, "lacks": lack }));
            }
        }
        self.lacks = lacks;
        Ok(())
    }
}

impl Printed {
    /// Prints the changes in an event. If no further event of this connection is to be printed, returns the reason;
    /// otherwise returns `None`.
    fn take(&mut self, event: Event) -> Result<Option<Over>, Failure> {
        self.began = true;
        let data: Value = serde_json::from_str(&event.data).unwrap_or_default();
        if event.kind == "end" {
            let text = |field: &str| data[field].as_str().unwrap_or_default();
            return match text("code") {
                "resume" => Ok(Some(Over::Resume)),
                "history-gone" if self.forget() => Ok(Some(Over::Resume)),
                "store-unavailable" => Ok(Some(Over::Lost(text("detail").to_owned()))),
                code => Err(refusal(text("detail"), code)),
            };
        }
        let mut is_over = false;
        for change in data["changes"].as_array().into_iter().flatten() {
            if self.watched.as_mut().is_some_and(|watched| !watched.takes(change)) {
                continue;
            }
            is_over |= self.watched.is_some() && change["change"] == "group-deleted";
            self.out.line(|| text(change), || with_id(change, event.id.as_deref()));
            if let Some(left) = &mut self.left {
                *left = left.saturating_sub(1);
                if *left == 0 {
                    return Ok(Some(Over::Enough));
                }
            }
        }
        self.last = event.id.or(self.last.take());
        Ok(is_over.then_some(Over::Enough))
    }

    /// Handles a gap in the history of the server. If the command watches a group and knows the ID of the last event,
    /// forgets this ID and returns true. The command then reads the group again, so that it does not need the missed
    /// changes. In any other case returns false.
    fn forget(&mut self) -> bool {
        let Some(watched) = self.watched.as_mut().filter(|_| self.last.take().is_some()) else { return false };
        (watched.is_stale, watched.is_shown) = (true, false);
        self.out.failure(&Failure::new("changes were missed: the group is shown again"));
        true
    }

    /// Returns true if a group is watched and has been printed.
    fn has_shown(&self) -> bool {
        self.watched.as_ref().is_some_and(|watched| watched.is_shown)
    }

    /// Reads the watched group again, if a change has arrived.
    async fn refresh(&mut self, admin: &Admin) -> Result<(), Failure> {
        match self.watched.as_mut().filter(|watched| watched.is_stale) {
            Some(watched) => watched.refresh(admin, self.out).await,
            None => Ok(()),
        }
    }
}

/// Returns a change as an object with the ID of its event in `id`. If the change itself has an `id`, which is the ID of a
/// deleted key, this ID is in `key`, as in the other changes of keys.
fn with_id(change: &Value, event: Option<&str>) -> Value {
    let mut object = change.clone();
    if let Some(fields) = object.as_object_mut()
        && let Some(own) = fields.insert("id".to_owned(), event.into())
    {
        fields.insert("key".to_owned(), json!({ "id": own }));
    }
    object
}

/// Describes a change in one line.
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
        "group-created" => {
            format!("{} at {}", field("group"), change["config"]["address"].as_str().unwrap_or_default())
        }
        "group-deleted" => field("group").to_owned(),
        "member-admitted" => format!("{} {}", field("group"), member(&change["member"])),
        "member-left" => format!("{} {}", field("group"), field("name")),
        "epoch-began" => format!("{} {}, {} more epochs", field("group"), change["epoch"], change["epochs_left"]),
        _ => change.to_string(),
    };
    printable(&format!("{kind} {what}"))
}

impl Follow {
    pub(crate) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        let Self { after, count, admin } = self;
        let last = after.map(|after| after.to_string());
        until_the_end(&admin, Printed { out, last, left: count, began: false, watched: None })
    }
}

/// Prints a group, and then at most `count` of its changes.
pub(crate) fn watch(admin: &Admin, name: String, count: Option<u64>, out: Output) -> Result<ExitCode, Failure> {
    let watched = Some(Watched { name, is_stale: true, is_shown: false, lacks: Vec::new() });
    until_the_end(admin, Printed { out, last: None, left: count, began: false, watched })
}

fn until_the_end(admin: &Admin, mut printed: Printed) -> Result<ExitCode, Failure> {
    runtime()?.block_on(async {
        tokio::select! {
            () = ended() => Ok(ExitCode::SUCCESS),
            outcome = follow(admin, &mut printed) => outcome.map(|()| ExitCode::SUCCESS),
        }
    })
}

/// Follows the events, and connects again after each end of a connection.
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
        Ok(Err(_)) if printed.forget() => return Ok(Over::Resume),
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
            let over = printed.take(event)?;
            // The stream has begun, so no change is between this and the next event.
            if let Err(failure) = printed.refresh(admin).await {
                // A server that answered before may be away for a while.
                return if printed.has_shown() { Ok(Over::Lost(failure.message)) } else { Err(failure) };
            }
            if let Some(over) = over {
                return Ok(over);
            }
        }
    }
}

#[cfg(test)]
mod tests;
