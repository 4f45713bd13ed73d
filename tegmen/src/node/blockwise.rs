//! Block-wise transfer at a server (RFC 7959): puts the body of a request together before the handler sees it, and gives
//! out the blocks of a response that is kept.
//!
//! The response to GET and FETCH is not kept, unless the body of the request came in blocks: the handler writes it again
//! for each block, and [`Response`](crate::coap::Response) keeps of it the block that was asked for.

use super::bodies::{Bodies, Operation};
use crate::buf::Frame;
use crate::coap::block::{Block, MAX_SIZE};
use crate::coap::handler::{Handler, Policy, Request, Served, heading, refusal, serve};
use crate::coap::message::BuildError;
use crate::coap::option::uint_bytes;
use crate::coap::{Builder, Code, MessageRef, MessageType, OptionNumber};
use crate::time::Instant;

/// Returns the request with the body that was put together, unless that is empty.
pub(super) fn with_whole_body<'m>(message: MessageRef<'m>, body: &'m [u8]) -> MessageRef<'m> {
    if body.is_empty() { message } else { message.with_body(body) }
}

/// Does the same as [`serve`], for a request whose body may come in blocks, and whose response may be longer than a
/// message. A complete body is kept until [`Bodies::release`].
pub(super) fn serve_in_blocks<P: Policy, H: Handler>(
    (now, operation): (Instant, Operation),
    bodies: &mut impl Bodies,
    request: Request<'_>,
    policy: &P,
    handler: &mut H,
    message_id: u16,
    frame: &mut Frame<'_>,
) -> Served {
    let message = request.message;
    let refuse = |code, option, frame: &mut Frame<'_>| {
        respond(heading(&message, message_id), (message.token(), code), option, frame)
    };
    let whole = request.with_body(&[]);
    let (block, asked) = match (message.block(OptionNumber::BLOCK1), message.block(OptionNumber::BLOCK2)) {
        (Ok(block), Ok(asked)) => (block.filter(|block| block.more || block.number > 0), asked),
        (Err(code), _) | (_, Err(code)) => return refuse(code, None, frame),
    };
    let later = asked.is_some_and(|asked| asked.number > 0);
    if (block.is_some() || later) && (refusal(&whole.message, handler).is_some() || !policy.allows(&request)) {
        // It is refused without the handler. A client that must not make the request cannot fill our memory with its body.
        return serve(whole, policy, handler, message_id, frame);
    }
    if let Some(block) = block {
        let announced = message.uint(OptionNumber::SIZE1).unwrap_or(0) as usize;
        match bodies.upload(now, &operation, (block, message.payload()), announced) {
            Ok(true) => {}
            Ok(false) => return refuse(Code::CONTINUE, Some((OptionNumber::BLOCK1, block.value())), frame),
            Err(Code::REQUEST_ENTITY_TOO_LARGE) => {
                let most = (OptionNumber::SIZE1, bodies.limit() as u32);
                return refuse(Code::REQUEST_ENTITY_TOO_LARGE, Some(most), frame);
            }
            Err(code) => return refuse(code, None, frame),
        }
    }
    if later {
        if let Some(kept) = bodies.kept(now, &operation) {
            return write_block(kept, asked, heading(&message, message_id), message.token(), frame);
        }
        if !message.code().is_safe() {
            return refuse(Code::REQUEST_ENTITY_INCOMPLETE, None, frame);
        }
    }
    if message.code().is_safe() && message.option(OptionNumber::BLOCK1).is_none() {
        return serve(request, policy, handler, message_id, frame);
    }
    serve_whole((now, operation), bodies, (request, block.is_some()), policy, handler, message_id, frame)
}

/// Lets the handler write a response that it cannot write again, and cuts it into blocks if it is long.
fn serve_whole<P: Policy, H: Handler>(
    (now, operation): (Instant, Operation),
    bodies: &mut impl Bodies,
    (request, in_blocks): (Request<'_>, bool),
    policy: &P,
    handler: &mut H,
    message_id: u16,
    frame: &mut Frame<'_>,
) -> Served {
    let message = request.message;
    let (body, space) = bodies.space(now, &operation);
    let whole = if in_blocks { request.with_body(body) } else { request };
    if space.len() < frame.room() {
        // No long response can be kept: it has to fit the message.
        return serve(whole, policy, handler, message_id, frame);
    }
    let mut written = Frame::new(space, 0);
    let served = serve(whole, policy, handler, message_id, &mut written);
    let len = written.len();
    let Ok(response) = MessageRef::parse(written.bytes()) else { return served };
    let asked = message.block(OptionNumber::BLOCK2).ok().flatten();
    let size = asked.map_or(MAX_SIZE, Block::size);
    if response.payload().len() <= size && frame.append(written.bytes()).is_ok() {
        return served;
    }
    let kept = bodies.keep(now, &operation, len).ok().and_then(|()| bodies.kept(now, &operation));
    let head = heading(&message, message_id);
    match kept {
        Some(kept) => write_block(kept, asked, head, message.token(), frame),
        None => respond(head, (message.token(), Code::SERVICE_UNAVAILABLE), None, frame),
    }
}

/// Writes a response of one option.
fn respond(
    (message_type, message_id): (MessageType, u16),
    (token, code): (&[u8], Code),
    option: Option<(OptionNumber, u32)>,
    frame: &mut Frame<'_>,
) -> Served {
    let built = Builder::new(frame, message_type, code, message_id, token);
    let built = built.and_then(|mut builder| option.map_or(Ok(()), |(number, value)| builder.uint(number, value)));
    built.map_or(Served::NoRoom, |()| Served::Responded { code, observed: false })
}

/// Writes the block of a response that is asked for, the first if none is, and a smaller one where the message has no space
/// for it. A block beyond the end is 4.00.
fn write_block(
    (kept, etag): (&[u8], [u8; 4]),
    asked: Option<Block>,
    (message_type, message_id): (MessageType, u16),
    token: &[u8],
    frame: &mut Frame<'_>,
) -> Served {
    let written = MessageRef::parse(kept).map_err(|_| BuildError::Full).and_then(|response| {
        let builder = Builder::new(frame, message_type, response.code(), message_id, token)?;
        cut(&response, &etag, asked, builder)
    });
    match written {
        Ok(code) => Served::Responded { code, observed: false },
        Err(BuildError::Full | BuildError::Order) => Served::NoRoom,
    }
}

/// Adds the options and a block of `response`. Returns the code.
fn cut(
    response: &MessageRef<'_>,
    etag: &[u8],
    asked: Option<Block>,
    mut builder: Builder<'_, '_>,
) -> Result<Code, BuildError> {
    let payload = response.payload();
    let first = asked.is_none_or(|asked| asked.number == 0);
    // The first response alone acknowledges the last block of the request.
    let options = || response.options().filter(|(number, _)| first || *number != OptionNumber::BLOCK1);
    let options_len = options().fold(0_usize, |len, (_, value)| len.saturating_add(value.len()).saturating_add(5));
    let room = builder.room().saturating_sub(options_len).saturating_sub(BLOCK_OPTIONS_LEN);
    let block = asked.unwrap_or(Block::first(MAX_SIZE)).limited(room.max(16));
    let (start, end) = (block.offset(), block.offset().saturating_add(block.size()).min(payload.len()));
    let Some(bytes) = payload.get(start..end).filter(|bytes| block.number == 0 || !bytes.is_empty()) else {
        builder.set_code(Code::BAD_REQUEST);
        return Ok(Code::BAD_REQUEST);
    };
    options().try_for_each(|(number, value)| builder.option(number, value))?;
    builder.payload(bytes)?;
    let mut insert = |number, value: u32| builder.insert(number, uint_bytes(value, &mut [0; 4]));
    insert(OptionNumber::BLOCK2, Block { more: end < payload.len(), ..block }.value())?;
    if block.number == 0 {
        insert(OptionNumber::SIZE2, payload.len() as u32)?;
    }
    if response.option(OptionNumber::ETAG).is_none() {
        builder.insert(OptionNumber::ETAG, etag)?;
    }
    Ok(response.code())
}

/// Most bytes of the payload marker, Block2, Size2 and ETag.
const BLOCK_OPTIONS_LEN: usize = 24;
