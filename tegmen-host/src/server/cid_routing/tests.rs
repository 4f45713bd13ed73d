use super::*;
use std::net::SocketAddr;

/// Returns a path with the remote address `10.0.NETWORK.1`, and a datagram whose connection id names shard 1.
fn from(network: u8) -> (Path, Vec<u8>) {
    let path = Path {
        local: SocketAddr::from(([127, 0, 0, 1], 5684)).into(),
        remote: SocketAddr::from(([10, 0, network, 1], 5684)).into(),
    };
    let mut datagram = vec![0; 40];
    (datagram[0], datagram[ID_AT]) = (ContentType::TLS12_CID.0, 1);
    (path, datagram)
}

#[test]
fn datagrams_of_one_network_for_another_shard_leave_room_for_others() {
    let ((first, _), (second, mut queue)) = (mpsc::channel(WAITING), mpsc::channel(WAITING));
    let shards = vec![first, second];
    let waiting = Arc::new(Shares::new());
    let mut cid_routing = CidRouting::new(0, shards.clone(), waiting.clone());
    let (path, datagram) = from(1);
    (0..2 * WAITING).for_each(|_| assert!(cid_routing.pass(&path, &datagram)));
    assert_eq!((cid_routing.passed, cid_routing.dropped), (128, 2 * 1024 - 128));
    let (other, datagram) = from(2);
    assert!(cid_routing.pass(&other, &datagram));
    assert_eq!(cid_routing.passed, 129);
    // A datagram that the other shard took leaves a place in the queue.
    let at_second = CidRouting::new(1, shards, waiting);
    let passed = queue.try_recv().unwrap();
    at_second.taken(&passed.path);
    let (path, datagram) = from(1);
    (0..2).for_each(|_| assert!(cid_routing.pass(&path, &datagram)));
    assert_eq!(cid_routing.passed, 130);
}
