use super::*;
use crate::figure::{DIFFERS, HOLDS, table};

#[test]
fn the_aims_hold_and_an_id_names_one_figure() {
    let figures = figures();
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
