//! Protected requests that a proxy has split into blocks (RFC 8613, section 4.1.3.4.2). The server reassembles them
//! before it decrypts. Blocks are not authentic, so the server holds only few and short ones.

use super::CoapServer;
use crate::contexts::MAX_UNFRAGMENTED_SIZE;
use crate::server::Application;
use crate::server::coap_peer::CoapPeer;
use crate::server::source::Source;
use crate::server::transfer::Uploaded;
use tegmen::buf::Frame;
use tegmen::coap::handler::heading;
use tegmen::coap::{Block, BuildError, Builder, Code, MessageRef, OptionNumber, uint_bytes};
use tegmen::oscore::OscoreOption;

/// What a protected request is.
pub(super) enum OuterBlock {
    /// Not cut.
    Uncut,
    /// Cut, and this was its last block: the whole, and the block.
    Gathered(Vec<u8>, Block),
    /// Cut, and `frame` has the answer to this block.
    Answered,
}

impl<A: Application> CoapServer<A> {
    pub(super) fn gather(
        &mut self,
        from: &Source,
        coap_peer: &mut CoapPeer,
        datagram: &[u8],
        message_id: u16,
        frame: &mut Frame<'_>,
    ) -> OuterBlock {
        let Ok(message) = &MessageRef::parse(datagram) else { return OuterBlock::Answered };
        let head = heading(message, message_id);
        let answer = |code: Code, option: Option<(OptionNumber, u32)>, frame: &mut Frame<'_>| {
            let built = Builder::new(frame, head.0, code, head.1, message.token());
            let _ = built.and_then(|mut builder| option.map_or(Ok(()), |(number, value)| builder.uint(number, value)));
            OuterBlock::Answered
        };
        let block = match message.block(OptionNumber::BLOCK1) {
            Err(code) => return answer(code, None, frame),
            Ok(block) => block.filter(|block| block.more || block.number > 0),
        };
        let Some(block) = block else { return OuterBlock::Uncut };
        let option = message.option(OptionNumber::OSCORE).map(OscoreOption::parse);
        if !option.is_some_and(|option| option.is_ok_and(|option| self.contexts.find(&option).is_some())) {
            return answer(Code::UNAUTHORIZED, Some((OptionNumber::MAX_AGE, 0)), frame);
        }
        if from.unverified && !coap_peer.verified {
            return answer(Code::SERVICE_UNAVAILABLE, None, frame);
        }
        match coap_peer.transfers.upload(from, message, block, &self.bodies, MAX_UNFRAGMENTED_SIZE) {
            Uploaded::Continue => answer(Code::CONTINUE, Some((OptionNumber::BLOCK1, block.value())), frame),
            Uploaded::Refused(Code::REQUEST_ENTITY_TOO_LARGE) => {
                let most = (OptionNumber::SIZE1, MAX_UNFRAGMENTED_SIZE as u32);
                answer(Code::REQUEST_ENTITY_TOO_LARGE, Some(most), frame)
            }
            Uploaded::Refused(code) => answer(code, None, frame),
            Uploaded::Whole(body) => {
                let cut = [OptionNumber::BLOCK1, OptionNumber::SIZE1];
                let mut whole = vec![0; frame.room().max(MAX_HEAD) + body.len()];
                let mut whole = Frame::new(&mut whole, 0);
                match recompose(&mut whole, message, &cut, &body) {
                    Ok(_) => OuterBlock::Gathered(whole.bytes().to_vec(), block),
                    Err(_) => answer(Code::REQUEST_ENTITY_TOO_LARGE, None, frame),
                }
            }
        }
    }
}

/// Header, token and options of a message fit that.
const MAX_HEAD: usize = 1500;

/// Writes a message without some of its options and with another payload.
fn recompose<'f, 't>(
    frame: &'f mut Frame<'t>,
    message: &MessageRef<'_>,
    cut: &[OptionNumber],
    payload: &[u8],
) -> Result<Builder<'f, 't>, BuildError> {
    let (message_type, code) = (message.message_type(), message.code());
    let mut builder = Builder::new(frame, message_type, code, message.message_id(), message.token())?;
    for (number, value) in message.options().filter(|(number, _)| !cut.contains(number)) {
        builder.option(number, value)?;
    }
    builder.payload(payload)?;
    Ok(builder)
}

/// Tells those on the way that the response in `frame` is to the last block (RFC 7959, section 2.3).
pub(super) fn acknowledge(block: Block, frame: &mut Frame<'_>) {
    let bytes = frame.bytes().to_vec();
    let Ok(response) = MessageRef::parse(&bytes) else { return };
    // An acknowledgement alone says nothing of blocks.
    if response.code() == Code::EMPTY {
        return;
    }
    frame.truncate(0);
    let mut value = [0; 4];
    let value = uint_bytes(block.value(), &mut value);
    let built = recompose(frame, &response, &[], response.payload());
    if built.and_then(|mut builder| builder.insert(OptionNumber::BLOCK1, value)).is_err() {
        frame.truncate(0);
        let _ = frame.append(&bytes);
    }
}
