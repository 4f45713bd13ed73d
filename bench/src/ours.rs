//! The one place where our own stack meets the benchmarks: everything else treats it as one more program.
//!
//! `tegmen-bench ours` runs [`stack`] behind the same line protocol as every peer, and `coap` starts
//! [`serve_command`]. The work itself (so many handshakes, so many records of that size) is in `tegmen_bench_line`.

use std::{cell::RefCell, rc::Rc};
use tegmen::{
    buf::Frame,
    counters::Counters,
    dtls::{
        Config, Records,
        state::{Answer, Need},
    },
    endpoint::{Address, Cx, Endpoint, Event, HEADROOM, Path, PeerId, Peers, Principal},
    time::Instant,
};
use tegmen_bench_line::{DATAGRAM_MAX, End, Failure, IDENTITY, KEY, Outbox, Stack};
use tegmen_host::{
    provider::HostCrypto,
    slab::{Capacity, Slab},
};

/// The ciphers that are measured.
type Provider = HostCrypto;
/// The table of peers that is measured.
type Table = Slab<()>;

/// Our stack with its credentials, or why there is none.
pub(crate) fn stack() -> Result<Ours, Failure> {
    Ok(Ours { client: Side::new()?, server: Side::new()?, clients: 0 })
}

/// The words that start our CoAP server on 127.0.0.1 at `port`: the `tegmen` that was built beside this program.
pub(crate) fn serve_command(port: u16) -> Option<Vec<String>> {
    let tegmen = std::env::current_exe().ok()?.with_file_name("tegmen");
    let options = format!("serve --plain-port {port} --value /example_data=0123456789abcdef {SERVE_OPTIONS}");
    let words = std::iter::once(tegmen.to_string_lossy().into_owned());
    tegmen.is_file().then(|| words.chain(options.split(' ').map(String::from)).collect())
}

/// One shard, because every peer has one thread.
const SERVE_OPTIONS: &str = "--listen 127.0.0.1 --plain --no-secure --quiet --shards 1";

/// One endpoint for each role, as a program would have; every session gets an address of its own.
pub(crate) struct Ours {
    client: Rc<RefCell<Side>>,
    server: Rc<RefCell<Side>>,
    clients: u32,
}

/// Every session of one role.
struct Side {
    endpoint: Endpoint<Table>,
    crypto: Provider,
    counters: Counters,
    /// A clock that only handshakes move.
    now: Instant,
}

/// One of our ends.
pub(crate) struct Session {
    side: Rc<RefCell<Side>>,
    path: Path,
    peer: Option<PeerId>,
    is_established: bool,
}

impl Stack for Ours {
    type Client = Session;
    type Server = Session;

    fn version(&self) -> String {
        format!("tegmen {}", env!("CARGO_PKG_VERSION"))
    }

    fn client(&mut self) -> Result<Session, Failure> {
        self.clients = self.clients.wrapping_add(1);
        Ok(Session::new(&self.client, Path { local: address(self.clients), remote: address(SERVER) }))
    }

    fn server(&mut self) -> Result<Session, Failure> {
        Ok(Session::new(&self.server, Path { local: address(SERVER), remote: address(self.clients) }))
    }
}

impl Session {
    fn new(side: &Rc<RefCell<Side>>, path: Path) -> Self {
        Self { side: side.clone(), path, peer: None, is_established: false }
    }
}

impl End for Session {
    fn handshake(&mut self, datagram: Option<&[u8]>, out: &mut Outbox) -> Result<(), Failure> {
        let side = &mut *self.side.borrow_mut();
        match datagram {
            None => self.peer = Some(side.with(|endpoint, cx| endpoint.connect(cx, &self.path)).map_err(failure)?),
            Some(datagram) => {
                let mut datagram = copied(datagram)?;
                let mut records = Records::new(&mut datagram.0[..datagram.1]);
                let mut answer = [0; DATAGRAM_MAX];
                loop {
                    let event =
                        side.with(|endpoint, cx| endpoint.handle(cx, &self.path, &mut records, &mut answer).map(note));
                    let Some(noted) = event else { break };
                    self.is_established |= side.on(noted, &answer, &mut self.peer, out)?;
                }
            }
        }
        side.now = side.now.after_millis(STEP_MILLIS);
        let mut due = [0; DATAGRAM_MAX];
        while let Some(noted) = side.with(|endpoint, cx| endpoint.poll(cx, &mut due).map(note)) {
            self.is_established |= side.on(noted, &due, &mut self.peer, out)?;
        }
        Ok(())
    }

    fn is_established(&self) -> bool {
        self.is_established
    }

    fn seal(&mut self, payload: &[u8], out: &mut Outbox) -> Result<(), Failure> {
        let peer = self.peer.ok_or_else(|| Failure::new("no session"))?;
        let mut storage = [0; DATAGRAM_MAX];
        let mut frame = Frame::new(&mut storage, HEADROOM);
        frame.append(payload).map_err(failure)?;
        self.side.borrow_mut().with(|endpoint, cx| endpoint.seal(cx, peer, &mut frame)).map_err(failure)?;
        out.push(frame.finish());
        Ok(())
    }

    fn open(&mut self, datagram: &[u8], payload: &mut [u8]) -> Result<usize, Failure> {
        let mut datagram = copied(datagram)?;
        let mut records = Records::new(&mut datagram.0[..datagram.1]);
        let event = self.side.borrow_mut().with(|endpoint, cx| {
            endpoint.handle(cx, &self.path, &mut records, &mut []).map(|event| message(event, payload))
        });
        event.flatten().ok_or_else(|| Failure::new("the record was not opened"))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(peer) = self.peer {
            self.side.borrow_mut().endpoint.peers.remove(peer);
        }
    }
}

/// What an event says, apart from the bytes of its datagram, which stay in the buffer given.
enum Noted {
    Transmit(usize),
    Need(PeerId),
    Established(PeerId),
    Closed(String),
    Other,
}

fn note(event: Event<'_, '_>) -> Noted {
    match event {
        Event::Transmit { datagram, .. } => Noted::Transmit(datagram.len()),
        Event::Need(peer) => Noted::Need(peer),
        Event::Established(peer) => Noted::Established(peer),
        Event::Closed { reason, .. } => Noted::Closed(format!("{reason:?}")),
        Event::Message { .. } | Event::Alarm(_) => Noted::Other,
    }
}

/// Copies a message out; its length.
fn message(event: Event<'_, '_>, payload: &mut [u8]) -> Option<usize> {
    let Event::Message { bytes, .. } = event else { return None };
    payload.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(bytes.len())
}

impl Side {
    fn new() -> Result<Rc<RefCell<Self>>, Failure> {
        let mut crypto = Provider::from_os().map_err(failure)?;
        let (mut counters, now) = (Counters::default(), Instant::default());
        let mut cx = Cx { now, crypto: &mut crypto, counters: &mut counters };
        let endpoint = Endpoint::new(&mut cx, Table::new(Capacity::default()), Config::default());
        Ok(Rc::new(RefCell::new(Self { endpoint, crypto, counters, now })))
    }

    /// Calls the endpoint.
    fn with<T>(&mut self, call: impl FnOnce(&mut Endpoint<Table>, &mut Cx<'_, Provider>) -> T) -> T {
        let mut cx = Cx { now: self.now, crypto: &mut self.crypto, counters: &mut self.counters };
        call(&mut self.endpoint, &mut cx)
    }

    /// Does what an event asks for; `true` if the session is ready.
    fn on(
        &mut self,
        noted: Noted,
        written: &[u8],
        peer: &mut Option<PeerId>,
        out: &mut Outbox,
    ) -> Result<bool, Failure> {
        match noted {
            Noted::Transmit(len) => out.push(&written[..len]),
            Noted::Need(id) => {
                *peer = Some(id);
                let answer = match self.endpoint.need(id) {
                    Some(Need::PskOfClient { identity }) if identity != IDENTITY.as_bytes() => Answer::Unknown,
                    _ => Answer::Psk { identity: IDENTITY.as_bytes(), key: &KEY, principal: Principal(1) },
                };
                if let Some(next) = self.with(|endpoint, cx| endpoint.resume(cx, id, answer).map(note)) {
                    return self.on(next, written, peer, out);
                }
            }
            Noted::Established(id) => {
                *peer = Some(id);
                return Ok(true);
            }
            Noted::Closed(reason) => return Err(Failure::new(reason)),
            Noted::Other => {}
        }
        Ok(false)
    }
}

/// Records are decrypted where they lie, so they need a place of ours.
fn copied(datagram: &[u8]) -> Result<([u8; DATAGRAM_MAX], usize), Failure> {
    let mut place = [0; DATAGRAM_MAX];
    place.get_mut(..datagram.len()).ok_or_else(|| Failure::new("too long"))?.copy_from_slice(datagram);
    Ok((place, datagram.len()))
}

/// The address of one of 2^24 nodes.
fn address(node: u32) -> Address {
    let [_, a, b, c] = node.to_be_bytes();
    std::net::SocketAddr::from(([10, a, b, c], 5684)).into()
}

fn failure(error: impl std::fmt::Debug) -> Failure {
    Failure::new(format!("{error:?}"))
}

const SERVER: u32 = 0;
/// Two ticks of the table's timers, so that what is due now is sent now.
const STEP_MILLIS: u32 = 2;
