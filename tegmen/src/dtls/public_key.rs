//! Handshakes with public keys: the additional steps of both endpoints (RFC 8422, RFC 7250, RFC 5489).
//!
//! The server's steps are: draw a key pair; sign the share; send ServerHello, Certificate, ServerKeyExchange,
//! CertificateRequest and ServerHelloDone; verify the client's Certificate; compute the shared secret; check the
//! CertificateVerify.
//!
//! The client's steps are: verify the server's Certificate; check the ServerKeyExchange; compute the shared secret;
//! sign; send Certificate, ClientKeyExchange and CertificateVerify.
//!
//! The owner of the endpoint verifies certificate chains and makes signatures, when [`Need`](super::need::Need) asks
//! for them. So the core handles no private keys except ephemeral ones.

use super::Fatal;
use super::certificate_list::Due;
use super::context::HandshakeContext;
use super::handshake::certificate::{self, CertificateType};
use super::handshake::certificate_request;
use super::handshake::client_hello::ClientHello;
use super::handshake::extension::ExtensionType;
use super::handshake::{self, MessageType, Write};
use super::need::Answer;
use super::outcome::Outcome;
use super::parts::Parts;
use super::record::Cipher;
use super::resumption::SessionState;
use super::roles::{ClientAuthentication, Credential, Keys as _, Roles};
use super::scratch::{self, Item};
use super::server_name::kept_server;
use super::state::{Flags, Handshake, HandshakeState, NO_CREDENTIAL, Step};
use super::suite::{CipherSuite, KeyExchange};
use crate::buf::{Full, Writer};
use crate::crypto::hash::{DIGEST_LEN, Sha256};
use crate::crypto::{Crypto, MAX_SHARE, NamedGroup, SCALAR_LEN, SignatureScheme};
use crate::cx::Cx;
use crate::secret::Secret;

/// The parameters that a server chooses from the offer in a ClientHello.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agreed {
    pub(crate) cipher: Cipher,
    pub(crate) exchange: KeyExchange,
    pub(crate) credential: u8,
    pub(crate) flags: Flags,
}

impl Agreed {
    /// Returns the agreed parameters of a handshake with a pre-shared key.
    pub(crate) const fn psk(cipher: Cipher) -> Self {
        Self { cipher, exchange: KeyExchange::Psk, credential: NO_CREDENTIAL, flags: Flags(0) }
    }

    /// Returns the agreed parameters of a resumed session.
    pub(crate) fn resumed<C: Crypto>(session: &SessionState) -> Option<Self> {
        let (exchange, cipher) = session.cipher_suite.parts_in::<C>()?;
        Some(Self { cipher, exchange, credential: NO_CREDENTIAL, flags: Flags(Flags::RESUMED) })
    }

    pub(crate) const fn suite(&self) -> CipherSuite {
        CipherSuite::of(self.exchange, self.cipher)
    }

    /// Returns the agreed parameters for a suite with public keys: the named group, our credential and the certificate
    /// types. Returns `None` if client and server have no such parameters in common.
    pub(crate) fn with_public_key<C: Crypto, R: Roles>(
        hello: &ClientHello<'_>,
        context: HandshakeContext<'_, R>,
        server: u32,
        (exchange, cipher): (KeyExchange, Cipher),
    ) -> Option<Self> {
        let mut flags = Flags(0);
        if !exchange.is_rsa() {
            // Without the extension a client accepts any group (RFC 8422, section 4). The server then takes secp256r1,
            // which every client has.
            let offered = hello.extension(ExtensionType::SUPPORTED_GROUPS);
            let offers = |group: &NamedGroup| match offered {
                Some(list) => {
                    list.split_at_checked(2).is_some_and(|(_, list)| certificate_request::contains(list, group.0))
                }
                None => *group == NamedGroup::SECP256R1,
            };
            let group = C::GROUPS.iter().copied().find(offers)?;
            flags.set(Flags::X25519, group == NamedGroup::X25519);
            flags.set(Flags::POINT_FORMATS, hello.extension(ExtensionType::EC_POINT_FORMATS).is_some());
            if !exchange.has_certificate() {
                return Some(Self { cipher, exchange, credential: NO_CREDENTIAL, flags });
            }
            // Without the extension a client supports only SHA-1 signatures, which this server does not make.
            let (_, schemes) = hello.extension(ExtensionType::SIGNATURE_ALGORITHMS)?.split_at_checked(2)?;
            if !certificate_request::contains(schemes, exchange.scheme().0) {
                return None;
            }
            // The key of a certificate must also be on a curve that the client supports (RFC 8422, section 5.1).
            if exchange.scheme() == SignatureScheme::ECDSA_SECP256R1_SHA256 && !offers(&NamedGroup::SECP256R1) {
                return None;
            }
        }
        let scheme = exchange.scheme();
        let (of_server, of_client) = (ExtensionType::SERVER_CERTIFICATE_TYPE, ExtensionType::CLIENT_CERTIFICATE_TYPE);
        let keys = context.roles.keys();
        let (credential, shown) = credentials(context, server)
            .find(|(_, shown)| shown.scheme == scheme && takes_type(hello, of_server, shown.certificate_type))?;
        flags.set(Flags::SERVER_TYPE, hello.extension(of_server).is_some());
        flags.set(Flags::RAW_SERVER, shown.certificate_type == CertificateType::RAW_PUBLIC_KEY);
        if keys.client_authentication() != ClientAuthentication::Never {
            let asked = keys.peer_types().iter().copied().find(|kind| takes_type(hello, of_client, *kind));
            match asked {
                Some(kind) => {
                    flags.set(Flags::ASKED, true);
                    flags.set(Flags::CLIENT_TYPE, hello.extension(of_client).is_some());
                    flags.set(Flags::RAW_CLIENT, kind == CertificateType::RAW_PUBLIC_KEY);
                }
                None if keys.client_authentication() == ClientAuthentication::Required => return None,
                None => {}
            }
        }
        Some(Self { cipher, exchange, credential, flags })
    }
}

/// True if the client accepts this certificate type. `list` is the extension of the ClientHello that lists the types.
/// If the ClientHello does not have the extension, the client accepts only X.509 (RFC 7250, section 3).
pub(crate) fn takes_type(hello: &ClientHello<'_>, list: ExtensionType, kind: CertificateType) -> bool {
    match hello.extension(list).and_then(|data| data.get(1..)) {
        Some(types) => types.contains(&kind.0),
        None => kind == CertificateType::X509,
    }
}

/// Returns the reason why none of the cipher suites in a ClientHello can be used. If a suite could be used with other
/// certificate types, the certificate types are the reason (RFC 7250, section 4.2).
pub(crate) fn nothing_common<C: Crypto, R: Roles>(
    hello: &ClientHello<'_>,
    context: HandshakeContext<'_, R>,
    server: u32,
) -> Fatal {
    let keys = context.roles.keys();
    let certified = |suite: &CipherSuite| {
        let (scheme, usable) = (suite.parts().map(|(exchange, _)| exchange), context.offers::<C>(*suite));
        let exchange = scheme.filter(|exchange| usable && exchange.has_certificate() && hello.offers(*suite));
        exchange
            .is_some_and(|exchange| credentials(context, server).any(|(_, shown)| shown.scheme == exchange.scheme()))
    };
    let taken = |(_, shown): (u8, Credential<'_>)| {
        takes_type(hello, ExtensionType::SERVER_CERTIFICATE_TYPE, shown.certificate_type)
    };
    let shows = |kind: &CertificateType| takes_type(hello, ExtensionType::CLIENT_CERTIFICATE_TYPE, *kind);
    let must_show = keys.client_authentication() == ClientAuthentication::Required;
    let lacks_type = !credentials(context, server).any(taken) || must_show && !keys.peer_types().iter().any(shows);
    match context.roles.suites(server).0.iter().any(certified) && lacks_type {
        true => Fatal::NoCommonCertificateType,
        false => Fatal::NoCommonSuite,
    }
}

/// Returns each credential of the named server `server` together with the number of the credential. If `server` is 0,
/// returns the credentials of the endpoint itself.
pub(crate) fn credentials<R: Roles>(
    context: HandshakeContext<'_, R>,
    server: u32,
) -> impl Iterator<Item = (u8, Credential<'_>)> {
    (0..NO_CREDENTIAL).map_while(move |number| Some((number, context.roles.keys().credential(server, number)?)))
}

/// Returns the certificates or the raw public key of a credential; an empty slice if `credential` is [`NO_CREDENTIAL`].
pub(crate) fn content_of<R: Roles>(context: HandshakeContext<'_, R>, server: u32, credential: u8) -> &[u8] {
    match credential {
        NO_CREDENTIAL => &[],
        number => context.roles.keys().credential(server, number).map_or(&[], |credential| credential.content),
    }
}

pub(crate) const fn certificate_type(raw: bool) -> CertificateType {
    if raw { CertificateType::RAW_PUBLIC_KEY } else { CertificateType::X509 }
}

impl Parts<'_> {
    /// Writes the signature scheme of our credential, and then the stored signature.
    pub(crate) fn write_signature<R: Roles>(&self, context: HandshakeContext<'_, R>, body: &mut Writer<'_>) -> Write {
        let server = kept_server::<R>(self.room);
        let credential = context.roles.keys().credential(server, self.state.credential).ok_or(Full)?;
        certificate::write_signature(body, credential.scheme, scratch::get(self.room, Item::Signature))
    }
}

impl HandshakeState {
    /// Returns the agreed type of the peer's certificate.
    pub(crate) fn peer_type(&self) -> CertificateType {
        let raw = if self.step == Step::ClientVerifies { Flags::RAW_SERVER } else { Flags::RAW_CLIENT };
        certificate_type(self.flags.has(raw))
    }
}

impl Handshake<'_> {
    /// Removes the items and parameters of an earlier handshake that used the same memory.
    pub(crate) fn clear_scratch(&mut self) {
        self.state.exchange = KeyExchange::Psk;
        self.state.credential = NO_CREDENTIAL;
        self.state.flags = Flags(0);
        scratch::clear(self.buffers.outgoing);
    }

    pub(crate) fn put(&mut self, item: Item, bytes: &[u8]) -> Result<(), Fatal> {
        scratch::put(self.buffers.outgoing, self.state.outgoing_len.into(), item, bytes)
    }

    /// Draws an ephemeral key pair. Stores the share, and returns the private key.
    pub(crate) fn draw<C: Crypto>(&mut self, cx: &mut Cx<'_, C>) -> Result<Secret<SCALAR_LEN>, Fatal> {
        let (mut private, mut share) = (Secret::zeroed(), [0; MAX_SHARE]);
        let len = cx.crypto.key_pair(self.state.flags.group(), private.expose_mut(), &mut share);
        let len = len.map_err(|_| Fatal::IllegalParameter)?;
        self.put(Item::Share, share.get(..len).unwrap_or(&[]))?;
        Ok(private)
    }

    /// Returns the SHA-256 digest that the signature of a ServerKeyExchange covers. It is the digest of both randoms
    /// and of `parameters` (RFC 8422, section 5.4).
    pub(crate) fn digest_of_parameters<C: Crypto>(&self, parameters: &[&[u8]]) -> [u8; DIGEST_LEN] {
        let mut hash = Sha256::new();
        hash.update::<C>(&self.state.client_random);
        hash.update::<C>(&self.state.server_random);
        parameters.iter().for_each(|part| hash.update::<C>(part));
        hash.finish::<C>()
    }

    pub(crate) fn ask_to_sign(&mut self, step: Step, digest: &[u8; DIGEST_LEN]) -> Result<(), Outcome> {
        self.put(Item::Digest, digest)?;
        self.state.step = step;
        self.state.deadline = self.state.give_up;
        Err(Outcome::Need)
    }

    /// Stores the signature that the owner of the endpoint made. Our flight can now be written completely, and is due
    /// at once.
    pub(crate) fn on_signed<R: Roles>(
        &mut self,
        context: HandshakeContext<'_, R>,
        answer: Answer<'_>,
    ) -> Result<(), Outcome> {
        let Answer::Signature(signature) = answer else { return Err(Fatal::NoCredentials.into()) };
        scratch::forget(self.buffers.outgoing, Item::Digest);
        self.put(Item::Signature, signature)?;
        match self.state.step {
            Step::ServerSigns => self.send_server_flight(context),
            _ => {
                self.state.step = Step::AwaitServerChangeCipherSpec;
                self.state.send_flight();
            }
        }
        Ok(())
    }

    /// Processes the decision of the endpoint's owner on the certificate of the peer.
    pub(crate) fn on_verified<R: Roles>(&mut self, answer: Answer<'_>) -> Result<(), Outcome> {
        let due = R::CERTIFICATES_IN_PARTS.then(|| self.state.inbox.due(self.buffers.incoming));
        let more = due.filter(Due::has_more);
        match (answer, more) {
            (Answer::Continue, Some(due)) => {
                let free = self.state.inbox.free(self.buffers.incoming);
                let room = self.buffers.incoming.get_mut(..free).unwrap_or(&mut []);
                return self.state.pass_certificate(room, &due);
            }
            (Answer::Peer { public_key, principal }, None) => {
                self.put(Item::PeerKey, public_key)?;
                self.association.principal = principal;
            }
            (Answer::Refused(alert), _) => return Err(Fatal::Refused(alert).into()),
            _ => return Err(Fatal::Refused(super::AlertDescription::CERTIFICATE_UNKNOWN).into()),
        }
        match R::CERTIFICATES_IN_PARTS {
            true => self.state.end_certificates(),
            false => self.state.inbox.forget_pieces(),
        }
        if self.state.step == Step::ClientVerifies {
            self.state.step = match self.state.exchange.is_rsa() {
                true => Step::AwaitServerHelloDone,
                false => Step::AwaitServerKeyExchange,
            };
        } else {
            self.state.flags.set(Flags::CERTIFIED, true);
            self.state.step = Step::AwaitClientKeyExchange;
        }
        Ok(())
    }

    /// Computes the shared secret from our private key and the peer's share, and stores the secret. If `share` is
    /// `None`, uses the share that was stored before.
    pub(crate) fn agree<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        private: &Secret<SCALAR_LEN>,
        share: Option<&[u8]>,
    ) -> Result<(), Fatal> {
        let mut secret = Secret::<SCALAR_LEN>::zeroed();
        let share = share.unwrap_or(scratch::get(self.buffers.outgoing, Item::PeerShare));
        let agreed = cx.crypto.agree(self.state.flags.group(), private.expose(), share, secret.expose_mut());
        agreed.map_err(|_| Fatal::IllegalParameter)?;
        self.put(Item::Agreed, secret.expose())
    }

    /// Derives the keys of the session from the shared secret, and from the pre-shared key if there is one (RFC 8422,
    /// section 5.10; RFC 5489, section 2). Then wipes the shared secret, unless the server may have to try a second
    /// pre-shared key.
    pub(crate) fn derive_keys_agreed<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        psk: Option<&[u8]>,
        client: bool,
    ) {
        let agreed = scratch::get(self.buffers.outgoing, Item::Agreed);
        let mut secret = Secret::<SCALAR_LEN>::zeroed();
        if let Some(agreed) = agreed.first_chunk() {
            *secret.expose_mut() = *agreed;
        }
        // A server may have to try another pre-shared key with the same secret.
        if !R::ON_HOST || psk.is_none() || client {
            scratch::forget(self.buffers.outgoing, Item::Agreed);
        }
        let len = (SCALAR_LEN as u16).to_be_bytes();
        match psk {
            None => self.derive_keys_from::<C, R>(cx, &[secret.expose()], client),
            Some(psk) => {
                let psk_len = (psk.len() as u16).to_be_bytes();
                self.derive_keys_from::<C, R>(cx, &[&len, secret.expose(), &psk_len, psk], client);
            }
        }
    }
}

/// Adds a message of our flight to the transcript before the message is written. `before` is the number of messages
/// that precede this message in the flight. `parts` are the parts of its body.
pub(crate) fn hash_ahead<C: Crypto>(state: &mut HandshakeState, kind: MessageType, before: u16, parts: &[&[u8]]) {
    let len = parts.iter().fold(0u32, |len, part| len.wrapping_add(part.len() as u32));
    let seq = state.flight_seq.wrapping_add(before);
    state.transcript.update::<C>(&handshake::header(kind, len, seq, 0, len));
    parts.iter().for_each(|part| state.transcript.update::<C>(part));
}
