//! Tests `tegmen steer` between a peer and two servers. An attacker has the memory of `tegmen steer`, and all datagrams
//! that it carried.
#![cfg(target_os = "linux")]

mod spy;

#[allow(dead_code, reason = "each test uses its part")]
#[path = "../works/mod.rs"]
mod works;

use spy::{Datagram, Held, Spy, memory_of};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use tegmen::dtls::{CipherSuite, Suites};
use tegmen_host::client::{ClientConfig, Session, Tap, Tapped};
use tegmen_host::public_keys::PublicKeys;
use tegmen_host::uri::Scheme;
use tegmen_host::x509::{Files, Settings, Verifier};
use works::{Scene, Server};

const OF_SERVER: &[u8] = b"a value of the delegation server";
const OF_DEVICE: &[u8] = b"a value of the device";

/// Starts a server with a certificate. The two servers of a test use the same ticket keys. The resource `/value` has
/// the value `value`.
fn end(dir: &Path, value: &[u8]) -> Server {
    let value = format!("/value={}", str::from_utf8(value).unwrap());
    let options = ["--value", &value, "--anonymous", "GET /value", "--shards", "1", "--json"];
    let keys = ["--cert", "ca/end.pem", "--cert-key", "ca/end.key", "--ticket-keys", "ticket.keys"];
    Server::start(dir, &[&options[..], &keys].concat(), 1)
}

/// Starts `tegmen steer` as a gateway. If the operator gives the secret `given` to the gateway, the environment of the
/// gateway contains the secret.
fn gateway(listen: SocketAddr, [server, device]: [&Server; 2], given: Option<&str>) -> Server {
    let [server, device] = [server, device].map(|end| end.addresses[0]);
    let options = format!("steer --json --listen {listen} --server coaps://{server} --device coaps://{device}");
    let mut steer = Command::new(env!("CARGO_BIN_EXE_tegmen"));
    steer.args(options.split(' '));
    if let Some(secret) = given {
        steer.env("GIVEN", secret);
    }
    Server::of(&mut steer, 1)
}

/// A peer, which resumes its session if it already has one.
struct Peer {
    dir: PathBuf,
}

/// An open session of the peer, and all datagrams of this session.
struct Seen {
    _session: Session,
    value: Vec<u8>,
    is_resumed: bool,
    datagrams: Vec<Datagram>,
    /// The lines of the key log for this session.
    secrets: String,
}

impl Peer {
    fn keys(&self) -> PublicKeys {
        let ca = self.dir.join("ca");
        let files = Files { anchors: vec![ca.join("ca.pem")], crls: vec![ca.join("crl.pem")], revoked: Vec::new() };
        let verifier = Verifier::from_files(files, Settings::default()).unwrap();
        let keys = PublicKeys::new(Suites(&[CipherSuite::ECDHE_ECDSA_WITH_AES_128_CCM_8]));
        keys.believing(Arc::new(verifier)).expecting("127.0.0.1")
    }

    async fn ask(&self, gateway: SocketAddr) -> Seen {
        let seen = Arc::new(Mutex::new((Vec::new(), String::new())));
        let tap = Arc::clone(&seen);
        let tap = Tap(Arc::new(move |tapped| {
            let (datagrams, secrets) = &mut *tap.lock().unwrap();
            match tapped {
                Tapped::Datagram { sent, datagram, .. } => {
                    datagrams.push(Datagram { is_of_client: sent, bytes: datagram.to_vec() });
                }
                Tapped::Secrets(line) => secrets.push_str(line),
            }
        }));
        let config = ClientConfig::default().with(|config| {
            config.trust.public_keys = Some(self.keys());
            config.state.resume = Some(self.dir.join("sessions"));
            config.log.tap = Some(tap);
        });
        let session = Session::connect_to(gateway, Scheme::Coaps, config).await.unwrap();
        let value = session.get("/value").await.unwrap().payload.to_vec();
        let (datagrams, secrets) = seen.lock().unwrap().clone();
        Seen { is_resumed: session.is_resumed(), _session: session, value, datagrams, secrets }
    }
}

/// Returns true if an attacker can decrypt the request or the response of a session. The attacker has all datagrams of
/// the session, and tries the bytes of `memory` as a secret of the kind `held`.
fn opens(memory: &[u8], seen: &Seen, held: Held) -> bool {
    let records = Spy { memory, datagrams: &seen.datagrams }.opened(held);
    // The path in the request, and the text of the response.
    let has_value = records.iter().any(|record| has(record, b"value"));
    assert_eq!(has_value, !records.is_empty(), "{held:?}: {records:?}");
    has_value
}

fn has(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[tokio::test]
async fn the_gateway_cannot_open_a_record() {
    let scene = Scene::new("steering");
    for arguments in ["ca init ca", "ca issue ca --name end --ip 127.0.0.1"] {
        let mut tegmen = Command::new(env!("CARGO_BIN_EXE_tegmen"));
        let made = tegmen.args(arguments.split(' ')).current_dir(&scene.0).output().unwrap();
        assert!(made.status.success(), "{arguments}");
    }
    let (server, device) = (end(&scene.0, OF_SERVER), end(&scene.0, OF_DEVICE));
    let (ends, peer) = ([&server, &device], Peer { dir: scene.0.clone() });
    let ours = gateway(([127, 0, 0, 1], 0).into(), ends, None);
    let address = ours.addresses[0];
    let full = peer.ask(address).await;
    let resumed = peer.ask(address).await;
    assert_eq!((full.is_resumed, &full.value[..]), (false, OF_SERVER));
    assert_eq!((resumed.is_resumed, &resumed.value[..]), (true, OF_DEVICE));

    // With the memory of the device the attack succeeds: it has the key of the tickets, and the keys of its session.
    let memory = memory_of(device.process.id());
    assert!(opens(&memory, &resumed, Held::TicketKey) && opens(&memory, &resumed, Held::WriteKey));
    let memory = memory_of(ours.process.id());
    for seen in [&full, &resumed] {
        for held in [Held::WriteKey, Held::MasterSecret, Held::TicketKey] {
            assert!(!opens(&memory, seen, held), "{held:?}");
        }
        assert!(!has(&memory, &seen.value));
    }
    drop(ours);

    // The mutants: the gateway is given the key of the tickets, or the master secret.
    let keys = std::fs::read_to_string(scene.0.join("ticket.keys")).unwrap();
    for (given, held) in [(keys, Held::TicketKey), (full.secrets, Held::MasterSecret)] {
        let mutant = gateway(address, ends, Some(&given));
        let resumed = peer.ask(address).await;
        assert!(resumed.is_resumed && opens(&memory_of(mutant.process.id()), &resumed, held), "{held:?}");
    }
}
