use super::*;
use crate::deployment::Plan;
use crate::parallel;
use tegmen_lowpan::frame::Frame;

/// Runs [`super::run`] on a thread with the stack that the table of node 0 needs.
fn run(deployment: &Deployment, protection: Protection, seed: u64, capture: bool) -> (Outcome, Vec<Captured>) {
    parallel::each(&[()], |()| super::run(deployment, protection, seed, capture), |_| {}).remove(0)
}

/// Runs [`super::run_storm`] on a thread with the stack that the table of node 0 needs.
fn run_storm(deployment: &Deployment, protection: Protection, seed: u64) -> Storm {
    let pause = Duration::from_millis(60);
    parallel::each(&[()], |()| super::run_storm(deployment, protection, pause, seed), |_| {}).remove(0)
}

fn deployment(network: &str, rest: &str) -> Deployment {
    let text = format!(
        "about = \"a test\"\n[network]\n{network}\n[traffic]\nperiod_s = 2.0\npayload = 10\nreadings = 30\n{rest}"
    );
    Plan::parse("test.toml", &text).unwrap().cases.remove(0).deployment
}

#[test]
fn every_reading_is_answered_where_nothing_is_lost() {
    for network in [
        "topology = \"star\"\nnodes = 5",
        "topology = \"chain\"\nhops = 3",
        "topology = \"tree\"\nnodes = 7\nfanout = 2",
    ] {
        for protection in Protection::ALL {
            let deployment = deployment(network, "");
            let (outcome, _) = run(&deployment, protection, 1, false);
            let makers = deployment.makers(deployment.links().unwrap().nodes()).len() as u64;
            assert_eq!((outcome.made, outcome.answered), (30 * makers, 30 * makers), "{network} {protection:?}");
            assert_eq!(outcome.delays.len() as u64, outcome.answered);
            let sessions = if protection.has_sessions() { makers } else { 0 };
            assert_eq!(outcome.sessions, sessions);
        }
    }
}

/// Returns a deployment whose nodes request readings, which NDN needs.
fn asking(network: &str) -> Deployment {
    let mut deployment = deployment(network, "");
    (deployment.traffic.payload, deployment.traffic.response) = (0, 2);
    deployment
}

#[test]
fn every_named_reading_comes_where_nothing_is_lost() {
    for network in [
        "topology = \"star\"\nnodes = 5",
        "topology = \"chain\"\nhops = 3",
        "topology = \"tree\"\nnodes = 7\nfanout = 2",
    ] {
        for protection in Protection::NAMED {
            let deployment = asking(network);
            let (outcome, frames) = run(&deployment, protection, 1, true);
            assert_eq!(outcome.answered, outcome.made, "{network} {protection:?}");
            assert_eq!(run(&deployment, protection, 1, true), (outcome, frames), "{network} {protection:?}");
        }
    }
}

#[test]
fn protected_names_cost_45_bytes_in_each_answer() {
    let deployment = asking("topology = \"star\"\nnodes = 1");
    let [plain, protected] = Protection::NAMED.map(|protection| run(&deployment, protection, 1, false).0);
    // 52 by the paper's count, of which an unprotected packet has 7.
    assert_eq!(protected.bytes - plain.bytes, 45 * plain.made);
    assert_eq!(protected.frames, plain.frames);
    assert!(protected.delays[15] > plain.delays[15] && protected.instructions > plain.instructions);
}

#[test]
fn a_long_named_reading_goes_in_fragments() {
    let mut deployment = asking("topology = \"chain\"\nhops = 2");
    deployment.traffic.response = 400;
    let (outcome, frames) = run(&deployment, Protection::NdnProtected, 1, true);
    assert_eq!(outcome.answered, 30);
    assert!(outcome.frames >= 30 * 2 * (2 + 2 * 5), "{}", outcome.frames);
    assert!(frames.iter().all(|frame| frame.psdu.len() <= 127));
}

#[test]
fn a_consumer_that_restarts_asks_again() {
    let mut deployment = asking("topology = \"star\"\nnodes = 3");
    deployment.traffic.reboot_after = Some(0.5);
    let (outcome, _) = run(&deployment, Protection::NdnProtected, 1, false);
    assert!(outcome.answered >= outcome.made - 3, "{} of {}", outcome.answered, outcome.made);
}

#[test]
fn a_session_costs_bytes_time_and_energy() {
    let deployment = deployment("topology = \"star\"\nnodes = 3", "");
    let [plain, secured] =
        [Protection::Coap, Protection::CoapDtls].map(|protection| run(&deployment, protection, 1, false).0);
    // 29 bytes in each direction, and the handshake.
    assert!(secured.bytes > plain.bytes + 2 * 29 * plain.made);
    assert!(secured.delays[45] > plain.delays[45]);
    assert!(secured.energy.radio_by_frame() > plain.energy.radio_by_frame());
    assert!(secured.instructions > 2 * plain.instructions);
}

#[test]
fn oscore_costs_its_bytes_in_each_message_and_no_session() {
    let mut deployment = deployment("topology = \"star\"\nnodes = 1", "");
    deployment.traffic.response = 2;
    let [plain, protected, secured, oscore] =
        [Protection::Coap, Protection::CoapProtected, Protection::CoapDtls, Protection::Oscore]
            .map(|protection| run(&deployment, protection, 1, false).0);
    // 30 exchanges, of which none is repeated; numbers have one byte each.
    assert_eq!(protected.bytes, plain.bytes + 30 * 12);
    assert_eq!(oscore.bytes, plain.bytes + 30 * (14 + 11));
    assert!(oscore.bytes < secured.bytes);
    assert!(plain.delays[15] < protected.delays[15] && protected.delays[15] < oscore.delays[15]);
    assert_eq!((oscore.sessions, oscore.challenges), (0, 0));
    assert!(plain.instructions < protected.instructions && protected.instructions < oscore.instructions);
}

#[test]
fn who_lost_what_it_knew_by_oscore_asks_once_and_goes_on() {
    let with = |of: &str, share: f64| {
        let mut deployment = deployment("topology = \"star\"\nnodes = 3", "");
        let of = if of == "server" { Rebooted::Server } else { Rebooted::Client };
        deployment.traffic.reboots = Some(crate::deployment::Reboots { share, of });
        run(&deployment, Protection::Oscore, 1, false).0
    };
    let always = with("server", 1.0);
    // The first time there is nothing to lose.
    assert_eq!((always.made, always.answered, always.challenges), (90, 90, 87));
    // One more round trip each, and no more.
    let never = with("server", 0.0);
    assert_eq!((never.answered, never.challenges), (90, 0));
    // Of medians: where a frame is lost a retransmission takes as long as all others together.
    let ratio = always.delays[45] as f64 / never.delays[45] as f64;
    assert!((1.7..2.3).contains(&ratio), "{ratio}");
    // A restarted client continues after the last message number that it had reserved, and the server sends no
    // challenge.
    let clients = with("client", 0.5);
    assert_eq!((clients.answered, clients.challenges), (90, 0));
}

#[test]
fn forwarders_make_no_readings() {
    let tree = "topology = \"tree\"\nnodes = 6\nfanout = 2\nforwarders = 2";
    let (outcome, _) = run(&deployment(tree, ""), Protection::Oscore, 1, false);
    assert_eq!((outcome.made, outcome.answered), (4 * 30, 4 * 30));
    assert!(outcome.by_node[1].is_empty() && outcome.by_node[3].len() == 30);
}

#[test]
fn the_operating_system_takes_its_time() {
    let mut deployment = deployment("topology = \"star\"\nnodes = 1", "");
    let without = run(&deployment, Protection::Coap, 1, false).0;
    deployment.mote.stack_us = 1000;
    let with = run(&deployment, Protection::Coap, 1, false).0;
    // Sent, received, and both again on the way back; a little of it passes while the MAC acknowledges.
    let more = (with.delays.iter().sum::<Micros>() - without.delays.iter().sum::<Micros>()) / 30;
    assert!((3_700..4_100).contains(&more), "{more}");
}

#[test]
fn losses_are_made_good_by_the_mac_and_by_coap_and_cost_time() {
    let clean = run(&deployment("topology = \"chain\"\nhops = 3", ""), Protection::CoapDtls, 1, false).0;
    let lossy = run(&deployment("topology = \"chain\"\nhops = 3\nloss = 0.3", ""), Protection::CoapDtls, 1, false).0;
    assert!(lossy.answered >= 28, "{}", lossy.answered);
    assert!(lossy.frames > clean.frames * 3 / 2);
    assert!(lossy.delays.last() > clean.delays.last());
}

#[test]
fn a_dead_network_answers_nothing_and_ends() {
    let outcome = run(&deployment("topology = \"star\"\nnodes = 2\nloss = 1.0", ""), Protection::CoapDtls, 1, false).0;
    assert_eq!((outcome.made, outcome.answered), (60, 0));
}

#[test]
fn long_readings_go_in_fragments() {
    let mut long = deployment("topology = \"chain\"\nhops = 2", "");
    long.traffic.payload = 400;
    for protection in Protection::ALL {
        let (outcome, frames) = run(&long, protection, 1, true);
        assert_eq!(outcome.answered, 30, "{protection:?}");
        // Four frames and their acknowledgements, or more, over each of two hops.
        assert!(outcome.frames >= 30 * 20, "{}", outcome.frames);
        assert!(frames.iter().all(|frame| frame.psdu.len() <= 127));
    }
}

#[test]
fn who_reboots_opens_a_new_session_and_goes_on() {
    let mut deployment = deployment("topology = \"star\"\nnodes = 3", "");
    deployment.traffic.reboot_after = Some(0.5);
    let (outcome, _) = run(&deployment, Protection::CoapDtls, 1, false);
    assert_eq!(outcome.sessions, 6);
    assert!(outcome.answered >= outcome.made - 3, "{} of {}", outcome.answered, outcome.made);
}

#[test]
fn every_form_of_address_arrives() {
    for addresses in ["context", "inline"] {
        for link in ["short", "extended"] {
            let rest =
                format!("[stack]\naddresses = \"{addresses}\"\nlink_addresses = \"{link}\"\nports = [61617, 61618]\n");
            let deployment = deployment("topology = \"chain\"\nhops = 2", &rest);
            assert_eq!(run(&deployment, Protection::CoapDtls, 1, false).0.answered, 30, "{rest}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_frames() {
    let deployment = deployment("topology = \"tree\"\nnodes = 6\nfanout = 2\nloss = 0.2", "");
    let first = run(&deployment, Protection::CoapDtls, 3, true);
    assert_eq!(first, run(&deployment, Protection::CoapDtls, 3, true));
    assert_ne!(first.1, run(&deployment, Protection::CoapDtls, 4, true).1);
}

#[test]
fn who_moves_shakes_hands_again_and_loses_no_reading() {
    for changes in ["address", "port"] {
        let moves = format!(
            "[[moves]]\nnode = 2\nat_s = 20.0\nchanges = \"{changes}\"\n[[moves]]\nnode = 2\nat_s = 40.0\nchanges = \"{changes}\"\n"
        );
        for network in ["topology = \"star\"\nnodes = 3", "topology = \"tree\"\nnodes = 3\nfanout = 1"] {
            for (protection, sessions) in
                [(Protection::Coap, 0), (Protection::CoapDtls, 3 + 2), (Protection::Oscore, 0)]
            {
                let (outcome, _) = run(&deployment(network, &moves), protection, 1, false);
                let counted = (outcome.made, outcome.answered, outcome.sessions, outcome.moves);
                assert_eq!(counted, (90, 90, sessions, 2), "{network} {changes} {protection:?}");
                // At its next reading at the latest, a period and a quarter later.
                assert_eq!(outcome.recoveries.len(), 2);
                assert!(outcome.recoveries.iter().all(|time| *time < 3_500_000), "{:?}", outcome.recoveries);
            }
        }
    }
}

#[test]
fn frames_of_others_cost_where_all_hear_all() {
    let overheard = |network: &str| {
        let (outcome, _) = run(&deployment(network, ""), Protection::Coap, 1, false);
        outcome.energy.overheard_uj / outcome.energy.rx_uj
    };
    // Alone with node 0 there is nothing to overhear; in a star of six, five others speak and are spoken to.
    assert_eq!(overheard("topology = \"star\"\nnodes = 1"), 0.0);
    assert!(overheard("topology = \"star\"\nnodes = 6") > 5.0);
}

fn group(network: &str, leisure_s: f64) -> Deployment {
    let text = format!(
        "about = \"a test\"\n[network]\n{network}\n[traffic]\nperiod_s = 10.0\npayload = 0\nresponse = 8\nreadings = 40\n\
         group = {{ leisure_s = {leisure_s} }}\n[stack]\nprotections = [\"coap\"]\n"
    );
    Plan::parse("test.toml", &text).unwrap().cases.remove(0).deployment
}

#[test]
fn every_member_of_a_group_answers_at_leisure_however_far_it_is() {
    for network in [
        "topology = \"star\"\nnodes = 6",
        "topology = \"chain\"\nhops = 4",
        "topology = \"tree\"\nnodes = 6\nfanout = 2",
    ] {
        let deployment = group(network, 5.0);
        let (outcome, _) = run(&deployment, Protection::Coap, 1, false);
        let members = deployment.links().unwrap().nodes() as u64 - 1;
        assert_eq!((outcome.made, outcome.sessions), (40 * members, 0), "{network}");
        // A flood is not acknowledged, so a member can miss some requests, but not many.
        assert!(outcome.by_node[1..].iter().all(|delays| delays.len() >= 36), "{network}: {}", outcome.answered);
        assert_eq!(outcome.by_node.iter().map(Vec::len).sum::<usize>() as u64, outcome.answered);
        let mean = outcome.delays.iter().sum::<Micros>() / outcome.answered;
        assert!((2_200_000..2_900_000).contains(&mean), "half the leisure in the mean: {mean}");
        assert!(outcome.delays.iter().all(|delay| *delay < 5_300_000));
    }
}

#[test]
fn a_flood_goes_over_each_relay_once() {
    let (outcome, frames) = run(&group("topology = \"chain\"\nhops = 3", 1.0), Protection::Coap, 1, true);
    let flooded = |frame: &&Captured| {
        let Ok(Frame { header, payload }) = Frame::parse(&frame.psdu) else { return false };
        header.destination == LinkAddress::BROADCAST && payload[0] >> 6 == 0b10
    };
    // Nodes 0, 1 and 2; the last in the row has no node after it.
    let by: Vec<_> = (0..4).map(|node| frames.iter().filter(flooded).filter(|f| f.from == node).count()).collect();
    assert_eq!((by[0], by[3], outcome.made), (40, 0, 120));
    assert!((38..=40).contains(&by[1]) && (36..=40).contains(&by[2]), "{by:?}");
}

#[test]
fn without_leisure_answers_collide() {
    let hurried = run(&group("topology = \"star\"\nnodes = 20", 0.0), Protection::Coap, 1, false).0;
    let leisurely = run(&group("topology = \"star\"\nnodes = 20", 5.0), Protection::Coap, 1, false).0;
    assert!(hurried.answered + 50 < leisurely.answered, "{} and {}", hurried.answered, leisurely.answered);
}

/// Returns the outcomes of two runs. In the first run no node restarts, and in the second run each node restarts once.
fn with_restarts(protection: Protection) -> [Outcome; 2] {
    let mut deployment = deployment("topology = \"star\"\nnodes = 2", "");
    let without = run(&deployment, protection, 1, false).0;
    deployment.traffic.reboot_after = Some(0.5);
    [without, run(&deployment, protection, 1, false).0]
}

#[test]
fn a_session_opens_with_its_handshake_and_is_resumed_where_that_is_possible() {
    let cost = |protection: Protection| {
        let [without, with] = with_restarts(protection);
        assert_eq!((without.sessions, with.sessions), (2, 4), "{protection:?}");
        assert_eq!((without.answered, with.answered), (60, 60), "{protection:?}");
        // Of the first handshakes and all readings, and of the second handshakes.
        (without.instructions, with.instructions - without.instructions, with.bytes - without.bytes)
    };
    let (psk, psk_again, psk_bytes) = cost(Protection::CoapDtls);
    let (_, ticket_again, ticket_bytes) = cost(Protection::Ticket);
    let (_, _, with_id_bytes) = cost(Protection::ConnectionId);
    let (raw_key, raw_key_again, raw_key_bytes) = cost(Protection::RawKey);
    let (certificate, certificate_again, certificate_bytes) = cost(Protection::Certificate);
    let (delegation, delegation_again, delegation_bytes) = cost(Protection::Delegation);
    // A client resumes with fewer instructions than it takes to prove a key.
    assert!(ticket_again < psk_again && delegation_again < psk_again, "{ticket_again} {delegation_again} {psk_again}");
    assert!(delegation < psk, "{delegation} {psk}");
    // Public keys take seconds, each time.
    assert!(
        raw_key_again > 2 * 16_000_000 && certificate_again > 2 * 28_000_000,
        "{raw_key_again} {certificate_again}"
    );
    assert!(raw_key > 2 * 16_000_000 && certificate > 2 * 28_000_000);
    assert!(with_id_bytes > psk_bytes, "{with_id_bytes} {psk_bytes}");
    assert!(
        delegation_bytes < raw_key_bytes && raw_key_bytes < certificate_bytes,
        "{delegation_bytes} {raw_key_bytes}"
    );
    assert!(ticket_bytes < raw_key_bytes, "{ticket_bytes}");
}

#[test]
fn a_mote_that_moves_keeps_its_session_if_it_has_a_connection_id() {
    for changes in ["address", "port"] {
        let moves = format!("[[moves]]\nnode = 2\nat_s = 20.0\nchanges = \"{changes}\"\n");
        let deployment = deployment("topology = \"star\"\nnodes = 3", &moves);
        for (protection, sessions) in
            [(Protection::ConnectionId, 3), (Protection::CoapDtls, 4), (Protection::Ticket, 4)]
        {
            let (outcome, _) = run(&deployment, protection, 1, false);
            assert_eq!(
                (outcome.sessions, outcome.answered, outcome.moves),
                (sessions, 90, 1),
                "{changes} {protection:?}"
            );
            assert_eq!(outcome.recoveries.len(), 1);
        }
    }
}

#[test]
fn a_handshake_with_public_keys_delays_the_first_answer_by_seconds() {
    let deployment = deployment("topology = \"star\"\nnodes = 1", "[mote]\nplatform = \"z1\"\n");
    let longest = |protection| run(&deployment, protection, 1, false).0.delays.pop().unwrap();
    let (psk, certificate) = (longest(Protection::CoapDtls), longest(Protection::Certificate));
    // 28 million instructions of the client and of the server, one after the other, at 16 MHz.
    assert!((4_000_000..8_000_000).contains(&certificate), "{certificate}");
    assert!(psk < 1_000_000, "{psk}");
}

#[test]
fn the_same_seed_gives_the_same_frames_with_each_protection() {
    let mut deployment = deployment("topology = \"tree\"\nnodes = 2\nfanout = 1\nloss = 0.1", "");
    deployment.traffic.readings = 5;
    for protection in Protection::ALL {
        let first = run(&deployment, protection, 3, true);
        assert_eq!(first, run(&deployment, protection, 3, true), "{protection:?}");
        assert_ne!(first.1, run(&deployment, protection, 4, true).1, "{protection:?}");
    }
}

#[test]
fn a_reading_follows_the_last_flight_of_a_resumed_handshake() {
    let deployment = deployment("topology = \"star\"\nnodes = 1", "reboot_after = 0.5");
    for protection in [Protection::Ticket, Protection::Delegation] {
        let (outcome, _) = run(&deployment, protection, 1, false);
        assert_eq!((outcome.answered, outcome.sessions), (30, 2), "{protection:?}");
        // A reading that comes before it waits two seconds and more for its repetition.
        assert!(outcome.delays.last() < Some(&1_000_000), "{protection:?}: {:?}", outcome.delays);
    }
}

#[test]
fn all_peers_return_to_a_device_after_they_were_refused() {
    let mut deployment = deployment("topology = \"star\"\nnodes = 6", "");
    deployment.traffic.readings = 1;
    deployment.traffic.period_s = 0.001;
    let storm = run_storm(&deployment, Protection::Delegation, 1);
    assert_eq!((storm.outcome.made, storm.outcome.answered, storm.outcome.sessions), (6, 6, 6));
    assert_eq!((storm.refusals, storm.public_key_answers), (6, 0));
    assert!(storm.outcome.last_answer > 60_000, "nobody is back before the server gave a ticket");
    // Refused once, and resumed, takes more than resuming at once.
    let (resumed, _) = run(&deployment, Protection::Delegation, 1, false);
    assert_eq!(resumed.answered, 6);
    assert!(storm.outcome.frames > resumed.frames + 6 * 2, "{} {}", storm.outcome.frames, resumed.frames);
    assert_eq!(storm, run_storm(&deployment, Protection::Delegation, 1));

    deployment.traffic.period_s = 20.0;
    let spread = run_storm(&deployment, Protection::Delegation, 1);
    assert_eq!(spread.outcome.answered, 6);
    assert!(spread.collisions < storm.collisions, "{} {}", spread.collisions, storm.collisions);
}

#[test]
fn frames_collide_if_they_overlap() {
    let frame = |at| Captured { at, from: 0, psdu: vec![0; 10] };
    let len = radio::airtime(10);
    assert_eq!(collisions(&[frame(0), frame(len), frame(2 * len - 1)]), 2);
    assert_eq!(collisions(&[frame(0), frame(len - 1), frame(len)]), 3);
    assert_eq!(collisions(&[frame(0), frame(len)]), 0);
}

#[test]
fn a_device_whose_radio_sleeps_gets_its_packets_when_it_asks() {
    let asked_each = |sleep: &str| {
        let group = "group = { each = true }\n[stack]\nprotections = [\"coap+dtls\"]\n[mote]\n";
        let mut deployment = deployment("topology = \"star\"\nnodes = 2", &format!("{group}{sleep}"));
        (deployment.traffic.period_s, deployment.traffic.readings) = (100.0, 5);
        let run = || super::run_group(&deployment, Protection::CoapDtls, 1).outcome;
        let outcomes = parallel::each(&[(), ()], |()| run(), |_| {});
        assert_eq!(outcomes[0], outcomes[1]);
        outcomes.into_iter().next().unwrap()
    };
    let [awake, asleep] = ["", "polls_s = 5.0"].map(asked_each);
    assert_eq!((awake.answered, asleep.answered), (10, 10));
    assert!(awake.delays.last() < Some(&1_000_000), "{:?}", awake.delays);
    // The first device waits for its request, and the second one is asked after it.
    assert!(asleep.delays.last().is_some_and(|last| (1_000_000..11_000_000).contains(last)), "{:?}", asleep.delays);
    assert!(asleep.energy.radio_always_on() < awake.energy.radio_always_on() / 10.0);
    assert!(asleep.frames > awake.frames, "requests to the parent are on the air");
}

#[test]
fn node_0_has_an_exchange_with_each_node() {
    let datagrams = (0..6).map(|number| (number % 2 == 0, vec![number; 90], 1000)).collect();
    let exchange = Exchange::of(datagrams, Duration::from_secs(1));
    let mut deployment = deployment("topology = \"tree\"\nnodes = 6\nfanout = 2\nloss = 0.2", "");
    (deployment.traffic.period_s, deployment.traffic.readings) = (1.0, 1);
    let run = || super::run_exchanges(&deployment, &exchange, 1);
    let outcome = run();
    assert_eq!((outcome.made, outcome.answered, outcome.delays.len()), (6, 6, 6));
    assert_eq!(outcome, run());
    // Three round trips, with a pause before the datagrams of each node.
    assert!(outcome.delays[0] > 6000, "{:?}", outcome.delays);
}
