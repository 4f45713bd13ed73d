//! The interface between a server and the devices in whose name it opens or resumes sessions (see the crate
//! `tegmen-delegation`).
//!
//! A delegation server answers for many devices, and a client selects one device by server_name (RFC 6066, section 3).
//! The server shows the certificate of that device, and gives the client a ticket that the device can open. A device on
//! a host has no certificate. It only opens tickets, and finds sessions that the delegation server handed over.

use crate::public_keys::PublicKeys;
use std::sync::Arc;
use std::time::SystemTime;
use tegmen::buf::Writer;
use tegmen::dtls::SessionState;

/// The devices in whose name a server opens or resumes sessions.
///
/// The threads of the server call these methods during handshakes, so each method must return without waiting for input
/// or output. The number of a device is not 0. The server searches for a ticket or session id only under the number of
/// the device that the client selected.
pub trait Delegate: Send + Sync {
    /// Returns the number of the device with this server_name; `None` if no device has this name. The name is in lower
    /// case, and empty if the ClientHello has none. With `None` the server answers in its own name. The server calls
    /// this method up to three times in one handshake.
    fn device(&self, server_name: &[u8]) -> Option<u32>;

    /// Returns the credentials of a device and its cipher suites. The server ignores suites that it does not offer
    /// itself. Without credentials a client can only resume a session, or open a session with a pre-shared key. The
    /// server verifies clients with its own trust settings, and not with these credentials. Each shard stores the
    /// returned value for one second, and then asks again.
    fn credentials(&self, device: u32) -> Option<Arc<PublicKeys>>;

    /// Writes the ticket of a session into `ticket`. The ticket may have at most 512 bytes. Returns the time in seconds
    /// for which the device accepts the ticket, or `None` if the client gets no ticket. `peer` is the name that the
    /// client proved; `None` if it proved no name.
    ///
    /// The server also calls this method to renew a ticket, if [`Self::open`] asked for it. The field `since` of
    /// `session`, the time at which the client proved its key, is then not `None`. The principal of `session` is then
    /// the principal that `open` returned.
    fn seal(
        &self,
        device: u32,
        peer: Option<Proved<'_>>,
        session: &SessionState,
        ticket: &mut Writer<'_>,
    ) -> Option<u32>;

    /// Returns the session of a ticket; `None` if the client is not allowed to resume it. The server calls this method
    /// up to twice in one handshake: for the ClientHello without a cookie, and for the ClientHello with the cookie. The
    /// server can resume a session with any cipher suite that it supports, even if it does not offer that suite.
    fn open(&self, device: u32, ticket: &[u8]) -> Option<Delegated>;

    /// Returns the session with this session id; `None` if the client is not allowed to resume it.
    fn find(&self, device: u32, id: &[u8]) -> Option<Delegated>;

    /// Stores a session under a session id of 32 bytes. The server calls this method after the handshake of a client
    /// that does not support tickets.
    /// `peer` is the name that the client proved; `None` if it proved no name.
    fn remember(&self, device: u32, peer: Option<Proved<'_>>, id: &[u8], session: &SessionState);
}

/// The name that a client proved, and the time at which the proof ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Proved<'p> {
    /// The name.
    pub name: &'p str,
    /// The last moment at which the certificate of the client is valid; `None` if the client proved the name without a
    /// certificate.
    pub until: Option<SystemTime>,
}

/// Makes a proved name without an expiry time of the proof.
impl<'p> From<&'p str> for Proved<'p> {
    fn from(name: &'p str) -> Self {
        Self { name, until: None }
    }
}

/// A session that a client can resume.
#[derive(Debug)]
pub struct Delegated {
    /// The session. Its principal is a number that the [`Delegate`] chooses. The server treats two sessions as sessions
    /// of the same peer if the device, the number and the name of the peer are equal. A policy finds the device and the
    /// number for the sender of a request with [`Credentials::delegated`](crate::credentials::Credentials::delegated).
    pub session: SessionState,
    /// The identity of the peer in requests to the server.
    pub peer: String,
    /// True if the client gets a new ticket. The field has no meaning for a session that was found by its session id.
    pub renew: bool,
}
