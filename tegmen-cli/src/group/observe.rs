//! `tegmen group send --observe`.

use super::answers::{print, summary};
use super::sender::Sender;
use crate::output::{Failure, Output};
use crate::serve::ended;
use clap::Args;
use std::cell::Cell;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tegmen_host::client::{AskedMembers, ObserveMembers, Request, Response, observe_members};
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
        let (start, seen, is_enough) = (Instant::now(), Cell::new(0), Notify::new());
        let (has_answers, unanswered) = (Cell::new(false), Notify::new());
        let show = |from: SocketAddr, reply: Response| {
            if self.count.is_some_and(|count| seen.get() >= count) {
                return;
            }
            print(out, from.ip(), &reply, Some(start.elapsed()));
            seen.set(seen.get() + 1);
            if self.count == Some(seen.get()) {
                is_enough.notify_one();
            }
        };
        let mut last = None;
        let registered = |asked: &AskedMembers| {
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
        let seconds = self.seconds.map(Duration::from_secs);
        let time_is_over = async {
            match seconds {
                Some(seconds) => tokio::time::sleep(seconds).await,
                None => std::future::pending().await,
            }
        };
        let interrupt = ended();
        let until = async {
            tokio::select! { () = interrupt => {} () = time_is_over => {} () = is_enough.notified() => {} }
        };
        let times = ObserveMembers { wait: sender.wait(), alive: self.alive.map(Duration::from_secs) };
        tokio::select! {
            observed = observe_members(membership, request, times, until, show, registered) => {
                observed.map_err(Failure::request)?;
            }
            failed = sender.keep_up(membership, &unanswered) => failed?,
        }
        if has_answers.get() || seen.get() > 0 {
            return Ok(ExitCode::SUCCESS);
        }
        sender.complain(membership);
        Ok(ExitCode::from(1))
    }
}
