//! Decides on a request to `/token`: whether a client may have an access token for a publisher (RFC 9200, section 5.8;
//! RFC 9202, section 3.3).
//!
//! The publisher has a protokey, which is a secret that it shares with the access control server. The token is a CWT
//! for this publisher only, sealed under [`Protokey::token_key`](super::protokey::Protokey::token_key). It contains the
//! name of the client, the rights, and the key of the session (`cnf`). The identifier of this key is a session identity
//! that the server chooses at random, and the key is derived from the identity. So a token is revoked in the same way
//! as the key of a session.
//!
//! If the client asks for an upload and the publisher has an address, the server uploads the token to the publisher.
//! The publisher may refuse the token. The client may also ask that the publisher opens the session
//! (draft-ietf-ace-workflow-and-params-04).
//!
//! A resource server with OSCORE (RFC 9203) has no protokey, but shares another key with the access control server. The
//! module `oscore` makes its tokens.

mod oscore;

use super::ace::{
    Claims, Confirmation, ConnectionRequest, CoseKey, ErrorCode, GrantType, Malformed, Profile, Returned, TokenRequest,
    TokenResponse, TokenUpload, cwt,
};
use super::introspection::{Devices, Escaped, Introspection, Outcome, Publisher, Reason, Reply, Upload};
use super::policy::Party;
use super::protokey::{Mode, NotAccepted, SessionIdentity};
use super::revocation::token_hash;
use tegmen_base::crypto::Crypto;
use tegmen_base::hex::to_hex;
use tegmen_base::time::Instant;
use tegmen_coap::Code;

/// The label of the audience in a request.
const AUDIENCE: i64 = 5;
/// Number of random bytes in a session identity.
const NONCE: usize = 12;
/// Number of bytes of the identifier of a token.
const ID: usize = 8;

impl<D: Devices> Introspection<'_, D> {
    /// Answers the payload of a request to `/token`. `client` is the authenticated peer.
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
        let who = Escaped(client);
        let request = match TokenRequest::parse(payload) {
            Ok(request) => request,
            Err(error) => return refuse(Reason::Malformed(error), format!("{who} asks for a token: {error}")),
        };
        let audience = request.audience.as_deref().unwrap_or_default();
        let asked = format!("{who} asks for a token for {}", audience.escape_debug());
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
        let update = match &request.req_cnf {
            Some(Confirmation::Kid(kid)) => Some(self.known_key(client, kid, now)?),
            _ => None,
        };
        let connect = request.to_rs.as_deref().map(ConnectionRequest::parse).transpose().map_err(Reason::NoAddress)?;
        let audience = request.audience.as_deref().ok_or(Reason::Malformed(Malformed::Missing(AUDIENCE)))?;
        let scope = request.scope.as_ref().filter(|scope| scope.rights().is_some()).ok_or(Reason::NoScope)?;
        // This precedes every lookup of a device, so that the answer reveals nothing about devices.
        self.accepted.has_room(client.name, now).map_err(Reason::Identity)?;
        if let Some(update) = &update
            && update.publisher() != audience
        {
            return Err(Reason::UnknownKey);
        }
        if let Some(server) = self.devices.resource_server(audience) {
            return self.issue_for_oscore(client, &server, request, update, now, crypto);
        }
        let publisher = self.devices.publisher(audience).ok_or(Reason::UnknownPublisher)?;
        if publisher.mode != Mode::Bound {
            return Err(Reason::OtherMode);
        }
        self.permit(client, publisher.party.party(), Some(scope))?;
        if request.req_cnf.is_some() {
            return Err(Reason::OwnKey);
        }
        let text = draw_identity(audience, crypto);
        let identity = SessionIdentity::parse(text.as_bytes()).ok_or(Reason::UnknownPublisher)?;
        self.accepted.accept(identity, client.name, now).map_err(Reason::Identity)?;
        let psk = publisher.protokey.session_key::<C>(Mode::Bound, identity, client.name);
        let key = CoseKey { kid: Some(text.clone().into_bytes()), ..CoseKey::symmetric(psk.expose()) };
        let claims = Claims {
            subject: Some(client.name.to_owned()),
            audience: Some(audience.to_owned()),
            id: Some(draw::<ID, C>(crypto).to_vec()),
            cnf: Some(Confirmation::Key(key.clone())),
            scope: Some(scope.clone()),
            cnonce: request.cnonce.clone(),
            expires: Some((now.as_micros() / 1_000_000).saturating_add(self.lifetime)),
            ..Claims::default()
        };
        let access_token = cwt::seal(&claims, &publisher.protokey.token_key::<C>(), crypto);
        let token = token_hash::<C>(&access_token);
        self.accepted.set_token(identity.as_str(), &token);
        let upload = request.upload.and_then(|_| upload::<C>(&publisher, &access_token, connect));
        let response = TokenResponse {
            access_token: Some(access_token),
            expires_in: Some(self.lifetime),
            cnf: Some(Confirmation::Key(key)),
            ace_profile: Some(Profile::COAP_DTLS),
            uploaded: upload.is_some().then_some(false),
            ..TokenResponse::default()
        };
        let message = format!("the session {text}, the token {}", to_hex(&token));
        let reply = created(&response);
        let upload = upload.map(|upload| Upload { taken: created(&taken(response, request.upload, &token)), ..upload });
        Ok(Outcome { reply, refused: None, session: Some(text), token: Some(token), upload, message })
    }
}

/// Makes a random session identity. It identifies a session with the device `audience`, or input material for this
/// device.
fn draw_identity<C: Crypto>(audience: &str, crypto: &mut C) -> String {
    format!("{audience};{}", to_hex(&draw::<NONCE, C>(crypto)))
}

fn draw<const LEN: usize, C: Crypto>(crypto: &mut C) -> [u8; LEN] {
    let mut drawn = [0; LEN];
    crypto.random(&mut drawn);
    drawn
}

/// Returns the upload of a token; `None` if the publisher has no address. The response in the field `taken` is only a
/// placeholder, which the caller must replace.
fn upload<C: Crypto>(publisher: &Publisher<'_>, token: &[u8], connect: Option<ConnectionRequest>) -> Option<Upload> {
    let address = publisher.address?;
    let request = TokenUpload { access_token: token.to_vec(), connect }.encode();
    let key = publisher.protokey.server_key::<C>();
    Some(Upload { address, key, request, taken: Reply::new(Code::SERVICE_UNAVAILABLE, Default::default()) })
}

/// Returns the response to the client for the case that the publisher takes the uploaded token. `wants` is the choice
/// of the client: the response contains the token, its hash, or neither.
fn taken(response: TokenResponse, wants: Option<Returned>, hash: &[u8]) -> TokenResponse {
    let access_token = response.access_token.filter(|_| wants == Some(Returned::Token));
    let token_hash = (wants == Some(Returned::Hash)).then(|| hash.to_vec());
    TokenResponse { access_token, token_hash, uploaded: Some(true), ..response }
}

fn created(response: &TokenResponse) -> Reply {
    Reply::new(Code::CREATED, response.encode())
}

/// Makes the outcome of a refused request. All refusals whose reason depends on devices have the same bytes in the
/// response.
fn refuse(reason: Reason, asked: String) -> Outcome {
    let reply = match reason {
        Reason::NotAuthenticated => Reply::error(Code::UNAUTHORIZED, ErrorCode::INVALID_CLIENT),
        Reason::GrantType => Reply::error(Code::BAD_REQUEST, ErrorCode::UNSUPPORTED_GRANT_TYPE),
        Reason::OwnKey => Reply::error(Code::BAD_REQUEST, ErrorCode::UNSUPPORTED_POP_KEY),
        Reason::NoScope => Reply::error(Code::BAD_REQUEST, ErrorCode::INVALID_SCOPE),
        Reason::Malformed(_) | Reason::NoAddress(_) | Reason::UnknownKey => {
            Reply::error(Code::BAD_REQUEST, ErrorCode::INVALID_REQUEST)
        }
        Reason::Identity(full @ (NotAccepted::Full | NotAccepted::TooMany)) => Reply::no_room(full),
        _ => Reply::unauthorized_client(),
    };
    Outcome::refused(reply, reason, asked)
}

#[cfg(test)]
mod tests;
