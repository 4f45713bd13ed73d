use super::*;
use crate::deployment::Loss;
use crate::figure::DIFFERS;
use std::collections::BTreeSet;

#[test]
fn the_file_has_the_largest_topology() {
    let file = deployment(include_str!("../../../../plans/objects-cache.toml"));
    let mut links = Topology::of_paper(LARGEST).links();
    links.sort_unstable();
    let mut written = file.network.links.clone().unwrap();
    written.sort_unstable();
    assert_eq!(links, written);
    assert_eq!(Topology::of_paper(LARGEST).deployment(100, 0), file);
}

#[test]
fn the_loss_is_calibrated_on_plain_coap_alone() {
    let topology = Topology::of_paper(LARGEST);
    let calibrated = topology.deployment(FULL.requests, delay::stack_us());
    let percent = |loss: Option<f64>, seeds: u64| {
        let mut deployment = calibrated.clone();
        if let Some(loss) = loss {
            deployment.network.loss = Loss::Every(loss);
        }
        let seeds: Vec<u64> = (1..=seeds).collect();
        success(&parallel::each(&seeds, |seed| topology.run(&deployment, COAP, *seed), |_| {})).mean
    };
    let printed = paper().fig13.coap;
    let ours = percent(None, 2);
    assert!((ours - printed).abs() < 1.5, "{ours}");
    // A tenth as much, and three times as much, do not fit.
    let [less, more] = [0.0017, 0.051].map(|loss| percent(Some(loss), 1));
    assert!(less > printed + 2.0 && more < printed - 2.0, "{less} {more}");
}

#[test]
fn caches_lift_what_plain_coap_loses() {
    let figures = figures(Effort { requests: 30, seeds: 1 }, |_, _| {});
    assert!(figures.iter().all(|figure| figure.verdict != DIFFERS), "{}", crate::figure::table(&figures));
    let find =
        |id: &str| figures.iter().find(|figure| figure.id == format!("fig13/5_forwarders_10_producers/{id}")).unwrap();
    assert_eq!(find("caches_lift_what_plain_coap_loses").ours, Some(1.0));
    assert!(find("coap/success").verdict.ends_with("calibrated"));
    assert_eq!(figures.iter().filter(|figure| figure.verdict.ends_with("calibrated")).count(), 1);
    assert!(figures.iter().all(|figure| figure.ours.is_some()));
    for conclusion in
        ["ndn_lifts_what_plain_coap_loses", "ndn_reaches_the_share_of_the_paper", "protection_leaves_ndn_its_stores"]
    {
        assert_eq!(find(conclusion).ours, Some(1.0), "{:?}", find(conclusion));
    }
    let ours = |id: &str| find(id).ours.unwrap();
    assert!(ours("coap_caches/success") > ours("coap_proxies/success"));
    // No proxy stores a response with OSCORE.
    assert!(ours("oscore_caches/success") < ours("coap_caches/success"));
    assert!(ours("ndn/success") > ours("ndn_without_stores/success"));
    let beside = figures.iter().filter(|figure| figure.id.starts_with("fig9/")).collect::<Vec<_>>();
    assert_eq!(beside.len(), 2);
    assert!(beside.iter().all(|figure| figure.verdict.contains("92 to 97 of figure 9")), "{beside:?}");
}

#[test]
fn the_same_seeds_give_the_same_figures() {
    let effort = Effort { requests: 5, seeds: 1 };
    assert_eq!(figures(effort, |_, _| {}), figures(effort, |_, _| {}));
}

#[test]
fn a_stored_response_takes_no_frame_behind_its_forwarder() {
    let topology = Topology::of_paper(1);
    let mut deployment = topology.deployment(100, 0);
    deployment.network.loss = Loss::Every(0.0);
    let runs = parallel::each(&SYSTEMS, |system| topology.run(&deployment, *system, 1), |_| {});
    let [coap, proxies, caches, oscore, oscore_caches, ndn, ndn_without_stores, ndn_protected] =
        runs.try_into().unwrap();
    assert!([&coap, &proxies, &caches, &oscore, &oscore_caches].iter().all(|run| run.answered == 600));
    assert!([&ndn, &ndn_without_stores, &ndn_protected].iter().all(|run| run.answered == 600));
    assert!((1200..1700).contains(&ndn.frames) && (1200..1700).contains(&ndn_protected.frames), "{}", ndn.frames);
    assert!(ndn_without_stores.frames > 2200, "{}", ndn_without_stores.frames);
    // Four frames for a request, and two for one with a stored response; few are lost where two consumers send at once.
    assert!([&coap, &proxies, &oscore, &oscore_caches].iter().all(|run| run.frames >= 2400));
    assert!(proxies.frames < 2500, "{}", proxies.frames);
    assert!((1200..1700).contains(&caches.frames), "{}", caches.frames);
}

#[test]
fn each_path_of_a_tree_ends_at_its_producer() {
    for topology in TREES.into_iter().chain([Topology::of_paper(LARGEST)]) {
        let links: BTreeSet<_> = topology.links().into_iter().collect();
        let nodes = topology.forwarders + topology.producers + topology.consumers;
        assert_eq!(links.len(), nodes - 1, "a tree");
        for producer in 0..topology.producers {
            let (mut node, mut hops) = (0, 0);
            while node < topology.forwarders {
                let next = topology.next(node, producer);
                assert!(links.contains(&[node, next]), "{node} to {next}");
                (node, hops) = (next, hops + 1);
            }
            assert_eq!(node, topology.forwarders + producer);
            let levels = (1..).take_while(|level| 3_usize.pow(*level) < 2 * topology.forwarders + 1).count() + 1;
            assert_eq!(hops, if topology.branches == 1 { topology.forwarders } else { levels });
        }
        // A forwarder that is on no path to a producer sends its request to the root.
        let other = topology.forwarders - 1;
        assert!(topology.branches == 1 || topology.next(other, 0) == topology.parent(other));
    }
    assert_eq!(TREES.map(|tree| tree.forwarders + tree.producers + tree.consumers), [100, 300, 1000]);
    assert_eq!(TREES.map(|tree| tree.forwarders), [13, 40, 121]);
}

#[test]
fn a_request_in_a_tree_of_a_thousand_nodes_is_answered() {
    let topology = TREES[2];
    let mut deployment = topology.deployment(20, 0);
    deployment.network.loss = Loss::Every(0.0);
    let runs = parallel::each(&SYSTEMS, |system| topology.run(&deployment, *system, 1), |_| {});
    for (system, run) in SYSTEMS.iter().zip(&runs) {
        assert_eq!(run.made, 600, "{}", system.name);
        assert!(run.answered > 300, "{}: {} of {}", system.name, run.answered, run.made);
    }
}
