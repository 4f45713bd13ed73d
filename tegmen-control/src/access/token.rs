//! The decision on a request to `/token`: whether a client may have an access token for a publisher (RFC 9200, section 5.8; RFC
//! 9202, section 3.3).
//!
//! The publisher has a protokey. The token is for it alone, a CWT that is sealed under
//! [`Protokey::token_key`](super::protokey::Protokey::token_key); it has the name of the client, the rights, and the key of the session as `cnf`. The identifier of that key is a session identity that the
//! server draws, and the key is that of this identity, so a token is revoked as a session is.

use super::ace::{
    Claims, Confirmation, CoseKey, ErrorCode, GrantType, Malformed, Profile, TokenRequest, TokenResponse, cwt,
};
use super::introspection::{Devices, Introspection, Outcome, Reason, Reply};
use super::policy::Party;
use super::protokey::{Mode, NotAccepted, SessionIdentity};
use super::revocation::token_hash;
use tegmen_base::crypto::Crypto;
use tegmen_base::hex::to_hex;
use tegmen_base::time::Instant;
use tegmen_coap::Code;

/// The label of the audience.
const AUDIENCE: i64 = 5;
/// Random bytes of a session identity.
const NONCE: usize = 12;
/// Bytes of the identifier of a token.
const ID: usize = 8;

impl<D: Devices> Introspection<'_, D> {
    /// Answers the payload of a request to `/token`. `client` is the peer as it authenticated itself.
    pub fn token<C: Crypto>(
        &mut self,
        client: Option<Party<'_>>,
        payload: &[u8],
        now: Instant,
        crypto: &mut C,
    ) -> Outcome {
        let Some(client) = client.filter(|party| !party.name.is_empty()) else {
            return refuse(Reason::NotAuthenticated, "a peer that did not authenticate itself".to_owned());
        };
        let asked = format!("{} asks for", client.to_string().escape_debug());
        let request = match TokenRequest::parse(payload) {
            Ok(request) => request,
            Err(error) => return refuse(Reason::Malformed(error), format!("{asked} a token: {error}")),
        };
        let audience = request.audience.as_deref().unwrap_or_default();
        let asked = format!("{asked} a token for {}", audience.escape_debug());
        match self.issue(client, &request, now, crypto) {
            Ok(outcome) => Outcome { message: format!("{asked}: granted, {}", outcome.message), ..outcome },
            Err(reason) => {
                let rule = reason.rule().map_or_else(String::new, |rule| format!(": {}", self.policy.describe(rule)));
                refuse(reason, format!("{asked}{rule}"))
            }
        }
    }

    fn issue<C: Crypto>(
        &mut self,
        client: Party<'_>,
        request: &TokenRequest,
        now: Instant,
        crypto: &mut C,
    ) -> Result<Outcome, Reason> {
        if request.grant_type.is_some_and(|grant| grant != GrantType::CLIENT_CREDENTIALS) {
            return Err(Reason::GrantType);
        }
        if request.req_cnf.is_some() {
            return Err(Reason::OwnKey);
        }
        let audience = request.audience.as_deref().ok_or(Reason::Malformed(Malformed::Missing(AUDIENCE)))?;
        let scope = request.scope.as_ref().filter(|scope| scope.rights().is_some()).ok_or(Reason::NoScope)?;
        // This precedes every lookup of a device, so that the answer reveals nothing about devices.
        self.accepted.has_room(client.name, now).map_err(Reason::Identity)?;
        let publisher = self.devices.publisher(audience).ok_or(Reason::UnknownPublisher)?;
        if publisher.mode != Mode::Bound {
            return Err(Reason::OtherMode);
        }
        self.permit(client, publisher.party.party(), Some(scope))?;
        let (mut nonce, mut id) = ([0; NONCE], [0; ID]);
        crypto.random(&mut nonce);
        crypto.random(&mut id);
        let text = format!("{audience};{}", to_hex(&nonce));
        let identity = SessionIdentity::parse(text.as_bytes()).ok_or(Reason::UnknownPublisher)?;
        self.accepted.accept(identity, client.name, now).map_err(Reason::Identity)?;
        let psk = publisher.protokey.session_key::<C>(Mode::Bound, identity, client.name);
        let key = CoseKey { kid: Some(text.clone().into_bytes()), ..CoseKey::symmetric(psk.expose()) };
        let claims = Claims {
            subject: Some(client.name.to_owned()),
            audience: Some(audience.to_owned()),
            id: Some(id.to_vec()),
            cnf: Some(Confirmation::Key(key.clone())),
            scope: Some(scope.clone()),
            cnonce: request.cnonce.clone(),
            expires: Some((now.as_micros() / 1_000_000).saturating_add(self.lifetime)),
            ..Claims::default()
        };
        let access_token = cwt::seal(&claims, &publisher.protokey.token_key::<C>(), crypto);
        let token = token_hash::<C>(&access_token);
        self.accepted.set_token(identity.as_str(), &token);
        let response = TokenResponse {
            access_token,
            expires_in: Some(self.lifetime),
            cnf: Some(Confirmation::Key(key)),
            ace_profile: Some(Profile::COAP_DTLS),
            ..TokenResponse::default()
        };
        let message = format!("the session {text}, the token {}", to_hex(&token));
        let reply = Reply { code: Code::CREATED, payload: response.encode(), max_age: None };
        Ok(Outcome { reply, refused: None, session: Some(text), token: Some(token), message })
    }
}

/// The answer to a refused request. All refusals that depend on devices are the same bytes.
fn refuse(reason: Reason, asked: String) -> Outcome {
    let reply = match reason {
        Reason::NotAuthenticated => Reply::error(Code::UNAUTHORIZED, ErrorCode::INVALID_CLIENT),
        Reason::GrantType => Reply::error(Code::BAD_REQUEST, ErrorCode::UNSUPPORTED_GRANT_TYPE),
        Reason::OwnKey => Reply::error(Code::BAD_REQUEST, ErrorCode::UNSUPPORTED_POP_KEY),
        Reason::NoScope => Reply::error(Code::BAD_REQUEST, ErrorCode::INVALID_SCOPE),
        Reason::Malformed(_) => Reply::error(Code::BAD_REQUEST, ErrorCode::INVALID_REQUEST),
        Reason::Identity(NotAccepted::Full) => Reply::later(Code::SERVICE_UNAVAILABLE),
        Reason::Identity(NotAccepted::TooMany) => Reply::later(Code::TOO_MANY_REQUESTS),
        _ => Reply::error(Code::FORBIDDEN, ErrorCode::UNAUTHORIZED_CLIENT),
    };
    Outcome::refused(reply, reason, asked)
}

#[cfg(test)]
mod tests;
