//! A forwarder: it forwards Interests towards producers, and returns Data packets to all faces that requested them.
//!
//! The owner of a forwarder is the program that contains it. The owner passes each packet that a face receives to
//! [`Forwarder::on_interest`], [`Forwarder::on_data`] or [`Forwarder::on_nack`], and calls [`Forwarder::on_timeout`] at
//! [`Forwarder::next_timeout`]. The forwarder sends packets through [`Faces`]. The owner supplies the
//! [tables](crate::tables). The module [`fixed`](crate::fixed) has tables of fixed size for devices.

use crate::MAX_HEAD;
use crate::data::ReceivedData;
use crate::interest::{DEFAULT_LIFETIME, Fields, Interest, ReceivedInterest, decrement_hops};
use crate::lp::NackReason;
use crate::name::Name;
use crate::tables::{
    Entry, FaceId, Fib, InRecord, List, OutRecord, Pit, PitId, Refused, Store, Strategy, Tick, millis_of,
};
use crate::tlv::Extent;
use core::time::Duration;
use tegmen_base::buf::Frame;
use tegmen_base::crypto::Crypto;
use tegmen_base::time::Instant;

/// The faces through which a forwarder sends packets. A face is a link to another node or to an application.
pub trait Faces<K> {
    /// Returns true for a face of an application on the same host. Packets with names under `/localhost` use only
    /// such faces.
    fn is_local(&self, face: FaceId) -> bool;

    /// Sends a packet. A packet that cannot be sent is lost.
    fn send(&mut self, to: FaceId, packet: Outgoing<'_, K>);
}

/// A packet to send.
#[derive(Clone, Copy, Debug)]
pub enum Outgoing<'p, K> {
    /// An Interest, and its entry in the table of pending Interests.
    Interest(&'p [u8], PitId),
    /// A Data packet, and the PitToken of the Interest that the packet answers.
    Data(&'p [u8], K),
    /// A Nack: an Interest that is not answered, the reason, and the PitToken of the Interest.
    Nack(&'p [u8], NackReason, K),
}

/// The reason why a packet is not forwarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dropped {
    /// The bytes are not a packet, an Interest has no Nonce, or a digest of parameters is wrong.
    Malformed,
    /// The HopLimit of an Interest is 0.
    HopLimit,
    /// A name under `/localhost` arrived on a face that is not local.
    Scope,
    /// A Data packet arrived from a face to which no pending Interest for this packet was sent.
    Unsolicited,
    /// The owner of the forwarder refused the signature of a Data packet.
    NotAuthentic,
    /// The Interest has arrived before, in a loop. The forwarder sends a Nack to the face that sent the Interest.
    Duplicate,
    /// No next hop is known. The forwarder sends a Nack to the face that sent the Interest.
    NoRoute,
    /// The table of Interests is full. The forwarder sends a Nack to the face that sent the Interest.
    Full,
    /// A Nack arrived from a face to which no pending Interest with this name and Nonce was sent.
    UnknownNack,
}

impl Dropped {
    /// Returns the reason of the Nack that the forwarder sends to the face that sent the Interest.
    const fn reason(self) -> Option<NackReason> {
        match self {
            Self::Duplicate => Some(NackReason::DUPLICATE),
            Self::NoRoute => Some(NackReason::NO_ROUTE),
            Self::Full => Some(NackReason::CONGESTION),
            _ => None,
        }
    }
}

/// The result of processing a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// An Interest was sent to next hops.
    Forwarded,
    /// Nothing was sent. The packet is an Interest for a name that was requested before and is not answered yet, or a
    /// Nack to an Interest that another next hop may still answer.
    Waits,
    /// An Interest was answered from the content store.
    Stored,
    /// A Data packet or a Nack was sent to the faces that requested the name.
    Returned,
}

/// The time limits of a forwarder for an Interest.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// The longest time for which an Interest is stored.
    pub longest_lifetime: Duration,
    /// A time that begins when an Interest is sent. During this time the forwarder does not forward an Interest with
    /// the same name and another Nonce. A Nack of the next hop ends this time.
    pub suppression: Duration,
    /// The time after which an Interest is retransmitted to the same next hop, on links that lose frames.
    pub retransmission: Duration,
    /// The maximum number of retransmissions of an Interest to one next hop, at most 63. If this number is 0, the
    /// forwarder retransmits no Interest, and only consumers repeat their Interests.
    pub retransmissions: u8,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            longest_lifetime: Duration::from_secs(60),
            suppression: Duration::from_millis(10),
            retransmission: Duration::from_millis(500),
            retransmissions: 0,
        }
    }
}

/// A forwarder with its tables.
#[derive(Debug, Default)]
pub struct Forwarder<F, P, S> {
    /// The next hops of prefixes.
    pub fib: F,
    /// The pending Interests.
    pub pit: P,
    /// The content store.
    pub store: S,
    /// The time limits for an Interest.
    pub times: Times,
    /// The state of the generator for the nonces of retransmissions. The owner of the forwarder sets this field to a
    /// random number at the start.
    pub random: u32,
}

/// An Interest that is being forwarded.
struct Passing<'p> {
    packet: &'p [u8],
    nonce: [u8; 4],
    hops: Option<u8>,
    /// The face that sent the Interest, or `None` if the Interest is sent again because a next hop did not answer it.
    from: Option<FaceId>,
}

impl Passing<'_> {
    /// Sends the Interest to a next hop, and records this in its entry. Returns false if the entry has no space for the
    /// record. The Interest is then not sent.
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    fn send<K>(
        &self,
        face: FaceId,
        now: Tick,
        id: PitId,
        entry: &mut Entry<impl Sized, impl List<OutRecord>>,
        faces: &mut impl Faces<K>,
    ) -> bool {
        let is_recorded = entry.send(OutRecord::new(face, self.nonce, now));
        if is_recorded {
            faces.send(face, Outgoing::Interest(self.packet, id));
        }
        is_recorded
    }
}

impl<F: Fib, P: Pit, S: Store> Forwarder<F, P, S> {
    /// Processes the Interest in `packet`, which arrived with the PitToken `token`. Decrements the HopLimit in
    /// `packet`.
    ///
    /// # Errors
    /// [`Dropped`].
    pub fn on_interest<C: Crypto>(
        &mut self,
        now: Instant,
        from: FaceId,
        packet: &mut [u8],
        token: P::Token,
        faces: &mut impl Faces<P::Token>,
    ) -> Result<Outcome, Dropped> {
        if !decrement_hops(packet) {
            return Err(Dropped::HopLimit);
        }
        let packet = &*packet;
        let result = self.pass_interest::<C>(now, from, packet, token, faces);
        if let Err(dropped) = result
            && let Some(reason) = dropped.reason()
        {
            faces.send(from, Outgoing::Nack(packet, reason, token));
        }
        result
    }

    fn pass_interest<C: Crypto>(
        &mut self,
        now: Instant,
        from: FaceId,
        packet: &[u8],
        token: P::Token,
        faces: &mut impl Faces<P::Token>,
    ) -> Result<Outcome, Dropped> {
        let mut received = ReceivedInterest::unread(packet);
        let mut fields = Fields::default();
        received.read(&mut fields, Extent::Known).map_err(|_| Dropped::Malformed)?;
        if P::HAS_PARAMETERS && (received.read_parameters(&fields).is_err() || !received.has_valid_digest::<C>()) {
            return Err(Dropped::Malformed);
        }
        let interest = &received.interest;
        let nonce = interest.nonce.ok_or(Dropped::Malformed)?;
        if is_localhost(&interest.name) && !faces.is_local(from) {
            return Err(Dropped::Scope);
        }
        let found = self.pit.find(interest);
        let loops = match found {
            Some(id) => self.pit.entry(id).is_some_and(|entry| entry.loops(from, nonce)),
            None => self.pit.is_dead(&interest.name, nonce),
        };
        if loops {
            return Err(Dropped::Duplicate);
        }
        if found.is_none()
            && let Some(data) = self.store.find(now, interest)
        {
            faces.send(from, Outgoing::Data(data, token));
            return Ok(Outcome::Stored);
        }
        let (begin, lifetime) = (Tick::of(now), interest.lifetime.unwrap_or(DEFAULT_LIFETIME));
        let expires = begin.after_millis(lifetime).earlier(begin.after(self.times.longest_lifetime));
        let id = found.or_else(|| self.pit.insert(from, &received, expires));
        // If a face requests the name for the first time, and a next hop may still answer, the face waits for this
        // answer. If a face repeats its Interest, the forwarder also repeats the Interest.
        let mut waits = false;
        let is_kept = id.and_then(|id| self.pit.entry(id)).is_some_and(|entry| {
            entry.expires = entry.expires.later(expires);
            let is_repeated = entry.asked.as_slice().iter().any(|asked| asked.face == from);
            waits = !is_repeated && entry.sent.as_slice().iter().any(|sent| sent.nack().is_none());
            entry.ask(InRecord { face: from, nonce, token })
        });
        let id = id.filter(|_| is_kept).ok_or(Dropped::Full)?;
        let passing = Passing { packet, nonce, hops: interest.hop_limit, from: Some(from) };
        let is_sent = !waits && self.forward(begin, id, &interest.name, &passing, faces);
        if !self.set_timer(begin, id) {
            self.pit.remove(id);
            return Err(Dropped::NoRoute);
        }
        Ok(if is_sent { Outcome::Forwarded } else { Outcome::Waits })
    }

    /// Sends an Interest to the next hops that the strategy chooses. Returns false if nothing was sent.
    fn forward(
        &mut self,
        now: Tick,
        id: PitId,
        name: &Name<'_>,
        passing: &Passing<'_>,
        faces: &mut impl Faces<P::Token>,
    ) -> bool {
        let (strategy, hops) = self.fib.next_hops(name);
        let (is_localhop, is_localhost) = (is_localhop(name), is_localhost(name));
        let Some(entry) = self.pit.entry(id) else { return false };
        // An Interest with a name under `/localhop` may pass only one link between hosts.
        let has_passed = is_localhop && entry.asked.as_slice().iter().any(|asked| !faces.is_local(asked.face));
        let is_local = is_localhost || has_passed || passing.hops == Some(0);
        let suppression = self.times.suppression;
        let suppressed = |sent: &OutRecord| sent.nack().is_none() && now.is_before(sent.at(now).after(suppression));
        if entry.sent.as_slice().iter().any(suppressed) {
            return false;
        }
        let (mut best, mut is_sent) = (None, false);
        for hop in hops {
            let face = hop.face;
            let asks = match passing.from {
                Some(from) => from == face,
                None => entry.asked.as_slice().iter().any(|asked| asked.face == face),
            };
            if asks || (is_local && !faces.is_local(face)) {
                continue;
            }
            let tried = entry.sent.as_slice().iter().find(|sent| sent.face == face);
            // Chooses the next hop with the lowest cost to which the Interest was not sent yet. If there is none,
            // chooses the next hop to which it was sent the longest time ago. A time since an Interest was sent has 24
            // bits, so its rank is above each cost.
            let rank = match tried {
                None => hop.cost.into(),
                Some(_) if passing.from.is_none() => continue,
                Some(sent) => u32::MAX.wrapping_sub(now.since(sent.at(now))),
            };
            match strategy {
                Strategy::Multicast => is_sent |= passing.send(face, now, id, entry, faces),
                Strategy::BestRoute if best.is_none_or(|(least, _)| rank < least) => best = Some((rank, face)),
                Strategy::BestRoute => {}
            }
        }
        match best {
            Some((_, face)) => passing.send(face, now, id, entry, faces),
            None => is_sent,
        }
    }

    /// Processes a Data packet. `is_authentic` returns false if the owner of the forwarder refuses the signature of the
    /// packet. The packet is then neither stored nor forwarded.
    ///
    /// # Errors
    /// [`Dropped`].
    pub fn on_data<C: Crypto>(
        &mut self,
        now: Instant,
        from: FaceId,
        packet: &[u8],
        is_authentic: &mut dyn FnMut(&ReceivedData<'_>) -> bool,
        faces: &mut impl Faces<P::Token>,
    ) -> Result<Outcome, Dropped> {
        let mut received = ReceivedData::unread(packet);
        received.read(Extent::Known).map_err(|_| Dropped::Malformed)?;
        let name = &received.data.name;
        if is_localhost(name) && !faces.is_local(from) {
            return Err(Dropped::Scope);
        }
        let digest = self.pit.has_digests().then(|| received.implicit_digest::<C>());
        let mut is_stored = false;
        while let Some(id) = self.pit.matching(name, digest.as_ref(), from) {
            if !is_stored {
                if !is_authentic(&received) {
                    return Err(Dropped::NotAuthentic);
                }
                self.store.insert(now, &received);
                is_stored = true;
            }
            if let Some(entry) = self.pit.entry(id) {
                for asked in entry.asked.as_slice().iter().filter(|asked| asked.face != from) {
                    faces.send(asked.face, Outgoing::Data(packet, asked.token));
                }
            }
            self.pit.remove(id);
        }
        if is_stored { Ok(Outcome::Returned) } else { Err(Dropped::Unsolicited) }
    }

    /// Processes a Nack: the next hop `from` does not answer an Interest of this forwarder.
    ///
    /// # Errors
    /// [`Dropped`].
    pub fn on_nack(
        &mut self,
        now: Instant,
        from: FaceId,
        packet: &[u8],
        reason: NackReason,
        faces: &mut impl Faces<P::Token>,
    ) -> Result<Outcome, Dropped> {
        let received = ReceivedInterest::parse(packet).map_err(|_| Dropped::Malformed)?;
        let nonce = received.interest.nonce.ok_or(Dropped::Malformed)?;
        let id = self.pit.find(&received.interest).ok_or(Dropped::UnknownNack)?;
        let entry = self.pit.entry(id).ok_or(Dropped::UnknownNack)?;
        let is_it = |sent: &&mut OutRecord| sent.face == from && sent.nonce == nonce;
        let sent = entry.sent.as_mut_slice().iter_mut().find(is_it).ok_or(Dropped::UnknownNack)?;
        sent.set_nack(Refused::of(reason));
        let passing = Passing { packet, nonce, hops: received.interest.hop_limit, from: None };
        let now = Tick::of(now);
        if self.forward(now, id, &received.interest.name, &passing, faces) {
            self.set_timer(now, id);
            return Ok(Outcome::Forwarded);
        }
        let entry = self.pit.entry(id).ok_or(Dropped::UnknownNack)?;
        let mut least = Refused::NoRoute;
        for sent in entry.sent.as_slice() {
            // If a next hop has sent no Nack, it may still answer.
            let Some(nack) = sent.nack() else { return Ok(Outcome::Waits) };
            least = least.min(nack);
        }
        for asked in entry.asked.as_slice() {
            faces.send(asked.face, Outgoing::Nack(packet, least.reason(), asked.token));
        }
        self.pit.remove(id);
        Ok(Outcome::Returned)
    }

    /// Sets the timer of the entry of an Interest to the time of the next retransmission, or to the time at which the
    /// Interest expires if no retransmission remains. Returns false if the Interest was sent to no next hop.
    fn set_timer(&mut self, now: Tick, id: PitId) -> bool {
        let Self { pit, times, .. } = self;
        let Some(entry) = pit.entry(id) else { return false };
        let is_sent = !entry.sent.as_slice().is_empty();
        let again = entry.sent.as_slice().iter().filter_map(|sent| times.again(sent, now));
        let at = again.fold(entry.expires, Tick::earlier);
        pit.set_timer(id, at);
        is_sent
    }

    /// Returns the time at which [`Self::on_timeout`] must be called.
    pub fn next_timeout(&self) -> Option<Tick> {
        self.pit.next_timer()
    }

    /// Removes the Interests whose lifetime is over. Retransmits other Interests if their next retransmission is due.
    /// `storage` is free space for one Interest.
    pub fn on_timeout(&mut self, now: Instant, storage: &mut [u8], faces: &mut impl Faces<P::Token>) {
        let now = Tick::of(now);
        while let Some(id) = self.pit.due(now) {
            let Some(entry) = self.pit.entry(id) else { continue };
            if now.is_before(entry.expires) {
                self.send_again(now, id, storage, faces);
                self.set_timer(now, id);
            } else {
                self.pit.remove(id);
            }
        }
    }

    /// Retransmits an Interest to each next hop for which the time of the next retransmission has arrived. Each
    /// retransmission has a new Nonce.
    fn send_again(&mut self, now: Tick, id: PitId, storage: &mut [u8], faces: &mut impl Faces<P::Token>) {
        let Self { pit, times, random, .. } = self;
        let is_due = |sent: &OutRecord| times.again(sent, now).is_some_and(|at| !now.is_before(at));
        loop {
            let Some(entry) = pit.entry(id) else { return };
            let (lifetime, hop_limit) = (millis_of(entry.expires.since(now)).into(), entry.hop_limit());
            let Some(sent) = entry.sent.as_mut_slice().iter_mut().find(|sent| is_due(sent)) else { return };
            // A retransmission needs another nonce, because the next hop would treat the same nonce as a loop. Nonces
            // must be unlikely to repeat, but they need not be secret.
            *random = random.wrapping_mul(0x0019_660d).wrapping_add(0x3c6e_f35f);
            sent.repeat(random.to_be_bytes(), now);
            let (face, nonce) = (sent.face, Some(sent.nonce));
            let Some(interest) = pit.interest(id) else { continue };
            let interest = Interest { nonce, lifetime: Some(lifetime), hop_limit, ..interest };
            let mut frame = Frame::new(storage, MAX_HEAD);
            if interest.write_without_parameters(&mut frame).is_ok() {
                faces.send(face, Outgoing::Interest(frame.bytes(), id));
            }
        }
    }
}

impl Times {
    /// Returns the time of the next retransmission to a next hop. Returns `None` if no retransmission remains, or if
    /// the next hop has sent a Nack.
    fn again(&self, sent: &OutRecord, now: Tick) -> Option<Tick> {
        let is_repeated = sent.retries() < self.retransmissions && sent.nack().is_none();
        is_repeated.then(|| sent.at(now).after(self.retransmission))
    }
}

/// Returns true for a name under `/localhop`, which only neighbours exchange.
fn is_localhop(name: &Name<'_>) -> bool {
    name.as_bytes().starts_with(b"\x08\x08localhop")
}

/// Returns true for a name under `/localhost`, which must not leave the host.
#[cfg_attr(not(target_pointer_width = "64"), inline(never))]
fn is_localhost(name: &Name<'_>) -> bool {
    name.as_bytes().starts_with(b"\x08\x09localhost")
}
