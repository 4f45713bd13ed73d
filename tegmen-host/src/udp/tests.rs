use super::*;
use std::net::{Ipv4Addr, Ipv6Addr};

#[tokio::test]
async fn two_sockets_with_one_port_each_send_from_their_own_address() {
    let v4 = Socket::bind((Ipv4Addr::LOCALHOST, 0).into(), false).unwrap();
    let Ok(v6) = Socket::bind((Ipv6Addr::LOCALHOST, v4.local().port()).into(), false) else {
        return; // no IPv6 here, or somebody has the port
    };
    let sockets = [v4, v6];
    let mut outbox = Outbox::default();
    for socket in &sockets {
        let receiver = std::net::UdpSocket::bind((socket.local().ip(), 0)).unwrap();
        receiver.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
        outbox.push(path(socket.local(), receiver.local_addr().unwrap()), b"datagram");
        outbox.flush(&sockets).await;
        let mut buffer = [0; 16];
        assert_eq!(receiver.recv_from(&mut buffer).unwrap(), (8, socket.local()));
    }
}

#[tokio::test]
async fn sockets_with_any_free_port_have_different_ports_and_share_them_afterwards() {
    // Among as many sockets two have the same port with a probability above 98 %, if each may share a port from the beginning.
    let sockets: Vec<_> = (0..500).map(|_| Socket::bind_first((Ipv4Addr::LOCALHOST, 0).into()).unwrap()).collect();
    let ports: std::collections::HashSet<_> = sockets.iter().map(|socket| socket.local().port()).collect();
    assert_eq!(ports.len(), sockets.len());
    for socket in sockets.iter().take(5) {
        assert_eq!(Socket::bind(socket.local(), true).unwrap().local(), socket.local());
        assert!(matches!(Socket::bind(socket.local(), false), Err(BindError::InUse { .. })));
    }
}

#[tokio::test]
async fn datagrams_to_many_peers_arrive_whole_whatever_cannot_be_sent_between_them() {
    let sockets = [Socket::bind((Ipv4Addr::LOCALHOST, 0).into(), false).unwrap()];
    let receivers: Vec<_> = (0..70).map(|_| std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect();
    let local = sockets[0].local();
    let mut outbox = Outbox::default();
    for (number, receiver) in (0..).zip(&receivers) {
        let to = path(local, receiver.local_addr().unwrap());
        // Some peers are sent several, which go together.
        for part in 0..=u8::from(number % 20 == 7) {
            outbox.push(to, &vec![number + part; 1 + usize::from(number)]);
        }
        if number % 30 == 5 {
            outbox.push(path(local, (Ipv4Addr::LOCALHOST, 0).into()), b"to a port that no datagram can be sent to");
        }
    }
    outbox.flush(&sockets).await;
    assert!(outbox.is_empty());
    for (number, receiver) in (0_u8..).zip(&receivers) {
        receiver.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
        for part in 0..=u8::from(number % 20 == 7) {
            let mut buffer = [0; 128];
            let (len, from) = receiver.recv_from(&mut buffer).unwrap();
            assert_eq!((&buffer[..len], from), (&vec![number + part; 1 + usize::from(number)][..], local));
        }
    }
}

#[tokio::test]
async fn a_batch_that_is_not_full_is_followed_by_what_comes_later() {
    let socket = Socket::bind((Ipv4Addr::LOCALHOST, 0).into(), false).unwrap();
    let sender = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut inbound = Inbound::default();
    for round in 0..3_u8 {
        for datagram in 0..40 {
            sender.send_to(&[round, datagram], socket.local()).unwrap();
        }
        let mut received = Vec::new();
        while received.len() < 40 {
            std::future::poll_fn(|cx| socket.poll_readable(cx)).await.unwrap();
            while socket.receive(&mut inbound).unwrap() {
                received.extend(inbound.datagrams().map(|(_, bytes)| bytes.to_vec()));
            }
        }
        assert_eq!(received, (0..40).map(|datagram| vec![round, datagram]).collect::<Vec<_>>());
        assert!(!socket.receive(&mut inbound).unwrap(), "there was nothing");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn datagrams_follow_what_the_system_learns_of_the_path() {
    use rustix::net::sockopt::{Ipv4PathMtuDiscovery, ip_mtu_discover};
    for address in ["127.0.0.1:0", "[::]:0"] {
        let socket = Socket::bind(address.parse().unwrap(), false).unwrap();
        assert_eq!(ip_mtu_discover(&socket.io).unwrap(), Ipv4PathMtuDiscovery::WANT);
    }
}

#[tokio::test]
async fn a_datagram_that_the_system_refuses_is_reported_and_those_around_it_arrive() {
    let socket = Socket::bind((Ipv4Addr::LOCALHOST, 0).into(), false).unwrap();
    socket.io.writable().await.unwrap();
    let receiver = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    receiver.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
    let (to, nowhere) =
        [receiver.local_addr().unwrap(), (Ipv4Addr::LOCALHOST, 0).into()].map(|to| path(socket.local(), to)).into();
    let mut outbox = Outbox::default();
    for (path, datagram) in [(to, b"one"), (nowhere, b"two"), (to, b"six")] {
        outbox.push(path, datagram);
    }
    let mut refused = Vec::new();
    outbox.send_now(|_| Some(&socket), |path, datagram, error| refused.push((*path, datagram.to_vec(), error.kind())));
    assert_eq!(refused, [(nowhere, b"two".to_vec(), ErrorKind::InvalidInput)]);
    assert!(outbox.is_empty());
    for expected in [b"one", b"six"] {
        let mut buffer = [0; 16];
        let (len, _) = receiver.recv_from(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], expected);
    }
}
