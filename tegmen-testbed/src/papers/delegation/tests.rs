use super::*;
use crate::figure::{DIFFERS, HOLDS, table};

#[test]
fn the_aims_hold_and_an_id_names_one_figure() {
    let figures = of_paper();
    assert!(figures.iter().all(|figure| figure.verdict != DIFFERS), "{}", table(&figures));
    let ours = |id: &str| figures.iter().find(|figure| figure.id == id).and_then(|figure| figure.ours).expect(id);
    assert_eq!(ours("ticket/length"), tegmen_delegation::LONGEST_TICKET as f64);
    // A ticket that opens saves the round of the cookie; an id is looked up after it.
    for (name, flights) in [("delegation", 3), ("delegation_by_id", 5)] {
        let start = format!("figure8/{name}/flight_");
        assert_eq!(figures.iter().filter(|figure| figure.id.starts_with(&start)).count(), flights * 3);
    }
    let bounded = figures.iter().filter(|figure| figure.verdict.starts_with(HOLDS)).count();
    // Computation, transmission and frames, beside a resumption, the ticket.
    assert_eq!(bounded, 4 + 4 + 2 + 2);
    let mut ids: Vec<_> = figures.iter().map(|figure| &figure.id).collect();
    ids.sort_unstable();
    assert!(ids.windows(2).all(|two| two[0] != two[1]), "{ids:?}");
}

#[test]
fn a_ticket_has_the_blocks_of_a_record_of_64_bytes() {
    // Suite, master secret, connection, scope, two times.
    let state_len: usize = 2 + 48 + 3 + 1 + 4 + 4;
    assert_eq!(state_len.div_ceil(16), 64usize.div_ceil(16));
    assert_eq!(2 + 9 + state_len + 16, tegmen_delegation::LONGEST_TICKET);
}

#[test]
fn beyond_the_paper_the_aims_hold_and_the_same_seeds_give_the_same_figures() {
    let effort = Effort { seeds: 1, peers: &[3], devices: 6 };
    let figures = beyond::figures(effort, |_, _| {});
    assert!(figures.iter().all(|figure| figure.verdict != DIFFERS), "{}", table(&figures));
    assert_eq!(figures, beyond::figures(effort, |_, _| {}));
    let ids: std::collections::BTreeSet<_> = figures.iter().map(|figure| &figure.id).collect();
    assert_eq!(ids.len(), figures.len());

    let ours = |id: &str| figures.iter().find(|figure| figure.id == id).and_then(|figure| figure.ours).expect(id);
    // Each peer verifies and signs once.
    assert_eq!(ours("storm/certificate/3_peers/in_a_minute/public_key_answers"), 2.0);
    assert_eq!(ours("storm/delegation/3_peers/in_a_minute/refusals"), 1.0);
    assert_eq!([ours("fleet/server/psk_handshakes"), ours("fleet/server/resumptions")], [6.0, 6.0]);
    let [energies, medians] = ["energy", "median"].map(|what| {
        ["always_on", "1_s", "10_s", "60_s"].map(|interval| ours(&format!("sleepy/{interval}/revocation/{what}")))
    });
    assert!(energies.is_sorted_by(|shorter, longer| shorter > longer), "{energies:?}");
    assert!(medians.is_sorted_by(|shorter, longer| shorter < longer), "{medians:?}");
    assert!(ours("sleepy/300_s/revocation/delivered") < 100.0);
}
