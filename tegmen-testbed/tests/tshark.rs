//! Tests that tshark can decode the frames of the laboratory. It is an independent implementation of the same
//! standards.

use std::path::PathBuf;
use std::process::Command;
use tegmen_testbed::deployment::Plan;
use tegmen_testbed::mote::Protection;
use tegmen_testbed::pcap;
use tegmen_testbed::scenario;

/// Returns the fields of each frame of a run, as tshark reads them; `None` if tshark is not installed.
fn decoded(deployment: &str, protection: Protection, fields: &[&str]) -> Option<Vec<Vec<String>>> {
    if Command::new("tshark").arg("--version").output().is_err() {
        println!("skipped: tshark is not installed; type: apt-get install tshark");
        return None;
    }
    let text = format!("about = \"a test\"\n{deployment}\n[run]\nseeds = 1\n");
    let plan = Plan::parse("test.toml", &text).expect("a plan");
    let (outcome, frames) = scenario::run(&plan.cases[0].deployment, protection, 1, true);
    assert_eq!(outcome.made, outcome.answered);
    let name = format!("tegmen-{}-{:?}.pcap", std::process::id(), std::thread::current().id());
    let file: PathBuf = std::env::temp_dir().join(name.replace(['(', ')'], ""));
    pcap::write(&frames, &mut std::fs::File::create(&file).expect("a file")).expect("written");
    let mut tshark = Command::new("tshark");
    // tshark gets the context of the nodes as an option; some tests use other ports than CoAP's own.
    tshark.arg("-r").arg(&file).args(["-T", "fields", "-E", "separator=|", "-E", "occurrence=l"]);
    tshark.args(["-o", "udp.check_checksum:TRUE"]);
    tshark.args(["-o", "6lowpan.context0:fd00:db8::/64", "-d", "udp.port==61616,coap", "-d", "udp.port==61617,dtls"]);
    fields.iter().for_each(|field| _ = tshark.args(["-e", field]));
    let output = tshark.output().expect("tshark runs");
    let _ = std::fs::remove_file(&file);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<Vec<String>> = text.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect();
    assert_eq!(lines.len(), frames.len());
    Some(lines)
}

const STAR: &str = "[network]\ntopology = \"star\"\nnodes = 2\n[traffic]\nperiod_s = 1.0\npayload = 12\nreadings = 3\n";

#[test]
fn plain_coap_is_read_down_to_its_path() {
    for stack in [
        "[stack]\nports = [61616, 61616]\n",
        "[stack]\nports = [5683, 61616]\naddresses = \"inline\"\nlink_addresses = \"extended\"\nhop_limit = 63\n",
        "[stack]\nports = [61616, 5683]\naddresses = \"link-local\"\nlink_addresses = \"extended\"\n",
        "[stack]\nports = [5683, 5683]\naddresses = \"link-local\"\n",
    ] {
        let fields = ["wpan.fcs_ok", "udp.checksum.status", "coap.code", "coap.opt.uri_path", "_ws.malformed"];
        let Some(frames) = decoded(&format!("{STAR}{stack}"), Protection::Coap, &fields) else { return };
        // PUT is 3, 2.04 is 68.
        let puts = frames.iter().filter(|frame| frame[2] == "3" && frame[3] == "blink").count();
        let changed = frames.iter().filter(|frame| frame[2] == "68").count();
        assert!(puts >= 6 && changed >= 6, "{stack} {frames:?}");
        for frame in &frames {
            assert!(matches!(frame[0].as_str(), "1" | "True"), "a good FCS: {frame:?}");
            assert_eq!(frame[4], "", "{frame:?}");
            // Where there is UDP its checksum is good (1).
            assert!(frame[1].is_empty() || frame[1] == "1", "{frame:?}");
        }
    }
}

#[test]
fn a_handshake_is_read_message_by_message() {
    let fields = ["dtls.handshake.type", "dtls.record.content_type", "_ws.malformed"];
    let stack = "[stack]\nports = [61617, 61617]\nprofile = \"minimal\"\n";
    let Some(frames) = decoded(&format!("{STAR}{stack}"), Protection::CoapDtls, &fields) else { return };
    let of = |field: usize, value: &str| frames.iter().filter(|frame| frame[field] == value).count();
    // The last of a datagram: hello 1, verify request 3, server hello done 14, key exchange 16; data is 23.
    assert_eq!((of(0, "1"), of(0, "3"), of(0, "14"), of(0, "16")), (4, 2, 2, 2), "{frames:?}");
    assert_eq!(of(1, "23"), 12);
    assert!(frames.iter().all(|frame| frame[2].is_empty()), "{frames:?}");
}

#[test]
fn fragments_are_put_together_over_two_hops() {
    let chain = "[network]\ntopology = \"chain\"\nhops = 2\n[traffic]\nperiod_s = 1.0\npayload = 300\nreadings = 3\n";
    let fields = [
        "6lowpan.frag.size",
        "6lowpan.reassembled.length",
        "coap.payload_length",
        "_ws.malformed",
        "coap.opt.uri_path",
    ];
    let text = format!("{chain}[stack]\nports = [61616, 61616]\n");
    let Some(frames) = decoded(&text, Protection::Coap, &fields) else { return };
    let fragments = frames.iter().filter(|frame| !frame[0].is_empty()).count();
    let whole = frames.iter().filter(|frame| frame[4] == "blink").count();
    // Three readings over two hops.
    assert!(fragments >= 18 && whole == 6, "{fragments} {whole} {frames:?}");
    assert!(frames.iter().all(|frame| frame[3].is_empty()), "{frames:?}");
}

#[test]
fn a_flood_is_read_with_its_mesh_and_broadcast_headers() {
    let chain = "[network]\ntopology = \"chain\"\nhops = 2\n[traffic]\nperiod_s = 10.0\npayload = 0\nresponse = 12\n\
                 readings = 5\ngroup = { leisure_s = 2.0 }\n[stack]\nports = [61616, 61616]\nprotections = [\"coap\"]\n";
    let fields = [
        "6lowpan.mesh.orig16",
        "6lowpan.bcast.seqnum",
        "ipv6.dst",
        "coap.code",
        "udp.checksum.status",
        "_ws.malformed",
    ];
    let Some(frames) = decoded(chain, Protection::Coap, &fields) else { return };
    // Node 0 asks five times, and node 1 passes it on; 0.03 is PUT and 2.04 is 68, and the answer of node 2 takes two hops.
    let floods: Vec<_> = frames.iter().filter(|frame| !frame[1].is_empty()).collect();
    assert!(floods.len() == 10 && floods.iter().all(|frame| frame[2] == "ff05::fd" && frame[3] == "3"), "{frames:?}");
    assert!(frames.iter().filter(|frame| frame[3] == "68").count() >= 15, "{frames:?}");
    assert!(frames.iter().all(|frame| frame[5].is_empty() && (frame[4].is_empty() || frame[4] == "1")), "{frames:?}");
}
