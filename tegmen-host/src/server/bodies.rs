//! The bodies of block-wise transfers that a server stores (RFC 7959): bodies of requests, and bodies of responses that
//! cannot be created again. One limit applies to the number of bodies of each peer. Another limit applies to the bytes
//! of all bodies in all shards together.

use super::per_peer::PerPeer;
use crate::etag::etag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tegmen::buf::Full;
use tegmen::coap::block::{Assembly, Step};
use tegmen::coap::{Block, Code, EXCHANGE_LIFETIME, MessageRef};
use tegmen::identity::{PeerId, Protection};
use tegmen::node::{Bodies, Operation};
use tegmen::time::Instant;

/// Maximum number of request bodies of one peer, and also the maximum number of response bodies of one peer.
const PER_PEER: usize = 4;
/// Bytes for the header, token and options of a message.
const MAX_HEAD: usize = 1024;

/// The count of the bytes that all stored bodies take, with its limit.
#[derive(Debug)]
pub(crate) struct Ledger {
    used: AtomicUsize,
    limit: AtomicUsize,
}

impl Ledger {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), limit: AtomicUsize::new(limit) })
    }

    /// Sets the limit in bytes. Bodies that are already stored remain.
    pub(super) fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns a text for the operator after a body got no memory: the bytes that all bodies take, and their limit.
    pub(super) fn complaint(&self) -> String {
        format!(
            "bodies of transfers take {} bytes of {}, of which peers with neither DTLS nor OSCORE have half",
            self.used(),
            self.limit()
        )
    }

    /// Reserves `amount` bytes of memory for a peer with this protection, and returns the reservation. When the
    /// reservation is dropped, its bytes are free again. All peers that use neither DTLS nor OSCORE can together take
    /// only half of the ledger's bytes, so that the other half remains for protected peers. Returns `None` if too few
    /// bytes are free.
    pub(super) fn share_of(self: &Arc<Self>, protection: Protection, amount: usize) -> Option<Share> {
        let mut share = Share { ledger: self.clone(), amount: 0, limit: self.limit_of(protection) };
        share.grow(amount).then_some(share)
    }

    /// True if `amount` bytes are free now for a peer with this protection.
    fn has_room_for(&self, protection: Protection, amount: usize) -> bool {
        self.used().saturating_add(amount) <= self.limit_of(protection)
    }

    fn limit_of(&self, protection: Protection) -> usize {
        if protection == Protection::Plain { self.limit() / 2 } else { self.limit() }
    }
}

/// The bytes that one peer or one transfer has reserved in a [`Ledger`], which limits the bytes of all bodies together.
#[derive(Debug)]
pub(crate) struct Share {
    ledger: Arc<Ledger>,
    amount: usize,
    /// Maximum number of bytes that the stored bodies of all peers may take together after this share has grown.
    limit: usize,
}

impl Share {
    /// Reserves `amount` more bytes in the ledger, which counts the bytes of all bodies. Returns false, and reserves
    /// nothing, if all bodies together would then take more than `limit` bytes.
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

/// A request body that is being received or is complete.
struct Upload {
    operation: Operation,
    assembly: Assembly,
    body: Vec<u8>,
    is_complete: bool,
    share: Share,
    last: Instant,
}

/// A stored response. The client still requests blocks of this response.
struct Kept {
    operation: Operation,
    message: Box<[u8]>,
    etag: [u8; 4],
    _share: Share,
    last: Instant,
}

/// The transfers of one peer.
#[derive(Default)]
struct Transfers {
    uploads: Vec<Upload>,
    kept: Vec<Kept>,
}

impl Transfers {
    fn is_empty(&self) -> bool {
        self.uploads.is_empty() && self.kept.is_empty()
    }
}

/// The block-wise transfers of all peers of a shard.
pub(crate) struct ServerBodies {
    limit: usize,
    ledger: Arc<Ledger>,
    by_peer: PerPeer<Transfers>,
    /// A buffer for the response that a handler writes.
    space: Vec<u8>,
    /// The flag that is set to true when a body gets no memory, because the bodies of all peers have reached the limit
    /// of the [`Ledger`].
    refused: Arc<AtomicBool>,
}

impl ServerBodies {
    /// Returns an empty store. Each body in the store has at most `limit` bytes, and takes its share of memory from
    /// `ledger`.
    pub(crate) fn new(limit: usize, ledger: Arc<Ledger>) -> Self {
        Self { limit, ledger, by_peer: PerPeer::default(), space: Vec::new(), refused: Arc::default() }
    }

    /// Sets the maximum length of a body in bytes.
    pub(super) const fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Returns the [`Ledger`], and the flag that is set to true when a body gets no memory because of the limit of the
    /// ledger.
    pub(super) fn ledger(&self) -> (Arc<Ledger>, Arc<AtomicBool>) {
        (self.ledger.clone(), self.refused.clone())
    }

    /// Removes transfers that no client continued during EXCHANGE_LIFETIME, and transfers of peers that no longer
    /// exist.
    pub(crate) fn sweep(&mut self, now: Instant, mut is_there: impl FnMut(PeerId) -> bool) {
        self.by_peer.retain(|peer, Transfers { uploads, kept }| {
            uploads.retain(|upload| now.since(upload.last) < EXCHANGE_LIFETIME);
            kept.retain(|kept| now.since(kept.last) < EXCHANGE_LIFETIME);
            !(uploads.is_empty() && kept.is_empty()) && is_there(*peer)
        });
    }

    /// Returns an empty [`Share`]. It reserves the bytes of a new body in the [`Ledger`], which limits the bytes of all
    /// bodies together. `announced` is the number of bytes that the body is expected to have. Returns `None` if fewer
    /// bytes are free now.
    fn share(&self, protection: Protection, announced: usize) -> Option<Share> {
        let share = self.ledger.share_of(protection, 0);
        let share = share.filter(|_| self.ledger.has_room_for(protection, announced));
        if share.is_none() {
            self.refused.store(true, Ordering::Relaxed);
        }
        share
    }

    /// Removes each upload that belongs to this operation and for which `is_it` returns true. Removes the entry of the
    /// peer if no transfer is left.
    fn remove(&mut self, operation: &Operation, is_it: impl Fn(&Upload) -> bool) {
        let Some(transfers) = self.by_peer.get_mut(&operation.peer) else { return };
        transfers.uploads.retain(|upload| upload.operation != *operation || !is_it(upload));
        if transfers.is_empty() {
            self.by_peer.remove(&operation.peer);
        }
    }

    fn add(&mut self, now: Instant, operation: &Operation, block: Block, payload: &[u8]) -> Result<bool, Code> {
        let transfers = self.by_peer.get_mut(&operation.peer).ok_or(Code::REQUEST_ENTITY_INCOMPLETE)?;
        let upload = transfers.uploads.iter_mut().find(|upload| upload.operation == *operation);
        let upload = upload.ok_or(Code::REQUEST_ENTITY_INCOMPLETE)?;
        upload.last = now;
        let step = upload.assembly.accept(block, payload.len(), self.limit)?;
        let (Step::Continue(at) | Step::Complete(at)) = step;
        upload.body.truncate(at);
        if upload.body.len() + payload.len() > upload.share.amount && !upload.share.grow(payload.len()) {
            self.refused.store(true, Ordering::Relaxed);
            return Err(Code::SERVICE_UNAVAILABLE);
        }
        upload.body.extend_from_slice(payload);
        upload.is_complete = matches!(step, Step::Complete(_));
        Ok(upload.is_complete)
    }
}

impl Bodies for ServerBodies {
    fn limit(&self) -> usize {
        self.limit
    }

    fn upload(
        &mut self,
        now: Instant,
        operation: &Operation,
        (block, payload): (Block, &[u8]),
        announced: usize,
    ) -> Result<bool, Code> {
        if announced > self.limit {
            return Err(Code::REQUEST_ENTITY_TOO_LARGE);
        }
        let transfers = self.by_peer.get(&operation.peer);
        let is_it = |upload: &Upload| upload.operation == *operation;
        if !transfers.is_some_and(|transfers| transfers.uploads.iter().any(is_it)) {
            // A client that begins in the middle was forgotten, or never began.
            if block.number > 0 {
                return Err(Code::REQUEST_ENTITY_INCOMPLETE);
            }
            // A body that can only fail later is refused before the client sends all of it.
            let share = self.share(operation.identity.protection, announced).ok_or(Code::SERVICE_UNAVAILABLE)?;
            let uploads = &mut self.by_peer.entry(operation.peer).or_default().uploads;
            make_room(uploads, |upload| upload.last);
            uploads.push(Upload {
                operation: *operation,
                assembly: Assembly::default(),
                body: Vec::new(),
                is_complete: false,
                share,
                last: now,
            });
        }
        let added = self.add(now, operation, block, payload);
        if matches!(added, Err(Code::REQUEST_ENTITY_TOO_LARGE | Code::SERVICE_UNAVAILABLE)) {
            self.remove(operation, |_| true);
        }
        added
    }

    fn space(&mut self, _: Instant, operation: &Operation) -> (&[u8], &mut [u8]) {
        let len = self.limit + MAX_HEAD;
        if self.space.len() < len {
            self.space.resize(len, 0);
        }
        let Self { by_peer, space, .. } = self;
        let Some(transfers) = by_peer.get_mut(&operation.peer) else { return (&[], space) };
        transfers.kept.retain(|kept| kept.operation != *operation);
        (complete_body(&transfers.uploads, operation), space)
    }

    fn keep(&mut self, now: Instant, operation: &Operation, len: usize) -> Result<(), Full> {
        let message = self.space.get(..len).ok_or(Full)?;
        let payload = MessageRef::parse(message).map_err(|_| Full)?.payload();
        let Some(share) = self.ledger.share_of(operation.identity.protection, payload.len()) else {
            self.refused.store(true, Ordering::Relaxed);
            return Err(Full);
        };
        let kept = &mut self.by_peer.entry(operation.peer).or_default().kept;
        make_room(kept, |kept| kept.last);
        let (message, etag) = (message.into(), etag(payload));
        kept.push(Kept { operation: *operation, message, etag, _share: share, last: now });
        Ok(())
    }

    fn body(&self, operation: &Operation) -> &[u8] {
        self.by_peer.get(&operation.peer).map_or(&[], |transfers| complete_body(&transfers.uploads, operation))
    }

    fn release(&mut self, operation: &Operation) {
        self.remove(operation, |upload| upload.is_complete);
    }

    fn kept(&mut self, now: Instant, operation: &Operation) -> Option<(&[u8], [u8; 4])> {
        let kept = &mut self.by_peer.get_mut(&operation.peer)?.kept;
        let kept = kept.iter_mut().find(|kept| kept.operation == *operation)?;
        kept.last = now;
        Some((&kept.message, kept.etag))
    }
}

/// Returns the complete body of an operation, or an empty body if there is no complete body.
fn complete_body<'u>(uploads: &'u [Upload], operation: &Operation) -> &'u [u8] {
    let is_it = |upload: &&Upload| upload.is_complete && upload.operation == *operation;
    uploads.iter().find(is_it).map_or(&[], |upload| &upload.body)
}

/// Removes the oldest transfer if the list has its maximum length.
fn make_room<T>(list: &mut Vec<T>, last: impl Fn(&T) -> Instant) {
    if list.len() >= PER_PEER
        && let Some((oldest, _)) = list.iter().enumerate().min_by_key(|(_, one)| last(one))
    {
        list.swap_remove(oldest);
    }
}
