//! What every DTLS peer does alike. Such a peer knows nothing of CoAP, so messages go through it byte by byte.

use crate::cell::{Cell, Check, Role, Scene};
use crate::ours::{Psk, Served};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// Application data at the peer's end of a session.
pub(crate) trait Plaintext {
    /// Sends `message` in a record of its own.
    fn send(&mut self, message: &[u8]) -> Result<(), String>;

    /// Waits for a message of `len` bytes and `tail`; those bytes.
    fn head(&mut self, len: usize, tail: &[u8]) -> Result<Vec<u8>, String>;

    /// Ends the session, with a closing alert if the peer sends such.
    fn close(&mut self);

    /// Waits for exactly `message`.
    fn expect(&mut self, message: &[u8]) -> Result<(), String> {
        self.head(0, message).map(drop)
    }

    /// Sends a request, and waits for exactly `response`.
    fn exchange(&mut self, request: &[u8], response: &[u8]) -> Result<(), String> {
        self.send(request)?;
        self.expect(response)
    }
}

/// A DTLS peer in the role of a client.
pub(crate) trait DtlsClient: Send + Sync + 'static {
    /// Opens a session to `tegmen serve`; it is established when this returns.
    fn connect(&self, scene: &Scene, server: SocketAddr, psk: &Psk) -> Result<Box<dyn Plaintext>, String>;

    /// Tries to, and has to say that an alert came that decryption failed.
    fn fail(&self, scene: &Scene, server: SocketAddr, psk: &Psk) -> Check;
}

/// The cells of a client.
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
    let cell = |(scenario, play): Scenario| {
        let client = client.clone();
        Cell::new(peer, version, Role::Client, scenario, move |scene| play(scene, &*client))
    };
    scenarios.into_iter().map(cell).collect()
}

pub(crate) const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

pub(crate) fn long_key() -> Psk {
    Psk::with_key(&"k".repeat(64))
}

pub(crate) fn long_identity() -> Psk {
    Psk::with_identity(&"i".repeat(128))
}

// --- the peer is the client ---

const GET_V: &[u8] = b"\x44\x01\x12\x34abcd\xb1v";
const CONTENT_HELLO: &[u8] = b"\x64\x45\x12\x34abcd\xffhello";

fn client_get(scene: &Scene, client: &dyn DtlsClient, host: IpAddr, psk: &Psk) -> Check {
    let served = Served::start(scene, psk)?;
    let mut session = client.connect(scene, (host, served.port).into(), psk)?;
    session.exchange(GET_V, CONTENT_HELLO)?;
    served.process.await_output(format!(" is {}", psk.identity), 0)?;
    Ok(())
}

/// The usual session, with one GET in it.
fn usual(scene: &Scene, client: &dyn DtlsClient) -> Result<(Served, Box<dyn Plaintext>), String> {
    let served = Served::start(scene, &Psk::usual())?;
    let mut session = client.connect(scene, (LOOPBACK, served.port).into(), &Psk::usual())?;
    session.exchange(GET_V, CONTENT_HELLO)?;
    Ok((served, session))
}

fn client_put_get(scene: &Scene, client: &dyn DtlsClient) -> Check {
    let (_served, mut session) = usual(scene, client)?;
    session.exchange(b"\x44\x03\x12\x35abce\xb1v\xffa new value", b"\x64\x44\x12\x35abce")?;
    session.exchange(b"\x44\x01\x12\x36abcf\xb1v", b"\x64\x45\x12\x36abcf\xffa new value")?;
    // The same Message ID again: the same answer.
    Ok(session.exchange(b"\x44\x01\x12\x36abcf\xb1v", b"\x64\x45\x12\x36abcf\xffa new value")?)
}

fn client_separate(scene: &Scene, client: &dyn DtlsClient) -> Check {
    let (_served, mut session) = usual(scene, client)?;
    session.exchange(b"\x44\x01\x12\x40tokn\xb4slow", b"\x60\x00\x12\x40")?;
    // Behind the token: Content-Format 0 and the payload.
    let header = session.head(4, b"tokn\xc0\xffslowly")?;
    let &[0x44, 0x45, id0, id1] = header.as_slice() else {
        return Err(format!("no confirmable response: {header:02x?}").into());
    };
    session.send(&[0x60, 0, id0, id1])?;
    Ok(session.exchange(b"\x44\x01\x12\x41abcd\xb1v", b"\x64\x45\x12\x41abcd\xffhello")?)
}

fn client_ping(scene: &Scene, client: &dyn DtlsClient) -> Check {
    let (_served, mut session) = usual(scene, client)?;
    session.exchange(b"\x40\x00\x77\x01", b"\x70\x00\x77\x01")?;
    // A token of nine bytes cannot be: a Reset with its Message ID (RFC 7252, section 4.2).
    session.exchange(b"\x49\x01\x77\x02abcdefghi", b"\x70\x00\x77\x02")?;
    // Another version is ignored, and the session lives.
    session.send(b"\x84\x01\x77\x03abcd")?;
    Ok(session.exchange(b"\x44\x01\x77\x04abcd\xb1v", b"\x64\x45\x77\x04abcd\xffhello")?)
}

/// Both look alike to the peer, and differently to the operator; whoever has the key is served as before.
fn client_refused(scene: &Scene, client: &dyn DtlsClient) -> Check {
    let served = Served::start(scene, &Psk::usual())?;
    let server = (LOOPBACK, served.port).into();
    client.fail(scene, server, &Psk::with_key("wrongPSK"))?;
    served.process.await_output("its key is another one", 0)?;
    client.fail(scene, server, &Psk::with_identity("nobody"))?;
    served.process.await_output("no such identity", 0)?;
    Ok(client.connect(scene, server, &Psk::usual())?.exchange(GET_V, CONTENT_HELLO)?)
}

/// For clients that say good-bye.
pub(crate) fn client_closes(scene: &Scene, client: &dyn DtlsClient) -> Check {
    let (served, mut session) = usual(scene, client)?;
    session.close();
    served.process.await_output("left: closed in order", 0)?;
    Ok(())
}
