//! DTLS 1.2 (RFC 6347) with pre-shared keys (RFC 4279, RFC 6655), and with certificates or raw public keys (RFC 8422,
//! RFC 7250).
//!
//! [`record`] encrypts and decrypts records. `handshake` has one file for each message. `inbox` reassembles fragments
//! in a bounded buffer. `receive` processes records and messages in their order. `certificate_list` verifies
//! certificates while they arrive. `flight` writes our flights, and retransmits lost flights. `client` and `server` are
//! the state machines of the two roles. `abbreviated` resumes sessions. `public_key` has the steps with public keys
//! that both roles share. The result of a handshake is an `Association`. This module uses no peer table and no socket:
//! the peer table is in [`crate::endpoint`]. `inspection` reads handshakes of other endpoints, for tools.

mod abbreviated;
pub(crate) mod alert;
pub(crate) mod association;
mod certificate_list;
mod client;
pub(crate) mod connection_id;
pub(crate) mod context;
pub(crate) mod cookie;
pub(crate) mod element;
mod exporter;
pub(crate) mod flight;
pub(crate) mod handshake;
mod inbox;
mod inspection;
pub(crate) mod need;
mod offer;
pub(crate) mod outcome;
mod parts;
pub(crate) mod public_key;
mod receive;
pub mod record;
pub(crate) mod record_size;
pub(crate) mod resumption;
pub(crate) mod return_routability;
pub(crate) mod roles;
mod rsa;
mod scratch;
mod server;
mod server_name;
pub(crate) mod session;
pub(crate) mod state;
pub(crate) mod suite;

pub use alert::AlertDescription;
pub use association::Rank;
pub use connection_id::{AddressChanges, ConnectionIdConfig, ConnectionIds};
pub use handshake::MessageType;
pub use handshake::certificate::{CertificateType, certificates};
pub use inspection::{HandshakeFragment, HandshakeMessage};
pub use need::{Answer, MAX_PSK, Need};
pub use record::{Channel, ContentType, Record, Records};
pub use resumption::{Found, Handle, MASTER_LEN, Resumable, Resumption, SessionState};
pub use roles::{
    Both, ClientAuthentication, ClientOnly, Configured, Credential, Extended, Keys, PublicKeys, Resuming, Roles,
    ServerOnly,
};
pub use rsa::{PREMASTER_LEN, premaster_secret};
pub use session::{SEALED_SESSION_LEN, Session};
pub use state::{Buffers, Handshake, HandshakeState, wipe_room};
pub use suite::{CipherSuite, Suites};

use crate::time::{Duration, millis};

/// The version bytes of DTLS 1.2 (RFC 6347, section 4.1).
pub(crate) const VERSION: [u8; 2] = [254, 253];

/// The set of extensions that a handshake offers, and the rule by which its messages share datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Profile {
    /// Extended master secret (RFC 7627) and renegotiation indication (RFC 5746). Several messages of a flight share
    /// a datagram.
    #[default]
    Default,
    /// No extensions. ClientKeyExchange, ChangeCipherSpec and Finished are each in a separate datagram. The handshakes
    /// then have the same bytes as the handshakes in the Blink paper. Because extended master secret is missing, do not
    /// export keys from the session, and do not resume it.
    Minimal,
}

/// The settings of an endpoint for DTLS. Times have a resolution of one millisecond, and a maximum of 49 days.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The extensions that handshakes offer, and the rule by which their messages share datagrams.
    pub profile: Profile,
    /// The cipher suites that handshakes offer and accept. Only [`Extended`] endpoints have a choice.
    pub suites: Suites,
    /// Maximum UDP payload of a handshake datagram that we send, in bytes. Longer handshake messages are fragmented. If
    /// a flight is lost twice, [`Extended`] endpoints send it in datagrams of at most 508 bytes, then of 254, then of
    /// 127 (RFC 6347, section 4.1.1.1). Other endpoints do not change the size.
    pub mtu: u16,
    /// The maximum number of bytes of content in a protected record that this endpoint accepts: 64 to 2^14, or 0 for no
    /// limit. A client sends this number in record_size_limit (RFC 8449). If the number is 512 or more, the client also
    /// sends the next lower value of max_fragment_length (RFC 6066, section 4). A server sends its limit to clients
    /// that support record_size_limit. Only [`Extended`] endpoints support this limit.
    pub record_size_limit: u16,
    /// The settings of connection ids (RFC 9146). With these settings, a client offers connection ids, and a server
    /// accepts them from clients that offer them. With `None`, the endpoint neither offers nor accepts connection ids.
    /// Only [`Extended`] endpoints support connection ids. With [`Profile::Minimal`] they do not use connection ids
    /// either.
    pub connection_id: Option<ConnectionIdConfig>,
    /// The first retransmission timeout. It doubles with each retransmission (RFC 6347, section 4.2.4.1). When a return
    /// routability check is sent to a new address of a peer, this is also the time limit for the response.
    pub retransmit_first: Duration,
    /// The longest retransmission timeout.
    pub retransmit_max: Duration,
    /// The maximum duration of a handshake. After this time the handshake fails.
    pub handshake_timeout: Duration,
    /// The time for which the last flight is kept for retransmission: twice the maximum segment lifetime (RFC 6347,
    /// section 4.2.4).
    pub linger: Duration,
    /// The time without a received record after which the endpoint ends a session. With zero, a session remains until
    /// the endpoint needs its memory for another peer.
    pub idle_timeout: Duration,
    /// The minimum time for which a cookie is valid. The real minimum may differ by about one thirtieth of this time. A
    /// cookie is valid for at most twice this time.
    pub cookie_lifetime: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            profile: Profile::Default,
            suites: Suites::CCM_8,
            mtu: 1232,
            record_size_limit: 0,
            connection_id: None,
            retransmit_first: Duration::from_secs(1),
            retransmit_max: Duration::from_secs(60),
            handshake_timeout: Duration::from_secs(60),
            linger: Duration::from_secs(240),
            idle_timeout: Duration::ZERO,
            cookie_lifetime: Duration::from_secs(60),
        }
    }
}

/// [`Config`] in the form in which an endpoint stores it. Each time is a 32-bit number of milliseconds, so a mote needs
/// no multiplications of 64-bit numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) profile: Profile,
    pub(crate) mtu: u16,
    pub(crate) retransmit_first_ms: u32,
    pub(crate) retransmit_max_ms: u32,
    pub(crate) handshake_timeout_ms: u32,
    pub(crate) linger_ms: u32,
    /// The idle timeout in milliseconds; 0 if sessions have no idle timeout.
    pub(crate) idle_timeout_ms: u32,
    pub(crate) cookie_lifetime_ms: u32,
}

impl From<Config> for Settings {
    fn from(config: Config) -> Self {
        Self {
            profile: config.profile,
            mtu: config.mtu.max(64),
            retransmit_first_ms: millis(config.retransmit_first),
            retransmit_max_ms: millis(config.retransmit_max),
            handshake_timeout_ms: millis(config.handshake_timeout),
            linger_ms: millis(config.linger),
            idle_timeout_ms: millis(config.idle_timeout),
            cookie_lifetime_ms: millis(config.cookie_lifetime),
        }
    }
}

/// The reason why an association ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fatal {
    /// The peer sent a handshake message that is not allowed in this state.
    UnexpectedMessage(MessageType),
    /// The peer sent a handshake message that does not parse.
    Decode,
    /// The peer sent a value out of range, or chose a value that was not offered.
    IllegalParameter,
    /// The ServerHello contains an extension that the client did not send.
    UnsupportedExtension,
    /// The peer offers no cipher suite that we accept.
    NoCommonSuite,
    /// The peer accepts none of the certificate types of our credentials, or we accept none of the peer's certificate
    /// types (RFC 7250, section 4.2).
    NoCommonCertificateType,
    /// The peer does not support DTLS 1.2.
    Version,
    /// A handshake message is longer than one of our buffers.
    TooLarge,
    /// The peer sent a record with more content than the agreed limit (RFC 8449, section 4).
    RecordOverflow,
    /// The content of the peer's Finished does not match the handshake.
    BadFinished,
    /// A signature of the handshake is wrong. So the peer has not proved that it has the private key for the public key
    /// that it sent.
    BadSignature,
    /// The owner of the endpoint refused the certificate or the raw public key of the peer, or the server name in the
    /// peer's ClientHello. The reason is known only to the code of the owner that refused.
    Refused(AlertDescription),
    /// The server requires a certificate from the client, and the client has none.
    NoCertificate,
    /// The peer resumes a session without extended master secret, but the original session had it (RFC 7627, section
    /// 5.3).
    NoExtendedMasterSecret,
    /// The peer's Finished did not decrypt, because the peer's key is not the configured key, or because no key is
    /// configured for the peer's PSK identity. The peer receives the same alert in both cases. For the operator's log,
    /// `identity_known` distinguishes the two cases.
    WrongKeyOrIdentity {
        /// False if no key is configured for the PSK identity.
        identity_known: bool,
    },
    /// The owner of the endpoint did not supply the input for which the handshake asked: the client's pre-shared key, a
    /// signature, or an encrypted premaster secret. Or the server declined to resume a session, and the client uses the
    /// cipher suite of this session only for resumption.
    NoCredentials,
    /// The handshake reached its time limit, because no more messages of the peer arrived. A server that does not
    /// answer our Finished has forgotten the handshake, or cannot be reached any more. Some servers also do not answer
    /// if the key is wrong.
    TimedOut {
        /// True if we sent our Finished and got no answer to it.
        after_finished: bool,
    },
    /// The peer ended the association with this alert.
    Alert(AlertDescription),
    /// The peer closed the session with close_notify.
    Closed,
    /// A key reached its limit: 2^23 records were sealed, or 2^10 records failed to open. A new handshake gives new
    /// keys.
    KeyExhausted,
    /// No record was received for the configured idle timeout.
    Idle,
    /// The ClientHello or ServerHello of the peer has a renegotiation_info that is not empty. Such a message begins or
    /// answers a renegotiation (RFC 5746, sections 3.4 and 3.6). This implementation does not renegotiate.
    Renegotiation,
}
