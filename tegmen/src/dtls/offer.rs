//! The offer of a ClientHello: cipher suites and extensions (RFC 5246, section 7.4.1.2).

use super::context::{HandshakeContext, usable};
use super::handshake::Write;
use super::handshake::certificate::CertificateType;
use super::handshake::certificate_request::SIGNATURE_ALGORITHMS;
use super::handshake::extension::{self, ExtensionType, Extensions, MaxFragmentLength, UNCOMPRESSED};
use super::record::HAS_LONG_KEYS;
use super::roles::{Keys as _, Roles};
use super::server_name;
use super::suite::{CipherSuite, Suites};
use crate::buf::Writer;
use crate::crypto::{Crypto, NamedGroup};

/// The part of a ClientHello after the cookie, for an endpoint that can offer several suites or extensions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer<'o> {
    /// The cipher suites to offer.
    pub(crate) suites: Suites,
    /// A function that returns true for a suite that this endpoint can use. All other suites are not offered.
    pub(crate) usable: fn(CipherSuite) -> bool,
    /// The maximum number of bytes of content in a record that we accept; 0 for no limit.
    pub(crate) record_size_limit: u16,
    /// The named groups for a key agreement. They are offered only if one of the suites needs them.
    pub(crate) groups: &'static [NamedGroup],
    /// The types of our own certificate. The next field has the types of the server's certificate that we accept. Each
    /// list is sent in its own extension, unless the list is empty or contains only X.509.
    pub(crate) client_types: &'o [CertificateType],
    pub(crate) server_types: &'o [CertificateType],
    /// The name for the server_name extension; empty if the extension is not sent.
    pub(crate) server_name: &'o [u8],
    /// The ticket of a session that the client wants to resume. An empty ticket only announces that the client accepts
    /// tickets. `None` if the client accepts no tickets.
    pub(crate) ticket: Option<&'o [u8]>,
    /// The bytes of additional extensions, which are appended.
    pub(crate) more: &'o [u8],
}

impl<'l, R: Roles> HandshakeContext<'l, R> {
    /// Returns the offer of our ClientHello.
    pub(crate) fn offer<'o, C: Crypto>(&self, more: &'o [u8]) -> Offer<'o>
    where
        'l: 'o,
    {
        let keys = self.roles.keys();
        Offer {
            suites: self.roles.suites(0),
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

    /// Returns the certificate types that a client offers for itself. If the client's first credential is a raw public
    /// key, the list contains only the raw public key type. Otherwise the list is empty.
    pub(crate) fn own_types(&self) -> &'static [CertificateType] {
        match self.roles.keys().credential(0, 0).map(|credential| credential.certificate_type) {
            Some(CertificateType::RAW_PUBLIC_KEY) => &[CertificateType::RAW_PUBLIC_KEY],
            _ => &[],
        }
    }
}

impl Offer<'_> {
    /// True if one of the usable suites can be used with encrypt-then-MAC, because it has a separate MAC.
    fn knows_encrypt_then_mac(&self) -> bool {
        let usable = self.suites.0.iter().copied().filter(|suite| (self.usable)(*suite));
        let mut ciphers = usable.filter_map(CipherSuite::parts).map(|(_, cipher)| cipher);
        ciphers.any(|cipher| cipher.with_encrypt_then_mac().is_some())
    }

    /// Writes the part of a ClientHello after the cookie, for an endpoint in the roles `R`.
    pub(crate) fn write<R: Roles>(&self, writer: &mut Writer<'_>) -> Write {
        let usable = || self.suites.0.iter().copied().filter(|suite| (self.usable)(*suite));
        let exchanges = || usable().filter_map(|suite| suite.parts()).map(|(exchange, _)| exchange);
        writer.behind_len::<2>(|writer| {
            for suite in usable() {
                writer.u16(suite.0)?;
            }
            writer.u16(CipherSuite::EMPTY_RENEGOTIATION_INFO_SCSV.0)
        })?;
        writer.put(&[1, 0])?; // null compression
        let base = Extensions {
            extended_master_secret: true,
            record_size_limit: Some(self.record_size_limit).filter(|limit| R::RECORD_SIZE && *limit > 0),
            max_fragment_length: MaxFragmentLength::within(self.record_size_limit).filter(|_| R::RECORD_SIZE),
            ..Extensions::default()
        };
        base.write_with(writer, |writer| {
            if R::PUBLIC_KEYS && exchanges().any(|exchange| exchange.is_ephemeral()) {
                writer.u16(ExtensionType::SUPPORTED_GROUPS.0)?;
                writer.behind_len::<2>(|writer| {
                    writer.behind_len::<2>(|writer| self.groups.iter().try_for_each(|group| writer.u16(group.0)))
                })?;
                extension::put(writer, ExtensionType::EC_POINT_FORMATS, &UNCOMPRESSED)?;
            }
            if R::PUBLIC_KEYS && exchanges().any(|exchange| exchange.has_certificate()) {
                extension::put(writer, ExtensionType::SIGNATURE_ALGORITHMS, &SIGNATURE_ALGORITHMS)?;
                write_types(writer, ExtensionType::CLIENT_CERTIFICATE_TYPE, self.client_types)?;
                write_types(writer, ExtensionType::SERVER_CERTIFICATE_TYPE, self.server_types)?;
                if !self.server_name.is_empty() {
                    server_name::write(writer, self.server_name)?;
                }
            }
            if HAS_LONG_KEYS && self.knows_encrypt_then_mac() {
                extension::put(writer, ExtensionType::ENCRYPT_THEN_MAC, &[])?;
            }
            if let Some(ticket) = self.ticket {
                extension::put(writer, ExtensionType::SESSION_TICKET, ticket)?;
            }
            writer.put(self.more)
        })
    }
}

/// Writes the extension `kind` with a list of certificate types. Writes nothing if the extension is not needed.
fn write_types(writer: &mut Writer<'_>, kind: ExtensionType, types: &[CertificateType]) -> Write {
    if !is_said(types) {
        return Ok(());
    }
    writer.u16(kind.0)?;
    writer
        .behind_len::<2>(|writer| writer.behind_len::<1>(|writer| types.iter().try_for_each(|each| writer.u8(each.0))))
}

/// True if an extension with these certificate types must be sent. If the extension is absent, the only type is X.509
/// (RFC 7250, section 3). So no extension is needed for X.509 alone.
pub(crate) fn is_said(types: &[CertificateType]) -> bool {
    !types.is_empty() && types != [CertificateType::X509]
}
