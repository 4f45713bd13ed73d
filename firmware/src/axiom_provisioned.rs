//! A member of a protected group (Axiom) that is provisioned with its keys, and takes the rekey messages of the controller. It
//! has no session.
//!
//! Its numbers are reserved in flash memory before it uses them. The secrets of a later epoch are in RAM only: the flash
//! memory has the number of the epoch, and after a restart the member stays silent until it is provisioned again.

use super::Provider;
use super::axiom_group::{LEVELS, Provisioning, packed, unpacked};
use tegmen::axiom::{Association, KeyPath, Member, Rekeyed};
use tegmen_flash::{Flash, Kept};

/// A member, with all that it has of its group.
pub struct Provisioned<F, const SENDERS: usize, const LISTENERS: usize> {
    /// The member. It is not moved: it may have states of hundreds of listeners.
    pub member: &'static mut Member<SENDERS, LISTENERS>,
    /// The cipher and the randomness.
    pub crypto: Provider,
    path: KeyPath<LEVELS>,
    provisioning: &'static Provisioning,
    /// The end of the leases, as [`packed`] makes one number of it.
    kept: Kept<F>,
}

impl<F: Flash, const SENDERS: usize, const LISTENERS: usize> Provisioned<F, SENDERS, LISTENERS> {
    /// A member in the epoch of its provisioning, whose numbers continue after those that were kept; `None` if the flash memory has
    /// a later epoch, or does not work.
    pub fn new(
        member: &'static mut Member<SENDERS, LISTENERS>,
        mut crypto: Provider,
        provisioning: &'static Provisioning,
        kept: Kept<F>,
    ) -> Option<Self> {
        let path = KeyPath::new(&provisioning.admission).ok()?;
        let secret = path.master_secret::<Provider>();
        let association = Association { master_secret: secret.expose(), ..provisioning.association };
        member.begin(&mut crypto, &association, &unpacked(kept.value())).ok()?;
        for sender in provisioning.senders {
            member.know_sender::<Provider>(*sender, 0).ok()?;
        }
        let mut made = Self { member, crypto, path, provisioning, kept };
        made.reserve()?;
        Some(made)
    }

    /// Takes a rekey message. Returns true if the next epoch has begun.
    #[inline(never)]
    pub fn rekey(&mut self, message: &[u8]) -> bool {
        let Self { member, crypto, path, provisioning, .. } = self;
        // It has no public key of the controller, so it gets node messages that are for it alone.
        if path.open(crypto, None, message) != Ok(Rekeyed::Epoch) {
            return false;
        }
        let secret = path.master_secret::<Provider>();
        let association =
            Association { epoch: path.epoch(), master_secret: secret.expose(), ..provisioning.association };
        member.rekey(crypto, &association).is_ok()
    }

    /// Reserves numbers in flash memory if few are left. Returns `None` if that fails.
    #[inline(never)]
    pub fn reserve(&mut self) -> Option<()> {
        let (requests, responses) = self.member.left();
        let is_low = |left, uses| uses && left < CHUNK / 2;
        if is_low(requests, LISTENERS > 0) || is_low(responses, SENDERS > 0) {
            let chunk = |uses| if uses { CHUNK } else { 0 };
            let reservation = self.member.reserve(chunk(LISTENERS > 0), chunk(SENDERS > 0));
            self.kept.keep(packed(&reservation)).ok()?;
            self.member.extend(&reservation);
        }
        Some(())
    }

    /// Returns the numbers of the next request and of the next response.
    pub const fn next(&self) -> (u64, u64) {
        let (end, (requests, responses)) = (self.member.reserve(0, 0), self.member.left());
        (end.requests.wrapping_sub(requests), end.responses.wrapping_sub(responses))
    }
}

/// True if a datagram is a rekey message: the first bytes of records are higher.
pub fn is_rekey_message(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|kind| *kind <= LAST_KIND)
}

/// Numbers in a reservation.
const CHUNK: u64 = 256;
/// The highest first byte of a rekey message.
const LAST_KIND: u8 = 3;
