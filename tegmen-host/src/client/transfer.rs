//! Bodies in blocks (RFC 7959), and the answer to an Echo option of a server (RFC 9175).

use super::request::Part;
use super::{ClientError, Progress, Request, Response, Session};
use tegmen::coap::{Block, Code, OptionNumber};
use tegmen::crypto::Crypto as _;

/// So often a transfer begins anew when the representation, or what the server knows of our body, changed in between.
const ATTEMPTS: usize = 3;

/// One request with its whole body, one response with its whole body.
pub(super) async fn request(session: &Session, request: &Request<'_>) -> Result<Response, ClientError> {
    let first = upload(session, request, Part::default()).await?;
    download(session, request, first).await
}

/// Sends the request, its body in blocks if need be, and returns what answers its end.
pub(super) async fn upload(session: &Session, request: &Request<'_>, part: Part<'_>) -> Result<Response, ClientError> {
    let mut echo: Option<Vec<u8>> = None;
    let mut size = session.with(|connection| connection.block_size(request));
    let mut request_tag = None;
    let mut attempts = 0;
    loop {
        let part = Part { echo: echo.as_deref(), request_tag, ..part };
        let (reply, sent) = match request.payload.len() > Block::first(size).size() {
            true => upload_blocks(session, request, part, &mut size).await?,
            false => {
                let block2 = (size < tegmen::coap::block::MAX_SIZE).then(|| Block::first(size));
                (session.exchange(request, Part { payload: request.payload, block2, ..part }).await?, 0)
            }
        };
        attempts += 1;
        match reply.code {
            // The server wants to see that we receive at our address, or that the request is fresh.
            Code::UNAUTHORIZED if echo.is_none() && reply.option(OptionNumber::ECHO).is_some() => {
                echo = reply.option(OptionNumber::ECHO).map(<[u8]>::to_vec);
            }
            // It takes smaller blocks only, and says so at the first one.
            Code::REQUEST_ENTITY_TOO_LARGE if attempts < ATTEMPTS => match reply.block(OptionNumber::BLOCK1) {
                Some(hint) if hint.size() < Block::first(size).size() => size = hint.size(),
                _ => return Ok(reply),
            },
            // It has lost the blocks before: again, and not to be mixed up with the first try (RFC 9175, section 3.4).
            Code::REQUEST_ENTITY_INCOMPLETE if sent > 0 && attempts < ATTEMPTS => {
                let mut tag = [0; 4];
                session.with(|connection| connection.io.environment.crypto.random(&mut tag));
                request_tag = Some(u32::from_ne_bytes(tag));
            }
            _ => return Ok(reply),
        }
    }
}

/// Blocks of one body at most: their number has 20 bits.
const MAX_BLOCKS: usize = 1 << 20;

/// Refuses a body that cannot be numbered in blocks of this size.
fn numberable(len: usize, block_size: usize) -> Result<(), ClientError> {
    if len.div_ceil(block_size) <= MAX_BLOCKS {
        return Ok(());
    }
    let enough = len.div_ceil(MAX_BLOCKS).next_power_of_two();
    let advice = match enough <= tegmen::coap::block::MAX_SIZE {
        true => format!("use blocks of {enough} bytes or more (--block-size {enough})"),
        false => "no block is large enough; cut the body into several resources".to_owned(),
    };
    Err(ClientError::TooManyBlocks { len, block_size, advice })
}

/// The response, and how many bytes were sent before it. All blocks have one token: some servers know an upload by it.
async fn upload_blocks(
    session: &Session,
    request: &Request<'_>,
    part: Part<'_>,
    size: &mut usize,
) -> Result<(Response, usize), ClientError> {
    let total = request.payload.len();
    let mut token = [0; 8];
    session.with(|connection| connection.io.environment.crypto.random(&mut token));
    let token = token.get(..session.config().coap.token_len).unwrap_or(&token);
    let mut at = 0;
    loop {
        let first = Block::first(*size);
        numberable(total, first.size())?;
        let end = (at + first.size()).min(total);
        let block = Block { number: (at / first.size()) as u32, more: end < total, ..first };
        let payload = request.payload.get(at..end).unwrap_or(&[]);
        let size1 = (at == 0).then_some(total as u32);
        let part = Part { payload, block1: Some(block), size1, token: Some(token), ..part };
        let mut reply = session.exchange(request, part).await?;
        if reply.code != Code::CONTINUE || end == total {
            reply.lacks_block1 = reply.code.is_success() && reply.option(OptionNumber::BLOCK1).is_none();
            return Ok((reply, at));
        }
        at = end;
        request.report(Progress { upload: true, done: at, total: Some(total) });
        // A smaller size is used from the next block on (RFC 7959, section 2.5).
        if let Some(answered) = reply.block(OptionNumber::BLOCK1) {
            *size = (*size).min(answered.size());
        }
    }
}

/// Fetches the blocks that follow the first.
pub(super) async fn download(
    session: &Session,
    request: &Request<'_>,
    first: Response,
) -> Result<Response, ClientError> {
    let mut first = first;
    for _ in 0..ATTEMPTS {
        let Some(block) = first.block(OptionNumber::BLOCK2).filter(|block| block.more && block.number == 0) else {
            return Ok(first);
        };
        match blocks_after(session, request, &first, block).await? {
            Some(body) => {
                first.remove_options(OptionNumber::BLOCK2);
                return Ok(Response { payload: body, ..first });
            }
            // Only what changes nothing may be asked again.
            None if request.method.is_safe() => first = upload(session, request, Part::default()).await?,
            None => break,
        }
    }
    Err(ClientError::Blocks { remote: session.remote(), detail: "their ETags differ" })
}

/// The whole body; `None` if the representation changed in between.
async fn blocks_after(
    session: &Session,
    request: &Request<'_>,
    first: &Response,
    block: Block,
) -> Result<Option<Vec<u8>>, ClientError> {
    let wrong = |session: &Session, detail| ClientError::Blocks { remote: session.remote(), detail };
    let total = first.uint(OptionNumber::SIZE2).map(|size| size as usize);
    let max = session.config().coap.max_body;
    if total.is_some_and(|total| total > max) {
        return Err(ClientError::BodyTooLong { max });
    }
    if first.payload.len() != block.size() {
        return Err(wrong(session, "the first block is shorter than it says"));
    }
    let mut body = first.payload.clone();
    let most = session.with(|connection| connection.block_size(request));
    let mut size = block.size().min(most);
    // The body of a request in blocks is not sent again; the server knows which response is meant.
    let payload = if request.payload.len() > Block::first(most).size() { &[] } else { request.payload };
    let payload = if request.method.is_safe() { payload } else { &[] };
    loop {
        request.report(Progress { upload: false, done: body.len(), total });
        let asked = Block::first(size);
        // Where the server told no size: no more than what is there, and the next block.
        numberable(total.unwrap_or(0).max(body.len() + 1), asked.size())?;
        let number = (body.len() / asked.size()) as u32;
        let part = Part { payload, block2: Some(Block { number, more: false, ..asked }), ..Part::default() };
        let reply = session.exchange(request, part).await?;
        if !reply.code.is_success() {
            let gone = matches!(reply.code, Code::REQUEST_ENTITY_INCOMPLETE | Code::BAD_REQUEST);
            return if gone { Ok(None) } else { Err(wrong(session, reply.code.name())) };
        }
        let Some(block) = reply.block(OptionNumber::BLOCK2) else { return Err(wrong(session, "one has no Block2")) };
        if reply.option(OptionNumber::ETAG) != first.option(OptionNumber::ETAG) {
            return Ok(None);
        }
        let right_size = reply.payload.len() <= block.size() && (!block.more || reply.payload.len() == block.size());
        if block.offset() != body.len() || !right_size {
            return Err(wrong(session, "one is not the one that was asked for"));
        }
        body.extend_from_slice(&reply.payload);
        if body.len() > max {
            return Err(ClientError::BodyTooLong { max });
        }
        if !block.more {
            request.report(Progress { upload: false, done: body.len(), total: Some(body.len()) });
            return Ok(Some(body));
        }
        size = size.min(block.size());
    }
}
