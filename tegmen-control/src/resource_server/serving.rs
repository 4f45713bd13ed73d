//! The policy of the resource server, and the responses that it sends itself.

use super::{AUTHZ_INFO, Refusal, Tokens};
use crate::access::ace::{ACE_CBOR, CreationHints};
use tegmen::coap::{self, Code, OptionNumber, Policy, Response};
use tegmen::identity::{Identity, Principal, Protection};
use tegmen_coap::{Methods, Rule};
use tegmen_host::credentials::FilePolicy;
use tegmen_host::request_uri::Path;
use tegmen_host::server::{Notifier, Request};
use tegmen_store::clock::now;

/// The decision of the resource server on a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// The request is a POST that contains a token.
    Token,
    /// The sender has a token that permits the request.
    Allowed,
    /// The sender has no token, so the policy for all other peers decides.
    Others,
    /// The token of the sender has expired, or the request has no protection and must have a token. The response is
    /// 4.01, with hints if the request has no protection.
    NoToken,
    /// The sender has a token, but the token does not permit the request. The response is 4.03 or 4.05 (RFC 9200,
    /// section 5.10.2).
    Refused(Code),
}

impl Tokens {
    /// Returns the policy of the CoAP server. A client with a token has the rights of its token. `others` contains the
    /// rights of all other peers. The application must pass each request to [`Self::serve`] first.
    pub fn policy(&self, others: FilePolicy) -> impl Policy + Send + Sync + 'static {
        TokenPolicy { tokens: self.clone(), others }
    }

    /// Takes the token in a POST that contains a token. Refuses a request for which the client needs a token, but has
    /// no token that allows it. Returns `None` for all other requests: the rest of the application must serve them.
    pub fn serve(&self, request: &Request<'_>, response: &mut Response<'_, '_>) -> Option<Result<(), Code>> {
        let path = format!("/{}", request.path());
        match self.decide(request.identity(), request.method(), path.bytes()) {
            Verdict::Allowed | Verdict::Others => None,
            Verdict::Refused(code) => Some(Err(code)),
            Verdict::Token => Some(self.take_from(request, response)),
            Verdict::NoToken => Some(self.hint(request.identity(), response)),
        }
    }

    /// Ends expired tokens. Notifies the observers whose token has expired: they receive 4.01. The caller must call
    /// this function once a second.
    pub fn every_second(&self, notifier: &Notifier) {
        for (principal, rights) in self.expire(now()) {
            for right in &rights.0 {
                let is_of_token = move |identity: &Identity| identity.principal == principal;
                notifier.changed_for(right.path.trim_start_matches('/'), is_of_token);
            }
        }
    }

    fn decide(&self, identity: &Identity, method: Code, path: impl Iterator<Item = u8> + Clone) -> Verdict {
        if path.clone().skip(1).eq(AUTHZ_INFO.bytes()) {
            return if method == Code::POST { Verdict::Token } else { Verdict::Refused(Code::METHOD_NOT_ALLOWED) };
        }
        if identity.protection == Protection::Plain {
            return if self.0.settings.hints.is_some() { Verdict::NoToken } else { Verdict::Others };
        }
        self.of_token(identity.principal, method, path).unwrap_or(Verdict::Others)
    }

    /// Decides on a request by the token of its client. Returns `None` if the client has no token.
    fn of_token(&self, principal: Principal, method: Code, path: impl Iterator<Item = u8> + Clone) -> Option<Verdict> {
        let taken = self.taken();
        let token = taken.of_principal(principal)?;
        if token.expires <= now() {
            return Some(Verdict::NoToken);
        }
        let rules = || token.rules.iter().filter_map(|rule| Rule::parse(rule));
        let covers = |code| rules().any(|rule| rule.covers(code, path.clone()));
        Some(match () {
            () if covers(method) => Verdict::Allowed,
            () if Methods::ALL.codes().any(covers) => Verdict::Refused(Code::METHOD_NOT_ALLOWED),
            () => Verdict::Refused(Code::FORBIDDEN),
        })
    }

    fn take_from(&self, request: &Request<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        if request.message().uint(OptionNumber::CONTENT_FORMAT) != Some(ACE_CBOR.into()) {
            return Err(Code::UNSUPPORTED_CONTENT_FORMAT);
        }
        let Identity { protection, principal, .. } = *request.identity();
        let is_update = protection == Protection::Oscore;
        let taken = match is_update {
            true => self.update(principal, request.payload(), now()).map(|()| None),
            false => self.take(request.payload(), now()),
        };
        match taken {
            Ok(offer) => {
                response.set_code(Code::CREATED);
                let Some(offer) = offer else { return Ok(()) };
                response.uint(OptionNumber::CONTENT_FORMAT, ACE_CBOR.into())?;
                response.payload(&offer.encode_response())
            }
            Err(refusal) => {
                request.because(refusal.to_string());
                response.set_code(if is_update { refusal.code_of_update() } else { refusal.code() });
                match refusal {
                    Refusal::Busy { seconds } | Refusal::TooMany { seconds } => {
                        response.uint(OptionNumber::MAX_AGE, seconds)
                    }
                    _ => Ok(()),
                }
            }
        }
    }

    /// Sends a 4.01 response. A sender without protection gets the hints of RFC 9200, section 5.3.
    fn hint(&self, identity: &Identity, response: &mut Response<'_, '_>) -> Result<(), Code> {
        let auth_server = self.0.settings.hints.clone();
        if identity.protection != Protection::Plain || auth_server.is_none() {
            return Err(Code::UNAUTHORIZED);
        }
        let audience = Some(self.0.settings.name.clone());
        let hints = CreationHints { auth_server, audience, ..CreationHints::default() };
        response.set_code(Code::UNAUTHORIZED);
        response.uint(OptionNumber::CONTENT_FORMAT, ACE_CBOR.into())?;
        response.payload(&hints.encode())
    }
}

struct TokenPolicy {
    tokens: Tokens,
    others: FilePolicy,
}

impl Policy for TokenPolicy {
    fn decide(&self, request: &coap::Request<'_>) -> Option<bool> {
        let Ok(path) = Path::of(&request.message) else { return Some(false) };
        match self.tokens.decide(&request.identity, request.message.code(), path.bytes()) {
            Verdict::Others => self.others.decide(request),
            // The application answers what is refused, with its code.
            Verdict::Token | Verdict::Allowed | Verdict::Refused(_) => Some(true),
            // A body would take memory before its sender gets the hints.
            Verdict::NoToken => Some(request.message.payload().is_empty()),
        }
    }
}
