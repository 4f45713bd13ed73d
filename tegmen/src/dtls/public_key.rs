//! Handshakes with public keys: the steps in addition to those with pre-shared keys, on both sides (RFC 8422, RFC
//! 7250, RFC 5489).
//!
//! Server: draw a key pair -> sign it -> ServerHello, Certificate, ServerKeyExchange, CertificateRequest, ServerHelloDone
//! -> verify the client's Certificate -> agree -> check CertificateVerify.
//! Client: verify the server's Certificate -> check ServerKeyExchange -> agree -> sign
//! -> Certificate, ClientKeyExchange, CertificateVerify.
//!
//! Chains are verified and signatures made by the owner of the endpoint, who is asked with
//! [`Need`](super::need::Need): the core sees no private key but those of the moment.

use super::Fatal;
use super::flight::Element;
use super::handshake::certificate::{self, CertificateType};
use super::handshake::certificate_request::{self, CertificateRequest};
use super::handshake::client_hello::{ClientHello, Offer, is_said};
use super::handshake::extension::{self, ExtensionType, UNCOMPRESSED};
use super::handshake::server_key_exchange::{self, ServerKeyExchange};
use super::handshake::{self, MessageType, Write};
use super::need::Answer;
use super::record::{Cipher, LongKeys};
use super::resumption::Resumption as _;
use super::scratch::{self, Item};
use super::state::{Flags, Handshake, HandshakeContext, HandshakeState, NO_CREDENTIAL, Outcome, Step};
use super::suite::{CipherSuite, KeyExchange, usable};
use crate::buf::{Full, Reader, Writer};
use crate::crypto::hash::{DIGEST_LEN, Sha256};
use crate::crypto::{Crypto, MAX_SHARE, NamedGroup, SCALAR_LEN, SignatureScheme};
use crate::cx::Cx;
use crate::dtls::roles::{ClientAuthentication, Credential, Keys as _, Roles};
use crate::identity::Principal;
use crate::secret::Secret;

/// The choice of a server from the offer of a ClientHello.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agreed {
    pub(crate) cipher: Cipher,
    pub(crate) exchange: KeyExchange,
    pub(crate) credential: u8,
    pub(crate) flags: Flags,
}

impl Agreed {
    /// Keys that are shared already.
    pub(crate) const fn psk(cipher: Cipher) -> Self {
        Self { cipher, exchange: KeyExchange::Psk, credential: NO_CREDENTIAL, flags: Flags(0) }
    }

    pub(crate) const fn suite(&self) -> CipherSuite {
        CipherSuite::of(self.exchange, self.cipher)
    }

    /// Group, credential and types of certificates for a suite with an agreement; `None` if there are none in common.
    pub(crate) fn with_public_key<C: Crypto, R: Roles>(
        hello: &ClientHello<'_>,
        context: HandshakeContext<'_, R>,
        exchange: KeyExchange,
        cipher: Cipher,
    ) -> Option<Self> {
        let mut flags = Flags(0);
        if !exchange.is_rsa() {
            // Without the extension a client takes any group (RFC 8422, section 4), and then what everybody has.
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
            // Without the extension a client means SHA-1, which is not to be had here.
            let (_, schemes) = hello.extension(ExtensionType::SIGNATURE_ALGORITHMS)?.split_at_checked(2)?;
            if !certificate_request::contains(schemes, exchange.scheme().0) {
                return None;
            }
            // The key of a certificate has to lie on a curve of the client's, too (RFC 8422, section 5.1).
            if exchange.scheme() == SignatureScheme::ECDSA_SECP256R1_SHA256 && !offers(&NamedGroup::SECP256R1) {
                return None;
            }
        }
        let scheme = exchange.scheme();
        let (of_server, of_client) = (ExtensionType::SERVER_CERTIFICATE_TYPE, ExtensionType::CLIENT_CERTIFICATE_TYPE);
        let keys = context.roles.keys();
        let (credential, shown) = credentials(context)
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

/// True if a hello names this type of certificate, or names none and means X.509 (RFC 7250, section 3).
fn takes_type(hello: &ClientHello<'_>, list: ExtensionType, kind: CertificateType) -> bool {
    match hello.extension(list).and_then(|data| data.get(1..)) {
        Some(types) => types.contains(&kind.0),
        None => kind == CertificateType::X509,
    }
}

/// Why a hello has no suite that can be used: the types of certificates, if the suites alone would do (RFC 7250, section
/// 4.2).
pub(crate) fn nothing_common<C: Crypto, R: Roles>(hello: &ClientHello<'_>, context: HandshakeContext<'_, R>) -> Fatal {
    let keys = context.roles.keys();
    let certified = |suite: &CipherSuite| {
        let (scheme, usable) = (suite.parts().map(|(exchange, _)| exchange), context.offers::<C>(*suite));
        let exchange = scheme.filter(|exchange| usable && exchange.has_certificate() && hello.offers(*suite));
        exchange.is_some_and(|exchange| credentials(context).any(|(_, shown)| shown.scheme == exchange.scheme()))
    };
    let taken = |(_, shown): (u8, Credential<'_>)| {
        takes_type(hello, ExtensionType::SERVER_CERTIFICATE_TYPE, shown.certificate_type)
    };
    let shows = |kind: &CertificateType| takes_type(hello, ExtensionType::CLIENT_CERTIFICATE_TYPE, *kind);
    let must_show = keys.client_authentication() == ClientAuthentication::Required;
    let lacks_type = !credentials(context).any(taken) || must_show && !keys.peer_types().iter().any(shows);
    match context.roles.suites().0.iter().any(certified) && lacks_type {
        true => Fatal::NoCommonCertificateType,
        false => Fatal::NoCommonSuite,
    }
}

/// Our credentials with their numbers.
fn credentials<R: Roles>(context: HandshakeContext<'_, R>) -> impl Iterator<Item = (u8, Credential<'_>)> {
    (0..NO_CREDENTIAL).map_while(move |number| Some((number, context.roles.keys().credential(number)?)))
}

/// Returns the content that a credential shows; empty if there is none.
pub(crate) fn content_of<R: Roles>(context: HandshakeContext<'_, R>, credential: u8) -> &[u8] {
    match credential {
        NO_CREDENTIAL => &[],
        number => context.roles.keys().credential(number).map_or(&[], |credential| credential.content),
    }
}

impl<'l, R: Roles> HandshakeContext<'l, R> {
    /// Returns the offer of our ClientHello.
    pub(crate) fn offer<'o, C: Crypto>(&self, more: &'o [u8]) -> Offer<'o>
    where
        'l: 'o,
    {
        let keys = self.roles.keys();
        Offer {
            suites: self.roles.suites(),
            usable: usable::<C, R>,
            record_size_limit: self.roles.record_size_limit(),
            groups: C::GROUPS,
            client_types: self.own_types(),
            server_types: keys.peer_types(),
            server_name: keys.server_name(),
            ticket: None,
            more,
        }
    }
}

impl<R: Roles> HandshakeContext<'_, R> {
    /// The types of certificates that a client offers for itself: that of its first credential; one without any is not asked
    /// for a type.
    fn own_types(&self) -> &'static [CertificateType] {
        match self.roles.keys().credential(0).map(|credential| credential.certificate_type) {
            Some(CertificateType::RAW_PUBLIC_KEY) => &[CertificateType::RAW_PUBLIC_KEY],
            _ => &[],
        }
    }
}

/// True if a server chose raw public keys of the types that were offered to it (RFC 7250, section 4.2).
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

/// Writes the answers of our ServerHello to the extensions for public keys.
pub(crate) fn write_answers(writer: &mut Writer<'_>, state: &HandshakeState) -> Write {
    if state.flags.has(Flags::POINT_FORMATS) {
        extension::put(writer, ExtensionType::EC_POINT_FORMATS, &UNCOMPRESSED)?;
    }
    let flags = state.flags;
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

const fn certificate_type(raw: bool) -> CertificateType {
    if raw { CertificateType::RAW_PUBLIC_KEY } else { CertificateType::X509 }
}

/// Writes the body of our ServerKeyExchange from what is kept.
pub(crate) fn write_server_key_exchange<R: Roles>(
    body: &mut Writer<'_>,
    context: HandshakeContext<'_, R>,
    state: &HandshakeState,
    room: &[u8],
) -> Write {
    if !state.exchange.has_certificate() {
        body.u16(0)?; // no hint
    }
    server_key_exchange::write_parameters(body, state.flags.group(), scratch::get(room, Item::Share))?;
    match state.exchange.has_certificate() {
        true => write_signature(body, context, state, room),
        false => Ok(()),
    }
}

/// Writes the signature that is kept, behind its scheme.
pub(crate) fn write_signature<R: Roles>(
    body: &mut Writer<'_>,
    context: HandshakeContext<'_, R>,
    state: &HandshakeState,
    room: &[u8],
) -> Write {
    let credential = context.roles.keys().credential(state.credential).ok_or(Full)?;
    certificate::write_signature(body, credential.scheme, scratch::get(room, Item::Signature))
}

impl HandshakeState {
    /// Returns the certificate type of the peer.
    pub(crate) fn peer_type(&self) -> CertificateType {
        let raw = if self.step == Step::ClientVerifies { Flags::RAW_SERVER } else { Flags::RAW_CLIENT };
        certificate_type(self.flags.has(raw))
    }
}

impl Handshake<'_> {
    /// Forgets what an earlier handshake left in this place.
    pub(crate) fn clear_scratch(&mut self) {
        self.state.exchange = KeyExchange::Psk;
        self.state.credential = NO_CREDENTIAL;
        self.state.flags = Flags(0);
        scratch::clear(self.buffers.outgoing);
    }

    pub(crate) fn put(&mut self, item: Item, bytes: &[u8]) -> Result<(), Fatal> {
        scratch::put(self.buffers.outgoing, self.state.outgoing_len.into(), item, bytes)
    }

    /// Draws a key pair, and keeps its share.
    fn draw<C: Crypto>(&mut self, cx: &mut Cx<'_, C>) -> Result<Secret<SCALAR_LEN>, Fatal> {
        let (mut private, mut share) = (Secret::zeroed(), [0; MAX_SHARE]);
        let len = cx.crypto.key_pair(self.state.flags.group(), private.expose_mut(), &mut share);
        let len = len.map_err(|_| Fatal::IllegalParameter)?;
        self.put(Item::Share, share.get(..len).unwrap_or(&[]))?;
        Ok(private)
    }

    /// SHA-256 of the randoms and the parameters of a ServerKeyExchange (RFC 8422, section 5.4).
    fn digest_of_parameters<C: Crypto>(&self, parameters: &[&[u8]]) -> [u8; DIGEST_LEN] {
        let mut hash = Sha256::new();
        hash.update::<C>(&self.state.client_random);
        hash.update::<C>(&self.state.server_random);
        parameters.iter().for_each(|part| hash.update::<C>(part));
        hash.finish::<C>()
    }

    /// Server: draws the key pair of the handshake, and asks for the signature over its share.
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

    fn ask_to_sign(&mut self, step: Step, digest: &[u8; DIGEST_LEN]) -> Result<(), Outcome> {
        self.put(Item::Digest, digest)?;
        self.state.step = step;
        self.state.deadline = self.state.give_up;
        Err(Outcome::Need)
    }

    /// Takes the signature that was asked for; our flight is complete with it.
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

    pub(crate) fn send_server_flight<R: Roles>(&mut self, _: HandshakeContext<'_, R>) {
        self.state.step = match self.state.flags.has(Flags::ASKED) {
            true => Step::AwaitClientCertificate,
            false => Step::AwaitClientKeyExchange,
        };
        self.state.send_flight();
    }

    /// Client: takes what a ServerHello answers to extensions that belong to public keys.
    pub(crate) fn on_answered_extensions<R: Roles>(
        &mut self,
        context: HandshakeContext<'_, R>,
        extensions: &[u8],
    ) -> Result<(), Fatal> {
        let offered = self.state.minimal;
        let keys = context.roles.keys();
        for (kind, data) in extension::each(extensions) {
            // Answered only where the suite has a code of its own (RFC 7366, section 3).
            if LongKeys::FIT && kind == ExtensionType::ENCRYPT_THEN_MAC && data.is_empty() {
                let cipher = self.state.cipher.with_encrypt_then_mac();
                self.state.cipher = cipher.ok_or(Fatal::UnsupportedExtension)?;
                continue;
            }
            match kind {
                ExtensionType::EXTENDED_MASTER_SECRET | ExtensionType::RENEGOTIATION_INFO => {}
                ExtensionType::RECORD_SIZE_LIMIT | ExtensionType::MAX_FRAGMENT_LENGTH if R::RECORD_SIZE => {}
                // Looked at with the others of their kind.
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
                ExtensionType::SERVER_NAME if !keys.server_name().is_empty() => match data {
                    [] => {}
                    _ => return Err(Fatal::Decode),
                },
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

    /// Takes the word of the owner on the certificate of the peer.
    pub(crate) fn on_verified(&mut self, answer: Answer<'_>) -> Result<(), Fatal> {
        self.state.inbox.forget_pieces();
        match answer {
            Answer::Peer { public_key, principal } => {
                self.put(Item::PeerKey, public_key)?;
                self.association.principal = principal;
            }
            Answer::Refused(alert) => return Err(Fatal::Refused(alert)),
            _ => return Err(Fatal::Refused(super::AlertDescription::CERTIFICATE_UNKNOWN)),
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

    /// Client: takes the share of the server, which it has signed if it has a certificate.
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

    /// Client: chooses the credential that it shows, if it has one that the server takes.
    pub(crate) fn on_certificate_request<R: Roles>(
        &mut self,
        context: HandshakeContext<'_, R>,
        body: &[u8],
    ) -> Result<(), Fatal> {
        let request = CertificateRequest::read(body).map_err(|_| Fatal::Decode)?;
        let wanted = certificate_type(self.state.flags.has(Flags::RAW_CLIENT));
        let mut suitable = credentials(context)
            .filter(|(_, credential)| credential.certificate_type == wanted && request.accepts(credential.scheme));
        self.state.credential = suitable.next().map_or(NO_CREDENTIAL, |(number, _)| number);
        self.state.flags.set(Flags::ASKED, true);
        Ok(())
    }

    /// Client: agrees with the server, and derives the keys; the flight is due, or the signature for it.
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

    /// Client: begins its flight with the Certificate that was asked for. Both that and ClientKeyExchange belong to the
    /// session hash, and so are hashed before they are written.
    #[inline]
    pub(crate) fn begin_answer<C: Crypto, R: Roles>(&mut self, context: HandshakeContext<'_, R>) {
        let asked = self.state.flags.has(Flags::ASKED);
        self.state.start_flight::<R>(if asked { Element::ClientCertificate } else { Element::ClientKeyExchange });
        if asked {
            let content = content_of(context, self.state.credential);
            let len = (content.len() as u32).to_be_bytes();
            self.hash_ahead::<C>(MessageType::CERTIFICATE, 0, &[len.get(1..).unwrap_or(&[]), content]);
        }
    }

    /// Client: adds its ClientKeyExchange to the transcript.
    pub(crate) fn hash_key_exchange<C: Crypto>(&mut self, parts: &[&[u8]]) {
        let asked = self.state.flags.has(Flags::ASKED);
        self.hash_ahead::<C>(MessageType::CLIENT_KEY_EXCHANGE, asked.into(), parts);
    }

    /// Client: derives the keys; its flight is due, or the signature for it.
    #[inline]
    pub(crate) fn end_answer<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        derive_keys: impl FnOnce(&mut Self, &mut Cx<'_, C>),
    ) -> Result<(), Outcome> {
        let asked = self.state.flags.has(Flags::ASKED);
        let signs = asked && self.state.credential != NO_CREDENTIAL;
        self.state.hashed = if signs { Element::CertificateVerify } else { Element::ChangeCipherSpec };
        // The transcript up to here, which CertificateVerify signs (RFC 5246, section 7.4.8).
        let digest = self.state.transcript.digest_so_far::<C>();
        derive_keys(self, cx);
        if signs {
            return self.ask_to_sign(Step::ClientSigns, &digest);
        }
        self.state.step = Step::AwaitServerChangeCipherSpec;
        Ok(())
    }

    fn hash_ahead<C: Crypto>(&mut self, kind: MessageType, before: u16, parts: &[&[u8]]) {
        hash_ahead::<C>(self.state, kind, before, parts);
    }

    /// Agrees with the peer, whose share is given or kept; the secret is kept.
    fn agree<C: Crypto>(
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

    /// Derives the keys from what was agreed on, and the pre-shared key if there is one (RFC 8422, section 5.10;
    /// RFC 5489, section 2); the agreed secret is wiped.
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
        scratch::forget(self.buffers.outgoing, Item::Agreed);
        let len = (SCALAR_LEN as u16).to_be_bytes();
        match psk {
            None => self.derive_keys_from::<C, R>(cx, &[secret.expose()], client),
            Some(psk) => {
                let psk_len = (psk.len() as u16).to_be_bytes();
                self.derive_keys_from::<C, R>(cx, &[&len, secret.expose(), &psk_len, psk], client);
            }
        }
    }

    /// Server: takes the certificate of the client, or that it has none.
    pub(crate) fn on_client_certificate<R: Roles>(
        &mut self,
        context: HandshakeContext<'_, R>,
        body: &[u8],
    ) -> Result<(), Outcome> {
        let content = certificate::read(body).map_err(|_| Fatal::Decode)?;
        if content.is_empty() {
            if context.roles.keys().client_authentication() == ClientAuthentication::Required {
                return Err(Fatal::NoCertificate.into());
            }
            self.state.step = Step::AwaitClientKeyExchange;
            return Ok(());
        }
        self.state.step = Step::ServerVerifies;
        self.state.deadline = self.state.give_up;
        Err(Outcome::Need)
    }

    /// Server: takes the share of the client; where keys are pre-shared, behind the identity.
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
            // An identity that fits nowhere is one that nobody has.
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

    /// Server: waits for the CertificateVerify of the client if it showed a certificate. Otherwise the client has no
    /// identity.
    pub(crate) fn await_client_proof(&mut self) {
        self.state.step = match self.state.flags.has(Flags::CERTIFIED) {
            true => Step::AwaitCertificateVerify,
            false => {
                self.association.principal = Principal::NOBODY;
                self.after_key_exchange()
            }
        };
    }

    /// Server: checks that the client has the private key of its certificate, before the message is hashed.
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
}

/// Adds a message of our flight to the transcript before it is written; `before` messages of the flight stand before it.
fn hash_ahead<C: Crypto>(state: &mut HandshakeState, kind: MessageType, before: u16, parts: &[&[u8]]) {
    let len = parts.iter().fold(0u32, |len, part| len.wrapping_add(part.len() as u32));
    let seq = state.flight_seq.wrapping_add(before);
    state.transcript.update::<C>(&handshake::header(kind, len, seq, 0, len));
    parts.iter().for_each(|part| state.transcript.update::<C>(part));
}
