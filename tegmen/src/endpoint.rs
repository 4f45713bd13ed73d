//! Peer table and demultiplexing: the only file that knows every protection.
//!
//! Bytes and the clock go in, bytes and the next alarm come out:
//!
//! * for each datagram received, [`Endpoint::handle`] until it returns `None`;
//! * then, and whenever [`Endpoint::next_alarm`] has come, [`Endpoint::poll`] until it returns `None`;
//! * [`Event::Need`] is answered with [`Endpoint::resume`], at once or later.

pub mod address;
pub mod peers;

pub use address::{Address, Path};
pub use peers::{NewPeer, Peer, PeerArray, PeerId, Peers, Phase, Principal, Protection, Rank, TableFull};

use peers::AlertDue;

use crate::buf::{Frame, Writer, copy};
use crate::counters::{Counters, bump};
use crate::crypto::Crypto;
use crate::dtls::cookie::{COOKIE_LEN, CookieKeys};
use crate::dtls::handshake::client_hello::ClientHello;
use crate::dtls::handshake::{self, Fragment, MessageType, hello_verify_request};
use crate::dtls::record::{self, ContentType, Record, RecordNumber, Records, SealError};
use crate::dtls::state::{Answer, Failure, Need};
use crate::dtls::{AlertDescription, Config, Discard, Fatal, HandshakeState, Progress, alert};
use crate::time::{Duration, Instant};

/// What every call gets: the clock, the crypto provider with its random generator, and the counters.
pub struct Cx<'c, C> {
    /// The time.
    pub now: Instant,
    /// Ciphers, hashes, randomness.
    pub crypto: &'c mut C,
    /// What is dropped and done is counted here.
    pub counters: &'c mut Counters,
}

/// Which roles an endpoint takes. A type, so that an image links no code for a role that it never has.
pub trait Roles {
    /// It opens handshakes.
    const CLIENT: bool;
    /// It answers them.
    const SERVER: bool;
}

/// Opens handshakes and answers them.
pub struct Both;
/// Opens handshakes; ignores hellos.
pub struct ClientOnly;
/// Answers handshakes; opens none.
pub struct ServerOnly;

impl Roles for Both {
    const CLIENT: bool = true;
    const SERVER: bool = true;
}

impl Roles for ClientOnly {
    const CLIENT: bool = true;
    const SERVER: bool = false;
}

impl Roles for ServerOnly {
    const CLIENT: bool = false;
    const SERVER: bool = true;
}

/// What a datagram or the clock led to.
#[derive(Debug)]
pub enum Event<'r, 't> {
    /// Send this datagram.
    Transmit {
        /// From where to where.
        path: Path,
        /// Its bytes, in the buffer that the caller gave for output.
        datagram: &'t mut [u8],
    },
    /// A key is needed: see [`Endpoint::need`], answer with [`Endpoint::resume`].
    Need(PeerId),
    /// The peer proved its key, and the session is ready.
    Established(PeerId),
    /// Authentic bytes of the application, decrypted where they lay.
    Message {
        /// Who sent them.
        peer: PeerId,
        /// The bytes.
        bytes: &'r mut [u8],
    },
    /// The alarm that the owner set with [`Peers::schedule`] has come.
    Alarm(PeerId),
    /// The association is over. The peer can be asked about until the next call of [`Endpoint::poll`].
    Closed {
        /// Which.
        peer: PeerId,
        /// Why.
        reason: Fatal,
    },
}

/// A mistake of our own caller, or a session that has to be renewed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Misuse {
    /// No such peer, or its handshake is not over.
    NotEstablished,
    /// The frame has no room for what the protection adds.
    Full,
    /// The key reached its limit; open a new session.
    KeyExhausted,
}

impl From<SealError> for Misuse {
    fn from(error: SealError) -> Self {
        match error {
            SealError::Full => Self::Full,
            SealError::KeyExhausted => Self::KeyExhausted,
        }
    }
}

/// Room before the content of a datagram that [`Endpoint::seal`] needs.
pub const HEADROOM: usize = record::HEADROOM;
/// Room behind it.
pub const TAILROOM: usize = record::TAG_LEN;

/// All peers behind one or more sockets, in the roles `R`.
pub struct Endpoint<P: Peers, R: Roles = Both> {
    /// The table; the owner may look into it and set alarms.
    pub peers: P,
    config: Config,
    cookies: CookieKeys,
    roles: core::marker::PhantomData<R>,
}

impl<P: Peers, R: Roles> Endpoint<P, R> {
    /// An endpoint without peers.
    pub fn new<C: Crypto>(cx: &mut Cx<'_, C>, peers: P, config: Config) -> Self {
        let mut cookies = CookieKeys::none();
        if R::SERVER {
            cookies.begin(cx.crypto, cx.now, &config);
        }
        Self { peers, config, cookies, roles: core::marker::PhantomData }
    }

    /// The settings.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Takes the next record of a datagram that came over `path` on a DTLS port. `out` is for an answer.
    ///
    /// Call it until it returns `None`: a datagram may hold several records.
    pub fn handle<'r, 't, C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        path: &Path,
        records: &mut Records<'r>,
        out: &'t mut [u8],
    ) -> Option<Event<'r, 't>> {
        // A loop cannot lend `out` out and go on, so the answer to a hello is made behind it.
        let (answer, number) = loop {
            let outcome = match records.next_record()? {
                Ok(record) if record.number.epoch() == 0 => match self.on_plaintext(cx, path, record) {
                    Ok(Plaintext::Event(event)) => Ok(event),
                    Ok(Plaintext::Answer(answer, number)) => break (answer, number),
                    Err(discard) => Err(discard),
                },
                Ok(record) => self.on_protected(cx, path, record),
                Err(discard) => Err(discard),
            };
            match outcome {
                Ok(None) => {}
                Ok(event) => return event,
                Err(discard) => cx.counters.discard(discard),
            }
        };
        let len = answer.write(number, out)?;
        Some(Event::Transmit { path: *path, datagram: out.get_mut(..len)? })
    }

    /// A record of epoch 0: a handshake begins or goes on.
    fn on_plaintext<'r, 't, C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        path: &Path,
        record: Record<'r>,
    ) -> Result<Plaintext<'r, 't>, Discard> {
        if R::SERVER && record.content_type == ContentType::HANDSHAKE {
            let is_hello = record.body.first() == Some(&MessageType::CLIENT_HELLO.0);
            if is_hello && let Some(answer) = self.on_client_hello(cx, path, &record)? {
                return Ok(Plaintext::Answer(answer, record.number));
            }
            if is_hello {
                return Ok(Plaintext::Event(None));
            }
        }
        let id = self.peers.find(path, Phase::Handshaking).ok_or(Discard::UnknownPeer)?;
        let mut ongoing = self.peers.ongoing(id).ok_or(Discard::UnknownPeer)?;
        let outcome = ongoing
            .receive_plaintext::<C, R>(cx, &self.config, &record)
            .and_then(|progress| ongoing.settle::<C, R>(cx, &self.config, progress));
        self.on_progress(cx, id, outcome).map(Plaintext::Event)
    }

    /// A ClientHello: answered without state until its cookie proves the address (RFC 6347, section 4.2.1).
    fn on_client_hello<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        path: &Path,
        record: &Record<'_>,
    ) -> Result<Option<StatelessAnswer>, Discard> {
        let mut reader = crate::buf::Reader::new(record.body);
        let fragment = Fragment::read(&mut reader).map_err(|_| Discard::Malformed)?;
        // Without state there is nothing to put fragments together in.
        if !fragment.is_whole() || !reader.is_empty() {
            return Err(Discard::Malformed);
        }
        let hello = ClientHello::read(fragment.body).map_err(|_| Discard::Malformed)?;
        let address = path.remote.bytes();
        self.cookies.rotate_if_due(cx.crypto, cx.now, &self.config);
        if !self.cookies.is_valid::<C>(&address, &hello) {
            bump(&mut cx.counters.cookies_sent);
            let cookie = self.cookies.make::<C>(&address, &hello);
            return Ok(Some(StatelessAnswer::HelloVerifyRequest { cookie, message_seq: fragment.message_seq }));
        }
        // A late copy of the hello that a session began with, whose last flight may still be asked for.
        if let Some(id) = self.peers.find(path, Phase::Established)
            && self.peers.ongoing(id).is_some_and(|ongoing| ongoing.state.client_random == hello.random)
        {
            return Ok(None);
        }
        if let Some(id) = self.peers.find(path, Phase::Handshaking) {
            let rank = self.peers.peer(id).map(|peer| peer.rank);
            let ongoing = self.peers.ongoing(id).ok_or(Discard::UnknownPeer)?;
            if rank == Some(Rank::Ours) {
                return Err(Discard::Unexpected); // we are opening one there ourselves
            }
            if ongoing.state.client_random == hello.random {
                // Our flight was lost, if nothing came since; else the hello was late.
                if ongoing.state.receive_seq == ongoing.state.answered_seq {
                    ongoing.state.answer_repetition(cx.now, cx.counters);
                    let deadline = ongoing.state.deadline();
                    self.wake(id, deadline, cx.now);
                }
                return Ok(None);
            }
            // The client began anew.
            self.peers.remove(id);
        }
        if let Err(fatal) = HandshakeState::acceptable(&hello) {
            bump(&mut cx.counters.failed);
            return Ok(fatal.alert().map(StatelessAnswer::Alert));
        }
        let id = self.insert(cx, &NewPeer::handshaking(path, Rank::Stranger)).map_err(|_| Discard::NoRoom)?;
        if let Some(ongoing) = self.peers.ongoing(id) {
            ongoing.state.accept(cx, &self.config, record.number, &fragment, &hello);
        }
        Ok(None)
    }

    #[inline(never)]
    fn insert<C>(&mut self, cx: &mut Cx<'_, C>, new: &NewPeer<'_>) -> Result<PeerId, TableFull> {
        let inserted = self.peers.insert(new).inspect_err(|_| bump(&mut cx.counters.table_full))?;
        if inserted.evicted {
            bump(&mut cx.counters.evicted);
        }
        if let Some(peer) = self.peers.peer(inserted.id) {
            peer.last_heard = coarse(cx.now);
        }
        self.wake(inserted.id, cx.now, cx.now);
        Ok(inserted.id)
    }

    /// A record of a later epoch: a session's, or the end of a handshake.
    #[inline]
    fn on_protected<'r, 't, C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        path: &Path,
        record: Record<'r>,
    ) -> Result<Option<Event<'r, 't>>, Discard> {
        // Opening destroys what does not open, so one of the two associations that a path may have is chosen first: a
        // handshake that goes on takes handshake messages, the session everything else.
        if record.content_type == ContentType::HANDSHAKE
            && let Some(id) = self.peers.find(path, Phase::Handshaking)
        {
            let mut ongoing = self.peers.ongoing(id).ok_or(Discard::UnknownPeer)?;
            let outcome = ongoing
                .receive_protected::<C, R>(cx, &self.config, record)
                .and_then(|progress| ongoing.settle::<C, R>(cx, &self.config, progress));
            return self.on_progress(cx, id, outcome);
        }
        let Some(id) = self.peers.find(path, Phase::Established) else {
            return self.on_early(cx, path, record);
        };
        let peer = self.peers.peer(id).ok_or(Discard::UnknownPeer)?;
        if peer.protection != Protection::Dtls {
            return Err(Discard::UnknownPeer);
        }
        let content_type = record.content_type;
        let content = match peer.channel.open(cx.crypto, record) {
            Ok(content) => content,
            Err(discard) => {
                if peer.channel.is_exhausted() {
                    return Ok(Some(self.close_with(id, Fatal::KeyExhausted)));
                }
                return Err(discard);
            }
        };
        peer.last_heard = coarse(cx.now);
        match content_type {
            ContentType::APPLICATION_DATA => {
                // It could only follow our last flight, so that is not needed again.
                if peer.lingers {
                    peer.lingers = false;
                    self.peers.release_handshake(id);
                }
                Ok(Some(Event::Message { peer: id, bytes: content }))
            }
            ContentType::ALERT => match *content {
                [alert::FATAL, description] => {
                    Ok(Some(self.closed(id, Fatal::Alert(AlertDescription(description)), None)))
                }
                [_, 0] => Ok(Some(self.close_with(id, Fatal::Closed))),
                _ => Ok(None),
            },
            // The client's Finished again: our last flight was lost. Renegotiation is refused by silence.
            ContentType::HANDSHAKE => {
                let Some(ongoing) = self.peers.ongoing(id) else { return Err(Discard::Unexpected) };
                if content.first() == Some(&MessageType::FINISHED.0) && ongoing.state.is_lingering() {
                    bump(&mut cx.counters.retransmitted);
                    ongoing.state.send_flight_again(cx.now);
                    self.wake(id, cx.now, cx.now);
                }
                Ok(None)
            }
            _ => Err(Discard::Unexpected),
        }
    }

    /// A protected record that is no handshake message, where there is no session (yet).
    fn on_early<'r, 't, C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        path: &Path,
        record: Record<'r>,
    ) -> Result<Option<Event<'r, 't>>, Discard> {
        let id = self.peers.find(path, Phase::Handshaking).ok_or(Discard::UnknownPeer)?;
        let mut ongoing = self.peers.ongoing(id).ok_or(Discard::UnknownPeer)?;
        let outcome = ongoing.receive_protected::<C, R>(cx, &self.config, record);
        self.on_progress(cx, id, outcome)
    }

    /// Turns the outcome of a handshake step into an event, and sets the alarm for what is to be sent.
    fn on_progress<'r, 't, C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        id: PeerId,
        outcome: Result<Progress, Failure>,
    ) -> Result<Option<Event<'r, 't>>, Discard> {
        if let Some(ongoing) = self.peers.ongoing(id) {
            let deadline = ongoing.state.deadline();
            self.wake(id, deadline, cx.now);
        }
        match outcome {
            Ok(Progress::Continue) => Ok(None),
            Ok(Progress::Need) => Ok(Some(Event::Need(id))),
            Ok(Progress::Established) => {
                self.establish(cx, id);
                Ok(Some(Event::Established(id)))
            }
            Err(Failure::Discard(discard)) => Err(discard),
            Err(Failure::Fatal(fatal)) => {
                bump(&mut cx.counters.failed);
                Ok(Some(self.close_with(id, fatal)))
            }
        }
    }

    /// The peer proved its key. Only now does an older session on the same path end (RFC 6347, section 4.2.8).
    fn establish<C: Crypto>(&mut self, cx: &mut Cx<'_, C>, id: PeerId) {
        bump(&mut cx.counters.established);
        let Some(peer) = self.peers.peer(id) else { return };
        let path = peer.path;
        peer.rank = peer.rank.max(Rank::Authenticated);
        peer.last_heard = coarse(cx.now);
        // In this handshake the server's flight is the last.
        let lingers = peer.rank == Rank::Authenticated;
        peer.lingers = lingers;
        if let Some(old) = self.peers.find(&path, Phase::Established) {
            self.peers.remove(old);
        }
        self.peers.set_phase(id, Phase::Established);
        if !lingers {
            self.peers.release_handshake(id);
        }
        self.schedule_idle(id, cx.now);
    }

    /// Sets the alarm of a peer. What is due already is told so, because a table may keep time in coarse steps.
    fn wake(&mut self, id: PeerId, at: Instant, now: Instant) {
        self.peers.schedule(id, if at <= now { Instant::from_micros(0) } else { at });
    }

    fn schedule_idle(&mut self, id: PeerId, now: Instant) {
        if self.config.idle_timeout > Duration::ZERO {
            self.peers.schedule(id, now.after(self.config.idle_timeout));
        }
    }

    /// Opens a session with the peer at the other end of `path`; [`Event::Need`] asks for the key, and
    /// [`Event::Established`] says when it is ready.
    ///
    /// # Errors
    /// [`TableFull`] if all entries belong to associations that we opened.
    pub fn connect<C: Crypto>(&mut self, cx: &mut Cx<'_, C>, path: &Path) -> Result<PeerId, TableFull> {
        if let Some(old) = self.peers.find(path, Phase::Handshaking) {
            self.peers.remove(old);
        }
        let id = self.insert(cx, &NewPeer::handshaking(path, Rank::Ours))?;
        if let Some(ongoing) = self.peers.ongoing(id) {
            ongoing.state.connect(cx, &self.config);
        }
        Ok(id)
    }

    /// The entry of a peer without protection, made if it is not there yet.
    ///
    /// # Errors
    /// [`TableFull`] if nobody of its rank can be displaced, or if the path belongs to a session: a datagram in clear is
    /// never taken for one of the session's peer.
    pub fn plain<C>(&mut self, cx: &mut Cx<'_, C>, path: &Path, rank: Rank) -> Result<PeerId, TableFull> {
        if let Some(known) = self.peers.find(path, Phase::Established) {
            let peer = self.peers.peer(known).filter(|peer| peer.protection == Protection::Plain).ok_or(TableFull)?;
            peer.last_heard = coarse(cx.now);
            return Ok(known);
        }
        let protection = Protection::Plain;
        self.insert(cx, &NewPeer { path, rank, phase: Phase::Established, protection, with_handshake: false })
    }

    /// What the handshake with `id` waits for.
    pub fn need(&mut self, id: PeerId) -> Option<Need<'_>> {
        self.peers.ongoing(id)?.need()
    }

    /// Goes on with a handshake that waited.
    pub fn resume<'r, 't, C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        id: PeerId,
        answer: Answer<'_>,
    ) -> Option<Event<'r, 't>> {
        let mut ongoing = self.peers.ongoing(id)?;
        ongoing.state.deadline = ongoing.state.give_up;
        let outcome = ongoing.resume::<C, R>(cx, &self.config, answer);
        self.on_progress(cx, id, outcome).unwrap_or_else(|discard| {
            cx.counters.discard(discard);
            None
        })
    }

    /// Protects what is in `frame` for `id`. The frame needs [`HEADROOM`] before its content and [`TAILROOM`] behind.
    ///
    /// # Errors
    /// [`Misuse`]; the frame must then not be sent.
    #[inline]
    pub fn seal<C: Crypto>(&mut self, cx: &mut Cx<'_, C>, id: PeerId, frame: &mut Frame<'_>) -> Result<(), Misuse> {
        let peer = self.peers.peer(id).filter(|peer| peer.phase == Phase::Established);
        let peer = peer.ok_or(Misuse::NotEstablished)?;
        match peer.protection {
            Protection::Plain => Ok(()),
            Protection::Dtls => Ok(peer.channel.seal(cx.crypto, ContentType::APPLICATION_DATA, frame)?),
        }
    }

    /// Ends the association with `id` in order: close_notify is sent by the next [`Self::poll`].
    pub fn close(&mut self, id: PeerId) {
        let _ = self.close_with(id, Fatal::Closed);
    }

    fn close_with<'r, 't>(&mut self, id: PeerId, reason: Fatal) -> Event<'r, 't> {
        self.closed(id, reason, reason.alert())
    }

    /// Takes the peer out of the search by address; it goes for good when its alert was sent.
    fn closed<'r, 't>(&mut self, id: PeerId, reason: Fatal, alert: Option<AlertDescription>) -> Event<'r, 't> {
        if let Some(peer) = self.peers.peer(id)
            && peer.phase != Phase::Closing
        {
            peer.alert_due = match alert {
                Some(_) if peer.protection != Protection::Dtls => AlertDue::None,
                Some(_) if peer.phase == Phase::Established => AlertDue::Sealed,
                Some(_) => AlertDue::Plain,
                None => AlertDue::None,
            };
            peer.alert = alert.unwrap_or(AlertDescription::CLOSE_NOTIFY);
            self.peers.set_phase(id, Phase::Closing);
            self.peers.schedule(id, Instant::from_micros(0));
        }
        Event::Closed { peer: id, reason }
    }

    /// When to call [`Self::poll`] again; calling early is harmless, late costs latency.
    pub fn next_alarm(&self) -> Option<Instant> {
        self.peers.next_alarm()
    }

    /// Does what is due: sends flights, the first time and again, and alerts; forgets who fell silent.
    ///
    /// Call it until it returns `None`. `out` must hold a datagram of the configured size.
    pub fn poll<'r, 't, C: Crypto>(&mut self, cx: &mut Cx<'_, C>, out: &'t mut [u8]) -> Option<Event<'r, 't>> {
        let (path, len) = loop {
            let id = self.peers.take_due(cx.now)?;
            match self.on_alarm(cx, id, out) {
                Due::Nothing => {}
                Due::Datagram(path, len) => break (path, len),
                Due::Event(event) => return Some(event),
            }
        };
        Some(Event::Transmit { path, datagram: out.get_mut(..len)? })
    }

    fn on_alarm<'r, 't, C: Crypto>(&mut self, cx: &mut Cx<'_, C>, id: PeerId, out: &mut [u8]) -> Due<'r, 't> {
        let Some(peer) = self.peers.peer(id) else { return Due::Nothing };
        let (path, phase) = (peer.path, peer.phase);
        if phase == Phase::Closing {
            let written = self.write_alert(cx, id, out);
            self.peers.remove(id);
            return written.map_or(Due::Nothing, |len| Due::Datagram(path, len));
        }
        let idle_since = Instant::from_micros(u64::from(peer.last_heard) << 20);
        if let Some(mut ongoing) = self.peers.ongoing(id) {
            let mut outcome = Ok(None);
            if ongoing.state.deadline() <= cx.now {
                outcome = ongoing.transmit(cx, &self.config, out);
            }
            let deadline = ongoing.state.deadline();
            match outcome {
                Ok(Some(len)) => {
                    self.wake(id, deadline, cx.now);
                    return Due::Datagram(path, len);
                }
                // The last flight has been kept for long enough.
                Ok(None) if deadline <= cx.now => self.peers.release_handshake(id),
                Ok(None) => self.peers.schedule(id, deadline),
                Err(fatal) => {
                    bump(&mut cx.counters.failed);
                    return Due::Event(self.close_with(id, fatal));
                }
            }
        }
        if phase == Phase::Handshaking {
            return Due::Nothing;
        }
        if self.config.idle_timeout > Duration::ZERO {
            let until = idle_since.after(self.config.idle_timeout);
            if until <= cx.now {
                return Due::Event(self.close_with(id, Fatal::Idle));
            }
            self.peers.schedule(id, until);
        }
        Due::Event(Event::Alarm(id))
    }

    fn write_alert<C: Crypto>(&mut self, cx: &mut Cx<'_, C>, id: PeerId, out: &mut [u8]) -> Option<usize> {
        let next_number = self.peers.ongoing(id).map(|mut ongoing| ongoing.next_number());
        let peer = self.peers.peer(id)?;
        let description = peer.alert;
        let level = if description == AlertDescription::CLOSE_NOTIFY { alert::WARNING } else { alert::FATAL };
        let alert = [level, description.0];
        match peer.alert_due {
            AlertDue::None => None,
            AlertDue::Plain => write_plain_alert(next_number?, alert, out),
            AlertDue::Sealed => {
                let mut frame = Frame::new(out, record::HEADROOM);
                frame.append(&alert).ok()?;
                peer.channel.seal(cx.crypto, ContentType::ALERT, &mut frame).ok()?;
                Some(frame.len())
            }
        }
    }
}

fn write_plain_alert(number: RecordNumber, alert: [u8; 2], out: &mut [u8]) -> Option<usize> {
    let mut writer = Writer::new(out);
    writer.put(&record::header(ContentType::ALERT, number, 2)).ok()?;
    writer.put(&alert).ok()?;
    Some(writer.len())
}

/// The clock in units of 2^20 microseconds, about a second: near enough for an idle timeout, and no division on a mote.
fn coarse(now: Instant) -> u32 {
    (now.as_micros() >> 20) as u32
}

enum Plaintext<'r, 't> {
    Event(Option<Event<'r, 't>>),
    Answer(StatelessAnswer, RecordNumber),
}

enum Due<'r, 't> {
    Nothing,
    Datagram(Path, usize),
    Event(Event<'r, 't>),
}

/// What a hello is answered with before there is any state.
enum StatelessAnswer {
    HelloVerifyRequest { cookie: [u8; COOKIE_LEN], message_seq: u16 },
    Alert(AlertDescription),
}

impl StatelessAnswer {
    /// Writes the datagram; its record has the number of the hello's (RFC 6347, section 4.2.1).
    fn write(&self, number: RecordNumber, out: &mut [u8]) -> Option<usize> {
        match self {
            Self::Alert(description) => write_plain_alert(number, [alert::FATAL, description.0], out),
            Self::HelloVerifyRequest { cookie, message_seq } => {
                let head = record::HEADER_LEN + handshake::HEADER_LEN;
                let mut body = Writer::new(out.get_mut(head..)?);
                hello_verify_request::write(&mut body, cookie).ok()?;
                let len = body.len();
                let kind = MessageType::HELLO_VERIFY_REQUEST;
                let message_header = handshake::header(kind, len as u32, *message_seq, 0, len as u32);
                let record_len = len.wrapping_add(handshake::HEADER_LEN);
                copy(out, &record::header(ContentType::HANDSHAKE, number, record_len as u16)).ok()?;
                copy(out.get_mut(record::HEADER_LEN..)?, &message_header).ok()?;
                Some(record_len.wrapping_add(record::HEADER_LEN))
            }
        }
    }
}
