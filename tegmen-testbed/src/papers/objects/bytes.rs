//! The plan `objects-bytes`, which reproduces table II and figure 3 with messages that the core library builds.

use super::{Paper, READING, paper, request, response};
use crate::coap_protected::{self, Resource};
use crate::figure::Figure;
use crate::frames::{frames, with_ndn};
use crate::mote::Protection;
use crate::mote::named::packets::{Producer, interest, key_len, name_of, prefix};
use crate::papers::blink::Lab;
use std::collections::BTreeMap;
use tegmen::address::Address;
use tegmen::buf::Frame;
use tegmen::coap::{MessageRef, OptionNumber};
use tegmen::crypto::RustCrypto;
use tegmen::dtls::Profile;
use tegmen::oscore::{Aead, Context, OVERHEAD, OscoreOption, Parameters, Unprotected};
use tegmen::secret::Secret;
use tegmen_lowpan::frame::{FCS_LEN, Header, LinkAddress, PanId};
use tegmen_ndn::tlv::{self, Type};
use tegmen_ndn::{Name, ReceivedData, publisher};

/// Returns all figures of the plan `objects-bytes`.
pub fn figures() -> Vec<Figure> {
    let paper = paper();
    let exchanges = exchanges();
    let mut figures = overheads(&paper, &exchanges);
    figures.extend(packets(&paper, &exchanges));
    figures
}

/// Returns the figures of table II.
fn overheads(paper: &Paper, exchanges: &BTreeMap<&str, [Built; 2]>) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (protocol, printed) in &paper.table2 {
        for (side, message) in ["request", "response"].into_iter().enumerate() {
            let Built { datagram, unprotected, context_id, nonce, mac } = &exchanges[protocol.as_str()][side];
            let whole = datagram.len() - unprotected;
            let mut row = |part: &str, printed: u64, ours: usize| {
                let id = format!("table2/{protocol}/{message}/{part}");
                figures.push(Figure::equal(id, printed as f64, ours as f64, BYTES));
            };
            row("structure", printed.structure[side], whole - context_id - nonce - mac);
            row("context_id", printed.context_id[side], *context_id);
            row("nonce", printed.nonce[side], *nonce);
            row("mac", printed.mac[side], *mac);
            let all = [printed.structure, printed.context_id, printed.nonce, printed.mac];
            row("all", all.iter().map(|part| part[side]).sum(), whole);
        }
    }
    let [sent, protected] = ["ndn", "ndn_protected"].map(|protocol| exchanges[protocol][1].datagram.len());
    let more = "an unprotected Data packet has an empty signature of 7 bytes, which the paper counts as protection";
    let id = "table2/ndn_protected/response/more_than_unprotected".into();
    figures.push(Figure::shown(id, None, (protected - sent) as f64, BYTES, more));
    figures
}

/// Returns the values of figure 3: the number of frames for each message, and the lengths of their headers.
fn packets(paper: &Paper, exchanges: &BTreeMap<&str, [Built; 2]>) -> Vec<Figure> {
    let mut figures = Vec::new();
    let frame = frames_of(&exchanges["coap"][0].datagram, true).concat();
    let mac = Header::data(PanId(0xabcd), LINKS[0], LINKS[1], 1).len() + FCS_LEN;
    let iphc = iphc_len(&frame[mac - FCS_LEN..]);
    let udp = frame.len() - mac - iphc - exchanges["coap"][0].datagram.len();
    let handshake = handshake();
    let fragmented: Vec<usize> = handshake
        .iter()
        .map(|(by_client, datagram)| (frames_of(datagram, *by_client), datagram.len()))
        .filter(|(frames, _)| frames.len() == 2)
        .map(|(frames, len)| frames.concat().len() - 2 * mac - iphc - udp - len)
        .collect();
    let extra = fragmented.iter().copied().max().unwrap_or(0);
    let messages: usize = handshake.iter().map(|(_, datagram)| crate::papers::records(datagram)).sum();
    for (id, ours, unit) in [
        ("mac_header", mac, BYTES),
        ("sixlowpan_header", iphc, BYTES),
        ("compressed_udp_header", udp, BYTES),
        ("fragmented_extra_sixlowpan", extra, BYTES),
        ("dtls_handshake_messages", messages, "messages"),
    ] {
        let printed = paper.fig3.get(id).copied().unwrap_or(0);
        figures.push(Figure::equal(format!("fig3/{id}"), printed as f64, ours as f64, unit));
    }
    let drawn = "the paper draws it and prints no number";
    let shown = |id: String, ours: usize, unit, why| Figure::shown(id, None, ours as f64, unit, why);
    let together = "the server's hello and its end travel in one datagram here";
    figures.push(shown("fig3/dtls_handshake_datagrams".into(), handshake.len(), "datagrams", together));
    for (protocol, built) in exchanges {
        for (side, message) in ["request", "response"].into_iter().enumerate() {
            let datagram = &built[side].datagram;
            if protocol.starts_with("ndn") {
                let frame = ndn_frame_of(datagram);
                figures.push(shown(format!("fig3/{protocol}/{message}/packet"), datagram.len(), BYTES, drawn));
                let printed = paper.fig3.get("ndn_response").filter(|_| *protocol == "ndn" && side == 1);
                let (id, why) = (format!("fig3/{protocol}/{message}/frame"), printed.map_or(drawn, |_| OTHER_NAME));
                figures.push(Figure::shown(id, printed.map(|printed| *printed as f64), frame as f64, BYTES, why));
                continue;
            }
            let bytes = frames_of(datagram, side == 0).concat().len();
            figures.push(shown(format!("fig3/{protocol}/{message}/udp_payload"), datagram.len(), BYTES, drawn));
            figures.push(shown(format!("fig3/{protocol}/{message}/frame"), bytes, BYTES, drawn));
        }
    }
    figures
}

/// A built CoAP message over UDP, or a built NDN packet, with the lengths of the fields that protect it.
struct Built {
    datagram: Vec<u8>,
    /// Length of the same message if it had no protection, in bytes.
    unprotected: usize,
    context_id: usize,
    nonce: usize,
    mac: usize,
}

impl Built {
    fn plain(build: impl FnOnce(&mut Frame<'_>)) -> Self {
        let mut storage = [0; ROOM];
        let mut frame = Frame::new(&mut storage, OVERHEAD);
        build(&mut frame);
        Self { datagram: frame.bytes().to_vec(), unprotected: frame.len(), context_id: 0, nonce: 0, mac: 0 }
    }
}

/// Builds a request and its response with every protection.
fn exchanges() -> BTreeMap<&'static str, [Built; 2]> {
    let asks = || Built::plain(|frame| request(frame, 1));
    let answers = |payload: &[u8]| Built::plain(|frame| response(frame, 1, payload));
    BTreeMap::from([
        ("coap", [asks(), answers(&READING)]),
        ("coap_protected", [asks(), coap_protected(answers)]),
        ("coap_dtls", dtls([asks(), answers(&READING)])),
        ("oscore", oscore()),
        ("ndn", ndn(Protection::Ndn)),
        ("ndn_protected", ndn(Protection::NdnProtected)),
    ])
}

/// Builds a response in which only the payload is protected.
fn coap_protected(answers: impl FnOnce(&[u8]) -> Built) -> Built {
    let mut resource = Resource::new::<RustCrypto>(Secret::new(KEY), 1, super::PATH.as_bytes(), 0);
    resource.extend(1);
    let mut out = [0; ROOM];
    let payload = resource.seal(&mut RustCrypto::new([1; 32]), &READING, &mut out).expect("room");
    use coap_protected::{KEY_ID_LEN, NUMBER_LEN, TAG_LEN};
    let unprotected = response_len();
    Built { unprotected, context_id: KEY_ID_LEN, nonce: NUMBER_LEN, mac: TAG_LEN, ..answers(payload) }
}

/// Seals the request and the response as DTLS records. A record adds its header, the explicit nonce and the tag.
fn dtls(messages: [Built; 2]) -> [Built; 2] {
    let mut lab = Lab::new(Profile::Minimal);
    lab.connect();
    let mut by_client = false;
    messages.map(|plain| {
        by_client = !by_client;
        let datagram = lab.seal(by_client, &plain.datagram);
        // The epoch and the sequence number are in the header of the record, and again in the explicit nonce.
        let nonce = datagram[RECORD_HEADER..].iter().zip(&datagram[3..11]).take_while(|(a, b)| a == b).count();
        let mac = datagram.len() - RECORD_HEADER - nonce - plain.datagram.len();
        Built { datagram, unprotected: plain.datagram.len(), context_id: EPOCH, nonce, mac }
    })
}

/// Builds the request and the response with OSCORE. The Sender IDs have one byte, and there is no ID Context. The
/// sequence number of the request is the largest number that fits into one byte.
fn oscore() -> [Built; 2] {
    let mut crypto = RustCrypto::new([1; 32]);
    let context = |kept, sender_id, recipient_id| {
        let aead = Aead::AesCcm16_64_128;
        let (master_secret, master_salt) = (&KEY, &[][..]);
        let parameters = Parameters { master_secret, master_salt, sender_id, recipient_id, id_context: None, aead };
        let context = Context::restore::<RustCrypto>(&parameters, kept, tegmen::oscore::ReplayWindow::default());
        let mut context = context.expect("good parameters");
        context.lease_mut().extend(kept + 1);
        context
    };
    let (mut client, mut server) = (context(255, b"c", b"s"), context(0, b"s", b"c"));
    let built = |frame: &Frame<'_>, unprotected| {
        let message = MessageRef::parse(frame.bytes()).expect("a message");
        let option = OscoreOption::parse(message.option(OptionNumber::OSCORE).expect("protected")).expect("one option");
        let (context_id, nonce) = (option.kid.map_or(0, <[u8]>::len), option.partial_iv);
        let nonce = nonce.map_or(0, |number| number.as_bytes().len());
        Built { datagram: frame.bytes().to_vec(), unprotected, context_id, nonce, mac: 8 }
    };
    let mut storage = [0; ROOM];
    let mut frame = Frame::new(&mut storage, OVERHEAD);
    request(&mut frame, 1);
    let unprotected = frame.len();
    client.protect_request(&mut crypto, &mut frame).expect("a number");
    let asked = built(&frame, unprotected);
    let opened = server.unprotect_request(&mut crypto, frame.bytes_mut()).expect("the client's request");
    let Unprotected::Fresh(_, nonce) = opened else { unreachable!("the window is known") };
    let mut storage = [0; ROOM];
    let mut frame = Frame::new(&mut storage, OVERHEAD);
    response(&mut frame, 1, &READING);
    server.protect_response(&mut crypto, &nonce.binding(), Some(nonce), &mut frame).expect("room");
    [asked, built(&frame, response_len())]
}

/// Returns the length of the response if it has no protection, in bytes.
fn response_len() -> usize {
    Built::plain(|frame| response(frame, 1, &READING)).unprotected
}

/// Builds an Interest and its Data packet. A Data packet without protection contains only its name and its content.
fn ndn(protection: Protection) -> [Built; 2] {
    let mut crypto = RustCrypto::new([1; 32]);
    let components: Vec<&[u8]> = super::PATH.split('/').map(str::as_bytes).collect();
    let mut producer = Producer::new::<RustCrypto>(1, prefix(&components), protection);
    let name = name_of(producer.prefix().as_bytes(), 0);
    let asked = interest::<RustCrypto>(&Name::of_checked(&name), [1, 2, 3, 4]);
    let packet = producer.packet(&mut crypto, 0, &READING).expect("the first reading").to_vec();
    let data = ReceivedData::parse(&packet).expect("a packet of the producer");
    let elements = tlv::element_len(Type::NAME, name.len()) + tlv::element_len(Type::CONTENT, READING.len());
    let answered = match protection {
        Protection::NdnProtected => Built {
            unprotected: tlv::element_len(Type::DATA, elements),
            context_id: key_len(&data),
            nonce: 0,
            mac: data.signed.value.len() + publisher::TAG_LEN,
            datagram: packet.clone(),
        },
        _ => Built { unprotected: packet.len(), context_id: 0, nonce: 0, mac: 0, datagram: packet.clone() },
    };
    [Built { unprotected: asked.len(), context_id: 0, nonce: 0, mac: 0, datagram: asked }, answered]
}

/// Returns the length of the frame that carries an NDN packet, in bytes.
fn ndn_frame_of(packet: &[u8]) -> usize {
    let payload = with_ndn(packet).expect("an Interest or a Data packet");
    Header::data(PanId(0xabcd), LINKS[0], LINKS[1], 1).len() + payload.len() + FCS_LEN
}

/// Returns the datagrams of a handshake without extensions, because the stack in the paper has none. The first value of
/// an entry is true if the client sends the datagram.
fn handshake() -> Vec<(bool, Vec<u8>)> {
    let mut lab = Lab::new(Profile::Minimal);
    lab.connect();
    lab.sent.into_iter().map(|sent| (sent.by_client, sent.bytes)).collect()
}

/// Returns the frames for a datagram between two nodes with long addresses. Every frame contains both IPv6 addresses
/// and the hop limit. The compressed port of the client takes one byte, and the port of the server takes two bytes.
fn frames_of(datagram: &[u8], by_client: bool) -> Vec<Vec<u8>> {
    let address = |node: u8, port| {
        let ip = [0xfd, 0, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, node];
        (LINKS[usize::from(node) - 1], Address { ip, port, scope: 0 })
    };
    let (client, server) = (address(1, 0xf0a0), address(2, 5683));
    let (from, to) = if by_client { (client, server) } else { (server, client) };
    frames(from, to, HOP_LIMIT, datagram)
}

/// Returns the length of the compressed IPv6 header (RFC 6282, section 3.1) in bytes. The UDP header follows it.
fn iphc_len(payload: &[u8]) -> usize {
    let (first, second) = (payload[0], payload[1]);
    let class = [4, 3, 1, 0][usize::from(first >> 3 & 3)];
    let hop_limit = usize::from(first & 3 == 0);
    let contexts = usize::from(second >> 7);
    let address = |mode: u8| match mode & 7 {
        0 => 16,
        1 | 5 => 8,
        2 | 6 => 2,
        _ => 0,
    };
    2 + contexts + class + hop_limit + address(second >> 4) + address(second)
}

const BYTES: &str = "bytes";
const OTHER_NAME: &str = "the paper does not print the name in its packet";
const KEY: [u8; 16] = [7; 16];
const ROOM: usize = 256;
const RECORD_HEADER: usize = 13;
const EPOCH: usize = 2;
/// The hop limit of all packets. It is not 1, 64 or 255, because frames would leave out these values.
const HOP_LIMIT: u8 = 63;
const LINKS: [LinkAddress; 2] =
    [LinkAddress::Extended([2, 0, 0, 0, 0, 0, 0, 1]), LinkAddress::Extended([2, 0, 0, 0, 0, 0, 0, 2])];

#[cfg(test)]
mod tests;
