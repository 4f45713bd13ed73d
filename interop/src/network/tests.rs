use super::*;

/// Makes a record with an empty handshake message of this type.
fn datagram(message: u8) -> Vec<u8> {
    [&[22, 254, 253, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12][..], &[message], &[0; 11]].concat()
}

#[test]
fn each_network_harms_what_its_name_says() {
    let (verify, done) = (datagram(HELLO_VERIFY_REQUEST), datagram(SERVER_HELLO_DONE));
    let now = Duration::ZERO;
    for (network, harmed, copies) in [
        (Network::Slow(LATE), &verify, vec![LATE]),
        (Network::Late(SERVER_HELLO_DONE, LATE), &done, vec![LATE]),
        (Network::Twice(HELLO_VERIFY_REQUEST, LATE), &verify, vec![now, LATE]),
        (Network::Lost(SERVER_HELLO_DONE), &done, vec![]),
        (Network::Carries(24), &done, vec![]),
    ] {
        assert_eq!(network.harms(false, harmed, true), Some(copies));
    }
    assert_eq!(Network::Good.harms(false, &done, true), None);
    assert_eq!(Network::Lost(SERVER_HELLO_DONE).harms(false, &verify, true), None);
    assert_eq!(Network::Lost(SERVER_HELLO_DONE).harms(false, &done, false), None, "only the first");
    assert_eq!(Network::Slow(LATE).harms(true, &verify, true), None, "only what the server sends");
    assert_eq!(Network::Carries(25).harms(true, &done, true), None);
}
