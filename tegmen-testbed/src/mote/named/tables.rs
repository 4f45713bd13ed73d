//! The tables of a node: a FIB whose next hops never change, and a content store that can be disabled.

use tegmen::time::Instant;
use tegmen_ndn::fixed::FixedStore;
use tegmen_ndn::tables::{FaceId, Fib, NextHop, Store, Strategy};
use tegmen_ndn::{Interest, Name, ReceivedData};

/// A FIB with one next hop for each prefix.
#[derive(Default)]
pub(super) struct Hops(pub(super) Vec<(Vec<u8>, [NextHop; 1])>);

impl Hops {
    pub(super) fn add(&mut self, prefix: &[u8], face: FaceId) {
        self.0.push((prefix.to_vec(), [NextHop { face, cost: 0 }]));
    }
}

impl Fib for Hops {
    fn next_hops(&self, name: &Name<'_>) -> (Strategy, &[NextHop]) {
        let found = self.0.iter().filter(|(prefix, _)| name.as_bytes().starts_with(prefix));
        let longest = found.max_by_key(|(prefix, _)| prefix.len());
        (Strategy::BestRoute, longest.map_or(&[], |(_, hop)| hop))
    }
}

/// The content store of a node. It stores nothing if it is disabled.
#[derive(Default)]
pub(super) struct Shelf {
    pub(super) is_on: bool,
    /// Number of packets that are now in the store.
    pub(super) len: usize,
    store: FixedStore<STORED, PACKET>,
}

impl Store for Shelf {
    fn find(&mut self, now: Instant, interest: &Interest<'_>) -> Option<&[u8]> {
        if self.is_on { self.store.find(now, interest) } else { None }
    }

    fn insert(&mut self, now: Instant, data: &ReceivedData<'_>) {
        if self.is_on {
            self.store.insert(now, data);
            self.len = (self.len + 1).min(STORED);
        }
    }
}

/// Maximum number of packets in the store. It is the same as in the paper.
const STORED: usize = 30;
/// Maximum length of a stored packet, in bytes. Each packet fits into one frame.
const PACKET: usize = 127;
