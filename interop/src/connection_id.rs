//! Connection ids (RFC 9146): the client and the server each find their own id in the records that they receive, and a
//! session survives a NAT that loses its mapping.

use crate::capture::Capture;
use crate::cell::{Check, LOOPBACK, Scene, Trouble, address};
use crate::hello::Hello;
use crate::ours::{Library, Psk, Served};
use crate::session::{DtlsServer, Plaintext, answer};
use std::net::SocketAddr;
use tegmen::dtls::{Config, ConnectionIdConfig};

pub(crate) const ROW: &str = "connection id";
pub(crate) const ROW_REBOUND: &str = "connection id, another port in mid-session";

/// Length in bytes of the ids of Tegmen's client, in the scenarios in which the peer is the server.
const OURS: u8 = 4;
/// Length of the ids of `tegmen serve` in bytes.
const SERVED: usize = 8;

fn offer(dtls: &mut Config) {
    dtls.connection_id = Some(ConnectionIdConfig { len: OURS, ..ConnectionIdConfig::default() });
}

/// Checks a session in which Tegmen's client sends requests to the peer. The ids of the peer have `len` bytes.
pub(crate) fn server<S: Plaintext>(
    listen: impl FnOnce(SocketAddr) -> Result<S, String>,
    len: usize,
    rebinds: bool,
) -> Check {
    let address = address(LOOPBACK)?;
    let mut session = listen(address)?;
    let relay = Capture::start(address)?;
    let port = relay.port;
    std::thread::scope(|scope| {
        let relay = &relay;
        let client = scope.spawn(move || -> Check {
            let client = Library::connect_with((LOOPBACK, port).into(), Some(&Psk::usual()), offer)?;
            let ids = client.connection_ids().ok_or("no ids were agreed on")?;
            let lens = (ids.ours().len(), ids.theirs().len());
            if lens != (usize::from(OURS), len) {
                return Err(format!("the ids have {lens:?} bytes").into());
            }
            client.ask_thrice(|number| {
                if rebinds && number > 0 {
                    relay.rebind();
                }
            })?;
            client.close();
            Ok(())
        });
        for number in 0..3u8 {
            if let Err(why) = answer(&mut session, 3, &[b'0' + number], 0x44, &[b'A' + number]) {
                let client = client.join().map_err(|_| "the client panicked")?;
                return Err(format!("{why}; the client reports {client:?}").into());
            }
        }
        client.join().map_err(|_| "the client panicked")?
    })?;
    has_ids(&relay, true, len)?;
    has_ids(&relay, false, OURS.into())
}

/// Checks a session in which the peer's client sends requests to `tegmen serve`. No peer supports return routability
/// checks, so the server uses a changed port without a check.
pub(crate) fn client<S: Plaintext>(
    scene: &Scene,
    connect: impl FnOnce(SocketAddr) -> Result<S, String>,
    rebinds: bool,
) -> Check {
    let more: &[&str] = if rebinds { &["--follow-unchecked"] } else { &[] };
    let served = Served::start_with(scene, &Psk::usual(), more)?;
    let relay = Capture::start((LOOPBACK, served.port).into())?;
    let mut session = connect((LOOPBACK, relay.port).into())?;
    session.get_v()?;
    for number in 0..2u8 {
        if rebinds {
            relay.rebind();
        }
        let id = 0x40 + number; // of the message
        session.get(&[0x44, 1, 0x12, id, 1, 2, 3, 4, 0xb1, b'v'], &[0x64, 0x45, 0x12, id, 1, 2, 3, 4], b"hello")?;
    }
    has_ids(&relay, true, SERVED)
}

/// Checks that the last datagram in a direction is a record of type tls12_cid, with an id of `id_len` bytes before the
/// length field.
fn has_ids(relay: &Capture, to_server: bool, id_len: usize) -> Check {
    let datagrams = relay.datagrams();
    let last = datagrams.iter().rfind(|datagram| datagram.to_server == to_server).ok_or("nothing passed")?;
    let bytes = &last.bytes;
    let len = bytes.get(11 + id_len..13 + id_len).map(|len| usize::from(len[0]) << 8 | usize::from(len[1]));
    match bytes.first() == Some(&25) && len == bytes.len().checked_sub(13 + id_len) {
        true => Ok(()),
        false => Err(format!("a record without an id of {id_len} bytes: {bytes:02x?}").into()),
    }
}

/// Reports that the server at `address` does not support ids: its ServerHello does not have the extension, and the
/// session has no ids.
pub(crate) fn lacks(address: SocketAddr) -> Check {
    let client = Library::connect_with(address, Some(&Psk::usual()), offer)?;
    let ids = client.connection_ids();
    client.close();
    match ids {
        None => Err(Trouble::Lacks("offered connection_id, its ServerHello leaves it out".to_owned())),
        Some(ids) => Err(format!("it agreed to {ids:?}").into()),
    }
}

/// Reports that a client does not offer ids.
pub(crate) fn client_lacks<S: Plaintext + ?Sized>(
    scene: &Scene,
    connect: impl FnOnce(SocketAddr) -> Result<Box<S>, String>,
) -> Check {
    let served = Served::start(scene, &Psk::usual())?;
    let relay = Capture::start((LOOPBACK, served.port).into())?;
    connect((LOOPBACK, relay.port).into())?.get_v()?;
    relay.lacks(Hello::Client, ("connection_id", 54))
}

/// Reports the same as [`lacks`], for a server that is not started yet.
pub(crate) fn server_lacks(scene: &Scene, server: &dyn DtlsServer) -> Check {
    let address = address(LOOPBACK)?;
    let _session = server.listen(scene, address, &Psk::usual())?;
    lacks(address)
}
