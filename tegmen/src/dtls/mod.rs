//! DTLS 1.2 (RFC 6347) with pre-shared keys (RFC 4279, RFC 6655), and with certificates or raw public keys (RFC 8422,
//! RFC 7250).
//!
//! [`record`] opens and seals; `handshake` has one file per message; `inbox` reassembles fragments in a bounded buffer;
//! `receive` takes records and messages in their order; `certificate_list` takes certificates as they arrive; `flight`
//! writes our flights, and writes lost ones again; `client` and `server` are the two state machines; `abbreviated`
//! resumes sessions; `public_key` has the steps of both ends with public keys. The result of a handshake is an
//! `Association`. Nothing here depends on a peer table or a socket: that is [`crate::endpoint`]. `inspection` reads
//! handshakes of other endpoints, for tools.

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

/// DTLS 1.2 on the wire (RFC 6347, section 4.1).
pub(crate) const VERSION: [u8; 2] = [254, 253];

/// The extensions that a handshake offers, and the layout of its flights in datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Profile {
    /// Extended master secret (RFC 7627) and renegotiation indication (RFC 5746); a flight shares datagrams.
    #[default]
    Default,
    /// No extensions, and ClientKeyExchange, ChangeCipherSpec and Finished each in a separate datagram: the bytes of
    /// the Blink paper. Without extended master secret the session must not be exported or resumed.
    Minimal,
}

/// The settings of the DTLS side of an endpoint. Times have a resolution of one millisecond, and a maximum of 49 days.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The profile of handshakes.
    pub profile: Profile,
    /// The cipher suites. Only [`Extended`] endpoints have a choice.
    pub suites: Suites,
    /// Largest UDP payload that is sent, in bytes; larger handshake messages are fragmented to it. Where a flight is lost
    /// twice, [`Extended`] endpoints send it in datagrams of 508 bytes, then of 254, then of 127
    /// (RFC 6347, section 4.1.1.1); others keep to this size.
    pub mtu: u16,
    /// The longest content of a protected record that this end accepts, in bytes: 64 to 2^14, or 0 for any. A client
    /// asks for it with record_size_limit (RFC 8449), and from 512 on also with the next lower max_fragment_length
    /// (RFC 6066, section 4). A server announces it to clients that ask. Only [`Extended`]
    /// endpoints support it.
    pub record_size_limit: u16,
    /// Connection ids (RFC 9146): a client offers them, a server accepts them from clients that offer them; `None`
    /// turns both off. Only [`Extended`] endpoints support them, and not under
    /// [`Profile::Minimal`].
    pub connection_id: Option<ConnectionIdConfig>,
    /// First retransmission timeout. It doubles with each retransmission (RFC 6347, section 4.2.4.1). The check of a
    /// new address waits for its response for the same time.
    pub retransmit_first: Duration,
    /// The longest retransmission timeout.
    pub retransmit_max: Duration,
    /// The maximum duration of a handshake; a longer one fails.
    pub handshake_timeout: Duration,
    /// The time for which the last flight is kept for retransmission: twice the maximum segment lifetime (RFC 6347,
    /// section 4.2.4).
    pub linger: Duration,
    /// The time after which a session that received nothing is forgotten. Zero keeps it until it is displaced.
    pub idle_timeout: Duration,
    /// The minimum time for which a cookie is valid, within a second in thirty. A cookie is valid for at most twice
    /// this time.
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

/// [`Config`] as it is kept: a mote multiplies no 64-bit numbers and passes on 4 bytes for each time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) profile: Profile,
    pub(crate) mtu: u16,
    pub(crate) retransmit_first_ms: u32,
    pub(crate) retransmit_max_ms: u32,
    pub(crate) handshake_timeout_ms: u32,
    pub(crate) linger_ms: u32,
    /// Zero if there is none.
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
    /// A handshake message that is not allowed in this state.
    UnexpectedMessage(MessageType),
    /// A handshake message that does not parse.
    Decode,
    /// The peer sent a value out of range, or chose what was not offered.
    IllegalParameter,
    /// The server answered an extension that was not sent.
    UnsupportedExtension,
    /// The peer offers no cipher suite that we accept.
    NoCommonSuite,
    /// The peer accepts no type of certificate that we have, or has none that we accept (RFC 7250, section 4.2).
    NoCommonCertificateType,
    /// The peer does not support DTLS 1.2.
    Version,
    /// A handshake message that is longer than the buffers can ever hold.
    TooLarge,
    /// A record that holds more than was agreed on (RFC 8449, section 4).
    RecordOverflow,
    /// The peer's Finished does not match the handshake.
    BadFinished,
    /// A signature of the handshake is wrong: the peer does not have the private key of what it showed.
    BadSignature,
    /// The certificate or raw public key of the peer was refused, or the name of the server that it asks for. The code that refused
    /// it knows the cause.
    Refused(AlertDescription),
    /// The client has no certificate, but the server requires one.
    NoCertificate,
    /// The peer resumes a session that had extended master secret without it (RFC 7627, section 5.3).
    NoExtendedMasterSecret,
    /// The peer's Finished could not be decrypted: its key or its identity differs from the one known here. The peer
    /// receives the same alert in both cases; `identity_known` is for the operator's log.
    WrongKeyOrIdentity {
        /// False if no key is configured for the identity.
        identity_known: bool,
    },
    /// No key is configured for this server, so nothing can be offered to it. Or the server declined to resume a
    /// session that this client can only resume.
    NoCredentials,
    /// The peer fell silent before the handshake ended. A server that does not answer our Finished has
    /// forgotten the handshake, or cannot be reached any more; some servers do not answer a wrong key either.
    TimedOut {
        /// True if our Finished was sent and not answered.
        after_finished: bool,
    },
    /// The peer ended the association with this alert.
    Alert(AlertDescription),
    /// The peer closed the session with close_notify.
    Closed,
    /// A key reached its limit: 2^23 sealed records or 2^10 failed opens. A new handshake gives new keys.
    KeyExhausted,
    /// Nothing was received for the configured time.
    Idle,
}
