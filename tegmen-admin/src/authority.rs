//! The authority of users who log in.

use crate::problem::{Code, Problem};
use std::time::Duration;

/// The authority that certifies users who logged in. Its functions may wait for input and output.
pub trait LoginAuthority: Send + Sync {
    /// Returns true if this common name is the authority's own, or is in a valid certificate that was not issued for a
    /// login.
    ///
    /// # Errors
    /// The reason why the authority cannot be asked.
    fn is_taken(&self, name: &str) -> Result<bool, String>;

    /// Issues a certificate for a client with this common name and key (SubjectPublicKeyInfo in DER), and with no other name. It
    /// is valid for this time from now, or until the authority ends.
    ///
    /// # Errors
    /// [`NotCertified`].
    fn certify(&self, name: &str, spki: &[u8], valid: Duration) -> Result<LoginCertificate, NotCertified>;

    /// Revokes the valid certificates of a user. Returns their ends in seconds since 1970.
    ///
    /// # Errors
    /// The reason why they are not revoked.
    fn revoke(&self, name: &str) -> Result<Vec<u64>, String>;
}

/// A certificate of a user who logged in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoginCertificate {
    /// The certificate in PEM.
    pub certificate: String,
    /// The certificate of its authority in PEM.
    pub authority: String,
    /// The last moment at which it is valid, in seconds since 1970.
    pub expires: u64,
}

/// The reason why a user gets no certificate.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotCertified {
    /// The user has too many valid certificates.
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
