use super::*;

fn changes(older: &str, newer: &str, parties: &[&str]) -> Vec<String> {
    let parties: Vec<OwnedParty> = parties.iter().map(|words| party(words)).collect();
    let diff = policy(older).diff(&policy(newer), &parties);
    assert!(diff.complete);
    diff.changes.iter().map(ToString::to_string).collect()
}

#[test]
fn the_same_rules_in_another_order_make_no_difference() {
    let (rules, tests) = KITCHEN.split_once("[[test]]").expect("tests");
    let mut parts: Vec<&str> = rules.split("[[rule]]").skip(1).collect();
    parts.reverse();
    let reversed = format!("[[rule]]{}[[test]]{tests}", parts.join("[[rule]]"));
    assert!(policy(KITCHEN).diff(&policy(&reversed), &[]).is_empty());
}

#[test]
fn a_removed_rule_shows_what_it_took_and_what_it_gave() {
    let start = KITCHEN.find("[[rule]]\nname = \"display-9").expect("the rule");
    let end = KITCHEN.find("[[rule]]\nsubject = \"cook\"").expect("the next");
    let without = format!("{}{}", &KITCHEN[..start], &KITCHEN[end..]).replace("by = \"display-9 is lent\"\n", "");
    let diff = policy(KITCHEN).diff(&policy(&without), &[]);
    assert_eq!(diff.removed.len(), 1, "{diff:?}");
    assert!(diff.added.is_empty());
    let found = changes(KITCHEN, &without, &[]);
    assert!(found.contains(&"now allowed: GET /sensors/1 by display-9 at oven tag:kitchen".to_owned()), "{found:?}");
    assert!(found.contains(&"now allowed: read /status by display-9 at example tag:kitchen".to_owned()), "{found:?}");
    assert!(found.iter().all(|change| change.starts_with("now allowed")), "{found:?}");
}

#[test]
fn a_changed_effect_shows_on_the_parties_of_the_caller() {
    let newer = KITCHEN.replace("allow = \"read-write /program\"", "allow = \"read /program\"");
    let found = changes(KITCHEN, &newer, &["cook tag:staff"]);
    assert!(found.contains(&"now refused: write /program by cook tag:staff at oven".to_owned()), "{found:?}");
    assert!(found.contains(&"now refused: write /program by cook at fridge".to_owned()), "{found:?}");
    assert!(!found.iter().any(|change| change.contains("display")), "{found:?}");
}
