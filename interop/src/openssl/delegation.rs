//! OpenSSL with sessions that were delegated to a device, and with sessions that the device refuses.

use super::public_keys::{self, THEIRS};
use super::resumption::{REUSED, words};
use super::{Client, PEER, PROGRAM};
use crate::capture::Capture;
use crate::cell::{Cell, Check, LOOPBACK, Role, Scene, holds};
use crate::delegation::{Device, LAMP, Way, World, row};
use crate::hello::{self, Hello};
use crate::peers::{self, Built, Places};
use crate::public_keys::ECDSA_CCM_8;
use crate::resumption::{self, By};
use crate::session::{GET_V, Plaintext as _};
use std::net::SocketAddr;
use std::sync::Arc;

pub(super) fn cells(version: &str) -> Vec<Cell> {
    let cell = |role, scenario: &str, play: fn(&Scene) -> Check| Cell::new(PEER, version, role, scenario, play);
    vec![
        cell(Role::Client, row(By::Ticket), |scene| resumes(scene, By::Ticket)),
        cell(Role::Client, row(By::Id), |scene| resumes(scene, By::Id)),
        cell(Role::Server, row(By::Ticket), |scene| is_resumed(scene, By::Ticket)),
        cell(Role::Server, row(By::Id), |scene| is_resumed(scene, By::Id)),
        cell(Role::Client, "delegation, ticket of another device", of_another_device),
        cell(Role::Client, "delegation, ticket of a revoked connection", revoked),
        cell(Role::Client, "delegation, ticket of the epoch before", reset),
        cell(Role::Client, "delegation, copied ticket without its secret", copied),
    ]
}

/// Returns the [`Cell`] (a row of the result table) for the scenario with an expired ticket, and the shared library
/// that changes the clock of the device.
pub(crate) fn expired_cell(version: &str, places: &Places) -> (Cell, Arc<Built>) {
    let library = places.c_program(
        "later",
        peers::source("later.c"),
        ("/usr/include/time.h", "libc6-dev"),
        &["-shared", "-fPIC"],
    );
    let built = library.clone();
    let cell = Cell::new(PEER, version, Role::Client, "delegation, expired ticket", move |scene| {
        library.ready()?;
        expired(&scene.with_new_deadline(), &library)
    });
    (cell, built)
}

/// Starts `s_client`, which requests the device by its name. The options `more` select the session in `session.pem`.
fn start(scene: &Scene, at: SocketAddr, more: &[&str]) -> Result<Client, String> {
    let names = ["-servername", LAMP, "-verify_hostname", LAMP];
    public_keys::client(scene, at.port(), ECDSA_CCM_8, &[&THEIRS[..], &names, more].concat())
}

/// Opens a session with the delegation server, which presents the certificate of the device. Stores the session in
/// `session.pem`.
fn authenticate(scene: &Scene, at: SocketAddr, more: &[&str]) -> Check {
    let mut client = start(scene, at, &[&["-sess_out", "session.pem"], more].concat())?;
    let session = client.established()?;
    holds(&session, &["New, ", "Cipher is ECDHE-ECDSA-AES128-CCM8", "Extended master secret: yes"])?;
    client.close();
    Ok(client.process.await_end().map(drop)?)
}

/// Checks that `s_client` resumes the session and reads the value of the device in it.
fn gets(scene: &Scene, at: SocketAddr, more: &[&str]) -> Check {
    let mut client = start(scene, at, &[&["-sess_in", "session.pem"], more].concat())?;
    holds(&client.established()?, &["Reused, ", "Extended master secret: yes"])?;
    client.get_v()?;
    client.close();
    Ok(())
}

/// Checks that the device refuses to resume the session with the alert handshake_failure, opens no other session, and
/// logs `reason`.
fn is_refused(scene: &Scene, device: &Device, reason: &str) -> Check {
    let mut client = start(scene, device.address, &["-sess_in", "session.pem"])?;
    client.process.write(GET_V)?;
    client.process.await_error("alert handshake failure", 0)?;
    client.process.await_end()?;
    let printed = client.process.out.text();
    if printed.contains("Reused, ") || printed.contains("hello") {
        return Err("the device resumed the session".into());
    }
    Ok(device.refuses(reason)?)
}

fn resumes(scene: &Scene, by: By) -> Check {
    let world = World::start(scene)?;
    let way = Way::direct(&world)?;
    authenticate(scene, way.server(), words(by))?;
    if by == By::Id {
        world.await_hand_over()?;
    }
    gets(scene, way.device(), words(by))?;
    way.resumed(by)?;
    world.was_asked()
}

/// Checks that the device resumes its session at `s_server`, and answers a request of `s_server` in it.
fn is_resumed(scene: &Scene, by: By) -> Check {
    let world = World::start(scene)?;
    let mut server = public_keys::server(scene, ECDSA_CCM_8, words(by))?;
    let relay = Capture::start(server.address)?;
    world.connect((server.address.ip(), relay.port).into())?;
    let reused = server.process.await_output(REUSED, 0)?;
    server.process.write(GET_V)?;
    server.process.await_output(b"\xffhello", reused)?;
    resumption::resumed(&relay, by)?;
    world.has_resumed()
}

fn of_another_device(scene: &Scene) -> Check {
    let world = World::start(scene)?;
    let door = world.door()?;
    authenticate(scene, world.server_address, &[])?;
    is_refused(scene, &door, "it is not authentic, or of another device")?;
    gets(scene, world.lamp.address, &[])?;
    world.holds_no_keys(&door)?;
    world.was_asked()
}

fn revoked(scene: &Scene) -> Check {
    let world = World::start(scene)?;
    authenticate(scene, world.server_address, &[])?;
    gets(scene, world.lamp.address, &[])?;
    world.revoke()?;
    is_refused(scene, &world.lamp, "the delegation server revoked the connection")?;
    world.was_asked()
}

/// Checks that the device refuses a session of an earlier epoch. `s_client` keeps no ticket of a resumed session, so it
/// authenticates itself to the server again.
fn reset(scene: &Scene) -> Check {
    let world = World::start(scene)?;
    authenticate(scene, world.server_address, &[])?;
    gets(scene, world.lamp.address, &[])?;
    world.reset()?;
    is_refused(scene, &world.lamp, "it is of another epoch")?;
    authenticate(scene, world.server_address, &[])?;
    gets(scene, world.lamp.address, &[])?;
    world.was_asked()
}

/// Checks an expired session. The device is started with a clock that is two days ahead, and then with the right clock.
fn expired(scene: &Scene, later: &Built) -> Check {
    let mut world = World::start(scene)?;
    authenticate(scene, world.server_address, &[])?;
    world.restart(Some(&later.command()?))?;
    is_refused(scene, &world.lamp, "the delegation has ended")?;
    world.restart(None)?;
    gets(scene, world.lamp.address, &[])?;
    world.was_asked()
}

/// Checks a copied ticket. An attacker can copy a ticket, because it is sent unencrypted. The device accepts the copy,
/// but the attacker can open no record.
fn copied(scene: &Scene) -> Check {
    let world = World::start(scene)?;
    authenticate(scene, world.server_address, &[])?;
    with_another_secret(scene)?;
    let relay = Capture::start(world.lamp.address)?;
    let mut client = start(scene, (LOOPBACK, relay.port).into(), &["-sess_in", "copied.pem"])?;
    client.process.write(GET_V)?;
    // The device waits for a Finished that never comes, and repeats its own.
    relay.await_count(scene.deadline, 2, |datagram| hello::read(&datagram.bytes, Hello::Server).is_some())?;
    let printed = client.process.out.text();
    if printed.contains("Reused, ") || printed.contains("hello") || world.lamp.process.out.text().contains("(resumed)")
    {
        return Err("the copy opened a session".into());
    }
    gets(scene, world.lamp.address, &[])?;
    world.was_asked()
}

/// Writes `copied.pem`, which contains the session of `session.pem` with another master secret.
fn with_another_secret(scene: &Scene) -> Check {
    let convert = |words: &[&str]| match scene.start(PROGRAM, &[&["sess_id"], words].concat())?.await_end()?.success() {
        true => Ok(()),
        false => Err("openssl converts no session".to_owned()),
    };
    convert(&["-in", "session.pem", "-outform", "DER", "-out", "session.der"])?;
    let mut session = std::fs::read(scene.directory().join("session.der")).map_err(|error| error.to_string())?;
    // The first OCTET STRING of 48 bytes.
    let head = session.windows(2).position(|head| head == [4, 48]).ok_or("the session has no master secret")?;
    session.iter_mut().skip(head + 2).take(48).for_each(|byte| *byte = 0x5a);
    scene.file("session.der", session)?;
    Ok(convert(&["-inform", "DER", "-in", "session.der", "-out", "copied.pem"])?)
}
