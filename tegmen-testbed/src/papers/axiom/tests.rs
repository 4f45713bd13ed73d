use super::transaction::QUANTITIES;
use super::*;
use crate::figure::{DIFFERS, MISSED, table};
use std::sync::LazyLock;

/// Returns messages similar to those of the product's controller.
fn rekeying() -> Rekeying {
    let change = |others: usize, len: usize| {
        let mut messages = vec![vec![1; len]; others];
        messages.push(vec![2; 83]);
        Change { messages, milliseconds: 1.0 }
    };
    let eviction = |members: u32, keys: usize| Eviction {
        members,
        key_tree: change(keys, 95),
        point_to_point: change(members as usize - 1, 39),
    };
    let repair = |loss| Repair {
        loss,
        members: 999,
        messages: 11,
        missed: vec![(1, u32::from(loss) * 20), (4, u32::from(loss))],
        missed_point_to_point: u32::from(loss) * 10,
    };
    Rekeying {
        evictions: vec![eviction(4, 2), eviction(100, 7)],
        joining: Joining { session: [vec![1; 60], vec![2; 300]], messages: change(2, 95).messages },
        repairs: [1, 5, 20].map(repair).into(),
        answer: vec![3; 400],
    }
}

/// The figures of a smaller plan, which several tests use.
pub(crate) static FIGURES: LazyLock<Vec<Figure>> = LazyLock::new(|| figures(&rekeying(), SMALL, |_, _| {}));
const SMALL: Effort = Effort { seeds: 2, seeds_of_large: 1, listeners: &[1, 3, 9] };

#[test]
fn the_plan_has_no_handshake_in_axiom_and_misses_only_what_is_explained() {
    let figures = &*FIGURES;
    assert!(figures.iter().all(|figure| figure.verdict != DIFFERS), "{}", table(figures));
    let ours = |id: &str| {
        let found = figures.iter().find(|figure| figure.id == id);
        found.and_then(|figure| figure.ours).unwrap_or_else(|| panic!("{id}"))
    };
    assert_eq!(ours("handshakes/mul_mul/none"), 1.0);
    // One request and three responses, and a datagram of a handshake has a frame or two.
    for (acknowledged, frames) in [("acknowledged", 7.0), ("unacknowledged", 4.0)] {
        assert_eq!(ours(&format!("first/light/{acknowledged}/tag_8/mul_mul/frames")), frames);
        assert_eq!(ours(&format!("later/light/{acknowledged}/tag_8/mul_uni/frames")), frames);
    }
    let missed = figures.iter().filter(|figure| figure.verdict.starts_with(MISSED)).map(|figure| figure.id.as_str());
    let unexplained = missed.filter(|id| id.starts_with("ratio/light") && id.contains("tag_8"));
    assert_eq!(unexplained.collect::<Vec<_>>(), [""; 0]);
    // Every verdict is that of the number beside it.
    for figure in figures.iter().filter(|figure| figure.id.starts_with("ratio/")) {
        let aim = QUANTITIES.iter().find(|quantity| figure.id.contains(&format!("/{}/", quantity.name))).unwrap().aim;
        assert_eq!(figure.ours.unwrap() < aim, figure.verdict.starts_with(MISSED), "{figure:?}");
    }
    // An id names one figure.
    let mut ids: Vec<_> = figures.iter().map(|figure| &figure.id).collect();
    ids.sort_unstable();
    assert!(ids.windows(2).all(|two| two[0] != two[1]), "{ids:?}");
}

/// Checks the bounds that the introduction of the report states.
#[test]
fn energies_are_within_a_quarter_of_the_paper_and_handshakes_take_a_third_of_its_time() {
    let figures = &*FIGURES;
    let ratio = |id: &str| {
        let found = figures.iter().find(|figure| figure.id == id).unwrap_or_else(|| panic!("{id}"));
        found.ours.unwrap() / found.paper.unwrap()
    };
    for scheme in Scheme::ALL {
        for figure in ["figure11", "figure12"] {
            let ratio = ratio(&format!("{figure}/{}", scheme.name()));
            // The operating system of a listener takes less in the paper than that of the sender.
            let most = if figure == "figure12" && !scheme.has_handshakes() { 1.45 } else { 1.25 };
            assert!((0.75..most).contains(&ratio), "{figure} of {}: {ratio}", scheme.name());
        }
    }
    for scheme in Scheme::WITH_HANDSHAKES {
        for place in 1..=LISTENERS {
            assert!(ratio(&format!("table1/{}/handshake_{place}", scheme.name())) < 0.34);
        }
    }
}

#[test]
fn a_new_session_with_the_controller_takes_the_frames_of_a_handshake_more() {
    let figures = &*FIGURES;
    let ours = |id: &str| figures.iter().find(|figure| figure.id == id).and_then(|figure| figure.ours).unwrap();
    let frames = |what: &str, loss: u8| ours(&format!("controller/{what}/{loss}_percent_lost/frames"));
    let handshake = ours("churn/a_listener_joins/uni_uni/1_senders");
    assert_eq!(frames("ask_in_new_session", 0) - frames("ask_in_open_session", 0), handshake);
    // A frame and its acknowledgement, and more of both where they are lost.
    assert_eq!(frames("message_to_one_member", 0), 2.0);
    assert!(frames("message_to_one_member", 20) > 2.3 && frames("join", 20) > frames("join", 0));
}

#[test]
fn a_controller_takes_the_format_of_these_requests() {
    assert_eq!(unicast::GROUPCOMM_CBOR, tegmen_host::group::groupcomm::GROUPCOMM_CBOR);
}
