//! Sessions that go on from an earlier one without a key exchange: with a ticket (RFC 5077), or by the id of the earlier
//! one (RFC 5246, section 7.3).
//!
//! A relay sees both sessions: the first with a key exchange, the second without, and by what the client came back. That the
//! second is resumed has to be said by both ends as well, and a request is answered in each.

use crate::capture::{Capture, Datagram};
use crate::cell::{Check, LOOPBACK, Scene, Trouble};
use crate::hello::{self, Hello, Read};
use crate::ours::{Psk, Served, start_ask};
use std::net::SocketAddr;

/// By what a client comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum By {
    Ticket,
    Id,
}

impl By {
    pub(crate) const ALL: [Self; 2] = [Self::Ticket, Self::Id];

    /// The scenario.
    pub(crate) fn row(self) -> &'static str {
        match self {
            Self::Ticket => "resumption with a ticket",
            Self::Id => "resumption by session id",
        }
    }

    /// The scenario, where a peer plays it with several exchanges of keys.
    pub(crate) fn row_of(self, exchange: &str) -> String {
        format!("{}, {exchange}", self.row())
    }

    /// As programs of ours are told.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Ticket => "ticket",
            Self::Id => "id",
        }
    }
}

/// The extension in which clients show and ask for tickets.
pub(crate) const SESSION_TICKET: (&str, u16) = ("session_ticket", 35);

/// `tegmen put` of `a blink` to the server at `address`, twice, with `words` and `psk` for what it proves itself with.
/// `part` is what the server does in the session of that number, and waits for.
pub(crate) fn server(
    scene: &Scene,
    by: By,
    address: SocketAddr,
    (words, psk): (&[&str], Option<&Psk>),
    mut part: impl FnMut(u8) -> Result<(), String>,
) -> Check {
    let relay = Capture::start(address)?;
    let uri = format!("coaps://127.0.0.1:{}/question", relay.port);
    for number in 0..2 {
        let asked = start_ask(scene, &[&["put", &uri, "a blink", "--resume", "sessions"], words].concat(), psk)?;
        if let Err(why) = part(number) {
            return Err(format!("{why}; tegmen says: {}", asked.failure()?.trim()).into());
        }
        let answer = asked.answer()?;
        if answer.payload != "an answer" || answer.resumed != (number == 1) {
            let says = (answer.payload, answer.resumed);
            return Err(format!("session {number}: tegmen understood {:?}, resumed: {}", says.0, says.1).into());
        }
    }
    resumed(&relay, by)
}

/// A client of the peer at `served`. `part` opens the session of that number, gets a value in it, and makes sure that the peer
/// calls the second one resumed.
pub(crate) fn client(served: &Served, by: By, mut part: impl FnMut(u8, SocketAddr) -> Result<(), String>) -> Check {
    let relay = Capture::start((LOOPBACK, served.port).into())?;
    for number in 0..2 {
        part(number, (LOOPBACK, relay.port).into())?;
    }
    came_back(served, &relay, by)
}

/// Ours, too, says that the client came back, and it is what passed.
pub(crate) fn came_back(served: &Served, relay: &Capture, by: By) -> Check {
    let back = served.process.await_output(BACK, 0)?;
    if served
        .process
        .out
        .bytes()
        .get(..back)
        .is_none_or(|before| before.windows(18).filter(|w| w == b" authenticated as ").count() < 2)
    {
        return Err("ours did not see two sessions, of which the second is resumed".into());
    }
    resumed(relay, by)
}

/// What `tegmen serve` says of a session that is resumed.
const BACK: &str = " (resumed)";

/// The second session that passed has no key exchange, and the client came back by this.
pub(crate) fn resumed(relay: &Capture, by: By) -> Check {
    resumed_in(&relay.datagrams(), by)
}

/// As [`resumed`], of the datagrams of both sessions.
pub(crate) fn resumed_in(datagrams: &[Datagram], by: By) -> Check {
    let read =
        |datagrams: &[Datagram], hello| datagrams.iter().find_map(|datagram| hello::read(&datagram.bytes, hello));
    let first = read(datagrams, Hello::Client).ok_or("no ClientHello passed")?;
    // A ClientHello with a cookie has the random of the previous one.
    let is_other = |hello: Option<Read>| hello.is_some_and(|hello| hello.random != first.random);
    let begin = datagrams.iter().position(|datagram| is_other(hello::read(&datagram.bytes, Hello::Client)));
    let (full, resumed) = datagrams.split_at(begin.ok_or("no second session passed")?);
    let exchanges = |datagrams: &[Datagram]| {
        datagrams.iter().any(|datagram| hello::messages(&datagram.bytes).contains(&CLIENT_KEY_EXCHANGE))
    };
    match (exchanges(full), exchanges(resumed)) {
        (true, false) => {}
        (false, _) => return Err("no key exchange was seen in the first session".into()),
        (true, true) => return Err("the second session has a key exchange of its own".into()),
    }
    let asked = read(resumed, Hello::Client).ok_or("no second ClientHello")?;
    let answered = read(resumed, Hello::Server).ok_or("no second ServerHello")?;
    // Who shows a ticket may leave the id empty (RFC 5077, section 3.4), and gets it back as it is.
    let has_id = by == By::Ticket || !asked.session_id.is_empty();
    let ticket = asked.extension(SESSION_TICKET.1).is_some_and(|ticket| !ticket.is_empty());
    if ticket != (by == By::Ticket) || !has_id || asked.session_id != answered.session_id {
        let (asked, answered) = (asked.session_id, answered.session_id);
        return Err(format!("asked with a ticket: {ticket}, with the id {asked:02x?}; answered {answered:02x?}").into());
    }
    Ok(())
}

/// Of [`hello::messages`].
const CLIENT_KEY_EXCHANGE: u8 = 16;

/// A client that is not able to come back; `part` opens a session and gets a value in it. That it does nothing with the id
/// that it is given stands in its source, by these words.
pub(crate) fn client_lacks(
    scene: &Scene,
    by: By,
    source: &str,
    part: impl FnOnce(SocketAddr) -> Result<(), String>,
) -> Check {
    let served = Served::start(scene, &Psk::usual())?;
    let relay = Capture::start((LOOPBACK, served.port).into())?;
    part((LOOPBACK, relay.port).into())?;
    if by == By::Ticket {
        return relay.lacks(Hello::Client, SESSION_TICKET);
    }
    let datagrams = relay.datagrams();
    let given = datagrams.iter().find_map(|datagram| hello::read(&datagram.bytes, Hello::Server));
    match given.ok_or("no ServerHello passed")?.session_id.len() {
        0 => Err("ours gave it no id".into()),
        len => Err(Trouble::Lacks(format!("ours gave it an id of {len} bytes; {source}"))),
    }
}

/// A server that ours is not able to come back to; `part` is what it does when it is asked something. Ours asks for a ticket,
/// and takes an id.
pub(crate) fn server_lacks(
    scene: &Scene,
    by: By,
    server: SocketAddr,
    part: impl FnOnce() -> Result<(), String>,
) -> Check {
    let relay = Capture::start(server)?;
    let uri = format!("coaps://127.0.0.1:{}/question", relay.port);
    let asked = start_ask(scene, &["put", &uri, "a blink", "--resume", "sessions"], Some(&Psk::usual()))?;
    part()?;
    asked.answer()?;
    let datagrams = relay.datagrams();
    let read = |hello| datagrams.iter().rev().find_map(|datagram| hello::read(&datagram.bytes, hello));
    if read(Hello::Client).is_none_or(|hello| hello.extension(SESSION_TICKET.1).is_none()) {
        return Err("ours did not ask for a ticket".into());
    }
    match (by, read(Hello::Server)) {
        (By::Ticket, _) => relay.lacks(Hello::Server, SESSION_TICKET),
        (By::Id, Some(hello)) if hello.session_id.is_empty() => {
            Err(Trouble::Lacks("its ServerHello has an empty session id".to_owned()))
        }
        (By::Id, _) => Err("its ServerHello has a session id, and no row tries that".into()),
    }
}
