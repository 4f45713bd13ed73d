//! A ClientHello: where a stranger is answered without state, and a handshake begins.

use super::{Cx, Endpoint, NewPeer, Path, Peers, Phase, Rank, Roles, write_plain_alert};
use crate::buf::{Full, Reader, Writer};
use crate::counters::bump;
use crate::crypto::Crypto;
use crate::dtls::cookie;
use crate::dtls::flight::MESSAGE_HEADROOM;
use crate::dtls::handshake::client_hello::ClientHello;
use crate::dtls::handshake::{self, Fragment, MessageType, hello_verify_request};
use crate::dtls::public_key::Agreed;
use crate::dtls::record::{self, ContentType, Record, RecordNumber};
use crate::dtls::record_size::RecordSize;
use crate::dtls::resumption::Found;
use crate::dtls::state::{Local, Step};
use crate::dtls::{Discard, Fatal, HandshakeState, Profile, alert};
use crate::secret::same;

impl<P: Peers, R: Roles> Endpoint<P, R> {
    /// True if a handshake goes on that began with this very hello.
    fn is_begun(&mut self, path: &Path, fragment: &Fragment<'_>, hello: &ClientHello<'_>) -> bool {
        let Some(id) = self.peers.find(path, Phase::Handshaking) else { return false };
        let number = fragment.message_seq().wrapping_add(1);
        self.peers
            .ongoing(id)
            .is_some_and(|ongoing| ongoing.state.client_random == *hello.random && ongoing.state.answered_seq == number)
    }

    /// A ClientHello: the length of an answer in `out`, 0 if there is none.
    #[inline(never)]
    pub(super) fn on_client_hello<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        path: &Path,
        record: &Record<'_>,
        out: &mut [u8],
    ) -> usize {
        self.answer_hello(cx, path, record, out).unwrap_or_else(|discard| {
            cx.counters.discard(discard);
            0
        })
    }

    /// Without state until a cookie proves the address (RFC 6347, section 4.2.1).
    fn answer_hello<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        path: &Path,
        record: &Record<'_>,
        out: &mut [u8],
    ) -> Result<usize, Discard> {
        let mut reader = Reader::new(record.body);
        let fragment = Fragment::read(&mut reader).map_err(|_| Discard::Malformed)?;
        // Without state there is nothing to put fragments together in.
        if !fragment.is_whole() || !reader.is_empty() {
            return Err(Discard::Malformed);
        }
        let hello = ClientHello::read(fragment.body, R::RECORD_SIZE).map_err(|_| Discard::Malformed)?;
        // Who shows a ticket that opens needs no cookie, and none is made for him.
        if R::RESUMPTION
            && hello.cookie.is_empty()
            && let Some(outcome) = self.on_hello_to_resume(cx, path, record, (&fragment, &hello), false, out)
        {
            return outcome;
        }
        let generation = cookie::generation(cx.now, &self.settings);
        let cookie = self.cookies.of::<C>(generation, &path.remote, &hello);
        if !same(&cookie, hello.cookie) {
            bump(&mut cx.counters.cookies_sent);
            return Ok(write_hello_verify_request(record.number(), fragment.message_seq(), &cookie, out).unwrap_or(0));
        }
        if R::RESUMPTION
            && let Some(outcome) = self.on_hello_to_resume(cx, path, record, (&fragment, &hello), true, out)
        {
            return outcome;
        }
        self.begin(cx, path, record, (&fragment, &hello), None, out)
    }

    /// A hello that wants to resume a session: `None` if it does not, or cannot. With a ticket that opens it need not prove
    /// its address as long as there is room for others, who do not have one.
    fn on_hello_to_resume<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        path: &Path,
        record: &Record<'_>,
        (fragment, hello): (&Fragment<'_>, &ClientHello<'_>),
        reachable: bool,
        out: &mut [u8],
    ) -> Option<Result<usize, Discard>> {
        let local = Local { settings: &self.settings, roles: &self.roles };
        match local.find_session(cx, hello, reachable) {
            Ok(found) => {
                let found = found?;
                let may_begin = reachable
                    || self.is_begun(path, fragment, hello)
                    || self.peers.can_spare_handshakes() && self.peers.find(path, Phase::Handshaking).is_none();
                may_begin.then(|| self.begin(cx, path, record, (fragment, hello), Some((&found, reachable)), out))
            }
            Err(fatal) => reachable.then(|| Ok(refuse(cx, record, fatal, out))),
        }
    }

    /// Begins a handshake with a client whose hello may be answered, or goes on with one that it began before.
    fn begin<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        path: &Path,
        record: &Record<'_>,
        (fragment, hello): (&Fragment<'_>, &ClientHello<'_>),
        session: Option<(&Found, bool)>,
        out: &mut [u8],
    ) -> Result<usize, Discard> {
        // A late copy of the hello that a session began with, whose last flight may still be asked for.
        if let Some(id) = self.peers.find(path, Phase::Established)
            && self.peers.ongoing(id).is_some_and(|ongoing| ongoing.state.client_random == *hello.random)
        {
            return Ok(0);
        }
        if let Some(id) = self.peers.find(path, Phase::Handshaking) {
            let Some(ongoing) = &mut self.peers.ongoing(id) else { return Err(Discard::UnknownPeer) };
            if ongoing.peer.rank == Rank::Ours {
                return Err(Discard::Unexpected); // we are opening one there ourselves
            }
            // With another number it comes behind a HelloVerifyRequest, and everything begins anew.
            let number = fragment.message_seq().wrapping_add(1);
            if ongoing.state.client_random == *hello.random && (!R::RESUMPTION || ongoing.state.answered_seq == number)
            {
                // Our flight was lost, if nothing came since; else the hello was late.
                if ongoing.state.receive_seq == ongoing.state.answered_seq
                    && !(R::PUBLIC_KEYS && ongoing.state.step.signs())
                {
                    ongoing.state.answer_repetition(cx.counters);
                    let deadline = ongoing.state.deadline();
                    self.peers.schedule(id, deadline);
                }
                return Ok(0);
            }
            // The client began anew.
            self.peers.remove(id);
        }
        let record_size = match R::RECORD_SIZE && self.settings.profile == Profile::Default {
            true => RecordSize::asked(&hello.extensions),
            false => Ok(RecordSize::UNLIMITED),
        };
        let local = Local { settings: &self.settings, roles: &self.roles };
        let agreed = match session {
            Some((found, _)) if R::RESUMPTION => Agreed::resumed(&found.session).ok_or(Fatal::NoCommonSuite),
            _ => HandshakeState::acceptable::<C, R>(hello, local),
        };
        let (agreed, record_size) = match agreed.and_then(|agreed| Ok((agreed, record_size?))) {
            Ok(agreed) => agreed,
            Err(fatal) => return Ok(refuse(cx, record, fatal, out)),
        };
        let [_, behind_cookie] = hello.around_cookie;
        let ids = if R::CONNECTION_ID { self.asked_for_connection_id(behind_cookie)? } else { None };
        let id = self.insert(cx, &NewPeer::handshaking(path, Rank::Stranger)).map_err(|_| Discard::NoRoom)?;
        if let Some(ids) = ids {
            self.accept_connection_id(cx, id, ids);
        }
        let local = Local { settings: &self.settings, roles: &self.roles };
        if let Some(ongoing) = &mut self.peers.ongoing(id) {
            if R::KEEPS {
                ongoing.forget_kept();
            }
            ongoing.state.accept::<C, R>(cx, &self.settings, record.number(), fragment, hello, agreed);
            if R::RECORD_SIZE {
                ongoing.peer.record_size = record_size;
            }
            if R::RESUMPTION
                && let Some((found, reachable)) = session
            {
                let accepted = ongoing.accept_session(cx, local, hello, found, reachable);
                return accepted.map(|()| 0).map_err(|_| {
                    self.peers.remove(id);
                    Discard::NoRoom
                });
            }
            if R::RESUMPTION {
                ongoing.promise(cx, local, hello);
            }
            if R::PUBLIC_KEYS && ongoing.state.exchange.is_ephemeral() {
                // Costly, and so left to the next call of `poll`.
                ongoing.state.step = Step::ServerBegins;
            }
            if R::PUBLIC_KEYS && ongoing.state.exchange.is_rsa() {
                let begun = ongoing.begin_decryption(local, hello.version);
                return begun.map(|()| 0).map_err(|_| {
                    self.peers.remove(id);
                    Discard::NoRoom
                });
            }
        }
        Ok(0)
    }
}

/// Ends what has not begun, and tells the client.
fn refuse<C>(cx: &mut Cx<'_, C>, record: &Record<'_>, fatal: Fatal, out: &mut [u8]) -> usize {
    bump(&mut cx.counters.failed);
    let Some(alert) = fatal.alert() else { return 0 };
    write_plain_alert(record.number(), [alert::FATAL, alert.0], out).unwrap_or(0)
}

/// The answer to a hello without cookie; its record has the number of the hello's (RFC 6347, section 4.2.1).
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
