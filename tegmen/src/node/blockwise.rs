//! Block-wise transfer at a server (RFC 7959). The server reassembles the body of a request before the handler gets the
//! request, and sends the blocks of a stored response.
//!
//! The server does not store the response to a GET or FETCH, unless the body of the request came in blocks. Instead,
//! the handler writes the whole response again for each block, and only the requested block remains in
//! [`Response`](crate::coap::Response).

use super::bodies::{Bodies, Operation};
use crate::buf::Frame;
use crate::coap::BuildError;
use crate::coap::block::{Block, MAX_SIZE};
use crate::coap::handler::{Decided, Handler, Request, Served, refusal, serve_as};
use crate::coap::option::uint_bytes;
use crate::coap::{Builder, Code, MessageRef, MessageType, OptionNumber};
use crate::identity::PeerId;
use crate::time::Instant;

/// The next step in the processing of a request.
pub(super) enum Step<'r> {
    /// The response is in the frame. The handler is not called.
    Answered(Served),
    /// The handler must write the response to this request into the frame.
    Serve(Request<'r>),
    /// The handler must write the whole response now, because the node does not call it again for the later blocks of
    /// the response: see [`serve_whole`].
    ServeWhole(Operation, InBlocks),
}

/// True if the body of a request arrived in blocks.
type InBlocks = bool;

/// Processes a request before the handler gets it. The body of the request may arrive in blocks, or the request may ask
/// for a block of a stored response. When a body is complete, it is stored until [`Bodies::release`].
#[inline]
pub(super) fn take<'r, H: Handler>(
    (now, peer): (Instant, PeerId),
    bodies: &mut impl Bodies,
    request: Request<'r>,
    decided: Decided,
    handler: &H,
    head: (MessageType, u16),
    frame: &mut Frame<'_>,
) -> Step<'r> {
    let message = request.message;
    let (block, asked) = match (message.block(OptionNumber::BLOCK1), message.block(OptionNumber::BLOCK2)) {
        (Ok(block), Ok(asked)) => (block, asked),
        (Err(code), _) | (_, Err(code)) => return refuse(head, &message, code, None, frame),
    };
    let is_part = block.is_some_and(|block| block.more || block.number > 0);
    let is_later = asked.is_some_and(|asked| asked.number > 0);
    if is_part && handler.acts_on_blocks(&message) {
        return Step::ServeWhole(Operation::of(peer, &request), false);
    }
    if !is_part && message.payload().len() > bodies.limit() {
        let most = (OptionNumber::SIZE1, bodies.limit() as u32);
        return refuse(head, &message, Code::REQUEST_ENTITY_TOO_LARGE, Some(most), frame);
    }
    if !is_part && !is_later {
        return match message.code().is_safe() && block.is_none() {
            true => Step::Serve(request),
            false => Step::ServeWhole(Operation::of(peer, &request), false),
        };
    }
    take_block(
        (now, peer),
        bodies,
        request,
        (block.filter(|_| is_part), asked, is_later),
        decided,
        handler,
        head,
        frame,
    )
}

/// Processes a block of a request body, or a request for a block of a response other than the first block.
#[expect(clippy::too_many_arguments, reason = "those of its caller, and the blocks that it has read")]
fn take_block<'r, H: Handler>(
    (now, peer): (Instant, PeerId),
    bodies: &mut impl Bodies,
    request: Request<'r>,
    (block, asked, is_later): (Option<Block>, Option<Block>, bool),
    decided: Decided,
    handler: &H,
    head: (MessageType, u16),
    frame: &mut Frame<'_>,
) -> Step<'r> {
    let message = request.message;
    let whole = request.with_body(&[]);
    if refusal(&whole.message, handler).is_some() || !decided.allows {
        // The request is refused without the handler. So a client without the right to make the request cannot fill
        // our memory with its body.
        return Step::Serve(whole);
    }
    let operation = Operation::of(peer, &request);
    if let Some(block) = block {
        let announced = message.uint(OptionNumber::SIZE1).unwrap_or(0) as usize;
        match bodies.upload(now, &operation, (block, message.payload()), announced) {
            Ok(true) => {}
            Ok(false) => {
                let next = Some((OptionNumber::BLOCK1, block.value()));
                return refuse(head, &message, Code::CONTINUE, next, frame);
            }
            Err(Code::REQUEST_ENTITY_TOO_LARGE) => {
                let most = (OptionNumber::SIZE1, bodies.limit() as u32);
                return refuse(head, &message, Code::REQUEST_ENTITY_TOO_LARGE, Some(most), frame);
            }
            Err(code) => return refuse(head, &message, code, None, frame),
        }
    }
    if is_later {
        if let Some(kept) = bodies.kept(now, &operation) {
            return Step::Answered(write_block(kept, asked, head, message.token(), frame));
        }
        if !message.code().is_safe() {
            return refuse(head, &message, Code::REQUEST_ENTITY_INCOMPLETE, None, frame);
        }
    }
    match block {
        None if message.code().is_safe() => Step::Serve(request),
        block => Step::ServeWhole(operation, block.is_some()),
    }
}

/// Writes into `frame` a response that has no payload and at most one option. The handler is not called.
fn refuse(
    head: (MessageType, u16),
    message: &MessageRef<'_>,
    code: Code,
    option: Option<(OptionNumber, u32)>,
    frame: &mut Frame<'_>,
) -> Step<'static> {
    Step::Answered(respond(head, (message.token(), code), option, frame))
}

/// Calls the handler for a request that it processes only once, such as a POST. If the response is long, stores the
/// whole response, and writes only one block of the response.
pub(super) fn serve_whole<H: Handler>(
    now: Instant,
    (operation, in_blocks): (Operation, InBlocks),
    bodies: &mut impl Bodies,
    request: Request<'_>,
    (decided, handler): (Decided, &mut H),
    head: (MessageType, u16),
    frame: &mut Frame<'_>,
) -> Served {
    let message = request.message;
    let (body, space) = bodies.space(now, &operation);
    let whole = if in_blocks { request.with_body(body) } else { request };
    if space.len() < frame.room() {
        // The memory for a long response is not available, so the response must fit the message.
        return serve_as(&whole, decided, handler, head, frame);
    }
    let mut written = Frame::new(space, 0);
    let served = serve_as(&whole, decided, handler, head, &mut written);
    let len = written.len();
    let Ok(response) = MessageRef::parse(written.bytes()) else { return served };
    let asked = message.block(OptionNumber::BLOCK2).ok().flatten();
    let size = asked.map_or(MAX_SIZE, Block::size);
    if response.payload().len() <= size && frame.append(written.bytes()).is_ok() {
        return served;
    }
    let kept = bodies.keep(now, &operation, len).ok().and_then(|()| bodies.kept(now, &operation));
    match kept {
        Some(kept) => write_block(kept, asked, head, message.token(), frame),
        None => respond(head, (message.token(), Code::SERVICE_UNAVAILABLE), None, frame),
    }
}

/// Writes the message of a separate response. `write` adds the options and the payload of the whole response. The
/// message contains the whole response, if it fits and leaves the last `reserved` bytes free. Otherwise the message
/// contains the block that the client requested, or the first block. `number` is the value of the Observe option;
/// `None` if the response has no such option.
pub(super) fn write_separate(
    (now, operation, asked): (Instant, &Operation, Option<Block>),
    bodies: &mut impl Bodies,
    number: Option<u32>,
    reserved: usize,
    write: impl FnOnce(&mut Builder<'_, '_>) -> Result<(), BuildError>,
    builder: &mut Builder<'_, '_>,
) -> Result<(), BuildError> {
    let (_, space) = bodies.space(now, operation);
    if space.len() < builder.room() {
        write(builder)?;
        return observe(number, builder);
    }
    let mut written = Frame::new(space, 0);
    let mut whole = Builder::new(&mut written, MessageType::Confirmable, builder.code(), 0, &[])?;
    write(&mut whole)?;
    observe(number, &mut whole)?;
    let (len, code) = (written.len(), builder.code());
    let size = asked.map_or(MAX_SIZE, Block::size);
    let room = builder.room().saturating_sub(reserved);
    let response = MessageRef::parse(written.bytes()).map_err(|_| BuildError::Full)?;
    if response.payload().len() <= size && len <= room && asked.is_none_or(|asked| asked.number == 0) {
        let copied = copy(&response, builder);
        bodies.release(operation);
        return copied;
    }
    let kept = bodies.keep(now, operation, len).ok().and_then(|()| bodies.kept(now, operation));
    let Some((kept, etag)) = kept else {
        bodies.release(operation);
        builder.set_code(Code::SERVICE_UNAVAILABLE);
        return Ok(());
    };
    let response = MessageRef::parse(kept).map_err(|_| BuildError::Full)?;
    builder.set_code(code);
    cut(&response, &etag, asked, reserved, builder).map(|_| ())
}

/// Adds the Observe option with this number; adds nothing if `number` is `None`.
pub(super) fn observe(number: Option<u32>, builder: &mut Builder<'_, '_>) -> Result<(), BuildError> {
    number.map_or(Ok(()), |number| builder.insert(OptionNumber::OBSERVE, uint_bytes(number, &mut [0; 4])))
}

/// Adds all options and the payload of `response`.
fn copy(response: &MessageRef<'_>, builder: &mut Builder<'_, '_>) -> Result<(), BuildError> {
    response.options().try_for_each(|(number, value)| builder.option(number, value))?;
    builder.payload(response.payload())
}

/// Writes into `frame` a response that has no payload and at most one option.
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

/// Writes the requested block of a stored response, or the first block if the request asks for no block. Writes a
/// smaller block if the message has no space for the requested size. If the block begins after the end of the response,
/// the code is 4.00.
fn write_block(
    (kept, etag): (&[u8], [u8; 4]),
    asked: Option<Block>,
    (message_type, message_id): (MessageType, u16),
    token: &[u8],
    frame: &mut Frame<'_>,
) -> Served {
    let written = MessageRef::parse(kept).map_err(|_| BuildError::Full).and_then(|response| {
        let mut builder = Builder::new(frame, message_type, response.code(), message_id, token)?;
        cut(&response, &etag, asked, 0, &mut builder)
    });
    match written {
        Ok(code) => Served::Responded { code, observed: false },
        Err(BuildError::Full | BuildError::Order) => Served::NoRoom,
    }
}

/// Adds the options of `response` and one block of its payload to the message in `builder`. Leaves the last `reserved`
/// bytes of the frame free. Returns the code of the message.
fn cut(
    response: &MessageRef<'_>,
    etag: &[u8],
    asked: Option<Block>,
    reserved: usize,
    builder: &mut Builder<'_, '_>,
) -> Result<Code, BuildError> {
    let payload = response.payload();
    let first = asked.is_none_or(|asked| asked.number == 0);
    // Only the first response acknowledges the last block of the request.
    let options = || response.options().filter(|(number, _)| first || *number != OptionNumber::BLOCK1);
    let options_len = options().fold(0_usize, |len, (_, value)| len.saturating_add(value.len()).saturating_add(5));
    let room = builder.room().saturating_sub(reserved).saturating_sub(options_len).saturating_sub(BLOCK_OPTIONS_LEN);
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

/// Maximum number of bytes of the payload marker and the options Block2, Size2 and ETag together.
const BLOCK_OPTIONS_LEN: usize = 24;
