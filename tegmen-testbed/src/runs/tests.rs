use super::*;

fn plan(seeds: u64) -> Plan {
    let text = format!(
        "about = \"a test\"\n[network]\ntopology = \"star\"\nnodes = 2\n[traffic]\nperiod_s = 1.0\npayload = 4\n\
             readings = 5\n[run]\nseeds = {seeds}\n[sweep]\n\"network.loss\" = [0.0, 0.2]\n"
    );
    Plan::parse("test.toml", &text).unwrap()
}

#[test]
fn every_case_is_summed_up_under_every_protection() {
    let summaries = run(&plan(3), &Store::none(), |_, _| {});
    let named: Vec<_> = summaries.iter().map(|s| (s.case["network.loss"].as_str(), s.protection)).collect();
    let expected = ["0.0", "0.2"].map(|loss| Protection::USUAL.map(|protection| (loss, protection)));
    assert_eq!(named, expected.concat());
    assert!(summaries.iter().all(|s| (s.seeds, s.readings) == (3, 30) && s.rom > 0));
    assert!(summaries[1].rom > summaries[0].rom && summaries[1].battery_years < summaries[0].battery_years);
    assert!(summaries[0].battery_years_always_on < summaries[0].battery_years / 10.0);
    assert!((7..=13).contains(&table(&summaries).lines().count()));
    assert!(summaries.iter().all(|s| s.by_node.len() == 2 && s.by_node[1].node == 2));
}

#[test]
fn a_finished_run_is_not_computed_again_and_gives_the_same() {
    let folder = std::env::temp_dir().join(format!("tegmen-runs-{}", std::process::id()));
    let store = Store::at(&folder).unwrap();
    let plan = plan(2);
    let first = run(&plan, &store, |_, _| {});
    let again = run(&plan, &store, |_, _| {});
    let more = run(&self::plan(3), &store, |_, _| {});
    let _ = fs::remove_dir_all(&folder);
    assert!(first.iter().all(|summary| summary.speed.is_some()));
    assert!(again.iter().all(|summary| summary.speed.is_none()));
    assert!(more.iter().all(|summary| summary.seeds == 3 && summary.speed.is_some()));
    let json = |summaries: &[Summary]| serde_json::to_string(summaries).unwrap();
    assert_eq!(json(&first), json(&again));
}

#[test]
fn a_share_of_few_readings_is_not_certain_and_the_mean_is_told() {
    let text = "about = \"few\"\n[network]\ntopology = \"star\"\nnodes = 1\n[traffic]\nperiod_s = 2.0\npayload = 4\n\
                readings = 20\n[stack]\nprotections = [\"coap\"]\n[run]\nseeds = 2\n";
    let plan = Plan::parse("few.toml", text).unwrap();
    let summaries = run(&plan, &Store::none(), |_, _| {});
    let [low, high] = summaries[0].delivered.interval.unwrap();
    assert!(summaries[0].delivered.mean == 1.0 && low < 0.95 && high == 1.0, "{low} {high}");
    assert_eq!(summaries[0].first_try.mean, 1.0);
    let (mean, median) = (summaries[0].delay_mean_ms.mean, summaries[0].delay_p50_ms.mean);
    assert!((0.7..1.5).contains(&(mean / median)), "{mean} {median}");
    assert!(table(&summaries).contains("100.00% (9"), "{}", table(&summaries));
}

#[test]
fn a_thousand_nodes_in_a_tree_of_three_hops_are_answered() {
    let text = include_str!("../../../examples/thousand.toml").replace("readings = 30", "readings = 1");
    let plan = Plan::parse("thousand.toml", &text.replace("seeds = 2", "seeds = 1")).unwrap();
    let summaries = run(&plan, &Store::none(), |_, _| {});
    let of_it = &summaries[0];
    assert_eq!((of_it.hops, of_it.by_node.len(), of_it.readings), (3, 1000, 1000));
    assert!(of_it.delivered.mean > 0.99, "{:?}", of_it.delivered);
}
