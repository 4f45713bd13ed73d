//! The inputs that a handshake needs from the owner of its endpoint, and the answers of the owner.

use super::context::HandshakeContext;
use super::handshake::certificate::CertificateType;
use super::handshake::key_exchange;
use super::outcome::Outcome;
use super::record::HAS_LONG_KEYS;
use super::rsa::PREMASTER_LEN;
use super::scratch::{self, Item};
use super::server_name::kept_server;
use super::state::{Buffers, Handshake, Step};
use super::{AlertDescription, VERSION};
use crate::crypto::Crypto;
use crate::crypto::hash::DIGEST_LEN;
use crate::cx::Cx;
use crate::dtls::roles::Roles;
use crate::identity::Principal;
use crate::secret::Secret;

/// An input that a handshake needs from the owner of its endpoint. The handshake waits for this input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need<'n> {
    /// Client: needs the client's PSK identity and the pre-shared key for the server. The server can send a hint that
    /// helps to choose them.
    PskForServer {
        /// The PSK identity hint of the server (RFC 4279, section 5.2); empty if the server sent no hint.
        hint: &'n [u8],
    },
    /// Server: needs the pre-shared key of the client with this identity.
    PskOfClient {
        /// PSK identity (RFC 4279, section 5.1).
        identity: &'n [u8],
    },
    /// Needs the decision whether the peer is trusted. At this time the peer has not proved yet that it has the private
    /// key.
    VerifyPeer {
        /// The certificate type of the peer.
        certificate_type: CertificateType,
        /// The certificates or the raw public key that the peer sent, in the form of
        /// [`Credential::content`](crate::dtls::roles::Credential::content).
        content: &'n [u8],
    },
    /// Needs the decision whether a certificate of the peer, in DER, belongs to a trusted certification path. With
    /// [`Keys::CERTIFICATES_IN_PARTS`](crate::dtls::Keys), this variant replaces [`Self::VerifyPeer`]: the handshake
    /// asks for each certificate of the list in order, and the peer's own certificate is the first.
    VerifyCertificate {
        /// The certificate to verify. The endpoint no longer has the earlier certificates of the list.
        certificate: &'n [u8],
        /// True for the peer's own certificate, with which a certification path begins.
        is_first: bool,
        /// True for the last certificate of the list, to which the answer is [`Answer::Peer`]. The answer to every
        /// other certificate is [`Answer::Continue`].
        is_last: bool,
    },
    /// Needs a signature with our private key.
    Sign {
        /// The number of the [named server](crate::dtls::roles::Keys::server) that the client requests; 0 if the client
        /// requests no named server.
        server: u32,
        /// The number of our [`Credential`](crate::dtls::roles::Credential) that has the private key.
        credential: u8,
        /// SHA-256 of the data to sign.
        digest: [u8; DIGEST_LEN],
    },
    /// Client: needs a new premaster secret, and its encryption to the peer with RSAES-PKCS1-v1_5 (RFC 5246, section
    /// 7.4.7.1).
    Encrypt {
        /// The SubjectPublicKeyInfo of the peer, in DER.
        public_key: &'n [u8],
        /// The first two bytes of the premaster secret: the version in the ClientHello. The other 46 bytes are random.
        version: [u8; 2],
    },
    /// Server: needs the premaster secret, decrypted with our private key.
    ///
    /// The answer and the time until the answer must not reveal whether the padding was right, or which other error
    /// occurred: use [`premaster_secret`](super::rsa::premaster_secret).
    Decrypt {
        /// The number of the [named server](crate::dtls::roles::Keys::server) that the client requests; 0 if the client
        /// requests no named server.
        server: u32,
        /// The number of our [`Credential`](crate::dtls::roles::Credential) that has the private key.
        credential: u8,
        /// The EncryptedPreMasterSecret of the client.
        encrypted: &'n [u8],
        /// The version in the ClientHello. The premaster secret must begin with this version.
        version: [u8; 2],
    },
}

/// The answer of the endpoint's owner to a [`Need`].
#[derive(Clone, Copy)]
pub enum Answer<'n> {
    /// A pre-shared key.
    Psk {
        /// Our PSK identity if we are the client; ignored if we are the server.
        identity: &'n [u8],
        /// The key, 1 to 64 bytes.
        key: &'n [u8],
        /// The principal that identifies the peer to the application in the requests of the peer.
        principal: Principal,
    },
    /// Server: the two keys of a PSK identity whose key is being replaced, each with the principal that the client
    /// proves with this key. The client may have either key. Only the roles of a host ([`Roles::ON_HOST`]) with
    /// resumption or public keys try both keys. In all other roles the handshake fails after this answer. The keys take
    /// 141 bytes of the outgoing buffer.
    Psks(&'n [(&'n [u8], Principal); 2]),
    /// The owner of the endpoint has no key for this peer. A server then continues with a random key, so that a peer
    /// cannot learn which PSK identities exist.
    Unknown,
    /// The peer is trusted, if it proves that it has the private key for this public key.
    Peer {
        /// The SubjectPublicKeyInfo of the peer, in DER.
        public_key: &'n [u8],
        /// The principal that identifies the peer to the application in the requests of the peer.
        principal: Principal,
    },
    /// The certificate may belong to a trusted certification path, and the next certificate of the list decides. As the
    /// answer to the last certificate, this variant refuses the peer. As the answer to an earlier certificate,
    /// [`Self::Peer`] also refuses the peer.
    Continue,
    /// The key of the peer is not trusted. The peer receives this alert.
    Refused(AlertDescription),
    /// The signature, in the format of its scheme. The format for ECDSA is DER.
    Signature(&'n [u8]),
    /// A new premaster secret and its encryption.
    Encrypted {
        /// The premaster secret: the version, and 46 random bytes.
        premaster: &'n Secret<PREMASTER_LEN>,
        /// The encrypted premaster secret. It has as many bytes as the modulus of the peer's key.
        encrypted: &'n [u8],
    },
    /// The decrypted premaster secret, or a random secret if the decryption failed. If the owner of the endpoint gives
    /// any other answer to [`Need::Decrypt`], the handshake uses a random secret.
    Premaster(&'n Secret<PREMASTER_LEN>),
}

/// Maximum number of bytes of a pre-shared key (RFC 4279, section 5.3, requires support for 64).
pub const MAX_PSK: usize = 64;

impl Handshake<'_> {
    /// Continues the handshake with the answer of the endpoint's owner to [`Self::need`].
    pub(crate) fn resume<C: Crypto, R: Roles>(
        &mut self,
        cx: &mut Cx<'_, C>,
        context: HandshakeContext<'_, R>,
        answer: Answer<'_>,
    ) -> Result<(), Outcome> {
        match self.state.step {
            Step::ClientNeedsPsk if R::CLIENT => self.resume_client(cx, context, answer)?,
            Step::ServerNeedsPsk if R::SERVER => self.resume_server::<C, R>(cx, answer),
            Step::ClientVerifies | Step::ServerVerifies if R::PUBLIC_KEYS => {
                self.on_verified::<R>(answer)?;
                self.state.await_rest(cx.now);
            }
            Step::ClientSigns | Step::ServerSigns if R::PUBLIC_KEYS => self.on_signed(context, answer)?,
            Step::ClientEncrypts if R::PUBLIC_KEYS && HAS_LONG_KEYS => self.on_encrypted(cx, context, answer)?,
            Step::ServerDecrypts if R::PUBLIC_KEYS && HAS_LONG_KEYS => self.on_decrypted::<C, R>(cx, answer),
            _ => {}
        }
        self.settle(cx, context)
    }
}

impl<'b> Handshake<'b> {
    /// Returns the input that the handshake waits for; `None` if it waits for no input.
    pub(crate) fn need<R: Roles>(self) -> Option<Need<'b>> {
        let Buffers { outgoing, .. } = self.buffers;
        let text = outgoing.get(self.state.cookie_len.into()..self.state.outgoing_len.into()).unwrap_or(&[]);
        match self.state.step {
            Step::ClientNeedsPsk => Some(Need::PskForServer { hint: text }),
            Step::ServerNeedsPsk => Some(Need::PskOfClient { identity: text }),
            Step::ClientVerifies | Step::ServerVerifies if R::CERTIFICATES_IN_PARTS => {
                self.state.inbox.verify_certificate(self.buffers.incoming)
            }
            Step::ClientVerifies | Step::ServerVerifies if R::PUBLIC_KEYS => Some(Need::VerifyPeer {
                certificate_type: self.state.peer_type(),
                content: self.state.inbox.kept(self.buffers.incoming).get(3..)?,
            }),
            Step::ClientSigns | Step::ServerSigns if R::PUBLIC_KEYS => {
                let digest = *scratch::get(outgoing, Item::Digest).first_chunk()?;
                Some(Need::Sign { server: kept_server::<R>(outgoing), credential: self.state.credential, digest })
            }
            Step::ClientEncrypts if R::PUBLIC_KEYS && HAS_LONG_KEYS => {
                Some(Need::Encrypt { public_key: scratch::get(outgoing, Item::PeerKey), version: VERSION })
            }
            Step::ServerDecrypts if R::PUBLIC_KEYS && HAS_LONG_KEYS => {
                let encrypted = key_exchange::read(self.state.inbox.kept(self.buffers.incoming)).ok()?;
                let version = *scratch::get(outgoing, Item::ClientVersion).first_chunk()?;
                let server = kept_server::<R>(outgoing);
                Some(Need::Decrypt { server, credential: self.state.credential, encrypted, version })
            }
            _ => None,
        }
    }
}
