//! `tegmen ndn`: a forwarder, consumers and producers of Named Data Networking.

mod consume;
mod content_key;
mod forward;
mod from_coap;
mod key;
mod pem;
mod produce;
mod sign;
mod to_coap;
mod trust;

use crate::output::{Failure, Output};
use clap::{Args, Subcommand};
use std::process::ExitCode;
use tegmen_ndn_host::client::{Client, ClientError, name_bytes};
use tegmen_ndn_host::uri::FaceUri;

/// The Unix socket of the default forwarder.
const SOCKET: &str = "/run/nfd/nfd.sock";

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tegmen ndn forward --unix /tmp/ndn.sock\n  \
    echo 21.5 | tegmen ndn put /house/temp --face unix:///tmp/ndn.sock\n  \
    tegmen ndn get /house/temp --face unix:///tmp/ndn.sock\n\n\
    A consumer asks for a name; every node that has the signed packet of this name may answer.")]
pub(crate) struct Ndn {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Forward packets between faces over UDP, TCP and Unix sockets, and store Data packets.
    Forward(forward::Forward),
    /// Fetch an object, or one packet, and print its content.
    Get(consume::Get),
    /// Publish an object from a file or the standard input, until Ctrl-C.
    Put(produce::Put),
    /// Publish values, and answer pings, until Ctrl-C.
    Serve(produce::Serve),
    /// Measure the round-trip times to a producer that answers pings.
    Ping(consume::Ping),
    /// Make, sign, list, import and export key pairs and certificates.
    Key(key::Key),
    /// Sign a packet, and write it to a file.
    Sign(sign::Sign),
    /// Verify the packet in a file.
    Verify(sign::Verify),
    /// Check and test trust schemas in LVS.
    Trust(trust::Trust),
    /// Publish the resources of a CoAP server as named objects, until Ctrl-C.
    FromCoap(Box<from_coap::FromCoap>),
    /// Serve named objects as the resources of a CoAP server, until Ctrl-C.
    ToCoap(to_coap::ToCoap),
}

impl Ndn {
    pub(crate) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        match self.command {
            Command::Forward(forward) => forward.run(out),
            Command::Get(get) => get.run(out),
            Command::Put(put) => put.run(out),
            Command::Serve(serve) => serve.run(out),
            Command::Ping(ping) => ping.run(out),
            Command::Key(key) => key.run(out),
            Command::Sign(sign) => sign.run(out),
            Command::Verify(verify) => verify.run(out),
            Command::Trust(trust) => trust.run(out),
            Command::FromCoap(bridge) => bridge.run(out),
            Command::ToCoap(bridge) => bridge.run(out),
        }
    }
}

/// The option that names the forwarder of a consumer or a producer.
#[derive(Args)]
struct At {
    /// The forwarder: unix://PATH, tcp://HOST:PORT or udp://HOST:PORT.
    #[arg(long, value_name = "URI", env = "NDN_CLIENT_TRANSPORT", default_value_t = format!("unix://{SOCKET}"))]
    face: String,
}

impl At {
    async fn connect(&self) -> Result<Client, Failure> {
        let to: FaceUri = self.face.parse().map_err(|error| Failure::usage(format!("--face: {error}")))?;
        Client::connect(&to).await.map_err(failure)
    }
}

fn failure(error: ClientError) -> Failure {
    match error {
        ClientError::NotConnected(..) => Failure::usage(error),
        _ => Failure::new(error),
    }
}

/// Reads a name from the command line.
fn name_of(text: &str) -> Result<Vec<u8>, Failure> {
    name_bytes(text).map_err(|error| Failure::usage(format!("{text}: {error}")))
}
