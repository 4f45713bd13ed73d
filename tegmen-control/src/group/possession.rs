//! Proof of possession: a device that joins a group with signatures proves that it has the private key of its public
//! key (RFC 9594, section 4.3.1).

use std::time::{Duration, Instant};
use tegmen_base::crypto::{Crypto, DIGEST_LEN, SignatureScheme, hmac};
use tegmen_base::secret::Secret;
use tegmen_host::group::groupcomm::oscore::{OscoreChallenge, OscorePossession, curve_of};
use tegmen_host::group::groupcomm::{Challenge, GroupcommError, JoinRequest};
use tegmen_host::provider::HostCrypto;
use tegmen_host::provider::public::verify_digest;
use tegmen_host::x509::{KeyKind, PublicKey};

/// The minimum time for which a nonce is valid. The maximum is twice this time.
const WINDOW: Duration = Duration::from_secs(60);

/// The nonces that the server gives to devices. The server stores no nonce: it derives each nonce from a secret, the
/// name of the device, the name of the group and the time.
pub(super) struct Challenges {
    secret: Secret<DIGEST_LEN>,
    start: Instant,
}

impl Challenges {
    pub(super) fn new(crypto: &mut impl Crypto) -> Self {
        let mut secret = Secret::zeroed();
        crypto.random(secret.expose_mut());
        Self { secret, start: Instant::now() }
    }

    /// Returns the challenge for the device `who`, which wants to join the group.
    pub(super) fn challenge(&self, (who, group): (&str, &str), scheme: SignatureScheme, now: Instant) -> Challenge {
        Challenge { scheme, nonce: self.nonce(who, group, self.window(now)) }
    }

    /// Checks the signature in a request to join: it proves that the device has the private key of the public key in
    /// the request. The signature covers the scope of the request and the nonce of the challenge. Returns the public
    /// key.
    pub(super) fn check(
        &self,
        (who, group): (&str, &str),
        scheme: SignatureScheme,
        request: &JoinRequest,
        now: Instant,
    ) -> Result<Vec<u8>, NotProved> {
        let Some(possession) = &request.possession else { return Err(NotProved::Missing) };
        if !is_of_scheme(&possession.public_key, scheme) {
            return Err(NotProved::Refused(GroupcommError::OtherCredential));
        }
        let proves = |window| {
            let digest = possession.digest(&self.nonce(who, group, window));
            verify_digest(scheme, &possession.public_key, &digest, &possession.signature).is_ok()
        };
        let window = self.window(now);
        if proves(window) || window.checked_sub(1).is_some_and(proves) {
            return Ok(possession.public_key.clone());
        }
        Err(NotProved::Refused(GroupcommError::NoPossession))
    }

    /// Returns the challenge for the device `who`, which wants to join a Group OSCORE group.
    pub(super) fn oscore_challenge(
        &self,
        (who, group): (&str, &str),
        scheme: SignatureScheme,
        now: Instant,
    ) -> OscoreChallenge {
        OscoreChallenge { curve: curve_of(scheme), nonce: self.nonce(who, group, self.window(now)) }
    }

    /// Checks the proof in a request to join a Group OSCORE group, as [`Self::check`] does for an Axiom group. The
    /// caller has checked that the credential has a key on the curve of the group.
    pub(super) fn check_oscore(
        &self,
        (who, group): (&str, &str),
        scheme: SignatureScheme,
        (possession, cnonce): (&OscorePossession, &[u8]),
        now: Instant,
    ) -> Result<(), GroupcommError> {
        let mut crypto = HostCrypto::from_os().map_err(|_| GroupcommError::NoPossession)?;
        let mut proves =
            |window| possession.proves(&mut crypto, curve_of(scheme), (&self.nonce(who, group, window), cnonce));
        let window = self.window(now);
        match proves(window) || window.checked_sub(1).is_some_and(proves) {
            true => Ok(()),
            false => Err(GroupcommError::NoPossession),
        }
    }

    fn window(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.start).as_secs().checked_div(WINDOW.as_secs()).unwrap_or(0)
    }

    fn nonce(&self, who: &str, group: &str, window: u64) -> [u8; DIGEST_LEN] {
        let len = (who.len() as u64).to_be_bytes();
        let parts: [&[u8]; 4] = [&window.to_be_bytes(), &len, who.as_bytes(), group.as_bytes()];
        hmac::<HostCrypto, DIGEST_LEN>(&[self.secret.expose()], &parts)
    }
}

/// Returns true if a key, a SubjectPublicKeyInfo, can be used with this scheme of signatures.
pub(super) fn is_of_scheme(public_key: &[u8], scheme: SignatureScheme) -> bool {
    let kind = PublicKey::parse(public_key).map(|key| key.kind);
    match scheme {
        SignatureScheme::ED25519 => kind == Some(KeyKind::Ed25519),
        _ => kind == Some(KeyKind::P256),
    }
}

/// The reason why the proof of possession of a key fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NotProved {
    /// The request has no key or no proof, so the device gets a challenge.
    Missing,
    /// The key or the proof is wrong.
    Refused(GroupcommError),
}

#[cfg(test)]
mod tests;
