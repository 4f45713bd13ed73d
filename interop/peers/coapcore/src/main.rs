//! A resource server of ACE that uses coapcore. coapcore implements the OSCORE profile of ACE (RFC 9203).
//!
//! ```text
//! resource-server ADDRESS KEY     prints `listening ADDRESS`, and a line for each response: `CODE`
//! version
//! ```
//!
//! KEY is the key of the access control server in hexadecimal, 32 bytes for AES-CCM-16-128-256. GET and PUT of `/temp`
//! read and write a value. A client without protection may only post tokens.

use coap_handler::Handler;
use coap_message::error::RenderableOnMinimal as _;
use coap_message::{Code as _, MessageOption as _, MutableWritableMessage, ReadableMessage};
use coap_message_implementations::{inmemory, inmemory_write};
use coap_message_utils::Error as Refused;
use coapcore::OscoreEdhocHandler;
use coapcore::seccfg::ConfigBuilder;
use coapcore::time::TimeProvider;
use lakers_crypto_rustcrypto::Crypto;
use rand_core::TryRngCore as _;
use std::error::Error;
use std::net::UdpSocket;
use std::time::{SystemTime, UNIX_EPOCH};

const GET: u8 = 1;
const PUT: u8 = 3;
const CHANGED: u8 = 0x44;
const CONTENT: u8 = 0x45;
const URI_PATH: u16 = 11;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match &words[..] {
        ["version"] => println!("version {}", version()),
        ["resource-server", address, key] => serve(address, key)?,
        _ => return Err("the words are resource-server ADDRESS KEY, or version".into()),
    }
    Ok(())
}

/// Returns the version of coapcore that was built into this program.
fn version() -> &'static str {
    let lock = include_str!("../Cargo.lock");
    let entry = lock.split("[[package]]").find(|entry| entry.contains("name = \"coapcore\"\n"));
    let version = entry.and_then(|entry| entry.split("version = \"").nth(1)?.split('"').next());
    version.unwrap_or("unknown")
}

fn serve(address: &str, key: &str) -> Result<(), Box<dyn Error>> {
    let digits = |at: usize| key.get(2 * at..2 * at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let bytes: Option<Vec<u8>> = (0..32).map(digits).collect();
    let key: [u8; 32] = bytes.ok_or("a key has 64 hexadecimal digits")?.try_into().map_err(|_| "no key")?;
    let authorities = ConfigBuilder::new().with_aif_symmetric_as_aesccm256(key);
    let crypto = || Crypto::new(rand_core_of_lakers::OsRng);
    let value = Value(b"21.5".to_vec());
    let mut handler = OscoreEdhocHandler::new(value, authorities, crypto, rand_core::OsRng.unwrap_err(), SystemClock);
    let socket = UdpSocket::bind(address)?;
    println!("listening {}", socket.local_addr()?);
    let mut datagram = [0; 1280];
    loop {
        let (len, from) = socket.recv_from(&mut datagram)?;
        if let Some(response) = datagram.get(..len).and_then(|request| answer(&mut handler, request)) {
            println!("{}.{:02}", response[1] >> 5, response[1] & 31);
            socket.send_to(&response, from)?;
        }
    }
}

/// Returns the response to a request, or `None` for any other message. The response to a confirmable request also
/// acknowledges it.
fn answer(handler: &mut impl Handler, datagram: &[u8]) -> Option<Vec<u8>> {
    let (head, rest) = datagram.split_at_checked(4)?;
    let (token, rest) = rest.split_at_checked(usize::from(head[0] & 15))?;
    let (message_type, code) = (head[0] >> 4 & 3, head[1]);
    if head[0] >> 6 != 1 || !(1..32).contains(&code) || message_type > 1 {
        return None;
    }
    let (mut response_code, mut storage) = (0, [0; 1024]);
    let request = inmemory::Message::new(code, rest);
    let mut response = inmemory_write::Message::new(&mut response_code, &mut storage);
    match handler.extract_request_data(&request) {
        Ok(extracted) => {
            if let Err(error) = handler.build_response(&mut response, extracted) {
                response.reset();
                error.render(&mut response).ok()?;
            }
        }
        Err(error) => error.render(&mut response).ok()?,
    }
    let len = response.finish();
    let first = 0x40 | if message_type == 0 { 0x20 } else { 0x10 } | head[0] & 15;
    Some([&[first, response_code, head[2], head[3]], token, storage.get(..len)?].concat())
}

/// The resource `/temp`.
struct Value(Vec<u8>);

impl Handler for Value {
    /// True if the request wrote the value.
    type RequestData = bool;
    type ExtractRequestError = Refused;
    type BuildResponseError<M: coap_message::MinimalWritableMessage> = M::UnionError;

    fn extract_request_data<M: ReadableMessage>(&mut self, request: &M) -> Result<bool, Refused> {
        let mut path = request.options().filter(|option| option.number() == URI_PATH);
        if !(path.next().is_some_and(|segment| segment.value() == b"temp") && path.next().is_none()) {
            return Err(Refused::not_found());
        }
        match request.code().into() {
            GET => Ok(false),
            PUT => {
                self.0 = request.payload().to_vec();
                Ok(true)
            }
            _ => Err(Refused::method_not_allowed()),
        }
    }

    fn estimate_length(&mut self, _: &bool) -> usize {
        self.0.len() + 1
    }

    fn build_response<M: MutableWritableMessage>(
        &mut self,
        response: &mut M,
        wrote: bool,
    ) -> Result<(), M::UnionError> {
        response.set_code(M::Code::new(if wrote { CHANGED } else { CONTENT })?);
        if !wrote {
            response.set_payload(&self.0)?;
        }
        Ok(())
    }
}

/// The clock of the system.
struct SystemClock;

impl TimeProvider for SystemClock {
    fn now(&mut self) -> (u64, Option<u64>) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        (now, Some(now))
    }
}
