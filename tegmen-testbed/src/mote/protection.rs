//! The protections of a node's readings.

/// The protection of the readings.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub enum Protection {
    /// Nothing.
    #[serde(rename = "coap")]
    Coap,
    /// The payload of responses alone, under AES-128-CCM: see [`crate::coap_protected`].
    #[serde(rename = "coap-protected")]
    CoapProtected,
    /// DTLS 1.2 with a pre-shared key and AES-128-CCM-8.
    #[serde(rename = "coap+dtls")]
    CoapDtls,
    /// OSCORE with AES-CCM-16-64-128 and IDs of one byte.
    #[serde(rename = "oscore")]
    Oscore,
    /// Requests to a group with the keys of the group, and responses with keys that Axiom derives from these.
    #[serde(rename = "axiom")]
    Axiom,
    /// Requests to a group with the keys of the group, and responses over a DTLS session with each member
    /// (draft-keoh-dice-multicast-security).
    #[serde(rename = "axiom+dtls")]
    AxiomDtls,
}

impl Protection {
    /// The protections of readings.
    pub const ALL: [Self; 4] = [Self::Coap, Self::CoapProtected, Self::CoapDtls, Self::Oscore];
    /// The protections of a group that is asked.
    pub const OF_GROUPS: [Self; 4] = [Self::Coap, Self::CoapDtls, Self::AxiomDtls, Self::Axiom];
    /// The protections of a plan that names none. A protection that leaves readings unprotected has to be named.
    pub const USUAL: [Self; 3] = [Self::Coap, Self::CoapDtls, Self::Oscore];

    /// Returns the name of the protection in plans.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Coap => "coap",
            Self::CoapProtected => "coap-protected",
            Self::CoapDtls => "coap+dtls",
            Self::Oscore => "oscore",
            Self::Axiom => "axiom",
            Self::AxiomDtls => "axiom+dtls",
        }
    }

    /// True if a group is asked over a session with each member, or its members answer over one.
    pub const fn has_sessions(self) -> bool {
        matches!(self, Self::CoapDtls | Self::AxiomDtls)
    }

    /// True if the keys of a group protect requests.
    pub const fn is_in_group(self) -> bool {
        matches!(self, Self::Axiom | Self::AxiomDtls)
    }

    /// True if requests are protected, and with them the readings.
    pub const fn protects_readings(self) -> bool {
        matches!(self, Self::CoapDtls | Self::Oscore | Self::Axiom | Self::AxiomDtls)
    }

    /// The firmware image that shows what a client of this protection takes of a mote's memory.
    pub const fn image(self) -> &'static str {
        match self {
            // There is none with coap-protected: it takes AES besides.
            Self::Coap | Self::CoapProtected => "coap",
            // There is none yet with groups, which have the records of DTLS.
            Self::CoapDtls | Self::Axiom | Self::AxiomDtls => "dtls_psk_client",
            // Both ends of a context in one.
            Self::Oscore => "oscore",
        }
    }
}
