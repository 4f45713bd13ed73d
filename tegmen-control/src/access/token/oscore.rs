//! Tokens for resource servers with the OSCORE profile (RFC 9203, section 3).
//!
//! The access control server seals the token under the key that it shares with the resource server. The token contains
//! the name of the client, the rights, and input material with a Master Secret that the access control server draws at
//! random. The identifier of the material is a session identity. So a token is listed and revoked in the same way as a
//! session. A client that names this identifier in a request gets a token with other rights for its existing Security
//! Context (section 3.1).
//!
//! In the profile of EDHOC and OSCORE (draft-ietf-ace-edhoc-oscore-profile) the token contains the client's public key
//! on P-256, from the request. The client proves in EDHOC that it has the private key.

use super::{ID, created, draw, draw_identity};
use crate::access::ace::oscore::InputMaterial;
use crate::access::ace::{Claims, Confirmation, CoseKey, Material, Profile, TokenRequest, TokenResponse, cwt};
use crate::access::introspection::{Devices, Introspection, Outcome, Reason, ResourceServer};
use crate::access::policy::Party;
use crate::access::protokey::SessionIdentity;
use crate::access::revocation::token_hash;
use tegmen_base::crypto::{Crypto, NamedGroup, SCALAR_LEN};
use tegmen_base::hex::to_hex;
use tegmen_base::secret::Secret;
use tegmen_base::time::Instant;

/// Length of a Master Secret in bytes.
const SECRET_LEN: usize = 32;

impl<D: Devices> Introspection<'_, D> {
    /// Finds the input material with the identifier `kid`. Returns the identifier if this client has a valid token with
    /// this material. All failures give the same error.
    pub(super) fn known_key<'k>(
        &self,
        client: Party<'_>,
        kid: &'k [u8],
        now: Instant,
    ) -> Result<SessionIdentity<'k>, Reason> {
        let identity = SessionIdentity::parse(kid).ok_or(Reason::UnknownKey)?;
        let known = self.accepted.of_subscriber(identity.as_str(), client.name, now).ok_or(Reason::UnknownKey)?;
        let token = known.token.ok_or(Reason::UnknownKey)?;
        if self.devices.is_revoked(token) { Err(Reason::UnknownKey) } else { Ok(identity) }
    }

    /// Issues a token. If `update` is `None`, the token of the OSCORE profile contains new input material. Otherwise
    /// `update` is the identifier of earlier input material, and the token changes the rights that belong to this
    /// material.
    pub(super) fn issue_for_oscore<C: Crypto>(
        &mut self,
        client: Party<'_>,
        server: &ResourceServer<'_>,
        request: &TokenRequest,
        update: Option<SessionIdentity<'_>>,
        now: Instant,
        crypto: &mut C,
    ) -> Result<Outcome, Reason> {
        let party = server.party.party();
        self.permit(client, party, request.scope.as_ref())?;
        if !has_right_key(server.profile, request.req_cnf.as_ref(), crypto) {
            return Err(Reason::OwnKey);
        }
        let text = draw_identity(party.name, crypto);
        let identity = SessionIdentity::parse(text.as_bytes()).ok_or(Reason::UnknownPublisher)?;
        self.accepted.accept(identity, client.name, now).map_err(Reason::Identity)?;
        let (claimed, told) = match (server.profile, &request.req_cnf, update) {
            (Profile::COAP_EDHOC_OSCORE, Some(key), _) => (key.clone(), None),
            (_, _, Some(update)) => (Confirmation::Kid(update.as_str().as_bytes().to_vec()), None),
            _ => {
                let mut secret = Secret::<SECRET_LEN>::zeroed();
                crypto.random(secret.expose_mut());
                let material = InputMaterial::new(text.clone().into_bytes(), secret.expose());
                (Confirmation::Osc(material.clone()), Some(Confirmation::Osc(material)))
            }
        };
        let issued_at = now.as_micros() / 1_000_000;
        let claims = Claims {
            subject: Some(client.name.to_owned()),
            audience: Some(party.name.to_owned()),
            id: Some(draw::<ID, C>(crypto).to_vec()),
            cnf: Some(claimed),
            scope: request.scope.clone(),
            cnonce: request.cnonce.clone(),
            issued_at: Some(issued_at),
            expires: Some(issued_at.saturating_add(self.lifetime)),
            ..Claims::default()
        };
        let access_token = cwt::seal(&claims, &server.key, crypto);
        let token = token_hash::<C>(&access_token);
        self.accepted.set_token(identity.as_str(), &token);
        let response = TokenResponse {
            access_token: Some(access_token),
            expires_in: Some(self.lifetime),
            cnf: told,
            ace_profile: Some(server.profile),
            ..TokenResponse::default()
        };
        let of = update.map_or_else(String::new, |update| format!(" for the key {update}"));
        let message = format!("the session {text}{of}, the token {}", to_hex(&token));
        let reply = created(&response);
        Ok(Outcome { reply, refused: None, session: Some(text), token: Some(token), upload: None, message })
    }
}

/// Returns true if a request has the key that this profile needs. For EDHOC this is a public key for ECDH on P-256. For
/// OSCORE the request has no key, or only the identifier of an existing key.
fn has_right_key<C: Crypto>(profile: Profile, req_cnf: Option<&Confirmation>, crypto: &mut C) -> bool {
    match req_cnf {
        Some(Confirmation::Key(key)) => {
            profile == Profile::COAP_EDHOC_OSCORE && key.is_for_ecdh() && is_point(key, crypto)
        }
        Some(Confirmation::Osc(_)) => false,
        Some(Confirmation::Kid(_)) | None => profile == Profile::COAP_OSCORE,
    }
}

/// Returns true if the key is a point on P-256 with two coordinates (RFC 9053, section 7.1.1).
fn is_point<C: Crypto>(key: &CoseKey, crypto: &mut C) -> bool {
    let Material::Ec2 { curve: P_256, x, y } = &key.material else { return false };
    if [x, y].iter().any(|coordinate| coordinate.len() != COORDINATE) {
        return false;
    }
    // A key agreement fails if the share of the peer is not a point on the curve. The private key is 1, so the
    // agreement uses no secret.
    let (share, mut private, mut secret) = ([&[UNCOMPRESSED], &**x, y].concat(), [0; SCALAR_LEN], [0; SCALAR_LEN]);
    if let Some(last) = private.last_mut() {
        *last = 1;
    }
    crypto.agree(NamedGroup::SECP256R1, &private, &share, &mut secret).is_ok()
}

/// The number of P-256 in the COSE registry.
const P_256: i64 = 1;
/// Length of a coordinate on P-256 in bytes.
const COORDINATE: usize = 32;
/// The first byte of a point with two coordinates (SEC 1, section 2.3.3).
const UNCOMPRESSED: u8 = 4;

#[cfg(test)]
mod tests;
