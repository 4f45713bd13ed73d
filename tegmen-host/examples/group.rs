//! Group OSCORE (RFC 10021): a switch sends one protected request to two lamps by multicast, and both lamps respond.
//! Then the switch sends a request to one lamp alone.
//!
//! `cargo run -p tegmen-host --example group`
//!
//! The members are servers at 127.0.0.2 and 127.0.0.3, and the multicast uses the loopback interface. The example
//! `lights_group` of `tegmen-control` shows a group that Axiom protects, and from which a controller evicts members.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use tegmen::coap::Code;
use tegmen::crypto::Curve;
use tegmen_host::client::{ClientConfig, Request, Session, ask_oscore_group};
use tegmen_host::contexts::{Contexts, create_group};
use tegmen_host::credentials::Credentials;
use tegmen_host::group::Group;
use tegmen_host::server::{Router, Server, ServerConfig};
use tegmen_host::uri::Scheme;

/// A multicast address, and the address of the interface over which the members reach it.
const GROUP: &str = "224.0.1.189%127.0.0.1";
/// Maximum time for which a lamp waits before it responds.
const LEISURE: Duration = Duration::from_millis(200);
const WAIT: Duration = Duration::from_millis(1500);
const NO_MULTICAST: &str = "multicast does not pass at the loopback interface. Check that the interface is up (on Linux: \
     sudo ip link set lo up) and that no firewall drops datagrams to 224.0.1.189 (on Linux: sudo iptables -L -v -n)";

/// Starts a lamp, which is a server that belongs to the group.
fn lamp(context: &Path, name: &'static str, address: SocketAddr) -> Result<Server, Box<dyn Error>> {
    let credentials = Credentials::default();
    let contexts = Contexts::open(&[context.to_owned()], |name, allow| credentials.learn(name, allow))?;
    let group = GROUP.parse()?;
    let config = ServerConfig::default().with(|config| {
        config.groups = vec![group];
        config.coap.leisure = LEISURE;
        config.shards = 1;
    });
    let router = Router::new().put("/light", move |request, response| {
        response.set_code(Code::CHANGED);
        response.payload(format!("{name} is {}", String::from_utf8_lossy(request.payload())).as_bytes())
    });
    let builder = Server::with(config).listen(&format!("coap://{address}")).credentials(credentials);
    let server = builder.oscore(contexts).on_event(|event| println!("lamp: {event}")).serve(router);
    server.map_err(|error| format!("{error}\n{NO_MULTICAST}").into())
}

async fn run(dir: &Path) -> Result<(), Box<dyn Error>> {
    // Each member gets a directory with its own private key and the public keys of the others.
    let dir = dir.join("lights");
    let names = ["switch", "hall", "porch"].map(str::to_owned);
    create_group(&dir, &names, Curve::Ed25519, &BTreeMap::new(), None)?;

    let port = UdpSocket::bind("127.0.0.1:0")?.local_addr()?.port();
    let at = |last: u8| SocketAddr::from(([127, 0, 0, last], port));
    let lamps = [lamp(&dir.join("hall"), "hall", at(2))?, lamp(&dir.join("porch"), "porch", at(3))?];

    println!("PUT on to the group");
    let (switch, group) = (dir.join("switch"), GROUP.parse::<Group>()?);
    let request = Request::new(Code::PUT, "/light").payload(b"on");
    let mut responses = BTreeSet::new();
    let asked = ask_oscore_group(&switch, (&group, port), &request, WAIT, |name, from, response| {
        let text = String::from_utf8_lossy(&response.payload).into_owned();
        println!("  {name} at {}: {} {text}", from.ip(), response.code);
        responses.insert(text);
    });
    let asked = asked.await.map_err(|error| format!("{error}\n{NO_MULTICAST}"))?;
    if !asked.missing.is_empty() || responses != BTreeSet::from(["hall is on", "porch is on"].map(str::to_owned)) {
        return Err(format!("a lamp did not respond: {NO_MULTICAST}").into());
    }

    println!("PUT off to the porch alone");
    let config = ClientConfig::default().with(|config| {
        config.oscore = Some(switch);
        config.oscore_member = Some("porch".to_owned());
    });
    let session = Session::connect_to(at(3), Scheme::Coap, config).await?;
    let response = session.put("/light", b"off").await?;
    println!("  {} {}", response.code, String::from_utf8_lossy(&response.payload));
    if response.payload != b"porch is off" {
        return Err("the porch did not obey".into());
    }
    session.close();
    for lamp in lamps {
        lamp.stop();
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let dir = std::env::temp_dir().join(format!("tegmen-example-group-{}", std::process::id()));
    let result = run(&dir).await;
    let _ = std::fs::remove_dir_all(&dir);
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
