//! The network layer of a mote without an operating system: IPv6 over IEEE 802.15.4 (6LoWPAN), IPv6 and UDP headers
//! ([`ip`]), and packets over a serial line ([`slip`]). It uses no heap and no `unsafe`, and no byte from the network
//! can make it panic.
//!
//! To send a packet, use [`fragment::Fragments`]: it compresses the headers ([`iphc`]) and cuts the packet to the size
//! of a frame ([`frame`]). Pass a received frame to [`Interface::receive`]. It distinguishes flooded frames from
//! frames that go from hop to hop ([`flood`]), reassembles fragments ([`fragment::Reassembly`]), and forwards packets
//! for other nodes ([`route`]).

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable)
)]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

#[cfg(test)]
extern crate std;

mod error;
pub mod flood;
pub mod fragment;
pub mod frame;
pub mod ip;
pub mod iphc;
pub mod route;
pub mod slip;

use fragment::{Fragments, Reassembly};
use frame::LinkAddress;
use iphc::{Context, Hop};
use route::{Decision, Route};
use tegmen_base::buf::{Full, Reader, Truncated, Writer};
use tegmen_base::time::Instant;

/// The addresses and routes that a node knows. They do not change.
#[derive(Clone, Copy, Debug)]
pub struct Network<'n> {
    /// The node's address on the link.
    pub link: LinkAddress,
    /// The IPv6 addresses of the node.
    pub own: &'n [[u8; 16]],
    /// The prefixes that all nodes of the network know, for the compression of headers.
    pub contexts: &'n [Context],
    /// The routes to other nodes.
    pub routes: &'n [Route],
    /// True if the node relays floods of other nodes.
    pub relays: bool,
}

/// The state with which a node sends and receives packets on the link. The interface reassembles up to `SLOTS` packets
/// at a time, of up to `BYTES` bytes each.
#[derive(Debug)]
pub struct Interface<const SLOTS: usize, const BYTES: usize> {
    reassembly: Reassembly<SLOTS, BYTES>,
    seen: flood::Seen<FLOODS>,
    next_tag: u16,
    next_flood: u8,
}

/// The results of the receipt of one frame.
#[derive(PartialEq, Eq, Debug, Default)]
pub struct Delivery<'p> {
    /// The header with which this node relays a flooded frame: broadcast a frame with this header and the same payload.
    /// `None` if there is nothing to relay.
    pub relay: Option<flood::Header>,
    /// The packet that the frame completed; `None` if no packet is complete.
    pub packet: Option<Arrived<'p>>,
}

/// A complete packet, and the decision where it goes.
#[derive(PartialEq, Eq, Debug)]
pub enum Arrived<'p> {
    /// The packet is for this node. It begins with its IPv6 header.
    Here(&'p mut [u8]),
    /// The packet must be sent to this neighbour. The hop limit of the packet is already decremented.
    On(LinkAddress, &'p mut [u8]),
    /// The packet is dropped. The decision is the reason.
    Dropped(Decision),
}

impl<const SLOTS: usize, const BYTES: usize> Default for Interface<SLOTS, BYTES> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const SLOTS: usize, const BYTES: usize> Interface<SLOTS, BYTES> {
    /// Makes an interface that has sent and received nothing.
    pub const fn new() -> Self {
        Self { reassembly: Reassembly::new(), seen: flood::Seen::new(), next_tag: 0, next_flood: 0 }
    }

    /// Receives the payload of a frame between the link addresses in `hop`.
    ///
    /// # Errors
    /// [`fragment::FragmentError`]. The frame is dropped without an answer.
    pub fn receive<'p>(
        &'p mut self,
        now: Instant,
        network: &Network<'_>,
        hop: &Hop,
        payload: &[u8],
    ) -> Result<Delivery<'p>, fragment::FragmentError> {
        let mut reader = Reader::new(payload);
        let mut hop = *hop;
        let mut relay = None;
        if let Some(header) = flood::Header::read(&mut reader)? {
            if header.originator == network.link || !self.seen.is_new(now, &header) {
                return Ok(Delivery::default());
            }
            let on = header.hops_left.checked_sub(1).filter(|left| *left > 0 && network.relays);
            relay = on.map(|hops_left| flood::Header { hops_left, ..header });
            hop = Hop { source: header.originator, destination: header.destination };
        }
        let packet = self.reassembly.receive(now, &hop, network.contexts, reader.rest())?;
        let packet = packet.map(|packet| match route::decide(packet, network.own, network.routes) {
            Decision::Deliver => Arrived::Here(packet),
            Decision::Forward(next) => Arrived::On(next, packet),
            drop => Arrived::Dropped(drop),
        });
        Ok(Delivery { relay, packet })
    }

    /// Prepares a packet for the neighbour `to`.
    ///
    /// # Errors
    /// [`Truncated`] if `packet` is not an IPv6 packet, or is too long for fragments.
    pub fn send<'p>(
        &mut self,
        network: &Network<'_>,
        to: LinkAddress,
        packet: &'p [u8],
    ) -> Result<Fragments<'p>, Truncated> {
        let tag = self.next_tag;
        self.next_tag = tag.wrapping_add(1);
        Fragments::new(packet, &Hop { source: network.link, destination: to }, network.contexts, tag)
    }

    /// Returns the header for a frame that this node floods over `hops` hops.
    pub fn flood(&mut self, network: &Network<'_>, hops: u8) -> flood::Header {
        let sequence = self.next_flood;
        self.next_flood = sequence.wrapping_add(1);
        flood::Header { hops_left: hops, originator: network.link, destination: LinkAddress::BROADCAST, sequence }
    }

    /// Removes incomplete packets whose fragments did not arrive in time.
    pub fn expire(&mut self, now: Instant) {
        self.reassembly.expire(now);
    }
}

/// Writes the payload of a flooded frame: the header, then `rest`, which has the format of a frame over one hop.
///
/// # Errors
/// [`Full`]
pub fn write_flooded<'t>(header: &flood::Header, rest: &[u8], out: &'t mut [u8]) -> Result<&'t [u8], Full> {
    let mut writer = Writer::new(out);
    header.write(&mut writer)?;
    writer.put(rest)?;
    Ok(writer.finish())
}

/// Number of floods that a node remembers.
const FLOODS: usize = 16;

/// The Rust block of README.md, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod tests;
