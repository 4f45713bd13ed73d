//! The types of elements.

/// The type of an element (packet format, section "TLV-TYPE number assignments"), from 1 to 4,294,967,295.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Type(pub u32);

impl Type {
    /// A component of a name: the digest of a whole Data packet.
    pub const IMPLICIT_DIGEST: Self = Self(1);
    /// A component of a name: the digest of the parameters of an Interest.
    pub const PARAMETERS_DIGEST: Self = Self(2);
    /// Interest.
    pub const INTEREST: Self = Self(5);
    /// Data.
    pub const DATA: Self = Self(6);
    /// Name.
    pub const NAME: Self = Self(7);
    /// A component of a name. The component has no special meaning.
    pub const GENERIC: Self = Self(8);
    /// Nonce.
    pub const NONCE: Self = Self(10);
    /// InterestLifetime.
    pub const LIFETIME: Self = Self(12);
    /// MustBeFresh.
    pub const MUST_BE_FRESH: Self = Self(18);
    /// MetaInfo.
    pub const META_INFO: Self = Self(20);
    /// Content.
    pub const CONTENT: Self = Self(21);
    /// SignatureInfo of a Data packet.
    pub const SIGNATURE_INFO: Self = Self(22);
    /// SignatureValue of a Data packet.
    pub const SIGNATURE_VALUE: Self = Self(23);
    /// ContentType.
    pub const CONTENT_TYPE: Self = Self(24);
    /// FreshnessPeriod.
    pub const FRESHNESS: Self = Self(25);
    /// FinalBlockId.
    pub const FINAL_BLOCK: Self = Self(26);
    /// SignatureType.
    pub const SIGNATURE_TYPE: Self = Self(27);
    /// KeyLocator.
    pub const KEY_LOCATOR: Self = Self(28);
    /// KeyDigest.
    pub const KEY_DIGEST: Self = Self(29);
    /// ForwardingHint.
    pub const FORWARDING_HINT: Self = Self(30);
    /// A component of a name: a keyword (naming conventions, revision 3).
    pub const KEYWORD: Self = Self(32);
    /// CanBePrefix.
    pub const CAN_BE_PREFIX: Self = Self(33);
    /// HopLimit.
    pub const HOP_LIMIT: Self = Self(34);
    /// ApplicationParameters.
    pub const PARAMETERS: Self = Self(36);
    /// SignatureNonce.
    pub const SIGNATURE_NONCE: Self = Self(38);
    /// SignatureTime.
    pub const SIGNATURE_TIME: Self = Self(40);
    /// SignatureSeqNum.
    pub const SIGNATURE_SEQUENCE: Self = Self(42);
    /// InterestSignatureInfo.
    pub const INTEREST_SIGNATURE_INFO: Self = Self(44);
    /// InterestSignatureValue.
    pub const INTEREST_SIGNATURE_VALUE: Self = Self(46);
    /// A component of a name: the number of a segment (naming conventions, revision 3).
    pub const SEGMENT: Self = Self(50);
    /// A component of a name: an offset in bytes.
    pub const BYTE_OFFSET: Self = Self(52);
    /// A component of a name: a version.
    pub const VERSION: Self = Self(54);
    /// A component of a name: a time in microseconds since 1970.
    pub const TIMESTAMP: Self = Self(56);
    /// A component of a name: a sequence number.
    pub const SEQUENCE: Self = Self(58);

    /// ValidityPeriod (certificate format v2).
    pub const VALIDITY_PERIOD: Self = Self(253);
    /// NotBefore.
    pub const NOT_BEFORE: Self = Self(254);
    /// NotAfter.
    pub const NOT_AFTER: Self = Self(255);

    /// Returns true if a packet with an unknown element of this type must be dropped: for all types below 32, and for
    /// odd types above (packet format, section "Considerations for evolvability of TLV-based encoding").
    pub const fn is_critical(self) -> bool {
        self.0 < 32 || self.0 & 1 == 1
    }
}
