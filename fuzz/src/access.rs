//! Targets for messages of ACE, and for policy files.

use std::fmt::Debug;
use tegmen_control::access::ace::trl::{Answer, Query, TrlError};
use tegmen_control::access::ace::{
    Aif, Claims, ConnectionRequest, CreationHints, ErrorResponse, IntrospectionRequest, IntrospectionResponse, Offer,
    PostedToken, TokenRequest, TokenResponse, TokenUpload,
};
use tegmen_control::access::policy::{OwnedParty, Policy, Question, request};
use tegmen_control::access::protokey::SessionIdentity;
use tegmen_host::group::groupcomm::{Challenge, Creds, CredsFilter, GroupKeys, JoinRequest};
use tegmen_host::group::member_file::MemberFile;

/// Reads a byte that selects the kind of message, and then the message. A message that was parsed must be unchanged
/// after it is written and parsed again.
pub fn ace(data: &[u8]) {
    let Some((&kind, message)) = data.split_first() else { return };
    match kind % 20 {
        0 => again(message, TokenRequest::parse, |read| read.encode().to_vec()),
        1 => again(message, TokenResponse::parse, |read| read.encode().to_vec()),
        2 => again(message, IntrospectionRequest::parse, IntrospectionRequest::encode),
        3 => again(message, IntrospectionResponse::parse, |read| read.encode().to_vec()),
        4 => again(message, ErrorResponse::parse, ErrorResponse::encode),
        5 => again(message, CreationHints::parse, CreationHints::encode),
        6 => again(message, Claims::parse, |read| read.encode().to_vec()),
        7 => again(message, Aif::parse, Aif::encode),
        8 => again(message, Answer::parse, Answer::encode),
        9 => again(message, TrlError::parse, TrlError::encode),
        10 => again(message, ConnectionRequest::parse, ConnectionRequest::encode),
        11 => again(message, TokenUpload::parse, |read| read.encode().to_vec()),
        12 => again(message, JoinRequest::parse, JoinRequest::encode),
        13 => again(message, |read| GroupKeys::parse(read).map(|keys| keys.encode().to_vec()), Clone::clone),
        15 => again(message, CredsFilter::parse, |filter| filter.encode().to_vec()),
        16 => again(message, Creds::parse, |creds| creds.encode().to_vec()),
        17 => again(message, Challenge::parse, |challenge| challenge.encode("lamps").to_vec()),
        18 => again(message, PostedToken::parse, PostedToken::encode),
        19 => again(message, Offer::parse_response, Offer::encode_response),
        _ => again(message, |read| MemberFile::parse(read).map(|file| file.encode().to_vec()), Clone::clone),
    }
    let _ = Query::parse(message.split(|byte| *byte == b'&'));
    if let Some(identity) = SessionIdentity::parse(message) {
        assert!(identity.as_str().len() <= 128 && identity.as_str().starts_with(identity.publisher()));
    }
}

fn again<T: PartialEq + Debug, E: Debug>(
    message: &[u8],
    parse: impl Fn(&[u8]) -> Result<T, E>,
    encode: impl Fn(&T) -> Vec<u8>,
) {
    if let Ok(read) = parse(message) {
        // A message without lengths can be longer after it is written.
        if let Ok(second) = parse(&encode(&read)) {
            assert_eq!(read, second);
        } else {
            assert!(message.len() > 2048, "{read:?}");
        }
    }
}

/// Reads a policy file. Its first line has a request, a subject and a publisher, separated by commas. The policy has an
/// index that finds the rules for a request, and an explanation that examines each rule. Both must give the same
/// decision.
pub fn policy(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let first = text.lines().next().unwrap_or("").trim_start_matches('#');
    let Ok(policy) = Policy::parse("p", text) else { return };
    let _ = policy.failed_tests();
    let mut parts = first.split(',');
    let Ok((method, path)) = request(parts.next().unwrap_or("")) else { return };
    let mut party = || OwnedParty::from_words(parts.next().unwrap_or("").split(' '));
    let (Ok(subject), Ok(publisher)) = (party(), party()) else { return };
    let question = Question { subject: subject.party(), publisher: publisher.party(), method, path };
    let explanation = policy.explain(&question);
    if explanation.decision.code() == "no-rule" {
        assert!(explanation.also.is_empty(), "a rule covers the request");
    }
    assert!(policy.diff(&policy, &[]).is_empty());
}
