use super::*;

#[test]
fn the_reference_is_read_whole() {
    let reference = reference();
    let given = || reference.iter().filter(|case| case.source == GIVEN);
    assert_eq!((given().count(), given().filter(|case| case.saturated).count()), (14, 2));
    assert_eq!(given().filter(|case| matches!(case.case.topology, Topology::Chain { hops: 3 })).count(), 6);
    assert!(given().all(|case| case.seeds == 10 && case.case.request == 80 && case.case.response == 70));
    assert!(reference.iter().filter(|case| case.source == MEASURED).count() >= 15);
}

#[test]
fn who_lies_on_a_ring_hears_the_hub_and_four_others() {
    let links = ring(10);
    assert_eq!(links.audience(0).count(), 10);
    assert!((1..=10).all(|leaf| links.audience(leaf).count() == 5));
    assert_eq!(links.audience(1).collect::<Vec<_>>(), [0, 2, 3, 9, 10]);
}

#[test]
fn the_slots_of_leaves_are_spread_over_the_period() {
    let mut case = reference().remove(0).case;
    assert_eq!((case.topology, case.timing), (Topology::Ring { leaves: 10 }, Timing::Slots));
    assert_eq!(
        [(1, 0), (2, 0), (10, 0), (1, 3)].map(|(node, number)| slot(&case, node, number)),
        [0, 200_000, 1_800_000, 6_000_000]
    );
    case.topology = Topology::Chain { hops: 3 };
    assert_eq!([0, 1].map(|number| slot(&case, 0, number)), [0, 2_000_000]);
}

#[test]
fn a_lonely_request_takes_what_the_standard_adds_up_to() {
    let alone = Case {
        topology: Topology::Star { leaves: 1 },
        request: 80,
        response: 70,
        period: 1_000_000,
        timing: Timing::Drifting,
        loss: 0.0,
        requests: 300,
    };
    // Backoff 1120 in the mean, assessment, turnaround and frame; acknowledgement and turnarounds; and back.
    let expected = (1120 + 128 + 192 + 97 * 32 + 192 + 352 + 192 + 1120 + 128 + 192 + 87 * 32) as f64 / 1e3;
    let figures = alone.average(10);
    assert!((figures.mean_ms / expected - 1.0).abs() < 0.01, "{figures:?}, expected {expected}");
    assert_eq!((figures.delivered, figures.frames_per_request), (1.0, 4.0));
}

#[test]
fn a_difference_beyond_the_tolerance_is_one() {
    let reference = reference().remove(0);
    let verdict = |ours| compare(&reference, ours).verdict;
    let theirs = reference.figures;
    assert_eq!(verdict(theirs), AGREES);
    assert_eq!(verdict(Figures { mean_ms: theirs.mean_ms * 1.031, ..theirs }), DIFFERS);
    assert_eq!(verdict(Figures { p50_ms: theirs.p50_ms * 0.969, ..theirs }), DIFFERS);
    assert_eq!(verdict(Figures { delivered: theirs.delivered - 0.0051, ..theirs }), DIFFERS);
}

#[test]
fn a_few_seeds_of_the_measured_chain_and_star_come_out_as_in_ns3() {
    let reference = reference();
    let unloaded =
        |case: &&Reference| case.source == MEASURED && case.case.loss == 0.0 && case.case.period >= 1_000_000;
    for case in reference.iter().filter(unloaded) {
        assert_eq!(compare(case, case.case.average(3)).verdict, AGREES, "{}", case.id);
    }
}
