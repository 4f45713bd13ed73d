//! The program that measures libOSCORE with the same work as Tegmen: both ends protect and open a GET and its response,
//! in memory.
//!
//! The commands are `tegmen-bench-liboscore version` and `tegmen-bench-liboscore pairs COUNT`. The second prints
//! `nanoseconds N`, the CPU time.

use coap_message::{
    MessageOption as _, MinimalWritableMessage as _, MutableWritableMessage as _, ReadableMessage as _,
};
use coap_message_implementations::{inmemory, inmemory_write};
use liboscore::{AeadAlg, HkdfAlg, OscoreOption, PrimitiveContext, PrimitiveImmutables};
use std::process::ExitCode;
use tegmen_bench_line::cpu_time;

const GET: u8 = 1;
const CONTENT: u8 = 0x45;
const URI_PATH: u16 = 11;
const CONTENT_FORMAT: u16 = 12;
const OSCORE: u16 = 9;
const READING: [u8; 16] = *b"21.5 degrees C  ";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["version"] => println!("liboscore 0.2.7"),
        ["pairs", count] => match count.parse().ok().and_then(pairs) {
            Some(nanoseconds) => println!("nanoseconds {nanoseconds}"),
            None => return ExitCode::FAILURE,
        },
        _ => return ExitCode::from(2),
    }
    ExitCode::SUCCESS
}

fn context(sender_id: &[u8], recipient_id: &[u8]) -> Option<PrimitiveContext> {
    let (hkdf, aead) = (HkdfAlg::from_number(5).ok()?, AeadAlg::from_number(10).ok()?);
    let parts = PrimitiveImmutables::derive(hkdf, &[7; 16], b"salt", None, aead, sender_id, recipient_id).ok()?;
    Some(PrimitiveContext::new_from_fresh_material(parts))
}

/// Returns the CPU time for `count` pairs in nanoseconds; `None` if a pair fails.
fn pairs(count: u32) -> Option<u128> {
    let (mut client, mut server) = (context(b"c", b"s")?, context(b"s", b"c")?);
    for _ in 0..100 {
        pair(&mut client, &mut server)?;
    }
    let start = cpu_time().ok()?;
    for _ in 0..count {
        pair(&mut client, &mut server)?;
    }
    Some(cpu_time().ok()?.saturating_sub(start).as_nanos())
}

/// Exchanges one request and its response.
fn pair(client: &mut PrimitiveContext, server: &mut PrimitiveContext) -> Option<()> {
    let (mut code, mut tail) = (0, [0; 128]);
    let mut request = inmemory_write::Message::new(&mut code, &mut tail);
    let (mut asked, written) = liboscore::protect_request(&mut request, client, |message| {
        message.set_code(GET);
        message.add_option(URI_PATH, b"sensors").ok()?;
        message.add_option(URI_PATH, b"temperature").ok()
    })
    .ok()?;
    written?;
    let len = request.finish();

    let tail = &mut tail[..len];
    let (value, len) = oscore_option(code, tail)?;
    let mut request = inmemory_write::Message::new_from_existing(&mut code, tail);
    let option = OscoreOption::parse(value.get(..len)?).ok()?;
    let (mut to_answer, right) = liboscore::unprotect_request(&mut request, option, server, |message| {
        let mut path = message.options().filter(|option| option.number() == URI_PATH);
        let first = path.next().is_some_and(|option| option.value() == b"sensors");
        let second = path.next().is_some_and(|option| option.value() == b"temperature");
        message.code() == GET && first && second
    })
    .ok()?;
    if !right {
        return None;
    }

    let (mut code, mut tail) = (0, [0; 128]);
    let mut response = inmemory_write::Message::new(&mut code, &mut tail);
    liboscore::protect_response(&mut response, server, &mut to_answer, |message| {
        message.set_code(CONTENT);
        message.add_option(CONTENT_FORMAT, &[42]).ok()?;
        message.payload_mut_with_len(READING.len()).ok()?.copy_from_slice(&READING);
        Some(())
    })
    .ok()??;
    let len = response.finish();

    let tail = &mut tail[..len];
    let (value, len) = oscore_option(code, tail)?;
    let mut response = inmemory_write::Message::new_from_existing(&mut code, tail);
    let option = OscoreOption::parse(value.get(..len)?).ok()?;
    let right = liboscore::unprotect_response(&mut response, client, option, &mut asked, |message| {
        message.code() == CONTENT && message.payload() == READING
    })
    .ok()?;
    right.then_some(())
}

/// Returns a copy of the OSCORE option's value, because the message is changed afterwards.
fn oscore_option(code: u8, tail: &[u8]) -> Option<([u8; 16], usize)> {
    let message = inmemory::Message::new(code, tail);
    let option = message.options().find(|option| option.number() == OSCORE)?;
    let mut value = [0; 16];
    value.get_mut(..option.value().len())?.copy_from_slice(option.value());
    Some((value, option.value().len()))
}
