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
async fn only_a_datagram_that_is_too_long_for_its_path_is_sent_in_fragments() {
    use rustix::net::sockopt::ip_mtu_discover;
    for address in ["127.0.0.1:0", "[::]:0"] {
        let socket = Socket::bind(address.parse().unwrap(), false).unwrap();
        let discovery = || ip_mtu_discover(socket.io.socket()).unwrap();
        assert_eq!(discovery(), Ipv4PathMtuDiscovery::DO);
        let sent = socket.sending(|| match discovery() {
            Ipv4PathMtuDiscovery::DO => Err(io::Error::from_raw_os_error(TOO_LONG)),
            other => Ok(other),
        });
        assert_eq!(sent.unwrap(), Ipv4PathMtuDiscovery::WANT);
        assert_eq!(discovery(), Ipv4PathMtuDiscovery::DO);
        let refused = socket.sending(|| Err::<(), _>(ErrorKind::InvalidInput.into()));
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_datagram_that_is_too_long_for_its_ipv6_path_arrives_in_fragments() {
    // The loopback interface has an MTU of 65536 bytes, and a packet with this payload has 65575 bytes.
    let datagram = vec![7; 65_527];
    for address in ["[::1]:0", "[::]:0"] {
        let Ok(socket) = Socket::bind(address.parse().unwrap(), false) else {
            return; // no IPv6 here
        };
        let receiver = std::net::UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).unwrap();
        receiver.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
        let local = SocketAddr::new(Ipv6Addr::LOCALHOST.into(), socket.local().port());
        socket.try_send(&path(local, receiver.local_addr().unwrap()), &datagram).unwrap();
        let mut buffer = vec![0; 65_536];
        assert_eq!(receiver.recv_from(&mut buffer).unwrap(), (datagram.len(), local), "{address}");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_system_reports_the_destination_only_to_a_socket_with_several_addresses() {
    use nix::sys::socket::getsockopt;
    for (address, is_ipv4, expected) in
        [("127.0.0.1:0", true, false), ("0.0.0.0:0", true, true), ("[::1]:0", false, false), ("[::]:0", false, true)]
    {
        let Ok(socket) = Socket::bind(address.parse().unwrap(), false) else {
            continue; // no IPv6 here
        };
        let reports = match is_ipv4 {
            true => getsockopt(socket.io.socket(), Ipv4PacketInfo).unwrap(),
            false => getsockopt(socket.io.socket(), Ipv6RecvPacketInfo).unwrap(),
        };
        assert_eq!(reports, expected, "{address}");
        assert!(!getsockopt(socket.io.socket(), ReceiveTimestampns).unwrap());
        assert!(!sockopt::ip_recvtos(socket.io.socket()).unwrap());
        let sender = std::net::UdpSocket::bind((socket.local().ip(), 0)).unwrap();
        let loopback = if is_ipv4 { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
        sender.send_to(b"datagram", SocketAddr::new(loopback, socket.local().port())).unwrap();
        let mut inbound = Inbound::default();
        std::future::poll_fn(|cx| socket.poll_readable(cx)).await.unwrap();
        assert!(socket.receive(&mut inbound).unwrap());
        let local = SocketAddr::from(inbound.paths()[0].local);
        assert_eq!(local, SocketAddr::new(loopback, socket.local().port()), "{address}");
    }
}

#[tokio::test]
async fn a_datagram_that_the_system_refuses_is_reported_and_those_around_it_arrive() {
    let socket = Socket::bind((Ipv4Addr::LOCALHOST, 0).into(), false).unwrap();
    let receiver = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    receiver.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
    let (to, nowhere) =
        [receiver.local_addr().unwrap(), (Ipv4Addr::LOCALHOST, 0).into()].map(|to| path(socket.local(), to)).into();
    let mut outbox = Outbox::default();
    for (path, datagram) in [(to, b"one"), (nowhere, b"two"), (to, b"six")] {
        outbox.push(path, datagram);
    }
    #[cfg(not(unix))]
    poll_fn(|cx| socket.poll_writable(cx)).await.unwrap();
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

#[cfg(unix)]
#[tokio::test]
async fn a_task_waits_until_a_full_socket_is_writable_again() {
    let (socket, other) = std::os::unix::net::UnixDatagram::pair().unwrap();
    socket.set_nonblocking(true).unwrap();
    let socket = Watched::new(std::net::UdpSocket::from(std::os::fd::OwnedFd::from(socket))).unwrap();
    let send = || socket.try_write(|| socket.socket().send(b"datagram"));
    while send().is_ok() {}
    assert_eq!(send().unwrap_err().kind(), ErrorKind::WouldBlock);
    let emptied = tokio::task::spawn_blocking(move || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        other.set_nonblocking(true).unwrap();
        while other.recv(&mut [0; 16]).is_ok() {}
        other
    });
    let mut is_first = true;
    poll_fn(|cx| {
        let ready = socket.poll_writable(cx);
        assert!(ready.is_pending() || !std::mem::take(&mut is_first), "the socket is full");
        is_first = false;
        ready
    })
    .await
    .unwrap();
    send().unwrap();
    let _other = emptied.await.unwrap();
}
