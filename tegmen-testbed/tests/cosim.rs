//! Tests two motes of the firmware, as images for a Cortex-M3 in QEMU. They open a session over the simulated radio,
//! and blink. They must send the same bytes as the same motes compiled for this machine.

use std::path::{Path, PathBuf};
use std::process::Command;
use tegmen_testbed::cosim::emulated::{self, Emulated};
use tegmen_testbed::cosim::native::Native;
use tegmen_testbed::cosim::native::blink_client::Client;
use tegmen_testbed::cosim::native::blink_server::Server;
use tegmen_testbed::cosim::{CLIENT, Conversation, Error, SERVER, Setup, run};
use tegmen_testbed::footprint;

/// A run in which no frame is lost.
const CALM: Setup = Setup { seed: 1, loss: 0.0, end: 4_000_000 };
/// A run with losses that let the MAC give up frames, so that flights and requests are sent again.
const STORMY: Setup = Setup { seed: 3, loss: 0.6, end: 60_000_000 };

#[test]
fn emulated_motes_say_what_native_ones_say() {
    let project = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| project.join("target"), PathBuf::from);
    let [server, client] = match emulated::images(project, &target) {
        Err(Error::Build(missing @ footprint::Error::MissingTool { .. })) => {
            println!("skipped: {missing}");
            return;
        }
        images => images.expect("the images are built"),
    };
    for setup in [CALM, STORMY] {
        let [for_server, for_client] = setup.starts();
        let mut server = Emulated::start(&server, for_server).expect("a mote");
        let mut client = Emulated::start(&client, for_client).expect("a mote");
        let emulated = run(&setup, [&mut server, &mut client]).expect("a conversation");
        let (native, _) = natively(&setup, &setup);
        assert_eq!(emulated.difference(&native), None, "{setup:?}");
        let bytes = native.said.iter().map(|said| said.datagram.len()).sum::<usize>();
        println!(
            "{setup:?}: {} datagrams, {bytes} bytes, {} frames on the air: equal",
            native.said.len(),
            native.air.len()
        );
    }
}

#[test]
fn a_session_is_opened_and_the_client_shows_what_the_server_counts() {
    let (said, shown) = natively(&CALM, &CALM);
    // Hello and verify request, hello and the server's flight, the two last flights; then four requests and responses.
    let first_records = said.said.iter().map(|said| (said.by, said.datagram[0]));
    let handshake = [(CLIENT, 22), (SERVER, 22), (CLIENT, 22), (SERVER, 22), (CLIENT, 22), (SERVER, 20)];
    let blinks = [(CLIENT, 23), (SERVER, 23)].repeat(4);
    assert_eq!(first_records.collect::<Vec<_>>(), [&handshake[..], &blinks].concat());
    assert_eq!(shown, [4, 4]);
}

#[test]
fn where_frames_are_lost_datagrams_come_again() {
    let (said, shown) = natively(&STORMY, &STORMY);
    let count = |by, record| said.said.iter().filter(|said| said.by == by && said.datagram[0] == record).count();
    assert!(count(CLIENT, 22) > 3, "flights of the handshake: {said:?}");
    // A lost response causes a retransmission of the request; a lost request has no response.
    assert!(count(CLIENT, 23) > count(SERVER, 23), "requests and responses: {said:?}");
    assert!(shown.iter().all(|count| *count > 0), "{shown:?}");
}

#[test]
fn another_byte_another_seed_and_another_time_are_noticed() {
    let (said, _) = natively(&CALM, &CALM);
    assert_eq!(said.difference(&natively(&CALM, &CALM).0), None);
    for number in 0..said.said.len() {
        let mut changed = said.clone();
        *changed.said[number].datagram.last_mut().expect("a byte") ^= 1;
        let difference = changed.difference(&said).expect("a difference");
        assert!(difference.starts_with(&format!("datagram {number}: ")), "{difference}");
    }
    let mut shorter = said.clone();
    shorter.said.pop();
    assert!(shorter.difference(&said).is_some_and(|difference| difference.contains("nothing")));
    assert!(natively(&CALM, &Setup { seed: 2, ..CALM }).0.difference(&said).is_some());
    let mut later = said.clone();
    later.said[0].at += 1;
    assert!(later.difference(&said).is_some());
}

#[test]
fn a_mote_that_does_not_come_up_is_an_error_with_its_reason() {
    if Command::new("qemu-system-arm").arg("--version").output().is_err() {
        println!("skipped: QEMU is not installed; type: apt install qemu-system-arm");
        return;
    }
    let [_, start] = CALM.starts();
    match Emulated::start(Path::new("no such image"), start) {
        Err(Error::Ended(why)) => assert!(why.contains("no such image"), "{why}"),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("there is no such image"),
    }
}

/// Runs the motes that are compiled for this machine. The radio has the settings of `setup`, and the motes start with
/// the data of `motes`. Returns the datagrams, and the last values that the LEDs of the server and of the client
/// showed.
fn natively(setup: &Setup, motes: &Setup) -> (Conversation, [u32; 2]) {
    let [server, client] = motes.starts();
    let mut server = Native::<Server>::new(server).expect("a server");
    let mut client = Native::<Client>::new(client).expect("a client that knows its server");
    let said = run(setup, [&mut server, &mut client]).expect("a conversation");
    (said, [server.shown(), client.shown()])
}
