use super::*;
use crate::figure::DIFFERS;

#[test]
fn equation_1_has_the_values_of_the_paper() {
    let figures = figures(Effort { links: 200, servers: 20 });
    assert!(figures.iter().all(|figure| figure.verdict != DIFFERS), "{}", crate::figure::table(&figures));
    let ours = |id: &str| figures.iter().find(|figure| figure.id == id).and_then(|figure| figure.ours).unwrap();
    assert_eq!(format!("{:.3}", ours("eq1/575/collision")), "0.979");
    assert_eq!(ours("eq1/most_below_1_percent"), 581.0);
    assert!(ours("discovery/nodes_that_take_a_request") < 1.01);
}

/// Contexts whose addresses all collide.
#[test]
fn the_owner_alone_opens_a_request() {
    assert_eq!(openings(40), 1);
}

#[test]
fn few_addresses_collide() {
    // 23 people and 365 days.
    assert!((collision(23, 365.0) - 0.507_297).abs() < 1e-6);
    assert_eq!(collision(1, 365.0), 0.0);
}
