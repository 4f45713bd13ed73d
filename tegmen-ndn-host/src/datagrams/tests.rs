use super::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Receives `count` datagrams.
async fn receive(port: &Port, count: usize) -> Vec<(SocketAddr, Vec<u8>)> {
    let (mut inbound, mut received) = (Inbound::default(), Vec::new());
    while received.len() < count {
        let ready = tokio::time::timeout(std::time::Duration::from_secs(5), port.readable()).await;
        assert!(matches!(ready, Ok(Ok(()))), "{} of {count} datagrams arrived", received.len());
        port.receive(&mut inbound);
        received.extend(inbound.datagrams().map(|(from, bytes)| (from, bytes.to_vec())));
    }
    received
}

async fn open() -> (Port, SocketAddr) {
    open_at(Ipv4Addr::LOCALHOST.into()).await
}

async fn open_at(ip: IpAddr) -> (Port, SocketAddr) {
    let port = Port::bind(SocketAddr::new(ip, 0)).await.unwrap();
    let address = port.local_addr().unwrap();
    (port, address)
}

#[tokio::test]
async fn datagrams_arrive_in_order_with_their_lengths() {
    let ((sender, from), (first, to_first), (second, to_second)) = (open().await, open().await, open().await);
    // Runs of equal lengths, shorter and longer datagrams after them, and datagrams to another neighbour between them.
    let lens = [100, 100, 100, 40, 40, 100, 1, 0, 7, 7, 1400, 1400, 1399, 1400, 0, 0, 3];
    let mut expected = (Vec::new(), Vec::new());
    for (number, len) in (0u8..).zip(lens) {
        let datagram = vec![number; len];
        sender.push(to_first, &datagram);
        expected.0.push((from, datagram));
        if number % 3 == 0 {
            sender.push(to_second, &[number]);
            expected.1.push((from, vec![number]));
        }
    }
    sender.flush();
    assert_eq!(receive(&second, expected.1.len()).await, expected.1);
    // A datagram without bytes is not a packet, so it may be left out.
    expected.0.retain(|(_, datagram)| !datagram.is_empty());
    let mut received = receive(&first, expected.0.len()).await;
    received.retain(|(_, datagram)| !datagram.is_empty());
    assert_eq!(received, expected.0);
}

#[tokio::test]
async fn many_datagrams_are_sent_before_they_are_flushed() {
    let ((sender, _), (receiver, to)) = (open().await, open().await);
    for _ in 0..=ENOUGH / 1000 {
        sender.push(to, &[7; 1000]);
    }
    let received = receive(&receiver, 60).await;
    assert!(received.iter().all(|(_, datagram)| datagram == &[7; 1000]));
    assert!(sender.waiting.borrow().bytes.len() < 2000);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_ipv6_datagram_longer_than_the_mtu_arrives() {
    let ip = Ipv6Addr::LOCALHOST.into();
    let ((sender, from), (receiver, to)) = (open_at(ip).await, open_at(ip).await);
    // The MTU of the loopback interface is 65,536 bytes, of which the headers of IPv6 and UDP use 48.
    let datagram: Vec<u8> = (0..65_500_u32).map(|number| (number % 251) as u8).collect();
    sender.push(to, &datagram);
    sender.flush();
    assert_eq!(receive(&receiver, 1).await, [(from, datagram)]);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_system_may_make_fragments_of_ipv4_and_ipv6() {
    use rustix::net::sockopt::{Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, ip_mtu_discover, ipv6_mtu_discover};
    // A socket at the address `::` also sends to IPv4 neighbours.
    let (port, _) = open_at(Ipv6Addr::UNSPECIFIED.into()).await;
    assert_eq!(ip_mtu_discover(&port.io), Ok(Ipv4PathMtuDiscovery::WANT));
    assert_eq!(ipv6_mtu_discover(&port.io), Ok(Ipv6PathMtuDiscovery::WANT));
    let (port, _) = open().await;
    assert_eq!(ip_mtu_discover(&port.io), Ok(Ipv4PathMtuDiscovery::WANT));
}

#[tokio::test]
async fn the_datagrams_of_a_refused_run_are_sent_one_by_one() {
    let ((sender, from), (receiver, to)) = (open().await, open().await);
    // The system refuses this run as a whole, because it has more bytes than a datagram of IPv4 can have.
    let datagrams = [vec![1; 30_000], vec![2; 30_000], vec![3; 10_000]];
    let (bytes, end) = (datagrams.concat(), 70_000);
    let runs = vec![Run { to, start: 0, end, size: 30_000, count: 3 }];
    *sender.waiting.borrow_mut() = Waiting { bytes, runs };
    sender.flush();
    assert_eq!(receive(&receiver, 3).await, datagrams.map(|datagram| (from, datagram)));
}
