use super::super::{Store, all, summarize};
use super::*;

fn plan(seeds: &str) -> Plan {
    let text = "about = \"a test\"\n[network]\ntopology = \"star\"\nnodes = 2\n[traffic]\nperiod_s = 1.0\npayload = 4\n\
                    readings = 5\n[sweep]\n\"network.bursts\" = [\"wlan\", { good_s = 1.0, bad_s = 0.5, loss = 0.5 }]\n";
    let mut plan = Plan::parse("test.toml", text).unwrap();
    set_seeds(&mut plan, &super::seeds(seeds).unwrap());
    plan
}

fn file(seeds: &str) -> (String, String) {
    let plan = plan(seeds);
    (seeds.into(), write(&plan, &all(&plan, &Store::none(), |_, _| {})).unwrap())
}

#[test]
fn parts_in_any_order_give_the_bytes_of_the_whole() {
    let whole = file("3..9");
    let plan = plan("1..1");
    let merged = merge(&plan, &[file("7..9"), file("3..3"), file("4..6")]).unwrap();
    assert_eq!(write(&plan, &merged).unwrap(), whole.1);
    assert_eq!(whole.1.lines().count(), 2 + 2 * Protection::USUAL.len() * 7);
    let of_whole = merge(&plan, &[whole]).unwrap();
    assert_eq!(summarize(&plan, &of_whole), summarize(&plan, &merged));
    assert!(summarize(&plan, &merged).iter().all(|summary| summary.seeds == 7));
}

#[test]
fn what_does_not_belong_together_is_refused_with_its_name() {
    let plan = plan("1..1");
    let (a, b) = (file("1..3"), file("3..4"));
    let refused = |parts: &[(String, String)]| merge(&plan, parts).unwrap_err();
    let overlap = refused(&[a.clone(), b]);
    assert!(overlap.contains("1..3 and 3..4 both have seed 3"), "{overlap}");
    let changed = |from: &str, to: &str| (a.0.clone(), a.1.replacen(from, to, 1));
    assert!(refused(&[changed(", plan ", ", plan 1")]).contains("1..3: made from another plan"));
    assert!(refused(&[changed("; program ", "; program 1")]).contains("1..3: made by another build"));
    assert!(refused(&[("x".into(), "case\n".into())]).contains("x: not a file"));
    assert!(refused(&[changed("1,coap,", "9,coap,")]).contains("line 3"));
    let mut other = plan.clone();
    other.cases[0].deployment.traffic.payload = 5;
    assert!(merge(&other, &[a]).unwrap_err().contains("another plan"));
}

#[test]
fn seeds_are_first_and_last() {
    assert_eq!(seeds("1..50"), Ok(1..=50));
    assert_eq!(seeds("7..7"), Ok(7..=7));
    for wrong in ["", "1", "5..1", "a..b", "1..", "..", "1...5", "0..99999999999", "1..2000000"] {
        assert!(seeds(wrong).unwrap_err().contains("1..50"), "{wrong}");
    }
}
