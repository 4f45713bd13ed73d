//! Resumption of sessions with GnuTLS.

use super::{PEER, Session, serve, start};
use crate::capture::Capture;
use crate::cell::{Cell, Check, LOOPBACK, Role, Scene, holds};
use crate::ours::{Library, Psk, Served};
use crate::resumption::{self, By};
use crate::session::Plaintext as _;
use tegmen::coap::Code;
use tegmen_host::client::{ClientConfig, ClientError};

pub(super) fn cells(version: &str) -> Vec<Cell> {
    let mut cells = Vec::new();
    for by in By::ALL {
        let cell = |role, play: fn(&Scene, By) -> Check| {
            Cell::new(PEER, version, role, by.row(), move |scene| play(scene, by))
        };
        cells.push(cell(Role::Server, server));
        cells.push(cell(Role::Client, client));
    }
    cells
}

/// Checks resumption with `gnutls-serv` as the server, which returns each message unchanged (an echo). Tegmen's client
/// gets its own request back, and rejects it with a Reset. The server returns the Reset, too, and the client takes the
/// Reset as the response. The server accepts the next session only after the previous session is closed.
fn server(scene: &Scene, by: By) -> Check {
    let more: &[&str] = if by == By::Id { &["--noticket"] } else { &[] };
    let (server, port) = serve(scene, &Psk::usual(), more)?;
    let relay = Capture::start((LOOPBACK, port).into())?;
    let sessions = scene.directory().join("sessions");
    let mut told = 0;
    for number in 0..2 {
        let address = (LOOPBACK, relay.port).into();
        let resume = |config: &mut ClientConfig| config.state.resume = Some(sessions.clone());
        let client = Library::connect_as(address, Some(&Psk::usual()), resume)?;
        if client.is_resumed() != (number == 1) {
            return Err(format!("session {number}: resumed is {}", client.is_resumed()).into());
        }
        match client.request(Code::PUT, "question", b"a blink") {
            Err(ClientError::Reset { .. }) => client.close(),
            Err(other) => return Err(format!("session {number}: {other}").into()),
            Ok(reply) => return Err(format!("session {number}: an echo answered {}", reply.code).into()),
        }
        told = server.await_error(CLOSED, told)? + CLOSED.len();
    }
    // The server logs the messages that it receives: two sessions have one key exchange.
    let log = server.err.text();
    let count = |message: &str| log.matches(message).count();
    match (count("FINISHED (20) was received"), count("CLIENT KEY EXCHANGE (16) was received")) {
        (2, 1) => resumption::resumed(&relay, by),
        counts => Err(format!("the log of gnutls-serv has (Finished, ClientKeyExchange) {counts:?}").into()),
    }
}

/// The last line that `gnutls-serv` logs for a session.
const CLOSED: &str = "Close notify - was received";

/// Checks that `gnutls-cli --resume` opens a session with Tegmen's server, closes it, and resumes it.
fn client(scene: &Scene, by: By) -> Check {
    let served = Served::start(scene, &Psk::usual())?;
    let relay = Capture::start((LOOPBACK, served.port).into())?;
    let settings = if by == By::Id { ":%NO_TICKETS" } else { "" };
    let process = start(scene, (LOOPBACK, relay.port).into(), &Psk::usual(), settings, &["--resume"])?;
    let mut session = Session::open(process)?;
    holds(&session.process.out.text(), &["*** This is a resumed session"])?;
    session.get_v()?;
    resumption::came_back(&served, &relay, by)
}
