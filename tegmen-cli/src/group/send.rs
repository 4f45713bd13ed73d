//! `tegmen group send`: one request to all members, and who is missing.

use super::open;
use crate::ask::{content_format, object, readable};
use crate::connect::Connect;
use crate::output::{Failure, Output, printable_lines, runtime};
use clap::Args;
use serde_json::json;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tegmen::coap::Code;
use tegmen_host::client::{Request, Response, ask_members};
use tegmen_host::controller::{Controller, ControllerError};
use tegmen_host::group::Membership;
use tegmen_host::hex::to_hex;
use tegmen_host::uri::{Scheme, Uri};

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tegmen group send coap://[ff15::1]/light -m PUT -e on --state switch --credentials switch.toml\n  \
    tegmen group send coap://[ff15::1]/temp --state switch --no-catch-up\n\n\
    Exit code 1 if no member answers. A member that knows nothing of this sender, as after a restart, asks for a proof first; the \
    request is then sent again, and other members may execute it twice. POST and PATCH are sent once.")]
pub(crate) struct Send {
    /// `coap://[address]/path?query`, with the multicast address of the group.
    uri: String,
    /// The directory of the membership.
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    /// The method: GET, PUT, POST, DELETE, FETCH, PATCH or iPATCH.
    #[arg(long, short, value_name = "METHOD", default_value = "GET", value_parser = method)]
    method: Code,
    /// The payload as text.
    #[arg(long, short = 'e', value_name = "TEXT")]
    payload: Option<String>,
    /// Content-Format of the payload: a number, a name such as text, json, cbor, or a media type.
    #[arg(long, value_parser = content_format)]
    content_format: Option<u16>,
    /// Seconds to wait for responses; members answer within 5 seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 7.0, value_parser = seconds)]
    group_wait: f64,
    /// Do not ask the controller first whether there is a new epoch.
    #[arg(long)]
    no_catch_up: bool,
    #[command(flatten)]
    connect: Connect,
}

fn method(text: &str) -> Result<Code, String> {
    let all = [Code::GET, Code::PUT, Code::POST, Code::DELETE, Code::FETCH, Code::PATCH, Code::IPATCH];
    let found = all.into_iter().find(|method| method.name().eq_ignore_ascii_case(text));
    found.ok_or_else(|| "GET, PUT, POST, DELETE, FETCH, PATCH or iPATCH".to_owned())
}

fn seconds(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| (0.0..=3600.0).contains(number));
    number.ok_or_else(|| "a number of seconds, at most 3600".to_owned())
}

impl Send {
    pub(crate) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        let membership = open(&self.state)?;
        let uri = self.uri_of(&membership)?;
        let payload = self.payload.as_deref().unwrap_or_default().as_bytes();
        let request = Request::to(self.method, &uri).payload(payload);
        let request = self.content_format.map_or(request, |format| request.content_format(format));
        let asked = runtime()?.block_on(async {
            if !self.no_catch_up {
                self.catch_up(&membership).await?;
            }
            let wait = Duration::from_secs_f64(self.group_wait);
            let show = |from: SocketAddr, reply: Response| print(out, from.ip(), &reply);
            ask_members(&membership, &request, wait, show).await.map_err(Failure::request)
        })?;
        let names = |all: &[IpAddr]| all.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ");
        let (count, missing, challenged) = (asked.responded.len(), names(&asked.missing), names(&asked.challenged));
        out.line(
            || {
                let missing = if missing.is_empty() { String::new() } else { format!("; missing: {missing}") };
                let proof = if challenged.is_empty() { "" } else { "; asked for a proof that the request is new: " };
                format!("{count} answered{missing}{proof}{challenged}")
            },
            || json!({ "event": "asked", "answered": asked.responded, "missing": asked.missing, "challenged": asked.challenged }),
        );
        if count == 0 {
            eprintln!(
                "no member of the group {} answered within {} s in epoch {}; members do not answer with errors. See whether this \
                 member has the current epoch (without --no-catch-up, and with the credentials for the controller), and name \
                 the interface of the group when you join (--interface)",
                membership.name(),
                self.group_wait,
                membership.epoch()
            );
        }
        Ok(if count > 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }

    /// Reads the URI, which names the group of the membership.
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

    /// Gets the keys of the current epoch. A controller that is not reached does not prevent the request.
    async fn catch_up(&self, membership: &Membership) -> Result<(), Failure> {
        let Some(uri) = membership.settings().controller else { return Ok(()) };
        let config = self.connect.config(&Uri::parse(&uri).map_err(Failure::usage)?)?;
        let controller = Controller::of_group(&uri, config).map_err(super::join::failure)?;
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

fn print(out: Output, from: IpAddr, reply: &Response) {
    let text = || printable_lines(&readable(reply).unwrap_or_else(|| to_hex(&reply.payload)));
    out.line(
        || format!("{from}  {} {}", reply.code, text()),
        || {
            let mut object = object(reply);
            object["from"] = json!(from.to_string());
            object
        },
    );
}
