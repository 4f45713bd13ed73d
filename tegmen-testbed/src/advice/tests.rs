use super::*;
use crate::deployment::Plan;
use crate::mote::Protection;
use crate::runs::{self, Store};

fn advice(loss: f64) -> Advice {
    let text = format!(
        "about = \"a test\"\n[network]\ntopology = \"star\"\nnodes = 2\nloss = {loss}\n[traffic]\nperiod_s = 5.0\n\
             payload = 4\nreadings = 20\n[run]\nseeds = 2\n"
    );
    Advice::of(runs::run(&Plan::parse("test.toml", &text).unwrap(), &Store::none(), |_, _| {}))
}

#[test]
fn a_good_network_is_told_to_protect_itself_and_what_that_costs() {
    let advice = advice(0.0);
    let [sentence] = &advice.recommendation[..] else { panic!("one case") };
    assert!(sentence.starts_with("take oscore; against coap it costs +"), "{sentence}");
    assert_eq!(advice.table.len(), Protection::USUAL.len());
    assert!(advice.text().contains(sentence));
}

#[test]
fn a_bad_network_is_told_so() {
    let sentence = &advice(0.85).recommendation[0];
    assert!(sentence.contains("links are the matter") || sentence.contains("shorten the way"), "{sentence}");
}
