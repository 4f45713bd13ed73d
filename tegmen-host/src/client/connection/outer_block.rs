//! Protected responses that a proxy has split into blocks (RFC 8613, section 4.1.3.4.2). The client fetches and
//! reassembles them before it decrypts.

use super::Happened;
use crate::client::{Client, ClientError, Response};
use crate::clock;
use crate::contexts::MAX_UNFRAGMENTED_SIZE;
use std::future::Future;
use std::pin::Pin;
use tegmen::buf::Frame;
use tegmen::coap::{Block, Builder, Code, Fixed, MessageRef, MessageType, OptionNumber, RequestId};
use tegmen::crypto::Crypto as _;
use tegmen::endpoint::Peers as _;
use tegmen::time::Instant;

/// True for a block of a protected response.
pub(super) fn is_cut(message: &MessageRef<'_>) -> bool {
    let block = message.block(OptionNumber::BLOCK2).ok().flatten();
    message.option(OptionNumber::OSCORE).is_some() && block.is_some_and(|block| block.more || block.number > 0)
}

impl Client {
    /// What is inside a response, once all of it is here.
    pub(super) async fn uncut(&mut self, request: RequestId, reply: Response) -> Result<Response, ClientError> {
        if !reply.is_cut {
            return Ok(reply);
        }
        let gathered = self.gather(request, reply).await;
        if gathered.is_err() {
            self.forget(request);
        }
        gathered
    }

    async fn gather(&mut self, request: RequestId, first: Response) -> Result<Response, ClientError> {
        let remote = self.remote;
        let wrong = |detail| ClientError::Blocks { remote, detail };
        let deadline = clock::now().after(self.config.timeout);
        let mut block = first.block(OptionNumber::BLOCK2).ok_or(wrong("one has no Block2"))?;
        let mut whole = first.payload.clone();
        if block.number != 0 || whole.len() != block.size() {
            return Err(wrong("the first block of the protected response is none"));
        }
        while block.more {
            if whole.len() > MAX_UNFRAGMENTED_SIZE {
                return Err(ClientError::BodyTooLong { max: MAX_UNFRAGMENTED_SIZE });
            }
            let next = self.block_after(request, block, deadline).await?;
            block = next.block(OptionNumber::BLOCK2).ok_or(wrong("one has no Block2"))?;
            let right_size = next.payload.len() <= block.size() && (!block.more || next.payload.len() == block.size());
            if block.offset() != whole.len() || !right_size {
                return Err(wrong("one is not the one that was asked for"));
            }
            if next.option(OptionNumber::ETAG) != first.option(OptionNumber::ETAG) {
                return Err(wrong("their ETags differ"));
            }
            whole.extend_from_slice(&next.payload);
        }
        let mut storage = vec![0; whole.len() + MAX_HEAD];
        let mut frame = Frame::new(&mut storage, 0);
        let built =
            Builder::new(&mut frame, MessageType::NonConfirmable, first.code, 0, &[]).and_then(|mut builder| {
                let cut = [OptionNumber::BLOCK2, OptionNumber::SIZE2, OptionNumber::ETAG];
                for (number, value) in first.options.iter().filter(|(number, _)| !cut.contains(number)) {
                    builder.option(*number, value)?;
                }
                builder.payload(&whole)
            });
        built.map_err(|_| wrong("the protected response has too many options"))?;
        let message = frame.bytes().to_vec();
        let oscore = self.oscore.as_mut().ok_or(wrong("nothing protected was asked for"))?;
        let reply = oscore.unprotect(&mut self.crypto, request, &mut message.clone());
        reply.map_err(|untaken| Self::refused(remote, untaken, &message))
    }

    /// Requests the block after `block` from the proxy that split the response. The proxy holds the rest itself. So
    /// the outer request is the same as before, without an inner message, and the server never sees it.
    fn block_after(
        &mut self,
        request: RequestId,
        block: Block,
        deadline: Instant,
    ) -> Pin<Box<dyn Future<Output = Result<Response, ClientError>> + Send + '_>> {
        Box::pin(async move {
            let remote = self.remote;
            let gone = || ClientError::Blocks { remote, detail: "the request is forgotten" };
            let mut random = [0; 9];
            self.crypto.random(&mut random);
            let (code, option) = self.oscore.as_ref().and_then(|oscore| oscore.outside(request)).ok_or_else(gone)?;
            let Some(exchanges) = self.endpoint.peers.attached(self.peer) else { return Err(gone()) };
            let mut storage = [0; MAX_HEAD];
            let mut frame = Frame::new(&mut storage, 0);
            let asked = Block { number: block.number + 1, more: false, ..block };
            let (token, id) = (&random[..self.config.token_len.min(8)], exchanges.message_id());
            let built = Builder::new(&mut frame, MessageType::Confirmable, *code, id, token).and_then(|mut builder| {
                builder.option(OptionNumber::OSCORE, option)?;
                builder.uint(OptionNumber::BLOCK2, asked.value())
            });
            built.map_err(|_| gone())?;
            let (now, message) = (clock::now(), frame.bytes().to_vec());
            let next = exchanges.sent(&mut Fixed, now, &message, random[8]).map_err(|_| gone())?;
            if let Some(at) = exchanges.next_deadline(&Fixed) {
                self.endpoint.peers.schedule(self.peer, at);
            }
            self.send(now, &message).await?;
            loop {
                match self.step(deadline).await? {
                    Happened::Response(id, reply) if id == next && reply.is_cut => return Ok(reply),
                    Happened::Response(id, reply) if id == next => {
                        let detail = if reply.code == Code::EMPTY { "one is empty" } else { reply.code.name() };
                        return Err(ClientError::Blocks { remote, detail });
                    }
                    Happened::Refused(id, error) if id == next => return Err(error),
                    Happened::Reset(id) if id == next => return Err(ClientError::Reset { remote }),
                    Happened::TimedOut => break,
                    Happened::Unanswered(id) if id == next => break,
                    _ => {}
                }
            }
            self.forget(next);
            Err(ClientError::Blocks { remote, detail: "the next one never came" })
        })
    }
}

/// Header, token and options of a message fit that.
const MAX_HEAD: usize = 1500;
