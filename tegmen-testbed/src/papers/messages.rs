//! Makes the CoAP messages of the exchanges that the simulator carries over the radio.

use tegmen::buf::Frame;
use tegmen::coap::{BuildError, Builder, Code, MessageType, OptionNumber};

/// Makes a confirmable request.
pub(super) fn request(code: Code, path: &str, content_format: Option<u16>, payload: &[u8]) -> Vec<u8> {
    message(MessageType::Confirmable, code, |message| {
        message.path(path)?;
        if let Some(format) = content_format {
            message.uint(OptionNumber::CONTENT_FORMAT, format.into())?;
        }
        message.payload(payload)
    })
}

/// Makes a response with a payload. It is piggybacked in the acknowledgement of its request.
pub(super) fn answer(code: Code, content_format: u16, payload: &[u8]) -> Vec<u8> {
    message(MessageType::Acknowledgement, code, |message| {
        message.uint(OptionNumber::CONTENT_FORMAT, content_format.into())?;
        message.payload(payload)
    })
}

/// Makes a message. `write` adds its options and its payload after the token.
pub(super) fn message(
    kind: MessageType,
    code: Code,
    write: impl FnOnce(&mut Builder<'_, '_>) -> Result<(), BuildError>,
) -> Vec<u8> {
    let mut storage = [0; 1152];
    let mut frame = Frame::new(&mut storage, 0);
    let built = Builder::new(&mut frame, kind, code, 1, &[1, 2]).and_then(|mut message| write(&mut message));
    built.expect("a short message");
    frame.finish().to_vec()
}
