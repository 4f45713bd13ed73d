//! Executes scripts of events for the two endpoints of an OSCORE context.

use crate::Input;
use std::collections::HashSet;
use tegmen::buf::Frame;
use tegmen::coap::{Builder, Code, MessageType, OptionNumber, Token};
use tegmen::crypto::Compact;
use tegmen::oscore::{Aead, Context, OVERHEAD, Offers, OscoreOption, Parameters, Pending, Unprotected};

/// Parses an OSCORE option. An option that was read must have the same bytes when it is written again.
pub fn option(data: &[u8]) {
    if let Ok(option) = OscoreOption::parse(data) {
        // As RFC 8613, section 6.1, lays it out.
        let partial_iv = option.partial_iv.as_ref().map_or(&[][..], |number| number.as_bytes());
        let mut flags = partial_iv.len() as u8;
        let mut parts = partial_iv.to_vec();
        if let Some(context) = option.kid_context {
            flags |= 1 << 4;
            parts.push(context.len() as u8);
            parts.extend(context);
        }
        if let Some(kid) = option.kid {
            flags |= 1 << 3;
            parts.extend(kid);
        }
        if flags != 0 {
            parts.insert(0, flags);
        }
        assert_eq!(parts, data);
    }
}

/// One endpoint of the OSCORE context.
struct End {
    context: Context,
    sender_id: &'static [u8],
    /// The upper limit of the reserved sequence numbers, as this endpoint last stored it durably.
    kept: u64,
    /// The requests of this endpoint that wait for responses.
    pending: Vec<Pending>,
}

const PARAMETERS: Parameters<'static> = Parameters {
    master_secret: &[7; 16],
    master_salt: b"salt",
    sender_id: b"c",
    recipient_id: b"s",
    id_context: None,
    aead: Aead::AesCcm16_64_128,
};

fn parameters(which: usize) -> Parameters<'static> {
    match which {
        0 => PARAMETERS,
        _ => Parameters { sender_id: b"s", recipient_id: b"c", ..PARAMETERS },
    }
}

/// Reads the bytes as a script: requests with any options, answers, restarts that lose the replay window, replays, and
/// damaged messages. An endpoint must deliver only requests that were sent, and no request twice.
pub fn script(data: &[u8]) {
    option(data);
    let mut input = Input::new(data);
    let mut crypto = Compact::new([1; 32]);
    let mut ends = [0, 1].map(|which| End {
        context: Context::new::<Compact>(&parameters(which)).expect("they fit"),
        sender_id: parameters(which).sender_id,
        kept: 0,
        pending: Vec::new(),
    });
    let mut sent: Vec<(usize, Vec<u8>)> = Vec::new();
    let (mut delivered, mut number) = (HashSet::new(), 0u32);
    while !input.is_empty() && number < 200 {
        let command = input.byte();
        let which = usize::from(command >> 7);
        match command & 7 {
            0 | 1 => {
                number += 1;
                if let Some(datagram) = ask(&mut ends[which], &mut crypto, &mut input, number) {
                    sent.push((1 - which, datagram));
                }
            }
            2..=4 => {
                let at = usize::from(input.byte());
                let Some((to, datagram)) = sent.get(at % sent.len().max(1)).cloned() else { continue };
                let mut datagram = datagram;
                if command & 7 == 4 {
                    let (at, bit) = (usize::from(input.byte()) % datagram.len(), input.byte() & 7);
                    datagram[at] ^= 1 << bit;
                }
                let answer = hear(&mut ends[to], &mut crypto, &mut datagram, &mut delivered);
                if let Some(mut answer) = answer {
                    let from = &mut ends[1 - to];
                    let index = usize::from(input.byte()) % from.pending.len().max(1);
                    if let Some(pending) = from.pending.get_mut(index) {
                        let _ = from.context.unprotect_response(&mut crypto, pending, &mut answer);
                    }
                }
            }
            5 => {
                let end = &mut ends[which];
                end.context = Context::resume::<Compact>(&parameters(which), end.kept).expect("they fit");
                end.pending.clear();
            }
            6 => {
                let mut anything = input.bytes(64).to_vec();
                let _ = hear(&mut ends[which], &mut crypto, &mut anything, &mut delivered);
            }
            _ => {
                let mut storage = [0; 200];
                let mut frame = Frame::new(&mut storage, 0);
                let (option, payload) = (input.bytes(12), input.bytes(40));
                let builder = Builder::new(&mut frame, MessageType::NonConfirmable, Code::POST, 1, b"t");
                let built = builder.and_then(|mut builder| {
                    builder.option(OptionNumber::OSCORE, option)?;
                    builder.payload(payload)
                });
                if built.is_ok() {
                    let mut first = frame.bytes().to_vec();
                    let opened = Offers::draw(&mut crypto).open(&mut crypto, &parameters(which), &mut first);
                    assert!(opened.is_err(), "a tag was guessed");
                    let forged = hear(&mut ends[which], &mut crypto, frame.bytes_mut(), &mut delivered);
                    assert!(forged.is_none(), "a tag was guessed");
                }
            }
        }
    }
}

fn lease_one(end: &mut End) {
    if end.context.lease().left() == 0 {
        end.kept = end.context.lease().end() + 4;
        end.context.lease_mut().extend(end.kept);
    }
}

/// Protects a request with options that the fuzzer chooses. Its payload begins with `number`.
fn ask(end: &mut End, crypto: &mut Compact, input: &mut Input<'_>, number: u32) -> Option<Vec<u8>> {
    lease_one(end);
    let mut storage = [0; 900];
    let mut frame = Frame::new(&mut storage, 300);
    let mut builder = Builder::new(&mut frame, MessageType::Confirmable, Code::PUT, number as u16, b"tok").ok()?;
    let mut last = 0;
    for _ in 0..input.byte() % 5 {
        let (delta, len) = (u16::from(input.byte()) << (input.byte() & 3), usize::from(input.byte() % 32));
        last += delta;
        let value = input.bytes(len);
        if last != OptionNumber::OSCORE.0 {
            builder.option(OptionNumber(last), value).ok()?;
        }
    }
    builder.payload(&number.to_be_bytes()).ok()?;
    let pending = end.context.protect_request(crypto, &mut frame).ok()?;
    end.pending.push(pending);
    Some(frame.bytes().to_vec())
}

/// Opens a request at `end`. Returns the answer.
fn hear(
    end: &mut End,
    crypto: &mut Compact,
    datagram: &mut [u8],
    delivered: &mut HashSet<(Vec<u8>, u32)>,
) -> Option<Vec<u8>> {
    let who = end.sender_id.to_vec();
    let (next, _) = end.context.window().parts();
    let before = datagram.to_vec();
    let opened = end.context.unprotect_request(crypto, datagram);
    let mut storage = [0; 300];
    let mut frame = Frame::new(&mut storage, OVERHEAD);
    let (head, token) = ((MessageType::Acknowledgement, 1), Token::new(b"tok"));
    match opened {
        Err(_) => {
            assert_eq!(end.context.window().parts().0, next, "a window moved for {before:02x?}");
            return None;
        }
        Ok(Unprotected::Unverified(_, request)) => {
            lease_one(end);
            end.context.write_challenge(crypto, &request, head, &token, &mut frame).expect("there is a lease");
        }
        Ok(Unprotected::Fresh(message, nonce)) => {
            assert!(message.options().count() < 100);
            let number =
                message.payload().first_chunk().map(|bytes| u32::from_be_bytes(*bytes)).expect("as it was sent");
            assert!(delivered.insert((who, number)), "{number} was delivered twice");
            let binding = nonce.binding();
            Builder::new(&mut frame, head.0, Code::CHANGED, head.1, b"tok").ok()?;
            end.context.protect_response(crypto, &binding, Some(nonce), &mut frame).expect("it fits");
        }
    }
    Some(frame.bytes().to_vec())
}
