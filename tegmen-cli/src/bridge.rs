//! `tegmen bridge`: reads the packets of a mote from a serial line, and sends them over real sockets.

use clap::Args;
use std::net::Ipv6Addr;
use std::path::PathBuf;

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tegmen bridge --image blink_client --peer coaps://localhost\n  \
    tegmen bridge --image blink_server --listen 127.0.0.1:5684\n  \
    tegmen bridge --serial /dev/ttyUSB0 --listen '[::]:5684'\n  \
    tegmen bridge --serial mote.sock --listen 127.0.0.1:20001=5684 --listen 127.0.0.1:20000=5683\n\n\
    The first is a mote that sends blinks to `tegmen serve --blink /blink`; the second waits for\n\
    `tegmen put coaps://127.0.0.1/blink`. firmware/README.md describes how to build the images.\n\
    To connect your own QEMU, start it with -serial unix:mote.sock,server=on,wait=off")]
pub(crate) struct Bridge {
    /// The mote's serial line: a device, a UNIX socket, or HOST:PORT of a TCP server.
    #[arg(long, value_name = "LINE", required_unless_present = "image")]
    serial: Option<String>,
    /// Run this image in QEMU, with its UART as the serial line. QEMU ends when the bridge ends.
    #[arg(long, value_name = "ELF", conflicts_with = "serial")]
    image: Option<PathBuf>,
    /// The server that the mote connects to: coaps://host[:port].
    #[arg(long, value_name = "URI", required_unless_present = "listen")]
    peer: Option<String>,
    /// Address at which clients reach a mote that is a server: ADDRESS:PORT, or ADDRESS:PORT=PORT OF THE MOTE (5684 by
    /// default); may be repeated.
    #[arg(long, value_name = "ADDRESS:PORT[=PORT]")]
    listen: Vec<String>,
    /// IPv6 address to assign to the mote.
    #[arg(long, value_name = "ADDRESS", default_value_t = DEFAULT_MOTE)]
    mote: Ipv6Addr,
    /// Longest UDP payload that fits into the mote's buffers, in bytes. Longer payloads are dropped.
    #[arg(long, value_name = "BYTES", default_value_t = 320)]
    max_datagram: usize,
    /// Maximum number of remembered remote addresses.
    #[arg(long, value_name = "N", default_value_t = 256)]
    max_remotes: usize,
    /// Seconds after which a silent remote address is forgotten.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, value_parser = clap::value_parser!(u64).range(1..))]
    idle: u64,
}

const DEFAULT_MOTE: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);

#[cfg(not(unix))]
impl Bridge {
    pub(crate) fn run(self, _: crate::output::Output) -> Result<std::process::ExitCode, crate::output::Failure> {
        Err(crate::output::Failure::new("the bridge needs a UNIX system: serial lines are opened as files there"))
    }
}

#[cfg(unix)]
mod unix {
    use super::{Bridge, DEFAULT_MOTE};
    use crate::connect::resolve;
    use crate::output::{Failure, Output, runtime};
    use crate::serve::ended;
    use serde_json::json;
    use std::net::SocketAddr;
    use std::process::ExitCode;
    use std::sync::Arc;
    use std::time::Duration;
    use tegmen_host::bridge::{self, BridgeConfig, Dropped, Event, EventSink, Forward, Line, Totals};

    const _: () = assert!(DEFAULT_MOTE.to_bits() == bridge::MOTE.to_bits());
    /// The port of coaps.
    const COAPS: u16 = 5684;

    impl Bridge {
        pub(crate) fn run(self, out: Output) -> Result<ExitCode, Failure> {
            let line = match (&self.image, &self.serial) {
                (Some(image), _) => Line::Image(image.clone()),
                (None, Some(text)) => Line::find(text).map_err(Failure::new)?,
                (None, None) => return Err(Failure::usage("--serial LINE or --image ELF is needed")),
            };
            let listen = self.listen.iter().map(|text| forward(text)).collect::<Result<_, _>>()?;
            runtime()?.block_on(async {
                let config = BridgeConfig {
                    peer: self.peer().await?,
                    listen,
                    mote: self.mote,
                    max_datagram: self.max_datagram,
                    max_remotes: self.max_remotes,
                    idle: Duration::from_secs(self.idle),
                    ..BridgeConfig::new(line)
                };
                let bridge = bridge::Bridge::open(config, event_sink(out)).await.map_err(Failure::new)?;
                for Forward { address, mote_port } in bridge.addresses() {
                    out.line(
                        || format!("{address} is port {mote_port} of the mote"),
                        || json!({ "event": "listening", "address": address.to_string(), "mote_port": mote_port }),
                    );
                }
                let totals = bridge.run(ended()).await.map_err(Failure::new)?;
                summarize(out, &totals);
                Ok(ExitCode::SUCCESS)
            })
        }

        async fn peer(&self) -> Result<Option<SocketAddr>, Failure> {
            let Some(text) = &self.peer else { return Ok(None) };
            resolve(text).await.map(Some)
        }
    }

    fn forward(text: &str) -> Result<Forward, Failure> {
        let wrong =
            || Failure::usage(format!("--listen {text}: write it as ADDRESS:PORT or ADDRESS:PORT=PORT OF THE MOTE"));
        let (address, port) = text.split_once('=').map_or((text, None), |(address, port)| (address, Some(port)));
        Ok(Forward {
            address: address.parse().map_err(|_| wrong())?,
            mote_port: port.map_or(Ok(COAPS), str::parse).map_err(|_| wrong())?,
        })
    }

    /// Prints the events of the bridge.
    fn event_sink(out: Output) -> EventSink {
        Arc::new(move |event| match event {
            Event::Started { times } => out.line(
                || match times {
                    1 => "the mote came up and got its seed and address".to_owned(),
                    _ => "the mote started again: its sessions are gone".to_owned(),
                },
                || json!({ "event": "started", "times": times }),
            ),
            Event::Remote(remote) => out.line(
                || format!("{remote} talks to the mote"),
                || json!({ "event": "remote", "remote": remote.to_string() }),
            ),
            Event::Forgotten(remote) => out.line(
                || format!("{remote} is forgotten"),
                || json!({ "event": "forgotten", "remote": remote.to_string() }),
            ),
            Event::PeerRefused(peer) => out.line(
                || format!("nothing listens at {peer}: is the server running, and is this its port?"),
                || json!({ "event": "peer_refused", "peer": peer.to_string() }),
            ),
            Event::Dropped { why, count } => out.line(
                || format!("{} ({count} by now)", describe(why)),
                || json!({ "event": "dropped", "why": describe(why), "count": count }),
            ),
        })
    }

    fn describe(why: Dropped) -> String {
        match why {
            Dropped::Oversized { len } => format!("dropped: {len} bytes are more than the mote's buffers take"),
            Dropped::Refused => "dropped: the line brought what is no datagram of the mote".to_owned(),
            Dropped::Unroutable => {
                "dropped: the mote wrote to somebody who is neither its peer nor wrote to it".to_owned()
            }
            Dropped::Unsent => "dropped: the system did not send it".to_owned(),
        }
    }

    fn summarize(out: Output, totals: &Totals) {
        let Totals { started, to_mote, from_mote, oversized, refused, unroutable, unsent } = *totals;
        let dropped = oversized + refused + unroutable + unsent;
        out.line(
            || format!("{to_mote} datagrams to the mote, {from_mote} from it, {dropped} dropped"),
            || {
                json!({ "event": "ended", "started": started, "to_mote": to_mote, "from_mote": from_mote,
                        "oversized": oversized, "refused": refused, "unroutable": unroutable, "unsent": unsent })
            },
        );
    }
}
