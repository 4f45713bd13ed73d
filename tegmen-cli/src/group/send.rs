//! `tegmen group send`.

use super::answers::{print, summary};
use super::observe::Observing;
use super::sender::Sender;
use crate::ask::content_format;
use crate::output::{Failure, Output, runtime};
use clap::Args;
use std::net::SocketAddr;
use std::process::ExitCode;
use tegmen::coap::Code;
use tegmen_host::client::{Request, Response, ask_members};

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tegmen group send coap://[ff15::1]/light -m PUT -e on --state switch --credentials switch.toml\n  \
    tegmen group send coap://[ff15::1]/temp --state switch --no-catch-up\n  \
    tegmen group send coap://[ff15::1]/light --observe --state switch --credentials switch.toml\n\n\
    Exit code 1 if no member answers. A member that knows nothing of this sender, as after a restart, asks for a proof first; the \
    request is then sent again, and other members may execute it twice. POST and PATCH are sent once.")]
pub(crate) struct Send {
    #[command(flatten)]
    sender: Sender,
    /// The method: GET, PUT, POST, DELETE, FETCH, PATCH or iPATCH.
    #[arg(long, short, value_name = "METHOD", default_value = "GET", value_parser = method)]
    method: Code,
    /// The payload as text.
    #[arg(long, short = 'e', value_name = "TEXT")]
    payload: Option<String>,
    /// Content-Format of the payload: a number, a name such as text, json, cbor, or a media type.
    #[arg(long, value_parser = content_format)]
    content_format: Option<u16>,
    #[command(flatten)]
    observing: Observing,
}

fn method(text: &str) -> Result<Code, String> {
    let all = [Code::GET, Code::PUT, Code::POST, Code::DELETE, Code::FETCH, Code::PATCH, Code::IPATCH];
    let found = all.into_iter().find(|method| method.name().eq_ignore_ascii_case(text));
    found.ok_or_else(|| "GET, PUT, POST, DELETE, FETCH, PATCH or iPATCH".to_owned())
}

impl Send {
    pub(crate) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        if self.observing.observe && !matches!(self.method, Code::GET | Code::FETCH) {
            return Err(Failure::usage("--observe: only GET and FETCH register (-m)"));
        }
        let (membership, uri) = self.sender.open()?;
        let payload = self.payload.as_deref().unwrap_or_default().as_bytes();
        let request = Request::to(self.method, &uri).payload(payload);
        let request = self.content_format.map_or(request, |format| request.content_format(format));
        if self.observing.observe {
            return runtime()?.block_on(async {
                self.sender.catch_up(&membership).await?;
                self.observing.run(out, (&self.sender, &membership), &request).await
            });
        }
        let asked = runtime()?.block_on(async {
            self.sender.catch_up(&membership).await?;
            let wait = self.sender.wait();
            let show = |from: SocketAddr, reply: Response| print(out, from.ip(), &reply, None);
            ask_members(&membership, &request, wait, show).await.map_err(Failure::request)
        })?;
        summary(out, "asked", &asked);
        if asked.responded.is_empty() {
            return Err(self.sender.silence_of(&membership));
        }
        Ok(ExitCode::SUCCESS)
    }
}
