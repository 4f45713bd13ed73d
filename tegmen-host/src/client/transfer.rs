//! Block-wise transfers (RFC 7959), with the [`Transfer`] of the crate `tegmen`. If the server demands an Echo option
//! (RFC 9175), the request is sent again with this option.

use super::request::Part;
use super::{ClientError, Progress, Request, Response, Session};
use tegmen::coap::{OptionNumber, Token};
use tegmen::crypto::Crypto as _;
use tegmen::node::{Transfer, TransferError, TransferStep};

/// Sends a request with its whole body, and returns the response with its whole body.
pub(super) async fn request(session: &Session, request: &Request<'_>) -> Result<Response, ClientError> {
    let mut transfer = begin(session, request)?;
    let response = exchange(session, request, &mut transfer).await?;
    Taken::new(session, transfer, response)?.complete(session, request).await
}

/// Begins the block-wise transfer of a request and its response.
pub(super) fn begin(session: &Session, request: &Request<'_>) -> Result<Transfer, ClientError> {
    let (block_size, room) = session.with(|connection| (connection.block_size(request), connection.room(request)));
    // What another protected is whole if it can be: not every server puts its blocks together (RFC 8613, section 4.1.3.4.2).
    let len = match request.payload.len() {
        len if request.is_protected() && len <= room => 0,
        len => len,
    };
    let transfer = Transfer::new(request.method, len, block_size, session.config().coap.max_body);
    transfer.map_err(|error| explain(session, error))
}

/// Returns the token of the next message, if the request body is sent in blocks; `None` otherwise. Draws a random token
/// and a random Request-Tag before the first block.
pub(super) fn draw(session: &Session, transfer: &mut Transfer) -> Option<Token> {
    let random = |random: &mut [u8]| session.with(|connection| connection.io.environment.crypto.random(random));
    transfer.draw(session.config().coap.token_len, random)
}

/// Sends the next message of a transfer, and waits for its response.
async fn exchange(session: &Session, request: &Request<'_>, transfer: &mut Transfer) -> Result<Response, ClientError> {
    let token = draw(session, transfer);
    let token = token.as_ref().map(Token::as_bytes);
    session.exchange(request, Part { transfer: Some(transfer), token, ..Part::default() }).await
}

/// A received response, and the state of the transfer after this response.
pub(super) struct Taken {
    pub(super) transfer: Transfer,
    pub(super) response: Response,
    step: TransferStep,
}

impl Taken {
    pub(super) fn new(session: &Session, mut transfer: Transfer, response: Response) -> Result<Self, ClientError> {
        let step = transfer.on_response(response.code, |number| response.option(number), response.payload.len());
        Ok(Self { transfer, step: step.map_err(|error| explain(session, error))?, response })
    }

    /// Returns the state of a transfer that begins with a notification, `response`. The body of the notification may
    /// have further blocks.
    pub(super) fn notified(session: &Session, request: &Request<'_>, response: Response) -> Result<Self, ClientError> {
        Self::new(session, begin(session, request)?, response)
    }

    /// True if the server has not answered the whole request yet: the client first has to send the request again with
    /// an Echo option, or to send a further block of the request body.
    pub(super) const fn is_before_answer(&self) -> bool {
        matches!(self.step, TransferStep::Again | TransferStep::Sent(_))
    }

    /// Sends the remaining messages until the response is complete.
    pub(super) async fn complete(self, session: &Session, request: &Request<'_>) -> Result<Response, ClientError> {
        let (mut taken, mut whole) = (self, None);
        loop {
            let Self { mut transfer, response, step } = taken;
            match step {
                TransferStep::Acknowledged | TransferStep::Again => {}
                TransferStep::Sent(done) => {
                    request.report(Progress { upload: true, done, total: Some(request.payload.len()) });
                }
                TransferStep::Received { at, total } => {
                    let begun = append(whole, at, response);
                    request.report(Progress { upload: false, done: begun.payload.len(), total });
                    whole = Some(begun);
                }
                TransferStep::Complete(at) => {
                    let mut whole = append(whole, at, response);
                    if at > 0 {
                        whole.remove_options(OptionNumber::BLOCK2);
                        let done = whole.payload.len();
                        request.report(Progress { upload: false, done, total: Some(done) });
                    }
                    whole.lacks_block1 = transfer.lacks_block1();
                    return Ok(whole);
                }
            }
            let response = Box::pin(exchange(session, request, &mut transfer)).await?;
            taken = Self::new(session, transfer, response)?;
        }
    }
}

/// Appends `block` to the response `whole`. `at` is the offset of the block in the body. If `at` is 0, the block itself
/// is returned as the beginning of the response.
fn append(whole: Option<Response>, at: usize, block: Response) -> Response {
    match whole {
        Some(mut whole) if at > 0 => {
            whole.payload.extend_from_slice(&block.payload);
            whole
        }
        _ => block,
    }
}

fn explain(session: &Session, error: TransferError) -> ClientError {
    let detail = match error {
        TransferError::FirstBlock => "the first block is shorter than its Block2 option states",
        TransferError::NoBlock2 => "one has no Block2",
        TransferError::WrongBlock => "one is not the one that was asked for",
        TransferError::Changed => "their ETags differ",
        TransferError::Refused(code) => code.name(),
        TransferError::Unanswered => "one is not answered",
        TransferError::TooLong => return ClientError::BodyTooLong { max: session.config().coap.max_body },
        TransferError::TooManyBlocks { len, block_size } => {
            let enough = len.div_ceil(MAX_BLOCKS).next_power_of_two();
            let advice = match enough <= tegmen::coap::block::MAX_SIZE {
                true => format!("use blocks of {enough} bytes or more (--block-size {enough})"),
                false => "no block is large enough; cut the body into several resources".to_owned(),
            };
            return ClientError::TooManyBlocks { len, block_size, advice };
        }
    };
    ClientError::Blocks { remote: session.remote(), detail }
}

/// Maximum number of blocks of one body, because block numbers have 20 bits.
const MAX_BLOCKS: usize = 1 << 20;
