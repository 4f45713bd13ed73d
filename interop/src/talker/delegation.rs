//! DTLS libraries with sessions that were delegated to a device.
//!
//! The programs that use the libraries take `resume ticket NAME` or `resume id NAME` after an X.509 key. NAME is the
//! name of the server: a client requests the server by this name. A client opens the next session when it reads the
//! line `again ADDRESS`.

use super::public_keys::{THEIR_DEVICE, THEIR_SERVER};
use super::resumption::{NO_ID, RESUMED};
use super::{Peer, Reaches, Session};
use crate::capture::Capture;
use crate::cell::{Cell, Check, LOOPBACK, Role, Scene, Trouble, holds};
use crate::delegation::{LAMP, Way, World, row};
use crate::hello::Hello;
use crate::public_keys::ECDSA_CCM_8;
use crate::resumption::{self, By, SESSION_TICKET};
use crate::session::{GET_V, Plaintext as _};
use std::sync::Arc;
use tegmen_host::hex::to_hex;

const ESTABLISHED: &str = "established\n";

pub(super) fn cells(peer: &Arc<Peer>) -> Vec<Cell> {
    let mut cells = Vec::new();
    if peer.knows.x509 && peer.resumes.contains(&By::Ticket) {
        let played = peer.clone();
        let row = "delegation, another ticket in the next epoch";
        cells.push(Cell::new(peer.name, &peer.version, Role::Client, row, move |scene| {
            played.program.ready()?;
            returns(&scene.with_new_deadline(), &played)
        }));
    }
    let mut add = |role, by: By, play: fn(&Scene, &Peer, By) -> Check| {
        let played = peer.clone();
        cells.push(Cell::new(peer.name, &peer.version, role, row(by), move |scene| {
            played.program.ready()?;
            play(&scene.with_new_deadline(), &played, by)
        }));
    };
    for by in By::ALL {
        match peer.reaches {
            _ if !peer.knows.x509 => add(Role::Client, by, |_, _, _| no_certificates()),
            _ if !peer.resumes.contains(&by) => add(Role::Client, by, client_lacks),
            Reaches::Nowhere => add(Role::Client, by, misreads_name),
            Reaches::Address | Reaches::Gateway => add(Role::Client, by, client),
        }
        if peer.resumed_by.contains(&by) {
            add(Role::Server, by, server);
        }
    }
    cells
}

fn no_certificates() -> Check {
    Err(Trouble::Lacks(format!("it has no certificates, and {NO_ID}")))
}

impl Peer {
    /// Opens a session at the server in the name of the device.
    fn authenticate(&self, scene: &Scene, way: &Way, by: By) -> Result<Session, String> {
        let words = [&["x509", ECDSA_CCM_8.name], &THEIR_DEVICE[..], &["resume", by.word(), LAMP]].concat();
        self.open(scene, "client", way.server(), &words)
    }
}

fn client(scene: &Scene, peer: &Peer, by: By) -> Check {
    let world = World::start(scene)?;
    let way = if peer.reaches == Reaches::Gateway { Way::steered(&world)? } else { Way::direct(&world)? };
    let mut session = peer.authenticate(scene, &way, by)?;
    let end = session.process.await_output(ESTABLISHED, 0)? + ESTABLISHED.len();
    // Scandium reports a session with its first record. The server has no such resource.
    session.process.write(format!("{}\n", to_hex(GET_V)).as_bytes())?;
    session.read = session.process.await_output("received 6484", 0)? + 1;
    session.says(ECDSA_CCM_8, LAMP)?;
    if by == By::Id {
        world.await_hand_over()?;
    }
    session.process.write(format!("again {}\n", way.device()).as_bytes())?;
    session.process.await_output(ESTABLISHED, end)?;
    session.get_v()?;
    holds(&session.process.out.text(), &[RESUMED])?;
    way.resumed(by)?;
    world.was_asked()
}

/// Checks a peer that returns after the device has begun its next epoch. The peer shows the ticket of the previous
/// epoch, and the server gives it a ticket of the current epoch. Only the first session has a key exchange.
fn returns(scene: &Scene, peer: &Peer) -> Check {
    let world = World::start(scene)?;
    let way = Way::direct(&world)?;
    let mut session = peer.authenticate(scene, &way, By::Ticket)?;
    let mut end = 0;
    for next in [None, Some(way.server()), Some(way.device())] {
        if let Some(address) = next {
            session.process.write(format!("again {address}\n").as_bytes())?;
            end = session.process.await_output(RESUMED, end)?;
        }
        end = session.process.await_output(ESTABLISHED, end)? + ESTABLISHED.len();
        if next.is_none() {
            world.reset()?;
        }
    }
    session.get_v()?;
    way.resumed(By::Ticket)?;
    world.was_asked()
}

/// Checks that the device resumes its session at the peer, and answers a request of the peer in it.
fn server(scene: &Scene, peer: &Peer, by: By) -> Check {
    let world = World::start(scene)?;
    let words = [&["x509", ECDSA_CCM_8.name], &THEIR_SERVER[..], &["resume", by.word(), "localhost"]].concat();
    let (mut session, address) = peer.serve(scene, &words)?;
    let relay = Capture::start(address)?;
    world.connect((LOOPBACK, relay.port).into())?;
    session.process.await_output(RESUMED, 0)?;
    world.has_resumed()?;
    session.get_v()?;
    resumption::resumed(&relay, by)
}

fn client_lacks(scene: &Scene, peer: &Peer, by: By) -> Check {
    let world = World::start(scene)?;
    let way = Way::direct(&world)?;
    let _session = peer.authenticate(scene, &way, by)?;
    way.await_hello(scene, Hello::Server)?;
    way.lacks(Hello::Client, SESSION_TICKET)
}

fn misreads_name(scene: &Scene, peer: &Peer, by: By) -> Check {
    let world = World::start(scene)?;
    let way = Way::direct(&world)?;
    let _session = peer.authenticate(scene, &way, by)?;
    way.is_not_read(scene)
}
