//! Server side of the handshake (RFC 4279 over RFC 6347); `public_key` extends it.
//!
//! ClientHello(cookie) -> ServerHello, ServerHelloDone -> ClientKeyExchange, ChangeCipherSpec, Finished
//! -> ChangeCipherSpec, Finished. The hello without cookie is answered by the endpoint, without state.

use super::flight::Element;
use super::handshake::client_hello::ClientHello;
use super::handshake::extension::{ExtensionType, has_uncompressed};
use super::handshake::{Fragment, MessageType, Random, key_exchange};
use super::need::{Answer, MAX_PSK};
use super::public_key::{Agreed, nothing_common};
use super::record::{Cipher, RecordNumber};
use super::state::{Flags, Handshake, HandshakeContext, HandshakeState, Outcome, Step};
use super::{CipherSuite, Fatal, Settings, VERSION};
use crate::crypto::Crypto;
use crate::cx::Cx;
use crate::dtls::roles::Roles;
use crate::identity::Principal;
use crate::secret::Secret;
use crate::time::Instant;

impl HandshakeState {
    /// Begins a handshake as server, with a hello whose cookie was valid; the answer is due at once.
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
        // The numbers go on from the client's, which the stateless answer used too (RFC 6347, section 4.2.1).
        self.next_sequence = number.sequence();
        self.flight_seq = fragment.message_seq();
        self.receive_seq = fragment.message_seq().wrapping_add(1);
        self.answered_seq = self.receive_seq;
        self.hash_message::<C>(fragment.message_type(), fragment.message_seq(), fragment.body);
    }

    /// Begins to put together a ClientHello, with its first fragment, whose cookie is right.
    pub(crate) fn accept_fragments(&mut self, now: Instant, settings: &Settings, message_seq: u16, random: &Random) {
        self.begin(Step::AwaitClientHello, Element::ServerHello, now, settings);
        self.client_random = *random;
        self.receive_seq = message_seq;
        // There is nothing to send.
        (self.element, self.deadline) = (Element::Sent, self.give_up);
    }

    /// Checks what a hello offers, and chooses the cipher suite.
    pub(crate) fn acceptable<C: Crypto, R: Roles>(
        hello: &ClientHello<'_>,
        context: HandshakeContext<'_, R>,
    ) -> Result<Agreed, Fatal> {
        // DTLS counts its versions down: 1.2 is {254, 253}. A later one is answered with 1.2 (RFC 5246, appendix E.1); in the lower
        // half are the versions of TLS.
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
        let mut chosen = context.roles.suites().0.iter().copied().filter(usable).filter_map(|suite| {
            let (exchange, cipher) = suite.parts()?;
            match R::PUBLIC_KEYS && !exchange.is_psk() {
                true => Agreed::with_public_key::<C, R>(hello, context, exchange, cipher),
                false => Some(Agreed::psk(cipher)),
            }
        });
        let agreed = chosen.next().ok_or_else(|| match R::PUBLIC_KEYS {
            true => nothing_common::<C, R>(hello, context),
            false => Fatal::NoCommonSuite,
        })?;
        // The only format that this server writes and reads (RFC 8422, section 5.1.2).
        let formats = hello.extension(ExtensionType::EC_POINT_FORMATS).filter(|_| R::PUBLIC_KEYS);
        if agreed.flags.has(Flags::POINT_FORMATS) && !formats.is_none_or(has_uncompressed) {
            return Err(Fatal::IllegalParameter);
        }
        Ok(agreed)
    }
}

impl Handshake<'_> {
    pub(crate) fn on_client_message<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        context: HandshakeContext<'_, R>,
        kind: MessageType,
        body: &[u8],
    ) -> Result<(), Outcome> {
        match (self.state.step, kind) {
            (Step::AwaitClientCertificate, MessageType::CERTIFICATE) if R::PUBLIC_KEYS => {
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
                // An identity that fits nowhere is one that nobody has.
                if self.keep::<R>(identity).is_err() {
                    self.state.outgoing_len = 0;
                }
                self.state.step = Step::ServerNeedsPsk;
                self.state.deadline = self.state.give_up;
                Err(Outcome::Need)
            }
            // The client's flight was the last.
            (Step::AwaitClientFinished, MessageType::FINISHED)
                if R::RESUMPTION && self.state.flags.has(Flags::RESUMED) =>
            {
                Err(Outcome::Established)
            }
            (Step::AwaitClientFinished, MessageType::FINISHED) => {
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
        // Drawn in either case, so that a known identity takes no less time than an unknown one.
        let mut random = Secret::<16>::zeroed();
        cx.crypto.random(random.expose_mut());
        let (key, principal): (&[u8], _) = match answer {
            Answer::Psk { key, principal, .. } if !key.is_empty() && key.len() <= MAX_PSK => (key, principal),
            _ => {
                self.state.identity_unknown = true;
                (random.expose(), Principal::NOBODY)
            }
        };
        self.association.principal = principal;
        let ephemeral = R::PUBLIC_KEYS && self.state.exchange.is_ephemeral();
        if R::ON_HOST {
            even_out::<C>(ephemeral, key.len());
        }
        match ephemeral {
            true => self.derive_keys_agreed::<C, R>(cx, Some(key), false),
            false => self.derive_keys::<C, R>(cx, key, false),
        }
        self.state.step = self.after_key_exchange();
    }

    /// Server: what is due when the keys are known, and a client with a certificate proved that it has its private key. The
    /// ChangeCipherSpec may have come while the owner was asked.
    pub(crate) const fn after_key_exchange(&self) -> Step {
        match self.state.change_cipher_spec {
            true => Step::AwaitClientFinished,
            false => Step::AwaitClientChangeCipherSpec,
        }
    }
}

/// Calls the compression function as often as a key of [`MAX_PSK`] bytes would need more than one of `len`: HMAC hashes a
/// premaster secret of more than 64 bytes first (RFC 2104, section 2), and the time of that would tell which identities exist.
fn even_out<C: Crypto>(ephemeral: bool, len: usize) {
    const BLOCKS: usize = compressions(4 + 2 * MAX_PSK);
    // Two lengths and two parts (RFC 4279, section 2; RFC 5489, section 2).
    let premaster =
        |len: usize| if ephemeral { len.saturating_add(36) } else { len.saturating_mul(2).saturating_add(4) };
    let missing = compressions(premaster(MAX_PSK)).saturating_sub(compressions(premaster(len)));
    let mut state = [0; 8];
    C::sha256_compress(&mut state, [[0; 64]; BLOCKS].get(..missing).unwrap_or(&[]));
    core::hint::black_box(state);
}

/// Calls of the compression function that hash a premaster secret of so many bytes.
const fn compressions(premaster: usize) -> usize {
    if premaster > 64 { premaster.saturating_add(9).div_ceil(64) } else { 0 }
}
