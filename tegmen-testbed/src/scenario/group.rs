//! Requests to a group (RFC 7252, section 8): node 0 sends one request to all nodes without protection, 6LoWPAN floods
//! it, and each member answers node 0 within its leisure.

use super::{Later, World, view};
use crate::deployment::Group;
use crate::mote::{MESSAGE, RESOURCE};
use crate::sim::{Micros, NodeId};
use tegmen::address::{Address, Path};
use tegmen::buf::{Frame, Reader};
use tegmen::coap::{Builder, Code, MessageRef, MessageType};
use tegmen_lowpan::flood::Header;
use tegmen_lowpan::frame::LinkAddress;
use tegmen_lowpan::ip;
use tegmen_lowpan::write_flooded;

impl World<'_> {
    /// Node 0 asks the group.
    pub(super) fn ask_group(&mut self) {
        let number = self.asked.len() as u16;
        self.asked.push((self.network.now(), vec![false; self.stations.len()]));
        self.outcome.made += self.makers.len() as u64;
        let mut storage = [0; MESSAGE];
        let mut frame = Frame::new(&mut storage, 0);
        let built = Builder::new(&mut frame, MessageType::NonConfirmable, Code::GET, number, &number.to_be_bytes())
            .and_then(|mut message| message.path(RESOURCE));
        let group = Address { ip: ALL_COAP_NODES, port: self.deployment.stack.ports[0], scope: 0 };
        let path = Path { local: self.stations[0].address, remote: group };
        let hop_limit = self.deployment.stack.hop_limit;
        let (Ok(()), Ok(headers)) = (built, ip::headers(&path, hop_limit, frame.bytes())) else { return };
        let packet = [&headers, frame.bytes()].concat();
        let room = self.network.room(0, LinkAddress::BROADCAST);
        let station = &mut self.stations[0];
        let view = view(station.link, &station.address, &self.contexts, &station.routes, true);
        let Ok(mut fragments) = station.interface.send(&view, LinkAddress::BROADCAST, &packet) else { return };
        let like =
            Header { hops_left: hop_limit, originator: station.link, destination: LinkAddress::BROADCAST, sequence: 0 };
        let (mut rest, mut out) = ([0; FRAME], [0; FRAME]);
        let room = room.saturating_sub(write_flooded(&like, &[], &mut out).map_or(0, |header| header.len()));
        while let Ok(Some(rest)) = fragments.next_frame(room, &mut rest) {
            let header = station.interface.flood(&view, hop_limit);
            let Ok(payload) = write_flooded(&header, rest, &mut out) else { return };
            self.network.send(0, LinkAddress::BROADCAST, payload);
        }
    }

    /// A flooded frame goes on: not at once, as all who heard it would speak together.
    pub(super) fn relay(&mut self, node: NodeId, header: &Header, payload: &[u8]) {
        let mut reader = Reader::new(payload);
        let mut out = [0; FRAME];
        if let Ok(Some(_)) = Header::read(&mut reader)
            && let Ok(payload) = write_flooded(header, reader.rest(), &mut out)
        {
            let after = self.stations[node].leisure.below(RELAY_SPREAD);
            self.send_later(node, self.network.now() + after, Later::Relay(payload.to_vec()));
        }
    }

    /// A member hears the group's request, and chooses a time to answer.
    pub(super) fn answer_group(&mut self, node: NodeId, group: Group, from: Address, request: &[u8]) {
        let Ok(request) = MessageRef::parse(request) else { return };
        if request.code() != Code::GET || !request.path_is(RESOURCE) {
            return;
        }
        let mut storage = [0; MESSAGE];
        let mut frame = Frame::new(&mut storage, 0);
        let (kind, id) = (MessageType::NonConfirmable, request.message_id());
        let response = &[0x24; MESSAGE][..self.deployment.traffic.response];
        let built = Builder::new(&mut frame, kind, Code::CONTENT, id, request.token())
            .and_then(|mut message| if response.is_empty() { Ok(()) } else { message.payload(response) });
        if built.is_err() {
            return;
        }
        self.work(node, self.costs.serve + self.costs.send_of(frame.len()), 1);
        let (now, station) = (self.network.now(), &mut self.stations[node]);
        let leisure = (group.leisure_s * 1e6) as Micros;
        let at = station.busy_until.max(now + station.leisure.below(leisure + 1));
        self.send_later(node, at, Later::Answer(from, frame.bytes().to_vec()));
    }

    /// Node 0 hears a member: the first answer to each request counts.
    pub(super) fn hear_member(&mut self, from: &Address, answer: &[u8]) {
        let Ok(answer) = MessageRef::parse(answer) else { return };
        let Some(number) = answer.token().first_chunk().map(|token| u16::from_be_bytes(*token)) else { return };
        let Some(node) = self.stations.iter().position(|station| station.address.ip == from.ip) else { return };
        let Some((asked, heard)) = self.asked.get_mut(usize::from(number)) else { return };
        if answer.code().is_success() && !std::mem::replace(&mut heard[node], true) {
            let delay = self.network.now() - *asked;
            self.outcome.answered += 1;
            self.outcome.delays.push(delay);
            self.outcome.first_try.push(delay);
            self.outcome.by_node[node].push(delay);
        }
    }
}

/// All CoAP nodes of the site (RFC 7252, section 12.8).
const ALL_COAP_NODES: [u8; 16] = [0xff, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xfd];
/// Relays wait up to so long.
const RELAY_SPREAD: Micros = 20_000;
/// Bytes of the longest frame.
const FRAME: usize = 127;
