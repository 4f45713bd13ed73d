use super::*;
use crate::figure::DIFFERS;

/// Returns messages with approximately the lengths of the product's messages.
pub(crate) fn messages() -> Messages {
    let named = |name: &str| (name.as_bytes().to_vec(), vec![7; 32]);
    Messages {
        enrolment: named("enrol oven"),
        enrol: vec![1; 78],
        session: named("oven;AAECAwQFBgcICQoL"),
        introspection: [vec![2; 40], vec![3; 70]],
        token: [vec![4; 50], vec![5; 120]],
        server: named("access control server"),
        upload: vec![6; 200],
        revoked: vec![7; 40],
    }
}

#[test]
fn each_exchange_ends_and_figure_8_has_the_operations_of_the_tpm() {
    let figures = figures(&messages(), Effort { seeds: 4 }, |_, _| {});
    assert!(figures.iter().all(|figure| figure.verdict != DIFFERS), "{}", crate::figure::table(&figures));
    let ours = |id: &str| {
        let found = figures.iter().find(|figure| figure.id == id);
        found.and_then(|figure| figure.ours).unwrap_or_else(|| panic!("{id}"))
    };
    for name in [ENROLMENT, FIRST_CONTACT, TICKET, REFUSAL, REVOCATION, P256] {
        let [near, far] = ["one_hop", "four_hops"].map(|hops| ours(&format!("{name}/{hops}/frames")));
        // Each hop has the frames again, and the acknowledgements of the link layer.
        assert!(far >= 4.0 * near, "{name}: {near} and {far}");
        assert!(ours(&format!("{name}/bytes")) < ours(&format!("{name}/one_hop/bytes_on_air")), "{name}");
    }
    assert_eq!(figures.iter().filter(|figure| figure.id.starts_with("fig8/")).count(), 2 * 7 + 2);
}

#[test]
fn a_handshake_with_rsa_has_the_messages_of_its_rfc() {
    let messages = |name: &str| {
        let flow = rsa::handshakes(&paper()).find(|flow| flow.name == name).expect("a handshake of the paper");
        flow.datagrams().map(|datagram| rsa::records(datagram)).sum::<usize>()
    };
    // Two ClientHellos, HelloVerifyRequest, ServerHello, Certificate, ServerHelloDone, ClientKeyExchange, and twice
    // ChangeCipherSpec and Finished. The client adds Certificate and CertificateVerify, the server CertificateRequest.
    assert_eq!(rsa::NAMES.map(messages), [14, 11, 14, 11]);
}
