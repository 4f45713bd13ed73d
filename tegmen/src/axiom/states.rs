//! The states that a member stores about other members (Axiom paper, section 5.3: group connection states).

use super::opened::Opened;
use super::protection::FINGERPRINTS;
use crate::counters::Discard;
use crate::secret::Secret;
use tegmen_base::replay::ReplayWindow;

/// The record numbers (TSNs) that one other member has used, and the fingerprint of that member's newest record. The
/// value has 16 bytes.
#[derive(Debug)]
pub(super) struct Seen {
    /// Four values, from the lowest bit: one more than the highest TSN (41 bits), the bit [`TAKEN`], the bit [`USED`],
    /// and the fingerprint of the record with the highest TSN (21 bits). The fingerprint is 0 if it is not known.
    next: u64,
    seen: u64,
}

const NEXT: u64 = (1 << 41) - 1;
/// A bit that is set if the state belongs to a member. If the bit is not set, this element of the array is free.
const TAKEN: u64 = 1 << 41;
/// A bit that is set when the state is created, and when a record of the member is accepted. [`Seen::is_idle`] clears
/// the bit.
const USED: u64 = 1 << 42;
const FINGERPRINT_AT: u32 = 43;
const _: () = assert!(FINGERPRINTS.count_ones() + FINGERPRINT_AT == 64);

impl Seen {
    pub(super) const fn none() -> Self {
        Self { next: 0, seen: 0 }
    }

    /// Returns the state of a member that has used no TSN.
    pub(super) fn nothing() -> Self {
        Self::of(&ReplayWindow::new(), 0)
    }

    /// Returns the state of a member. All its records with TSNs below `next` count as received.
    pub(super) fn before(next: u64) -> Self {
        next.checked_sub(1).map_or(Self::nothing(), |last| Self::up_to(last, 0))
    }

    /// Returns the state of a member. All its records with TSNs up to `tsn` count as received.
    pub(super) fn up_to(tsn: u64, fingerprint: u32) -> Self {
        Self::of(&ReplayWindow::seen_up_to(tsn), fingerprint)
    }

    /// Returns the state of a member with this replay window. `fingerprint` is the fingerprint of the member's newest
    /// record.
    fn of(window: &ReplayWindow, fingerprint: u32) -> Self {
        let (next, seen) = window.parts();
        Self { next: next.min(NEXT) | TAKEN | USED | u64::from(fingerprint) << FINGERPRINT_AT, seen }
    }

    pub(super) const fn is_taken(&self) -> bool {
        self.next & TAKEN != 0
    }

    /// Returns one more than the highest TSN that was accepted.
    pub(super) const fn next(&self) -> u64 {
        self.next & NEXT
    }

    pub(super) fn window(&self) -> ReplayWindow {
        ReplayWindow::from_parts((self.next(), self.seen))
    }

    /// True if the bit [`USED`] is not set. Clears this bit.
    pub(super) const fn is_idle(&mut self) -> bool {
        let used = self.next & USED != 0;
        self.next &= !USED;
        !used
    }

    /// Opens a received record by calling `open`. `tsn` is the TSN of the record, and `fingerprint` is its fingerprint.
    /// If the TSN was already used, the function does not call `open`, with one exception: the TSN is the highest TSN
    /// that the member has used, but the record that used it had another fingerprint. Then the function calls `open` to
    /// check the received record. If it is authentic, another member with the same SenderID or address has sent it (a
    /// clash). A TSN counts as used only if its record was authentic.
    pub(super) fn open<'r>(
        &mut self,
        tsn: u64,
        fingerprint: u32,
        open: impl FnOnce() -> Result<&'r mut [u8], Discard>,
    ) -> Result<Opened<'r>, Discard> {
        let known = self.fingerprint();
        if tsn.wrapping_add(1) == self.next() && known != 0 && known != fingerprint {
            return open().map(|_| Opened::Clash);
        }
        if self.window().fresh(tsn).is_err() {
            return Err(Discard::Replayed);
        }
        let content = open()?;
        self.accept(tsn, fingerprint)?;
        Ok(Opened::Fresh(content))
    }

    /// Accepts the TSN of a record that was opened at a time when its sender had no state.
    ///
    /// # Errors
    /// [`Discard::Replayed`] if the TSN was accepted before, or is too old.
    pub(super) fn accept(&mut self, tsn: u64, fingerprint: u32) -> Result<(), Discard> {
        let mut window = self.window();
        window.fresh(tsn).map_err(|_| Discard::Replayed)?.accept();
        self.keep(&window, tsn, fingerprint);
        Ok(())
    }

    /// Stores the replay window after it has accepted `tsn`, and the fingerprint of the newest record.
    fn keep(&mut self, window: &ReplayWindow, tsn: u64, fingerprint: u32) {
        let newest = if tsn >= self.next() { fingerprint } else { self.fingerprint() };
        *self = Self::of(window, newest);
    }

    /// Returns the fingerprint of the newest record; 0 if it is not known.
    const fn fingerprint(&self) -> u32 {
        (self.next >> FINGERPRINT_AT) as u32
    }
}

/// The state that a listener stores about a sender: the TSNs of the sender, and the key of our responses to it.
pub(super) struct SenderState<const KEY: usize> {
    pub(super) seen: Seen,
    pub(super) key: Secret<KEY>,
    pub(super) id: u8,
}

impl<const KEY: usize> SenderState<KEY> {
    pub(super) const fn none() -> Self {
        Self { seen: Seen::none(), key: Secret::zeroed(), id: 0 }
    }

    /// True if this is the state of the sender `id`.
    pub(super) const fn is_of(&self, id: u8) -> bool {
        self.seen.is_taken() && self.id == id
    }
}

/// The state that a sender stores about a listener: the address and the TSNs of the listener, and the key of the
/// listener's responses to us.
pub(super) struct ListenerState<const KEY: usize> {
    pub(super) seen: Seen,
    pub(super) key: Secret<KEY>,
    pub(super) address: [u8; 16],
}

impl<const KEY: usize> ListenerState<KEY> {
    pub(super) const fn none() -> Self {
        Self { seen: Seen::none(), key: Secret::zeroed(), address: [0; 16] }
    }

    /// True if this is the state of the listener at `address`.
    pub(super) fn is_of(&self, address: &[u8; 16]) -> bool {
        // The addresses are compared as numbers, because a comparison of bytes would be a function call for each
        // state.
        self.seen.is_taken() && u128::from_ne_bytes(self.address) == u128::from_ne_bytes(*address)
    }
}

/// Finds the state of the listener at `address`. If `is_new` is true, finds instead a free element of the array for a
/// new state. The address determines the element at which the search begins, and a new state is stored in the first
/// free element from there on. So most searches end at the first element.
pub(super) fn find<'s, const KEY: usize>(
    states: &'s mut [ListenerState<KEY>],
    address: &[u8; 16],
    is_new: bool,
) -> Option<&'s mut ListenerState<KEY>> {
    let preferred = address.last_chunk().map_or(0, |end| usize::from(u16::from_be_bytes(*end)));
    let first = preferred.checked_rem(states.len()).unwrap_or(0);
    let (last, first) = states.split_at_mut_checked(first)?;
    let is_it = |state: &&mut ListenerState<KEY>| if is_new { !state.seen.is_taken() } else { state.is_of(address) };
    first.iter_mut().chain(last).find(is_it)
}
