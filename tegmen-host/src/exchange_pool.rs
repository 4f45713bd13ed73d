//! The state of the CoAP message layer (RFC 7252, section 4) for all peers of one shard (a thread of a server with its
//! own sockets). One pool of bytes contains two kinds of messages: the replies, which the endpoint sends again if a
//! peer repeats its message, and the messages that wait for an acknowledgement.
//!
//! The memory for replies consists of segments of equal size. Each reply is in one of three rings of segments. A ring
//! is in the order of time, so that its oldest reply is always removed first.
//!
//! * The first ring has the replies to requests that must not be executed twice. These replies are removed only when
//!   they expire.
//! * The second ring has replies that may be lost, because their requests may be executed again.
//! * The third ring is small. Like the second ring, it has replies that may be lost, but only replies to peers that
//!   make many requests. So these replies do not displace the replies to other peers.
//!
//! If the first ring needs a segment and no segment is free, it takes a segment of the second or the third ring.

mod ring;
mod sent;

use crate::hash::Keys;
use crate::index::{Index, Tag};
use ring::{HEADER, Header, Position, REPLY_MAX, Ring, SEGMENT, Segments, record_len};
use sent::{NONE, SentMessages};
use tegmen::buf::{Frame, Full};
use tegmen::coap::{Busy, EXCHANGE_LIFETIME, ExchangeStorage, Late, Outgoing, Repeat, RequestId};
use tegmen::time::Instant;

/// Number of bytes by which each known peer increases the maximum size of the ring [`ExchangePool::safe`]. All peers
/// share the ring.
const SAFE_PER_PEER: usize = 1024;
/// The ring [`ExchangePool::safe`] may always have this number of segments, even with few peers.
const SAFE_MIN: usize = 16;
/// The ring [`ExchangePool::busy`] may always have this number of segments, even with few peers.
const BUSY_MIN: usize = 4;
/// The maximum size of the ring [`ExchangePool::busy`] is the maximum size of the ring [`ExchangePool::safe`] divided
/// by this number.
const BUSY_SHARE: usize = 8;
/// Number of requests in a second above which a peer counts as a peer that makes many requests.
const OFTEN: u16 = 16;
/// The replies that must be kept for one peer can take at most the whole pool divided by this number.
const SHARE: usize = 8;
/// One call of [`ExchangePool::expire_some`] examines at most this number of replies in each of the pool's three rings,
/// plus twice the number of replies that were added since the previous call. A ring is a list of replies in the order
/// of time.
const EXPIRED_AT_ONCE: usize = 16;
/// Maximum length of [`ExchangePool::late`].
const LATE_MAX: usize = 16;

/// Returns a time in ticks of 1024 microseconds. The value wraps after 50 days.
const fn ticks(at: Instant) -> u32 {
    (at.as_micros() >> 10) as u32
}

/// EXCHANGE_LIFETIME (RFC 7252, section 4.8.2) in ticks of 1024 microseconds.
const LIFETIME: u32 = ((EXCHANGE_LIFETIME.as_secs() * 1_000_000) >> 10) as u32;
/// One second in ticks of 1024 microseconds.
const SECOND: u32 = 1_000_000 >> 10;

/// The replies, and the messages that wait for an acknowledgement, of all peers of one shard (a thread of a server).
pub struct ExchangePool {
    segments: Segments,
    /// Replies that are kept until they expire, because they answer requests that must not be executed twice. Replies
    /// to idempotent requests are also in this ring, unless the replies in this ring to the same peer have already
    /// reached the limit for one peer.
    lasting: Ring,
    /// Replies that may be lost, because their requests may be executed again.
    safe: Ring,
    /// Replies that may be lost, to peers that make many requests.
    busy: Ring,
    index: Index,
    sent: SentMessages,
    /// The number that the pool gave last to a peer. The pool numbers its peers, and a stored reply contains the number
    /// of its peer.
    owners: u32,
    /// The count of peers to which the pool has given a number, and which the pool has not forgotten.
    peers: usize,
    keys: Keys,
    /// The tick of 1024 microseconds in which [`Self::expire_some`] last examined the age of replies. `added` is the
    /// number of replies that were added after this tick.
    looked_at: u32,
    added: usize,
    /// The newest late replies, which the index does not have yet.
    late: Vec<LateReply>,
}

/// A stored late reply. The index has the record of its message without a reply, until [`ExchangePool::index_late`] puts
/// the reply in its place. Meanwhile the processor reads the memory of the index, which is seldom in its cache.
struct LateReply {
    tag: Tag,
    header: Header,
    position: Position,
}

/// The data that the pool stores for one peer in the peer's entry: a number for the peer, and the counts of its
/// messages.
#[derive(Debug)]
pub struct PoolPeer {
    /// The number that the pool gave to the peer, or zero if the pool has given none yet.
    owner: u32,
    /// The index of the first exchange that this endpoint began with the peer, or [`NONE`].
    sent: u32,
    /// The hash of the peer's message that this endpoint answered last. `last_message_id` is the Message ID of the same
    /// message.
    last_print: u32,
    last_message_id: u16,
    /// The number of requests that the peer sent since the time `second`, which is in ticks of 1024 microseconds. After
    /// one second, `second` becomes the present time, and the count begins with 0 again.
    requests: u16,
    second: u32,
    /// The time, in ticks, at which the current period of EXCHANGE_LIFETIME began. `bytes` is the total length in bytes
    /// of the replies that were added to [`ExchangePool::lasting`] for this peer in this period, and `bytes_before` is
    /// the total for the previous period.
    since: u32,
    bytes: u32,
    bytes_before: u32,
}

impl Default for PoolPeer {
    fn default() -> Self {
        Self {
            owner: 0,
            sent: NONE,
            last_print: 0,
            last_message_id: 0,
            requests: 0,
            second: 0,
            since: 0,
            bytes: 0,
            bytes_before: 0,
        }
    }
}

impl PoolPeer {
    /// Returns an upper bound of the bytes of the replies that must be kept for this peer. `now` is the time in ticks.
    fn held(&mut self, now: u32) -> usize {
        let age = now.wrapping_sub(self.since);
        if age >= LIFETIME {
            self.bytes_before = if age < 2 * LIFETIME { self.bytes } else { 0 };
            (self.since, self.bytes) = (now, 0);
        }
        self.bytes_before as usize + self.bytes as usize
    }

    fn asks_often(&self) -> bool {
        self.requests > OFTEN
    }
}

/// The key of a stored reply: the Message ID of the message that it answers, and a hash of this message under a secret
/// key. A fast peer uses each of its 65,536 Message IDs twice within EXCHANGE_LIFETIME. The hash distinguishes a new
/// message from a repeated message, which has the same bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolKey {
    message_id: u16,
    print: u32,
    tag: Tag,
}

/// A stored reply that was found: its position in the pool, and its header.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    position: Position,
    header: Header,
}

impl ExchangePool {
    /// Returns an empty pool. The pool takes at most `reply_bytes` for replies, and at most `sent_bytes` for messages
    /// that wait for an acknowledgement. An index takes up to 22 more bytes for each reply.
    pub fn new(reply_bytes: usize, sent_bytes: usize) -> Self {
        Self {
            segments: Segments::new((reply_bytes / SEGMENT).max(SAFE_MIN + BUSY_MIN)),
            lasting: Ring::default(),
            safe: Ring::default(),
            busy: Ring::default(),
            index: Index::new(),
            sent: SentMessages::new(sent_bytes),
            owners: 0,
            peers: 0,
            keys: Keys::default(),
            looked_at: 0,
            added: 0,
            late: Vec::with_capacity(LATE_MAX),
        }
    }

    /// Returns the number of bytes that the pool takes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.segments.heap_bytes()
            + self.index.heap_bytes()
            + self.sent.heap_bytes()
            + self.late.capacity() * size_of::<LateReply>()
    }

    /// Returns the stored reply to a message, if it is younger than EXCHANGE_LIFETIME.
    fn record(&self, now: u32, owner: u32, key: PoolKey) -> Option<Record> {
        let is_it = |position| self.is_of(now, owner, key, position);
        let late = self.late.iter().rev().map(|late| late.position).find(|position| is_it(*position));
        let position = late.or_else(|| self.index.find(key.tag, is_it))?;
        Some(Record { position, header: self.segments.header(position)? })
    }

    /// True if the reply at this position answers this message of this peer, and is younger than EXCHANGE_LIFETIME.
    #[inline]
    fn is_of(&self, now: u32, owner: u32, key: PoolKey, position: Position) -> bool {
        let message = Header { owner, print: key.print, at: now, message_id: key.message_id, len: 0 };
        self.segments
            .header(position)
            .is_some_and(|header| header.is_of_message(&message) && now.wrapping_sub(header.at) < LIFETIME)
    }

    /// Removes replies that are older than EXCHANGE_LIFETIME. Does this at most once in a tick of 1024 microseconds.
    /// One call removes from each ring at most 16 replies, plus twice the number of replies that were added since the
    /// previous call that removed replies. So the pool removes old replies faster than it adds new ones, and a single
    /// call delays a request only for a short time.
    #[inline]
    fn expire_some(&mut self, now: u32) {
        if self.looked_at != now {
            self.looked_at = now;
            let most = 2 * std::mem::take(&mut self.added) + EXPIRED_AT_ONCE;
            self.expire(now, most);
        }
    }

    /// Removes replies that are older than EXCHANGE_LIFETIME, at most `most` of each ring and at most one segment of
    /// each ring.
    fn expire(&mut self, now: u32, most: usize) {
        self.index_late(usize::MAX);
        let expired = |header: &Header| now.wrapping_sub(header.at) >= LIFETIME;
        for which in [Which::Lasting, Which::Safe, Which::Busy] {
            self.evict(which, most, expired);
        }
    }

    /// Removes all replies that are older than EXCHANGE_LIFETIME. Call this regularly, because the pool otherwise
    /// removes replies only when messages arrive.
    pub fn tick(&mut self, now: Instant) {
        self.index_late(usize::MAX);
        let now = ticks(now);
        let expired = |header: &Header| now.wrapping_sub(header.at) >= LIFETIME;
        for which in [Which::Lasting, Which::Safe, Which::Busy] {
            while self.evict(which, usize::MAX, expired) {}
        }
    }

    /// Removes the oldest replies of a ring: all replies of its first segment. Returns false if the ring has no
    /// segment.
    fn evict_segment(&mut self, which: Which) -> bool {
        self.evict(which, usize::MAX, |_| true)
    }

    /// Removes the oldest replies of a ring, as long as `may_go` returns true for them. Removes at most `most` replies,
    /// and at most one segment. Returns true if a segment became free.
    fn evict(&mut self, which: Which, most: usize, may_go: impl Fn(&Header) -> bool) -> bool {
        let Self { segments, index, keys, .. } = self;
        let ring = match which {
            Which::Lasting => &mut self.lasting,
            Which::Safe => &mut self.safe,
            Which::Busy => &mut self.busy,
        };
        ring.drain(segments, most, |position, header| {
            let goes = may_go(header);
            if goes {
                index.remove(tag(keys, header.owner, header.message_id, header.print), position);
            }
            goes
        })
    }

    const fn ring(&self, which: Which) -> &Ring {
        match which {
            Which::Lasting => &self.lasting,
            Which::Safe => &self.safe,
            Which::Busy => &self.busy,
        }
    }

    /// Frees space in a ring for one reply of the maximum length with its header, if there is not enough space. Returns
    /// false if no space can be freed.
    #[inline]
    fn make_room(&mut self, now: u32, which: Which) -> bool {
        self.ring(which).has_room() || self.make_new_room(now, which)
    }

    #[cold]
    fn make_new_room(&mut self, now: u32, which: Which) -> bool {
        self.expire(now, usize::MAX);
        let safe = (self.peers * SAFE_PER_PEER / SEGMENT).max(SAFE_MIN);
        let most = match which {
            Which::Lasting => self.segments.limit(),
            Which::Safe => safe,
            Which::Busy => (safe / BUSY_SHARE).max(BUSY_MIN),
        };
        if self.ring(which).segments() >= most && which != Which::Lasting {
            self.evict_segment(which);
        }
        self.extend(which)
            || self.evict_segment(Which::Safe) && self.extend(which)
            || self.evict_segment(Which::Busy) && self.extend(which)
    }

    fn extend(&mut self, which: Which) -> bool {
        match which {
            Which::Lasting => self.lasting.extend(&mut self.segments),
            Which::Safe => self.safe.extend(&mut self.segments),
            Which::Busy => self.busy.extend(&mut self.segments),
        }
    }

    /// Adds the oldest of the late replies to the index, at most `most` of them.
    fn index_late(&mut self, most: usize) {
        let count = self.late.len().min(most);
        for LateReply { tag, header, position } in self.late.drain(..count) {
            let is_before = |before| {
                let earlier = self.segments.header(before).filter(|_| before != position);
                earlier.is_some_and(|earlier| {
                    earlier.is_of_message(&header) && header.at.wrapping_sub(earlier.at) < LIFETIME
                })
            };
            let before = self.index.find(tag, is_before);
            if !before.is_some_and(|before| self.index.replace(tag, before, position)) {
                self.index.insert(tag, position);
            }
        }
    }

    /// Adds a reply to a ring. Returns false if there is no space.
    fn add(&mut self, which: Which, header: Header, tag: Tag, is_late: bool, reply: &[u8]) -> bool {
        if !self.make_room(header.at, which) {
            return false;
        }
        let ring = match which {
            Which::Lasting => &mut self.lasting,
            Which::Safe => &mut self.safe,
            Which::Busy => &mut self.busy,
        };
        let Some(position) = ring.push(&mut self.segments, header, reply) else { return false };
        if is_late {
            self.index.prefetch(tag);
            self.late.push(LateReply { tag, header, position });
            if self.late.len() >= LATE_MAX {
                self.index_late(LATE_MAX / 2);
            }
        } else {
            self.index.insert(tag, position);
        }
        self.added += 1;
        true
    }

    /// Stores the reply to the message with this key. A late reply replaces the record of the message without a reply.
    fn keep_reply(
        &mut self,
        now: Instant,
        peer: &mut PoolPeer,
        (key, repeat): (PoolKey, Repeat),
        is_late: bool,
        reply: &[u8],
    ) {
        let PoolKey { message_id, print, tag } = key;
        (peer.last_message_id, peer.last_print) = (message_id, print);
        if repeat == Repeat::Cheap {
            return;
        }
        let now = ticks(now);
        self.expire_some(now);
        let reply = if reply.len() <= REPLY_MAX { reply } else { &[] };
        let header = Header { owner: peer.owner, print, at: now, message_id, len: reply.len() as u16 };
        let lasts = match repeat {
            Repeat::Never => true,
            Repeat::Idempotent => peer.held(now) < self.peer_limit(),
            Repeat::Safe | Repeat::Cheap => false,
        };
        if lasts && self.add(Which::Lasting, header, tag, is_late, reply) {
            peer.held(now);
            peer.bytes = peer.bytes.saturating_add(record_len(reply.len()) as u32);
            return;
        }
        self.add(if peer.asks_often() { Which::Busy } else { Which::Safe }, header, tag, is_late, reply);
    }

    fn peer_limit(&self) -> usize {
        self.segments.limit() * SEGMENT / SHARE
    }
}

/// The name of one of the three rings.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Lasting,
    Safe,
    Busy,
}

impl ExchangeStorage for ExchangePool {
    /// The number of replies has no maximum: the pool limits only the bytes of the replies.
    const PLACES: usize = usize::MAX;
    type Peer = PoolPeer;
    type Key = PoolKey;
    type Handled = Record;

    #[inline]
    fn key(&mut self, now: Instant, peer: &mut PoolPeer, message_id: u16, datagram: &[u8]) -> PoolKey {
        if !self.late.is_empty() {
            self.index_late(usize::MAX);
        }
        if peer.owner == 0 {
            self.owners = self.owners.checked_add(1).unwrap_or(1);
            self.peers += 1;
            peer.owner = self.owners;
        }
        let now = ticks(now);
        if now.wrapping_sub(peer.second) >= SECOND {
            (peer.second, peer.requests) = (now, 0);
        }
        peer.requests = peer.requests.saturating_add(1);
        let print = (self.keys.of_bytes(datagram) >> 32) as u32;
        PoolKey { message_id, print, tag: tag(&self.keys, peer.owner, message_id, print) }
    }

    #[inline]
    fn handled(&self, now: Instant, peer: &PoolPeer, key: PoolKey) -> Option<Record> {
        self.record(ticks(now), peer.owner, key)
    }

    #[inline]
    fn reply<'s>(&'s self, _: &'s PoolPeer, Record { position, header }: Record) -> &'s [u8] {
        self.segments.reply(position, &header)
    }

    fn has_room(&mut self, now: Instant, peer: &mut PoolPeer, repeat: Repeat) -> bool {
        if repeat != Repeat::Never {
            return true;
        }
        let now = ticks(now);
        self.expire_some(now);
        peer.held(now) < self.peer_limit() && self.make_room(now, Which::Lasting)
    }

    fn keep(&mut self, now: Instant, peer: &mut PoolPeer, key: PoolKey, repeat: Repeat, reply: &[u8]) {
        self.keep_reply(now, peer, (key, repeat), false, reply);
    }

    #[inline]
    fn late(PoolKey { message_id, print, .. }: PoolKey, repeat: Repeat) -> Option<Late> {
        Some(Late { message_id, print, repeat })
    }

    fn keep_late(&mut self, now: Instant, peer: &mut PoolPeer, late: Late, reply: &[u8]) {
        let Late { message_id, print, repeat } = late;
        let key = PoolKey { message_id, print, tag: tag(&self.keys, peer.owner, message_id, print) };
        self.keep_reply(now, peer, (key, repeat), true, reply);
    }

    fn last_reply<'s>(&'s self, now: Instant, peer: &'s PoolPeer) -> &'s [u8] {
        let (message_id, print) = (peer.last_message_id, peer.last_print);
        let key = PoolKey { message_id, print, tag: tag(&self.keys, peer.owner, message_id, print) };
        self.handled(now, peer, key).map_or(&[], |handled| self.reply(peer, handled))
    }

    fn open<'s>(&'s mut self, peer: &'s mut PoolPeer, message: &[u8]) -> Result<&'s mut Outgoing, Busy> {
        self.sent.open(&mut peer.sent, message)
    }

    fn exchanges<'s>(&'s self, peer: &'s PoolPeer) -> impl Iterator<Item = &'s Outgoing> {
        self.sent.iter(peer.sent)
    }

    fn find<'s>(
        &'s mut self,
        peer: &'s mut PoolPeer,
        is_it: impl FnMut(&Outgoing) -> bool,
    ) -> Option<&'s mut Outgoing> {
        self.sent.find(peer.sent, is_it)
    }

    fn write(&self, peer: &PoolPeer, id: RequestId, frame: &mut Frame<'_>) -> Result<(), Full> {
        self.sent.write(peer.sent, id, frame)
    }

    fn settle(&mut self, peer: &mut PoolPeer, id: RequestId) {
        self.sent.settle(&mut peer.sent, id);
    }

    fn forget(&mut self, peer: &mut PoolPeer) {
        self.sent.forget(&mut peer.sent);
        if std::mem::take(&mut peer.owner) != 0 {
            self.peers -= 1;
        }
        *peer = PoolPeer::default();
    }
}

/// Returns the tag of a stored reply in the index. The tag depends on secret keys, so that peers cannot choose messages
/// with equal tags.
#[inline]
fn tag(keys: &Keys, owner: u32, message_id: u16, print: u32) -> Tag {
    let word = u64::from(owner) << 32 | u64::from(print);
    Tag::of(keys.of_words(word, message_id.into()))
}

const _: () = assert!(HEADER + REPLY_MAX < SEGMENT);

#[cfg(test)]
mod tests;
