//! The DTLS sessions of a sender or a listener of a group of lamps, with a pre-shared key.

use super::Provider;
use tegmen::address::{Address, Path};
use tegmen::buf::Frame;
use tegmen::cx::Environment;
use tegmen::dtls::{Answer, Config, Configured, Records, Roles};
use tegmen::endpoint::{Endpoint, Event, HEADROOM, PeerArray, Peers as _, Phase, TAILROOM};
use tegmen::identity::Principal;
use tegmen::time::Instant;

/// The sessions with the roles `R`. The table is a reference, so that hundreds of sessions are not moved.
pub struct Sessions<R: Roles, const PEERS: usize> {
    endpoint: Endpoint<&'static mut Table<PEERS>, R>,
    environment: Environment<Provider>,
    local: Address,
}

/// A table of sessions, of which one can be in a handshake.
pub type Table<const PEERS: usize> = PeerArray<(), PEERS, 1, 32, 96>;

/// The result of processing a received datagram.
pub enum Taken<'d> {
    /// The datagram carries application data of the peer. The value is the decrypted content.
    Message(&'d mut [u8]),
    /// A datagram of a handshake or of the end of a session. The value is the length of the answer, or 0 if there is
    /// none.
    Answer(usize),
}

impl<R: Configured, const PEERS: usize> Sessions<R, PEERS> {
    /// Creates a table without a session.
    pub fn new(now: Instant, crypto: Provider, local: Address, table: &'static mut Table<PEERS>) -> Self {
        let mut environment = Environment::new(crypto);
        let config = Config { mtu: OUT_LEN as u16, ..Config::default() };
        let endpoint = Endpoint::new(&mut environment.at(now), table, config);
        Self { endpoint, environment, local }
    }

    /// Opens a session. Returns `None` if there is no space for it.
    pub fn connect(&mut self, now: Instant, to: &Address) -> Option<()> {
        let path = self.path(to);
        self.endpoint.connect(&mut self.environment.at(now), &path).ok().map(|_| ())
    }

    /// Returns true if there is a session with this peer.
    pub fn is_open(&self, with: &Address) -> bool {
        self.endpoint.peers.find(&self.path(with), Phase::Established).is_some()
    }

    /// Processes a datagram to the address of this endpoint. Writes the answer for its sender into `out`.
    pub fn take<'d>(
        &mut self,
        now: Instant,
        from: &Address,
        datagram: &'d mut [u8],
        out: &mut [u8; OUT_LEN],
    ) -> Taken<'d> {
        let path = self.path(from);
        let mut records = Records::new(datagram);
        let mut answer_len = 0;
        let bytes = loop {
            let cx = &mut self.environment.at(now);
            match self.endpoint.handle(cx, &path, &mut records, out) {
                // A datagram with application data contains only one record.
                Some(Event::Message { bytes, .. }) => break bytes,
                Some(Event::Answer { len }) => answer_len = len.into(),
                Some(Event::Need(id)) => {
                    let answer = Answer::Psk { identity: b"Client_identity", key: b"secretPSK", principal: THE_PEER };
                    self.endpoint.resume(cx, id, answer);
                }
                Some(_) => {}
                None => return Taken::Answer(answer_len),
            }
        };
        Taken::Message(bytes.of_mut(datagram))
    }

    /// Writes into `out` the next datagram that a session has to send now. Returns its receiver and its length.
    pub fn poll(&mut self, now: Instant, out: &mut [u8; OUT_LEN]) -> Option<(Address, usize)> {
        loop {
            let cx = &mut self.environment.at(now);
            if let Event::Transmit { peer, len } = self.endpoint.poll(cx, out)? {
                return Some((self.endpoint.peers.peer(peer)?.path().remote, len.into()));
            }
        }
    }

    /// Seals a message in place. Returns `None` if there is no session with its receiver.
    pub fn seal(&mut self, now: Instant, to: &Address, frame: &mut Frame<'_>) -> Option<()> {
        let id = self.endpoint.peers.find(&self.path(to), Phase::Established)?;
        let cx = &mut self.environment.at(now);
        self.endpoint.seal(cx, id, frame).ok()
    }

    const fn path(&self, to: &Address) -> Path {
        Path { local: self.local, remote: *to }
    }
}

/// Numbers of bytes that [`Sessions::seal`] adds before and after the content.
pub const AROUND: (usize, usize) = (HEADROOM, TAILROOM);
/// Maximum length of a datagram that is sent, in bytes.
pub const OUT_LEN: usize = 200;
/// The owner of the pre-shared key. All peers have the same key. In a product each peer has its own key.
const THE_PEER: Principal = Principal(1);
