use super::*;
use crate::figure::EQUAL;

#[test]
fn the_baselines_come_out() {
    let figures = figures();
    assert!(figures.iter().all(|figure| figure.verdict != DIFFERS), "{}", crate::figure::table(&figures));
    let equal: Vec<_> = figures.iter().filter(|figure| figure.verdict == EQUAL).map(|figure| &figure.id).collect();
    let of_psk = ["messages", "bytes", "fragments"].map(|what| format!("transmission/psk/{what}"));
    assert_eq!(equal[0], "transmission/certificate/messages");
    assert!(equal[1..].iter().copied().eq(&of_psk), "{equal:?}");
    assert!(figures.iter().all(|figure| figure.ours.is_some()));
}

#[test]
fn the_work_of_an_end_is_that_on_its_flights() {
    for of in ["dtls_x509", "dtls_rpk"] {
        for end in ["client", "server"] {
            let flights: u64 = (1..=6).filter_map(|flight| by_flight(of, end, flight)).sum();
            // Each call of a region costs a few instructions of marks more.
            let ratio = flights as f64 / instructions(of, end) as f64;
            assert!((1.0..1.001).contains(&ratio), "{of} {end}: {ratio}");
        }
    }
}

#[test]
fn a_handshake_is_the_sum_of_its_flights() {
    let (handshakes, _) = handshakes();
    for handshake in handshakes {
        let flights = handshake.flights.len();
        // A ticket that opens saves the cookie's round; an id is looked up after it.
        let expected = match handshake.name {
            RESUMED => 3,
            BY_ID => 5,
            _ => 6,
        };
        assert_eq!(flights, expected, "{}", handshake.name);
        assert!(handshake.flights.iter().all(|flight| flight.frames.len() >= flight.datagrams));
        assert!(handshake.flights[0].by_client);
    }
}
