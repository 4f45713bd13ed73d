//! Resumption of sessions with OpenSSL.

use super::{Client, PEER, Server, public_keys};
use crate::cell::{Cell, Check, Role, Scene, holds};
use crate::ours::{Psk, Served};
use crate::public_keys::{AS_DEVICE, AS_SERVER, ECDSA_CCM_8, certificates};
use crate::resumption::{self, By};
use crate::session::Plaintext as _;

/// The text that `s_server` prints for a resumed session.
pub(super) const REUSED: &str = "Reused session-id";

pub(super) fn cells(version: &str) -> Vec<Cell> {
    let mut cells = Vec::new();
    for by in By::ALL {
        let mut add = |role, exchange, play: fn(&Scene, By) -> Check| {
            cells.push(Cell::new(PEER, version, role, &by.row_of(exchange), move |scene| play(scene, by)));
        };
        add(Role::Server, "PSK", server_psk);
        add(Role::Server, "mutual ECDSA", server_mutual);
        add(Role::Client, "PSK", client_psk);
        add(Role::Client, "mutual ECDSA", client_mutual);
    }
    cells
}

/// Returns the options of OpenSSL for resumption by `by`. `s_server` and `s_client` use tickets by default. Both have
/// the same option that disables tickets.
pub(super) fn words(by: By) -> &'static [&'static str] {
    if by == By::Id { &["-no_ticket"] } else { &[] }
}

fn server_psk(scene: &Scene, by: By) -> Check {
    let psk = Psk::usual();
    let server = Server::start(scene, &psk, words(by))?;
    resumes(scene, by, server, (&[], Some(&psk)))
}

fn server_mutual(scene: &Scene, by: By) -> Check {
    certificates(scene, false)?;
    let server = public_keys::server(scene, ECDSA_CCM_8, words(by))?;
    resumes(scene, by, server, (&[&["--suites", ECDSA_CCM_8.ours], &AS_DEVICE[..]].concat(), None))
}

fn resumes(scene: &Scene, by: By, mut server: Server, proof: (&[&str], Option<&Psk>)) -> Check {
    resumption::server(scene, by, server.address, proof, |number| {
        let request = server.request(3, "question", b"a blink", 4)?;
        server.answer(&request, 0x44, b"an answer")?;
        match (number, server.process.out.text().contains(REUSED)) {
            (0, false) | (1, true) => Ok(()),
            (_, reused) => Err(format!("s_server in session {number}: reused is {reused}")),
        }
    })
}

fn client_psk(scene: &Scene, by: By) -> Check {
    let served = Served::start(scene, &Psk::usual())?;
    comes_back(&served, by, |port, more| Client::start(scene, "127.0.0.1", port, &Psk::usual(), more))
}

fn client_mutual(scene: &Scene, by: By) -> Check {
    certificates(scene, false)?;
    let suite = ["--suites", ECDSA_CCM_8.ours];
    let served = Served::start_with(scene, &Psk::usual(), &[&AS_SERVER[..], &suite].concat())?;
    let theirs = public_keys::THEIRS;
    comes_back(&served, by, |port, more| public_keys::client(scene, port, ECDSA_CCM_8, &[&theirs[..], more].concat()))?;
    Ok(served.process.await_output("(CN=device1) GET /v: 2.05", 0).map(drop)?)
}

/// Runs a process for each session. The first process stores its session in a file, which the second process reads.
fn comes_back(served: &Served, by: By, start: impl Fn(u16, &[&str]) -> Result<Client, String>) -> Check {
    resumption::client(served, by, |number, address| {
        let file = if number == 0 { "-sess_out" } else { "-sess_in" };
        let mut client = start(address.port(), &[words(by), &[file, "session.pem"]].concat())?;
        let session = client.established()?;
        let word = if number == 0 { "New, " } else { "Reused, " };
        holds(&session, &[word, "Extended master secret: yes"]).map_err(|trouble| format!("s_client: {trouble:?}"))?;
        client.get_v()?;
        // The client sends close_notify here, and not only when the scenario ends the client.
        client.close();
        Ok(())
    })
}
