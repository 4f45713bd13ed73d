use super::*;
use crate::deployment::Loss;

#[test]
fn the_file_has_the_largest_topology() {
    let file = deployment(include_str!("../../../../plans/objects-caches.toml"));
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
    let percent = |loss: Option<f64>| {
        let mut deployment = calibrated.clone();
        if let Some(loss) = loss {
            deployment.network.loss = Loss::Every(loss);
        }
        let seeds: Vec<u64> = (1..=3).collect();
        success(&parallel::each(&seeds, |seed| topology.run(&deployment, COAP, *seed), |_| {})).mean
    };
    let printed = paper().fig13.coap;
    let ours = percent(None);
    assert!((ours - printed).abs() < 1.5, "{ours}");
    // A tenth as much, and three times as much, do not fit.
    let [less, more] = [0.0017, 0.051].map(|loss| percent(Some(loss)));
    assert!(less > printed + 2.0 && more < printed - 2.0, "{less} {more}");
}
