//! `tegmen ndn forward`: a forwarder.

use super::{SOCKET, name_of};
use crate::output::{Failure, Output, runtime};
use crate::serve::ended;
use clap::Args;
use serde_json::json;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tegmen_ndn_host::node::{Config, Node};
use tegmen_ndn_host::tables::Limits;
use tegmen_ndn_host::uri::FaceUri;

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tegmen ndn forward --unix /tmp/ndn.sock --udp '[::]:6363' --tcp '[::]:6363'\n  \
    tegmen ndn forward --unix /tmp/ndn.sock --route /=udp://hub.example.org --route /house=tcp://10.0.0.1,5\n\n\
    Programs register the prefixes that they answer, as at NFD and ndnd. Names under /localhost never leave the machine.")]
pub(super) struct Forward {
    /// Listen for UDP at this address. May be given several times.
    #[arg(long, value_name = "ADDRESS:PORT")]
    udp: Vec<SocketAddr>,
    /// Listen for TCP at this address. May be given several times.
    #[arg(long, value_name = "ADDRESS:PORT")]
    tcp: Vec<SocketAddr>,
    /// Listen for programs of this machine at this Unix socket. May be given several times.
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    unix: Vec<PathBuf>,
    /// Next hop of a prefix, with its cost: PREFIX=udp://HOST:PORT[,COST]. May be given several times.
    #[arg(long, value_name = "PREFIX=URI[,COST]")]
    route: Vec<String>,
    /// Prefix whose Interests go to all next hops instead of only the best next hop. May be given several times.
    #[arg(long, value_name = "PREFIX")]
    multicast: Vec<String>,
    /// Maximum number of Interests that wait for their Data packets.
    #[arg(long, value_name = "N", default_value_t = 1 << 20, value_parser = clap::value_parser!(u32).range(1..))]
    waiting: u32,
    /// Maximum number of Interests that arrived at one face and wait for their Data packets. Default: a quarter of
    /// --waiting.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    waiting_of_face: Option<u32>,
    /// Size of the content store in bytes; 0 stores nothing.
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20)]
    store: u64,
    /// Maximum number of faces.
    #[arg(long, value_name = "N", default_value_t = 16_384, value_parser = clap::value_parser!(u16).range(1..))]
    faces: u16,
    /// Longest UDP datagram in bytes. Longer packets are sent in fragments.
    #[arg(long, value_name = "BYTES", default_value_t = 1_400, value_parser = clap::value_parser!(u16).range(512..))]
    mtu: u16,
    /// Acknowledge packets at UDP faces, and retransmit packets that the neighbour does not acknowledge (NDNLPv2).
    /// Both neighbours need this option.
    #[arg(long)]
    reliable: bool,
    /// Maximum number of times that the forwarder repeats an Interest to a next hop that does not answer within half a
    /// second. The neighbour does not need this option.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(..64))]
    retransmissions: u8,
    /// Let neighbours register prefixes, too. A neighbour can then attract the Interests for any name.
    #[arg(long)]
    neighbours_register: bool,
    /// Seconds after which a silent UDP neighbour is forgotten.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    idle: u64,
}

impl Forward {
    pub(super) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        let routes = self.route.iter().map(|text| route(text)).collect::<Result<_, _>>()?;
        let multicast = self.multicast.iter().map(|text| name_of(text)).collect::<Result<_, _>>()?;
        let waiting = self.waiting as usize;
        let limits = Limits {
            waiting,
            waiting_of_face: self.waiting_of_face.map_or(waiting.div_ceil(4), |most| most as usize),
            stored_bytes: usize::try_from(self.store).unwrap_or(usize::MAX),
            ..Limits::default()
        };
        let config = Config {
            udp: self.udp,
            tcp: self.tcp,
            unix: self.unix,
            routes,
            multicast,
            limits,
            faces: self.faces.into(),
            mtu: self.mtu.into(),
            reliable: self.reliable,
            retransmissions: self.retransmissions,
            neighbours_register: self.neighbours_register,
            idle: Duration::from_secs(self.idle),
        };
        runtime()?.block_on(async {
            let node = Node::bind(config).await.map_err(Failure::usage)?;
            for address in node.addresses() {
                out.line(
                    || format!("listening on {address}"),
                    || json!({ "event": "listening", "address": address.to_string() }),
                );
            }
            node.run(ended()).await;
            Ok(ExitCode::SUCCESS)
        })
    }
}

/// Reads PREFIX=URI[,COST]. The prefix may contain `=`, as in `/v=1`.
fn route(text: &str) -> Result<(Vec<u8>, FaceUri, u16), Failure> {
    const FORM: &str = "write PREFIX=udp://HOST:PORT, tcp or unix, and a cost behind a comma";
    let refused = |why: &dyn std::fmt::Display| Failure::usage(format!("--route {text}: {why}"));
    let schemes = ["=udp", "=tcp", "=unix"];
    let place = schemes.iter().filter_map(|scheme| text.rfind(&format!("{scheme}://"))).max();
    let place = place.or_else(|| text.rfind('=')).ok_or_else(|| refused(&FORM))?;
    let (prefix, uri) = text.split_at(place);
    let uri = uri.trim_start_matches('=');
    let (uri, cost) = match uri.rsplit_once(',') {
        Some((uri, cost)) => (uri, cost.parse().map_err(|_| refused(&FORM))?),
        None => (uri, 1),
    };
    Ok((name_of(prefix)?, uri.parse().map_err(|error| refused(&error))?, cost))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_has_a_prefix_a_next_hop_and_a_cost() {
        let read = |text| route(text).map(|(prefix, uri, cost)| (prefix.len(), uri.to_string(), cost));
        assert_eq!(read("/=udp://127.0.0.1:6363").unwrap(), (0, "udp://127.0.0.1:6363".into(), 1));
        assert_eq!(read("/a/v=1=tcp://127.0.0.1,5").unwrap(), (6, "tcp://127.0.0.1:6363".into(), 5));
        assert_eq!(read("/a=unix:///run/x.sock").unwrap(), (3, "unix:///run/x.sock".into(), 1));
        for refused in ["/a", "/a=http://x", "/a=udp://127.0.0.1,x", "//a=udp://127.0.0.1"] {
            assert!(read(refused).is_err(), "{refused}");
        }
    }
}
