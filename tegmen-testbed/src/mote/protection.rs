//! The protections that a node can use for its readings.

use crate::cost::{HandshakeCosts, Handshakes};

/// The protection of the readings of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub enum Protection {
    /// No protection.
    #[serde(rename = "coap")]
    Coap,
    /// AES-128-CCM that encrypts only the payload of responses. [`crate::coap_protected`] describes the format.
    #[serde(rename = "coap-protected")]
    CoapProtected,
    /// DTLS 1.2 with a pre-shared key and AES-128-CCM-8.
    #[serde(rename = "coap+dtls")]
    CoapDtls,
    /// DTLS 1.2 with a pre-shared key and connection ids (RFC 9146).
    #[serde(rename = "connection-id")]
    ConnectionId,
    /// DTLS 1.2 with a pre-shared key. Sessions are resumed with tickets (RFC 5077).
    #[serde(rename = "ticket")]
    Ticket,
    /// DTLS 1.2 with raw public keys on secp256r1 (RFC 7250).
    #[serde(rename = "raw-key")]
    RawKey,
    /// DTLS 1.2 with certificates on secp256r1. A CA below the trust anchor issued them.
    #[serde(rename = "certificate")]
    Certificate,
    /// DTLS 1.2 with sessions that a delegation server opened. Nodes resume them with tickets.
    #[serde(rename = "delegation")]
    Delegation,
    /// OSCORE with AES-CCM-16-64-128 and IDs of one byte.
    #[serde(rename = "oscore")]
    Oscore,
    /// Requests to a group that are protected with the keys of the group. Axiom derives the keys of the responses from
    /// the keys of the group.
    #[serde(rename = "axiom")]
    Axiom,
    /// Requests to a group that are protected with the keys of the group. Each member sends its response over a DTLS
    /// session (draft-keoh-dice-multicast-security).
    #[serde(rename = "axiom+dtls")]
    AxiomDtls,
    /// No protection, over Named Data Networking. Node 0 is the producer, and the other nodes request readings by name.
    #[serde(rename = "ndn")]
    Ndn,
    /// Named Data Networking with content that AES-128-CCM encrypts, and packets that HMAC-SHA256 signs.
    #[serde(rename = "ndn-protected")]
    NdnProtected,
}

impl Protection {
    /// The protections of readings that nodes send to node 0.
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
    /// The protections of readings that nodes request over Named Data Networking.
    pub const NAMED: [Self; 2] = [Self::Ndn, Self::NdnProtected];
    /// The protections with which a plan runs if it lists none. A plan runs with another protection only if it lists
    /// this protection.
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

    /// Returns true if nodes open sessions. The sessions protect readings, the requests to each member of a group, or
    /// the responses of members.
    pub const fn has_sessions(self) -> bool {
        matches!(self, Self::CoapDtls | Self::AxiomDtls) || self.has_extensions()
    }

    /// Returns true if handshakes need extensions that the minimal profile does not have.
    pub const fn has_extensions(self) -> bool {
        matches!(self, Self::ConnectionId | Self::Ticket | Self::Delegation) || self.has_public_keys()
    }

    /// Returns true if client and server perform public-key operations in a handshake. A mote needs seconds for such an
    /// operation.
    pub const fn has_public_keys(self) -> bool {
        matches!(self, Self::RawKey | Self::Certificate)
    }

    /// Returns true if the keys of a group protect requests.
    pub const fn is_in_group(self) -> bool {
        matches!(self, Self::Axiom | Self::AxiomDtls)
    }

    /// Returns true if nodes request readings by name, over Named Data Networking.
    pub const fn is_named(self) -> bool {
        matches!(self, Self::Ndn | Self::NdnProtected)
    }

    /// Returns true if readings are protected. Requests are then protected too, except over Named Data Networking.
    pub const fn protects_readings(self) -> bool {
        self.has_sessions() || matches!(self, Self::Oscore | Self::Axiom | Self::NdnProtected)
    }

    /// Returns the numbers of processor instructions of the client or of the server for the steps of a handshake.
    /// `is_resumed` is true if the handshake resumes a session.
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

    /// Returns the name of the firmware image whose ROM and RAM are reported for a mote with this protection. The mote
    /// is a client, or a listener of a group. If no image has exactly this protection, the result is the most similar
    /// image. For [`Self::NdnProtected`] it is the image with unprotected NDN.
    pub const fn image(self) -> &'static str {
        match self {
            // No image has coap-protected, which also needs AES.
            Self::Coap | Self::CoapProtected => "coap",
            // The image has no connection ids.
            Self::CoapDtls | Self::ConnectionId => "dtls_psk_client",
            Self::Axiom => "axiom_listener",
            // The image joins the group over DTLS. It does not answer requests over DTLS.
            Self::AxiomDtls => "axiom_member",
            // The image contains both the client and the server.
            Self::Ticket => "dtls_resume",
            Self::RawKey => "dtls_rpk",
            Self::Certificate => "dtls_x509",
            Self::Delegation => "dtls_delegated",
            // The image contains both endpoints of an OSCORE context.
            Self::Oscore => "oscore",
            Self::Ndn | Self::NdnProtected => "ndn",
        }
    }
}
