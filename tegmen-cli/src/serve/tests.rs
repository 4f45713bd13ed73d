use super::*;

#[test]
fn an_address_with_its_port_is_told_apart() {
    assert_eq!(listen_address("::1"), Ok(IpAddr::V6(std::net::Ipv6Addr::LOCALHOST)));
    assert!(listen_address("[::1]:5684").unwrap_err().contains("--port 5684"));
    assert!(listen_address("localhost").unwrap_err().contains("127.0.0.1"));
}
