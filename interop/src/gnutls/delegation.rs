//! GnuTLS with a session that was delegated to a device.

use super::{CLIENT, PEER, Session, public_keys};
use crate::cell::{Cell, Check, Role, Scene, holds};
use crate::delegation::{LAMP, Way, World, row};
use crate::resumption::By;
use crate::session::Plaintext as _;

pub(super) fn cell(version: &str) -> Cell {
    Cell::new(PEER, version, Role::Client, row(By::Ticket), client)
}

/// Checks that `gnutls-cli --resume` opens a session with the delegation server, closes it, and resumes it with the
/// device at the same address.
fn client(scene: &Scene) -> Check {
    let world = World::start(scene)?;
    let way = Way::steered(&world)?;
    let port = way.server().port().to_string();
    let words = ["--udp", "-d", "5", "--resume", "-p", &port, "--priority", public_keys::CCM_8];
    let names = ["--sni-hostname", LAMP, "--verify-hostname", LAMP, "127.0.0.1"];
    let process = scene.start(CLIENT, &[&words[..], &public_keys::THEIR_DEVICE, &names].concat())?;
    let mut session = Session::open(process)?;
    holds(&session.process.out.text(), &["*** This is a resumed session", public_keys::ECDSA_CCM_8])?;
    session.get_v()?;
    way.resumed(By::Ticket)?;
    world.was_asked()
}
