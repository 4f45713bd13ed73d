//! Protected responses that a proxy has split into blocks (RFC 8613, section 4.1.3.4.2). The client fetches and
//! reassembles the blocks before it decrypts the response.

use super::connection::{Message, Turn};
use super::{ClientError, Response, Session, TakenPlace};
use crate::clock;
use crate::contexts::MAX_UNFRAGMENTED_SIZE;
use tegmen::buf::Frame;
use tegmen::coap::{Block, Builder, Code, MessageType, OptionNumber};
use tegmen::time::Instant;

impl Session {
    /// Returns the decrypted response after all outer blocks have arrived.
    pub(super) async fn uncut(&self, place: &TakenPlace, response: Response) -> Result<Response, ClientError> {
        if !response.is_cut {
            return Ok(response);
        }
        let gathered = Box::pin(self.gather(place, response)).await;
        if gathered.is_err() {
            self.with(|connection| connection.forget(place.at()));
        }
        gathered
    }

    async fn gather(&self, place: &TakenPlace, first: Response) -> Result<Response, ClientError> {
        let remote = self.remote();
        let wrong = |detail| ClientError::Blocks { remote, detail };
        let gone = || wrong("the request is forgotten");
        let (request, outside) = self.with(|connection| {
            let request = connection.entry.places.get(place.at()).and_then(|place| place.request).ok_or_else(gone)?;
            let oscore = connection.oscore().ok_or_else(|| wrong("nothing protected was asked for"))?;
            Ok::<_, ClientError>((request, oscore.outside(request).cloned().ok_or_else(gone)?))
        })?;
        let deadline = clock::now().after(self.config().coap.timeout);
        let mut block = first.block(OptionNumber::BLOCK2).ok_or(wrong("one has no Block2"))?;
        let mut whole = first.payload.clone();
        if block.number != 0 || whole.len() != block.size() {
            return Err(wrong("the first block of the protected response is none"));
        }
        while block.more {
            if whole.len() > MAX_UNFRAGMENTED_SIZE {
                return Err(ClientError::BodyTooLong { max: MAX_UNFRAGMENTED_SIZE });
            }
            let next = self.block_after(&outside, block, deadline).await?;
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
                for (number, value) in first.options().filter(|(number, _)| !cut.contains(number)) {
                    builder.option(number, value)?;
                }
                builder.payload(&whole)
            });
        built.map_err(|_| wrong("the protected response has too many options"))?;
        self.with(|connection| connection.open(place.at(), request, frame.bytes_mut()))
    }

    /// Requests the block after `block` from the proxy that split the response. The proxy stores the remaining blocks.
    /// The request has the outer code and the outer options of the original request, but no encrypted message. The
    /// proxy answers it, so the server never receives it.
    async fn block_after(
        &self,
        (code, options): &(Code, Vec<u8>),
        block: Block,
        deadline: Instant,
    ) -> Result<Response, ClientError> {
        let remote = self.remote();
        let place = self.place();
        let asked = Block { number: block.number + 1, more: false, ..block };
        if let Turn::KeysLost = self.begin(&place, &Message::OuterBlock(*code, options, asked)).await? {
            return Err(ClientError::Blocks { remote, detail: "the request is forgotten" });
        }
        let arrived = self.wait(&place, deadline, |connection, at| connection.arrived(at)).await;
        match arrived.unwrap_or(Ok(None))? {
            Some(response) if response.is_cut => Ok(response),
            Some(response) => {
                let detail = if response.code == Code::EMPTY { "one is empty" } else { response.code.name() };
                Err(ClientError::Blocks { remote, detail })
            }
            None => Err(ClientError::Blocks { remote, detail: "the next one never came" }),
        }
    }
}

/// Maximum number of bytes of the header, token and options of a message.
const MAX_HEAD: usize = 1500;
