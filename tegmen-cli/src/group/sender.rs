//! The common options of the commands that send to a group, and the steps before their first request.

use super::failure;
use super::open;
use crate::connect::{Connect, seconds};
use crate::output::Failure;
use clap::Args;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tegmen_host::controller::{Controller, ControllerError, Pace};
use tegmen_host::group::{Membership, MembershipEvent};
use tegmen_host::uri::{Scheme, Uri};
use tokio::sync::Notify;

#[derive(Args)]
pub(super) struct Sender {
    /// URI of the resource: `coap://[address]/path?query`, with the multicast address of the group.
    uri: String,
    /// The directory of the membership.
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    /// Seconds to wait for responses; members answer within 5 seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 7.0, value_parser = seconds)]
    group_wait: f64,
    /// Do not ask the controller before the request whether there is a new epoch.
    #[arg(long)]
    no_catch_up: bool,
    #[command(flatten)]
    connect: Connect,
}

impl Sender {
    /// Opens the membership, and reads the URI of the request. If two members have the same address, a line on standard
    /// error reports this.
    pub(super) fn open(&self) -> Result<(Membership, Uri), Failure> {
        let membership = open(&self.state)?;
        // The commands print the other events themselves.
        membership.on_event(Arc::new(|group, event| {
            if matches!(event, MembershipEvent::Clash { .. }) {
                eprintln!("group {group}: {event}");
            }
        }));
        let uri = self.uri_of(&membership)?;
        Ok((membership, uri))
    }

    /// Returns the time to wait for responses.
    pub(super) fn wait(&self) -> Duration {
        Duration::from_secs_f64(self.group_wait)
    }

    /// Makes the error that no member answered, with the next step.
    pub(super) fn silence_of(&self, membership: &Membership) -> Failure {
        Failure::new(format!(
            "no member of the group {} answered within {} s in epoch {}; members do not answer with errors. See whether this \
             member has the current epoch (without --no-catch-up, and with the credentials for the controller), and name \
             the interface of the group when you join (--interface)",
            membership.name(),
            self.group_wait,
            membership.epoch()
        ))
    }

    /// Reads the URI. The URI must name the group of the membership.
    fn uri_of(&self, membership: &Membership) -> Result<Uri, Failure> {
        let uri = Uri::parse(&self.uri).map_err(Failure::usage)?;
        let (group, host) = (membership.group(), uri.host.split('%').next().unwrap_or_default());
        let is_it =
            host.parse() == Ok(group.ip()) && (uri.port == group.port() || uri.port == uri.scheme.default_port());
        if uri.scheme == Scheme::Coap && is_it {
            return Ok(uri);
        }
        let (uri, state, name) = (&self.uri, self.state.display(), membership.name());
        Err(Failure::usage(format!("{uri}: {state} is the membership in the group {name}, coap://{group}/")))
    }

    /// Gets the keys of new epochs while the member sends. The member asks the controller after a record of a later
    /// epoch arrived, and after a request that no member answered. This function returns only with an error: the
    /// controller has evicted the member, or the membership failed.
    pub(super) async fn keep_up(&self, membership: &Membership, unanswered: &Notify) -> Result<(), Failure> {
        let follow = async {
            match self.controller(membership)? {
                Some(controller) => controller.follow(membership, Pace::default()).await,
                None => std::future::pending().await,
            }
            Err(Failure::new("the controller has evicted this member"))
        };
        let catch_up = async {
            loop {
                unanswered.notified().await;
                self.catch_up(membership).await?;
            }
        };
        tokio::select! { failed = follow => failed, failed = catch_up => failed }
    }

    /// Returns the controller of the group; `None` if the options forbid requests to it, or if the membership has no
    /// controller.
    fn controller(&self, membership: &Membership) -> Result<Option<Controller>, Failure> {
        let Some(uri) = membership.settings().controller.filter(|_| !self.no_catch_up) else { return Ok(None) };
        let config = self.connect.of_member(&uri)?;
        Controller::of_group(&uri, config).map(Some).map_err(failure)
    }

    /// Gets the keys of the current epoch, unless the options forbid it. If the controller does not answer, the command
    /// still sends its request to the group.
    pub(super) async fn catch_up(&self, membership: &Membership) -> Result<(), Failure> {
        let Some(controller) = self.controller(membership)? else { return Ok(()) };
        match controller.catch_up(membership).await {
            Ok(_) => Ok(()),
            Err(error @ (ControllerError::NotAMember(_) | ControllerError::Membership(_))) => Err(Failure::new(error)),
            Err(error) => {
                let epoch = membership.epoch();
                eprintln!("{error}; the request is sent in epoch {epoch}, which may be over");
                Ok(())
            }
        }
    }
}
