//! Deterministic requests of Group OSCORE through Tegmen's proxy, which is not a member of the group. Different clients
//! share a response.

use super::Proxied;
use crate::cell::{Cell, Check, LOOPBACK, Role, Scene, free_port};
use crate::objects::group::{self, OURS, Protection, THEIRS, THIRD, USUAL, start_as};
use crate::peers::{Built, Places};
use std::net::SocketAddr;
use std::sync::Arc;
use tegmen::coap::{Code, MessageRef, OptionNumber};

/// Returns one [`Cell`] (a row of the result table) for each scenario with deterministic requests, and the program that
/// must be built for these scenarios.
pub(super) fn all(places: &Places) -> (Vec<Cell>, Arc<Built>) {
    let aiocoap = group::aiocoap(places);
    let cells = USUAL.map(|protection| {
        let (curve, ..) = protection;
        let program = Arc::clone(&aiocoap);
        let row = format!("proxy: deterministic GET of two clients is one request, {curve:?}");
        Cell::new("aiocoap", "0.4.17", Role::Client, &row, move |scene| {
            program.ready()?;
            share(&scene.with_new_deadline(), &program, protection)
        })
    });
    (cells.into(), aiocoap)
}

/// Checks that two members, which are processes of aiocoap, receive the same response of a third member. The second
/// process receives the response from the cache of Tegmen's proxy.
fn share(scene: &Scene, peer: &Built, protection: Protection) -> Check {
    let address = SocketAddr::new(LOOPBACK, free_port()?);
    let words = [&address.ip().to_string(), &address.port().to_string(), "pairwise"];
    let server = start_as((OURS, THEIRS), scene, peer, protection, "server", &words)?;
    server.await_output("listening", 0)?;
    let proxied = Proxied::before(scene, address)?;
    let (uri, proxy) = (proxied.uri("v"), proxied.plain());
    for client in [THEIRS, THIRD] {
        let mut asking = start_as((client, OURS), scene, peer, protection, "deterministic-client", &[&uri, &proxy])?;
        asking.await_output("2.05 hello", 0)?;
        asking.await_end()?;
    }
    proxied.came(1)?;
    let is_protected = |datagram: &crate::capture::Datagram| {
        let message = MessageRef::parse(&datagram.bytes);
        message.is_ok_and(|message| message.code() == Code::EMPTY || message.option(OptionNumber::OSCORE).is_some())
    };
    match proxied.origin.datagrams().iter().all(is_protected) {
        true => Ok(()),
        false => Err("something went to the origin in clear".into()),
    }
}
