//! Checks the fields of OSCORE messages that a node between the client and the server can read.

use crate::capture::{Capture, Datagram};
use crate::cell::Check;
use std::collections::HashMap;
use tegmen::coap::{Code, MessageRef, MessageType, OptionNumber};
use tegmen::oscore::OscoreOption;

/// Parts of the requests and responses of these scenarios. No message may contain them unencrypted.
const CLEAR: [&[u8]; 7] = [b"hello", b"value", b"slow", b"count", b"files", b"unseen", b"0123456789abcdef"];

/// Options that may be in an outer message: options of class U, the outer Observe, and OSCORE itself (RFC 8613, section
/// 4.1).
const OUTSIDE: [OptionNumber; 5] = [
    OptionNumber::URI_HOST,
    OptionNumber::OBSERVE,
    OptionNumber::URI_PORT,
    OptionNumber::OSCORE,
    OptionNumber::MAX_AGE,
];

fn parse(datagram: &[u8]) -> Result<MessageRef<'_>, String> {
    MessageRef::parse(datagram).map_err(|error| format!("what passed is no CoAP: {error:?}"))
}

pub(super) fn code(datagram: &[u8]) -> Result<Code, String> {
    Ok(parse(datagram)?.code())
}

/// Checks that every request and every successful response is protected, that no content of a message is readable, and
/// that neither the client nor the server used a sequence number twice.
pub(super) fn protected(capture: &Capture) -> Check {
    all_protected(&capture.datagrams())
}

fn all_protected(datagrams: &[Datagram]) -> Check {
    let mut numbers = HashMap::new();
    let (mut requests, mut responses) = (0u32, 0u32);
    for datagram in datagrams {
        let message = parse(&datagram.bytes)?;
        if let Some(word) = CLEAR.iter().find(|word| datagram.bytes.windows(word.len()).any(|bytes| bytes == **word)) {
            return Err(format!("{:?} can be read", String::from_utf8_lossy(word)).into());
        }
        match message.code() {
            Code::EMPTY => continue,
            Code::POST | Code::FETCH if datagram.to_server => requests = requests.saturating_add(1),
            Code::CHANGED | Code::CONTENT if !datagram.to_server => responses = responses.saturating_add(1),
            // An error may be unprotected (section 8.2).
            code if code.class() >= 4 && !datagram.to_server => continue,
            code => return Err(format!("a message shows the code {code}").into()),
        }
        let option = message.option(OptionNumber::OSCORE).ok_or("a message has no OSCORE option")?;
        let option = OscoreOption::parse(option).map_err(|_| "an OSCORE option makes no sense")?;
        if let Some((number, _)) = message.options().find(|(number, _)| !OUTSIDE.contains(number)) {
            return Err(format!("the option {} stands outside", number.0).into());
        }
        match option.partial_iv {
            // A retransmission has the same payload.
            Some(iv) => match numbers.insert(used(datagram, &option, iv.as_bytes()), message.payload().to_vec()) {
                Some(before) if before != message.payload() => {
                    return Err(format!("the number {} was used twice", number_of(iv.as_bytes())).into());
                }
                _ => {}
            },
            None if datagram.to_server => return Err("a request has no Partial IV".into()),
            None => {}
        }
    }
    if requests == 0 || responses == 0 {
        return Err(format!("{requests} requests and {responses} responses passed").into());
    }
    Ok(())
}

/// Returns three values of a message: its direction, its kid context, and its sequence number. The same three values
/// must not occur again. Each kid context has new keys (appendix B.2).
fn used(datagram: &Datagram, option: &OscoreOption<'_>, partial_iv: &[u8]) -> (bool, Option<Vec<u8>>, u64) {
    (datagram.to_server, option.kid_context.map(<[u8]>::to_vec), number_of(partial_iv))
}

fn number_of(partial_iv: &[u8]) -> u64 {
    partial_iv.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Counts the protected messages that have a payload and this option.
pub(super) fn with_option(capture: &Capture, option: OptionNumber) -> Result<usize, String> {
    let mut count = 0;
    for datagram in capture.datagrams() {
        let message = parse(&datagram.bytes)?;
        let shown = message.option(OptionNumber::OSCORE).is_some() && message.option(option).is_some();
        count += usize::from(shown && !message.payload().is_empty());
    }
    Ok(count)
}

/// Returns the length in bytes of the kid context of each protected message, or `None` for a message without a kid
/// context.
pub(super) fn kid_contexts(datagrams: &[Datagram]) -> Result<Vec<Option<usize>>, String> {
    let mut found = Vec::new();
    for datagram in datagrams {
        let message = parse(&datagram.bytes)?;
        let Some(option) = message.option(OptionNumber::OSCORE) else { continue };
        let option = OscoreOption::parse(option).map_err(|_| "an OSCORE option makes no sense")?;
        found.push(option.kid_context.map(<[u8]>::len));
    }
    Ok(found)
}

/// Counts the requests. A request and its retransmissions count once.
pub(super) fn requests(datagrams: &[Datagram]) -> usize {
    let mut numbers: Vec<Vec<u8>> = Vec::new();
    for datagram in datagrams.iter().filter(|datagram| datagram.to_server) {
        let Ok(message) = parse(&datagram.bytes) else { continue };
        let Some(option) = message.option(OptionNumber::OSCORE) else { continue };
        if !numbers.iter().any(|number| number == option) {
            numbers.push(option.to_vec());
        }
    }
    numbers.len()
}

/// Returns true if `datagrams` contains a confirmable notification from the server and the client's acknowledgement of
/// it.
pub(super) fn acknowledged(datagrams: &[Datagram]) -> bool {
    let seen = |to_server: bool, kind: MessageType, code: Code| {
        datagrams.iter().filter(move |datagram| datagram.to_server == to_server).find_map(move |datagram| {
            let message = parse(&datagram.bytes).ok()?;
            ((message.message_type(), message.code()) == (kind, code)).then_some(message.message_id())
        })
    };
    let notification = seen(false, MessageType::Confirmable, Code::CONTENT);
    notification.is_some() && notification == seen(true, MessageType::Acknowledgement, Code::EMPTY)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(bytes: &[u8]) -> Datagram {
        Datagram { to_server: true, bytes: bytes.to_vec() }
    }

    /// A POST with an empty kid and the sequence number 7. A response follows it in each test.
    const REQUEST: [u8; 9] = [0x40, 2, 0, 1, 0x92, 0x09, 7, 0xff, 0xab];

    fn after(more: Datagram) -> Check {
        let response = Datagram { to_server: false, bytes: vec![0x60, 0x44, 0, 1, 0x90, 0xff, 0xcd] };
        all_protected(&[request(&REQUEST), response, more])
    }

    #[test]
    fn what_is_not_protected_is_seen() {
        assert_eq!(after(request(&REQUEST)), Ok(()), "what is sent again");
        assert_eq!(after(request(&[0x40, 0, 0, 1])), Ok(()), "an empty message");
        for (wrong, bytes) in [
            ("a GET", &[0x40, 1, 0, 2, 0x92, 0x09, 8, 0xff, 0xab][..]),
            ("no option", &[0x40, 2, 0, 2, 0xff, 0xab]),
            ("no Partial IV", &[0x40, 2, 0, 2, 0x91, 0x08, 0xff, 0xab]),
            ("the number again", &[0x40, 2, 0, 2, 0x92, 0x09, 7, 0xff, 0xac]),
            ("a path", &[0x40, 2, 0, 2, 0x92, 0x09, 8, 0x21, b'v', 0xff, 0xab]),
            ("a payload", b"\x40\x02\0\x02\x92\x09\x08\xffhello"),
        ] {
            assert!(after(request(bytes)).is_err(), "{wrong}");
        }
        assert!(all_protected(&[request(&REQUEST)]).is_err(), "no response");
    }

    #[test]
    fn what_is_sent_again_is_one_request() {
        let next = [0x40, 2, 0, 1, 0x92, 0x09, 8, 0xff, 0xab];
        assert_eq!(requests(&[request(&REQUEST), request(&REQUEST), request(&next)]), 2);
    }
}
