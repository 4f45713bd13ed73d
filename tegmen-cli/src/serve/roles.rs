//! Reads the options for the roles of client certificates of the interface for administrators.

use tegmen_admin::{Scope, Scopes};
use tegmen_base::hex::from_hex;

/// A role, which is a name for scopes.
#[derive(Clone, Debug)]
pub(super) struct Role {
    pub(super) name: String,
    pub(super) scopes: Scopes,
}

/// Reads ROLE=SCOPE,SCOPE.
pub(super) fn role(text: &str) -> Result<Role, String> {
    let (name, scopes) = text.split_once('=').ok_or("write it as ROLE=SCOPE,SCOPE")?;
    let scope = |name: &str| {
        let known = || Scope::ALL.map(Scope::name).join(", ");
        let found = Scope::ALL.into_iter().find(|scope| scope.name() == name.trim());
        found.ok_or_else(|| format!("there is no scope {}; there are {}", name.trim(), known()))
    };
    let scopes = scopes.split(',').map(scope).collect::<Result<Scopes, String>>()?;
    Ok(Role { name: name.trim().to_owned(), scopes })
}

/// A client certificate, and the name of its role.
#[derive(Clone, Debug)]
pub(super) struct Certified {
    /// The SHA-256 of the certificate in lower-case hexadecimal digits.
    pub(super) digest: String,
    pub(super) role: String,
}

/// Reads DIGEST=ROLE. The digest may contain colons, as `openssl x509 -fingerprint -sha256` prints it.
pub(super) fn certified(text: &str) -> Result<Certified, String> {
    let (digest, role) = text.split_once('=').ok_or("write it as DIGEST=ROLE")?;
    let digest = digest.trim().replace(':', "").to_ascii_lowercase();
    if from_hex(&digest).is_none_or(|digest| digest.len() != 32) {
        return Err("the digest is the SHA-256 of the certificate, 64 hexadecimal digits".to_owned());
    }
    Ok(Certified { digest, role: role.trim().to_owned() })
}
