//! The scenarios that are run with each DTLS peer. A DTLS peer does not support CoAP, so the scenarios write and read
//! CoAP messages byte by byte.

use crate::capture::Capture;
use crate::cell::{Cell, Check, LOOPBACK, Role, Scene, Trouble, address};
use crate::connection_id;
use crate::network::Network;
use crate::ours::{Library, Psk, Served, names_identity_and_key, start_ask, start_ask_within};
use crate::session::{DtlsClient, DtlsServer, Plaintext, answer};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// Returns one [`Cell`] (a row of the result table) for each scenario with the DTLS client `client`.
pub(crate) fn client_cells(peer: &str, version: &str, client: impl DtlsClient) -> Vec<Cell> {
    type Scenario = (&'static str, fn(&Scene, &dyn DtlsClient) -> Check);
    let client = Arc::new(client);
    let scenarios: [Scenario; 8] = [
        ("handshake, data both ways", |scene, client| client_get(scene, client, LOOPBACK, &Psk::usual())),
        ("IPv6", |scene, client| client_get(scene, client, Ipv6Addr::LOCALHOST.into(), &Psk::usual())),
        ("PUT, then GET of the same value", client_put_get),
        ("separate response", client_separate),
        ("ping, and what is no CoAP", client_ping),
        ("wrong key, unknown identity", client_refused),
        ("key of 64 bytes", |scene, client| client_get(scene, client, LOOPBACK, &long_key())),
        ("identity of 128 bytes", |scene, client| client_get(scene, client, LOOPBACK, &long_identity())),
    ];
    let lacks: [Scenario; 1] = [(connection_id::ROW, client_lacks_connection_id)];
    let lacks = lacks.into_iter().filter(|_| !client.knows_connection_id());
    let scenarios = scenarios.into_iter().chain(lacks);
    let cell = |(scenario, play): Scenario| {
        let client = client.clone();
        Cell::new(peer, version, Role::Client, scenario, move |scene| {
            client.prepare()?;
            play(&scene.with_new_deadline(), &*client)
        })
    };
    scenarios.map(cell).collect()
}

/// Returns one [`Cell`] (a row of the result table) for each scenario with the DTLS server `server`.
pub(crate) fn server_cells(peer: &str, version: &str, server: impl DtlsServer) -> Vec<Cell> {
    type Scenario = (&'static str, fn(&Scene, &dyn DtlsServer) -> Check);
    let server = Arc::new(server);
    let scenarios: [Scenario; 8] = [
        ("handshake, data both ways", |scene, server| server_put(scene, server, LOOPBACK, &Psk::usual(), &[])),
        ("minimal profile", server_minimal),
        ("IPv6", |scene, server| server_put(scene, server, Ipv6Addr::LOCALHOST.into(), &Psk::usual(), &[])),
        ("several requests in one session", server_several),
        ("wrong key", |scene, server| server_refuses(scene, server, &Psk::with_key("wrongPSK"))),
        ("unknown identity", server_knows_not),
        ("key of 64 bytes", |scene, server| server_put(scene, server, LOOPBACK, &long_key(), &[])),
        ("identity of 128 bytes", |scene, server| server_put(scene, server, LOOPBACK, &long_identity(), &[])),
    ];
    let lacks: [Scenario; 1] = [(connection_id::ROW, connection_id::server_lacks)];
    let lacks = lacks.into_iter().filter(|_| !server.knows_connection_id());
    let scenarios = scenarios.into_iter().chain(lacks);
    let cell = |(scenario, play): Scenario| {
        let server = server.clone();
        Cell::new(peer, version, Role::Server, scenario, move |scene| {
            server.prepare()?;
            play(&scene.with_new_deadline(), &*server)
        })
    };
    scenarios.map(cell).collect()
}

pub(crate) fn long_key() -> Psk {
    Psk::with_key(&"k".repeat(64))
}

pub(crate) fn long_identity() -> Psk {
    Psk::with_identity(&"i".repeat(128))
}

// --- the peer is the client ---

/// Starts `tegmen serve` with the resource `/long`, whose value has 1000 bytes.
pub(crate) fn serve_long(scene: &Scene) -> Result<Served, String> {
    Served::start_with(scene, &Psk::usual(), &["--value", &format!("/long={}", "l".repeat(1000))])
}

/// Sends a GET of the resource `/long` (see [`serve_long`]). The response must be the first block of the value. The
/// block has `block` bytes, which fit the agreed size of records.
pub(crate) fn get_block(session: &mut dyn Plaintext, block: usize) -> Check {
    session.send(b"\x44\x01\x12\x34abcd\xb4long")?;
    let exponent = block.trailing_zeros().saturating_sub(4) as u8;
    // After the header: an ETag of four bytes, Block2 with more blocks to follow, Size2.
    let tail = [&[0xd1, 6, 8 | exponent, 0x52, 3, 0xe8, 0xff][..], "l".repeat(block).as_bytes()].concat();
    let head = session.head(8 + 5, &tail)?;
    match head.strip_prefix(b"\x64\x45\x12\x34abcd") {
        Some([0x44, ..]) => Ok(()),
        _ => Err(format!("the block came behind {head:02x?}").into()),
    }
}

fn client_get(scene: &Scene, client: &dyn DtlsClient, host: IpAddr, psk: &Psk) -> Check {
    client.takes(psk)?;
    let served = Served::start(scene, psk)?;
    let mut session = client.connect(scene, (host, served.port).into(), psk)?;
    session.get_v()?;
    served.process.await_output(format!(" authenticated as {}", psk.identity), 0)?;
    Ok(())
}

/// Opens a session with the key of [`Psk::usual`], and sends one GET in it.
fn usual(scene: &Scene, client: &dyn DtlsClient) -> Result<(Served, Box<dyn Plaintext>), String> {
    let served = Served::start(scene, &Psk::usual())?;
    let mut session = client.connect(scene, (LOOPBACK, served.port).into(), &Psk::usual())?;
    session.get_v()?;
    Ok((served, session))
}

/// Opens a session over a faulty network, and sends one GET in it.
pub(crate) fn client_over(scene: &Scene, client: &dyn DtlsClient, network: Network) -> Check {
    let served = Served::start(scene, &Psk::usual())?;
    let relay = Capture::over((LOOPBACK, served.port).into(), network)?;
    client.connect(scene, (LOOPBACK, relay.port).into(), &Psk::usual())?.get_v()?;
    relay.did_harm()
}

fn client_put_get(scene: &Scene, client: &dyn DtlsClient) -> Check {
    let (_served, mut session) = usual(scene, client)?;
    session.exchange(b"\x44\x03\x12\x35abce\xb1v\xffa new value", b"\x64\x44\x12\x35abce")?;
    session.get(b"\x44\x01\x12\x36abcf\xb1v", b"\x64\x45\x12\x36abcf", b"a new value")?;
    // The same Message ID again: the same answer.
    Ok(session.get(b"\x44\x01\x12\x36abcf\xb1v", b"\x64\x45\x12\x36abcf", b"a new value")?)
}

fn client_separate(scene: &Scene, client: &dyn DtlsClient) -> Check {
    let (_served, mut session) = usual(scene, client)?;
    session.exchange(b"\x44\x01\x12\x40tokn\xb4slow", b"\x60\x00\x12\x40")?;
    // After the token: Content-Format 0 and the payload.
    let header = session.head(4, b"tokn\xc0\xffslowly")?;
    let &[0x44, 0x45, id0, id1] = header.as_slice() else {
        return Err(format!("no confirmable response: {header:02x?}").into());
    };
    session.send(&[0x60, 0, id0, id1])?;
    Ok(session.get(b"\x44\x01\x12\x41abcd\xb1v", b"\x64\x45\x12\x41abcd", b"hello")?)
}

fn client_ping(scene: &Scene, client: &dyn DtlsClient) -> Check {
    let (_served, mut session) = usual(scene, client)?;
    session.exchange(b"\x40\x00\x77\x01", b"\x70\x00\x77\x01")?;
    // A token of nine bytes is a format error, so the server sends a Reset with its Message ID (RFC 7252, section 4.2).
    session.exchange(b"\x49\x01\x77\x02abcdefghi", b"\x70\x00\x77\x02")?;
    // The server ignores a message of another version, and the session continues.
    session.send(b"\x84\x01\x77\x03abcd")?;
    Ok(session.get(b"\x44\x01\x77\x04abcd\xb1v", b"\x64\x45\x77\x04abcd", b"hello")?)
}

/// Checks that the peer cannot distinguish a wrong key from an unknown identity, and that the log of the server
/// distinguishes them. A client with the right key still gets its response.
fn client_refused(scene: &Scene, client: &dyn DtlsClient) -> Check {
    let served = Served::start(scene, &Psk::usual())?;
    let server = (LOOPBACK, served.port).into();
    client.fail(scene, server, &Psk::with_key("wrongPSK"))?;
    served.process.await_output("its key is another one", 0)?;
    client.fail(scene, server, &Psk::with_identity("nobody"))?;
    served.process.await_output("no such identity", 0)?;
    Ok(client.connect(scene, server, &Psk::usual())?.get_v()?)
}

fn client_lacks_connection_id(scene: &Scene, client: &dyn DtlsClient) -> Check {
    connection_id::client_lacks(scene, |server| client.connect(scene, server, &Psk::usual()))
}

/// Checks the close_notify of a client, for clients that send it.
pub(crate) fn client_closes(scene: &Scene, client: &dyn DtlsClient) -> Check {
    let (served, mut session) = usual(scene, client)?;
    session.close();
    served.process.await_output("disconnected (close_notify)", 0)?;
    Ok(())
}

// --- the peer is the server ---

fn server_put(scene: &Scene, server: &dyn DtlsServer, host: IpAddr, psk: &Psk, more: &[&str]) -> Check {
    server.takes(psk)?;
    let address = address(host)?;
    let mut session = server.listen(scene, address, psk)?;
    let uri = format!("coaps://{address}/question");
    let asked = start_ask(scene, &[&["put", &uri, "a blink"], more].concat(), Some(psk))?;
    if let Err(why) = answer(&mut *session, 3, b"a blink", 0x44, b"an answer") {
        return Err(format!("{why}; tegmen reports: {}", asked.failure()?.trim()).into());
    }
    let answer = asked.answer()?;
    match (answer.code.as_str(), answer.payload.as_str()) {
        ("2.04", "an answer") => Ok(()),
        (code, payload) => Err(format!("tegmen understood {code} {payload:?}").into()),
    }
}

/// Checks one PUT over a faulty network.
pub(crate) fn server_over(scene: &Scene, server: &dyn DtlsServer, network: Network) -> Check {
    let (address, psk) = (address(LOOPBACK)?, Psk::usual());
    let mut session = server.listen(scene, address, &psk)?;
    let relay = Capture::over(address, network)?;
    let uri = format!("coaps://127.0.0.1:{}/question", relay.port);
    let asked = start_ask_within(scene, &["put", &uri, "a blink"], Some(&psk), "20")?;
    if let Err(why) = answer(&mut *session, 3, b"a blink", 0x44, b"an answer") {
        return Err(format!("{why}; tegmen reports: {}", asked.failure()?.trim()).into());
    }
    asked.answer()?;
    relay.did_harm()
}

fn server_minimal(scene: &Scene, server: &dyn DtlsServer) -> Check {
    let Some(evidence) = server.refuses_minimal() else {
        return server_put(scene, server, LOOPBACK, &Psk::usual(), &["--minimal"]);
    };
    let address = address(LOOPBACK)?;
    let _session = server.listen(scene, address, &Psk::usual())?;
    let uri = format!("coaps://{address}/question");
    let failure = start_ask(scene, &["get", &uri, "--minimal"], Some(&Psk::usual()))?.failure()?;
    if !failure.contains("the server sent") {
        return Err(format!("it was not refused: {}", failure.trim()).into());
    }
    Err(Trouble::Lacks(evidence.to_owned()))
}

/// Checks three requests of the client of Tegmen's library. The peer answers each request while the client waits.
fn server_several(scene: &Scene, server: &dyn DtlsServer) -> Check {
    let address = address(LOOPBACK)?;
    let mut session = server.listen(scene, address, &Psk::usual())?;
    std::thread::scope(|scope| {
        let client = scope.spawn(move || -> Check {
            let client = Library::connect(address, Some(&Psk::usual()), None)?;
            client.ask_thrice(|_| ())?;
            client.close();
            Ok(())
        });
        for number in 0..3u8 {
            answer(&mut *session, 3, &[b'0' + number], 0x44, &[b'A' + number])?;
        }
        client.join().map_err(|_| "the client panicked")?
    })
}

fn server_knows_not(scene: &Scene, server: &dyn DtlsServer) -> Check {
    let stranger = Psk::with_identity("nobody");
    let Some(alert) = server.unknown_identity() else { return server_refuses(scene, server, &stranger) };
    let address = address(LOOPBACK)?;
    let _session = server.listen(scene, address, &Psk::usual())?;
    let asked = start_ask(scene, &["get", &format!("coaps://{address}/question")], Some(&stranger))?;
    let failure = asked.failure()?;
    if failure.contains(alert) { Ok(()) } else { Err(format!("tegmen reports: {}", failure.trim()).into()) }
}

/// Checks that a server refuses a client. The server has the identity and key of [`Psk::usual`]. The client has another
/// identity or another key, which `psk` contains.
fn server_refuses(scene: &Scene, server: &dyn DtlsServer, psk: &Psk) -> Check {
    let address = address(LOOPBACK)?;
    let _session = server.listen(scene, address, &Psk::usual())?;
    let asked = start_ask(scene, &["get", &format!("coaps://{address}/question")], Some(psk))?;
    names_identity_and_key(&asked.failure()?)
}
