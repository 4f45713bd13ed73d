//! The interface to the authority that issues certificates to users who log in.

use crate::problem::{Code, Problem};
use std::time::Duration;

/// The authority that issues certificates to users who log in. Its functions may block while they wait for files or the
/// network.
pub trait LoginAuthority: Send + Sync {
    /// Returns true if this common name is the authority's own name, or if it is in a valid certificate that was not
    /// issued for a login.
    ///
    /// # Errors
    /// The reason why the authority does not answer.
    fn is_taken(&self, name: &str) -> Result<bool, String>;

    /// Issues a client certificate for this key (SubjectPublicKeyInfo in DER). The certificate has this common name,
    /// and no other name. It is valid for the time `valid` from now, but not longer than the certificate of the
    /// authority.
    ///
    /// # Errors
    /// [`NotCertified`] is the reason why no certificate was issued.
    fn certify(&self, name: &str, spki: &[u8], valid: Duration) -> Result<LoginCertificate, NotCertified>;

    /// Revokes the valid certificates of a user. Returns their expiry times in seconds since 1970.
    ///
    /// # Errors
    /// The reason why the certificates are not revoked.
    fn revoke(&self, name: &str) -> Result<Vec<u64>, String>;
}

/// A certificate of a user who logged in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoginCertificate {
    /// The certificate in PEM.
    pub certificate: String,
    /// The certificate of the issuing authority in PEM.
    pub authority: String,
    /// The time at which the certificate expires, in seconds since 1970.
    pub expires: u64,
}

/// The reason why a user gets no certificate.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotCertified {
    /// The user already has this number of valid certificates, which is the maximum.
    #[error("the user has {0} valid certificates: use one of them, or wait until one of them has ended")]
    TooMany(usize),
    /// The authority failed, for this reason.
    #[error("{0}")]
    Failed(String),
}

impl From<NotCertified> for Problem {
    fn from(error: NotCertified) -> Self {
        let code = match &error {
            NotCertified::TooMany(_) => Code::TooManyCertificates,
            NotCertified::Failed(_) => Code::Internal,
        };
        Self::new(code, error.to_string())
    }
}
