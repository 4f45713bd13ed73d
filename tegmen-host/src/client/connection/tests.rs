use super::*;
use crate::client::Session;
use crate::uri::Scheme;
use std::net::Ipv4Addr;
use tokio::net::UdpSocket;

#[tokio::test]
async fn a_datagram_that_is_too_long_for_the_path_makes_the_next_ones_smaller() {
    let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let session =
        Session::connect_to(server.local_addr().unwrap(), Scheme::Coap, ClientConfig::default()).await.unwrap();
    session.with(|connection| {
        let too_long = io::Error::from_raw_os_error(TOO_LONG);
        // Loopback carries more than any datagram of ours, so the path that lost one is another: halves are tried.
        for expected in [616, 308, 154, 128, 128] {
            assert!(connection.network_error(&too_long).is_ok());
            assert_eq!(connection.entry.mtu, expected);
        }
        let unreachable = io::Error::from_raw_os_error(101);
        assert!(matches!(connection.network_error(&unreachable), Err(ClientError::Unreachable { .. })));
    });
}
