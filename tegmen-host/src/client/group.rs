//! One request to a group of servers, and the responses of its members (RFC 7252, section 8).

use super::request::Part;
use super::{ClientError, Request, Response};
use crate::clock;
use crate::group::Group;
use crate::provider::HostCrypto;
use crate::udp::MAX_DATAGRAM;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tegmen::buf::Frame;
use tegmen::coap::{Builder, MessageRef, MessageType};
use tegmen::crypto::Crypto as _;
use tokio::net::UdpSocket;

/// What a message to a group may have: every node can take it in (RFC 7252, section 4.6).
const MAX_MESSAGE: usize = 1152;

/// Asks all of a group, without protection and without acknowledgement, and gives each response to `on_reply` as it
/// comes, until `wait` has passed: those who answer do so at a random time of their own, usually within 5 seconds. A
/// response in blocks is given as its first block.
///
/// # Errors
/// [`ClientError`], whose text names the next step. That nobody answers is none.
pub async fn ask_group(
    group: &Group,
    port: u16,
    request: &Request<'_>,
    wait: Duration,
    mut on_reply: impl FnMut(SocketAddr, Response),
) -> Result<usize, ClientError> {
    let remote = group.at(port);
    let unreachable = |source| ClientError::Unreachable { remote, source };
    let socket = open(group, remote).map_err(unreachable)?;
    let mut crypto = HostCrypto::from_os().map_err(ClientError::System)?;
    let mut random = [0; 10];
    crypto.random(&mut random);
    let [high, low, token @ ..] = random;
    let mut storage = [0; MAX_MESSAGE];
    let mut frame = Frame::new(&mut storage, 0);
    let message_id = u16::from_be_bytes([high, low]);
    request.check()?;
    Builder::new(&mut frame, MessageType::NonConfirmable, request.method, message_id, &token)
        .and_then(|mut builder| request.write(&mut builder, Part::default()))
        .map_err(|_| ClientError::TooLong { max: MAX_MESSAGE })?;
    let start = clock::now();
    socket.send_to(frame.bytes(), remote).await.map_err(unreachable)?;
    let mut answered = Vec::new();
    let mut buffer = [0; MAX_DATAGRAM];
    loop {
        let left = wait.saturating_sub(clock::now().since(start));
        let Ok(received) = tokio::time::timeout(left, socket.recv_from(&mut buffer)).await else {
            return Ok(answered.len());
        };
        // An ICMP answer concerns the one who sent it.
        let Ok((len, from)) = received else { continue };
        let Ok(message) = MessageRef::parse(buffer.get(..len).unwrap_or(&[])) else { continue };
        let ours = message.code().is_response() && message.token() == token;
        if !ours || answered.contains(&from) {
            continue;
        }
        answered.push(from);
        if message.message_type() == MessageType::Confirmable {
            let acknowledgement = tegmen::coap::empty_message(MessageType::Acknowledgement, message.message_id());
            // Who does not receive it asks again.
            let _ = socket.send_to(&acknowledgement, from).await;
        }
        on_reply(from, Response { round_trip: clock::now().since(start), ..Response::new(&message) });
    }
}

fn open(group: &Group, remote: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(remote), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    match (remote, group.interface_address()) {
        (SocketAddr::V6(_), _) if group.index() > 0 => socket.set_multicast_if_v6(group.index())?,
        (SocketAddr::V4(_), Some(address)) => socket.set_multicast_if_v4(&address)?,
        #[cfg(target_os = "linux")]
        (SocketAddr::V4(_), None) => socket.bind_device(group.interface.as_ref().map(String::as_bytes))?,
        _ => {}
    }
    let any: SocketAddr = match remote {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    socket.bind(&any.into())?;
    UdpSocket::from_std(socket.into())
}
