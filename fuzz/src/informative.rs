//! Fuzzes the informative response of a group observation, and the messages in it. A client reads this response before
//! it has the keys of the group. The source file is the one of `tegmen-host`, where the module is not public.

// The tests of this file are beside it in `tegmen-host`, where this crate does not find them.
#[rustfmt::skip]
#[path = "../../tegmen-host/src/informative.rs"]
#[allow(dead_code, reason = "the server and the client use more of it")]
mod messages;

use messages::{Informative, independent, is_same, rebuilt, with_feedback_divider};
use tegmen::coap::{MessageRef, Token};

/// Reads an informative response. It must be the same after it is written and read again. Also reads the messages in the
/// response, and reads the bytes as such a message.
pub fn informative(data: &[u8]) {
    let (mut messages, mut token) = (vec![data.to_vec()], Token::new_empty());
    if let Ok(read) = Informative::read(data) {
        assert_eq!(Informative::read(&read.to_cbor()).as_ref(), Ok(&read));
        token = read.token;
        messages.extend(read.phantom.into_iter().chain(read.latest));
    }
    let rebuilt = messages.iter().filter_map(|message| {
        let rebuilt = rebuilt(message, &token).ok()?;
        assert_eq!(independent(&rebuilt).as_ref(), Some(message));
        Some(rebuilt)
    });
    let rebuilt: Vec<Vec<u8>> = rebuilt.collect();
    let parsed: Vec<MessageRef<'_>> = rebuilt.iter().map(|bytes| MessageRef::parse(bytes).expect("our own")).collect();
    for (message, bytes) in parsed.iter().zip(&rebuilt) {
        for other in &parsed {
            assert_eq!(is_same(message, other), is_same(other, message));
        }
        // A server adds the option only to responses.
        if message.code().is_response()
            && let Some(with) = with_feedback_divider(bytes, data.len() as u8)
        {
            let with = MessageRef::parse(&with).expect("our own");
            assert_eq!((with.code(), with.payload()), (message.code(), message.payload()));
        }
    }
}
