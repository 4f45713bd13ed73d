use super::*;

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
    let port = Port::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
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
