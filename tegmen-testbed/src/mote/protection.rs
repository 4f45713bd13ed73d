//! The protections of a node's readings.

use crate::cost::{HandshakeCosts, Handshakes};

/// The protection of the readings of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub enum Protection {
    /// No protection.
    #[serde(rename = "coap")]
    Coap,
    /// AES-128-CCM for the payload of responses alone. [`crate::coap_protected`] describes the format.
    #[serde(rename = "coap-protected")]
    CoapProtected,
    /// DTLS 1.2 with a pre-shared key and AES-128-CCM-8.
    #[serde(rename = "coap+dtls")]
    CoapDtls,
    /// DTLS 1.2 with a pre-shared key and connection ids (RFC 9146).
    #[serde(rename = "connection-id")]
    ConnectionId,
    /// DTLS 1.2 with a pre-shared key, and resumption with tickets (RFC 5077).
    #[serde(rename = "ticket")]
    Ticket,
    /// DTLS 1.2 with raw public keys on secp256r1 (RFC 7250).
    #[serde(rename = "raw-key")]
    RawKey,
    /// DTLS 1.2 with certificates on secp256r1, which a CA below the root issued.
    #[serde(rename = "certificate")]
    Certificate,
    /// DTLS 1.2 with sessions of a delegation server, which nodes resume with tickets.
    #[serde(rename = "delegation")]
    Delegation,
    /// OSCORE with AES-CCM-16-64-128 and IDs of one byte.
    #[serde(rename = "oscore")]
    Oscore,
    /// Requests to a group with the keys of the group, and responses with keys that Axiom derives from the keys of the
    /// group.
    #[serde(rename = "axiom")]
    Axiom,
    /// Requests to a group with the keys of the group, and responses over a DTLS session with each member
    /// (draft-keoh-dice-multicast-security).
    #[serde(rename = "axiom+dtls")]
    AxiomDtls,
    /// No protection, over Named Data Networking. Node 0 is the producer, and nodes request readings by name.
    #[serde(rename = "ndn")]
    Ndn,
    /// Named Data Networking with content under AES-128-CCM and packets signed by HMAC-SHA256.
    #[serde(rename = "ndn-protected")]
    NdnProtected,
}

impl Protection {
    /// The protections of readings that nodes send.
    pub const ALL: [Self; 9] = [
        Self::Coap,
        Self::CoapProtected,
        Self::CoapDtls,
        Self::Oscore,
        Self::ConnectionId,
        Self::Ticket,
        Self::RawKey,
        Self::Certificate,
        Self::Delegation,
    ];
    /// The protections of requests to a group.
    pub const OF_GROUPS: [Self; 4] = [Self::Coap, Self::CoapDtls, Self::AxiomDtls, Self::Axiom];
    /// The protections of readings over Named Data Networking.
    pub const NAMED: [Self; 2] = [Self::Ndn, Self::NdnProtected];
    /// The protections of a plan that names no protection. A plan must name a protection that leaves readings
    /// unprotected.
    pub const USUAL: [Self; 3] = [Self::Coap, Self::CoapDtls, Self::Oscore];

    /// Returns the name of the protection in plans.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Coap => "coap",
            Self::CoapProtected => "coap-protected",
            Self::CoapDtls => "coap+dtls",
            Self::ConnectionId => "connection-id",
            Self::Ticket => "ticket",
            Self::RawKey => "raw-key",
            Self::Certificate => "certificate",
            Self::Delegation => "delegation",
            Self::Oscore => "oscore",
            Self::Axiom => "axiom",
            Self::AxiomDtls => "axiom+dtls",
            Self::Ndn => "ndn",
            Self::NdnProtected => "ndn-protected",
        }
    }

    /// Returns true if there are sessions: for readings, for requests to each member of a group, or for the responses
    /// of members.
    pub const fn has_sessions(self) -> bool {
        matches!(self, Self::CoapDtls | Self::AxiomDtls) || self.has_extensions()
    }

    /// Returns true if handshakes need extensions, which the minimal profile does not have.
    pub const fn has_extensions(self) -> bool {
        matches!(self, Self::ConnectionId | Self::Ticket | Self::Delegation) || self.has_public_keys()
    }

    /// Returns true if both ends do public-key operations in a handshake. These take a mote seconds.
    pub const fn has_public_keys(self) -> bool {
        matches!(self, Self::RawKey | Self::Certificate)
    }

    /// Returns true if the keys of a group protect requests.
    pub const fn is_in_group(self) -> bool {
        matches!(self, Self::Axiom | Self::AxiomDtls)
    }

    /// Returns true if readings have names, and go over Named Data Networking.
    pub const fn is_named(self) -> bool {
        matches!(self, Self::Ndn | Self::NdnProtected)
    }

    /// Returns true if readings are protected. Requests are protected too, unless readings have names.
    pub const fn protects_readings(self) -> bool {
        self.has_sessions() || matches!(self, Self::Oscore | Self::Axiom | Self::NdnProtected)
    }

    /// Returns the instructions of one end in a handshake, which may resume a session.
    pub const fn handshake(self, costs: &Handshakes, is_client: bool, is_resumed: bool) -> HandshakeCosts {
        let [of_client, of_server] = match self {
            Self::Certificate => costs.certificate,
            Self::RawKey => costs.raw_key,
            Self::Ticket if is_resumed => costs.resumed,
            Self::Ticket => costs.with_ticket,
            Self::Delegation => costs.delegated,
            _ => costs.psk,
        };
        if is_client { of_client } else { of_server }
    }

    /// Returns the firmware image that shows the memory of a client with this protection. The budget has no image with
    /// NDN yet.
    pub const fn image(self) -> &'static str {
        match self {
            // There is none with coap-protected, which also needs AES.
            Self::Coap | Self::CoapProtected => "coap",
            // There is none yet with groups, which have the records of DTLS.
            // Nor with connection ids: they are not part of an image.
            Self::CoapDtls | Self::ConnectionId | Self::Axiom | Self::AxiomDtls => "dtls_psk_client",
            // Both ends in one.
            Self::Ticket => "dtls_resume",
            Self::RawKey => "dtls_rpk",
            Self::Certificate => "dtls_x509",
            Self::Delegation => "dtls_delegated",
            // Both ends of a context in one.
            Self::Oscore => "oscore",
            Self::Ndn | Self::NdnProtected => "ndn",
        }
    }
}
