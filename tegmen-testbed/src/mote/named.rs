//! A simulated node of Named Data Networking. It contains the forwarder of the library, with tables of a fixed size,
//! and an application. The application either requests readings, or answers requests for readings.
//!
//! Each node on the path retransmits an Interest to the next node on the path, as in the paper on content object
//! security (`papers::objects`). Only nodes that forward packets have a content store. A forwarder verifies no
//! signature; a consumer verifies every signature.

pub mod packets;
mod tables;

use super::{Mote, Part, Setup, Wish};
use crate::cost::NdnCosts;
use crate::sim::random::{Purpose, Stream};
use packets::{LIFETIME_MS, Producer, RETRANSMISSION_MS, RETRANSMISSIONS, interest, is_reading, name_of, prefix};
use std::collections::{BTreeMap, VecDeque};
use tables::{Hops, Shelf};
use tegmen::address::Address;
use tegmen::crypto::Compact;
use tegmen::time::{Duration, Instant};
use tegmen_ndn::fixed::FixedPit;
use tegmen_ndn::forwarder::{Faces, Forwarder, Outgoing, Times};
use tegmen_ndn::tables::FaceId;
use tegmen_ndn::{Component, Name, ReceivedData, ReceivedInterest};

/// A node with a forwarder and an application.
pub struct NamedNode {
    setup: Setup,
    costs: NdnCosts,
    forwarder: Box<Forwarder<Hops, FixedPit<WAITING, NAME, ASKED, SENT, DEAD>, Shelf>>,
    crypto: Compact,
    random: Stream,
    /// The addresses of the neighbours. The index of an address determines the face of the neighbour.
    neighbours: Vec<Address>,
    /// The producers at this node, each under the prefix of its readings.
    producers: BTreeMap<Vec<u8>, Producer>,
    asks: Asks,
    /// Number of Interests that the application of this node has made.
    made: u64,
    /// The pending requests of a consumer. Each entry has the name, the number of the producer, and the time of the
    /// request.
    asked: Vec<(Vec<u8>, u16, Instant)>,
    sent: Sent,
    alarm: Option<Instant>,
    instructions: u64,
}

/// The readings that the application of a node requests.
enum Asks {
    /// No readings.
    Nothing,
    /// All readings of the producer with this number, in order.
    Each(u16),
    /// Random readings of all producers. The first request is for a reading of the first producer, and the next request
    /// for a reading of the next producer. The first producer follows the last producer.
    Any { producers: usize },
}

/// The packets that the forwarder sends, in order. Each packet has the face over which it is sent.
#[derive(Default)]
struct Sent(VecDeque<(FaceId, Packet)>);

enum Packet {
    Interest(Vec<u8>),
    Data(Vec<u8>),
    /// A Nack, with the Interest to which it belongs. It is never sent to a neighbour, because the frames of RFC 9139
    /// have no Nack.
    Nack(Vec<u8>),
}

impl Faces<()> for Sent {
    fn is_local(&self, face: FaceId) -> bool {
        face == APPLICATION
    }

    fn send(&mut self, to: FaceId, packet: Outgoing<'_, ()>) {
        let packet = match packet {
            Outgoing::Interest(packet, _) => Packet::Interest(packet.to_vec()),
            Outgoing::Data(packet, ()) => Packet::Data(packet.to_vec()),
            Outgoing::Nack(packet, ..) => Packet::Nack(packet.to_vec()),
        };
        self.0.push_back((to, packet));
    }
}

impl NamedNode {
    fn empty(seed: u64, number: usize, setup: Setup) -> Self {
        let mut forwarder = Box::<Forwarder<Hops, FixedPit<WAITING, NAME, ASKED, SENT, DEAD>, Shelf>>::default();
        forwarder.times = Times {
            retransmission: core::time::Duration::from_millis(RETRANSMISSION_MS),
            retransmissions: RETRANSMISSIONS,
            ..Times::default()
        };
        let mut random = Stream::new(seed, number, Purpose::Messages);
        forwarder.random = random.below(1 << 32) as u32;
        Self {
            setup,
            costs: setup.costs.ndn,
            forwarder,
            crypto: Compact::new(Stream::new(seed, number, Purpose::Crypto).seed()),
            random,
            neighbours: Vec::new(),
            producers: BTreeMap::new(),
            asks: Asks::Nothing,
            made: 0,
            asked: Vec::new(),
            sent: Sent::default(),
            alarm: None,
            instructions: 0,
        }
    }

    /// Makes the node `number` of a deployment. `parent` is its neighbour on the path to node 0. Node 0 has one
    /// producer of readings for each node in `makers`. Each node in `makers` requests the readings of its producer from
    /// node 0. `forwards` is true if the path from another node to node 0 contains the node `number`.
    pub fn of_deployment(
        seed: u64,
        number: usize,
        setup: Setup,
        parent: Option<Address>,
        makers: &[usize],
        forwards: bool,
    ) -> Self {
        let mut node = Self::empty(seed, number, setup);
        node.forwarder.store.is_on = forwards && parent.is_some();
        match parent {
            None => {
                for maker in makers {
                    node.produces(*maker as u16, &prefix_of_maker(*maker as u16));
                }
            }
            Some(parent) => {
                let face = node.face_of(parent);
                node.forwarder.fib.add(&[], face);
                if makers.contains(&number) {
                    node.asks = Asks::Each(number as u16);
                }
            }
        }
        node
    }

    /// Makes a node of a network in which consumers request content objects. The proxy in `part` is the next hop of a
    /// consumer.
    pub fn of_part(seed: u64, number: usize, setup: Setup, part: &Part) -> Self {
        let mut node = Self::empty(seed, number, setup);
        match part {
            Part::Consumer { producers, proxy, .. } => {
                if let Some(next) = proxy {
                    let face = node.face_of(*next);
                    node.forwarder.fib.add(&[], face);
                }
                node.asks = Asks::Any { producers: producers.len() };
            }
            Part::Forwarder { towards, stores, .. } => {
                node.forwarder.store.is_on = *stores;
                for (producer, next) in towards.iter().enumerate() {
                    let face = node.face_of(*next);
                    node.forwarder.fib.add(&prefix_of_producer(producer), face);
                }
            }
            Part::Producer { place } => node.produces(*place as u16, &prefix_of_producer(*place)),
        }
        node
    }

    /// Adds the producer with this number, whose readings have this prefix.
    fn produces(&mut self, number: u16, prefix: &[u8]) {
        self.forwarder.fib.add(prefix, APPLICATION);
        let producer = Producer::new::<Compact>(number, prefix.to_vec(), self.setup.protection);
        self.producers.insert(prefix.to_vec(), producer);
    }

    /// Returns the face of a neighbour. Adds the neighbour if it is new.
    fn face_of(&mut self, neighbour: Address) -> FaceId {
        let known = self.neighbours.iter().position(|known| *known == neighbour);
        let place = known.unwrap_or_else(|| {
            self.neighbours.push(neighbour);
            self.neighbours.len() - 1
        });
        FaceId(place as u16 + 1)
    }

    /// Returns the name of the next reading to request, and the number of its producer; `None` if the node requests no
    /// readings.
    fn next_name(&mut self) -> Option<(Vec<u8>, u16)> {
        let made = self.made;
        self.made += 1;
        match self.asks {
            Asks::Nothing => None,
            Asks::Each(producer) => Some((name_of(&prefix_of_maker(producer), made), producer)),
            Asks::Any { producers } => {
                let producer = made as usize % producers;
                Some((
                    name_of(&prefix_of_producer(producer), self.random.below(super::caching::ITEMS)),
                    producer as u16,
                ))
            }
        }
    }

    /// Sends the packets that the forwarder made for neighbours. Passes the packets for the application to the
    /// application.
    fn settle(&mut self, now: Instant, wishes: &mut Vec<Wish>) {
        while let Some((face, packet)) = self.sent.0.pop_front() {
            match packet {
                Packet::Interest(packet) if face == APPLICATION => self.answer(now, &packet),
                Packet::Data(packet) if face == APPLICATION => self.take(now, &packet, wishes),
                Packet::Nack(packet) if face == APPLICATION => self.give_up(&packet, wishes),
                Packet::Interest(datagram) | Packet::Data(datagram) => {
                    let neighbour = self.neighbours.get(usize::from(face.0) - 1);
                    wishes.extend(neighbour.map(|to| Wish::Send { to: *to, datagram }));
                }
                Packet::Nack(_) => {}
            }
        }
        self.alarm = self.forwarder.next_timeout().map(|next| next.instant(now));
    }

    /// Answers an Interest with a reading of this node.
    fn answer(&mut self, now: Instant, packet: &[u8]) {
        let Ok(received) = ReceivedInterest::parse(packet) else { return };
        let name = received.interest.name;
        let reading = name.last().as_ref().and_then(Component::number);
        let producer = self.producers.get_mut(name.prefix(name.len() - 1).as_bytes());
        let Some((producer, reading)) = producer.zip(reading) else { return };
        let content = vec![0x42; self.setup.response];
        let Some(packet) = producer.packet(&mut self.crypto, reading, &content).map(<[u8]>::to_vec) else { return };
        self.instructions +=
            std::mem::take(&mut producer.created) * self.costs.create_of(self.setup.protection.protects_readings());
        let _ = self.forwarder.on_data::<Compact>(now, APPLICATION, &packet, &mut |_| true, &mut self.sent);
    }

    /// Processes a Data packet for the application. The packet answers all pending requests for its name.
    fn take(&mut self, now: Instant, packet: &[u8], wishes: &mut Vec<Wish>) {
        let Ok(received) = ReceivedData::parse(packet) else { return };
        let Setup { protection, response, .. } = self.setup;
        let asked = self.remove(received.data.name.as_bytes());
        let Some((producer, _)) = asked.first() else { return };
        self.instructions += self.costs.open_of(protection.protects_readings());
        let is_reading = is_reading(&mut self.crypto, *producer, protection, &received, response);
        wishes.extend(asked.into_iter().map(|(_, made)| match is_reading {
            true => {
                Wish::Answered { made, at_once: now.since(made) < Duration::from_millis(RETRANSMISSION_MS - EARLY_MS) }
            }
            false => Wish::GivenUp,
        }));
    }

    fn give_up(&mut self, interest: &[u8], wishes: &mut Vec<Wish>) {
        let Ok(received) = ReceivedInterest::parse(interest) else { return };
        let asked = self.remove(received.interest.name.as_bytes());
        wishes.extend(asked.into_iter().map(|_| Wish::GivenUp));
    }

    /// Removes all pending requests for a name. Returns for each the number of the producer and the time of the
    /// request.
    fn remove(&mut self, name: &[u8]) -> Vec<(u16, Instant)> {
        let of_name = self.asked.extract_if(.., |(asked, ..)| asked == name);
        of_name.map(|(_, producer, made)| (producer, made)).collect()
    }
}

impl Mote for NamedNode {
    fn read(&mut self, now: Instant, _: Address, wishes: &mut Vec<Wish>) {
        let Some((name, producer)) = self.next_name() else { return };
        let nonce = (self.random.below(1 << 32) as u32).to_be_bytes();
        let mut packet = interest::<Compact>(&Name::of_checked(&name), nonce);
        self.asked.push((name, producer, now));
        self.instructions += self.costs.create;
        let _ = self.forwarder.on_interest::<Compact>(now, APPLICATION, &mut packet, (), &mut self.sent);
        self.settle(now, wishes);
    }

    fn receive(&mut self, now: Instant, from: Address, datagram: &mut [u8], wishes: &mut Vec<Wish>) {
        let face = self.face_of(from);
        self.instructions += self.costs.of_stored * self.forwarder.store.len as u64;
        match datagram.first() {
            Some(&INTEREST) => {
                self.instructions += self.costs.on_interest;
                let _ = self.forwarder.on_interest::<Compact>(now, face, datagram, (), &mut self.sent);
            }
            Some(&DATA) => {
                self.instructions += self.costs.on_data;
                let _ = self.forwarder.on_data::<Compact>(now, face, datagram, &mut |_| true, &mut self.sent);
            }
            _ => {}
        }
        self.settle(now, wishes);
    }

    fn poll(&mut self, now: Instant, wishes: &mut Vec<Wish>) {
        let mut storage = [0; 127];
        self.forwarder.on_timeout(now, &mut storage, &mut self.sent);
        self.instructions += self.costs.again * self.sent.0.len() as u64;
        let ends = Duration::from_millis(LIFETIME_MS - EARLY_MS);
        let waiting = self.asked.len();
        self.asked.retain(|(.., made)| now.since(*made) < ends);
        wishes.extend((self.asked.len()..waiting).map(|_| Wish::GivenUp));
        self.settle(now, wishes);
    }

    fn next_alarm(&self) -> Option<Instant> {
        self.alarm
    }

    fn take_instructions(&mut self) -> u64 {
        std::mem::take(&mut self.instructions)
    }

    /// Deletes the pending Interests and the content store. The number of the next reading is not deleted, so no
    /// reading is requested twice.
    fn reboot(&mut self, _: Instant) {
        let is_on = self.forwarder.store.is_on;
        self.forwarder.pit = FixedPit::default();
        self.forwarder.store = Shelf::default();
        self.forwarder.store.is_on = is_on;
        self.asked.clear();
        self.alarm = None;
    }

    // A node of Named Data Networking has no address, and no state for another node.
    fn forget(&mut self, _: usize) {}
    fn moved(&mut self, _: Instant, _: Address, _: Address, _: &mut Vec<Wish>) {}
}

/// Returns the prefix of the names of the readings that the node `maker` requests from node 0.
fn prefix_of_maker(maker: u16) -> Vec<u8> {
    let number = maker.to_be_bytes();
    prefix(&[super::RESOURCE.as_bytes(), if maker <= 0xff { &number[1..] } else { &number }])
}

/// Returns the prefix of the names of a producer's readings, in a network of content objects. It has the same
/// components as the paths of the CoAP resources of the producer.
fn prefix_of_producer(producer: usize) -> Vec<u8> {
    prefix(&[super::caching::RESOURCE.as_bytes(), super::caching::name(producer).as_bytes()])
}

/// Time in milliseconds by which the forwarder's timer can fire too early, because the clock of the forwarder counts
/// milliseconds.
const EARLY_MS: u64 = 3;
/// The face between the forwarder and the application.
const APPLICATION: FaceId = FaceId(0);
/// The first byte of an Interest.
const INTEREST: u8 = 5;
/// The first byte of a Data packet.
const DATA: u8 = 6;
/// Maximum number of pending Interests. One face may use three quarters of them. This is enough for the Interests of
/// three consumers, if each consumer sends four in a second and each Interest waits for its whole lifetime.
const WAITING: usize = 160;
/// Maximum length of a name, in bytes.
const NAME: usize = 40;
/// Maximum number of faces that wait for the same name: the faces of three consumers, and the face of the application.
const ASKED: usize = 4;
/// Maximum number of next hops to which an Interest is sent.
const SENT: usize = 1;
/// Maximum number of stored nonces of Interests that are no longer pending.
const DEAD: usize = 64;

#[cfg(test)]
mod tests;
