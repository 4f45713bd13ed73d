//! The bodies of block-wise transfers that a server holds (RFC 7959): bodies of requests, and of responses that cannot
//! be created again. Their number is limited for each peer, and their bytes for all shards together.

use super::source::Source;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tegmen::buf::Frame;
use tegmen::coap::block::{self, Assembly, MAX_SIZE, Step};
use tegmen::coap::{Block, BuildError, Builder, Code, EXCHANGE_LIFETIME, MessageRef, OptionNumber};
use tegmen::identity::Protection;
use tegmen::time::Instant;

/// What one peer may have at once, of each kind.
const PER_PEER: usize = 4;

/// Bytes held for all peers.
#[derive(Debug)]
pub(super) struct Ledger {
    used: AtomicUsize,
    limit: usize,
}

impl Ledger {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), limit })
    }

    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    pub(super) fn is_full(&self) -> bool {
        self.used() >= self.limit
    }

    /// Why a share of bodies was refused.
    pub(super) fn complaint(&self) -> String {
        format!(
            "bodies of transfers take {} bytes of {}, of which peers without DTLS have half",
            self.used(),
            self.limit
        )
    }

    /// A share of `amount`, given back when it is dropped.
    pub(super) fn share(self: &Arc<Self>, amount: usize) -> Option<Share> {
        self.share_below(self.limit, amount)
    }

    /// As [`Self::share`], for a peer with this protection: those who prove nothing have half of everything, so that
    /// nothing they do leaves the others without room.
    pub(super) fn share_of(self: &Arc<Self>, protection: Protection, amount: usize) -> Option<Share> {
        self.share_below(self.limit_of(protection), amount)
    }

    /// True if `amount` could be had now by a peer with this protection.
    fn has_room_for(&self, protection: Protection, amount: usize) -> bool {
        self.used().saturating_add(amount) <= self.limit_of(protection)
    }

    fn limit_of(&self, protection: Protection) -> usize {
        if protection == Protection::Plain { self.limit / 2 } else { self.limit }
    }

    fn share_below(self: &Arc<Self>, limit: usize, amount: usize) -> Option<Share> {
        let mut share = Share { ledger: self.clone(), amount: 0, limit };
        share.grow(amount).then_some(share)
    }
}

/// What somebody has of a [`Ledger`].
#[derive(Debug)]
pub(super) struct Share {
    ledger: Arc<Ledger>,
    amount: usize,
    /// It does not grow where all together would have more than this.
    limit: usize,
}

impl Share {
    /// False if the ledger is exhausted.
    fn grow(&mut self, amount: usize) -> bool {
        let used = self.ledger.used.fetch_add(amount, Ordering::Relaxed);
        if used.saturating_add(amount) > self.limit {
            self.ledger.used.fetch_sub(amount, Ordering::Relaxed);
            return false;
        }
        self.amount += amount;
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.ledger.used.fetch_sub(self.amount, Ordering::Relaxed);
    }
}

/// A request body that comes in.
struct Upload {
    operation: u64,
    assembly: Assembly,
    body: Vec<u8>,
    share: Share,
    last: Instant,
}

/// A response whose blocks are still asked for.
struct Kept {
    operation: u64,
    response: Whole,
    _share: Share,
    last: Instant,
}

/// A response before it is cut.
pub(super) struct Whole {
    code: Code,
    options: Vec<(OptionNumber, Vec<u8>)>,
    payload: Vec<u8>,
    etag: [u8; 4],
}

impl Whole {
    pub(super) fn new(code: Code, options: Vec<(OptionNumber, Vec<u8>)>, payload: Vec<u8>) -> Self {
        let etag = block::etag(&payload);
        Self { code, options, payload, etag }
    }

    pub(super) fn of(message: &MessageRef<'_>) -> Self {
        let options = message.options().map(|(number, value)| (number, value.to_vec())).collect();
        Self::new(message.code(), options, message.payload().to_vec())
    }

    /// Writes the block that is asked for behind a header, or the first if none is, and a smaller one where the message has
    /// no room for it. True if that is all there is.
    pub(super) fn write(&self, asked: Option<Block>, mut builder: Builder<'_, '_>) -> Result<bool, BuildError> {
        let options: usize = self.options.iter().map(|(_, value)| value.len() + 5).sum();
        let room = builder.room().saturating_sub(options);
        let mut block = asked.unwrap_or(Block::first(MAX_SIZE));
        let fits = self.payload.len() <= block.size() && self.payload.len() < room;
        if !fits {
            block = block.limited(room.saturating_sub(BLOCK_OPTIONS_LEN).max(16));
        }
        let (start, end) = (block.offset(), block.offset().saturating_add(block.size()).min(self.payload.len()));
        let Some(bytes) = self.payload.get(start..end).filter(|bytes| block.number == 0 || !bytes.is_empty()) else {
            builder.set_code(Code::BAD_REQUEST);
            return Ok(fits);
        };
        builder.set_code(self.code);
        for (number, value) in &self.options {
            builder.option(*number, value)?;
        }
        builder.payload(bytes)?;
        if fits && asked.is_none() {
            return Ok(fits);
        }
        let mut insert = |number, value: u32| {
            let mut bytes = [0; 4];
            builder.insert(number, tegmen::coap::uint_bytes(value, &mut bytes))
        };
        insert(OptionNumber::BLOCK2, Block { more: end < self.payload.len(), ..block }.value())?;
        if block.number == 0 {
            insert(OptionNumber::SIZE2, self.payload.len() as u32)?;
        }
        if !builder.has(OptionNumber::ETAG) {
            builder.insert(OptionNumber::ETAG, &self.etag)?;
        }
        Ok(fits)
    }
}

/// What the payload marker, Block2, Size2 and ETag take beside a block.
const BLOCK_OPTIONS_LEN: usize = 24;

/// What a block of a request body led to.
pub(super) enum Uploaded {
    /// The next one is wanted.
    Continue,
    /// This is the body.
    Whole(Vec<u8>),
    /// This is the error.
    Refused(Code),
}

/// The transfers of one peer.
#[derive(Default)]
pub(super) struct Transfers {
    uploads: Vec<Upload>,
    kept: Vec<Kept>,
}

impl Transfers {
    /// Takes in a block of the body of a request.
    pub(super) fn upload(
        &mut self,
        from: &Source,
        message: &MessageRef<'_>,
        block: Block,
        ledger: &Arc<Ledger>,
        limit: usize,
    ) -> Uploaded {
        let operation = from.operation(message);
        let announced = message.uint(OptionNumber::SIZE1).unwrap_or(0) as usize;
        if announced > limit {
            return Uploaded::Refused(Code::REQUEST_ENTITY_TOO_LARGE);
        }
        let found = self.uploads.iter().position(|upload| upload.operation == operation);
        let index = match found {
            Some(index) => index,
            // Who begins in the middle has been forgotten, or never was.
            None if block.number > 0 => return Uploaded::Refused(Code::REQUEST_ENTITY_INCOMPLETE),
            None => {
                // What can only fail later is refused before the client sends it all.
                let share = ledger.share_of(from.identity.protection, 0);
                let share = share.filter(|_| ledger.has_room_for(from.identity.protection, announced));
                let Some(share) = share else {
                    return Uploaded::Refused(Code::SERVICE_UNAVAILABLE);
                };
                make_room(&mut self.uploads, |upload| upload.last);
                let (assembly, body) = (Assembly::default(), Vec::new());
                self.uploads.push(Upload { operation, assembly, body, share, last: from.now });
                self.uploads.len() - 1
            }
        };
        let upload = &mut self.uploads[index];
        upload.last = from.now;
        let payload = message.payload();
        let step = match upload.assembly.accept(block, payload.len(), limit) {
            Ok(step) => step,
            Err(code) => {
                if code == Code::REQUEST_ENTITY_TOO_LARGE {
                    self.uploads.swap_remove(index);
                }
                return Uploaded::Refused(code);
            }
        };
        let (Step::Continue(at) | Step::Complete(at)) = step;
        upload.body.truncate(at);
        if upload.body.len() + payload.len() > upload.share.amount && !upload.share.grow(payload.len()) {
            self.uploads.swap_remove(index);
            return Uploaded::Refused(Code::SERVICE_UNAVAILABLE);
        }
        upload.body.extend_from_slice(payload);
        match step {
            Step::Continue(_) => Uploaded::Continue,
            Step::Complete(_) => Uploaded::Whole(self.uploads.swap_remove(index).body),
        }
    }

    /// Keeps a response for the blocks that follow its first. False if there is no room for it.
    pub(super) fn keep(&mut self, to: &Source, operation: u64, response: Whole, ledger: &Arc<Ledger>) -> bool {
        self.kept.retain(|kept| kept.operation != operation);
        let Some(share) = ledger.share_of(to.identity.protection, response.payload.len()) else { return false };
        make_room(&mut self.kept, |kept| kept.last);
        self.kept.push(Kept { operation, response, _share: share, last: to.now });
        true
    }

    /// The response to this operation, if it is kept.
    pub(super) fn kept(&mut self, now: Instant, operation: u64) -> Option<&Whole> {
        let kept = self.kept.iter_mut().find(|kept| kept.operation == operation)?;
        kept.last = now;
        Some(&kept.response)
    }

    /// Forgets what nobody has asked for during EXCHANGE_LIFETIME.
    pub(super) fn forget(&mut self, now: Instant) {
        self.uploads.retain(|upload| now.since(upload.last) < EXCHANGE_LIFETIME);
        self.kept.retain(|kept| now.since(kept.last) < EXCHANGE_LIFETIME);
    }
}

/// Lets the oldest go, if there are as many as there may be.
fn make_room<T>(list: &mut Vec<T>, last: impl Fn(&T) -> Instant) {
    if list.len() >= PER_PEER
        && let Some((oldest, _)) = list.iter().enumerate().min_by_key(|(_, one)| last(one))
    {
        list.swap_remove(oldest);
    }
}

/// Room for the whole of a response: a scratch that is made once.
#[derive(Default)]
pub(super) struct Scratch(Vec<u8>);

impl Scratch {
    pub(super) fn frame(&mut self, max_body: usize) -> Frame<'_> {
        self.0.resize(max_body + 1024, 0);
        Frame::new(&mut self.0, 0)
    }

    /// Returns the first `len` bytes.
    pub(super) fn written(&self, len: usize) -> &[u8] {
        self.0.get(..len).unwrap_or(&[])
    }
}
