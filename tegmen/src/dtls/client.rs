//! Client side of the handshake (RFC 4279 over RFC 6347); `public_key` extends it.
//!
//! ClientHello -> HelloVerifyRequest -> ClientHello(cookie) -> ServerHello, [ServerKeyExchange], ServerHelloDone
//! -> ClientKeyExchange, ChangeCipherSpec, Finished -> ChangeCipherSpec, Finished

use super::connection_id::Hello;
use super::flight::Element;
use super::handshake::server_hello::ServerHello;
use super::handshake::{self, MessageType, certificate, hello_verify_request, key_exchange};
use super::need::{Answer, MAX_PSK};
use super::record_size::RecordSize;
use super::state::{Flags, Handshake, HandshakeContext, HandshakeState, Outcome, Step};
use super::{Fatal, Settings, VERSION};
use crate::counters::Discard;
use crate::crypto::Crypto;
use crate::cx::Cx;
use crate::dtls::roles::Roles;

/// HelloVerifyRequests that are followed in one handshake: the server's key may change meanwhile, but not for ever.
const MAX_HELLO_VERIFY_REQUESTS: u8 = 3;

impl HandshakeState {
    /// Begins a handshake as client; the first hello is due at once.
    pub(crate) fn connect<C: Crypto>(&mut self, cx: &mut Cx<'_, C>, settings: &Settings) {
        self.begin(Step::AwaitHelloVerifyRequest, Element::ClientHello, cx.now, settings);
        cx.crypto.random(&mut self.client_random);
    }
}

impl Handshake<'_> {
    pub(crate) fn on_hello_verify_request<R: Roles>(&mut self, message_seq: u16, body: &[u8]) -> Result<(), Outcome> {
        let cookie = hello_verify_request::read(body).map_err(|_| Discard::Malformed)?;
        self.state.failures = self.state.failures.saturating_add(1);
        if self.state.failures > MAX_HELLO_VERIFY_REQUESTS {
            return Err(Discard::Unexpected.into());
        }
        self.keep::<R>(cookie)?;
        self.state.cookie_len = self.state.outgoing_len;
        // Neither the first hello nor the request is part of the handshake that is hashed (RFC 6347, section 4.2.1).
        self.state.transcript.restart();
        self.state.step = Step::AwaitServerHello;
        self.state.receive_seq = message_seq.wrapping_add(1);
        self.state.start_flight::<R>(Element::ClientHello);
        self.state.hello_number = self.state.next_sequence as u16;
        Ok(())
    }

    pub(crate) fn on_server_message<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        context: HandshakeContext<'_, R>,
        kind: MessageType,
        body: &[u8],
    ) -> Result<(), Outcome> {
        match (self.state.step, kind) {
            (Step::AwaitHelloVerifyRequest | Step::AwaitServerHello, MessageType::SERVER_HELLO) => {
                let hello = ServerHello::read(body, R::RECORD_SIZE).map_err(|_| Fatal::Decode)?;
                self.on_server_hello::<C, R>(context, &hello)?;
                if R::CONNECTION_ID {
                    self.on_connection_id(body)?;
                }
                // The hello may have to be sent again until the flight is whole.
                if R::RESUMPTION && self.is_resumed(cx, &hello)? {
                    return Ok(());
                }
                self.state.step = match self.state.exchange {
                    exchange if R::PUBLIC_KEYS && exchange.has_certificate() => Step::AwaitServerCertificate,
                    exchange if R::PUBLIC_KEYS && exchange.is_ephemeral() => Step::AwaitServerKeyExchange,
                    _ => Step::AwaitServerHelloDone,
                };
                Ok(())
            }
            (Step::AwaitServerCertificate, MessageType::CERTIFICATE) if R::PUBLIC_KEYS => {
                if certificate::read(body).map_err(|_| Fatal::Decode)?.is_empty() {
                    return Err(Fatal::Decode.into());
                }
                self.state.step = Step::ClientVerifies;
                self.state.deadline = self.state.give_up;
                Err(Outcome::Need)
            }
            (Step::AwaitServerKeyExchange, MessageType::SERVER_KEY_EXCHANGE) if R::PUBLIC_KEYS => {
                self.on_server_key_exchange::<C, R>(cx, body)?;
                self.state.step = Step::AwaitServerHelloDone;
                Ok(())
            }
            (Step::AwaitServerHelloDone, MessageType::CERTIFICATE_REQUEST)
                if R::PUBLIC_KEYS && self.state.exchange.has_certificate() && !self.state.flags.has(Flags::ASKED) =>
            {
                Ok(self.on_certificate_request(context, body)?)
            }
            (Step::AwaitServerHelloDone, MessageType::SERVER_KEY_EXCHANGE)
                if !R::PUBLIC_KEYS || self.state.exchange.is_psk() =>
            {
                let hint = key_exchange::read(body).map_err(|_| Fatal::Decode)?;
                Ok(self.keep_hint::<R>(hint)?)
            }
            (Step::AwaitServerHelloDone, MessageType::SERVER_HELLO_DONE) => {
                if !body.is_empty() {
                    return Err(Fatal::Decode.into());
                }
                if R::RESUMPTION {
                    self.settle_session_id();
                }
                if R::PUBLIC_KEYS && self.state.exchange.has_certificate() {
                    (self.state.cookie_len, self.state.outgoing_len) = (0, 0);
                    return match self.state.exchange.is_rsa() {
                        true => self.ask_to_encrypt(),
                        false => self.answer_server(cx, context, None),
                    };
                }
                self.state.step = Step::ClientNeedsPsk;
                // The lookup may take its time; only the handshake as a whole has a limit.
                self.state.deadline = self.state.give_up;
                Err(Outcome::Need)
            }
            (Step::AwaitServerChangeCipherSpec, MessageType::NEW_SESSION_TICKET) if R::RESUMPTION => {
                Ok(self.on_new_session_ticket(body)?)
            }
            (Step::AwaitServerFinished, MessageType::FINISHED) if R::RESUMPTION => self.on_last_but_one::<R>(),
            (Step::AwaitServerFinished, MessageType::FINISHED) => Err(Outcome::Established),
            (_, unexpected) => Err(Fatal::UnexpectedMessage(unexpected).into()),
        }
    }

    /// Keeps a hint behind the cookie of our hello, which may have to be sent again; where there is no room for both, in its
    /// place. A server that has begun a handshake knows the hello by its number.
    pub(crate) fn keep_hint<R: Roles>(&mut self, hint: &[u8]) -> Result<(), Fatal> {
        self.keep_behind::<R>(self.state.cookie_len, hint).or_else(|_| self.keep::<R>(hint))
    }

    fn on_server_hello<C: Crypto, R: Roles>(
        &mut self,
        context: HandshakeContext<'_, R>,
        hello: &ServerHello<'_>,
    ) -> Result<(), Fatal> {
        if hello.version != VERSION {
            return Err(Fatal::Version);
        }
        let suite = hello.cipher_suite;
        let offered = context.offers::<C>(suite) && hello.compression_method == 0;
        if !offered {
            return Err(Fatal::IllegalParameter);
        }
        if C::AES_128_GCM.is_some() || R::KEEPS {
            (self.state.exchange, self.state.cipher) = suite.parts().ok_or(Fatal::IllegalParameter)?;
        }
        if R::RESUMPTION {
            let resumed = self.echoes(hello.session_id);
            self.state.flags.set(Flags::RESUMED, resumed);
        }
        let offered = !self.state.minimal;
        let answered = hello.extensions;
        if R::KEEPS {
            self.on_answered_extensions(context, hello.extension_list)?;
        }
        if !R::KEEPS && answered.other || !offered && (answered.extended_master_secret || answered.renegotiation_info) {
            return Err(Fatal::UnsupportedExtension);
        }
        if R::RECORD_SIZE {
            let limit = if offered { context.roles.record_size_limit() } else { 0 };
            self.association.record_size = RecordSize::answered(&answered, limit)?;
        }
        self.state.server_random = *hello.random;
        self.state.extended_master_secret = answered.extended_master_secret;
        Ok(())
    }

    /// Handles the answer of the server to the offer of a connection id.
    fn on_connection_id(&mut self, hello: &[u8]) -> Result<(), Fatal> {
        let answer = Hello::of_server(hello).map_err(|_| Fatal::Decode)?;
        match &mut self.ids {
            Some(ids) => ids.answered(&answer),
            None if answer == Hello::default() => Ok(()),
            None => Err(Fatal::UnsupportedExtension),
        }
    }

    pub(crate) fn resume_client<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        context: HandshakeContext<'_, R>,
        answer: Answer<'_>,
    ) -> Result<(), Outcome> {
        let Answer::Psk { identity, key, principal } = answer else { return Err(Fatal::NoCredentials.into()) };
        if key.is_empty() || key.len() > MAX_PSK {
            return Err(Fatal::NoCredentials.into());
        }
        self.keep::<R>(identity)?;
        self.association.principal = principal;
        if R::PUBLIC_KEYS && self.state.exchange.is_ephemeral() {
            return self.answer_server(cx, context, Some(key));
        }
        self.state.start_flight::<R>(Element::ClientKeyExchange);
        // ClientKeyExchange belongs to the session hash, and so is hashed before it is written.
        let body_len = (identity.len() as u32).saturating_add(2);
        let kind = MessageType::CLIENT_KEY_EXCHANGE;
        let transcript = &mut self.state.transcript;
        transcript.update::<C>(&handshake::header(kind, body_len, self.state.flight_seq, 0, body_len));
        transcript.update::<C>(&(identity.len() as u16).to_be_bytes());
        transcript.update::<C>(identity);
        self.state.hashed = Element::ChangeCipherSpec;
        self.derive_keys::<C, R>(cx, key, true);
        self.state.step = Step::AwaitServerChangeCipherSpec;
        Ok(())
    }
}
