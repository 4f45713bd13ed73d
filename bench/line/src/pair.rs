//! The client and the server of one session in one thread. Datagrams pass through memory, without a network.
//!
//! The caller makes a client and a server, and calls `handshake(None)` at the client. It then passes each datagram to
//! `handshake` at the receiving end until both ends are established. After that, `seal` at one end makes a record, and
//! `open` at the other end opens it.

use crate::{Agreed, DATAGRAM_MAX, Failure, PublicKeys, heap};

/// A DTLS stack with its credentials and settings. It makes clients and servers.
pub trait Stack {
    /// The type of a client, which opens a session.
    type Client: End;
    /// The type of a server, which accepts a session.
    type Server: End;

    /// Returns the name and the version of the stack, which the report shows in its header.
    fn version(&self) -> String;
    /// Returns all cipher suites of the stack by their IANA names. The list is empty if the stack cannot list them.
    fn suites(&self) -> Vec<String> {
        Vec::new()
    }
    /// Lets every end that is made from now on request a connection id of `len` bytes (RFC 9146).
    fn use_connection_id(&mut self, len: usize) -> Result<(), Failure> {
        let _ = len;
        Err(Failure::new("it has no connection ids"))
    }
    /// Lets every end that is made from now on authenticate itself with a public key, and require one from its peer.
    fn use_public_keys(&mut self, keys: &PublicKeys) -> Result<(), Failure> {
        let _ = keys;
        Err(Failure::new("it has no public keys"))
    }
    /// Does the same as [`Self::use_public_keys`]. An end also remembers a certificate chain that it has verified, and
    /// does not verify the same chain again.
    fn remember_chains(&mut self, keys: &PublicKeys) -> Result<(), Failure> {
        let _ = keys;
        Err(Failure::new("it remembers no chains"))
    }
    /// Lets every end that is made from now on use the cipher suite with this IANA name, and the pre-shared key
    /// [`key`](crate::key).
    fn use_suite(&mut self, suite: &str) -> Result<(), Failure> {
        Err(Failure::new(format!("it has no choice of {suite}")))
    }
    /// Lets every session from now on be resumable, either with a ticket or by its session id.
    fn use_resumption(&mut self, by: Resumption) -> Result<(), Failure> {
        let _ = by;
        Err(Failure::new("it resumes no sessions"))
    }
    /// Lets every client that is made from now on request a server with this name (RFC 6066, section 3). The client
    /// accepts the server only if its certificate contains the name.
    fn use_server_name(&mut self, name: &str) -> Result<(), Failure> {
        Err(Failure::new(format!("it cannot ask for {name}")))
    }
    /// Returns a new client that will resume the session of the client `end`. It has sent nothing yet.
    fn again(&mut self, end: &Self::Client) -> Result<Self::Client, Failure> {
        let _ = end;
        Err(Failure::new("it resumes no sessions"))
    }
    /// Returns a new client that has sent nothing yet.
    fn client(&mut self) -> Result<Self::Client, Failure>;
    /// Returns a new server that has received nothing yet. It will require a cookie from the client.
    fn server(&mut self) -> Result<Self::Server, Failure>;
}

/// Means by which sessions are resumed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resumption {
    /// A ticket (RFC 5077).
    Ticket,
    /// The id of the session (RFC 5246, section 7.3).
    Id,
}

/// One end of a session: its client or its server.
pub trait End {
    /// Processes the next datagram of the handshake. The first call at a client has no datagram. Adds to `out` the
    /// datagrams that this end sends.
    fn handshake(&mut self, datagram: Option<&[u8]>, out: &mut Outbox) -> Result<(), Failure>;
    /// Adds to `out` the datagrams that must be retransmitted. The caller calls this function after a second without an
    /// answer, and never if the datagrams pass through memory.
    fn retransmit(&mut self, out: &mut Outbox) -> Result<(), Failure> {
        let _ = out;
        Ok(())
    }
    /// Returns true if this end can send and receive application data.
    fn is_established(&self) -> bool;
    /// Returns true if the established session has resumed an earlier session.
    fn is_resumed(&self) -> bool {
        false
    }
    /// Returns the cipher suite and the peer of an established session. Returns `None` if neither public keys are used
    /// nor a cipher suite was set.
    fn agreed(&self) -> Option<Agreed> {
        None
    }
    /// Adds to `out` one record that contains `payload`.
    fn seal(&mut self, payload: &[u8], out: &mut Outbox) -> Result<(), Failure>;
    /// Opens the record in `datagram`. Writes its content to the beginning of `payload`, and returns the length of the
    /// content.
    fn open(&mut self, datagram: &[u8], payload: &mut [u8]) -> Result<usize, Failure>;
}

/// A list of datagrams that wait for delivery, the oldest first.
pub struct Outbox {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Outbox {
    /// Creates an empty list. It has capacity for a whole handshake, so that it allocates no memory during a
    /// measurement.
    pub fn new() -> Self {
        Self { bytes: Vec::with_capacity(16 * DATAGRAM_MAX), ends: Vec::with_capacity(64) }
    }

    /// Adds one datagram.
    pub fn push(&mut self, datagram: &[u8]) {
        self.bytes.extend_from_slice(datagram);
        self.ends.push(self.bytes.len());
    }

    /// Returns the datagrams, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end])
    }

    /// Returns true if no datagram waits.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Removes all datagrams, and keeps the allocated memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

impl Default for Outbox {
    fn default() -> Self {
        Self::new()
    }
}

/// Counts the heap memory, the bytes and the datagrams of handshakes. The heap is counted only if `count_heap` is true,
/// because this takes time and would change a measurement of time.
#[derive(Default)]
pub struct Tally {
    pub(crate) count_heap: bool,
    pub(crate) client_heap: i64,
    pub(crate) server_heap: i64,
    pub(crate) bytes: usize,
    pub(crate) datagrams: usize,
}

impl Tally {
    fn at_client<T>(&mut self, step: impl FnOnce() -> T) -> T {
        heap::growth(self.count_heap, &mut self.client_heap, step)
    }

    fn at_server<T>(&mut self, step: impl FnOnce() -> T) -> T {
        heap::growth(self.count_heap, &mut self.server_heap, step)
    }

    fn sent(&mut self, datagram: &[u8]) {
        self.bytes += datagram.len();
        self.datagrams += 1;
    }
}

/// Both ends of an established session.
pub struct Pair<S: Stack> {
    /// The end that opened the session.
    pub client: S::Client,
    /// The end that accepted the session.
    pub server: S::Server,
}

/// The datagrams that wait for delivery: first those to the server, then those to the client. All sessions use the same
/// value, one after the other, so that its memory is allocated only once.
#[derive(Default)]
pub struct Wire {
    up: Outbox,
    down: Outbox,
}

impl<S: Stack> Pair<S> {
    /// Performs a full handshake between a new client and a new server, until both are established.
    pub fn establish(stack: &mut S, wire: &mut Wire, tally: &mut Tally) -> Result<Self, Failure> {
        let client = tally.at_client(|| stack.client())?;
        let server = tally.at_server(|| stack.server())?;
        Self::meet(client, server, wire, tally)
    }

    /// Resumes this session with a new client and a new server.
    pub fn resume(self, stack: &mut S, wire: &mut Wire, tally: &mut Tally) -> Result<Self, Failure> {
        let client = tally.at_client(|| stack.again(&self.client))?;
        let server = tally.at_server(|| stack.server())?;
        let resumed = Self::meet(client, server, wire, tally)?;
        match resumed.client.is_resumed() && resumed.server.is_resumed() {
            true => Ok(resumed),
            false => Err(Failure::new("the session was not resumed")),
        }
    }

    fn meet(mut client: S::Client, mut server: S::Server, wire: &mut Wire, tally: &mut Tally) -> Result<Self, Failure> {
        wire.up.clear();
        tally.at_client(|| client.handshake(None, &mut wire.up))?;
        for _ in 0..ROUNDS_MAX {
            wire.down.clear();
            for datagram in wire.up.iter() {
                tally.sent(datagram);
                tally.at_server(|| server.handshake(Some(datagram), &mut wire.down))?;
            }
            wire.up.clear();
            for datagram in wire.down.iter() {
                tally.sent(datagram);
                tally.at_client(|| client.handshake(Some(datagram), &mut wire.up))?;
            }
            if client.is_established() && server.is_established() && wire.up.is_empty() {
                return Ok(Self { client, server });
            }
        }
        Err(Failure::new("the handshake stalled"))
    }

    /// Sends one record from the client to the server. Returns the length of the content that the server opened.
    pub fn transfer(
        &mut self,
        wire: &mut Wire,
        tally: &mut Tally,
        payload: &[u8],
        opened: &mut [u8],
    ) -> Result<usize, Failure> {
        wire.up.clear();
        tally.at_client(|| self.client.seal(payload, &mut wire.up))?;
        let datagram = wire.up.iter().next().ok_or_else(|| Failure::new("nothing was sealed"))?;
        tally.at_server(|| self.server.open(datagram, opened))
    }
}

/// Maximum number of round trips in a handshake. No stack needs this many round trips. A handshake that makes no
/// progress ends after this number.
const ROUNDS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outbox_gives_back_each_datagram_in_order() {
        let mut outbox = Outbox::new();
        outbox.push(b"one");
        outbox.push(b"");
        outbox.push(b"three");
        assert_eq!(outbox.iter().collect::<Vec<_>>(), [&b"one"[..], b"", b"three"]);
        outbox.clear();
        assert!(outbox.is_empty() && outbox.iter().next().is_none());
    }
}
