//! Processes ClientHellos: sends cookies to clients and keeps no state for them, and begins handshakes as server with
//! clients that have a valid cookie.

use super::{Endpoint, NewPeer, Peers, Phase, write_plain_alert};
use crate::address::Path;
use crate::buf::{Full, Reader, Writer, copy};
use crate::counters::{Discard, bump};
use crate::crypto::Crypto;
use crate::cx::Cx;
use crate::dtls::association::Rank;
use crate::dtls::context::HandshakeContext;
use crate::dtls::cookie;
use crate::dtls::flight::MESSAGE_HEADROOM;
use crate::dtls::handshake::client_hello::{ClientHello, Front};
use crate::dtls::handshake::extension::ExtensionType;
use crate::dtls::handshake::{self, Fragment, MessageType, Random, hello_verify_request};
use crate::dtls::public_key::Agreed;
use crate::dtls::record::{self, ContentType, Record, RecordNumber};
use crate::dtls::record_size::RecordSize;
use crate::dtls::resumption::Found;
use crate::dtls::roles::Roles;
use crate::dtls::state::Step;
use crate::dtls::{Fatal, HandshakeState, Profile, alert};
use crate::identity::PeerId;
use crate::secret::same;

impl<P: Peers, R: Roles> Endpoint<P, R> {
    /// Returns true if a handshake in progress on this path began with this ClientHello. We are server in this
    /// handshake.
    fn is_begun(&mut self, path: &Path, fragment: &Fragment<'_>, hello: &ClientHello<'_>) -> bool {
        let Some(id) = self.peers.find(path, Phase::Handshaking) else { return false };
        let number = fragment.message_seq().wrapping_add(1);
        self.peers.handshake(id).is_some_and(|handshake| {
            !(R::SIMULTANEOUS && handshake.association.is_client())
                && handshake.state.client_random == *hello.random
                && handshake.state.answered_seq == number
        })
    }

    /// Processes a ClientHello. Returns the length of the answer in `out`; 0 if there is no answer.
    #[inline(never)]
    pub(super) fn on_client_hello<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        path: &Path,
        record: &Record<'_>,
        out: &mut [u8],
    ) -> usize {
        // The limit counts only the first fragment of a ClientHello.
        let counts = !(R::HELLO_FRAGMENTS && continues_hello(record));
        if counts && !self.roles.admits_hello(cx.now, &path.remote) {
            return 0;
        }
        self.answer_hello(cx, path, record, out).unwrap_or_else(|discard| {
            cx.counters.discard(discard);
            0
        })
    }

    /// Answers a ClientHello. Keeps no state before a cookie has proved the address of the client (RFC 6347, section
    /// 4.2.1).
    fn answer_hello<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        path: &Path,
        record: &Record<'_>,
        out: &mut [u8],
    ) -> Result<usize, Discard> {
        let mut reader = Reader::new(record.body);
        let fragment = Fragment::read(&mut reader).map_err(|_| Discard::Malformed)?;
        if !reader.is_empty() {
            return Err(Discard::Malformed);
        }
        if fragment.is_whole() {
            return self.answer_whole_hello(cx, path, record, &fragment, out);
        }
        match R::HELLO_FRAGMENTS {
            true => self.on_hello_fragment(cx, path, record, &fragment, out),
            // Without state there is no buffer to reassemble fragments in.
            false => Ok(refuse(cx, record, Fatal::TooLarge, out)),
        }
    }

    /// Processes a fragment of a ClientHello. Keeps no state before the cookie in the first fragment has proved the
    /// address of the client. After that, reassembles the fragments in the buffer of a handshake (RFC 6347, section
    /// 4.2.3).
    #[inline(never)]
    fn on_hello_fragment<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        path: &Path,
        record: &Record<'_>,
        fragment: &Fragment<'_>,
        out: &mut [u8],
    ) -> Result<usize, Discard> {
        let seq = fragment.message_seq();
        let begun = self.peers.find(path, Phase::Handshaking);
        if fragment.offset() == 0 {
            let front = Front::read(&mut Reader::new(fragment.body)).map_err(|_| Discard::Malformed)?;
            let generation = cookie::generation(cx.now, &self.settings);
            let mut cookie = self.cookies.of_front::<C>(generation, &path.remote, front.cookie, front.before);
            self.bind_cookie::<C>(path, &mut cookie);
            let proves = front.cookie.len() == cookie.len() && same(first_half(&cookie), first_half(front.cookie));
            if !proves {
                bump(&mut cx.counters.cookies_sent);
                return Ok(write_hello_verify_request(record.number(), seq, &cookie, out).unwrap_or(0));
            }
            if fragment.length() as usize > MAX_HELLO {
                return Ok(refuse(cx, record, Fatal::TooLarge, out));
            }
            let same_hello = |state: &HandshakeState| state.client_random == *front.random;
            match begun.and_then(|id| Some((id, self.peers.handshake(id)?))) {
                Some((_, handshake))
                    if handshake.association.is_client() && !(R::SIMULTANEOUS && handshake.yields_to(front.random)) =>
                {
                    return Err(Discard::Unexpected);
                }
                Some((_, handshake)) if same_hello(handshake.state) && handshake.state.is_putting_together(seq) => {}
                // The ClientHello is a repetition of the ClientHello with which the handshake began.
                Some((id, handshake))
                    if same_hello(handshake.state) && handshake.state.answered_seq == seq.wrapping_add(1) =>
                {
                    if handshake.state.receive_seq == handshake.state.answered_seq {
                        handshake.state.answer_repetition(cx.counters);
                        let deadline = handshake.state.deadline();
                        self.peers.schedule(id, deadline);
                    }
                    return Ok(0);
                }
                Some((_, handshake)) if R::SIMULTANEOUS && handshake.is_late(front.random, seq) => {
                    return Err(Discard::Unexpected);
                }
                Some((id, handshake))
                    if R::SIMULTANEOUS && (handshake.association.is_client() || handshake.is_replaced()) =>
                {
                    self.replace_with_fragments(cx, id, seq, front.random);
                }
                other => {
                    let old = other.map(|(id, _)| id);
                    self.place_fragments(cx, path, old, seq, front.random)?;
                }
            }
        }
        let id = self.peers.find(path, Phase::Handshaking).ok_or(Discard::UnknownPeer)?;
        let handshake = &mut self.peers.handshake(id).ok_or(Discard::UnknownPeer)?;
        if !handshake.state.is_putting_together(seq) {
            return Err(Discard::Unexpected);
        }
        let len = match handshake.state.inbox.add(handshake.buffers.incoming, fragment, true) {
            Ok(None) => return Ok(0),
            Ok(Some(len)) => len,
            Err(_) => return Err(Discard::Malformed),
        };
        // The handshake that begins with the ClientHello uses the same entry.
        let mut body = [0; MAX_HELLO];
        let body = body.get_mut(..len).ok_or(Discard::NoRoom)?;
        copy(body, handshake.buffers.incoming.get(..len).unwrap_or(&[])).map_err(|_| Discard::NoRoom)?;
        match R::SIMULTANEOUS && handshake.is_replaced() {
            true => handshake.state.inbox.clear(),
            false => self.peers.remove(id),
        }
        let header = handshake::header(MessageType::CLIENT_HELLO, len as u32, seq, 0, len as u32);
        self.answer_whole_hello(cx, path, record, &Fragment { header: &header, body }, out)
    }

    /// Adds a table entry with a handshake in which a ClientHello is reassembled. Before that, removes the entry `old`.
    fn place_fragments<C>(
        &mut self,
        cx: &mut Cx<'_, C>,
        path: &Path,
        old: Option<PeerId>,
        seq: u16,
        random: &Random,
    ) -> Result<(), Discard> {
        if let Some(id) = old {
            self.peers.remove(id);
        }
        let id = self.insert(cx, &NewPeer::handshaking(path, Rank::Stranger)).map_err(|_| Discard::NoRoom)?;
        let Some(handshake) = &mut self.peers.handshake(id) else { return Err(Discard::NoRoom) };
        handshake.state.accept_fragments(cx.now, &self.settings, seq, random);
        Ok(())
    }

    /// Answers a whole ClientHello, which arrived in one fragment or was reassembled.
    #[inline]
    fn answer_whole_hello<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        path: &Path,
        record: &Record<'_>,
        fragment: &Fragment<'_>,
        out: &mut [u8],
    ) -> Result<usize, Discard> {
        let hello = ClientHello::read(fragment.body, R::RECORD_SIZE).map_err(|_| Discard::Malformed)?;
        // A client that shows a valid ticket needs no cookie, so none is computed for it.
        if R::RESUMPTION
            && hello.cookie.is_empty()
            && let Some(outcome) = self.on_hello_to_resume(cx, path, record, (fragment, &hello), false, out)
        {
            return outcome;
        }
        let generation = cookie::generation(cx.now, &self.settings);
        let mut cookie = self.cookies.of::<C>(generation, &path.remote, &hello);
        self.bind_cookie::<C>(path, &mut cookie);
        let mut proves = same(&cookie, hello.cookie);
        if R::HELLO_FRAGMENTS {
            // The answer to a first fragment contains the whole cookie of the front, because only the front was known
            // then.
            let [before, ..] = hello.parameters();
            let mut front = self.cookies.of_front::<C>(generation, &path.remote, hello.cookie, before);
            self.bind_cookie::<C>(path, &mut front);
            for (place, byte) in cookie.iter_mut().zip(first_half(&front)) {
                *place = *byte;
            }
            proves = same(&cookie, hello.cookie) || same(&front, hello.cookie);
        }
        // The cookie of a ClientHello that ended our handshake as client was bound to that handshake.
        if !(proves || R::SIMULTANEOUS && self.is_begun(path, fragment, &hello)) {
            bump(&mut cx.counters.cookies_sent);
            return Ok(write_hello_verify_request(record.number(), fragment.message_seq(), &cookie, out).unwrap_or(0));
        }
        if R::RESUMPTION
            && let Some(outcome) = self.on_hello_to_resume(cx, path, record, (fragment, &hello), true, out)
        {
            return outcome;
        }
        self.begin(cx, path, record, (fragment, &hello), None, out)
    }

    /// Processes a ClientHello if it asks to resume a session, and if this is possible. Otherwise returns `None`.
    /// `reachable` is true if the client has proved its address. A client with a valid ticket need not prove its
    /// address, as long as the table still has enough memory for the handshakes of other clients.
    fn on_hello_to_resume<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        path: &Path,
        record: &Record<'_>,
        (fragment, hello): (&Fragment<'_>, &ClientHello<'_>),
        reachable: bool,
        out: &mut [u8],
    ) -> Option<Result<usize, Discard>> {
        let context = HandshakeContext { settings: &self.settings, roles: &self.roles };
        let server = match context.server_of(hello) {
            Ok(server) => server,
            Err(fatal) => return reachable.then(|| Ok(refuse(cx, record, fatal, out))),
        };
        let found = context.find_session(cx, hello, server, reachable);
        let found = found.as_ref().filter(|found| context.can_resume::<C>(hello, &found.session))?;
        // A session with extended master secret is not resumed by a ClientHello without it (RFC 7627, section 5.3).
        if !hello.extensions.extended_master_secret {
            return reachable.then(|| Ok(refuse(cx, record, Fatal::NoExtendedMasterSecret, out)));
        }
        let may_begin = reachable
            || self.is_begun(path, fragment, hello)
            || self.peers.can_spare_handshakes() && self.peers.find(path, Phase::Handshaking).is_none();
        may_begin.then(|| self.begin(cx, path, record, (fragment, hello), Some((found, reachable)), out))
    }

    /// Begins a handshake with a client after its ClientHello. If the client has already begun a handshake with the
    /// same ClientHello, continues that handshake.
    fn begin<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        path: &Path,
        record: &Record<'_>,
        (fragment, hello): (&Fragment<'_>, &ClientHello<'_>),
        session: Option<(&Found, bool)>,
        out: &mut [u8],
    ) -> Result<usize, Discard> {
        if self.began_before(cx, path, fragment, hello)? {
            return Ok(0);
        }
        // renegotiation_info is empty in the first handshake of a connection (RFC 5746, section 3.6).
        if R::RECORD_SIZE && hello.extension(ExtensionType::RENEGOTIATION_INFO).is_some_and(|info| info != [0]) {
            return Ok(refuse(cx, record, Fatal::Renegotiation, out));
        }
        let record_size = match R::RECORD_SIZE && self.settings.profile == Profile::Default {
            true => RecordSize::asked(&hello.extensions),
            false => Ok(RecordSize::UNLIMITED),
        };
        let context = HandshakeContext { settings: &self.settings, roles: &self.roles };
        let server = match context.server_of(hello) {
            Ok(server) => server,
            Err(fatal) => return Ok(refuse(cx, record, fatal, out)),
        };
        let agreed = match session {
            Some((found, _)) if R::RESUMPTION => Agreed::resumed::<C>(&found.session).ok_or(Fatal::NoCommonSuite),
            _ => HandshakeState::acceptable::<C, R>(hello, context, server),
        };
        let (agreed, record_size) = match agreed.and_then(|agreed| Ok((agreed, record_size?))) {
            Ok(agreed) => agreed,
            Err(fatal) => return Ok(refuse(cx, record, fatal, out)),
        };
        let [_, behind_cookie] = hello.around_cookie;
        let ids = if R::CONNECTION_ID { self.asked_for_connection_id(behind_cookie)? } else { None };
        let replaced = self.replaced(path);
        let id = match replaced {
            Some(id) => {
                self.become_server(cx, id);
                id
            }
            None => self.insert(cx, &NewPeer::handshaking(path, Rank::Stranger)).map_err(|_| Discard::NoRoom)?,
        };
        if let Some(ids) = ids {
            self.accept_connection_id(cx, id, ids);
        }
        let context = HandshakeContext { settings: &self.settings, roles: &self.roles };
        if let Some(handshake) = &mut self.peers.handshake(id) {
            if R::RECORD_SIZE {
                handshake.association.record_size = record_size;
            }
            let accepted = handshake.accept(cx, context, record.number(), (fragment, hello), (agreed, server), session);
            if R::KEEPS && accepted.is_err() {
                match replaced {
                    Some(_) => handshake.state.give_up_now(cx.now),
                    None => self.peers.remove(id),
                }
                return Err(Discard::NoRoom);
            }
        }
        Ok(0)
    }

    /// Returns true if a session or a handshake in progress began with this ClientHello. If the client has not answered
    /// our flight of that handshake, this function schedules the flight again. If a handshake in progress began with
    /// another ClientHello of this client, removes that handshake and returns false. An older session on the same path
    /// remains until the new handshake is complete.
    #[inline(always)]
    fn began_before<C>(
        &mut self,
        cx: &mut Cx<'_, C>,
        path: &Path,
        fragment: &Fragment<'_>,
        hello: &ClientHello<'_>,
    ) -> Result<bool, Discard> {
        // The network delayed this copy of the ClientHello with which a session began. The session's last flight may
        // still be needed.
        if let Some(id) = self.peers.find(path, Phase::Established)
            && self.peers.handshake(id).is_some_and(|handshake| handshake.state.client_random == *hello.random)
        {
            return Ok(true);
        }
        if let Some(id) = self.peers.find(path, Phase::Handshaking) {
            let Some(handshake) = &mut self.peers.handshake(id) else { return Err(Discard::UnknownPeer) };
            if handshake.association.is_client() {
                // We are opening a handshake as client on this path.
                let yields = R::SIMULTANEOUS && handshake.yields_to(hello.random);
                return if yields { Ok(false) } else { Err(Discard::Unexpected) };
            }
            if R::SIMULTANEOUS && handshake.is_replaced() && handshake.state.step == Step::AwaitClientHello {
                return Ok(false); // it was reassembled here
            }
            // A ClientHello with another message_seq follows a HelloVerifyRequest, and the handshake starts again.
            let number = fragment.message_seq().wrapping_add(1);
            if R::SIMULTANEOUS && handshake.is_late(hello.random, fragment.message_seq()) {
                return Err(Discard::Unexpected);
            }
            if handshake.state.client_random == *hello.random
                && (!R::RESUMPTION || handshake.state.answered_seq == number)
            {
                // If no message has arrived since, our flight was lost. Otherwise the ClientHello is late.
                if handshake.state.receive_seq == handshake.state.answered_seq
                    && !(R::PUBLIC_KEYS && handshake.state.step.signs())
                {
                    handshake.state.answer_repetition(cx.counters);
                    let deadline = handshake.state.deadline();
                    self.peers.schedule(id, deadline);
                }
                return Ok(true);
            }
            // The client has started another handshake.
            if !R::SIMULTANEOUS || !handshake.is_replaced() {
                self.peers.remove(id);
            }
        }
        Ok(false)
    }
}

/// True if a record begins with a ClientHello in plaintext.
pub(super) fn is_client_hello(record: &Record<'_>) -> bool {
    record.epoch() == 0
        && record.content_type() == ContentType::HANDSHAKE
        && record.body.first() == Some(&MessageType::CLIENT_HELLO.0)
}

/// True if a record holds a fragment of a ClientHello other than the first fragment. The caller has already checked the
/// record with [`is_client_hello`].
pub(super) fn continues_hello(record: &Record<'_>) -> bool {
    record.body.get(6..9).is_some_and(|offset| offset != [0; 3])
}

/// Maximum number of bytes of a ClientHello that this endpoint reassembles.
const MAX_HELLO: usize = 4096;

fn first_half(cookie: &[u8]) -> &[u8] {
    cookie.get(..cookie::COOKIE_LEN / 2).unwrap_or(&[])
}

/// Refuses a handshake. Writes into `out` an alert for the client. Returns the length of the datagram; 0 if there is no
/// alert.
fn refuse<C>(cx: &mut Cx<'_, C>, record: &Record<'_>, fatal: Fatal, out: &mut [u8]) -> usize {
    bump(&mut cx.counters.failed);
    let Some(alert) = fatal.alert() else { return 0 };
    write_plain_alert(record.number(), [alert::FATAL, alert.0], out).unwrap_or(0)
}

/// Writes a HelloVerifyRequest, which answers a ClientHello without a valid cookie. `number` is the number of the
/// record with the ClientHello, and the answer's record gets the same number (RFC 6347, section 4.2.1).
fn write_hello_verify_request(
    number: RecordNumber,
    message_seq: u16,
    cookie: &[u8],
    out: &mut [u8],
) -> Result<usize, Full> {
    let mut body = Writer::new(out.get_mut(MESSAGE_HEADROOM..).ok_or(Full)?);
    hello_verify_request::write(&mut body, cookie)?;
    let body_len = body.len();
    let len = body_len as u32;
    let header = handshake::header(MessageType::HELLO_VERIFY_REQUEST, len, message_seq, 0, len);
    record::write_plain(out, ContentType::HANDSHAKE, number, &header, body_len)
}
