//! The transfer of a client's request with its whole body, and of the response with its whole body (RFC 7959, RFC
//! 9175).

use super::Node;
use super::application::Reply;
use super::error::SendError;
use super::features::Features;
use super::send::Protect;
use crate::coap::PeerExchanges;
use crate::coap::block::{Block, MAX_SIZE};
use crate::coap::option::{uint, uint_bytes};
use crate::coap::{BuildError, MAX_TOKEN};
use crate::coap::{Builder, Code, MessageType, OptionNumber, RequestId, Token};
use crate::crypto::Crypto;
use crate::cx::Cx;
use crate::dtls::roles::Roles;
use crate::endpoint::Peers;
use crate::identity::PeerId;

/// The transfer of a client's request and of the response. The body of the request and the body of the response may
/// each need several messages. The transfer answers a server's challenge with the Echo option. The owner of the node
/// stores both bodies.
///
/// The owner calls [`Node::transfer`], and passes each reply to [`Self::on_reply`]. If the returned [`TransferStep`]
/// demands another message, the owner calls [`Node::transfer`] again. A transfer belongs to one session.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    method: Code,
    /// True if OSCORE protects the requests.
    with_oscore: bool,
    /// The peer and the id of the request that waits for its response; `None` if no request waits.
    request: Option<(PeerId, RequestId)>,
    /// Number of bytes of the request body.
    len: usize,
    /// Maximum number of bytes of the response body.
    max: usize,
    /// The size exponent of the largest block that fits a message: see [`Block::size_exponent`].
    largest: u8,
    /// The size exponent of the next block of the request: see [`Block::size_exponent`].
    size: u8,
    /// Number of bytes of the request body that the server has received.
    sent: usize,
    /// The token of all blocks of the request body: some servers identify an upload by its token.
    token: Token,
    /// The value of the Request-Tag option; `None` if the option is not needed. It distinguishes this upload from an
    /// earlier upload of the body that the server did not receive completely (RFC 9175, section 3.4).
    request_tag: Option<[u8; 4]>,
    is_tag_due: bool,
    /// True if the server accepted the last block of the request body, and its response has no Block1 option.
    lacks_block1: bool,
    download: Option<Download>,
    echo: Value<MAX_ECHO>,
    /// Number of challenges of the server that this transfer has answered.
    challenges: u8,
    /// Number of times that the upload of the request body began.
    uploads: u8,
    /// Number of times that the download of a response began.
    downloads: u8,
}

/// A response whose first block has arrived.
#[derive(Clone, Copy, Debug)]
struct Download {
    code: Code,
    etag: Value<MAX_ETAG>,
    /// The length of the whole body in the Size2 option of the server; `None` if the server did not send this option.
    total: Option<usize>,
    /// Number of bytes of the body that have arrived.
    received: usize,
    /// The size exponent of the next block: see [`Block::size_exponent`].
    size: u8,
    /// True if the client sent the request body in blocks before this download.
    is_after_blocks: bool,
}

/// The value of an option, of at most `N` bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Value<const N: usize> {
    len: u8,
    bytes: [u8; N],
}

impl<const N: usize> Value<N> {
    const EMPTY: Self = Self { len: 0, bytes: [0; N] };

    /// Creates a value. Returns `None` if `value` is empty or has more than `N` bytes.
    fn new(value: &[u8]) -> Option<Self> {
        let mut bytes = [0; N];
        bytes.get_mut(..value.len())?.copy_from_slice(value);
        (!value.is_empty()).then_some(Self { len: value.len() as u8, bytes })
    }

    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len.into()).unwrap_or(&[])
    }
}

/// The next step of a transfer after a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransferStep {
    /// The server has received the request. The response of the server follows separately. Or the reply was
    /// [`Reply::Cut`]: the response follows when its blocks are reassembled and decrypted.
    Acknowledged,
    /// Send the next message. It repeats the last message with an Echo option, because the server sent a challenge. Or
    /// it begins the transfer again, because the server accepts only smaller blocks, has lost earlier blocks, or has
    /// changed the representation.
    Again,
    /// The server has received this number of bytes of the request body. Send the next block.
    Sent(usize),
    /// The payload of the response is a part of the response body. Send the next message, which requests the next
    /// block. The response with `at` = 0 also has the options of the whole response.
    Received {
        /// Number of bytes of the body that precede this payload.
        at: usize,
        /// The length of the whole body, if the server sends it in a Size2 option; otherwise `None`.
        total: Option<usize>,
    },
    /// The payload of the response is the last part of the response body. The value is the number of bytes of the body
    /// that precede this payload. The transfer has ended.
    Complete(usize),
}

/// The reason why a transfer ended without a whole response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransferError {
    /// The payload of the first block is not as long as its Block2 option requires.
    FirstBlock,
    /// The response to a request for a block has no Block2 option.
    NoBlock2,
    /// A received block is not the requested one.
    WrongBlock,
    /// The entity tags of the blocks differ. Either the representation changed during each attempt, or the method is
    /// not safe, so the transfer must not be repeated.
    Changed,
    /// The server refused the request for a block. The value is the code of its response.
    Refused(Code),
    /// The response body is longer than the maximum that the owner of the node passed to [`Transfer::new`].
    TooLong,
    /// The body has too many blocks for the numbers in Block options (RFC 7959, section 2.2).
    TooManyBlocks {
        /// Number of bytes of the body.
        len: usize,
        /// Number of bytes of a block.
        block_size: usize,
    },
    /// The request got no response: see [`Reply`].
    Unanswered,
}

impl Transfer {
    /// Creates a transfer of a request with the method `method` and a body of `len` bytes. The body of the response has
    /// at most `max` bytes. A message has at most `block_size` bytes of payload, in addition to its options. If `len`
    /// is not greater than `block_size`, the request is one message.
    ///
    /// # Errors
    /// [`TransferError::TooManyBlocks`] if the blocks of the request body cannot be numbered.
    pub fn new(method: Code, len: usize, block_size: usize, max: usize) -> Result<Self, TransferError> {
        let size = Block::first(block_size).size_exponent;
        check_number(len, size)?;
        Ok(Self {
            method,
            with_oscore: false,
            request: None,
            len,
            max,
            largest: size,
            size,
            sent: 0,
            token: Token::new_empty(),
            request_tag: None,
            is_tag_due: false,
            lacks_block1: false,
            download: None,
            echo: Value::EMPTY,
            challenges: 0,
            uploads: 1,
            downloads: 1,
        })
    }

    /// Returns this transfer with a change: OSCORE protects its requests.
    pub const fn with_oscore(self) -> Self {
        Self { with_oscore: true, ..self }
    }

    /// True if the server accepted the last block of the request, and its response has no Block1 option (RFC 7959,
    /// section 2.3). The server may have treated this block as the whole body.
    pub const fn lacks_block1(&self) -> bool {
        self.lacks_block1
    }

    /// Processes a reply of `peer`. Returns `None` if the reply belongs to another request.
    ///
    /// # Errors
    /// [`TransferError`]. The transfer has then ended.
    pub fn on_reply(
        &mut self,
        peer: PeerId,
        request: RequestId,
        reply: Reply<'_>,
    ) -> Option<Result<TransferStep, TransferError>> {
        if self.request != Some((peer, request)) {
            return None;
        }
        if let Reply::Acknowledged | Reply::Cut(_) = reply {
            return Some(Ok(TransferStep::Acknowledged));
        }
        self.request = None;
        Some(match reply {
            Reply::Response(response) => {
                self.on_response(response.code(), |number| response.option(number), response.payload().len())
            }
            _ => Err(TransferError::Unanswered),
        })
    }

    /// Processes a response with this code and a payload of `len` bytes. `option` takes the number of an option, and
    /// returns the value of the first such option in the response. An owner that receives responses without a [`Node`]
    /// calls this function. Every other owner calls [`Self::on_reply`]. The first response may also be a notification,
    /// which answers no request of this transfer.
    ///
    /// # Errors
    /// [`TransferError`]. The transfer has then ended.
    pub fn on_response<'m>(
        &mut self,
        code: Code,
        option: impl Fn(OptionNumber) -> Option<&'m [u8]>,
        len: usize,
    ) -> Result<TransferStep, TransferError> {
        if !code.is_success() && self.is_challenged(option(OptionNumber::ECHO)) {
            return Ok(TransferStep::Again);
        }
        match self.download {
            Some(download) => self.on_block(download, code, option, len),
            None => self.on_answer(code, option, len),
        }
    }

    /// Stores the Echo value of a server's challenge. The server wants a proof that we receive at our address, or that
    /// the request is fresh (RFC 9175, section 2). Returns true if the next message will answer the challenge.
    fn is_challenged(&mut self, echo: Option<&[u8]>) -> bool {
        let challenge = echo.and_then(Value::new).filter(|_| self.challenges < ATTEMPTS);
        if let Some(echo) = challenge {
            (self.echo, self.challenges) = (echo, self.challenges.wrapping_add(1));
        }
        challenge.is_some()
    }

    /// Processes the response to the request, or to a block of its body.
    fn on_answer<'m>(
        &mut self,
        code: Code,
        option: impl Fn(OptionNumber) -> Option<&'m [u8]>,
        len: usize,
    ) -> Result<TransferStep, TransferError> {
        let block = |number| option(number).and_then(|value| Block::read(value).ok());
        let (in_blocks, end) = (self.is_in_blocks(), self.end());
        match code {
            Code::CONTINUE if in_blocks && end < self.len => {
                // A smaller size is used from the next block on (RFC 7959, section 2.5).
                let answered = block(OptionNumber::BLOCK1).map_or(self.size, |block| block.size_exponent);
                (self.sent, self.size) = (end, self.size.min(answered));
                check_number(self.len, self.size)?;
                return Ok(TransferStep::Sent(end));
            }
            // The server accepts only smaller blocks.
            Code::REQUEST_ENTITY_TOO_LARGE if self.uploads < ATTEMPTS => {
                if let Some(hint) = block(OptionNumber::BLOCK1).filter(|hint| hint.size_exponent < self.size) {
                    self.size = hint.size_exponent;
                    check_number(self.len, self.size)?;
                    return Ok(self.upload_again());
                }
            }
            // The server has lost the blocks before this one. They must not be mixed up with those of the first attempt.
            Code::REQUEST_ENTITY_INCOMPLETE if self.sent > 0 && self.uploads < ATTEMPTS => {
                self.is_tag_due = true;
                return Ok(self.upload_again());
            }
            _ => {}
        }
        self.lacks_block1 = in_blocks && code.is_success() && option(OptionNumber::BLOCK1).is_none();
        let Some(block) = block(OptionNumber::BLOCK2).filter(|block| block.more && block.number == 0) else {
            return Ok(TransferStep::Complete(0));
        };
        if len != block.size() {
            return Err(TransferError::FirstBlock);
        }
        let total = option(OptionNumber::SIZE2).and_then(uint).map(|total| total as usize);
        if total.unwrap_or(0).max(len) > self.max {
            return Err(TransferError::TooLong);
        }
        let (size, etag) = (block.size_exponent.min(self.largest), etag(&option));
        self.received(Download { code, etag, total, received: 0, size, is_after_blocks: in_blocks }, len)
    }

    /// Processes the second or a later block of the response.
    fn on_block<'m>(
        &mut self,
        download: Download,
        code: Code,
        option: impl Fn(OptionNumber) -> Option<&'m [u8]>,
        len: usize,
    ) -> Result<TransferStep, TransferError> {
        if !code.is_success() && code != download.code {
            let refused = TransferError::Refused(code);
            let is_gone = matches!(code, Code::REQUEST_ENTITY_INCOMPLETE | Code::BAD_REQUEST);
            return if is_gone { self.download_again(refused) } else { Err(refused) };
        }
        let block = option(OptionNumber::BLOCK2).and_then(|value| Block::read(value).ok());
        let block = block.ok_or(TransferError::NoBlock2)?;
        if etag(&option) != download.etag {
            return self.download_again(TransferError::Changed);
        }
        let has_its_length = len == block.size() || !block.more && len < block.size();
        if block.offset() != download.received || !has_its_length {
            return Err(TransferError::WrongBlock);
        }
        if download.received.saturating_add(len) > self.max {
            return Err(TransferError::TooLong);
        }
        if !block.more {
            return Ok(TransferStep::Complete(download.received));
        }
        self.received(Download { size: download.size.min(block.size_exponent), ..download }, len)
    }

    /// Counts a received block of `len` bytes, which is not the last block of the response. The caller then requests
    /// the next block.
    fn received(&mut self, download: Download, len: usize) -> Result<TransferStep, TransferError> {
        let (at, received) = (download.received, download.received.saturating_add(len));
        // If the server announces no length, the body is longer than the received part.
        let total = download.total.unwrap_or(0).max(received.saturating_add(1));
        check_number(total, download.size)?;
        self.download = Some(Download { received, ..download });
        Ok(TransferStep::Received { at, total: download.total })
    }

    fn upload_again(&mut self) -> TransferStep {
        (self.sent, self.uploads) = (0, self.uploads.wrapping_add(1));
        TransferStep::Again
    }

    /// Begins the download again, because the representation changed or the server no longer has the response. Returns
    /// `error` after the last attempt. Also returns `error` if the method is not safe, because the request must not be
    /// repeated then.
    fn download_again(&mut self, error: TransferError) -> Result<TransferStep, TransferError> {
        if !self.method.is_safe() || self.downloads >= ATTEMPTS {
            return Err(error);
        }
        (self.download, self.sent, self.uploads) = (None, 0, 1);
        self.downloads = self.downloads.wrapping_add(1);
        Ok(TransferStep::Again)
    }

    /// True if the body of the request is longer than one block.
    const fn is_in_blocks(&self) -> bool {
        self.len > block_at(0, self.size).size()
    }

    /// Returns the offset in the request body at which the next block ends.
    fn end(&self) -> usize {
        self.sent.saturating_add(block_at(0, self.size).size()).min(self.len)
    }

    /// If the request body is sent in blocks, returns the token of the next message; otherwise returns `None`. All
    /// blocks have the same token. For the first block, draws a token of `token_len` bytes, and a Request-Tag if one is
    /// necessary.
    pub fn draw(&mut self, token_len: usize, random: impl FnOnce(&mut [u8])) -> Option<Token> {
        if self.download.is_some() || !self.is_in_blocks() {
            return None;
        }
        if self.sent == 0 {
            let mut drawn = [0; MAX_TOKEN + 4];
            random(&mut drawn);
            let [.., a, b, c, d] = drawn;
            self.token = Token::new(drawn.get(..token_len.min(MAX_TOKEN)).unwrap_or(&[]));
            if core::mem::take(&mut self.is_tag_due) {
                self.request_tag = Some([a, b, c, d]);
            }
        }
        Some(self.token)
    }

    /// Adds the options of the next message. [`Self::payload`] returns its payload.
    ///
    /// # Errors
    /// [`BuildError`] if the options do not fit.
    pub fn write_options(&self, builder: &mut Builder<'_, '_>) -> Result<(), BuildError> {
        let (in_blocks, end) = (self.is_in_blocks(), self.end());
        let is_first = in_blocks && self.sent == 0;
        let (block1, block2, size1) = match &self.download {
            Some(download) => (None, Some(block_at(download.received, download.size)), None),
            None => {
                let block1 = Block { more: end < self.len, ..block_at(self.sent, self.size) };
                let is_last = !in_blocks || !block1.more;
                let block2 = Some(block_at(0, self.largest)).filter(|block| is_last && block.size() < MAX_SIZE);
                (Some(block1).filter(|_| in_blocks), block2, Some(self.len as u32).filter(|_| is_first))
            }
        };
        let numbers = [
            (OptionNumber::BLOCK2, block2.map(Block::value)),
            (OptionNumber::BLOCK1, block1.map(Block::value)),
            (OptionNumber::SIZE1, size1),
        ];
        for (number, value) in numbers {
            if let Some(value) = value {
                builder.insert(number, uint_bytes(value, &mut [0; 4]))?;
            }
        }
        if self.echo != Value::EMPTY {
            builder.insert(OptionNumber::ECHO, self.echo.as_bytes())?;
        }
        self.request_tag.map_or(Ok(()), |tag| builder.insert(OptionNumber::REQUEST_TAG, &tag))
    }

    /// Returns the part of the body of the request that the next message carries.
    pub fn payload<'b>(&self, body: &'b [u8]) -> &'b [u8] {
        match &self.download {
            None if self.is_in_blocks() => body.get(self.sent..self.end()).unwrap_or(&[]),
            None => body,
            // A body in blocks is not sent again, because the server knows which response the request means.
            Some(download) if self.method.is_safe() && !download.is_after_blocks => body,
            Some(_) => &[],
        }
    }
}

impl<P: Peers<Attached: PeerExchanges>, R: Roles, F: Features> Node<P, R, F> {
    /// Writes into `out` the next message of a transfer with `peer`, and protects it. `write` adds the options of the
    /// request. `body` is the whole request body. Like [`Self::request`], returns the id of the request and the length
    /// of the datagram to send.
    ///
    /// # Errors
    /// [`SendError`]. After an error, send nothing. The transfer is then unchanged, and the message may be sent
    /// later.
    pub fn transfer<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        peer: PeerId,
        transfer: &mut Transfer,
        write: impl FnOnce(&mut Builder<'_, '_>) -> Result<(), BuildError>,
        body: &[u8],
        out: &mut [u8],
    ) -> Result<(RequestId, usize), SendError> {
        let drawn = Token::new(self.draw_token(cx, peer, &mut [0; MAX_TOKEN]));
        let token = transfer.draw(drawn.as_bytes().len(), |random| cx.crypto.random(random)).unwrap_or(drawn);
        let head = (MessageType::Confirmable, transfer.method);
        let protect = if transfer.with_oscore { Protect::Request } else { Protect::Nothing };
        let write = |_: &mut F, builder: &mut Builder<'_, '_>| {
            write(builder)?;
            transfer.write_options(builder)?;
            builder.payload(transfer.payload(body))
        };
        let (request, len) = self.send(cx, peer, head, token.as_bytes(), protect, write, out)?;
        transfer.request = Some((peer, request));
        Ok((request, len))
    }
}

/// Returns the block that begins at the offset `at` of a body. Its bit M is not set, as in a request for a block.
const fn block_at(at: usize, size_exponent: u8) -> Block {
    Block { number: (at >> size_exponent >> 4) as u32, more: false, size_exponent }
}

/// Checks that the blocks of a body of `len` bytes can be numbered.
fn check_number(len: usize, size_exponent: u8) -> Result<(), TransferError> {
    if len.saturating_sub(1) >> size_exponent >> 4 < MAX_BLOCKS {
        return Ok(());
    }
    Err(TransferError::TooManyBlocks { len, block_size: block_at(0, size_exponent).size() })
}

/// Returns the entity tag of a response; an empty value if the response has no valid entity tag.
fn etag<'m>(option: impl Fn(OptionNumber) -> Option<&'m [u8]>) -> Value<MAX_ETAG> {
    option(OptionNumber::ETAG).and_then(Value::new).unwrap_or(Value::EMPTY)
}

/// Maximum number of attempts to send a request body. The same maximum applies to the attempts to receive a response
/// body, and to the answers to challenges.
const ATTEMPTS: u8 = 3;
/// Maximum number of blocks of one body: the number of a block has 20 bits.
const MAX_BLOCKS: usize = 1 << 20;
/// Maximum number of bytes of an Echo option (RFC 9175, section 2.2.1).
const MAX_ECHO: usize = 40;
/// Maximum number of bytes of an entity tag (RFC 7252, section 5.10.6).
const MAX_ETAG: usize = 8;

#[cfg(test)]
mod tests;
