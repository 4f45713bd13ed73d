//! A client with libOSCORE. libOSCORE protects the messages, and this program sends and receives them.
//!
//! ```text
//! oscore-client CONTEXT ADDRESS PATH get "put=a new value" ...     prints one line for each response, `CODE PAYLOAD`
//! version
//! ```
//!
//! CONTEXT is a file in the format of libcoap. The simplest context of libOSCORE begins with the sequence number 0. A
//! second run with the same file would use the same numbers again, so each run needs another file.

use coap_message::{MessageOption as _, MinimalWritableMessage as _, ReadableMessage as _};
use coap_message_implementations::inmemory_write::Message;
use liboscore::{AeadAlg, HkdfAlg, OscoreOption, PrimitiveContext, PrimitiveImmutables};
use std::error::Error;
use std::net::UdpSocket;
use std::time::Duration;

const GET: u8 = 1;
const PUT: u8 = 3;
const OSCORE: u16 = 9;
const URI_PATH: u16 = 11;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match &words[..] {
        ["version"] => println!("version {}", version()),
        ["oscore-client", context, address, path, methods @ ..] => {
            let mut context = PrimitiveContext::new_from_fresh_material(read(context)?);
            let socket = UdpSocket::bind("127.0.0.1:0")?;
            socket.connect(address)?;
            socket.set_read_timeout(Some(Duration::from_secs(10)))?;
            for (id, method) in (1..).zip(methods) {
                println!("{}", ask(&mut context, &socket, id, path, method)?);
            }
        }
        _ => return Err("the words are oscore-client CONTEXT ADDRESS PATH METHOD ..., or version".into()),
    }
    Ok(())
}

/// Returns the version of libOSCORE that was built into this program.
fn version() -> &'static str {
    let lock = include_str!("../Cargo.lock");
    let entry = lock.split("[[package]]").find(|entry| entry.contains("name = \"liboscore\"\n"));
    let version = entry.and_then(|entry| entry.split("version = \"").nth(1)?.split('"').next());
    version.unwrap_or("unknown")
}

fn read(file: &str) -> Result<PrimitiveImmutables, Box<dyn Error>> {
    let text = std::fs::read_to_string(file)?;
    let value = |name: &str| -> Result<&str, String> {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(','));
        let value = line.and_then(|line| line.split_once(','));
        value.map(|(_, value)| value.trim_matches('"')).ok_or_else(|| format!("{file} has no {name}"))
    };
    let bytes = |name: &str| -> Result<Vec<u8>, Box<dyn Error>> {
        let hex = value(name)?;
        let digits = |at: usize| hex.get(at..at + 2).ok_or("an odd number of digits");
        (0..hex.len()).step_by(2).map(|at| Ok(u8::from_str_radix(digits(at)?, 16)?)).collect()
    };
    let wrong = |what: &str| format!("{file}: libOSCORE does not have this {what}");
    PrimitiveImmutables::derive(
        // It knows HKDF by the hash that is in it: 5 is HMAC with SHA-256.
        HkdfAlg::from_number(5).map_err(|_| wrong("HKDF"))?,
        &bytes("master_secret")?,
        &bytes("master_salt")?,
        bytes("id_context").ok().as_deref(),
        AeadAlg::from_number(value("aead_alg")?.parse()?).map_err(|_| wrong("AEAD"))?,
        &bytes("sender_id")?,
        &bytes("recipient_id")?,
    )
    .map_err(|error| format!("{file}: {error:?}").into())
}

/// Sends one confirmable request with an empty token. Returns the piggybacked response.
fn ask(
    context: &mut PrimitiveContext,
    socket: &UdpSocket,
    id: u16,
    path: &str,
    method: &str,
) -> Result<String, Box<dyn Error>> {
    let (mut code, mut tail) = (0, [0; 1024]);
    let mut message = Message::new(&mut code, &mut tail);
    let write = |inside: &mut liboscore::ProtectedMessage| {
        let (code, payload) = match method.strip_prefix("put=") {
            Some(payload) => (PUT, payload),
            None => (GET, ""),
        };
        inside.set_code(code);
        inside.add_option(URI_PATH, path.as_bytes())?;
        if payload.is_empty() { Ok(()) } else { inside.set_payload(payload.as_bytes()) }
    };
    let (mut correlation, written) = liboscore::protect_request(&mut message, context, write)
        .map_err(|error| format!("the request cannot be protected: {error:?}"))?;
    written.map_err(|error| format!("the request cannot be written: {error:?}"))?;
    let len = message.finish();
    let [id0, id1] = id.to_be_bytes();
    let datagram = [&[0x40, code, id0, id1], tail.get(..len).unwrap_or_default()].concat();
    socket.send(&datagram)?;

    let mut answer = [0; 1024];
    let len = socket.recv(&mut answer)?;
    let (head, tail) = answer.get_mut(..len).and_then(|answer| answer.split_at_mut_checked(4)).ok_or("no message")?;
    if [head[0], head[2], head[3]] != [0x60, id0, id1] {
        return Err(format!("what came is no acknowledgement without a token: {head:02x?}").into());
    }
    let mut code = head[1];
    let mut message = Message::new_from_existing(&mut code, tail);
    let option = message.options().find(|option| option.number() == OSCORE).map(|option| option.value().to_vec());
    let option = option.ok_or_else(|| format!("a response without protection: {}", dotted(head[1])))?;
    let option = OscoreOption::parse(&option).map_err(|_| "an OSCORE option that makes no sense")?;
    liboscore::unprotect_response(&mut message, context, option, &mut correlation, |inside| {
        format!("{} {}", dotted(inside.code()), String::from_utf8_lossy(inside.payload()))
    })
    .map_err(|error| format!("the response is not authentic: {error:?}").into())
}

fn dotted(code: u8) -> String {
    format!("{}.{:02}", code >> 5, code & 31)
}
