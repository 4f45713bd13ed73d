use super::*;
use crate::figure::{DIFFERS, EQUAL};

#[test]
fn every_figure_of_the_paper_is_equal_but_those_of_ndn_which_are_empty() {
    let figures = figures();
    let table: Vec<_> = figures.iter().filter(|figure| figure.id.starts_with("table2/")).collect();
    assert_eq!(table.len(), 4 * 2 * 5);
    for figure in table {
        match figure.id.contains("/ndn_protected/") {
            true => assert!(figure.ours.is_none() && figure.verdict.contains("NDN"), "{figure:?}"),
            false => assert_eq!(figure.verdict, EQUAL, "{figure:?}"),
        }
    }
    assert!(figures.iter().all(|figure| figure.verdict != DIFFERS), "{}", crate::figure::table(&figures));
    assert_eq!(figures.iter().filter(|figure| figure.id.starts_with("fig3/") && figure.paper.is_some()).count(), 5);
}

#[test]
fn the_sums_are_those_of_the_text() {
    let figures = figures();
    let ours = |id: &str| figures.iter().find(|figure| figure.id == id).and_then(|figure| figure.ours);
    for (protocol, request, response) in
        [("coap_protected", 0.0, 12.0), ("coap_dtls", 29.0, 29.0), ("oscore", 14.0, 11.0)]
    {
        assert_eq!(ours(&format!("table2/{protocol}/request/all")), Some(request));
        assert_eq!(ours(&format!("table2/{protocol}/response/all")), Some(response));
    }
    let [frame, payload] = ["frame", "udp_payload"].map(|what| ours(&format!("fig3/coap/request/{what}")).unwrap());
    assert_eq!(frame - payload, 64.0);
}

#[test]
fn every_message_of_an_exchange_fits_one_frame() {
    for built in exchanges().into_values().flatten() {
        assert_eq!(frames_of(&built.datagram, true).len(), 1);
    }
    assert_eq!(handshake().iter().filter(|(client, datagram)| frames_of(datagram, *client).len() == 2).count(), 3);
}
