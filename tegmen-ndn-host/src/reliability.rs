//! The reliability of NDNLPv2 at one face: an LpPacket that the neighbour does not acknowledge is retransmitted.

use std::collections::VecDeque;
use tegmen_base::time::{Duration, Instant};

/// Maximum number of LpPackets that wait for their acknowledgement. If there are more, the oldest LpPacket is no longer
/// retransmitted.
const MOST: usize = 1_024;

/// Maximum number of acknowledgements that wait to be sent.
const MOST_ACKS: usize = 4_096;

/// Maximum number of retransmissions of an LpPacket.
const RETRANSMISSIONS: u8 = 3;

/// The time in microseconds after which an LpPacket is sent again, while no round-trip time is known. `LEAST` and
/// `LONGEST` are the minimum and the maximum of this time once a round-trip time is known.
const FIRST: u64 = 200_000;
const LEAST: u64 = 50_000;
const LONGEST: u64 = 1_000_000;

/// The time for which the Sequence of a received LpPacket is stored. It is longer than all retransmissions of a neighbour
/// take. A neighbour that restarts may use the same Sequences for other packets.
const REMEMBERED: Duration = Duration::from_secs(5);

/// The state of the reliability at one face.
#[derive(Default)]
pub(crate) struct Reliability {
    next: u64,
    /// The LpPackets that wait for their acknowledgement, in the order in which they were sent.
    waiting: VecDeque<Waiting>,
    acks: VecDeque<u64>,
    /// The Sequences of the last received LpPackets, each with the time of its arrival. The neighbour sends an LpPacket
    /// again with the same Sequence if its acknowledgement was lost.
    received: VecDeque<(u64, Instant)>,
    /// The smoothed round-trip time and its deviation, in microseconds; `None` before the first measurement.
    times: Option<(u64, u64)>,
}

struct Waiting {
    sequence: u64,
    packet: Box<[u8]>,
    sent: Instant,
    retransmissions: u8,
}

/// An LpPacket that must be retransmitted with a new TxSequence.
pub(crate) struct Lost {
    pub(crate) packet: Box<[u8]>,
    pub(crate) retransmissions: u8,
}

impl Reliability {
    /// Makes the state of a face whose first TxSequence is `next`.
    pub(crate) fn beginning_at(next: u64) -> Self {
        Self { next, ..Self::default() }
    }

    /// Returns the TxSequence of the next LpPacket.
    pub(crate) const fn sequence(&mut self) -> u64 {
        let sequence = self.next;
        self.next = sequence.wrapping_add(1);
        sequence
    }

    /// Keeps an LpPacket with this TxSequence until it is acknowledged. `retransmissions` is 0 for a new LpPacket.
    pub(crate) fn keep(&mut self, now: Instant, sequence: u64, packet: Box<[u8]>, retransmissions: u8) {
        if self.waiting.len() == MOST {
            self.waiting.pop_front();
        }
        self.waiting.push_back(Waiting { sequence, packet, sent: now, retransmissions });
    }

    /// Records the TxSequence of a received LpPacket, so that this LpPacket is acknowledged.
    pub(crate) fn received(&mut self, sequence: u64) {
        if self.acks.len() < MOST_ACKS {
            self.acks.push_back(sequence);
        }
    }

    /// Returns true if no LpPacket with this Sequence was received in the last 5 seconds, and records the Sequence.
    pub(crate) fn is_new(&mut self, now: Instant, sequence: u64) -> bool {
        while self.received.pop_front_if(|(_, at)| at.after(REMEMBERED) <= now).is_some() {}
        if self.received.iter().any(|(known, _)| *known == sequence) {
            return false;
        }
        if self.received.len() == MOST {
            self.received.pop_front();
        }
        self.received.push_back((sequence, now));
        true
    }

    /// Removes and returns up to `most` acknowledgements to send.
    pub(crate) fn take_acks(&mut self, most: usize) -> Vec<u64> {
        self.acks.drain(..most.min(self.acks.len())).collect()
    }

    /// Processes an acknowledgement of the neighbour.
    pub(crate) fn acknowledged(&mut self, now: Instant, sequence: u64) {
        let Some(place) = self.waiting.iter().position(|waiting| waiting.sequence == sequence) else { return };
        let Some(waiting) = self.waiting.remove(place) else { return };
        let micros = now.as_micros().saturating_sub(waiting.sent.as_micros());
        // As in RFC 6298, section 2.
        self.times = Some(match self.times {
            None => (micros, micros / 2),
            Some((smoothed, deviation)) => {
                ((7 * smoothed + micros) / 8, (3 * deviation + smoothed.abs_diff(micros)) / 4)
            }
        });
    }

    /// Removes and returns an LpPacket whose acknowledgement is overdue.
    pub(crate) fn take_lost(&mut self, now: Instant) -> Option<Lost> {
        let timeout =
            self.times.map_or(FIRST, |(smoothed, deviation)| (smoothed + 4 * deviation).clamp(LEAST, LONGEST));
        loop {
            let first = self.waiting.front()?;
            if now < first.sent.after(Duration::from_micros(timeout)) {
                return None;
            }
            let Waiting { packet, retransmissions, .. } = self.waiting.pop_front()?;
            if retransmissions < RETRANSMISSIONS {
                return Some(Lost { packet, retransmissions: retransmissions + 1 });
            }
        }
    }

    /// Returns true if no LpPacket and no acknowledgement is waiting.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.acks.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Instant {
        Instant::from_micros(1_000_000 + millis * 1_000)
    }

    #[test]
    fn a_packet_without_an_acknowledgement_is_sent_again_three_times() {
        let mut face = Reliability::default();
        let (mut sent, mut now) = (0, 0);
        let sequence = face.sequence();
        face.keep(at(0), sequence, Box::from(*b"packet"), 0);
        while !face.is_idle() {
            now += 20;
            while let Some(lost) = face.take_lost(at(now)) {
                assert_eq!(&*lost.packet, b"packet");
                sent += 1;
                let sequence = face.sequence();
                face.keep(at(now), sequence, lost.packet, lost.retransmissions);
            }
            assert!(now < 10_000);
        }
        assert_eq!((sent, face.next), (3, 4));
    }

    #[test]
    fn an_acknowledged_packet_is_not_sent_again_and_sets_the_timeout() {
        let mut face = Reliability::default();
        for round in 0..20 {
            let sequence = face.sequence();
            face.keep(at(round * 100), sequence, Box::default(), 0);
            assert!(face.take_lost(at(round * 100 + 10)).is_none());
            face.acknowledged(at(round * 100 + 10), sequence);
            assert!(face.is_idle());
        }
        let sequence = face.sequence();
        face.keep(at(5_000), sequence, Box::default(), 0);
        assert!(face.take_lost(at(5_049)).is_none());
        assert!(face.take_lost(at(5_050)).is_some(), "the time-out is at its least");
        // One that is acknowledged late, or twice, changes nothing.
        face.acknowledged(at(5_060), sequence);
    }

    #[test]
    fn the_memory_of_a_face_is_bounded() {
        let mut face = Reliability::default();
        for number in 0..10_000 {
            let sequence = face.sequence();
            face.keep(at(0), sequence, Box::default(), 0);
            face.received(number);
        }
        for number in 0..10_000 {
            assert!(face.is_new(at(0), number));
            assert!(!face.is_new(at(4_999), number));
        }
        assert_eq!((face.waiting.len(), face.acks.len(), face.received.len()), (MOST, MOST_ACKS, MOST));
        assert!(face.is_new(at(5_000), 9_999));
        assert_eq!((face.received.len(), face.take_acks(3)), (1, vec![0, 1, 2]));
    }
}
