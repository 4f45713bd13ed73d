//! The message with which the access control server uploads a token to a publisher
//! (draft-ietf-ace-workflow-and-params-04). This module also has the request with which a subscriber asks a publisher
//! to open the session (T. Kothmayr and others, "A DTLS Based End-To-End Security Architecture for the Internet of
//! Things with Two-Way Authentication", section IV).

use minicbor::Decoder;
use std::net::{IpAddr, SocketAddr};
use tegmen_host::cbor::{Malformed, MapWriter, bytes, read_map, read_message};
use zeroize::Zeroizing;

const ACCESS_TOKEN: i64 = 1;
/// The label of a [`ConnectionRequest`] in an upload, from the range of labels for private use.
const CONNECT: i64 = -65_537;
/// The label of the address in a connection request.
const ADDRESS: i64 = 1;

/// The address at which a subscriber waits for the publisher's handshake. The parameter `to_rs` of a token request
/// contains it as `{1: [address, port]}`, with an address of 4 or 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionRequest {
    /// The address and the UDP port.
    pub address: SocketAddr,
}

impl ConnectionRequest {
    /// Reads the value of the parameter `to_rs` of a token request.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are no valid connection request.
    pub fn parse(message: &[u8]) -> Result<Self, Malformed> {
        let mut address = None;
        read_message(message, |label, decoder| take_address(label, decoder, &mut address))?;
        Ok(Self { address: address.ok_or(Malformed::Missing(ADDRESS))? })
    }

    /// Encodes the request.
    pub fn encode(&self) -> Vec<u8> {
        let mut map = MapWriter::default();
        self.write(&mut map);
        map.finish().to_vec()
    }

    fn read(decoder: &mut Decoder<'_>) -> Result<Self, Malformed> {
        let mut address = None;
        read_map(decoder, |label, decoder| take_address(label, decoder, &mut address))?;
        Ok(Self { address: address.ok_or(Malformed::Missing(ADDRESS))? })
    }

    fn write(&self, map: &mut MapWriter) {
        map.entry(ADDRESS, |encoder| {
            let encoder = encoder.array(2)?;
            let encoder = match self.address.ip() {
                IpAddr::V4(ip) => encoder.bytes(&ip.octets())?,
                IpAddr::V6(ip) => encoder.bytes(&ip.octets())?,
            };
            encoder.u16(self.address.port()).map(|_| ())
        });
    }
}

fn take_address(label: i64, decoder: &mut Decoder<'_>, address: &mut Option<SocketAddr>) -> Result<bool, Malformed> {
    if label != ADDRESS {
        return Ok(false);
    }
    if decoder.array()? != Some(2) {
        return Err(Malformed::Syntax);
    }
    let octets = decoder.bytes()?;
    let ip = match (<[u8; 4]>::try_from(octets), <[u8; 16]>::try_from(octets)) {
        (Ok(octets), _) => IpAddr::from(octets),
        (_, Ok(octets)) => IpAddr::from(octets),
        _ => return Err(Malformed::Value(ADDRESS)),
    };
    let port = decoder.u16()?;
    if port == 0 || ip.is_unspecified() || ip.is_multicast() {
        return Err(Malformed::Value(ADDRESS));
    }
    *address = Some(SocketAddr::new(ip, port));
    Ok(true)
}

/// The request of the access control server to the path `/authz-info` of a publisher.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenUpload {
    /// The token.
    pub access_token: Vec<u8>,
    /// The address to which the publisher must open the session; `None` if the subscriber opens the session.
    pub connect: Option<ConnectionRequest>,
}

impl TokenUpload {
    /// Reads the request with which the access control server uploads a token to a publisher.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are no valid upload request.
    pub fn parse(message: &[u8]) -> Result<Self, Malformed> {
        let (mut access_token, mut connect) = (None, None);
        read_message(message, |label, decoder| {
            match label {
                ACCESS_TOKEN => access_token = Some(decoder.bytes()?.to_owned()),
                CONNECT => connect = Some(ConnectionRequest::read(decoder)?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(Self { access_token: access_token.ok_or(Malformed::Missing(ACCESS_TOKEN))?, connect })
    }

    /// Encodes the request.
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let mut map = MapWriter::default();
        map.map(CONNECT, self.connect.as_ref(), |map, connect| connect.write(map));
        map.entry(ACCESS_TOKEN, |encoder| bytes(encoder, &self.access_token));
        map.finish()
    }
}
