//! Runs one end of a session over a real socket. Lines of text on standard input control it. The other end can be the
//! program of another stack.
//!
//! The arguments of the program are `client` or `server`, the address of the server, and one of
//!
//! * `IDENTITY KEY`, with the key in hexadecimal. `connection_id BYTES`, `resume ticket` or `resume id` can follow if
//!   the stack supports it.
//! * `x509 SUITE CA CERTIFICATE KEY`. For a client, `resume ticket NAME` or `resume id NAME` can follow. NAME is the
//!   name of the server.
//! * `raw SUITE KEY PUBLIC_KEY PEER`
//! * `psk SUITE IDENTITY KEY`
//!
//! The program prints `listening`, `established`, `received HEX` and `failed TEXT`. With each of the last three forms
//! it prints `suite NAME` and `peer NAME` before `established`. If the session has resumed an earlier session, it also
//! prints `resumed` before `established`.
//!
//! Each line of hexadecimal digits on standard input is sent as one record. On the line `again` a client opens another
//! session, which resumes its last session. On the line `again ADDRESS` the client opens this session at the server
//! with this address. A server has only one session: with the client from which the last datagram came. A record with a
//! connection id always belongs to this session, whatever its source address is.

use crate::{Agreed, DATAGRAM_MAX, End, Failure, Outbox, PublicKeys, Resumption, Stack, from_hex};
use std::{
    fmt::Write as _,
    io::{self, BufRead as _},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::Duration,
};

/// The content type of a record with a connection id (RFC 9146, section 4).
const TLS12_CID: u8 = 25;

enum Event {
    Datagram(SocketAddr, Vec<u8>),
    Line(String),
    InputEnded,
    /// The handshake is not complete, and nothing has arrived for a second.
    Second,
}

/// Runs the client or the server that `words` describe. Returns `None` if `words` describe neither.
pub(crate) fn talk<S: Stack>(stack: &mut S, words: &[String]) -> Option<Result<(), Failure>> {
    let [role, address, word, suite, more @ ..] = words else { return None };
    let set = match (PublicKeys::from_words(words.get(2..7).unwrap_or_default()), more) {
        (Some(keys), [_, _, _, word, by, name]) if word == "resume" => {
            let set = resumption(by).and_then(|by| stack.use_resumption(by));
            set.and_then(|()| stack.use_public_keys(&keys)).and_then(|()| stack.use_server_name(name))
        }
        (Some(keys), _) => stack.use_public_keys(&keys),
        (None, [_, _]) if word == "psk" => stack.use_suite(suite),
        (None, [extension, len]) if extension == "connection_id" => {
            let len = len.parse().map_err(|_| Failure::new(format!("no number of bytes: {len:?}")));
            len.and_then(|len| stack.use_connection_id(len))
        }
        (None, [word, by]) if word == "resume" => resumption(by).and_then(|by| stack.use_resumption(by)),
        _ => Ok(()),
    };
    if let Err(failure) = set {
        return Some(Err(failure));
    }
    let address = || to_address(address);
    match role.as_str() {
        "client" => Some(address().and_then(|address| client(stack, address))),
        "server" => Some(address().and_then(|address| server(stack, address))),
        _ => None,
    }
}

fn resumption(word: &str) -> Result<Resumption, Failure> {
    match word {
        "ticket" => Ok(Resumption::Ticket),
        "id" => Ok(Resumption::Id),
        _ => Err(Failure::new(format!("nothing to resume by: {word:?}"))),
    }
}

fn to_address(word: &str) -> Result<SocketAddr, Failure> {
    word.parse().map_err(|_| Failure::new(format!("no address: {word:?}")))
}

fn client<S: Stack>(stack: &mut S, mut server: SocketAddr) -> Result<(), Failure> {
    let any = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).map_err(system)?;
    let events = events(&socket)?;
    let mut end = stack.client()?;
    let mut out = Outbox::new();
    end.handshake(None, &mut out)?;
    send(&socket, server, &mut out)?;
    loop {
        match next(&events, !end.is_established()) {
            Event::Second => {
                end.retransmit(&mut out)?;
                send(&socket, server, &mut out)?;
            }
            // Datagrams that an earlier server still sends are not of this session.
            Event::Datagram(from, _) if from != server => {}
            Event::Datagram(_, datagram) => take(&mut end, &socket, server, &datagram)?,
            Event::Line(line) if line.starts_with("again") => {
                if let Some(other) = line.strip_prefix("again ") {
                    server = to_address(other)?;
                }
                end = stack.again(&end)?;
                end.handshake(None, &mut out)?;
                send(&socket, server, &mut out)?;
            }
            Event::Line(line) => seal(&mut end, &socket, server, &line)?,
            Event::InputEnded => return Ok(()),
        }
    }
}

fn server<S: Stack>(stack: &mut S, address: SocketAddr) -> Result<(), Failure> {
    let socket = UdpSocket::bind(address).map_err(system)?;
    let events = events(&socket)?;
    println!("listening");
    let mut session: Option<(SocketAddr, S::Server)> = None;
    loop {
        match next(&events, session.as_ref().is_some_and(|(_, end)| !end.is_established())) {
            Event::Second => {
                if let Some((client, end)) = &mut session {
                    let mut out = Outbox::new();
                    end.retransmit(&mut out)?;
                    send(&socket, *client, &mut out)?;
                }
            }
            Event::Datagram(from, datagram) => {
                let has_id = datagram.first() == Some(&TLS12_CID);
                let known = session.take_if(|(client, _)| has_id || *client == from);
                session = None; // before another one begins: a stack may tell its sessions apart by less than this
                let mut end = known.map_or_else(|| stack.server(), |(_, end)| Ok(end))?;
                match take(&mut end, &socket, from, &datagram) {
                    Ok(()) => session = Some((from, end)),
                    Err(failure) => println!("failed {failure}"),
                }
            }
            Event::Line(line) => {
                let (client, end) = session.as_mut().ok_or_else(|| Failure::new("nobody is there to send to"))?;
                seal(end, &socket, *client, &line)?;
            }
            Event::InputEnded => return Ok(()),
        }
    }
}

/// Processes a datagram from the other end: as part of the handshake until the session is established, and then as a
/// record.
fn take(end: &mut impl End, socket: &UdpSocket, from: SocketAddr, datagram: &[u8]) -> Result<(), Failure> {
    if end.is_established() {
        let mut payload = [0; DATAGRAM_MAX];
        match end.open(datagram, &mut payload) {
            Ok(0) => {}
            Ok(len) => println!("received {}", to_hex(payload.get(..len).unwrap_or_default())),
            Err(failure) => println!("failed {failure}"),
        }
        return Ok(());
    }
    let mut out = Outbox::new();
    let result = end.handshake(Some(datagram), &mut out);
    // An alert is sent before the failure is printed.
    send(socket, from, &mut out)?;
    result?;
    if end.is_established() {
        if let Some(Agreed { suite, peer }) = end.agreed() {
            println!("suite {suite}\npeer {peer}");
        }
        if end.is_resumed() {
            println!("resumed");
        }
        println!("established");
    }
    Ok(())
}

fn seal(end: &mut impl End, socket: &UdpSocket, to: SocketAddr, line: &str) -> Result<(), Failure> {
    let payload = from_hex(line).ok_or_else(|| Failure::new(format!("not hexadecimal: {line:?}")))?;
    let mut out = Outbox::new();
    end.seal(&payload, &mut out)?;
    send(socket, to, &mut out)
}

fn send(socket: &UdpSocket, to: SocketAddr, out: &mut Outbox) -> Result<(), Failure> {
    for datagram in out.iter() {
        socket.send_to(datagram, to).map_err(system)?;
    }
    out.clear();
    Ok(())
}

/// Returns a queue of events. It contains both the datagrams from the socket and the lines from standard input.
fn events(socket: &UdpSocket) -> Result<Receiver<Event>, Failure> {
    let (sender, events) = channel();
    let socket = socket.try_clone().map_err(system)?;
    thread::spawn({
        let sender = sender.clone();
        move || receive(&socket, &sender)
    });
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(Event::Line(line)).is_err() {
                return;
            }
        }
        let _ = sender.send(Event::InputEnded);
    });
    Ok(events)
}

fn next(events: &Receiver<Event>, handshaking: bool) -> Event {
    if handshaking {
        events.recv_timeout(Duration::from_secs(1)).unwrap_or(Event::Second)
    } else {
        events.recv().unwrap_or(Event::InputEnded)
    }
}

fn receive(socket: &UdpSocket, events: &Sender<Event>) {
    let mut buffer = [0; DATAGRAM_MAX];
    loop {
        match socket.recv_from(&mut buffer) {
            Ok((len, from)) => {
                let datagram = buffer.get(..len).unwrap_or_default().to_vec();
                if events.send(Event::Datagram(from, datagram)).is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(_) => return,
        }
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn system(error: io::Error) -> Failure {
    Failure::new(error.to_string())
}
