//! The certificates of users who log in at a delegation server.

use super::authority::{Authority, Usage, Want};
use crate::files::{self, Readers};
use crate::output::Failure;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tegmen_admin::{LoginAuthority, LoginCertificate, NotCertified};

/// Maximum number of valid certificates of a user.
const MOST: usize = 64;

/// Returns the path of the list of revoked login certificates in the directory of a CA. `--client-revoked` reads this
/// list.
pub(crate) fn revoked_logins(dir: &Path) -> PathBuf {
    dir.join("revoked-logins")
}

/// The CA in a directory. It issues certificates to users who log in.
pub(crate) struct Logins {
    dir: PathBuf,
}

impl Logins {
    /// Opens the CA in a directory. Makes the list of revoked certificates if there is none.
    pub(crate) fn open(dir: &Path) -> Result<Self, Failure> {
        if !revoked_logins(dir).exists() {
            write_list(dir, &Authority::open(dir)?, SystemTime::now())?;
        }
        Ok(Self { dir: dir.to_owned() })
    }

    fn revoke(&self, name: &str) -> Result<Vec<u64>, Failure> {
        let now = SystemTime::now();
        let mut authority = Authority::open(&self.dir)?;
        let ends = authority.revoke_logins(&subject(name), now)?;
        write_list(&self.dir, &authority, now)?;
        Ok(ends)
    }

    fn certify(&self, name: &str, spki: &[u8], valid: Duration) -> Result<Option<LoginCertificate>, Failure> {
        let now = SystemTime::now();
        let mut authority = Authority::open(&self.dir)?;
        authority.forget_ended_logins(now);
        let subject = subject(name);
        let is_valid = authority.issued().iter().filter(|issued| issued.is_of_login(&subject) && issued.is_valid(now));
        if is_valid.count() >= MOST {
            return Ok(None);
        }
        let usage = Usage { client: true, server: false };
        let (name, spki) = (name.to_owned(), spki.to_vec());
        let want = Want { name, dns: Vec::new(), ip: Vec::new(), usage, spki, login: true };
        let left = authority.certificate().not_after.duration_since(now).unwrap_or_default();
        let (issued, certificate) = authority.issue(want, now, valid.min(left))?;
        let file = self.dir.join("ca.pem");
        let wrong = |error| Failure::new(format!("{}: {error}: bring it back from a copy", file.display()));
        let authority = std::fs::read_to_string(&file).map_err(wrong)?;
        Ok(Some(LoginCertificate { certificate, authority, expires: issued.not_after }))
    }
}

fn subject(name: &str) -> String {
    format!("CN={name}")
}

/// Writes the list of the revoked login certificates that have not expired.
fn write_list(dir: &Path, authority: &Authority, now: SystemTime) -> Result<(), Failure> {
    let revoked = authority.issued().iter().filter(|issued| issued.is_revoked_login(now));
    let digests = revoked.filter_map(|issued| issued.login.as_deref());
    let lines: String = digests.map(|digest| format!("{digest}\n")).collect();
    files::write(&revoked_logins(dir), lines.as_bytes(), Readers::All)
}

impl LoginAuthority for Logins {
    fn is_taken(&self, name: &str) -> Result<bool, String> {
        let authority = Authority::open(&self.dir).map_err(|failure| failure.message)?;
        let (subject, now) = (subject(name), SystemTime::now());
        let is_of_other =
            |issued: &super::Issued| issued.subject == subject && !issued.is_of_login(&subject) && issued.is_valid(now);
        Ok(authority.certificate().subject == subject || authority.issued().iter().any(is_of_other))
    }

    fn certify(&self, name: &str, spki: &[u8], valid: Duration) -> Result<LoginCertificate, NotCertified> {
        let certified = Self::certify(self, name, spki, valid);
        certified.map_err(|failure| NotCertified::Failed(failure.message))?.ok_or(NotCertified::TooMany(MOST))
    }

    fn revoke(&self, name: &str) -> Result<Vec<u64>, String> {
        Self::revoke(self, name).map_err(|failure| failure.message)
    }
}

#[cfg(test)]
mod tests;
