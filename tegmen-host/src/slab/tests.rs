use super::*;
use tegmen::dtls::connection_id::ConnectionId;
use tegmen::endpoint::{Address, Protection};

fn path(remote: u32) -> Path {
    let at = |number: u32| Address { ip: u128::from(number).to_be_bytes(), port: 5684, scope: 0 };
    Path { local: at(0), remote: at(remote) }
}

fn insert(table: &mut Slab<u64>, path: &Path) -> PeerId {
    let (rank, phase, protection) = (Rank::Authenticated, Phase::Established, Protection::Dtls);
    table.insert(&NewPeer { path, rank, phase, protection, with_handshake: false }).unwrap().id
}

#[test]
fn ids_cost_nothing_where_there_are_none() {
    // Three lines of the cache, as without.
    assert_eq!((size_of::<Entry<u64>>(), size_of::<(u32, ConnectionIds)>()), (192, 72));
    let table = Slab::<u64>::new(Capacity::default());
    assert_eq!(table.ids.capacity(), 0);
}

#[test]
fn a_session_is_found_by_its_id_and_by_the_path_that_it_moved_to() {
    let mut table = Slab::<u64>::new(Capacity::default());
    let mut all = Vec::new();
    for number in 1..=2000 {
        let id = insert(&mut table, &path(number));
        let ours = ConnectionId::new(&number.to_be_bytes()).unwrap();
        let ids = ConnectionIds::agreed(ours, ConnectionId::EMPTY, true);
        assert!(table.set_connection_ids(id, Some(ids)));
        all.push((number, id, ids));
    }
    for (number, id, ids) in &all {
        assert_eq!(table.find_connection_id(ids.ours().bytes()), Some(*id));
        table.set_path(*id, &path(number + 10_000));
        assert_eq!(table.find(&path(*number), Phase::Established), None);
        assert_eq!(table.find(&path(number + 10_000), Phase::Established), Some(*id));
    }
    // Half of them go, and others take their places.
    for (_, id, ids) in all.iter().step_by(2) {
        table.remove(*id);
        assert_eq!(table.find_connection_id(ids.ours().bytes()), None);
    }
    for number in 1..=1000 {
        let id = insert(&mut table, &path(number));
        assert!(table.connection_ids(id).is_none());
    }
    for (_, id, ids) in all.iter().skip(1).step_by(2) {
        assert_eq!(table.find_connection_id(ids.ours().bytes()), Some(*id));
        assert_eq!(table.connection_ids(*id).map(|found| *found.ours()), Some(*ids.ours()));
    }
}

/// A session that has just been established by this principal, on a path of its own.
fn establish(endpoint: &mut Slab<u64>, number: u32, rank: Rank) -> PeerId {
    let (path, phase, protection) = (&path(number), Phase::Handshaking, Protection::Dtls);
    let id = endpoint.insert(&NewPeer { path, rank, phase, protection, with_handshake: true }).unwrap().id;
    endpoint.release_handshake(id);
    endpoint.set_phase(id, Phase::Established);
    id
}

#[test]
fn a_full_table_takes_a_session_of_the_principal_that_has_most() {
    let mut table = Slab::<u64>::new(Capacity { peers: 8, handshakes: 4 });
    let plain = NewPeer {
        path: &path(1000),
        rank: Rank::Stranger,
        phase: Phase::Established,
        protection: Protection::Plain,
        with_handshake: false,
    };
    for number in 0..6 {
        establish(&mut table, number, Rank::Authenticated);
    }
    let stranger = table.insert(&plain).unwrap().id;
    establish(&mut table, 6, Rank::Authenticated);
    assert_eq!((table.len(), table.take_displaced()), (8, 0));
    // A stranger goes first, and then none displaces who is authenticated.
    establish(&mut table, 7, Rank::Authenticated);
    assert!(table.peer(stranger).is_none());
    assert_eq!((table.len(), table.take_displaced()), (8, 1));
    assert!(table.insert(&plain).is_err());
    let waits = table.insert(&NewPeer { phase: Phase::Handshaking, with_handshake: true, path: &path(2000), ..plain });
    assert!(waits.is_ok(), "who shakes hands takes nobody's place");
    let newest = establish(&mut table, 8, Rank::Authenticated);
    assert!(table.peer(newest).is_some());
    assert_eq!((table.len(), table.take_displaced()), (9, 1));
    table.remove(waits.unwrap().id);
    assert_eq!((table.len(), table.handshaking), (8, 0));
}
