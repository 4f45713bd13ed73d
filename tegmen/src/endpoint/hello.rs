//! A ClientHello: where a stranger is answered without state, and a handshake begins.

use super::{Cx, Endpoint, NewPeer, Path, Peers, Phase, Rank, Roles, write_plain_alert};
use crate::buf::{Full, Reader, Writer};
use crate::counters::bump;
use crate::crypto::Crypto;
use crate::dtls::cookie;
use crate::dtls::flight::MESSAGE_HEADROOM;
use crate::dtls::handshake::client_hello::ClientHello;
use crate::dtls::handshake::{self, Fragment, MessageType, hello_verify_request};
use crate::dtls::record::{self, ContentType, Record, RecordNumber};
use crate::dtls::record_size::RecordSize;
use crate::dtls::state::{Local, Step};
use crate::dtls::{Discard, HandshakeState, Profile, alert};

impl<P: Peers, R: Roles> Endpoint<P, R> {
    /// A ClientHello: answered without state until its cookie proves the address (RFC 6347, section 4.2.1). The length of
    /// an answer in `out`, 0 if there is none.
    #[inline(never)]
    pub(super) fn on_client_hello<C: Crypto>(
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
        let generation = cookie::generation(cx.now, &self.settings);
        if !self.cookies.is_valid::<C>(generation, &path.remote, &hello) {
            bump(&mut cx.counters.cookies_sent);
            let cookie = self.cookies.make::<C>(generation, &path.remote, &hello);
            return Ok(write_hello_verify_request(record.number(), fragment.message_seq(), &cookie, out).unwrap_or(0));
        }
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
            if ongoing.state.client_random == *hello.random {
                // Our flight was lost, if nothing came since; else the hello was late.
                if ongoing.state.receive_seq == ongoing.state.answered_seq {
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
        let agreed = HandshakeState::acceptable::<C, R>(&hello, local);
        let (agreed, record_size) = match agreed.and_then(|agreed| Ok((agreed, record_size?))) {
            Ok(agreed) => agreed,
            Err(fatal) => {
                bump(&mut cx.counters.failed);
                let Some(alert) = fatal.alert() else { return Ok(0) };
                return Ok(write_plain_alert(record.number(), [alert::FATAL, alert.0], out).unwrap_or(0));
            }
        };
        let [_, behind_cookie] = hello.around_cookie;
        let ids = if R::CONNECTION_ID { self.asked_for_connection_id(behind_cookie)? } else { None };
        let id = self.insert(cx, &NewPeer::handshaking(path, Rank::Stranger)).map_err(|_| Discard::NoRoom)?;
        if let Some(ids) = ids {
            self.accept_connection_id(cx, id, ids);
        }
        if let Some(ongoing) = &mut self.peers.ongoing(id) {
            if R::PUBLIC_KEYS {
                ongoing.forget_kept();
            }
            ongoing.state.accept::<C, R>(cx, &self.settings, record.number(), &fragment, &hello, agreed);
            if R::RECORD_SIZE {
                ongoing.peer.record_size = record_size;
            }
            if R::PUBLIC_KEYS && ongoing.state.exchange.is_ephemeral() {
                // Costly, and so left to the next call of `poll`.
                ongoing.state.step = Step::ServerBegins;
            }
        }
        Ok(0)
    }
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
