//! A client of resource servers with the OSCORE profile (RFC 9203). It asks the access control server for a token, and
//! posts the token at the resource server.
//!
//! A client can post a token again if the resource server has lost it, or if the client has lost its Security Context.
//! Both endpoints then make new nonces, so the keys are new.

use crate::access::ace::oscore::{InputMaterial, NoContext, Nonces};
use crate::access::ace::{
    ACE_CBOR, Aif, Claims, Confirmation, Malformed, Offer, PostedToken, Profile, Scope, TokenRequest, TokenResponse,
};
use crate::server::TOKEN;
use crate::subscriber::{NotGranted, granted};
use crate::upload::AUTHZ_INFO;
use tegmen_coap::{Code, OptionNumber};
use tegmen_host::client::{ClientError, Session};
use tegmen_host::contexts::ContextFile;
use tegmen_host::edhoc::Credential;
use zeroize::Zeroizing;

/// Length of N1 in bytes.
const NONCE: usize = 8;
/// Length of a Recipient ID in bytes, if the algorithm allows this length.
const RECIPIENT_ID: usize = 2;

/// Asks the access control server for a token with these rights at a resource server. `server` is a session with the
/// access control server in which this client proved its identity. In the profile of EDHOC and OSCORE, `key` is the
/// client's public key. In the OSCORE profile, `key` is `None` for a new Security Context. To change the rights of an
/// existing Security Context, `key` is the identifier of the input material in the earlier token. Returns two values:
/// the payload of the response, which is wiped on drop, and the parsed response.
///
/// # Errors
/// [`NotGranted`].
pub async fn request_token(
    server: &Session,
    audience: &str,
    rights: &Aif,
    key: Option<Confirmation>,
) -> Result<(Zeroizing<Vec<u8>>, TokenResponse), NotGranted> {
    let request = TokenRequest {
        req_cnf: key.clone(),
        audience: Some(audience.to_owned()),
        scope: Some(Scope::of(rights)),
        ..TokenRequest::default()
    };
    let response = server.post(TOKEN, &request.encode()).content_format(ACE_CBOR).await?;
    let (payload, response) = granted(response)?;
    let profile = match key {
        Some(Confirmation::Key(_)) => Profile::COAP_EDHOC_OSCORE,
        _ => Profile::COAP_OSCORE,
    };
    let is_of_profile = response.ace_profile.is_none_or(|named| named == profile);
    let has_key = matches!(response.cnf, Some(Confirmation::Osc(_)));
    if is_of_profile && has_key == key.is_none() {
        Ok((payload, response))
    } else {
        Err(NotGranted::Unexpected { code: Code::CREATED })
    }
}

/// The reason why a client gets no Security Context with a resource server, or why the rights of an existing context
/// are not updated.
#[derive(Debug, thiserror::Error)]
pub enum NotAgreed {
    /// The resource server refuses the token.
    #[error("the resource server refuses the token ({code}): its log has the reason")]
    Refused {
        /// The code of the response.
        code: Code,
    },
    /// The resource server has no space for a token now, or no space for another token of this client.
    #[error("the resource server has no space for another token: ask again in {seconds} s")]
    Later {
        /// Seconds after which the client may ask again.
        seconds: u32,
    },
    /// The response lacks data that a Security Context needs.
    #[error("the response of the resource server gives no security context: {0}")]
    Malformed(#[from] Malformed),
    /// No Security Context is possible with the IDs of client and resource server: they are equal, or one is too long.
    #[error("{0}: post the token again")]
    NoContext(#[from] NoContext),
    /// The system has no randomness.
    #[error("the system gives no randomness: {0}")]
    System(getrandom::Error),
    /// The session could not be opened, or no response arrived.
    #[error("the resource server cannot be asked: {0}")]
    NoResponse(#[from] ClientError),
}

/// Posts a token in a request without protection. Returns the new Security Context that client and resource server
/// derive. The response to this request does not prove that the resource server could open the token. Only the first
/// protected response of the resource server proves it.
///
/// # Errors
/// [`NotAgreed`].
pub async fn post_token(
    resource_server: &Session,
    access_token: &[u8],
    material: &InputMaterial,
) -> Result<ContextFile, NotAgreed> {
    let (mut nonce, mut recipient_id) = (vec![0; NONCE], vec![0; RECIPIENT_ID.min(material.aead.max_id())]);
    getrandom::fill(&mut nonce).map_err(NotAgreed::System)?;
    getrandom::fill(&mut recipient_id).map_err(NotAgreed::System)?;
    let own = Offer { nonce, recipient_id };
    let posted = PostedToken { access_token: access_token.to_vec(), offer: Some(own.clone()) };
    let payload = post(resource_server, &posted).await?;
    let theirs = Offer::parse_response(&payload)?;
    let nonces = Nonces { client: &own.nonce, server: &theirs.nonce };
    Ok(material.context(&nonces, &theirs.recipient_id, &own.recipient_id)?)
}

/// Returns the public key of an EDHOC credential, as a token request contains it; `None` if the credential has no
/// public key.
pub fn public_key(credential: &Credential) -> Option<Confirmation> {
    Claims::parse(credential.as_bytes()).ok()?.cnf.filter(|cnf| matches!(cnf, Confirmation::Key(_)))
}

/// Posts a token without a nonce. If a Security Context protects the session, the token updates the rights of this
/// context. If the session has no protection, the token must belong to the profile of EDHOC and OSCORE, and the client
/// runs EDHOC afterwards.
///
/// # Errors
/// [`NotAgreed`].
pub async fn post_alone(resource_server: &Session, access_token: &[u8]) -> Result<(), NotAgreed> {
    let posted = PostedToken { access_token: access_token.to_vec(), offer: None };
    post(resource_server, &posted).await.map(drop)
}

async fn post(resource_server: &Session, posted: &PostedToken) -> Result<Vec<u8>, NotAgreed> {
    let response = resource_server.post(AUTHZ_INFO, &posted.encode()).content_format(ACE_CBOR).await?;
    match response.code {
        // Drafts before RFC 9200 had 2.04, and some resource servers have it still.
        Code::CREATED | Code::CHANGED => Ok(response.payload),
        Code::SERVICE_UNAVAILABLE | Code::TOO_MANY_REQUESTS => {
            Err(NotAgreed::Later { seconds: response.uint(OptionNumber::MAX_AGE).unwrap_or(60) })
        }
        code => Err(NotAgreed::Refused { code }),
    }
}
