use super::*;

const GOOD: &str = r#"about = "a test"
[network]
topology = "star"
nodes = 3
loss = 0.1
[traffic]
period_s = 2.0
payload = 10
"#;

fn wrong(text: &str) -> Wrong {
    Plan::parse("plan.toml", text).unwrap_err()
}

fn changed(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from));
    GOOD.replace(from, to)
}

#[test]
fn a_plan_is_read_with_what_it_leaves_out() {
    let plan = Plan::parse("plan.toml", GOOD).unwrap();
    let [case] = &plan.cases[..] else { panic!("one case") };
    assert_eq!(case.deployment.stack.protections, Protection::USUAL);
    assert_eq!((case.deployment.traffic.readings, case.deployment.run.seeds), (100, 5));
    assert_eq!(case.deployment.links().unwrap().nodes(), 4);
}

#[test]
fn an_unknown_key_is_named_with_its_line_and_what_there_is() {
    let wrong = wrong(&changed("loss = 0.1", "lose = 0.1"));
    assert_eq!(wrong.line, Some(5));
    assert!(wrong.what.contains("`lose`") && wrong.what.contains("`loss`"), "{wrong}");
}

#[test]
fn what_cannot_be_is_named_with_its_line_and_what_is_allowed() {
    let negative = wrong(&changed("loss = 0.1", "loss = -0.1"));
    assert_eq!((negative.line, negative.what.contains("from 0 to 1")), (Some(5), true), "{negative}");
    let long = wrong(&changed("payload = 10", "payload = 4000"));
    assert_eq!((long.line, long.what.contains("1024 bytes")), (Some(8), true), "{long}");
    let none = wrong(&changed("nodes = 3", "nodes = 0"));
    assert_eq!((none.line, none.what.contains("from 1 to 1000")), (Some(4), true), "{none}");
    let platform = wrong(&format!("{GOOD}[mote]\nplatform = \"abacus\"\n"));
    assert_eq!((platform.line, platform.what.contains("z1")), (Some(10), true), "{platform}");
    let chain = wrong(&changed("\"star\"", "\"chain\""));
    assert_eq!(chain.line, Some(4), "{chain}");
    let text = format!("{GOOD}[stack]\nprotections = [\"coap\", \"carrier pigeon\"]\n");
    let pigeon = wrong(&text);
    assert_eq!((pigeon.line, pigeon.what.contains("coap+dtls")), (Some(10), true), "{pigeon}");
}

#[test]
fn what_would_never_end_or_never_happen_is_refused_with_its_line() {
    let refused = |text: &str, line: usize, words: &[&str]| {
        let wrong = wrong(text);
        assert_eq!(wrong.line, Some(line), "{wrong}");
        assert!(words.iter().all(|word| wrong.what.contains(word)), "{wrong}");
    };
    refused(&format!("{GOOD}readings = 4000000000\n"), 9, &["12000000000", "5000000 at most"]);
    let slow = changed("period_s = 2.0", "period_s = 1e6");
    refused(&format!("{slow}readings = 1000\n"), 9, &["1000000000 s", "three years"]);
    refused(&format!("{GOOD}[mote]\nbattery_mah = inf\n"), 10, &["inf", "1e9 at most"]);
    refused(&format!("{GOOD}[mote]\nsleep_ua = inf\n"), 10, &["sleep_ua", "1e9"]);
    refused(&format!("{GOOD}[mote]\nstack_us = 4000000000\n"), 10, &["4000000000", "1000000 at most"]);
    for at_s in ["1e300", "200.5"] {
        refused(&format!("{GOOD}[[moves]]\nnode = 1\nat_s = {at_s}\n"), 11, &["up to 200", "last reading"]);
    }
    refused(&format!("{GOOD}[stack]\nprotections = [\"coap\", \"coap\"]\n"), 10, &["coap stands there twice"]);
}

#[test]
fn a_number_of_the_wrong_kind_is_told_what_is_allowed() {
    for (from, to, words) in [
        ("nodes = 3", "nodes = -3", "a whole number from 0 to 18446744073709551615"),
        ("period_s = 2.0", "period_s = 2.0\nreadings = 1.5", "a whole number from 0 to 4294967295"),
        ("period_s = 2.0", "period_s = \"often\"", "expected a number"),
        ("loss = 0.1", "loss = 0.1\n[stack]\nports = [70000, 1]", "a whole number from 0 to 65535"),
        ("loss = 0.1", "loss = 0.1\n[stack]\nhop_limit = 300", "a whole number from 0 to 255"),
    ] {
        let wrong = wrong(&changed(from, to));
        assert!(wrong.line.is_some() && wrong.what.contains(words), "{wrong}");
    }
    let swept = wrong(&format!("{GOOD}[sweep]\n\"network.nodes\" = [1, -2]\n"));
    assert!(swept.what.contains("a whole number from 0"), "{swept}");
}

#[test]
fn a_node_without_a_way_is_named() {
    let text = changed("\"star\"", "\"links\"").replace("loss = 0.1", "links = [[0, 1], [2, 3]]");
    let wrong = wrong(&text);
    assert_eq!((wrong.line, wrong.what.as_str()), (Some(5), "node 2 is not reached from node 0: a link is missing"));
    let outside = text.replace("[2, 3]", "[2, 7]");
    assert!(Plan::parse("plan.toml", &outside).unwrap_err().what.contains("nodes 0 to 3"));
}

#[test]
fn a_sweep_is_every_combination_and_its_faults_are_found() {
    let sweep = "[sweep]\n\"network.loss\" = [0.0, 0.3]\n\"network.nodes\" = [1, 2, 5]\n";
    let plan = Plan::parse("plan.toml", &format!("{GOOD}{sweep}")).unwrap();
    let cases: Vec<_> =
        plan.cases.iter().map(|case| (case.deployment.network.loss.clone(), case.deployment.network.nodes)).collect();
    let expected = [0.0, 0.3].into_iter().flat_map(|loss| [1, 2, 5].map(|nodes| (Loss::Every(loss), Some(nodes))));
    assert_eq!(cases, expected.collect::<Vec<_>>());
    assert_eq!(plan.cases[4].values["network.loss"], "0.3");

    let wrong = wrong(&format!("{GOOD}[sweep]\n\"network.loss\" = [0.0, 2.0]\n"));
    assert_eq!(wrong.line, Some(10), "{wrong}");
    let unknown = Plan::parse("plan.toml", &format!("{GOOD}[sweep]\n\"network.lost\" = [1]\n")).unwrap_err();
    assert!(unknown.what.contains("network.lost") && unknown.what.contains("`loss`"), "{unknown}");
}

#[test]
fn link_local_addresses_do_not_leave_their_hop() {
    let chain = changed("\"star\"", "\"chain\"").replace("nodes = 3", "hops = 3");
    assert!(Plan::parse("plan.toml", &chain).is_ok());
    let wrong = wrong(&format!("{chain}[stack]\naddresses = \"link-local\"\n"));
    assert_eq!((wrong.line, wrong.what.contains("one hop")), (Some(10), true), "{wrong}");
}

#[test]
fn a_matrix_gives_each_way_its_own_loss() {
    let matrix = "loss = [[0.0, 0.1, 0, 0], [0.2, 0, 0, 0], [1, 0, 0, 0],\n  [0, 0, 0, 0]]";
    let plan = Plan::parse("plan.toml", &changed("loss = 0.1", matrix)).unwrap();
    let links = plan.cases[0].deployment.links().unwrap();
    assert_eq!([(0, 1), (1, 0), (2, 0), (0, 2)].map(|(from, to)| links.loss(from, to)), [0.1, 0.2, 1.0, 0.0]);

    let rows = matrix.replace("], [", "],\n  [");
    let after = wrong(&changed("loss = 0.1", &format!("{rows}\nbursts = \"rain\"")));
    assert_eq!(after.line, Some(9), "{after}");

    let short = wrong(&changed("loss = 0.1", "loss = [[0.0, 0.1], [0.2, 0.0]]"));
    assert_eq!((short.line, short.what.contains("4 rows of 4")), (Some(5), true), "{short}");
    let much = wrong(&changed("loss = 0.1", &matrix.replace("0.2", "2.0")));
    assert_eq!((much.line, much.what.contains("from 0 to 1")), (Some(5), true), "{much}");
    let word = wrong(&changed("loss = 0.1", "loss = \"some\""));
    assert_eq!((word.line, word.what.contains("a row for each sender")), (Some(5), true), "{word}");
}

#[test]
fn bursts_have_names_or_numbers() {
    for (name, weather) in BURSTS {
        let plan = Plan::parse("plan.toml", &changed("loss = 0.1", &format!("bursts = \"{name}\""))).unwrap();
        assert_eq!(plan.cases[0].deployment.network.bursts, Some(*weather));
        assert!(
            plan.cases[0].deployment.links().unwrap().bursts(0, 1).is_some_and(|bursts| bursts.mean_loss(0.0) <= 0.1)
        );
    }
    let numbers = changed("loss = 0.1", "bursts = { good_s = 0.9, bad_s = 0.1, loss = 1.0 }");
    assert!(Plan::parse("plan.toml", &numbers).is_ok());
    let unknown = wrong(&changed("loss = 0.1", "bursts = \"rain\""));
    assert_eq!(
        (unknown.line, BURSTS.iter().all(|(name, _)| unknown.what.contains(name))),
        (Some(5), true),
        "{unknown}"
    );
    let never = wrong(&changed("loss = 0.1", "bursts = { good_s = 0.0, bad_s = 0.1, loss = 1.0 }"));
    assert_eq!((never.line, never.what.contains("more than 0")), (Some(5), true), "{never}");
    let swept = wrong(&format!("{GOOD}[sweep]\n\"network.bursts\" = [\"wlan\", \"rain\"]\n"));
    assert!(swept.what.contains("rain") && swept.what.contains("shadow"), "{swept}");
}

#[test]
fn numbers_that_no_run_could_bear_are_refused() {
    for (section, key, value) in [
        ("traffic", "period_s", "1e300"),
        ("run", "seeds", "9223372036854775807"),
        ("run", "first_seed", "9223372036854775807"),
        ("network", "bursts", "{ good_s = 1e300, bad_s = 1.0, loss = 1.0 }"),
        ("network", "bursts", "{ good_s = nan, bad_s = 1.0, loss = 1.0 }"),
        ("traffic", "group", "{ leisure_s = inf }"),
    ] {
        let line = format!("{key} = {value}\n");
        let text = match section {
            "run" => format!("{GOOD}[run]\n{line}"),
            _ => GOOD
                .replace("period_s = 2.0\n", if key == "period_s" { "" } else { "period_s = 2.0\n" })
                .replace(&format!("[{section}]\n"), &format!("[{section}]\n{line}")),
        };
        let wrong = wrong(&text);
        assert!(wrong.line.is_some() && wrong.what.contains(key), "{wrong}");
    }
}

#[test]
fn moves_are_of_nodes_that_are_there() {
    let with = |moves: &str| Plan::parse("plan.toml", &format!("{GOOD}[[moves]]\n{moves}\n"));
    let plan = with("node = 3\nat_s = 20").unwrap();
    let expected = Move { node: 3, at_s: 20.0, changes: Changes::Address };
    assert_eq!(plan.cases[0].deployment.moves, [expected]);
    let far = with("node = 4\nat_s = 20.0").unwrap_err();
    assert_eq!((far.line, far.what.contains("nodes 1 to 3")), (Some(10), true), "{far}");
    let local = with("node = 1\nat_s = 20.0\n[stack]\naddresses = \"link-local\"").unwrap_err();
    assert_eq!((local.line, local.what.contains("changes = \"port\"")), (Some(13), true), "{local}");
    let what = with("node = 1\nat_s = 20.0\nchanges = \"name\"").unwrap_err();
    assert_eq!((what.line, what.what.contains("`address`")), (Some(12), true), "{what}");
}

#[test]
fn a_group_has_protections_of_its_own() {
    let group = GOOD.replace("payload = 10", "payload = 10\ngroup = { leisure_s = 2.5 }");
    let with =
        |protections: &str, ports: &str| format!("{group}[stack]\nprotections = {protections}\nports = {ports}\n");
    let plan = Plan::parse("plan.toml", &with("[\"coap\", \"axiom\", \"axiom+dtls\"]", "[5683, 5683]")).unwrap();
    assert_eq!(plan.cases[0].deployment.traffic.group, Some(Group { leisure_s: 2.5, each: false, tag: 16 }));
    let each = group.replace("2.5", "2.5, each = true, tag = 8");
    Plan::parse("plan.toml", &format!("{each}[stack]\nprotections = [\"coap\", \"coap+dtls\"]\n")).unwrap();
    for (text, what) in [
        (with("[\"coap+dtls\"]", "[5683, 5683]"), "each = true coap and coap+dtls"),
        (with("[\"oscore\"]", "[5683, 5683]"), "axiom+dtls"),
        (with("[\"coap\"]", "[5683, 5684]"), "one port"),
        (with("[\"coap\"]", "[5683, 5683]").replace("2.5", "2.5, tag = 12"), "8 or 16"),
        (format!("{each}[stack]\nprotections = [\"axiom\"]\n"), "each = true coap and coap+dtls"),
        (format!("{GOOD}[stack]\nprotections = [\"axiom\"]\n"), "axiom is for a group"),
    ] {
        let wrong = wrong(&text);
        assert!(wrong.line.is_some() && wrong.what.contains(what), "{wrong}");
    }
}

#[test]
fn readings_with_names_cannot_have_what_belongs_to_addresses_and_sessions() {
    let asking = GOOD.replace("payload = 10", "payload = 0");
    for protection in Protection::NAMED {
        let stack = format!("[stack]\nprotections = [\"{}\"]\n", protection.name());
        let plan = Plan::parse("plan.toml", &format!("{asking}{stack}")).unwrap();
        assert_eq!(plan.cases[0].deployment.stack.protections, [protection]);
        let reboots = "payload = 0\nreboots = { share = 0.1, of = \"server\" }";
        for (text, what) in [
            (format!("{GOOD}{stack}"), "sends none: 0"),
            (format!("{}{stack}", asking.replace("payload = 0", reboots)), "of = \"client\""),
            (format!("{asking}{stack}[[moves]]\nnode = 1\nat_s = 1.0\n"), "no address"),
            (format!("{asking}{stack}[mote]\npolls_s = 1.0\n"), "always on"),
        ] {
            let wrong = wrong(&text);
            assert!(
                wrong.line.is_some() && wrong.what.contains(what) && wrong.what.contains(protection.name()),
                "{wrong}"
            );
        }
    }
}

#[test]
fn each_protection_has_its_name_and_what_it_cannot_be_used_with() {
    for protection in Protection::ALL {
        let text = format!("{GOOD}[stack]\nprotections = [\"{}\"]\n", protection.name());
        let plan = Plan::parse("plan.toml", &text).unwrap();
        assert_eq!(plan.cases[0].deployment.stack.protections, [protection]);
        let minimal = Plan::parse("plan.toml", &format!("{text}profile = \"minimal\"\n"));
        if !protection.has_extensions() {
            assert!(minimal.is_ok(), "{protection:?}");
            continue;
        }
        let wrong = minimal.unwrap_err();
        let words = [protection.name(), "no extensions", "\"default\""];
        assert_eq!((wrong.line, words.iter().all(|word| wrong.what.contains(word))), (Some(11), true), "{wrong}");
        let group = text.replace("payload = 10", "payload = 10\ngroup = { each = true }");
        let wrong = Plan::parse("plan.toml", &group).unwrap_err();
        assert_eq!((wrong.line, wrong.what.contains("coap and coap+dtls")), (Some(11), true), "{wrong}");
    }
    for misspelt in ["certificates", "raw_key", "tickets", "connection_id", "delegated"] {
        let wrong = wrong(&format!("{GOOD}[stack]\nprotections = [\"coap\", \"{misspelt}\"]\n"));
        assert_eq!(wrong.line, Some(10), "{wrong}");
        let names = Protection::ALL.map(Protection::name);
        assert!(wrong.what.contains(misspelt) && names.iter().all(|name| wrong.what.contains(name)), "{wrong}");
    }
}
