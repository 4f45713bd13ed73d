//! Sessions that resume an earlier session without a key exchange. The client sends a ticket (RFC 5077), or the session
//! id of the earlier session (RFC 5246, section 7.3).
//!
//! A relay records both sessions. The first session has a key exchange, the second has none, and the client sends the
//! ticket or the session id of the first session. The client and the server must report that the second session is
//! resumed, and each session must carry a request and its response.

use crate::capture::{Capture, Datagram};
use crate::cell::{Check, LOOPBACK, Scene, Trouble};
use crate::hello::{self, Hello, Read};
use crate::ours::{Psk, Served, start_ask};
use std::net::SocketAddr;

/// The means by which a client resumes a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum By {
    Ticket,
    Id,
}

impl By {
    pub(crate) const ALL: [Self; 2] = [Self::Ticket, Self::Id];

    /// Returns the name of the scenario in which a client resumes a session by the means `self`.
    pub(crate) fn row(self) -> &'static str {
        match self {
            Self::Ticket => "resumption with a ticket",
            Self::Id => "resumption by session id",
        }
    }

    /// Returns the name of the scenario in which a client resumes a session with the key exchange `exchange` by the
    /// means `self`.
    pub(crate) fn row_of(self, exchange: &str) -> String {
        format!("{}, {exchange}", self.row())
    }

    /// Returns the word for this kind of resumption, which the programs of the peers take as an argument.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Ticket => "ticket",
            Self::Id => "id",
        }
    }
}

/// The extension in which clients send and request tickets.
pub(crate) const SESSION_TICKET: (&str, u16) = ("session_ticket", 35);

/// Runs `tegmen put` with the payload `a blink` twice, for the server at `address`. `words` and `psk` are the
/// credentials of the client. `part` acts as the server in each session. The argument of `part` is the number of the
/// session, 0 or 1.
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
            return Err(format!("{why}; tegmen reports: {}", asked.failure()?.trim()).into());
        }
        let answer = asked.answer()?;
        if answer.payload != "an answer" || answer.resumed != (number == 1) {
            let says = (answer.payload, answer.resumed);
            return Err(format!("session {number}: tegmen understood {:?}, resumed: {}", says.0, says.1).into());
        }
    }
    resumed(&relay, by)
}

/// Checks a client of the peer, which opens two sessions with the `tegmen serve` in `served`. Calls `part` for each
/// session: `part` opens the session, gets a value over it, and checks that the client reports only the second session
/// as resumed. The arguments of `part` are the number of the session, 0 or 1, and the address of the server.
pub(crate) fn client(served: &Served, by: By, mut part: impl FnMut(u8, SocketAddr) -> Result<(), String>) -> Check {
    let relay = Capture::start((LOOPBACK, served.port).into())?;
    for number in 0..2 {
        part(number, (LOOPBACK, relay.port).into())?;
    }
    came_back(served, &relay, by)
}

/// Checks that `tegmen serve` reports the second session as resumed, and that the datagrams of both sessions confirm
/// the resumption.
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

/// The text that `tegmen serve` prints for a resumed session.
const BACK: &str = " (resumed)";

/// Checks that the second session has no key exchange, and that the client resumed it by `by`.
pub(crate) fn resumed(relay: &Capture, by: By) -> Check {
    resumed_in(&relay.datagrams(), by)
}

/// Checks the same as [`resumed`], in a list of the datagrams of both sessions.
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
    // A client that shows a ticket may leave the session id empty (RFC 5077, section 3.4), and the server returns it
    // unchanged.
    let has_id = by == By::Ticket || !asked.session_id.is_empty();
    let ticket = asked.extension(SESSION_TICKET.1).is_some_and(|ticket| !ticket.is_empty());
    if ticket != (by == By::Ticket) || !has_id || asked.session_id != answered.session_id {
        let (asked, answered) = (asked.session_id, answered.session_id);
        return Err(format!("asked with a ticket: {ticket}, with the id {asked:02x?}; answered {answered:02x?}").into());
    }
    Ok(())
}

/// The handshake type of a ClientKeyExchange (RFC 5246, section 7.4), as [`hello::messages`] returns it.
const CLIENT_KEY_EXCHANGE: u8 = 16;

/// Reports that a client cannot resume a session with Tegmen's server. `part` makes the client open a session with this
/// server, and get a value in the session. `source` is evidence from the client's source code that the client does not
/// use the session id of the server.
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

/// Reports that Tegmen's client cannot resume a session with a server, because the server gives the client no ticket
/// ([`By::Ticket`]) or no session id ([`By::Id`]). `by` selects what is checked. Tegmen's client requests a ticket, and
/// would accept a session id. The function `part` makes the server answer the PUT of Tegmen's client.
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
