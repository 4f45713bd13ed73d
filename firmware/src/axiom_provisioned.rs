//! A member of a protected group (Axiom). The member has its keys, and processes the rekey messages of the controller.
//!
//! The member reserves its record numbers in flash memory before it uses them. The secrets are only in RAM. The flash
//! memory contains the number of the epoch, so after a restart the member refuses keys of an earlier epoch.

use super::Provider;
use super::asking::REQUEST_LEN;
use super::axiom_group::{LEVELS, Provisioning, packed, unpacked};
use tegmen::axiom::{Association, KeyPath, Member, Rekeyed};
use tegmen::buf::Frame;
use tegmen::secret::Secret;
use tegmen_flash::{Flash, Kept};

/// A member of a group, with its keys and its record numbers.
pub struct Provisioned<F, const SENDERS: usize, const LISTENERS: usize> {
    /// The member. This is a reference, so that the states of hundreds of listeners are not moved.
    pub member: &'static mut Member<SENDERS, LISTENERS>,
    /// The cryptographic provider: cipher and randomness.
    pub crypto: Provider,
    path: KeyPath<LEVELS>,
    /// The security association of the group. Its master secret, its client random and its server random are zero here.
    association: Association<'static>,
    /// The random bytes of the controller: client random and server random.
    randoms: [[u8; 32]; 2],
    /// The flash memory. It stores the epoch, and the ends of the reserved record numbers of requests and of responses.
    /// [`packed`] encodes these three values as one number.
    kept: Kept<F>,
}

impl<F: Flash, const SENDERS: usize, const LISTENERS: usize> Provisioned<F, SENDERS, LISTENERS> {
    /// Creates a member in the epoch of its provisioning. Its record numbers continue after the reserved record numbers
    /// in flash memory. Returns `None` if the flash memory contains a later epoch, or does not work. In an epoch that
    /// is not in the flash memory, the record numbers begin at 0. So no other device may use the admission (the secrets
    /// of the member) in `provisioning`. After a restart a member joins again, or is provisioned with the same keys.
    pub fn new(
        member: &'static mut Member<SENDERS, LISTENERS>,
        crypto: Provider,
        provisioning: &Provisioning<'_>,
        kept: Kept<F>,
    ) -> Option<Self> {
        let path = KeyPath::new(&provisioning.admission).ok()?;
        let (association, randoms) = durable(&provisioning.association);
        let mut made = Self { member, crypto, path, association, randoms, kept };
        made.begin(provisioning)?;
        Some(made)
    }

    /// Takes the parameters that the controller sent because this member has missed a message. Returns `None` if the
    /// parameters are those of another group, of an earlier epoch, or of another admission of this member. If the
    /// admission is another one, another device has joined with the credentials of this member, and seals records with
    /// the same keys and the same record numbers. Parameters of the current epoch change nothing.
    pub fn catch_up(&mut self, provisioning: &Provisioning<'_>) -> Option<()> {
        if provisioning.admission.epoch == self.path.epoch() {
            return Some(());
        }
        self.path.catch_up(&provisioning.admission).ok()?;
        (self.association, self.randoms) = durable(&provisioning.association);
        self.begin(provisioning)
    }

    fn begin(&mut self, provisioning: &Provisioning<'_>) -> Option<()> {
        let secret = self.path.master_secret::<Provider>();
        let association = Association { master_secret: secret.expose(), ..provisioning.association };
        self.member.begin(&mut self.crypto, &association, &unpacked(self.kept.value())).ok()?;
        for sender in provisioning.senders {
            self.member.know_sender::<Provider>(*sender, 0).ok()?;
        }
        self.reserve()
    }

    /// Returns the current epoch.
    pub const fn epoch(&self) -> u16 {
        self.path.epoch()
    }

    /// Processes a rekey message. Returns its effect, or `None` if the message is dropped.
    #[inline(never)]
    pub fn rekey(&mut self, message: &[u8]) -> Option<Rekeyed> {
        let Self { member, crypto, path, association, randoms: [client_random, server_random], .. } = self;
        // The member has no public key of the controller (`None`), so it accepts only node messages that are for this
        // member alone.
        let result = path.open(crypto, None, message).ok()?;
        if result == Rekeyed::Epoch {
            let secret: Secret<48> = path.master_secret::<Provider>();
            let epoch = path.epoch();
            let master_secret = secret.expose();
            let association = Association { epoch, master_secret, client_random, server_random, ..*association };
            // The association belongs to the next epoch, so `Member::rekey` succeeds.
            let _ = member.rekey(crypto, &association);
        }
        Some(result)
    }

    /// Reserves more record numbers in flash memory if few reserved record numbers are left. Returns `None` if the
    /// flash memory does not work.
    #[inline(never)]
    pub fn reserve(&mut self) -> Option<()> {
        let (requests, responses) = self.member.left();
        // A listener has space for states of senders, and seals responses. Each other member seals requests.
        let (sends, answers) = (SENDERS == 0, SENDERS > 0);
        let is_low = |left, uses| uses && left < CHUNK / 2;
        if is_low(requests, sends) || is_low(responses, answers) {
            let chunk = |uses| if uses { CHUNK } else { 0 };
            let reservation = self.member.reserve(chunk(sends), chunk(answers));
            self.kept.keep(packed(&reservation)).ok()?;
            self.member.extend(&reservation);
        }
        Some(())
    }

    /// Writes a request to the group into `out`. `write` writes the CoAP message; its argument is the record number.
    /// Returns the record number and the record. Returns `None` if no record number is left in this epoch, if the flash
    /// memory does not work, or if the request does not fit `out`.
    #[inline(always)]
    pub fn request<'o>(
        &mut self,
        out: &'o mut [u8; REQUEST_LEN],
        write: impl FnOnce(u64, &mut Frame<'_>) -> Option<()>,
    ) -> Option<(u64, &'o [u8])> {
        self.reserve()?;
        let (number, _) = self.next();
        let (before, behind) = self.member.overhead();
        let mut frame = Frame::new(out.get_mut(..REQUEST_LEN - behind)?, before);
        write(number, &mut frame)?;
        let (start, end) = frame.place();
        let mut frame = Frame::around(out, start, end);
        let asked = self.member.seal_request(&mut self.crypto, &mut frame).ok()?;
        let (start, end) = frame.place();
        Some((asked, out.get(start..end)?))
    }

    /// Returns the record numbers of the next request and of the next response.
    pub const fn next(&self) -> (u64, u64) {
        let (end, (requests, responses)) = (self.member.reserve(0, 0), self.member.left());
        (end.requests.wrapping_sub(requests), end.responses.wrapping_sub(responses))
    }
}

/// Splits a security association of the group. Returns the part that is the same in all epochs, and the client random
/// and the server random of the controller. Neither of the returned values borrows memory from the argument.
const fn durable(association: &Association<'_>) -> (Association<'static>, [[u8; 32]; 2]) {
    let Association { group_id, group, suite, epoch, senders, sender_id, address, .. } = *association;
    let (master_secret, nothing) = (&[0; 48], &[0; 32]);
    let of_group = Association {
        group_id,
        group,
        suite,
        epoch,
        senders,
        sender_id,
        address,
        master_secret,
        client_random: nothing,
        server_random: nothing,
    };
    (of_group, [*association.client_random, *association.server_random])
}

/// Returns true if a datagram is a rekey message. The first bytes of records are higher than `LAST_KIND`.
pub fn is_rekey_message(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|kind| *kind <= LAST_KIND)
}

/// Number of record numbers that one call of [`Provisioned::reserve`] reserves for requests or for responses.
const CHUNK: u64 = 256;
/// The highest first byte of a rekey message.
const LAST_KIND: u8 = 3;
