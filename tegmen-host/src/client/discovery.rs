//! Finds a server by the OSCORE context that client and server share (paper "Content Object Security in the Internet of
//! Things", section V-B).

use super::oscore::unprotectable;
use super::request::Part;
use super::{ClientError, Request, Response};
use crate::contexts::{OVERHEAD, StoredContext};
use crate::group::Group;
use crate::provider::HostCrypto;
use crate::udp::MAX_DATAGRAM;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tegmen::buf::Frame;
use tegmen::coap::{Builder, MessageRef, MessageType};
use tegmen::crypto::Crypto as _;
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout_at};

/// A server that has the OSCORE context for which the client searches.
#[derive(Clone, Debug)]
pub struct Discovered {
    /// The address of the server.
    pub remote: SocketAddr,
    /// The response. A server that lost its replay window responds with 4.01 and an Echo option, and has not executed
    /// the request.
    pub response: Response,
}

/// Number of transmissions of a request. No member of a group acknowledges a request, so the client sends it several
/// times.
const TRANSMISSIONS: u32 = 3;

/// Sends a request to a group, up to three times within `wait`, and returns the first authentic response. The context
/// in the directory `context` protects the request, so other members of the group cannot open it. Returns `None` if no
/// server responds.
///
/// The server must have joined `group`. The address of the group is the
/// [`discovery_address`](tegmen::oscore::discovery_address) of the context, on the network interface that client and
/// server share.
///
/// # Errors
/// [`ClientError`], whose text names the next step for the user.
pub async fn discover(
    context: &Path,
    group: &Group,
    port: u16,
    request: &Request<'_>,
    wait: Duration,
) -> Result<Option<Discovered>, ClientError> {
    request.check()?;
    let mut stored = StoredContext::open(context).map_err(ClientError::Context)?;
    let mut crypto = HostCrypto::from_os().map_err(ClientError::System)?;
    let remote = group.at(port);
    let unreachable = |source| ClientError::Unreachable { remote, source };
    let socket = group.socket(None).and_then(UdpSocket::from_std).map_err(unreachable)?;
    let mut random = [0; 10];
    crypto.random(&mut random);
    let ([high, low, ..], token) = (random, random.get(2..).unwrap_or(&[]));
    let mut storage = [0; MAX_DATAGRAM];
    let mut frame = Frame::new(&mut storage, OVERHEAD);
    let id = u16::from_be_bytes([high, low]);
    let built = Builder::new(&mut frame, MessageType::NonConfirmable, request.method, id, token)
        .and_then(|mut builder| request.write(&mut builder, Part::default()));
    built.map_err(|_| ClientError::TooLong { max: MAX_DATAGRAM - 2 * OVERHEAD })?;
    stored.lease_one().map_err(unprotectable)?;
    let mut pending = stored.context.protect_request(&mut crypto, &mut frame).map_err(unprotectable)?;
    let (end, mut buffer) = (Instant::now() + wait, [0; MAX_DATAGRAM]);
    for sent in 1..=TRANSMISSIONS {
        let asked = socket.send_to(frame.bytes(), remote).await;
        asked.map_err(|source| ClientError::NoRoute { remote, source })?;
        let until = end - wait.mul_f64(f64::from(TRANSMISSIONS - sent) / f64::from(TRANSMISSIONS));
        while let Ok(received) = timeout_at(until, socket.recv_from(&mut buffer)).await {
            // The error of an earlier datagram.
            let Ok((len, from)) = received else { continue };
            let datagram = buffer.get_mut(..len).unwrap_or(&mut []);
            if !MessageRef::parse(datagram).is_ok_and(|message| message.token() == token) {
                continue;
            }
            if let Ok((message, _)) = stored.take_response(&mut crypto, &mut pending, datagram) {
                return Ok(Some(Discovered { remote: from, response: Response::new(&message) }));
            }
        }
    }
    Ok(None)
}
