//! The informative response with which a server gives the data of a group observation to a client
//! (draft-ietf-core-observe-multicast-notifications-14, section 4.2): a 5.03 response whose payload is a CBOR map.
//!
//! ```text
//! 0 tp_info     [server, group, token]: server and group are CRIs with an IP address and a port
//! 1 ph_req      the phantom request, without its header and its token
//! 2 last_notif  the newest notification, without its header and its token
//! ```

use crate::cbor::{Malformed, read_message};
use minicbor::data::Type;
use minicbor::{Decoder, Encoder};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tegmen::address::Address;
use tegmen::buf::Frame;
use tegmen::coap::cache::{Treatment, in_request, write_resource, write_variant};
use tegmen::coap::observe::REGISTER;
use tegmen::coap::{Block, Builder, Code, HEADER_LEN, MAX_TOKEN, MessageRef, MessageType, OptionNumber, Token};

/// The Content-Format application/informative-response+cbor. IANA has not assigned a number yet. This number is in the
/// range for experiments (RFC 7252, section 12.3).
pub(crate) const FORMAT: u16 = 65_064;

/// The Feedback-Divider option (section 7.1). IANA has not assigned a number yet. The draft proposes this number.
pub(crate) const FEEDBACK_DIVIDER: OptionNumber = OptionNumber(18);

const TP_INFO: i64 = 0;
const PH_REQ: i64 = 1;
const LAST_NOTIF: i64 = 2;

/// The scheme "coap" in a CRI, which stands for CoAP over UDP.
const COAP: i64 = -1;
const DEFAULT_PORT: u16 = 5683;

/// The data of a group observation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Informative {
    /// The address from which the server sends the notifications.
    pub(crate) server: SocketAddr,
    /// The address to which the server sends the notifications.
    pub(crate) group: SocketAddr,
    /// The token of the notifications.
    pub(crate) token: Token,
    /// The phantom request, in the form of [`independent`]; `None` if it is equal to the request of the client.
    pub(crate) phantom: Option<Vec<u8>>,
    /// The newest notification, in the form of [`independent`].
    pub(crate) latest: Option<Vec<u8>>,
}

impl Informative {
    /// Writes the payload of the informative response.
    pub(crate) fn to_cbor(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes);
        let entries = 1 + u64::from(self.phantom.is_some()) + u64::from(self.latest.is_some());
        // Writing to a vector does not fail.
        let _ = (|| {
            encoder.map(entries)?.i64(TP_INFO)?.array(3)?;
            write_cri(&mut encoder, self.server)?;
            write_cri(&mut encoder, self.group)?;
            encoder.bytes(self.token.as_bytes())?;
            for (label, message) in [(PH_REQ, &self.phantom), (LAST_NOTIF, &self.latest)] {
                if let Some(message) = message {
                    encoder.i64(label)?.bytes(message)?;
                }
            }
            Ok::<(), minicbor::encode::Error<std::convert::Infallible>>(())
        })();
        bytes
    }

    /// Reads the payload of an informative response. Ignores the parameters that are not in the table of this module.
    ///
    /// # Errors
    /// [`Malformed`]; [`Malformed::Value`] also for a host name, for another scheme than "coap", for an address that is
    /// not a multicast address in place of the group, and for a token of more than 8 bytes.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let (mut tp_info, mut phantom, mut latest) = (None, None, None);
        read_message(bytes, |label, decoder| {
            match label {
                TP_INFO => tp_info = Some(read_tp_info(decoder)?),
                PH_REQ => phantom = Some(decoder.bytes()?.to_vec()),
                LAST_NOTIF => latest = Some(decoder.bytes()?.to_vec()),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let (server, group, token) = tp_info.ok_or(Malformed::Missing(TP_INFO))?;
        Ok(Self { server, group, token, phantom, latest })
    }
}

fn write_cri<W: minicbor::encode::Write>(
    encoder: &mut Encoder<W>,
    address: SocketAddr,
) -> Result<(), minicbor::encode::Error<W::Error>> {
    encoder.array(2)?.i64(COAP)?.array(if address.port() == DEFAULT_PORT { 1 } else { 2 })?;
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => encoder.bytes(&ip.octets())?,
        IpAddr::V6(ip) => encoder.bytes(&ip.octets())?,
    };
    if address.port() != DEFAULT_PORT {
        encoder.u16(address.port())?;
    }
    Ok(())
}

fn read_tp_info(decoder: &mut Decoder<'_>) -> Result<(SocketAddr, SocketAddr, Token), Malformed> {
    let wrong = Malformed::Value(TP_INFO);
    if decoder.array()? != Some(3) {
        return Err(wrong);
    }
    let (server, group, token) = (read_cri(decoder)?, read_cri(decoder)?, decoder.bytes()?);
    if token.len() > MAX_TOKEN || !group.ip().is_multicast() || server.ip().is_multicast() {
        return Err(wrong);
    }
    Ok((server, group, Token::new(token)))
}

/// Reads the address and the port of a CRI. In the grammar of the draft, the host and the port are an array in the
/// array of the CRI. In the example of the draft, they are elements of the array of the CRI. This function reads both
/// forms.
fn read_cri(decoder: &mut Decoder<'_>) -> Result<SocketAddr, Malformed> {
    let wrong = Malformed::Value(TP_INFO);
    let len = decoder.array()?.ok_or(wrong)?;
    if decoder.i64()? != COAP {
        return Err(wrong);
    }
    let parts = match decoder.datatype()? {
        Type::Array if len == 2 => decoder.array()?.ok_or(wrong)?,
        Type::Array => return Err(wrong),
        _ => len.saturating_sub(1),
    };
    if !matches!(parts, 1 | 2) || decoder.datatype()? != Type::Bytes {
        return Err(wrong);
    }
    let host = decoder.bytes()?;
    let ip = match (<[u8; 4]>::try_from(host), <[u8; 16]>::try_from(host)) {
        (Ok(ip), _) => IpAddr::from(Ipv4Addr::from(ip)),
        // The checks of an IPv4 address must also find it in its IPv6 form.
        (_, Ok(ip)) => IpAddr::from(Ipv6Addr::from(ip)).to_canonical(),
        _ => return Err(wrong),
    };
    let port = if parts == 2 { decoder.u16()? } else { DEFAULT_PORT };
    if port == 0 || is_local(ip) {
        return Err(wrong);
    }
    Ok(SocketAddr::new(ip, port))
}

/// True for an address that is valid only on one link (section 4.2): an informative response contains no such address.
pub(crate) const fn is_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => {
            ip.is_unicast_link_local()
                || matches!(ip.segments(), [0xff01 | 0xff02 | 0xff11 | 0xff12 | 0xff31 | 0xff32, ..])
        }
    }
}

/// Returns the part of a message that does not depend on the transport (section 4.2.2): the code, the options, and the
/// payload with its marker. Returns `None` if the bytes are not a message.
pub(crate) fn independent(message: &[u8]) -> Option<Vec<u8>> {
    let parsed = MessageRef::parse(message).ok()?;
    let rest = message.get(HEADER_LEN + parsed.token().len()..)?;
    Some([&[parsed.code().0], rest].concat())
}

/// Returns a non-confirmable message with this token, and with the code, the options and the payload in `independent`.
///
/// # Errors
/// [`Malformed::Syntax`] if the result is not a message.
pub(crate) fn rebuilt(independent: &[u8], token: &Token) -> Result<Vec<u8>, Malformed> {
    let (code, rest) = independent.split_first().ok_or(Malformed::Syntax)?;
    let mut bytes = vec![0; HEADER_LEN + MAX_TOKEN + rest.len()];
    let mut frame = Frame::new(&mut bytes, 0);
    let head = Builder::new(&mut frame, MessageType::NonConfirmable, Code(*code), 0, token.as_bytes());
    head.map_err(|_| Malformed::Syntax)?;
    frame.append(rest).map_err(|_| Malformed::Syntax)?;
    let bytes = frame.bytes().to_vec();
    MessageRef::parse(&bytes).map_err(|_| Malformed::Syntax)?;
    Ok(bytes)
}

/// True if the response to the phantom request `phantom` also answers `request` (section 5.2, step 3): both register an
/// observation, and have the same cache key. Both may ask for the first block of any size.
pub(crate) fn is_same(phantom: &MessageRef<'_>, request: &MessageRef<'_>) -> bool {
    let key = |message: &MessageRef<'_>| {
        let mut key = Vec::new();
        write_resource(&[], message, 0, |part| key.extend_from_slice(part));
        write_variant(message, |part| key.extend_from_slice(part));
        key
    };
    let registers =
        |message: &MessageRef<'_>| message.code() == Code::GET && message.uint(OptionNumber::OBSERVE) == Some(REGISTER);
    let is_first = |value: &[u8]| Block::read(value).is_ok_and(|block| block.number == 0);
    let is_understood = |(number, value): (OptionNumber, &[u8])| match in_request(number) {
        Treatment::Key | Treatment::Passed => true,
        Treatment::Target => matches!(number, OptionNumber::URI_HOST | OptionNumber::URI_PORT),
        Treatment::Taken if number == OptionNumber::BLOCK2 => is_first(value),
        Treatment::Taken => number != OptionNumber::BLOCK1,
        Treatment::Refused => number == FEEDBACK_DIVIDER,
    };
    let is_plain = |message: &MessageRef<'_>| message.options().all(is_understood);
    [phantom, request].iter().all(|message| registers(message) && is_plain(message)) && key(phantom) == key(request)
}

/// Returns a copy of a message with the Feedback-Divider option. Returns `None` if the result is not a message.
pub(crate) fn with_feedback_divider(message: &[u8], divider: u8) -> Option<Vec<u8>> {
    let original = MessageRef::parse(message).ok()?;
    let mut bytes = vec![0; message.len() + 8];
    let mut frame = Frame::new(&mut bytes, 0);
    let (message_type, id) = (original.message_type(), original.message_id());
    let mut builder = Builder::new(&mut frame, message_type, original.code(), id, original.token()).ok()?;
    let (before, behind): (Vec<_>, Vec<_>) = original.options().partition(|(number, _)| *number < FEEDBACK_DIVIDER);
    before.iter().try_for_each(|(number, value)| builder.option(*number, value)).ok()?;
    builder.uint(FEEDBACK_DIVIDER, divider.into()).ok()?;
    behind.iter().try_for_each(|(number, value)| builder.option(*number, value)).ok()?;
    builder.payload(original.payload()).ok()?;
    Some(frame.bytes().to_vec())
}

/// Returns an address in the form in which two addresses can be compared: an IPv4 address in IPv6 is an IPv4 address.
pub(crate) fn canonical(address: impl Into<Address>) -> SocketAddr {
    let address = SocketAddr::from(address.into());
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests;
