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

/// Returns the first case of a file whose timers have this period.
fn case(source: &str, period: Micros) -> Case {
    let reference = reference();
    reference.iter().find(|case| case.source == source && case.case.period == period).unwrap().case
}

#[test]
fn node_0_asks_in_a_star_and_the_leaves_ask_where_they_gather() {
    let star = case(GIVEN, 100_000);
    assert_eq!(star.topology, Topology::Star { leaves: 10 });
    assert_eq!(star.pairs(), (1..=10).map(|leaf| (0, leaf)).collect::<Vec<_>>());
    let gather = case(MEASURED, 400_000);
    assert_eq!(gather.topology, Topology::Gather { leaves: 10 });
    assert_eq!(gather.pairs(), (1..=10).map(|leaf| (leaf, 0)).collect::<Vec<_>>());
}

#[test]
fn requests_of_a_saturated_star_wait_in_one_queue() {
    let saturated = Case { requests: 100, ..case(GIVEN, 80_000) };
    let gathering = Case { topology: Topology::Gather { leaves: 10 }, ..saturated };
    let (one_queue, ten_queues) = (saturated.average(2), gathering.average(2));
    assert!(one_queue.mean_ms > 2.0 * ten_queues.mean_ms, "{one_queue:?} {ten_queues:?}");
}

#[test]
fn a_lonely_request_takes_what_the_standard_adds_up_to() {
    let alone = Case {
        topology: Topology::Star { leaves: 1 },
        request: 80,
        response: 70,
        period: 1_000_000,
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
fn a_few_seeds_of_the_loaded_star_come_out_as_in_ns3() {
    let case = case(GIVEN, 120_000);
    let figures = case.average(6);
    assert!((figures.delivered - 0.952).abs() < 0.008 && (figures.mean_ms - 21.05).abs() < 0.6, "{figures:?}");
}

#[test]
fn a_difference_beyond_the_tolerance_is_one() {
    let reference = reference().remove(0);
    let verdict = |ours| compare(&reference, ours).verdict;
    let theirs = reference.figures;
    assert_eq!(verdict(theirs), AGREES);
    assert_eq!(verdict(Figures { mean_ms: theirs.mean_ms * 1.021, ..theirs }), DIFFERS);
    // A median is off by a backoff period, 0.32 ms, at most.
    assert_eq!(verdict(Figures { p50_ms: theirs.p50_ms + 0.31, ..theirs }), AGREES);
    assert_eq!(verdict(Figures { p50_ms: theirs.p50_ms + 0.33, ..theirs }), DIFFERS);
    assert_eq!(verdict(Figures { delivered: theirs.delivered - 0.0041, ..theirs }), DIFFERS);
    assert_eq!(verdict(Figures { mean_ms: theirs.mean_ms * 1.019, ..theirs }), AGREES);
    assert_eq!(verdict(Figures { delivered: theirs.delivered - 0.0039, ..theirs }), AGREES);
}

#[test]
fn a_saturated_case_has_the_wider_tolerance() {
    let reference = reference();
    let saturated = reference.iter().find(|case| case.saturated).unwrap();
    let theirs = saturated.figures;
    let verdict = |ours| compare(saturated, ours).verdict;
    assert_eq!(verdict(Figures { mean_ms: theirs.mean_ms * 1.14, ..theirs }), AGREES);
    assert_eq!(verdict(Figures { mean_ms: theirs.mean_ms * 1.16, ..theirs }), DIFFERS);
    assert_eq!(verdict(Figures { delivered: theirs.delivered - 0.021, ..theirs }), DIFFERS);
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
