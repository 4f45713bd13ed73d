//! DTLS libraries with sessions that are resumed.
//!
//! The programs that use the libraries take the arguments `resume ticket` or `resume id` after the argument KEY. When a
//! client reads the line `again`, it opens another session with the state of the last session. If the library reports
//! that a session is resumed, the program prints `resumed` before `established`.

use super::{Peer, Session};
use crate::cell::{Cell, Check, LOOPBACK, Role, Scene, free_port};
use crate::ours::{Psk, Served};
use crate::resumption::{self, By};
use crate::session::{self, Plaintext as _};
use std::net::SocketAddr;
use std::sync::Arc;

pub(super) fn cells(peer: &Arc<Peer>) -> Vec<Cell> {
    let mut cells = Vec::new();
    let mut add = |role, by: By, play: fn(&Scene, &Peer, By) -> Check| {
        let played = peer.clone();
        cells.push(Cell::new(peer.name, &peer.version, role, by.row(), move |scene| {
            played.program.ready()?;
            play(&scene.with_new_deadline(), &played, by)
        }));
    };
    for by in By::ALL {
        if peer.resumes.contains(&by) {
            add(Role::Server, by, server);
            add(Role::Client, by, client);
        } else {
            add(Role::Server, by, server_lacks);
            add(Role::Client, by, client_lacks);
        }
    }
    cells
}

/// The reason why tinydtls cannot resume by session id, for the report. "One" in this text is a session id. Each other
/// library of the module [`talker`](super) can resume by session id.
pub(super) const NO_ID: &str = "its dtls_send_client_hello always writes one of no bytes";

/// The line that a program prints for a resumed session.
pub(super) const RESUMED: &str = "resumed\n";

impl Peer {
    fn resume(&self, scene: &Scene, role: &str, address: SocketAddr, by: By) -> Result<Session, String> {
        self.start_with(scene, role, address, &Psk::usual(), &["resume", by.word()])
    }

    fn listen(&self, scene: &Scene, by: By) -> Result<(Session, SocketAddr), String> {
        let address = (LOOPBACK, free_port()?).into();
        let more: &[&str] = if self.resumes.contains(&by) { &["resume", by.word()] } else { &[] };
        let session = self.start_with(scene, "server", address, &Psk::usual(), more)?;
        session.process.await_output("listening\n", 0)?;
        Ok((session, address))
    }
}

/// Checks the output of the peer in the session `number`. In session 0, the first one, the peer must not print
/// [`RESUMED`]. In session 1, which resumes session 0, the peer must print it.
fn says(session: &Session, number: u8) -> Result<(), String> {
    match (number, session.process.out.text().contains(RESUMED)) {
        (0, false) | (1, true) => Ok(()),
        (_, resumed) => Err(format!("the peer in session {number}: resumed is {resumed}")),
    }
}

fn server(scene: &Scene, peer: &Peer, by: By) -> Check {
    let (mut session, address) = peer.listen(scene, by)?;
    resumption::server(scene, by, address, (&[], Some(&Psk::usual())), |number| {
        session::answer(&mut session, 3, b"a blink", 0x44, b"an answer")?;
        says(&session, number)
    })
}

fn client(scene: &Scene, peer: &Peer, by: By) -> Check {
    let served = Served::start(scene, &Psk::usual())?;
    let mut opened: Option<Session> = None;
    resumption::client(&served, by, |number, address| {
        let mut session = match opened.take() {
            None => peer.resume(scene, "client", address, by)?,
            Some(mut session) => {
                session.process.write(b"again\n")?;
                session
            }
        };
        session.process.await_output("established\n", session.read)?;
        session.get_v()?;
        says(&session, number)?;
        opened = Some(session);
        Ok(())
    })
}

fn server_lacks(scene: &Scene, peer: &Peer, by: By) -> Check {
    let (mut session, address) = peer.listen(scene, by)?;
    let part = || session::answer(&mut session, 3, b"a blink", 0x44, b"an answer");
    resumption::server_lacks(scene, by, address, part)
}

fn client_lacks(scene: &Scene, peer: &Peer, by: By) -> Check {
    resumption::client_lacks(scene, by, NO_ID, |address| {
        let mut session = peer.start(scene, "client", address, &Psk::usual())?;
        session.process.await_output("established\n", 0)?;
        session.get_v()
    })
}
