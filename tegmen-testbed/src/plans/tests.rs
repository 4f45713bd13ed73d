use super::*;

#[test]
fn every_plan_is_read() {
    for named in ALL {
        let plan = named.plan().unwrap_or_else(|wrong| panic!("{wrong}"));
        assert!(!plan.cases.is_empty() && !plan.about.is_empty());
    }
}
