//! A signature verifier of a Group OSCORE group (RFC 10021, section 7.5). It is no member. It gets the credentials of the
//! members from the Group Manager (draft-ietf-ace-key-groupcomm-oscore, section 8.5.1), and verifies who sent a message.

use super::oscore::{ATTEMPTS, NUM};
use super::{Controller, ControllerError};
use crate::cbor::Malformed;
use crate::client::{Response, Session};
use crate::contexts::AAD;
use crate::group::groupcomm::GROUPCOMM_CBOR;
use crate::group::groupcomm::oscore::{KdcCred, OscoreCred, OscoreCreds, VerificationData, encode_cnonce, subject_of};
use crate::provider::HostCrypto;
use crate::x509::signer::SignError;
use std::collections::VecDeque;
use tegmen::coap::{Code, MessageRef};
use tegmen::crypto::Crypto as _;
use tegmen::oscore::UnprotectError;
use tegmen::oscore::group::{GroupRequest, SignatureChecker};
use zeroize::Zeroizing;

/// Maximum number of requests that wait for responses.
const MOST_REQUESTS: usize = 1024;

/// Maximum number of requests with the token of a response that may be the request of this response.
const MOST_WITH_TOKEN: usize = 4;

/// A message whose signature is valid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verified {
    /// True if the message is a request, and false if it is a response.
    pub is_request: bool,
    /// The Sender ID of the member that signed the message.
    pub id: Vec<u8>,
    /// The name of this member, from its credential.
    pub name: Option<String>,
}

/// The reason why a message is not verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotVerified {
    /// The message has no OSCORE option, or is no message of CoAP.
    #[error("it is not protected with OSCORE")]
    Unprotected,
    /// The message is not in the group mode, so it has no signature.
    #[error("it has no signature: it is not in the group mode, or its OSCORE option is not valid")]
    NoSignature,
    /// The message has another Group Identifier.
    #[error("it is of another group, or of other keys of the group: start the verifier again")]
    OtherKeys,
    /// No member with the ID of the sender has a credential.
    #[error("its sender is no member of the group: if it has joined meanwhile, start the verifier again")]
    UnknownMember,
    /// The verifier has not verified the request of this response, or too many requests have the token of the response.
    #[error(
        "its request was not verified before, or more than {} requests have its token: give the messages in their order",
        MOST_WITH_TOKEN
    )]
    NoRequest,
    /// The signature is not valid.
    #[error("its signature is not valid: the message was changed, or another device sent it")]
    Forged,
}

impl From<UnprotectError> for NotVerified {
    fn from(error: UnprotectError) -> Self {
        match error {
            UnprotectError::Unprotected => Self::Unprotected,
            UnprotectError::UnknownContext => Self::OtherKeys,
            UnprotectError::UnknownMember => Self::UnknownMember,
            UnprotectError::NotAuthentic | UnprotectError::Malformed => Self::Forged,
            UnprotectError::BadOption | UnprotectError::Replayed | UnprotectError::TooManyMembers => Self::NoSignature,
        }
    }
}

/// The data with which a signature verifier verifies the messages of a group, in the current epoch of the group.
pub struct OscoreVerifier {
    checker: SignatureChecker<Vec<u8>, AAD>,
    creds: Vec<OscoreCred>,
    crypto: HostCrypto,
    /// The epoch of the group.
    number: u16,
    gid: Vec<u8>,
    /// The verified requests, each with its token, the oldest first.
    requests: VecDeque<(Vec<u8>, GroupRequest)>,
}

impl Controller {
    /// Asks for the data with which a signature verifier verifies the messages of a Group OSCORE group. This client needs
    /// the right of a signature verifier, and must not be a member of the group.
    ///
    /// # Errors
    /// [`ControllerError::NotAVerifier`] without the right, and also for a member; [`ControllerError::NoVerifiers`] for an
    /// Axiom group; [`ControllerError::ManagerNotProved`] if the Group Manager does not prove its credential; and the
    /// other errors of [`ControllerError`].
    pub async fn verifier_oscore(&self) -> Result<OscoreVerifier, ControllerError> {
        let session = self.connect().await?;
        let asked = self.verifier_over(&session).await;
        session.close();
        asked
    }

    async fn verifier_over(&self, session: &Session) -> Result<OscoreVerifier, ControllerError> {
        let no_randomness = |error: std::io::Error| ControllerError::NoKey {
            group: self.group.clone(),
            source: SignError(error.to_string()),
        };
        let mut crypto = HostCrypto::from_os().map_err(no_randomness)?;
        let path = self.path();
        let content = |asked: Result<Response, _>| {
            let reply = asked.map_err(|source| self.unreachable(source))?;
            if reply.code == Code::CONTENT {
                return Ok(reply);
            }
            // The controller gives no reason to a device without a right, and none for an Axiom group.
            Err(match self.refusal(&reply) {
                ControllerError::Forbidden { group, code: Code::FORBIDDEN, .. } => ControllerError::NotAVerifier(group),
                ControllerError::Forbidden { group, code: Code::BAD_REQUEST, .. } => {
                    ControllerError::NoVerifiers(group)
                }
                error => error,
            })
        };
        let mut cnonce = [0; 8];
        crypto.random(&mut cnonce);
        let (payload, resource) = (encode_cnonce(&cnonce), format!("{path}/kdc-cred"));
        let asked = session.request(Code::FETCH, &resource).payload(&payload).content_format(GROUPCOMM_CBOR);
        let kdc = KdcCred::parse(&content(asked.await)?.payload).map_err(ControllerError::Response)?;
        for _ in 0..ATTEMPTS {
            let data = content(session.get(&format!("{path}/verif-data")).await)?;
            let data = VerificationData::parse(&Zeroizing::new(data.payload)).map_err(ControllerError::Response)?;
            if !kdc.proves(&mut crypto, data.curve, &cnonce) {
                return Err(ControllerError::ManagerNotProved(self.group.clone()));
            }
            let creds = content(session.get(&format!("{path}/creds")).await)?;
            let OscoreCreds { number, creds } =
                OscoreCreds::parse(&creds.payload).map_err(ControllerError::Response)?;
            // The group has begun an epoch between the two responses.
            if number != data.number {
                continue;
            }
            let algorithms = data.algorithms();
            let VerificationData { gid, signature_encryption_key, .. } = data;
            let checker = SignatureChecker::new(&gid, algorithms, signature_encryption_key, kdc.credential);
            let checker = checker.map_err(|_| ControllerError::Response(Malformed::Value(NUM)))?;
            return Ok(OscoreVerifier { checker, creds, crypto, number, gid, requests: VecDeque::new() });
        }
        Err(ControllerError::Response(Malformed::Value(NUM)))
    }
}

impl OscoreVerifier {
    /// Verifies the signature of a message, which is a CoAP message without the headers below CoAP. Verify a request
    /// before its responses: the signature of a response covers the request, which the verifier finds by the token.
    ///
    /// # Errors
    /// [`NotVerified`].
    pub fn verify(&mut self, datagram: &[u8]) -> Result<Verified, NotVerified> {
        let Self { checker, creds, crypto, requests, .. } = self;
        let message = MessageRef::parse(datagram).map_err(|_| NotVerified::Unprotected)?;
        let token = message.token();
        let of = |id: &[u8]| creds.iter().find(|cred| cred.id == id);
        let find = |id: &[u8]| of(id).map(|cred| cred.credential.as_slice());
        let is_request = message.code().is_request();
        let id = if is_request {
            let request = checker.check_request(crypto, find, datagram)?;
            let id = *request.client();
            // A repeated request takes the place of no other request.
            let asked = (token.to_vec(), request);
            if !requests.contains(&asked) {
                if requests.len() >= MOST_REQUESTS {
                    requests.pop_front();
                }
                requests.push_back(asked);
            }
            id
        } else {
            // Two clients may have chosen the same token. Anyone can send a request again with another token, which the
            // signature does not cover.
            let mut result = Err(NotVerified::NoRequest);
            let mut with_token = requests.iter().rev().filter(|(known, _)| known == token);
            for (_, request) in with_token.by_ref().take(MOST_WITH_TOKEN) {
                result = checker.check_response(crypto, find, request, datagram).map_err(NotVerified::from);
                if !matches!(result, Err(NotVerified::Forged | NotVerified::OtherKeys)) {
                    break;
                }
            }
            let is_refused = matches!(result, Err(NotVerified::Forged | NotVerified::OtherKeys));
            if is_refused && with_token.next().is_some() {
                return Err(NotVerified::NoRequest);
            }
            result?
        };
        let id = id.as_bytes().to_vec();
        let name = of(&id).and_then(|cred| subject_of(&cred.credential));
        Ok(Verified { is_request, id, name })
    }

    /// Returns the epoch of the group.
    pub const fn epoch(&self) -> u16 {
        self.number
    }

    /// Returns the Group Identifier of the epoch.
    pub fn gid(&self) -> &[u8] {
        &self.gid
    }

    /// Returns the number of members that can sign messages.
    pub const fn members(&self) -> usize {
        self.creds.len()
    }
}
