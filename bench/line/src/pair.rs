//! Both ends of one session in one thread, with memory in place of a network.
//!
//! client() and server() -> handshake(None) at the client -> handshake(datagram) at each end in turn until both are
//! established -> seal at one end, open at the other.

use crate::{Agreed, DATAGRAM_MAX, Failure, PublicKeys, heap};

/// A DTLS stack with its credentials and settings, from which ends are made.
pub trait Stack {
    /// One end that opens sessions.
    type Client: End;
    /// One end that accepts them.
    type Server: End;

    /// Name and version, for the header of a report.
    fn version(&self) -> String;
    /// All cipher suites of the stack, by their names in the registry; empty if the stack cannot list them.
    fn suites(&self) -> Vec<String> {
        Vec::new()
    }
    /// Every end made from now on asks for a connection id of `len` bytes (RFC 9146).
    fn use_connection_id(&mut self, len: usize) -> Result<(), Failure> {
        let _ = len;
        Err(Failure::new("it has no connection ids"))
    }
    /// Every end made from now on shows a public key, and wants to see one of the other end.
    fn use_public_keys(&mut self, keys: &PublicKeys) -> Result<(), Failure> {
        let _ = keys;
        Err(Failure::new("it has no public keys"))
    }
    /// As [`Self::use_public_keys`], and a chain that was verified is not verified again.
    fn remember_chains(&mut self, keys: &PublicKeys) -> Result<(), Failure> {
        let _ = keys;
        Err(Failure::new("it remembers no chains"))
    }
    /// Every end made from now on has this suite, by its name in the registry, with the key that is shared.
    fn use_suite(&mut self, suite: &str) -> Result<(), Failure> {
        Err(Failure::new(format!("it has no choice of {suite}")))
    }
    /// Every session from now on can be resumed, with a ticket or by its id.
    fn use_resumption(&mut self, by: Resumption) -> Result<(), Failure> {
        let _ = by;
        Err(Failure::new("it resumes no sessions"))
    }
    /// Every client made from now on asks for a server of this name (RFC 6066, section 3), and wants to see it in the certificate.
    fn use_server_name(&mut self, name: &str) -> Result<(), Failure> {
        Err(Failure::new(format!("it cannot ask for {name}")))
    }
    /// A client that has not spoken yet, and will resume the session of `end`.
    fn again(&mut self, end: &Self::Client) -> Result<Self::Client, Failure> {
        let _ = end;
        Err(Failure::new("it resumes no sessions"))
    }
    /// A client that has not spoken yet.
    fn client(&mut self) -> Result<Self::Client, Failure>;
    /// A server that has heard nothing yet and will ask for a cookie.
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

/// One end of a session.
pub trait End {
    /// Takes the next datagram of the handshake, or none at the client's first step. Puts the datagrams to send into
    /// `out`.
    fn handshake(&mut self, datagram: Option<&[u8]>, out: &mut Outbox) -> Result<(), Failure>;
    /// Puts the datagrams to retransmit into `out`, after a second without an answer. Never called over memory.
    fn retransmit(&mut self, out: &mut Outbox) -> Result<(), Failure> {
        let _ = out;
        Ok(())
    }
    /// True once this end can send and receive application data.
    fn is_established(&self) -> bool;
    /// True if the established session resumed an earlier one.
    fn is_resumed(&self) -> bool {
        false
    }
    /// Suite and peer of an established session, if public keys are used or a suite is named.
    fn agreed(&self) -> Option<Agreed> {
        None
    }
    /// Puts one record that carries `payload` into `out`.
    fn seal(&mut self, payload: &[u8], out: &mut Outbox) -> Result<(), Failure>;
    /// Opens the record in `datagram`, writes what it carries to the front of `payload` and returns its length.
    fn open(&mut self, datagram: &[u8], payload: &mut [u8]) -> Result<usize, Failure>;
}

/// Datagrams that wait for delivery, in order.
pub struct Outbox {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Outbox {
    /// Creates an empty outbox, with capacity for a whole handshake so that it never allocates during a measurement.
    pub fn new() -> Self {
        Self { bytes: Vec::with_capacity(16 * DATAGRAM_MAX), ends: Vec::with_capacity(64) }
    }

    /// Adds one datagram.
    pub fn push(&mut self, datagram: &[u8]) {
        self.bytes.extend_from_slice(datagram);
        self.ends.push(self.bytes.len());
    }

    /// The datagrams, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end])
    }

    /// True if no datagram waits.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Removes all datagrams and keeps the capacity.
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

/// Counts of memory, bytes and datagrams. Counting memory is slow, so a timed run leaves it off.
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

/// An established session, both ends of it.
pub struct Pair<S: Stack> {
    /// The end that opened it.
    pub client: S::Client,
    /// The end that accepted it.
    pub server: S::Server,
}

/// The two directions of the wire, kept from one session to the next.
#[derive(Default)]
pub struct Wire {
    up: Outbox,
    down: Outbox,
}

impl<S: Stack> Pair<S> {
    /// A full handshake, from nothing to both ends established.
    pub fn establish(stack: &mut S, wire: &mut Wire, tally: &mut Tally) -> Result<Self, Failure> {
        let client = tally.at_client(|| stack.client())?;
        let server = tally.at_server(|| stack.server())?;
        Self::meet(client, server, wire, tally)
    }

    /// Resumes this session in a new one.
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

    /// Sends one record from the client to the server. Returns the length of the payload that the server opened.
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

/// More than any stack needs, so that a stalled handshake ends.
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
