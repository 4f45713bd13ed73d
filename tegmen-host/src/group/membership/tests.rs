use super::*;
use crate::group::Memberships;
use std::collections::HashSet;
use tegmen::axiom::Suite;
use tegmen::buf::Frame;
use tegmen::secret::Secret;

struct Scene(PathBuf);

impl Scene {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("tegmen-member-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        Self(dir)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn settings() -> MemberSettings {
    MemberSettings { group: "lamps".to_owned(), ..MemberSettings::default() }
}

fn keys(epoch: u16) -> GroupKeys {
    GroupKeys {
        group: [7; 16],
        group_id: 1,
        address: (Address::from(SocketAddr::from(([239, 255, 0, 1], 0))).ip, 5685),
        suite: Suite::Ccm,
        senders: 16,
        sender_id: Some(0),
        own_address: Address::from(SocketAddr::from(([127, 0, 0, 1], 0))).ip,
        late: vec![1],
        epoch,
        chain: [epoch as u8; 32],
        secret: Secret::new([epoch as u8 + 100; 32]),
        randoms: [[1; 32], [2; 32]],
        leaf: 2,
        path: Zeroizing::new(vec![[3; 16], [4; 16]]),
        controller: None,
        signature: None,
        creds: None,
    }
}

/// Protects a request. Returns the epoch and the number of its record.
fn seal(membership: &Membership) -> [u8; 8] {
    use tegmen::node::Groups as _;
    let (mut groups, mut storage) = (Memberships(vec![membership.clone()]), [0; 64]);
    let group = *membership.address_of_group();
    let mut frame = Frame::new(&mut storage, groups.overhead(&group).0);
    frame.append(b"GET").unwrap();
    groups.seal_request(&mut HostCrypto::from_os().unwrap(), &group, &mut frame).unwrap();
    *frame.bytes()[3..].first_chunk().unwrap()
}

#[test]
fn no_number_comes_twice_over_restarts_and_power_cuts() {
    let scene = Scene::new("numbers");
    let mut seen = HashSet::new();
    let mut membership = Membership::create(&scene.0, &settings(), keys(2)).unwrap();
    for run in 0..6 {
        for _ in 0..2 * LEASE + 3 {
            assert!(seen.insert(seal(&membership)), "run {run}");
        }
        if run % 2 == 0 {
            // As after kill -9: nothing is written at the end.
            membership.abandon();
        } else {
            drop(membership);
        }
        membership = Membership::open(&scene.0).unwrap();
        if run == 3 {
            assert!(membership.catch_up(keys(5)).unwrap());
        }
    }
    let wrong = membership.catch_up(keys(4)).unwrap_err();
    assert!(matches!(wrong, MembershipError::OldController { ours: 5, theirs: 4, .. }), "{wrong}");
    let other = GroupKeys { group: [8; 16], ..keys(6) };
    assert!(matches!(membership.catch_up(other), Err(MembershipError::OtherGroup { .. })));
    assert!(!membership.catch_up(keys(5)).unwrap(), "nothing is new");
    assert!(seen.insert(seal(&membership)), "the numbers of the epoch go on");
}

#[test]
fn an_orderly_end_loses_no_number() {
    let scene = Scene::new("orderly");
    let first = Membership::create(&scene.0, &settings(), keys(2)).unwrap();
    assert_eq!(seal(&first), [0, 2, 0, 0, 0, 0, 0, 0]);
    drop(first);
    assert_eq!(seal(&Membership::open(&scene.0).unwrap()), [0, 2, 0, 0, 0, 0, 0, 1]);
}

#[test]
fn a_copy_and_lost_numbers_are_refused_and_an_old_file_asks_the_controller() {
    let (scene, copy) = (Scene::new("copy"), Scene::new("copied"));
    let membership = Membership::create(&scene.0, &settings(), keys(2)).unwrap();
    let old = std::fs::read(scene.0.join(MEMBER)).unwrap();
    let busy = Membership::open(&scene.0).unwrap_err();
    assert!(matches!(busy, MembershipError::InUse { .. }), "{busy}");
    membership.catch_up(keys(3)).unwrap();
    drop(membership);
    std::fs::create_dir_all(&copy.0).unwrap();
    for name in [MEMBER, NUMBERS] {
        std::fs::copy(scene.0.join(name), copy.0.join(name)).unwrap();
    }
    let refused = Membership::open(&copy.0).unwrap_err();
    assert!(refused.to_string().contains("is a copy"), "{refused}");
    assert!(refused.to_string().contains("tegmen group join"), "{refused}");
    // The file of the member is restored from a backup, and the numbers are not.
    std::fs::write(scene.0.join(MEMBER), &old).unwrap();
    let membership = Membership::open(&scene.0).unwrap();
    assert_eq!((membership.epoch(), membership.lock().behind), (0, Some(Behind::OldFile)));
    membership.catch_up(keys(3)).unwrap();
    assert_eq!(seal(&membership), [0, 3, 0, 0, 0, 0, 0, 0], "no number of the epoch was used before");
    drop(membership);
    std::fs::remove_file(scene.0.join(NUMBERS)).unwrap();
    let lost = Membership::open(&scene.0).unwrap_err();
    assert!(lost.to_string().contains("numbers.toml is missing; the member could repeat nonces"), "{lost}");
    // A new admission begins an epoch, so it needs no earlier numbers.
    let membership = Membership::create(&scene.0, &settings(), keys(4)).unwrap();
    assert_eq!(seal(&membership), [0, 4, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn messages_that_change_places_on_the_way_lead_to_the_next_epoch() {
    use tegmen::axiom::rekey::{Place, link, seal_epoch, seal_node};
    use tegmen::buf::Writer;
    let scene = Scene::new("places");
    let (group, next, mut crypto) = ([7; 16], Secret::new([42; 32]), HostCrypto::from_os().unwrap());
    // The element of the chain of epoch 2 commits to the secret of epoch 3.
    let chain = link::<HostCrypto>(&group, 3, &[9; 32], &next);
    let membership = Membership::create(&scene.0, &settings(), GroupKeys { chain, ..keys(2) }).unwrap();
    let (mut node, mut epoch) = ([0; 128], [0; 128]);
    let (mut of_node, mut of_epoch) = (Writer::new(&mut node), Writer::new(&mut epoch));
    let (leaf, root) = (Secret::new([3; 16]), Secret::new([5; 16]));
    let place = Place { epoch: 3, under: 2, up: 1 };
    seal_node(&mut crypto, &group, place, (&leaf, &root), None, &mut of_node).unwrap();
    seal_epoch(&mut crypto, &group, (3, &[9; 32]), (&root, &next), &mut of_epoch).unwrap();
    assert_eq!(membership.rekey(&mut crypto, of_epoch.written()), Some(Rekeyed::Missed));
    assert_eq!(membership.lock().behind, Some(Behind::MissedMessage));
    assert_eq!(membership.rekey(&mut crypto, of_node.written()), Some(Rekeyed::Epoch));
    assert_eq!((membership.epoch(), membership.lock().behind), (3, None));
    drop(membership);
    let membership = Membership::open(&scene.0).unwrap();
    assert_eq!((membership.epoch(), seal(&membership)), (3, [0, 3, 0, 0, 0, 0, 0, 0]), "the epoch is durable");
}

#[test]
fn an_evicted_member_sends_nothing_also_after_a_restart() {
    let scene = Scene::new("evicted");
    let membership = Membership::create(&scene.0, &settings(), keys(2)).unwrap();
    membership.evict().unwrap();
    assert_eq!(membership.epoch(), 0);
    drop(membership);
    let membership = Membership::open(&scene.0).unwrap();
    assert!(membership.is_evicted());
    assert_eq!(membership.rekey(&mut HostCrypto::from_os().unwrap(), &[3; 83]), None);
    assert_eq!(membership.epoch(), 0);
}

#[test]
fn a_suite_that_the_host_does_not_have_and_a_file_of_others_are_refused() {
    let scene = Scene::new("refused");
    let plain = GroupKeys { suite: Suite::MacOnly, ..keys(2) };
    let refused = Membership::create(&scene.0, &settings(), plain).unwrap_err();
    assert!(refused.to_string().contains("ccm, ccm-8 or gcm"), "{refused}");
    drop(Membership::create(&scene.0, &settings(), keys(3)).unwrap());
    let file = scene.0.join(MEMBER);
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let exposed = Membership::open(&scene.0).unwrap_err();
    assert!(exposed.to_string().contains("chmod 600"), "{exposed}");
}

#[test]
fn keys_of_another_admission_begin_no_epoch() {
    let scene = Scene::new("again");
    let membership = Membership::create(&scene.0, &settings(), keys(2)).unwrap();
    // Somebody with the same credentials joined: the leaf has another secret now, and that one numbers from 0.
    let again = GroupKeys { path: Zeroizing::new(vec![[5; 16], [4; 16]]), ..keys(3) };
    let wrong = membership.catch_up(again).unwrap_err();
    assert!(matches!(wrong, MembershipError::AdmittedAgain { .. }), "{wrong}");
    let elsewhere = GroupKeys { leaf: 3, ..keys(3) };
    assert!(matches!(membership.catch_up(elsewhere), Err(MembershipError::AdmittedAgain { .. })));
    assert_eq!(membership.epoch(), 2);
    assert!(membership.catch_up(keys(3)).unwrap());
}

#[test]
fn an_epoch_whose_numbers_were_used_does_not_begin_again() {
    let scene = Scene::new("begun");
    drop(Membership::create(&scene.0, &settings(), keys(3)).unwrap());
    for epoch in [2, 3] {
        let wrong = Membership::create(&scene.0, &settings(), keys(epoch)).unwrap_err();
        assert!(matches!(wrong, MembershipError::Numbers { .. }), "{wrong}");
    }
    drop(Membership::create(&scene.0, &settings(), keys(4)).unwrap());
}

#[test]
fn groups_that_a_server_cannot_tell_apart_are_refused() {
    let at = |host: u8, port: u16| (Address::from(SocketAddr::from(([239, 255, 0, host], 0))).ip, port);
    let of = |name: &str, group_id: u8, address: ([u8; 16], u16)| {
        let scene = Scene::new(&format!("alike-{name}"));
        let settings = MemberSettings { group: name.to_owned(), ..settings() };
        let membership = Membership::create(&scene.0, &settings, GroupKeys { group_id, address, ..keys(2) }).unwrap();
        (scene, membership)
    };
    let (lamps, doors) = (of("lamps", 1, at(1, 5685)), of("doors", 2, at(2, 5685)));
    let (attic, cellar) = (of("attic", 1, at(3, 5686)), of("cellar", 1, at(4, 5685)));
    let check = |groups: &[&(Scene, Membership)]| {
        Memberships::check(&groups.iter().map(|(_, membership)| membership.clone()).collect::<Vec<_>>())
    };
    check(&[&lamps, &doors, &attic]).unwrap();
    let refused = check(&[&doors, &lamps, &cellar]).unwrap_err().to_string();
    assert!(refused.contains("both groups lamps and cellar"), "the same GroupID and port: {refused}");
    let refused = check(&[&lamps, &of("porch", 3, at(1, 5685))]).unwrap_err();
    assert!(matches!(refused, MembershipError::Alike { .. }), "the same address: {refused}");
    // A server with both groups does not start.
    let memberships = [lamps.1.clone(), cellar.1.clone()];
    let builder = memberships
        .into_iter()
        .fold(crate::server::Server::builder().listen("coap://127.0.0.1:0"), |builder, one| builder.member_of(one));
    let refused = builder.serve(crate::resources::Resources::new([])).map(drop).unwrap_err();
    assert!(refused.to_string().contains("lamps and cellar"), "{refused}");
}

#[tokio::test]
async fn a_report_of_a_clash_is_kept_until_the_controller_answers_it() {
    use crate::controller::{Controller, Pace};
    use std::time::Duration;
    let scene = Scene::new("clash");
    let membership = Membership::create(&scene.0, &settings(), keys(2)).unwrap();
    let events = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&events);
    membership.on_event(Arc::new(move |_, event| seen.lock().unwrap().push(event)));
    membership.note_clash(Some(1));
    // The controller does not answer.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let config = crate::client::ClientConfig::psk("device", [7; 16])
        .with(|config| config.dtls.handshake_timeout = Duration::from_millis(50));
    let uri = format!("coaps://{}/ace-group/lamps", silent.local_addr().unwrap());
    let controller = Controller::of_group(&uri, config).unwrap();
    let short = Duration::from_millis(1);
    let pace = Pace { jitter: short, shortest: short, longest: short };
    let is_tried_twice = async {
        let is_failure = |event: &&MembershipEvent| matches!(event, MembershipEvent::NotAsked { .. });
        while events.lock().unwrap().iter().filter(is_failure).count() < 2 {
            tokio::time::sleep(short).await;
        }
    };
    tokio::select! {
        () = controller.follow(&membership, pace) => panic!("the member is not evicted"),
        () = is_tried_twice => {}
    }
    assert_eq!(membership.clash(), Some((2, 1)));
    // The keys of the same epoch are no answer to the report.
    membership.catch_up(keys(2)).unwrap();
    membership.falls_behind().await;
    membership.forget_clash((2, 7));
    assert_eq!(membership.clash(), Some((2, 1)), "the answer to another report");
    membership.catch_up(keys(3)).unwrap();
    assert_eq!(membership.clash(), None, "nobody uses the keys of the earlier epoch");
    membership.note_clash(Some(4));
    membership.forget_clash((3, 4));
    assert_eq!(membership.clash(), None);
}
