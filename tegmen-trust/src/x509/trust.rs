//! The trust of a verifier: trust anchors and revocation lists, from files that may change.

use super::cache::Span;
use super::certificate::Certificate;
use super::revocation::Revocations;
use crate::digest::{Digest, sha256, sha256_of};
use crate::reading::Stamp;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, TrustAnchor};
use std::path::{Path, PathBuf};

/// The paths of the files that contain trust anchors and revocations. A file contains one or several items in PEM, or
/// one item in DER.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Files {
    /// Certificates of trust anchors.
    pub anchors: Vec<PathBuf>,
    /// Certificate revocation lists.
    pub crls: Vec<PathBuf>,
    /// Plain lists of revoked certificates. A line is a SHA-256 digest of a certificate, or `serial HEX issuer NAME`
    /// with the issuer as in RFC 4514 (`CN=Works CA,O=Works`). Text after `#` is a comment.
    pub revoked: Vec<PathBuf>,
}

/// The reason why one of the [`Files`] cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file does not exist, or is not readable.
    #[error("{file}: {source}: give a readable file, PEM or DER")]
    Unreadable {
        /// The path of the file.
        file: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The file does not have the expected content.
    #[error("{file}: {message}")]
    Unusable {
        /// The path of the file.
        file: String,
        /// The error and its correction.
        message: String,
    },
}

/// Trust anchors, and lists of revoked certificates.
#[derive(Default)]
pub struct Trust {
    pub(super) anchors: Vec<TrustAnchor<'static>>,
    /// The validity period of each anchor's certificate, in the order of `anchors`.
    pub(super) spans: Vec<Span>,
    /// The certificate of each anchor.
    pub(super) certificates: Vec<CertificateDer<'static>>,
    pub(super) revocations: Revocations,
    /// A digest of all added items.
    pub(super) digest: Digest,
}

impl Trust {
    /// Adds the trust anchors in the contents of a file. Returns their number.
    ///
    /// # Errors
    /// A text that describes the fault and its correction.
    pub fn add_anchors(&mut self, contents: &[u8]) -> Result<usize, String> {
        let found = match contents.first() {
            Some(0x30) => vec![CertificateDer::from(contents.to_vec())],
            _ => CertificateDer::pem_slice_iter(contents)
                .collect::<Result<Vec<_>, _>>()
                .map_err(|error| format!("{error}: certificates are PEM or DER"))?,
        };
        for der in &found {
            let certificate = Certificate::parse(der).ok_or("a certificate that does not parse")?;
            if certificate.is_weak() {
                return Err(format!("a trust anchor with an RSA key below {} bits: replace it", super::MIN_RSA_BITS));
            }
            let anchor = webpki::anchor_from_trusted_cert(der)
                .map_err(|error| format!("a certificate that cannot be a trust anchor: {error}"))?;
            self.anchors.push(anchor.to_owned());
            self.spans.push(Span::ALWAYS.and(certificate.not_before, certificate.not_after));
            self.certificates.push(der.clone());
        }
        self.digest = sha256_of(&[&self.digest, b"anchors", &sha256(contents)]);
        match found.len() {
            0 => Err("no certificate in it: give the CA's certificate, PEM or DER".to_owned()),
            count => Ok(count),
        }
    }

    /// Adds the CRLs in the contents of a file. Returns their number.
    ///
    /// # Errors
    /// A text that describes the fault and its correction.
    pub fn add_crls(&mut self, contents: &[u8]) -> Result<usize, String> {
        let found = match contents.first() {
            Some(0x30) => vec![CertificateRevocationListDer::from(contents.to_vec())],
            _ => CertificateRevocationListDer::pem_slice_iter(contents)
                .collect::<Result<Vec<_>, _>>()
                .map_err(|error| format!("{error}: CRLs are PEM or DER"))?,
        };
        for der in &found {
            self.revocations.add_crl(der)?;
        }
        self.digest = sha256_of(&[&self.digest, b"crls", &sha256(contents)]);
        match found.len() {
            0 => Err("no CRL in it: give the CA's CRL, PEM or DER".to_owned()),
            count => Ok(count),
        }
    }

    /// Adds the lines of a list of revoked certificates in plain text, in the format of [`Files::revoked`].
    ///
    /// # Errors
    /// A text that describes the line, the fault and its correction.
    pub fn add_revoked(&mut self, text: &str) -> Result<(), String> {
        self.digest = sha256_of(&[&self.digest, b"revoked", &sha256(text.as_bytes())]);
        self.revocations.add_list(text).map_err(|(line, message)| format!("line {line}: {message}"))
    }

    /// Reads the trust from files.
    ///
    /// # Errors
    /// [`LoadError`] of the first file that cannot be used.
    pub fn from_files(files: &Files) -> Result<Self, LoadError> {
        let mut trust = Self::default();
        let unusable = |file: &Path, message| LoadError::Unusable { file: file.display().to_string(), message };
        for file in &files.anchors {
            trust.add_anchors(&read(file)?).map_err(|message| unusable(file, message))?;
        }
        for file in &files.crls {
            trust.add_crls(&read(file)?).map_err(|message| unusable(file, message))?;
        }
        for file in &files.revoked {
            let text = String::from_utf8(read(file)?).map_err(|_| unusable(file, "not UTF-8 text".to_owned()))?;
            trust.add_revoked(&text).map_err(|message| unusable(file, message))?;
        }
        Ok(trust)
    }
}

impl Files {
    /// Returns the stamps of all files. A stamp changes when its file changes.
    pub(super) fn stamps(&self) -> Vec<Option<Stamp>> {
        [&self.anchors, &self.crls, &self.revoked].into_iter().flatten().map(|file| Stamp::at(file)).collect()
    }
}

fn read(file: &Path) -> Result<Vec<u8>, LoadError> {
    std::fs::read(file).map_err(|source| LoadError::Unreadable { file: file.display().to_string(), source })
}
