//! Observations of a group: `tegmen group send --observe`, and `tegmen observe` for a group without protection.

use super::answers::{print, summary};
use super::sender::Sender;
use crate::output::{Failure, Output};
use crate::serve::ended;
use clap::Args;
use std::cell::Cell;
use std::net::SocketAddr;
use std::pin::Pin;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tegmen_host::client::{AskedMembers, ClientError, ObserveMembers, Request, Response, observe_members};
use tegmen_host::group::Membership;
use tokio::sync::Notify;

#[derive(Args)]
pub(super) struct Observing {
    /// Observe the resource at all members: print each new representation with the name of its member, until Ctrl-C
    /// cancels the observation.
    #[arg(long)]
    pub(super) observe: bool,
    /// Register again at the latest after this many seconds, even if Max-Age is longer. A restarted member may have
    /// forgotten the observation, and a new member may have joined.
    #[arg(long, value_name = "SECONDS", requires = "observe", value_parser = clap::value_parser!(u64).range(1..))]
    alive: Option<u64>,
    /// Stop after N representations. The first representation of each member counts, too.
    #[arg(long, value_name = "N", requires = "observe", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Stop after this many seconds.
    #[arg(long = "for", value_name = "SECONDS", requires = "observe")]
    seconds: Option<u64>,
}

impl Observing {
    pub(super) async fn run(
        &self,
        out: Output,
        (sender, membership): (&Sender, &Membership),
        request: &Request<'_>,
    ) -> Result<ExitCode, Failure> {
        let unanswered = Notify::new();
        let times = ObserveMembers { wait: sender.wait(), alive: self.alive.map(Duration::from_secs) };
        let shown = show(out, (self.count, self.seconds), &unanswered, async |until, on_reply, on_registered| {
            observe_members(membership, request, times, until, on_reply, on_registered).await
        });
        tokio::select! {
            answered = shown => if answered? { return Ok(ExitCode::SUCCESS) },
            failed = sender.keep_up(membership, &unanswered) => failed?,
        }
        Err(sender.silence_of(membership))
    }
}

/// The end of an observation.
type Until<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;
type OnReply<'a> = &'a mut dyn FnMut(SocketAddr, Response);
type OnRegistered<'a> = &'a mut dyn FnMut(&AskedMembers);

/// Prints the representations of an observation of a group, and the members that answered a registration. `limits` are
/// the maximum number of representations and the maximum number of seconds. `observe` observes until its first argument
/// is ready. `unanswered` is notified after a registration that not all members answered. Returns true if a member
/// answered.
pub(crate) async fn show(
    out: Output,
    (count, seconds): (Option<u64>, Option<u64>),
    unanswered: &Notify,
    observe: impl AsyncFnOnce(Until<'_>, OnReply<'_>, OnRegistered<'_>) -> Result<(), ClientError>,
) -> Result<bool, Failure> {
    let (start, seen, is_enough, has_answers) = (Instant::now(), Cell::new(0), Notify::new(), Cell::new(false));
    let mut on_reply = |from: SocketAddr, reply: Response| {
        if count.is_some_and(|count| seen.get() >= count) {
            return;
        }
        print(out, from.ip(), &reply, Some(start.elapsed()));
        seen.set(seen.get() + 1);
        if count == Some(seen.get()) {
            is_enough.notify_one();
        }
    };
    let mut last = None;
    let mut on_registered = |asked: &AskedMembers| {
        has_answers.set(has_answers.get() || !asked.responded.is_empty());
        // Perhaps an epoch has begun.
        if asked.responded.is_empty() || !asked.missing.is_empty() {
            unanswered.notify_one();
        }
        let mut sorted = asked.clone();
        sorted.responded.sort_unstable();
        if last.as_ref() != Some(&sorted) {
            summary(out, "registered", &sorted);
            last = Some(sorted);
        }
    };
    let time_is_over = async {
        match seconds.map(Duration::from_secs) {
            Some(seconds) => tokio::time::sleep(seconds).await,
            None => std::future::pending().await,
        }
    };
    let interrupt = ended();
    let until = Box::pin(async {
        tokio::select! { () = interrupt => {} () = time_is_over => {} () = is_enough.notified() => {} }
    });
    observe(until, &mut on_reply, &mut on_registered).await.map_err(Failure::request)?;
    Ok(has_answers.get() || seen.get() > 0)
}
