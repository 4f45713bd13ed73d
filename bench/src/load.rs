//! A CoAP client that keeps a fixed number of confirmable GETs waiting for their answers (RFC 7252), and counts the
//! answers.
//!
//! The client has a fixed number of slots. A slot has space for one request that waits for its answer. When the answer
//! arrives, or has not arrived in time, the client sends the next request in the same slot. The client retransmits
//! nothing, so every request is new for the server.

use crate::mmsg::{BATCH_MAX, Batch};
use std::{
    net::{SocketAddr, UdpSocket},
    time::{Duration, Instant},
};
use tegmen_bench_line::Failure;

/// Number of requests that wait for an answer at the same time.
pub(crate) const WINDOW: usize = BATCH_MAX;

/// The kind of answer that the client expects and counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// A 2.05 Content response that has the token of the request.
    Content,
    /// The bytes of the request itself. An echo server answers with these bytes.
    Echo,
}

/// The counts of one run.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counted {
    /// Number of requests that were answered.
    pub(crate) answered: u64,
    /// Number of requests that were not answered in time.
    pub(crate) lost: u64,
    /// Length of the last answer, in bytes.
    pub(crate) answer_len: usize,
    /// Average number of requests that were sent with one system call.
    pub(crate) batch: f64,
}

/// A client that is connected to one server.
pub(crate) struct Load {
    socket: UdpSocket,
    batch: Batch,
    slots: Vec<Slot>,
    free: Vec<usize>,
    path: String,
    answer: Answer,
    issued: u32,
}

/// Space for one request of the client that waits for its answer.
#[derive(Clone, Copy)]
struct Slot {
    token: u32,
    sent: Instant,
}

impl Load {
    /// Creates a client of the server at `server`. The client sends nothing yet.
    pub(crate) fn new(server: SocketAddr, path: &str, answer: Answer) -> Result<Self, Failure> {
        let socket = UdpSocket::bind("127.0.0.1:0").map_err(failure)?;
        socket.connect(server).map_err(failure)?;
        socket.set_read_timeout(Some(POLL)).map_err(failure)?;
        Ok(Self {
            socket,
            batch: Batch::new(),
            slots: vec![Slot { token: 0, sent: Instant::now() }; WINDOW],
            free: (0..WINDOW).collect(),
            path: path.into(),
            answer,
            issued: 0,
        })
    }

    /// Waits until the server answers. Stores [`VALUE`] at the path if the server allows PUT.
    pub(crate) fn prepare(&mut self) -> Result<(), Failure> {
        let begin = Instant::now();
        let mut put = [0; 128];
        let len = write_request(&mut put, PUT, 0, 0, &self.path, VALUE);
        while begin.elapsed() < Duration::from_secs(10) {
            // A server that is not there yet refuses the datagram, here or at the next call.
            let _ = self.socket.send(&put[..len]);
            if self.socket.recv(&mut [0; 128]).is_ok() {
                return Ok(());
            }
            std::thread::sleep(POLL);
        }
        Err(Failure::new("the server does not answer"))
    }

    /// Keeps [`WINDOW`] requests waiting for an answer during `duration`.
    pub(crate) fn run(&mut self, duration: Duration) -> Result<Counted, Failure> {
        let mut counted = Counted::default();
        let (mut issued, mut sends) = (0u64, 0u64);
        let begin = Instant::now();
        let mut swept = begin;
        loop {
            let now = Instant::now();
            if now.duration_since(begin) >= duration {
                break;
            }
            if now.duration_since(swept) >= POLL {
                swept = now;
                counted.lost += self.give_up(now);
            }
            if !self.free.is_empty() {
                issued += self.free.len() as u64;
                sends += 1;
                self.issue(now)?;
            }
            self.batch.receive(&self.socket).map_err(failure)?;
            for datagram in self.batch.iter() {
                if let Some(slot) = accept(datagram, self.answer, &self.slots)? {
                    self.slots[slot].token = ANSWERED;
                    self.free.push(slot);
                    counted.answered += 1;
                    counted.answer_len = datagram.len();
                }
            }
        }
        counted.batch = issued as f64 / sends.max(1) as f64;
        Ok(counted)
    }

    /// Sends a new request for every request that was answered or given up.
    fn issue(&mut self, now: Instant) -> Result<(), Failure> {
        self.batch.clear();
        while let Some(slot) = self.free.pop() {
            self.issued = self.issued.wrapping_add(1);
            let token = self.issued << SLOT_BITS | slot as u32;
            self.slots[slot] = Slot { token, sent: now };
            let message_id = self.issued as u16; // the low half: distinct for 65,536 requests
            self.batch.push(|room| write_request(room, GET, message_id, token, &self.path, b""));
        }
        self.batch.send(&self.socket).map_err(failure)
    }

    /// Gives up the requests that have waited longer than [`PATIENCE`] for their answers, so that the client can send
    /// new requests. Returns the number of requests that it gave up.
    fn give_up(&mut self, now: Instant) -> u64 {
        let before = self.free.len();
        for (i, slot) in self.slots.iter_mut().enumerate() {
            if slot.token != ANSWERED && !self.free.contains(&i) && now.duration_since(slot.sent) > PATIENCE {
                slot.token = ANSWERED;
                self.free.push(i);
            }
        }
        (self.free.len() - before) as u64
    }
}

/// Returns the index of the slot whose request `datagram` answers; `None` if no request waits for this answer.
fn accept(datagram: &[u8], answer: Answer, slots: &[Slot]) -> Result<Option<usize>, Failure> {
    let [first, code, _, _, a, b, c, d, ..] = *datagram else { return Err(Failure::new("an answer is too short")) };
    let expected = match answer {
        Answer::Content => [ACK_WITH_4_BYTE_TOKEN, CONTENT],
        Answer::Echo => [CON_WITH_4_BYTE_TOKEN, GET],
    };
    if [first, code] != expected {
        return Err(Failure::new(format!(
            "an answer begins with {first:#04x} and has code {}.{:02}",
            code >> 5,
            code & 31
        )));
    }
    let token = u32::from_be_bytes([a, b, c, d]);
    let slot = (token & ((1 << SLOT_BITS) - 1)) as usize;
    Ok(slots.get(slot).filter(|waiting| waiting.token == token).map(|_| slot))
}

/// Writes a confirmable request that has a token of 4 bytes. Returns the length of the request.
fn write_request(room: &mut [u8], code: u8, message_id: u16, token: u32, path: &str, payload: &[u8]) -> usize {
    let mut len = 0;
    let mut put = |bytes: &[u8]| {
        room[len..][..bytes.len()].copy_from_slice(bytes);
        len += bytes.len();
    };
    put(&[CON_WITH_4_BYTE_TOKEN, code]);
    put(&message_id.to_be_bytes());
    put(&token.to_be_bytes());
    let mut delta = URI_PATH;
    for segment in path.split('/').filter(|segment| !segment.is_empty()) {
        match u8::try_from(segment.len()).unwrap_or(u8::MAX) {
            short @ 0..13 => put(&[delta << 4 | short]),
            long => put(&[delta << 4 | 13, long - 13]),
        }
        put(segment.as_bytes());
        delta = 0;
    }
    if !payload.is_empty() {
        put(&[PAYLOAD_MARKER]);
        put(payload);
    }
    len
}

fn failure(error: std::io::Error) -> Failure {
    Failure::new(error.to_string())
}

/// The value that the client stores at servers that allow PUT. The answers of all these servers then have the same 16
/// bytes.
pub(crate) const VALUE: &[u8] = b"0123456789abcdef";

const GET: u8 = 0x01;
const PUT: u8 = 0x03;
const CONTENT: u8 = 0x45;
const CON_WITH_4_BYTE_TOKEN: u8 = 0x44;
const ACK_WITH_4_BYTE_TOKEN: u8 = 0x64;
const URI_PATH: u8 = 11;
const PAYLOAD_MARKER: u8 = 0xff;

/// Number of low bits of a token that contain the index of the request's [`Slot`].
const SLOT_BITS: u32 = 6;
/// The token of a slot whose request was answered or given up. No request has this token, because the counter of tokens
/// begins at 1.
const ANSWERED: u32 = 0;
/// Maximum time that the client waits for a datagram before it searches all slots for requests to give up.
const POLL: Duration = Duration::from_millis(20);
/// Maximum time that a request waits for its answer. Then the client counts the request as lost, and sends a new one.
const PATIENCE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_written_as_the_standard_says() {
        let mut room = [0; 64];
        let len = write_request(&mut room, GET, 0x1234, 0x0a0b_0c0d, "a/bc", b"");
        assert_eq!(room[..len], *b"\x44\x01\x12\x34\x0a\x0b\x0c\x0d\xb1a\x02bc");
        let len = write_request(&mut room, PUT, 1, 2, "fourteen-bytes", b"v");
        assert_eq!(room[..len], *b"\x44\x03\x00\x01\x00\x00\x00\x02\xbd\x01fourteen-bytes\xffv");
    }

    #[test]
    fn only_the_request_that_waits_is_answered() -> Result<(), Failure> {
        let mut slots = vec![Slot { token: 0, sent: Instant::now() }; WINDOW];
        slots[3].token = 1 << SLOT_BITS | 3;
        let answer = b"\x64\x45\x00\x01\x00\x00\x00\x43\xffv";
        assert_eq!(accept(answer, Answer::Content, &slots)?, Some(3));
        slots[3].token = 2 << SLOT_BITS | 3;
        assert_eq!(accept(answer, Answer::Content, &slots)?, None);
        assert!(accept(b"\x64\x84\x00\x01\x00\x00\x00\x43", Answer::Content, &slots).is_err());
        Ok(())
    }
}
