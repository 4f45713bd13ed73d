use super::*;
use std::collections::BTreeSet;

#[test]
fn titles_are_those_of_the_data_of_each_paper() {
    for (paper, data) in [
        (BLINK, include_str!("../../../data/blink.toml")),
        (OBJECTS, include_str!("../../../data/objects.toml")),
        (DELEGATION, include_str!("../../../data/delegation.toml")),
        (TWO_WAY, include_str!("../../../data/two-way.toml")),
        (AXIOM, include_str!("../../../data/axiom.toml")),
    ] {
        let data: toml::Table = toml::from_str(data).expect("the figures of a paper");
        assert_eq!(data["paper"].as_str(), Some(paper.title));
        assert!(ALL.iter().any(|plan| plan.paper == paper), "{}", paper.name);
    }
    let names: BTreeSet<_> = ALL.iter().map(|plan| plan.name).collect();
    assert_eq!(names.len(), ALL.len());
}

#[test]
fn figures_that_are_kept_are_the_same_and_not_computed_again() {
    let folder = std::env::temp_dir().join(format!("tegmen-plans-{}", std::process::id()));
    let store = Store::at(&folder).expect("a store");
    let none =
        Inputs { messages: &|| Err(io::Error::other("not needed")), rekeying: &|| Err(io::Error::other("not needed")) };
    let plan = ALL.iter().find(|plan| plan.name == "handshakes").expect("a plan");
    assert!(plan.kept(&store, 1).is_none());
    let first = plan.figures(&store, &none, 1, &|_, _| {}).expect("figures");
    assert_eq!(plan.kept(&store, 1).as_ref(), Some(&first));
    assert!(plan.kept(&store, 2).is_none(), "another number of seeds is another result");
    let axiom = ALL.iter().find(|plan| plan.name == "axiom").expect("a plan");
    assert_eq!(axiom.figures(&store, &none, 1, &|_, _| {}).expect_err("an input").to_string(), "not needed");
    assert!(axiom.kept(&store, 1).is_none());
    let _ = std::fs::remove_dir_all(&folder);
}

#[test]
fn any_number_of_seeds_is_at_most_the_whole_plan() {
    let none =
        Inputs { messages: &|| Err(io::Error::other("not needed")), rekeying: &|| Err(io::Error::other("not needed")) };
    let plan = ALL.iter().find(|plan| plan.name == "objects-discovery").expect("a plan");
    let figures = plan.figures(&Store::none(), &none, u64::MAX, &|_, _| {}).expect("figures");
    assert_eq!(figures, discovery::figures(discovery::FULL));
}
