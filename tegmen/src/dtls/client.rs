//! The client side of the handshake (RFC 4279 and RFC 5246, section 7.3, over RFC 6347). With a pre-shared key, the
//! flights are:
//!
//! * Client: ClientHello.
//! * Server: HelloVerifyRequest.
//! * Client: ClientHello with the cookie.
//! * Server: ServerHello, ServerKeyExchange (optional), ServerHelloDone.
//! * Client: ClientKeyExchange, ChangeCipherSpec, Finished.
//! * Server: ChangeCipherSpec, Finished.

use super::connection_id::{self, Hello};
use super::context::HandshakeContext;
use super::element::Element;
use super::handshake::certificate::CertificateType;
use super::handshake::certificate_request::CertificateRequest;
use super::handshake::client_hello::{self, DEFAULT_OFFER, MINIMAL_OFFER};
use super::handshake::extension::{self, ExtensionType};
use super::handshake::server_hello::ServerHello;
use super::handshake::server_key_exchange::ServerKeyExchange;
use super::handshake::{self, MessageType, certificate, hello_verify_request, key_exchange};
use super::need::{Answer, MAX_PSK};
use super::offer::{Offer, is_said};
use super::outcome::Outcome;
use super::parts::Parts;
use super::public_key::{certificate_type, content_of, credentials, hash_ahead};
use super::record::HAS_LONG_KEYS;
use super::record_size::RecordSize;
use super::resumption::Resumption as _;
use super::roles::{Keys as _, Roles};
use super::scratch::{self, Item};
use super::state::{Flags, Handshake, HandshakeState, NO_CREDENTIAL, Step};
use super::suite::Suites;
use super::{Fatal, Settings, VERSION};
use crate::buf::{Full, Writer};
use crate::counters::Discard;
use crate::crypto::{Crypto, NamedGroup};
use crate::cx::Cx;

/// Maximum number of HelloVerifyRequests that a client answers in one handshake. A second HelloVerifyRequest can be
/// genuine, because the server may change its cookie key. The limit is necessary because an attacker could send
/// HelloVerifyRequests without end.
const MAX_HELLO_VERIFY_REQUESTS: u8 = 3;

impl HandshakeState {
    /// Begins a handshake as client. The first ClientHello is then due at once.
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
        // Neither the first ClientHello nor the HelloVerifyRequest is part of the transcript (RFC 6347, section 4.2.1).
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
                // The ClientHello may have to be sent again until the server's flight is complete.
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
            (Step::AwaitServerCertificate, MessageType::CERTIFICATE) if R::PUBLIC_KEYS && !R::CERTIFICATES_IN_PARTS => {
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
                // The time in which the owner of the endpoint finds the key has no separate limit. Only the whole
                // handshake has a time limit.
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

    /// Stores a PSK identity hint in the outgoing buffer after the cookie of our ClientHello. The cookie is needed if
    /// the ClientHello has to be sent again. If the buffer is too short for both, the hint replaces the cookie. Then a
    /// repeated ClientHello has no cookie, but a server that has begun the handshake recognizes it by the message_seq.
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
        if R::RECORD_SIZE && extension::renegotiates(hello.extension_list) {
            return Err(Fatal::Renegotiation);
        }
        let suite = hello.cipher_suite;
        let offered = context.offers::<C>(suite) && hello.compression_method == 0;
        if !offered && (R::RESUMED.0.is_empty() || !self.resumes_only::<C, R>(context, hello)?) {
            return Err(Fatal::IllegalParameter);
        }
        if C::AES_128_GCM.is_some() || R::KEEPS {
            (self.state.exchange, self.state.cipher) = suite.parts_in::<C>().ok_or(Fatal::IllegalParameter)?;
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
            let resumed = R::RESUMPTION && self.state.flags.has(Flags::RESUMED);
            self.association.record_size = RecordSize::answered(&answered, limit, resumed)?;
        }
        self.state.server_random = *hello.random;
        self.state.extended_master_secret = answered.extended_master_secret;
        Ok(())
    }

    /// Processes the server's answer to our offer of a connection id.
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

    /// Client: processes the extensions of a ServerHello that concern public keys, tickets and encrypt-then-MAC.
    pub(crate) fn on_answered_extensions<R: Roles>(
        &mut self,
        context: HandshakeContext<'_, R>,
        extensions: &[u8],
    ) -> Result<(), Fatal> {
        let offered = self.state.minimal;
        let keys = context.roles.keys();
        for (kind, data) in extension::each(extensions) {
            // The server may agree only to a suite with a separate MAC (RFC 7366, section 3).
            if HAS_LONG_KEYS && kind == ExtensionType::ENCRYPT_THEN_MAC && data.is_empty() {
                let cipher = self.state.cipher.with_encrypt_then_mac();
                self.state.cipher = cipher.ok_or(Fatal::UnsupportedExtension)?;
                continue;
            }
            match kind {
                ExtensionType::EXTENDED_MASTER_SECRET | ExtensionType::RENEGOTIATION_INFO => {}
                ExtensionType::RECORD_SIZE_LIMIT | ExtensionType::MAX_FRAGMENT_LENGTH if R::RECORD_SIZE => {}
                // `on_connection_id` handles these extensions.
                ExtensionType::CONNECTION_ID | ExtensionType::RRC if R::CONNECTION_ID => {}
                _ if offered => return Err(Fatal::UnsupportedExtension),
                ExtensionType::SESSION_TICKET if R::RESUMPTION && context.roles.resumption().takes_tickets() => {
                    if !data.is_empty() {
                        return Err(Fatal::Decode);
                    }
                    self.state.flags.set(Flags::TICKET, true);
                }
                _ if !R::PUBLIC_KEYS => return Err(Fatal::UnsupportedExtension),
                ExtensionType::EC_POINT_FORMATS if !extension::has_uncompressed(data) => {
                    return Err(Fatal::IllegalParameter);
                }
                ExtensionType::EC_POINT_FORMATS => {}
                ExtensionType::SERVER_NAME if !keys.server_name().is_empty() || self.names_server::<R>() => {
                    match data {
                        [] => {}
                        _ => return Err(Fatal::Decode),
                    }
                }
                ExtensionType::SERVER_CERTIFICATE_TYPE => {
                    let raw = chooses_raw(keys.peer_types(), data)?;
                    self.state.flags.set(Flags::RAW_SERVER, raw);
                }
                ExtensionType::CLIENT_CERTIFICATE_TYPE => {
                    let raw = chooses_raw(context.own_types(), data)?;
                    self.state.flags.set(Flags::RAW_CLIENT, raw);
                }
                _ => return Err(Fatal::UnsupportedExtension),
            }
        }
        let raw = self.state.flags.has(Flags::RAW_SERVER);
        let shown = self.state.exchange.has_certificate() && !self.state.flags.has(Flags::RESUMED);
        match shown && !keys.peer_types().contains(&certificate_type(raw)) {
            true => Err(Fatal::IllegalParameter),
            false => Ok(()),
        }
    }

    /// Client: stores the name of the server for the server_name extension of our ClientHello.
    pub(crate) fn name_server(&mut self, name: &[u8]) -> Result<(), Full> {
        self.put(Item::ServerName, name).map_err(|_| Full)
    }

    /// True if a name for the server_name extension is stored.
    fn names_server<R: Roles>(&self) -> bool {
        R::ON_HOST && !scratch::get(self.buffers.outgoing, Item::ServerName).is_empty()
    }

    /// Client: processes the ServerKeyExchange, which contains the key share of the server. If the server has a
    /// certificate, the message also contains the server's signature of the share.
    pub(crate) fn on_server_key_exchange<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        body: &[u8],
    ) -> Result<(), Fatal> {
        let psk = !self.state.exchange.has_certificate();
        let message = ServerKeyExchange::read(body, psk).map_err(|_| Fatal::Decode)?;
        if !C::GROUPS.contains(&message.group) {
            return Err(Fatal::IllegalParameter);
        }
        if let Some((scheme, signature)) = message.signature {
            if scheme != self.state.exchange.scheme() {
                return Err(Fatal::IllegalParameter);
            }
            let digest = self.digest_of_parameters::<C>(&[message.parameters]);
            let key = scratch::get(self.buffers.outgoing, Item::PeerKey);
            cx.crypto.verify(scheme, key, &digest, signature).map_err(|_| Fatal::BadSignature)?;
            scratch::forget(self.buffers.outgoing, Item::PeerKey);
        } else {
            self.keep_hint::<R>(message.hint)?;
        }
        self.state.flags.set(Flags::X25519, message.group == NamedGroup::X25519);
        self.put(Item::PeerShare, message.share)
    }

    /// Client: chooses the first of its credentials that the server accepts. If there is none, the client sends an
    /// empty Certificate.
    pub(crate) fn on_certificate_request<R: Roles>(
        &mut self,
        context: HandshakeContext<'_, R>,
        body: &[u8],
    ) -> Result<(), Fatal> {
        let request = CertificateRequest::read(body).map_err(|_| Fatal::Decode)?;
        let wanted = certificate_type(self.state.flags.has(Flags::RAW_CLIENT));
        let mut suitable = credentials(context, 0)
            .filter(|(_, credential)| credential.certificate_type == wanted && request.accepts(credential.scheme));
        self.state.credential = suitable.next().map_or(NO_CREDENTIAL, |(number, _)| number);
        self.state.flags.set(Flags::ASKED, true);
        Ok(())
    }

    /// Client: answers the server's flight in a handshake with an ephemeral key agreement. Computes the shared secret,
    /// and derives the keys. After that, either our flight is due, or the owner of the endpoint must first sign.
    pub(crate) fn answer_server<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        context: HandshakeContext<'_, R>,
        psk: Option<&[u8]>,
    ) -> Result<(), Outcome> {
        let private = self.draw(cx)?;
        self.agree(cx, &private, None)?;
        scratch::forget(self.buffers.outgoing, Item::PeerShare);
        self.begin_answer::<C, R>(context);
        let room = &*self.buffers.outgoing;
        let share = scratch::get(room, Item::Share);
        let share_len = [share.len() as u8];
        let identity = room.get(..self.state.outgoing_len.into()).unwrap_or(&[]);
        let identity_len = (identity.len() as u16).to_be_bytes();
        let all: [&[u8]; 4] = [&identity_len, identity, &share_len, share];
        let parts = if psk.is_some() { &all[..] } else { all.get(2..).unwrap_or(&[]) };
        let asked = self.state.flags.has(Flags::ASKED);
        hash_ahead::<C>(self.state, MessageType::CLIENT_KEY_EXCHANGE, asked.into(), parts);
        self.end_answer(cx, |handshake, cx| handshake.derive_keys_agreed::<C, R>(cx, psk, true))
    }

    /// Client: begins its flight. The flight begins with the Certificate if the server asked for a certificate. The
    /// session hash covers Certificate and ClientKeyExchange, so both are added to the transcript before they are
    /// written.
    #[inline]
    pub(crate) fn begin_answer<C: Crypto, R: Roles>(&mut self, context: HandshakeContext<'_, R>) {
        let asked = self.state.flags.has(Flags::ASKED);
        self.state.start_flight::<R>(if asked { Element::ClientCertificate } else { Element::ClientKeyExchange });
        if asked {
            let content = content_of(context, 0, self.state.credential);
            let len = (content.len() as u32).to_be_bytes();
            hash_ahead::<C>(self.state, MessageType::CERTIFICATE, 0, &[len.get(1..).unwrap_or(&[]), content]);
        }
    }

    /// Client: adds its ClientKeyExchange to the transcript.
    pub(crate) fn hash_key_exchange<C: Crypto>(&mut self, parts: &[&[u8]]) {
        let asked = self.state.flags.has(Flags::ASKED);
        hash_ahead::<C>(self.state, MessageType::CLIENT_KEY_EXCHANGE, asked.into(), parts);
    }

    /// Client: derives the keys. After that, either our flight is due, or the owner of the endpoint must first sign.
    #[inline]
    pub(crate) fn end_answer<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        derive_keys: impl FnOnce(&mut Self, &mut Cx<'_, C>),
    ) -> Result<(), Outcome> {
        let asked = self.state.flags.has(Flags::ASKED);
        let signs = asked && self.state.credential != NO_CREDENTIAL;
        self.state.hashed = if signs { Element::CertificateVerify } else { Element::ChangeCipherSpec };
        // CertificateVerify signs the transcript up to this point (RFC 5246, section 7.4.8).
        let digest = self.state.transcript.digest_so_far::<C>();
        derive_keys(self, cx);
        if signs {
            return self.ask_to_sign(Step::ClientSigns, &digest);
        }
        self.state.step = Step::AwaitServerChangeCipherSpec;
        Ok(())
    }

    /// Client: asks the owner of the endpoint to draw a premaster secret, and to encrypt this secret to the server's
    /// key.
    pub(crate) fn ask_to_encrypt(&mut self) -> Result<(), Outcome> {
        self.state.step = Step::ClientEncrypts;
        self.state.deadline = self.state.give_up;
        Err(Outcome::Need)
    }

    /// Client: processes the answer of the endpoint's owner, which contains the premaster secret and its encrypted
    /// form. After that, either our flight is due, or the owner must first sign.
    pub(crate) fn on_encrypted<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        context: HandshakeContext<'_, R>,
        answer: Answer<'_>,
    ) -> Result<(), Outcome> {
        let Answer::Encrypted { premaster, encrypted } = answer else { return Err(Fatal::NoCredentials.into()) };
        scratch::forget(self.buffers.outgoing, Item::PeerKey);
        self.put(Item::EncryptedPremaster, encrypted)?;
        self.begin_answer::<C, R>(context);
        self.hash_key_exchange::<C>(&[&(encrypted.len() as u16).to_be_bytes(), encrypted]);
        self.end_answer(cx, |handshake, cx| handshake.derive_keys_from::<C, R>(cx, &[premaster.expose()], true))
    }
}

impl<'p> Parts<'p> {
    /// Writes the body of our ClientHello into `body`, except its last part, and returns the last part. If the bytes
    /// after the cookie are constant, the last part consists of these bytes. If not, the last part is empty.
    #[inline(always)]
    pub(crate) fn write_client_hello<C: Crypto, R: Roles>(
        &self,
        context: HandshakeContext<'_, R>,
        body: &mut Writer<'_>,
    ) -> Result<&'static [u8], Full> {
        client_hello::write_front(body, &self.state.client_random, self.session_id, self.text)?;
        if self.state.minimal {
            return Ok(&MINIMAL_OFFER);
        }
        if C::AES_128_GCM.is_none() && !R::RECORD_SIZE && !R::KEEPS {
            return Ok(&DEFAULT_OFFER);
        }
        let ticket = if R::RESUMPTION { context.ticket_to_show(self.room) } else { None };
        let mut ids = [0; connection_id::EXTENSIONS_LEN];
        let more = self.connection_id_extensions::<R>(&mut ids)?;
        let server_name = match R::ON_HOST {
            true if let name = scratch::get(self.room, Item::ServerName)
                && !name.is_empty() =>
            {
                name
            }
            _ => context.roles.keys().server_name(),
        };
        let mut offer = Offer { ticket, server_name, ..context.offer::<C>(more) };
        if let Some(only) = context.suite_to_resume::<C>(self.room) {
            let only = R::RESUMED.0.iter().position(|suite| *suite == only).and_then(|at| R::RESUMED.0.get(at..=at));
            (offer.suites, offer.usable) = (Suites(only.unwrap_or(&[])), |_| true);
        }
        offer.write::<R>(body)?;
        Ok(&[])
    }

    /// Writes the body of our ClientKeyExchange into `body`, except its last part, and returns the last part. The last
    /// part is the PSK identity if the key exchange uses only a pre-shared key. If not, the last part is empty.
    #[inline(always)]
    pub(crate) fn write_client_key_exchange<R: Roles>(&self, body: &mut Writer<'_>) -> Result<&'p [u8], Full> {
        let identity = self.text;
        if R::PUBLIC_KEYS && self.state.exchange.is_ephemeral() {
            if !self.state.exchange.has_certificate() {
                key_exchange::write(body, identity)?;
            }
            body.with_len8(scratch::get(self.room, Item::Share))?;
            return Ok(&[]);
        }
        if R::PUBLIC_KEYS && self.state.exchange.is_rsa() {
            key_exchange::write(body, scratch::get(self.room, Item::EncryptedPremaster))?;
            return Ok(&[]);
        }
        key_exchange::write_len(body, identity)?;
        Ok(identity)
    }
}

/// Returns true if the server chose raw public keys. `answer` is the content of the server's extension: it must be one
/// of the types in `offered` (RFC 7250, section 4.2).
fn chooses_raw(offered: &[CertificateType], answer: &[u8]) -> Result<bool, Fatal> {
    if !is_said(offered) {
        return Err(Fatal::UnsupportedExtension);
    }
    let [chosen] = *answer else { return Err(Fatal::Decode) };
    match offered.contains(&CertificateType(chosen)) {
        true => Ok(chosen == CertificateType::RAW_PUBLIC_KEY.0),
        false => Err(Fatal::IllegalParameter),
    }
}
