//! The server side of the handshake (RFC 4279 and RFC 5246, section 7.3, over RFC 6347).
//!
//! If a ClientHello has no cookie, the endpoint answers with a HelloVerifyRequest, and keeps no state for this
//! ClientHello. With a pre-shared key, the flights after that are:
//!
//! * Client: ClientHello with the cookie.
//! * Server: ServerHello, ServerHelloDone.
//! * Client: ClientKeyExchange, ChangeCipherSpec, Finished.
//! * Server: ChangeCipherSpec, Finished.

use super::connection_id;
use super::context::HandshakeContext;
use super::element::Element;
use super::handshake::client_hello::ClientHello;
use super::handshake::extension::{self, ExtensionType, Extensions, UNCOMPRESSED, has_uncompressed};
use super::handshake::{
    self, Fragment, MessageType, Random, Write, certificate, certificate_request, key_exchange, server_hello,
    server_key_exchange,
};
use super::need::{Answer, MAX_PSK};
use super::outcome::Outcome;
use super::parts::Parts;
use super::public_key::{Agreed, certificate_type, nothing_common};
use super::record::{Cipher, RecordNumber};
use super::record_size::RecordSize;
use super::resumption::Found;
use super::roles::{ClientAuthentication, Keys as _, Roles};
use super::rsa::PREMASTER_LEN;
use super::scratch::{self, Item};
use super::state::{Flags, Handshake, HandshakeState, Step};
use super::{CipherSuite, Fatal, Settings, VERSION};
use crate::buf::{Full, Reader, Writer};
use crate::crypto::{Crypto, MAX_SHARE, SCALAR_LEN};
use crate::cx::Cx;
use crate::identity::Principal;
use crate::secret::Secret;
use crate::time::Instant;

impl HandshakeState {
    /// Begins a handshake as server, after a ClientHello with a valid cookie. Our flight is then due at once.
    pub(crate) fn accept<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        settings: &Settings,
        number: RecordNumber,
        fragment: &Fragment<'_>,
        hello: &ClientHello<'_>,
        agreed: Agreed,
    ) {
        self.begin(Step::AwaitClientKeyExchange, Element::ServerHello, cx.now, settings);
        if C::AES_128_GCM.is_some() || R::KEEPS {
            self.cipher = agreed.cipher;
            if let Some(cipher) = agreed.cipher.with_encrypt_then_mac()
                && hello.extension(ExtensionType::ENCRYPT_THEN_MAC).is_some()
            {
                self.cipher = cipher;
            }
        }
        if R::KEEPS {
            (self.exchange, self.credential, self.flags) = (agreed.exchange, agreed.credential, agreed.flags);
        }
        self.client_random = *hello.random;
        cx.crypto.random(&mut self.server_random);
        self.extended_master_secret = !self.minimal && hello.extensions.extended_master_secret;
        self.renegotiation_info = !self.minimal && hello.signals_renegotiation_info();
        // Our record numbers continue from the client's, as in the stateless answer (RFC 6347, section 4.2.1).
        self.next_sequence = number.sequence();
        self.flight_seq = fragment.message_seq();
        self.receive_seq = fragment.message_seq().wrapping_add(1);
        self.answered_seq = self.receive_seq;
        self.hash_message::<C>(fragment.message_type(), fragment.message_seq(), fragment.body);
    }

    /// Begins to reassemble a ClientHello in a handshake as server, after its first fragment had a valid cookie.
    pub(crate) fn accept_fragments(&mut self, now: Instant, settings: &Settings, message_seq: u16, random: &Random) {
        self.begin(Step::AwaitClientHello, Element::ServerHello, now, settings);
        self.client_random = *random;
        self.receive_seq = message_seq;
        // No flight is due yet.
        (self.element, self.deadline) = (Element::Sent, self.give_up);
    }

    /// Checks the parameters that a ClientHello offers, and chooses the cipher suite.
    pub(crate) fn acceptable<C: Crypto, R: Roles>(
        hello: &ClientHello<'_>,
        context: HandshakeContext<'_, R>,
        server: u32,
    ) -> Result<Agreed, Fatal> {
        // DTLS versions count downwards: DTLS 1.2 is {254, 253}. A later version is answered with 1.2 (RFC 5246,
        // appendix E.1). The versions of TLS are in the lower half of the numbers.
        if hello.version > VERSION || hello.version < [128, 0] {
            return Err(Fatal::Version);
        }
        if !hello.offers_null_compression() {
            return Err(Fatal::IllegalParameter);
        }
        let usable = |suite: &CipherSuite| hello.offers(*suite) && context.offers::<C>(*suite);
        if C::AES_128_GCM.is_none() && !R::PUBLIC_KEYS {
            let agreed = Agreed::psk(Cipher::Ccm8);
            return if hello.offers(agreed.suite()) { Ok(agreed) } else { Err(Fatal::NoCommonSuite) };
        }
        let mut chosen = context.roles.suites(server).0.iter().copied().filter(usable).filter_map(|suite| {
            let (exchange, cipher) = suite.parts()?;
            match R::PUBLIC_KEYS && !exchange.is_psk() {
                true => Agreed::with_public_key::<C, R>(hello, context, server, (exchange, cipher)),
                false => Some(Agreed::psk(cipher)),
            }
        });
        let agreed = chosen.next().ok_or_else(|| match R::PUBLIC_KEYS {
            true => nothing_common::<C, R>(hello, context, server),
            false => Fatal::NoCommonSuite,
        })?;
        // Each list must contain uncompressed points, whichever suite the server chooses (RFC 8422, section 5.1.2).
        let formats = hello.extension(ExtensionType::EC_POINT_FORMATS).filter(|_| R::PUBLIC_KEYS);
        if !formats.is_none_or(has_uncompressed) {
            return Err(Fatal::IllegalParameter);
        }
        Ok(agreed)
    }
}

impl HandshakeState {
    /// Server: processes the empty Certificate message of a client that has no certificate.
    pub(crate) fn on_no_certificate<R: Roles>(&mut self, context: HandshakeContext<'_, R>) -> Result<(), Fatal> {
        if context.roles.keys().client_authentication() == ClientAuthentication::Required {
            return Err(Fatal::NoCertificate);
        }
        self.step = Step::AwaitClientKeyExchange;
        Ok(())
    }
}

impl Handshake<'_> {
    /// Begins a handshake as server, after a ClientHello with a valid cookie. Resumes `session` if it is `Some`.
    #[inline(always)]
    pub(crate) fn accept<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        context: HandshakeContext<'_, R>,
        number: RecordNumber,
        (fragment, hello): (&Fragment<'_>, &ClientHello<'_>),
        (agreed, server): (Agreed, u32),
        session: Option<(&Found, bool)>,
    ) -> Result<(), Fatal> {
        if R::KEEPS {
            self.clear_scratch();
        }
        if R::NAMES {
            self.keep_server(server, hello)?;
        }
        self.state.accept::<C, R>(cx, context.settings, number, fragment, hello, agreed);
        if R::RESUMPTION
            && let Some((found, reachable)) = session
        {
            return self.accept_session(cx, context, hello, found, reachable);
        }
        if R::RESUMPTION {
            self.promise(cx, context, hello);
        }
        if R::PUBLIC_KEYS && self.state.exchange.is_ephemeral() {
            // The key pair takes long to compute, so this is left to the next call of `poll`.
            self.state.step = Step::ServerBegins;
        }
        if R::PUBLIC_KEYS && self.state.exchange.is_rsa() {
            self.begin_decryption(context, hello.version)?;
        }
        Ok(())
    }

    pub(crate) fn on_client_message<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        context: HandshakeContext<'_, R>,
        kind: MessageType,
        body: &[u8],
    ) -> Result<(), Outcome> {
        match (self.state.step, kind) {
            (Step::AwaitClientCertificate, MessageType::CERTIFICATE) if R::PUBLIC_KEYS && !R::CERTIFICATES_IN_PARTS => {
                self.on_client_certificate(context, body)
            }
            (Step::AwaitClientKeyExchange, MessageType::CLIENT_KEY_EXCHANGE)
                if R::PUBLIC_KEYS && self.state.exchange.is_ephemeral() =>
            {
                self.on_client_share::<C, R>(cx, body)
            }
            (Step::AwaitClientKeyExchange, MessageType::CLIENT_KEY_EXCHANGE)
                if R::PUBLIC_KEYS && self.state.exchange.is_rsa() =>
            {
                self.on_encrypted_premaster(body)
            }
            (Step::AwaitCertificateVerify, MessageType::CERTIFICATE_VERIFY) if R::PUBLIC_KEYS => {
                self.state.step = self.after_key_exchange();
                Ok(())
            }
            (Step::AwaitClientKeyExchange, MessageType::CLIENT_KEY_EXCHANGE) => {
                let identity = key_exchange::read(body).map_err(|_| Fatal::Decode)?;
                // An identity that does not fit the buffer belongs to no client, so it is unknown.
                if self.keep::<R>(identity).is_err() {
                    self.state.outgoing_len = 0;
                }
                self.state.step = Step::ServerNeedsPsk;
                self.state.deadline = self.state.give_up;
                Err(Outcome::Need)
            }
            // The flight of the client that ends with this Finished was the last flight of the handshake.
            (Step::AwaitClientFinished, MessageType::FINISHED)
                if R::RESUMPTION && self.state.flags.has(Flags::RESUMED) =>
            {
                Err(Outcome::Established)
            }
            (Step::AwaitClientFinished, MessageType::FINISHED) => {
                if R::ON_HOST && R::KEEPS {
                    self.forget_psks();
                }
                let last = if R::RESUMPTION { self.keep_promise(cx, context) } else { Element::ChangeCipherSpec };
                self.state.start_flight::<R>(last);
                self.state.step = Step::Lingering;
                self.state.inbox.clear();
                Err(Outcome::Established)
            }
            (_, unexpected) => Err(Fatal::UnexpectedMessage(unexpected).into()),
        }
    }

    pub(crate) fn resume_server<C: Crypto, R: Roles>(&mut self, cx: &mut Cx<'_, C>, answer: Answer<'_>) {
        // The random key is drawn in either case, so that a known identity takes no less time than an unknown one.
        let mut random = Secret::<16>::zeroed();
        cx.crypto.random(random.expose_mut());
        let (key, principal): (&[u8], _) = match answer {
            Answer::Psk { key, principal, .. } if is_psk(key) => (key, principal),
            Answer::Psks([first, second]) if R::ON_HOST && is_psk(first.0) && is_psk(second.0) => *first,
            _ => {
                self.state.identity_unknown = true;
                (random.expose(), Principal::NOBODY)
            }
        };
        if R::ON_HOST && R::KEEPS {
            // Without a second key, a random one is tried, so that a failed handshake takes the same time for each
            // identity.
            let none: ClientPsk<'_> = (random.expose(), Principal::NOBODY);
            let second = match answer {
                Answer::Psks([_, second]) if !self.state.identity_unknown => *second,
                _ => none,
            };
            self.keep_psks((key, principal), second);
        }
        self.derive_from_psk::<C, R>(cx, (key, principal));
        self.state.step = self.after_key_exchange();
    }

    /// Server: derives the keys of the session from a pre-shared key of the client. If the key exchange is ephemeral,
    /// the agreed secret is also an input.
    fn derive_from_psk<C: Crypto, R: Roles>(&mut self, cx: &mut Cx<'_, C>, (key, principal): ClientPsk<'_>) {
        self.association.principal = principal;
        let ephemeral = R::PUBLIC_KEYS && self.state.exchange.is_ephemeral();
        if R::ON_HOST {
            even_out::<C>(ephemeral, key.len());
        }
        match ephemeral {
            true => self.derive_keys_agreed::<C, R>(cx, Some(key), false),
            false => self.derive_keys::<C, R>(cx, key, false),
        }
    }

    /// Server: stores the two pre-shared keys that the client may have. The keys of the session are derived from
    /// `first` now, and from `second` if the client does not have `first`. If the two keys do not fit the buffer, the
    /// server does not try `second`.
    fn keep_psks(&mut self, first: ClientPsk<'_>, second: ClientPsk<'_>) {
        let mut packed = Secret::<{ 2 * PACKED_PSK_LEN }>::zeroed();
        for (place, (key, principal)) in packed.expose_mut().chunks_exact_mut(PACKED_PSK_LEN).zip([first, second]) {
            let mut writer = Writer::new(place);
            let _ = writer.u32(principal.0).and_then(|()| writer.u8(key.len() as u8)).and_then(|()| writer.put(key));
        }
        let _ = self.put(Item::Psks, packed.expose());
    }

    /// Server: two pre-shared keys may be valid for a client, such as an old key and the new key that replaces it. This
    /// function derives the keys of the session again, from the second of the two keys. Returns false if
    /// [`Self::keep_psks`] stored no second key.
    pub(crate) fn take_other_psk<C: Crypto, R: Roles>(&mut self, cx: &mut Cx<'_, C>) -> bool {
        let mut packed = Secret::<{ 2 * PACKED_PSK_LEN }>::zeroed();
        let Some(kept) = scratch::get(self.buffers.outgoing, Item::Psks).first_chunk() else { return false };
        *packed.expose_mut() = *kept;
        let (first, second) = packed.expose().split_at(PACKED_PSK_LEN);
        let (Some(first), Some(second)) = (unpack_psk(first), unpack_psk(second)) else { return false };
        self.keep_psks(second, first);
        self.derive_from_psk::<C, R>(cx, second);
        true
    }

    /// Server: removes the two stored pre-shared keys, and the agreed shared secret.
    fn forget_psks(&mut self) {
        scratch::forget(self.buffers.outgoing, Item::Psks);
        scratch::forget(self.buffers.outgoing, Item::Agreed);
    }

    /// Server: returns the next step after the key exchange. At this time the keys are known, and a client with a
    /// certificate has proved that it has the private key. If the client's ChangeCipherSpec already arrived while the
    /// server waited for the owner of the endpoint, the next step is to wait for the Finished.
    pub(crate) const fn after_key_exchange(&self) -> Step {
        match self.state.change_cipher_spec {
            true => Step::AwaitClientFinished,
            false => Step::AwaitClientChangeCipherSpec,
        }
    }

    /// Server: draws the ephemeral key pair of the handshake. If the server has a certificate, the handshake asks the
    /// owner of the endpoint for a signature over the public key of this pair.
    pub(crate) fn begin_exchange<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        context: HandshakeContext<'_, R>,
    ) -> Result<(), Outcome> {
        let private = self.draw(cx)?;
        self.put(Item::Private, private.expose())?;
        if !self.state.exchange.has_certificate() {
            self.send_server_flight(context);
            return Ok(());
        }
        let share = scratch::get(self.buffers.outgoing, Item::Share);
        let mut parameters = [0; MAX_SHARE + 4];
        let mut writer = Writer::new(&mut parameters);
        let written = server_key_exchange::write_parameters(&mut writer, self.state.flags.group(), share);
        written.map_err(|_| Fatal::TooLarge)?;
        let digest = self.digest_of_parameters::<C>(&[writer.written()]);
        self.ask_to_sign(Step::ServerSigns, &digest)
    }

    pub(crate) fn send_server_flight<R: Roles>(&mut self, _: HandshakeContext<'_, R>) {
        self.state.step = match self.state.flags.has(Flags::ASKED) {
            true => Step::AwaitClientCertificate,
            false => Step::AwaitClientKeyExchange,
        };
        self.state.send_flight();
    }

    /// Server: processes the Certificate message of the client. The message is empty if the client has no certificate.
    pub(crate) fn on_client_certificate<R: Roles>(
        &mut self,
        context: HandshakeContext<'_, R>,
        body: &[u8],
    ) -> Result<(), Outcome> {
        let content = certificate::read(body).map_err(|_| Fatal::Decode)?;
        if content.is_empty() {
            return Ok(self.state.on_no_certificate(context)?);
        }
        self.state.step = Step::ServerVerifies;
        self.state.deadline = self.state.give_up;
        Err(Outcome::Need)
    }

    /// Server: processes the key share in the ClientKeyExchange. With a pre-shared key, the PSK identity precedes the
    /// share.
    pub(crate) fn on_client_share<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        body: &[u8],
    ) -> Result<(), Outcome> {
        let psk = !self.state.exchange.has_certificate();
        let mut reader = Reader::new(body);
        let identity = if psk { reader.with_len16().map_err(|_| Fatal::Decode)? } else { &[] };
        let share = reader.with_len8().map_err(|_| Fatal::Decode)?;
        handshake::end(&reader).map_err(|_| Fatal::Decode)?;
        let mut private = Secret::<SCALAR_LEN>::zeroed();
        let kept = scratch::get(self.buffers.outgoing, Item::Private);
        *private.expose_mut() = *kept.first_chunk().ok_or(Fatal::Decode)?;
        scratch::forget(self.buffers.outgoing, Item::Private);
        self.agree(cx, &private, Some(share))?;
        if psk {
            // An identity that does not fit the buffer belongs to no client, so it is unknown.
            if self.keep::<R>(identity).is_err() {
                self.state.outgoing_len = 0;
            }
            self.state.step = Step::ServerNeedsPsk;
            self.state.deadline = self.state.give_up;
            return Err(Outcome::Need);
        }
        self.derive_keys_agreed::<C, R>(cx, None, false);
        self.await_client_proof();
        Ok(())
    }

    /// Server: waits for the CertificateVerify of a client that sent a certificate. For a client without a certificate,
    /// sets the principal to [`Principal::NOBODY`], and continues with the next step.
    pub(crate) fn await_client_proof(&mut self) {
        self.state.step = match self.state.flags.has(Flags::CERTIFIED) {
            true => Step::AwaitCertificateVerify,
            false => {
                self.association.principal = Principal::NOBODY;
                self.after_key_exchange()
            }
        };
    }

    /// Server: processes the CertificateVerify, which proves that the client has the private key of its certificate.
    /// The caller must not have added this message to the transcript yet.
    pub(crate) fn check_certificate_verify<C: Crypto>(&mut self, cx: &mut Cx<'_, C>, body: &[u8]) -> Result<(), Fatal> {
        if self.state.step != Step::AwaitCertificateVerify {
            return Err(Fatal::UnexpectedMessage(MessageType::CERTIFICATE_VERIFY));
        }
        let (scheme, signature) = certificate::read_signature(&mut Reader::new(body)).map_err(|_| Fatal::Decode)?;
        if !certificate_request::asks_for(scheme) {
            return Err(Fatal::IllegalParameter);
        }
        let digest = self.state.transcript.digest_so_far::<C>();
        let key = scratch::get(self.buffers.outgoing, Item::PeerKey);
        cx.crypto.verify(scheme, key, &digest, signature).map_err(|_| Fatal::BadSignature)?;
        scratch::forget(self.buffers.outgoing, Item::PeerKey);
        Ok(())
    }

    /// Server: begins a handshake in which the client will encrypt the premaster secret. Stores the version of the
    /// ClientHello, and begins the server's flight, which needs no signature.
    pub(crate) fn begin_decryption<R: Roles>(
        &mut self,
        context: HandshakeContext<'_, R>,
        version: [u8; 2],
    ) -> Result<(), Fatal> {
        self.put(Item::ClientVersion, &version)?;
        self.send_server_flight(context);
        Ok(())
    }

    /// Server: processes the encrypted premaster secret. The handshake then asks the owner of the endpoint to decrypt
    /// it.
    pub(crate) fn on_encrypted_premaster(&mut self, body: &[u8]) -> Result<(), Outcome> {
        key_exchange::read(body).map_err(|_| Fatal::Decode)?;
        self.state.step = Step::ServerDecrypts;
        self.state.deadline = self.state.give_up;
        Err(Outcome::Need)
    }

    /// Server: continues with the premaster secret in the answer of the endpoint's owner. If the answer has none, uses
    /// a random secret.
    pub(crate) fn on_decrypted<C: Crypto, R: Roles>(&mut self, cx: &mut Cx<'_, C>, answer: Answer<'_>) {
        self.state.inbox.forget_pieces();
        // The random secret is drawn in either case, so that both cases take the same time.
        let mut random = Secret::<PREMASTER_LEN>::zeroed();
        cx.crypto.random(random.expose_mut());
        let premaster = match answer {
            Answer::Premaster(premaster) => premaster,
            _ => &random,
        };
        self.derive_keys_from::<C, R>(cx, &[premaster.expose()], false);
        self.await_client_proof();
    }
}

impl Parts<'_> {
    /// Writes the body of our ServerHello into `body`, except its last part, and returns the last part. If the
    /// extensions are constant bytes, the last part consists of these bytes. If not, the last part is empty.
    #[inline(always)]
    pub(crate) fn write_server_hello<C: Crypto, R: Roles>(
        &self,
        context: HandshakeContext<'_, R>,
        body: &mut Writer<'_>,
    ) -> Result<&'static [u8], Full> {
        let state = &*self.state;
        let (record_size_limit, max_fragment_length) = match R::RECORD_SIZE {
            true => self.association.record_size.answer(context.roles.record_size_limit()),
            false => (None, None),
        };
        let extensions = Extensions {
            extended_master_secret: state.extended_master_secret,
            renegotiation_info: state.renegotiation_info,
            record_size_limit,
            max_fragment_length,
            other: false,
        };
        let suite = match C::AES_128_GCM.is_some() || R::KEEPS {
            true => CipherSuite::of(state.exchange, state.cipher),
            false => CipherSuite::PSK_WITH_AES_128_CCM_8,
        };
        server_hello::write_front(body, &state.server_random, self.session_id, suite)?;
        let answers = R::PUBLIC_KEYS && !state.exchange.is_psk() && !state.flags.has(Flags::RESUMED);
        let ticket = R::RESUMPTION && state.flags.has(Flags::TICKET);
        let mut ids = [0; connection_id::EXTENSIONS_LEN];
        let more = self.connection_id_extensions::<R>(&mut ids)?;
        let named = self.answers_name::<R>();
        if answers || named || ticket || R::KEEPS && state.cipher.encrypts_then_macs() {
            let others = |writer: &mut Writer<'_>| {
                if answers {
                    write_answers(writer, state.flags)?;
                }
                if ticket {
                    extension::put(writer, ExtensionType::SESSION_TICKET, &[])?;
                }
                if state.cipher.encrypts_then_macs() {
                    extension::put(writer, ExtensionType::ENCRYPT_THEN_MAC, &[])?;
                }
                writer.put(more)
            };
            match named {
                true => extensions.write_with(body, |writer| {
                    extension::put(writer, ExtensionType::SERVER_NAME, &[])?;
                    others(writer)
                })?,
                false => extensions.write_with(body, others)?,
            }
            Ok(&[])
        } else if R::RECORD_SIZE && (self.association.record_size != RecordSize::UNLIMITED || !more.is_empty()) {
            extensions.write_with(body, |writer| writer.put(more))?;
            Ok(&[])
        } else {
            Ok(extensions.bytes())
        }
    }

    /// Writes our ServerKeyExchange from the stored share and the stored signature.
    #[inline(always)]
    pub(crate) fn write_server_key_exchange<R: Roles>(
        &self,
        context: HandshakeContext<'_, R>,
        body: &mut Writer<'_>,
    ) -> Write {
        let certified = self.state.exchange.has_certificate();
        if !certified {
            body.u16(0)?; // no hint
        }
        let share = scratch::get(self.room, Item::Share);
        server_key_exchange::write_parameters(body, self.state.flags.group(), share)?;
        match certified {
            true => self.write_signature(context, body),
            false => Ok(()),
        }
    }
}

/// Writes those extensions of our ServerHello that public keys need.
fn write_answers(writer: &mut Writer<'_>, flags: Flags) -> Write {
    if flags.has(Flags::POINT_FORMATS) {
        extension::put(writer, ExtensionType::EC_POINT_FORMATS, &UNCOMPRESSED)?;
    }
    for (answered, kind, raw) in [
        (Flags::CLIENT_TYPE, ExtensionType::CLIENT_CERTIFICATE_TYPE, Flags::RAW_CLIENT),
        (Flags::SERVER_TYPE, ExtensionType::SERVER_CERTIFICATE_TYPE, Flags::RAW_SERVER),
    ] {
        if flags.has(answered) {
            extension::put(writer, kind, &[certificate_type(flags.has(raw)).0])?;
        }
    }
    Ok(())
}

/// A pre-shared key that the client may have, and the principal that the client proves with this key.
type ClientPsk<'k> = (&'k [u8], Principal);

/// True if the bytes can be a pre-shared key: 1 to 64 bytes.
const fn is_psk(key: &[u8]) -> bool {
    !key.is_empty() && key.len() <= MAX_PSK
}

/// Number of bytes of each of the two keys in [`Item::Psks`]: the principal (4), the length of the key (1), and the
/// key.
const PACKED_PSK_LEN: usize = 4 + 1 + MAX_PSK;

/// Reads a pre-shared key that [`Handshake::keep_psks`] has written.
fn unpack_psk(packed: &[u8]) -> Option<ClientPsk<'_>> {
    let mut reader = Reader::new(packed);
    let principal = Principal(reader.array().map(u32::from_be_bytes).ok()?);
    Some((reader.with_len8().ok()?, principal))
}

/// Makes a handshake with a short pre-shared key take as long as one with a key of [`MAX_PSK`] bytes. The premaster
/// secret is the key of an HMAC, and HMAC first hashes a key of more than 64 bytes (RFC 2104, section 2). So a long
/// pre-shared key needs more calls of the compression function of SHA-256. For a key of `len` bytes, this function
/// makes the missing calls, and does not use their results. Without these calls, the time would reveal which PSK
/// identities exist.
fn even_out<C: Crypto>(ephemeral: bool, len: usize) {
    const BLOCKS: usize = compressions(4 + 2 * MAX_PSK);
    // The premaster secret has two lengths and two parts (RFC 4279, section 2; RFC 5489, section 2).
    let premaster =
        |len: usize| if ephemeral { len.saturating_add(36) } else { len.saturating_mul(2).saturating_add(4) };
    let missing = compressions(premaster(MAX_PSK)).saturating_sub(compressions(premaster(len)));
    let mut state = [0; 8];
    C::sha256_compress(&mut state, [[0; 64]; BLOCKS].get(..missing).unwrap_or(&[]));
    core::hint::black_box(state);
}

/// Returns the number of calls of the compression function that hash a premaster secret of this length.
const fn compressions(premaster: usize) -> usize {
    if premaster > 64 { premaster.saturating_add(9).div_ceil(64) } else { 0 }
}
