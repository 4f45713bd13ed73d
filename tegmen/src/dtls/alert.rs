//! Alerts (RFC 5246, section 7.2).

use super::Fatal;
use core::fmt;

/// The description of an alert, which is its second byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AlertDescription(pub u8);

impl AlertDescription {
    /// close_notify: the sender closes the session normally.
    pub const CLOSE_NOTIFY: Self = Self(0);
    /// unexpected_message: the message is not allowed in the current state.
    pub const UNEXPECTED_MESSAGE: Self = Self(10);
    /// record_overflow: the record contains more bytes than allowed.
    pub const RECORD_OVERFLOW: Self = Self(22);
    /// handshake_failure: the two peers have no set of parameters in common.
    pub const HANDSHAKE_FAILURE: Self = Self(40);
    /// bad_certificate: the certificate cannot be parsed, or its signatures are wrong.
    pub const BAD_CERTIFICATE: Self = Self(42);
    /// unsupported_certificate: the sender of the alert does not accept this type of certificate.
    pub const UNSUPPORTED_CERTIFICATE: Self = Self(43);
    /// certificate_unknown: the certificate is not accepted, for a reason that no other alert states.
    pub const CERTIFICATE_UNKNOWN: Self = Self(46);
    /// illegal_parameter: a field is out of range, or contradicts other fields.
    pub const ILLEGAL_PARAMETER: Self = Self(47);
    /// decode_error: the message does not parse.
    pub const DECODE_ERROR: Self = Self(50);
    /// decrypt_error: a cryptographic operation of the handshake failed. A server also sends this alert for an
    /// unknown PSK identity (RFC 4279, section 2).
    pub const DECRYPT_ERROR: Self = Self(51);
    /// protocol_version: the version is not supported.
    pub const PROTOCOL_VERSION: Self = Self(70);
    /// internal_error: the sender of the alert had an internal error.
    pub const INTERNAL_ERROR: Self = Self(80);
    /// user_canceled: the user of the peer cancelled the handshake.
    pub const USER_CANCELED: Self = Self(90);
    /// no_renegotiation: the peer refuses to renegotiate. This alert is a warning.
    pub const NO_RENEGOTIATION: Self = Self(100);
    /// unsupported_extension: the ServerHello contains an extension that the client did not offer.
    pub const UNSUPPORTED_EXTENSION: Self = Self(110);
    /// unrecognized_name: there is no server with the name in the ClientHello (RFC 6066, section 3).
    pub(crate) const UNRECOGNIZED_NAME: Self = Self(112);
    /// unknown_psk_identity: the server has no key for this identity (RFC 4279, section 2).
    pub const UNKNOWN_PSK_IDENTITY: Self = Self(115);

    /// Returns the name of the alert in the IANA registry of TLS alerts; "unassigned" if the number has no name. For a
    /// number without a name, `Display` writes the number.
    pub const fn name(self) -> &'static str {
        match self.0 {
            0 => "close_notify",
            10 => "unexpected_message",
            20 => "bad_record_mac",
            21 => "decryption_failed",
            22 => "record_overflow",
            30 => "decompression_failure",
            40 => "handshake_failure",
            41 => "no_certificate",
            42 => "bad_certificate",
            43 => "unsupported_certificate",
            44 => "certificate_revoked",
            45 => "certificate_expired",
            46 => "certificate_unknown",
            47 => "illegal_parameter",
            48 => "unknown_ca",
            49 => "access_denied",
            50 => "decode_error",
            51 => "decrypt_error",
            52 => "too_many_cids_requested",
            60 => "export_restriction",
            70 => "protocol_version",
            71 => "insufficient_security",
            80 => "internal_error",
            86 => "inappropriate_fallback",
            90 => "user_canceled",
            100 => "no_renegotiation",
            109 => "missing_extension",
            110 => "unsupported_extension",
            111 => "certificate_unobtainable",
            112 => "unrecognized_name",
            113 => "bad_certificate_status_response",
            114 => "bad_certificate_hash_value",
            115 => "unknown_psk_identity",
            116 => "certificate_required",
            120 => "no_application_protocol",
            _ => "unassigned",
        }
    }
}

impl fmt::Display for AlertDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            "unassigned" => write!(f, "alert {}, which has no name", self.0),
            name => f.write_str(name),
        }
    }
}

/// The first byte of a fatal alert: its level. Alerts with every other level are treated as warnings.
pub(crate) const FATAL: u8 = 2;
/// The first byte of a warning alert: its level.
pub(crate) const WARNING: u8 = 1;

impl Fatal {
    /// Returns the alert that is sent to the peer for this error; `None` if no alert is sent.
    pub(crate) const fn alert(&self) -> Option<AlertDescription> {
        Some(match self {
            Self::UnexpectedMessage(_) => AlertDescription::UNEXPECTED_MESSAGE,
            Self::Decode => AlertDescription::DECODE_ERROR,
            Self::IllegalParameter => AlertDescription::ILLEGAL_PARAMETER,
            Self::UnsupportedExtension => AlertDescription::UNSUPPORTED_EXTENSION,
            Self::NoCommonSuite => AlertDescription::HANDSHAKE_FAILURE,
            Self::NoCommonCertificateType => AlertDescription::UNSUPPORTED_CERTIFICATE,
            Self::Version => AlertDescription::PROTOCOL_VERSION,
            Self::TooLarge => AlertDescription::HANDSHAKE_FAILURE,
            Self::RecordOverflow => AlertDescription::RECORD_OVERFLOW,
            Self::Refused(alert) => *alert,
            Self::NoCertificate | Self::NoExtendedMasterSecret | Self::Renegotiation => {
                AlertDescription::HANDSHAKE_FAILURE
            }
            Self::BadFinished | Self::BadSignature | Self::WrongKeyOrIdentity { .. } => AlertDescription::DECRYPT_ERROR,
            Self::NoCredentials => AlertDescription::USER_CANCELED,
            Self::Closed | Self::KeyExhausted => AlertDescription::CLOSE_NOTIFY,
            Self::TimedOut { .. } | Self::Alert(_) | Self::Idle => return None,
        })
    }
}

#[cfg(test)]
mod tests;
