use crate::deployment::{Deployment, Group, Plan};
use crate::mote::{Milestone, Protection};
use crate::scenario::{GroupRun, run_group};

/// The five schemes: the protection of each, and true if each member gets a separate request.
const SCHEMES: [(Protection, bool); 5] = [
    (Protection::Coap, true),
    (Protection::Coap, false),
    (Protection::CoapDtls, true),
    (Protection::AxiomDtls, false),
    (Protection::Axiom, false),
];

fn deployment(each: bool, acknowledgements: bool, loss: f64) -> Deployment {
    let text = format!(
        "about = \"a test\"\n[network]\ntopology = \"star\"\nnodes = 3\nloss = {loss}\n[traffic]\nperiod_s = 40.0\n\
         readings = 2\npayload = 4\nresponse = 4\ngroup = {{ leisure_s = 0.25, each = {each} }}\n[stack]\n\
         protections = [\"coap\"]\nlink_addresses = \"extended\"\nacknowledgements = {acknowledgements}\n"
    );
    Plan::parse("test.toml", &text).unwrap().cases.remove(0).deployment
}

fn run(scheme: (Protection, bool), acknowledgements: bool, loss: f64, seed: u64) -> GroupRun {
    run_group(&deployment(scheme.1, acknowledgements, loss), scheme.0, seed)
}

fn milestones(run: &GroupRun) -> Vec<Milestone> {
    let later = run.noted.iter().map(|noted| noted.milestone).filter(|milestone| *milestone != Milestone::Asked);
    later.collect()
}

#[test]
fn every_listener_answers_each_request_in_all_schemes() {
    for scheme in SCHEMES {
        for seed in 1..5 {
            let run = run(scheme, true, 0.0, seed);
            assert_eq!((run.outcome.made, run.outcome.answered), (6, 6), "{scheme:?}");
            assert_eq!(run.outcome.by_node.iter().map(Vec::len).collect::<Vec<_>>(), [0, 2, 2, 2], "{scheme:?}");
            let sessions = if scheme.0.has_sessions() { 3 } else { 0 };
            // A handshake has six datagrams.
            assert_eq!((run.outcome.sessions, run.handshakes), (sessions, 6 * sessions), "{scheme:?}");
            let [opened, connected, answered] = [Milestone::Opened, Milestone::Connected, Milestone::Answered];
            let expected = match scheme.0.has_sessions() {
                true => vec![opened, opened, opened, connected, answered, answered],
                false => vec![answered, answered],
            };
            assert_eq!(milestones(&run), expected, "{scheme:?}");
        }
    }
}

#[test]
fn axiom_never_shakes_hands_whatever_is_lost() {
    for seed in 1..20 {
        let run = run((Protection::Axiom, false), true, 0.3, seed);
        assert_eq!((run.handshakes, run.outcome.sessions), (0, 0));
    }
}

#[test]
fn the_account_of_all_nodes_is_that_of_the_air() {
    for scheme in SCHEMES {
        for acknowledgements in [true, false] {
            let run = run(scheme, acknowledgements, 0.0, 1);
            let last = run.noted.last().unwrap();
            let frames: u64 = last.nodes.iter().map(|(activity, ..)| activity.frames).sum();
            assert_eq!((frames, run.outcome.frames), (run.outcome.frames, run.frames.len() as u64), "{scheme:?}");
            let bytes: usize = run.frames.iter().map(|frame| frame.psdu.len()).sum();
            assert_eq!(bytes as u64, run.outcome.bytes, "{scheme:?}");
            // Node 0 sends to the others, which send only to node 0.
            let sending: u64 = last.nodes.iter().map(|(activity, ..)| activity.sending).sum();
            assert_eq!(sending, (bytes as u64 + 6 * frames) * 32, "{scheme:?}");
            let without = run.frames.iter().all(|frame| frame.psdu.len() > 5);
            assert_eq!(without, !acknowledgements, "acknowledgements are of 5 bytes");
            assert!(last.nodes.windows(2).all(|two| two[0].2 > 0 && two[1].1 > 0), "{scheme:?}");
        }
    }
}

#[test]
fn the_keys_of_a_listener_are_counted_once() {
    let run = run((Protection::Axiom, false), true, 0.0, 1);
    let [_, first, _, second] = &run.noted[..] else { panic!("{:?}", milestones(&run)) };
    let derive = crate::cost::Costs::of_budget().derive;
    for (node, keys) in [(0, 6), (1, 1), (2, 1), (3, 1)] {
        let (of_first, of_both) = (first.nodes[node].2, second.nodes[node].2);
        let exchange = of_both - of_first;
        let polls = of_first - exchange;
        assert_eq!(polls, keys * derive, "node {node}");
    }
}

#[test]
fn a_lost_message_of_a_handshake_comes_again_and_the_rest_follows() {
    let mut answered = 0;
    for seed in 1..10 {
        for scheme in [(Protection::CoapDtls, true), (Protection::AxiomDtls, false)] {
            let run = run(scheme, false, 0.2, seed);
            assert!(run.outcome.sessions >= 2, "{scheme:?}: {}", run.outcome.sessions);
            answered += run.outcome.answered;
        }
    }
    assert!(answered > 80, "{answered} of 108");
}

#[test]
fn tags_of_16_bytes_are_8_bytes_longer() {
    let bytes = |tag| {
        let mut deployment = deployment(false, true, 0.0);
        deployment.traffic.group = Some(Group { leisure_s: 0.25, each: false, tag });
        run_group(&deployment, Protection::Axiom, 1).outcome.bytes
    };
    // Two requests and six responses.
    assert_eq!(bytes(16) - bytes(8), 8 * 8);
}

#[test]
fn plain_coap_sets_the_links_of_the_plan_axiom() {
    let plan = Plan::parse("axiom.toml", include_str!("../../../plans/axiom.toml")).unwrap();
    let deployment = &plan.cases[0].deployment;
    let paper: toml::Table = toml::from_str(include_str!("../../../data/axiom.toml")).unwrap();
    let paper = toml::Value::Table(paper);
    let printed = |path: &str| path.split('/').fold(&paper, |at, key| &at[key]).clone();
    let near = |ours: f64, paper: f64, share: f64| (ours / paper - 1.0).abs() < share;
    for (each, name) in [(true, "coap_uni"), (false, "coap_mul")] {
        let mut deployment = deployment.clone();
        deployment.traffic.group = deployment.traffic.group.map(|group| Group { each, ..group });
        let runs: Vec<_> = (1..=20).map(|seed| run_group(&deployment, Protection::Coap, seed)).collect();
        let last = |run: &GroupRun| run.outcome.by_node.iter().filter_map(|delays| delays.first()).max().copied();
        let mean = runs.iter().filter_map(last).sum::<u64>() as f64 / 20.0 / 1e6;
        if each {
            // The clock of the paper's motes counts 8 ms.
            let printed = printed("table1/coap_uni/exchange").as_float().unwrap();
            assert!((mean - printed).abs() < 0.008, "{mean} s");
        }
        // On the air are the paper's times, without acknowledgements, which its radio sends on its own.
        let millijoules = printed(&format!("table2/sender/{name}/exchange"));
        let printed = |place: usize| millijoules[place].as_float().unwrap();
        let (activity, cpu, _) = runs[0].noted[1].nodes[0];
        let cpu = cpu as f64 * 39.0 / 1e6;
        assert!(near(cpu, printed(0), 0.05), "{name}: {cpu} mJ, not {}", printed(0));
        let sending = (activity.sending - activity.acknowledging) as f64 * 72.0 / 1e6;
        assert!(near(sending, printed(1), 0.12), "{name}: {sending} mJ, not {}", printed(1));
    }
}
