//! `tegmen observe`: follows a resource.

use crate::ask::{RequestArgs, complain, object, readable};
use crate::group::observe::show;
use crate::output::{Failure, Output, printable_lines, runtime};
use crate::serve::ended;
use clap::Args;
use serde_json::json;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tegmen::coap::Code;
use tegmen_host::client::{ObserveMembers, Response, Session, observe_group};
use tegmen_host::group::Group;
use tegmen_host::hex::to_hex;
use tegmen_host::uri::Uri;
use tokio::sync::Notify;

#[derive(Args)]
#[command(after_help = "Examples:\n  tegmen observe coap://localhost/temp\n  \
    tegmen observe --credentials keys.toml coaps://localhost/temp --count 10 --json\n  \
    tegmen observe coap://localhost/log --for 60\n  \
    tegmen observe 'coap://[ff02::fd%eth0]/temp'          # all members of a group without protection\n\n\
    Ctrl-C cancels the observation; the exit code is then 0.")]
pub(crate) struct Observe {
    #[command(flatten)]
    request: RequestArgs,
    /// Register again after this many seconds of silence, even if Max-Age is longer. A restarted server may have
    /// forgotten the observation.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    alive: Option<u64>,
    /// Accept notifications that the server sends to a multicast group without protection
    /// (draft-ietf-core-observe-multicast-notifications). Anyone can forge them. Without this option, only
    /// notifications that Group OSCORE protects are accepted from a group.
    #[arg(long)]
    multicast_in_clear: bool,
    /// Stop after N representations, including the first.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Stop after this many seconds.
    #[arg(long = "for", value_name = "SECONDS")]
    seconds: Option<u64>,
}

impl Observe {
    pub(crate) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        let uri = self.request.uri()?;
        if Group::is_named_by(&self.request.server()?.host) {
            return self.run_in_group(out, &uri);
        }
        let alive = self.alive.map(Duration::from_secs);
        let mut config = self.request.connect.config(&uri)?;
        config.recovery.alive = alive;
        config.coap.multicast_in_clear = self.multicast_in_clear;
        let (server, options) = (self.request.server()?, self.request.options(&uri));
        let request = self.request.ask((&uri, &options), Code::GET, &[], None);
        runtime()?.block_on(async {
            let client = Session::connect(&server, config).await.map_err(Failure::request)?;
            let mut observation = request.over(&client).observe().await.map_err(Failure::request)?;
            let registered = observation.is_registered();
            let start = Instant::now();
            let end = async {
                match self.seconds {
                    Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds)).await,
                    None => std::future::pending().await,
                }
            };
            let (mut end, mut interrupt) = (std::pin::pin!(end), std::pin::pin!(ended()));
            let (mut seen, mut reconnects) = (0, observation.reconnects());
            while self.count.is_none_or(|count| seen < count) {
                let next = tokio::select! {
                    () = &mut interrupt => break,
                    () = &mut end => break,
                    next = observation.next() => next.map_err(Failure::request)?,
                };
                if observation.reconnects() > reconnects {
                    reconnects = observation.reconnects();
                    say_reconnected(out, start.elapsed());
                }
                let Some(reply) = next else { break };
                seen += 1;
                print(out, &reply, start.elapsed());
                if !reply.code.is_success() {
                    return Ok(ExitCode::from(1));
                }
            }
            if !registered {
                return Err(Failure::new("the server does not let this resource be observed; it answered once"));
            }
            // It may be lost: a server that still sends gets a rejection of each notification.
            let _ = tokio::time::timeout(Duration::from_secs(2), observation.cancel()).await;
            client.close();
            Ok(ExitCode::SUCCESS)
        })
    }
}

impl Observe {
    /// Observes the resource at all members of a multicast group without protection.
    fn run_in_group(self, out: Output, uri: &Uri) -> Result<ExitCode, Failure> {
        let (group, wait) = self.request.group(uri)?;
        if self.request.connect.context(uri)?.is_some() {
            return Err(Failure::usage(
                "a group that OSCORE protects cannot be observed: observe each member by its own address",
            ));
        }
        let options = self.request.options(uri);
        let request = self.request.ask((uri, &options), Code::GET, &[], None);
        let times = ObserveMembers { wait, alive: self.alive.map(Duration::from_secs) };
        let (limits, unanswered) = ((self.count, self.seconds), Notify::new());
        let observed = show(out, limits, &unanswered, async |until, on_reply, on_registered| {
            observe_group((&group, uri.port), &request, times, until, on_reply, on_registered).await
        });
        match runtime()?.block_on(observed)? {
            true => Ok(ExitCode::SUCCESS),
            false => Err(self.request.silence_of(&group)),
        }
    }
}

/// Reports that a new session replaced a session that had ended.
fn say_reconnected(out: Output, since: Duration) {
    if out.json {
        out.line(String::new, || json!({ "event": "reconnected", "after_ms": since.as_secs_f64() * 1e3 }));
    } else {
        eprintln!("{:>9.3} s  connected again, in a new session", since.as_secs_f64());
    }
}

fn print(out: Output, reply: &Response, since: Duration) {
    if !out.json && !reply.code.is_success() {
        complain(reply);
        return;
    }
    out.line(
        || {
            let text = printable_lines(&readable(reply).unwrap_or_else(|| to_hex(&reply.payload)));
            format!("{:>9.3} s  {text}", since.as_secs_f64())
        },
        || {
            let mut object = object(reply);
            object["event"] = json!("representation");
            object["after_ms"] = json!(since.as_secs_f64() * 1e3);
            object
        },
    );
}
