//! Sessions that a server opens or resumes in the name of devices (see the crate `tegmen-delegation`).
//!
//! A delegation server answers for many devices, and a client chooses one by server_name (RFC 6066, section 3). The server shows
//! the certificate of that device, and gives the client a ticket that the device opens. A device on a host has no certificate:
//! it only opens tickets, and finds sessions that the delegation server handed over.

use crate::public_keys::PublicKeys;
use std::sync::Arc;
use std::time::SystemTime;
use tegmen::buf::Writer;
use tegmen::dtls::SessionState;

/// The devices in whose name a server opens or resumes sessions.
///
/// The threads of the server call it during handshakes, so that each method must return without waiting for input or output. A
/// device has a number other than 0. Sessions of different devices are kept apart: a ticket or an id of one device is never
/// looked for in the name of another.
pub trait Delegate: Send + Sync {
    /// Returns the number of the device with this server_name, in lowercase, which is empty if the ClientHello has none; `None` if
    /// no device has the name. Then the server answers in its own name. The server calls it up to three times in one handshake.
    fn device(&self, server_name: &[u8]) -> Option<u32>;

    /// Returns the credentials of a device and its cipher suites, of which only those count that the server offers, too. Without
    /// credentials a client can only resume a session, or open one with a pre-shared key. The server verifies clients by its own
    /// keys and not by these. Each shard of the server asks again for the credentials after a second.
    fn credentials(&self, device: u32) -> Option<Arc<PublicKeys>>;

    /// Writes the ticket of a session into `ticket`, of up to 512 bytes. Returns for how many seconds the device takes
    /// the ticket, or `None` if the client gets no ticket. `peer` is what the client proved, `None` if it proved nothing.
    ///
    /// If [`Self::open`] asked for renewal, `since` of the session is not `None`, and its principal is the principal that
    /// `open` returned.
    fn seal(
        &self,
        device: u32,
        peer: Option<Proved<'_>>,
        session: &SessionState,
        ticket: &mut Writer<'_>,
    ) -> Option<u32>;

    /// Returns the session of a ticket; `None` if the client is not allowed to resume it. The server calls it up to twice in one
    /// handshake, for the ClientHello without a cookie and for the ClientHello with it. It resumes a session of any cipher suite that
    /// it supports, also one that it does not offer.
    fn open(&self, device: u32, ticket: &[u8]) -> Option<Delegated>;

    /// Returns the session with this id; `None` if the client is not allowed to resume it.
    fn find(&self, device: u32, id: &[u8]) -> Option<Delegated>;

    /// Keeps a session under an id of 32 bytes for a client without support for tickets, after its handshake. `peer` is
    /// what the client proved, `None` if it proved nothing.
    fn remember(&self, device: u32, peer: Option<Proved<'_>>, id: &[u8], session: &SessionState);
}

/// The name that a client proved, and the end of the proof.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Proved<'p> {
    /// The name.
    pub name: &'p str,
    /// The last moment at which its certificate is valid; `None` if it proved the name without a certificate.
    pub until: Option<SystemTime>,
}

/// A name whose proof has no end.
impl<'p> From<&'p str> for Proved<'p> {
    fn from(name: &'p str) -> Self {
        Self { name, until: None }
    }
}

/// A session that a client can resume.
#[derive(Debug)]
pub struct Delegated {
    /// The session. The principal is a number of the [`Delegate`], of which the server only knows that equal numbers of one
    /// device and one name are the same peer. A policy finds device and number of the sender of a request with
    /// [`Credentials::delegated`](crate::credentials::Credentials::delegated).
    pub session: SessionState,
    /// The identity of the peer in requests to the server.
    pub peer: String,
    /// True if the client gets a new ticket. It means nothing for a session that was found by its id.
    pub renew: bool,
}
