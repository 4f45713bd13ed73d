//! Revocation: CRLs (RFC 5280, section 5), and a revocation list in plain text for users without CRLs.
//!
//! A line of the list in plain text is the SHA-256 digest of a certificate (64 hexadecimal digits), or the serial
//! number and the issuer of a certificate. Text after `#` is a comment.
//!
//! ```text
//! 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08    # lost in the field
//! serial 0a:1b:2c issuer CN=Works CA,O=Works
//! ```

use super::certificate::{Certificate, name_text, significant};
use crate::digest::{Digest, sha256_of};
use std::collections::HashSet;
use tegmen::buf::Reader;
use tegmen_x509::der::{self, INTEGER, Malformed, SEQUENCE};
use webpki::{BorrowedCertRevocationList, CertRevocationList};

/// The revocation lists in force.
#[derive(Default)]
pub(crate) struct Revocations {
    /// The CRLs. The newest CRL of an issuer comes first, because `rustls-webpki` uses the first CRL of the issuer.
    crls: Vec<(Times, CertRevocationList<'static>)>,
    digests: HashSet<Digest>,
    serials: HashSet<(Vec<u8>, String)>,
}

/// The times of a CRL, in seconds since 1970.
#[derive(Clone, Copy)]
struct Times {
    this_update: u64,
    next_update: u64,
}

impl Revocations {
    /// Adds a CRL. The error is a text that describes the fault.
    pub(crate) fn add_crl(&mut self, der: &[u8]) -> Result<(), String> {
        let times = Times::of(der).map_err(|Malformed| "no CRL with nextUpdate (RFC 5280, section 5.1)")?;
        let crl = BorrowedCertRevocationList::from_der(der).and_then(|crl| crl.to_owned()).map_err(|error| {
            format!(
                "a CRL that cannot be used ({error}): give a complete one of the CA itself, version 2, with all reasons"
            )
        })?;
        self.crls.push((times, crl.into()));
        self.crls.sort_by_key(|(times, _)| std::cmp::Reverse(times.this_update));
        Ok(())
    }

    /// Adds the lines of a revocation list in plain text. Each line has the digest of a certificate, or its serial
    /// number and issuer. The error is a line number and the correction.
    pub(crate) fn add_list(&mut self, text: &str) -> Result<(), (usize, String)> {
        for (at, line) in text.lines().enumerate() {
            // A name may contain the sign, so a comment is what begins with a blank before it.
            let line = if line.starts_with('#') { "" } else { line.split(" #").next().unwrap_or("").trim() };
            let wrong = || (at + 1, "a SHA-256 digest in hexadecimal, or: serial HEX issuer NAME".to_owned());
            if line.is_empty() {
            } else if let Some((serial, issuer)) =
                line.strip_prefix("serial ").and_then(|rest| rest.split_once(" issuer "))
            {
                let serial = crate::hex::from_hex(&serial.trim().replace(':', "")).ok_or_else(wrong)?;
                self.serials.insert((significant(&serial).to_vec(), issuer.trim().to_owned()));
            } else {
                let digest = crate::hex::from_hex(&line.replace(':', ""));
                self.digests.insert(digest.and_then(|digest| digest.try_into().ok()).ok_or_else(wrong)?);
            }
        }
        Ok(())
    }

    pub(crate) fn crls(&self) -> Vec<&CertRevocationList<'static>> {
        self.crls.iter().map(|(_, crl)| crl).collect()
    }

    /// Returns the time until which all CRLs that are in force at `now` remain in force.
    pub(crate) fn next_update(&self, now: u64) -> u64 {
        self.crls.iter().map(|(times, _)| times.next_update).filter(|next| *next > now).min().unwrap_or(u64::MAX)
    }

    /// Returns the earliest time at which a CRL must be replaced. Only the newest CRL of each issuer counts.
    pub(crate) fn due(&self) -> Option<u64> {
        let newest = |at: usize, crl: &CertRevocationList<'_>| {
            self.crls.iter().take(at).all(|(_, newer)| newer.issuer() != crl.issuer())
        };
        let crls = self.crls.iter().enumerate().filter(|(at, (_, crl))| newest(*at, crl));
        crls.map(|(_, (times, _))| times.next_update).min()
    }

    /// Returns true if a revocation list in plain text has a line with a certificate.
    pub(crate) fn has_lists(&self) -> bool {
        !self.digests.is_empty() || !self.serials.is_empty()
    }

    /// Returns true if a revocation list in plain text, which [`Self::add_list`] added, contains this certificate.
    pub(crate) fn lists(&self, certificate: &Certificate<'_>) -> bool {
        let by_serial = || {
            let issuer = name_text(certificate.issuer).unwrap_or_default();
            self.serials.contains(&(significant(certificate.serial).to_vec(), issuer))
        };
        (!self.digests.is_empty() && self.digests.contains(&sha256_of(&[certificate.der])))
            || (!self.serials.is_empty() && by_serial())
    }
}

impl Times {
    fn of(crl: &[u8]) -> Result<Self, Malformed> {
        let mut tbs = der::inside(&mut der::inside(&mut Reader::new(crl), SEQUENCE)?, SEQUENCE)?;
        let _version = der::value(&mut tbs, INTEGER)?;
        let (_algorithm, _issuer) = (der::value(&mut tbs, SEQUENCE)?, der::value(&mut tbs, SEQUENCE)?);
        Ok(Self { this_update: der::time(&mut tbs)?, next_update: der::time(&mut tbs)? })
    }
}
