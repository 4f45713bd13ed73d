use super::*;
use crate::figure::{DIFFERS, EQUAL};
use crate::mote::named::packets::is_reading;

#[test]
fn every_figure_of_the_paper_is_equal() {
    let figures = figures();
    let table: Vec<_> =
        figures.iter().filter(|figure| figure.id.starts_with("table2/") && figure.paper.is_some()).collect();
    assert_eq!(table.len(), 4 * 2 * 5);
    for figure in table {
        assert_eq!(figure.verdict, EQUAL, "{figure:?}");
    }
    assert!(figures.iter().all(|figure| figure.verdict != DIFFERS), "{}", crate::figure::table(&figures));
    assert!(figures.iter().all(|figure| figure.ours.is_some()));
    assert_eq!(figures.iter().filter(|figure| figure.id.starts_with("fig3/") && figure.paper.is_some()).count(), 6);
}

#[test]
fn a_packet_without_its_signature_and_its_tag_is_the_unprotected_one() {
    let [_, protected] = ndn(Protection::NdnProtected);
    let mut crypto = RustCrypto::new([1; 32]);
    let data = ReceivedData::parse(&protected.datagram).unwrap();
    assert!(is_reading(&mut crypto, 1, Protection::NdnProtected, &data, READING.len()));
    // Another key, and another name, do not open it.
    assert!(!is_reading(&mut crypto, 2, Protection::NdnProtected, &data, READING.len()));
    for at in [6, protected.datagram.len() - 1] {
        let mut changed = protected.datagram.clone();
        changed[at] ^= 1;
        let data = ReceivedData::parse(&changed).unwrap();
        assert!(!is_reading(&mut crypto, 1, Protection::NdnProtected, &data, READING.len()));
    }
    let bare = tegmen_ndn::Data { name: data.data.name, content: Some(&READING), ..Default::default() };
    let [_, unprotected] = ndn(Protection::Ndn);
    assert_eq!(ReceivedData::parse(&unprotected.datagram).unwrap().data, bare);
    assert_eq!(unprotected.datagram.len(), protected.unprotected + EMPTY_SIGNATURE);
}

/// Length of a SignatureInfo that contains only its type, and of an empty SignatureValue, in bytes.
const EMPTY_SIGNATURE: usize = 5 + 2;

#[test]
fn the_sums_are_those_of_the_text() {
    let figures = figures();
    let ours = |id: &str| figures.iter().find(|figure| figure.id == id).and_then(|figure| figure.ours);
    for (protocol, request, response) in
        [("coap_protected", 0.0, 12.0), ("coap_dtls", 29.0, 29.0), ("oscore", 14.0, 11.0), ("ndn_protected", 0.0, 52.0)]
    {
        assert_eq!(ours(&format!("table2/{protocol}/request/all")), Some(request));
        assert_eq!(ours(&format!("table2/{protocol}/response/all")), Some(response));
    }
    let [frame, payload] = ["frame", "udp_payload"].map(|what| ours(&format!("fig3/coap/request/{what}")).unwrap());
    assert_eq!(frame - payload, 64.0);
}

#[test]
fn every_message_of_an_exchange_fits_one_frame() {
    for (protocol, built) in exchanges() {
        for built in built {
            match protocol.starts_with("ndn") {
                true => assert!(ndn_frame_of(&built.datagram) <= 127),
                false => assert_eq!(frames_of(&built.datagram, true).len(), 1),
            }
        }
    }
    assert_eq!(handshake().iter().filter(|(client, datagram)| frames_of(datagram, *client).len() == 2).count(), 3);
}
