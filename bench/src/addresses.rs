//! Measures servers with requests from many peer addresses, over plain CoAP, DTLS with a pre-shared key, and OSCORE.
//!
//! The same code sends the requests for all protections. The addresses send in turn, so each request has another source
//! address than the previous request. An address sends no request while an earlier request of the same address waits
//! for its answer. At most [`LETTERS_MAX`] requests wait for an answer at the same time, because the sockets of some
//! servers cannot queue more datagrams. The result is the number of requests for each CPU second of the server's
//! process.

use crate::{
    Options, californium,
    crowd::{Crowd, LETTERS_MAX, Letters, request},
    load::VALUE,
    ours::{self, Ours, Session},
    program::target,
    report::{Absent, Header, OURS, Report, Row, Samples},
    server::{Process, libcoap_command},
};
use std::{
    borrow::Cow,
    env, fs,
    ops::Range,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use tegmen::{
    buf::Frame,
    coap::{BuildError, Builder, Code, MessageRef, MessageType, OptionNumber, empty_message},
    dtls::{Config, Suites},
    oscore::{Aead, Context, OVERHEAD, Parameters, Pending},
};
use tegmen_bench_line::{End, Failure, IDENTITY, Outbox, Stack};
use tegmen_host::{contexts::ContextFile, formats, provider::HostCrypto};

/// Measures every server that is installed: with a thousand client addresses, and with ten thousand.
pub(crate) fn run(options: &Options) -> Result<Report, Failure> {
    let mut report = Report { header: Header::new(options.passes), rows: Vec::new(), absent: Vec::new() };
    for way in [Way::Plain, Way::Dtls, Way::Oscore] {
        for count in [1_000, 10_000] {
            scene(way, count, options, &mut report)?;
        }
    }
    report.header.notes.push(format!(
        "each request comes from another address than the one before; at most {LETTERS_MAX} wait for an answer at once; \
         {} s a pass",
        options.seconds
    ));
    Ok(report)
}

/// Measures all servers that support one protection, in several passes. A pass measures each server once, and each pass
/// begins with another server.
fn scene(way: Way, count: u32, options: &Options, report: &mut Report) -> Result<(), Failure> {
    let operation = format!("GET of 16 bytes, {}, {count} addresses", way.name());
    eprintln!("{operation}");
    let mut servers = Vec::new();
    for kind in way.kinds() {
        match Server::start(*kind, way, count) {
            Ok(server) => servers.push(server),
            Err(Failure(reason)) => report.absent.push(Absent {
                name: kind.name(),
                reason: format!("{operation}: {reason}"),
                install: kind.install().into(),
            }),
        }
    }
    let mut samples = Samples::new(operation.clone(), "1/server CPU s", true);
    let turns = servers.len();
    for pass in 0..options.passes {
        for turn in 0..turns {
            let server = &mut servers[(pass + turn) % turns];
            samples.push(server.kind.name(), server.measure(options.seconds)?);
        }
    }
    report.rows.extend(samples.rows().into_iter().map(Row::not_behind));
    for Server { kind, lost, .. } in servers.iter().filter(|server| server.lost > 0) {
        report.header.notes.push(format!("{operation}, {}: {lost} requests were not answered", kind.name()));
    }
    Ok(())
}

/// The protection of requests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Plain,
    Dtls,
    Oscore,
}

impl Way {
    const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain CoAP",
            Self::Dtls => "DTLS with PSK",
            Self::Oscore => "OSCORE",
        }
    }

    const fn kinds(self) -> &'static [Kind] {
        match self {
            Self::Plain => &[Kind::Ours, Kind::Libcoap("notls")],
            Self::Dtls => &[Kind::Ours, Kind::Libcoap("openssl"), Kind::Libcoap("gnutls")],
            Self::Oscore => &[Kind::Ours, Kind::Californium],
        }
    }
}

/// A server that can be measured.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Ours,
    /// The example server of libcoap. The text names the TLS library with which it was built: `notls`, `openssl` or
    /// `gnutls`.
    Libcoap(&'static str),
    Californium,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Ours => OURS,
            Self::Libcoap("notls") => "libcoap-notls",
            Self::Libcoap("openssl") => "libcoap-openssl",
            Self::Libcoap(_) => "libcoap-gnutls",
            Self::Californium => "californium",
        }
    }

    const fn install(self) -> &'static str {
        match self {
            Self::Ours => "cargo build --release -p tegmen-cli",
            Self::Libcoap(_) => "apt-get install libcoap3-bin",
            Self::Californium => californium::INSTALL,
        }
    }

    /// Returns the command line that starts the server for `count` clients.
    fn words(self, way: Way, port: u16, count: u32) -> Result<Vec<String>, Failure> {
        let example = format!("/{PATH}={}", String::from_utf8_lossy(VALUE));
        match self {
            Self::Ours => {
                let exe = env::current_exe().map_err(failure)?;
                let programs = exe.parent().unwrap_or(Path::new("."));
                let (port, peers) = (port.to_string(), (2 * count).to_string());
                let credentials = credentials()?.to_string_lossy().into_owned();
                let contexts;
                let protected: Vec<&str> = match way {
                    Way::Plain => vec!["--plain", "--no-secure", "--plain-port", &port],
                    Way::Dtls => vec!["--port", &port, "--credentials", &credentials, "--hello-limits", "0,0"],
                    Way::Oscore => {
                        contexts = context_directories(count)?.to_string_lossy().into_owned();
                        vec!["--no-secure", "--plain-port", &port, "--oscore", &contexts]
                    }
                };
                let words = [&protected[..], &["--max-peers", &peers]].concat();
                ours::serve_words(programs, &words, &[&example]).ok_or_else(ours::missing)
            }
            Self::Libcoap(library) => Ok(match way {
                Way::Plain => libcoap_command(library, port, &[]),
                // DTLS has the port after the one that is given.
                _ => libcoap_command(library, port - 1, &["-k", KEY_TEXT]),
            }),
            Self::Californium => californium::command(port, count),
        }
    }
}

/// A running server and its clients.
pub(crate) struct Server {
    kind: Kind,
    pub(crate) process: Process,
    pub(crate) clients: Clients,
    /// The directory of OSCORE contexts that was created for the server; `None` if there is none. It is removed when
    /// this value is dropped.
    contexts: Option<PathBuf>,
    lost: u64,
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(contexts) = &self.contexts {
            let _ = fs::remove_dir_all(contexts);
        }
    }
}

impl Server {
    /// Starts the server, opens the sessions of its clients, lets every client send one request, and lets the server
    /// warm up.
    fn start(kind: Kind, way: Way, count: u32) -> Result<Self, Failure> {
        let mut server = Self::begin(kind, way, count)?;
        server.clients.connect(0..count)?;
        server.clients.put()?;
        server.clients.each_once(0..count, |_| Code::GET)?;
        let warm_up = if matches!(kind, Kind::Californium) { WARM_UP_COMPILED } else { WARM_UP };
        server.clients.run_with(warm_up, &mut |_| Question::of_value(Code::GET, b""))?;
        Ok(server)
    }

    /// Starts the server and prepares its clients. No client sends a request yet.
    pub(crate) fn begin(kind: Kind, way: Way, count: u32) -> Result<Self, Failure> {
        let mut refused = None;
        let process = Process::start(|port| kind.words(way, port, count).map_err(|reason| refused = Some(reason)).ok());
        let process = process.map_err(|reason| refused.unwrap_or(reason))?;
        let clients = Clients::new(&process, way, count)?;
        clients.await_server(&process)?;
        let is_ours = matches!(kind, Kind::Ours) && way == Way::Oscore;
        let contexts = if is_ours { Some(contexts_place(count)?) } else { None };
        Ok(Self { kind, process, clients, contexts, lost: 0 })
    }

    /// Sends requests for `seconds` seconds. Returns the number of requests for each CPU second of the server.
    fn measure(&mut self, seconds: f64) -> Result<f64, Failure> {
        let question = Question::of_value(Code::GET, b"");
        let (rate, lost) = self.clients.rate(&self.process, seconds, &mut |_| question.clone())?;
        self.lost += lost;
        Ok(rate)
    }
}

/// The numbers of answered and of unanswered requests in one pass.
#[derive(Default)]
pub(crate) struct Ran {
    pub(crate) answered: u64,
    pub(crate) lost: u64,
}

/// A confirmable request. The path begins without a slash, and may end with `?` and one query parameter.
#[derive(Clone)]
pub(crate) struct Question {
    pub(crate) code: Code,
    pub(crate) path: Cow<'static, str>,
    pub(crate) content_format: Option<u16>,
    pub(crate) payload: Vec<u8>,
}

impl Question {
    /// Makes a request for the value that all servers of this module serve at [`PATH`].
    pub(crate) fn of_value(code: Code, payload: &[u8]) -> Self {
        Self { code, path: PATH.into(), content_format: None, payload: payload.to_vec() }
    }

    /// Makes the error message for an unexpected answer of the server `name` to this request.
    fn refused(&self, name: &str, answer: &MessageRef<'_>) -> Failure {
        let (payload, code) = (answer.payload(), answer.code());
        let shown = formats::show(answer.uint(OptionNumber::CONTENT_FORMAT), payload);
        let shown = shown.unwrap_or_else(|| payload.escape_ascii().to_string());
        Failure::new(format!("{name}: {} /{} is answered with {code} \"{shown}\"", self.code.name(), self.path))
    }

    fn write(&self, builder: &mut Builder<'_, '_>) -> Result<(), BuildError> {
        let (path, query) = self.path.split_once('?').unzip();
        builder.path(path.unwrap_or(&self.path))?;
        if let Some(format) = self.content_format {
            builder.uint(OptionNumber::CONTENT_FORMAT, format.into())?;
        }
        if let Some(query) = query {
            builder.option(OptionNumber::URI_QUERY, query.as_bytes())?;
        }
        if self.payload.is_empty() { Ok(()) } else { builder.payload(&self.payload) }
    }
}

/// Many clients of one server. Each client sends from its own address.
pub(crate) struct Clients {
    crowd: Crowd,
    inbound: Letters,
    outbound: Letters,
    each: Vec<Client>,
    stack: Option<Ours>,
    crypto: HostCrypto,
    /// The index of the client whose turn is next. If this client still waits for an answer, the next client that does
    /// not wait sends the request.
    next: usize,
    message_id: u16,
    /// Maximum number of requests that wait for an answer.
    pub(crate) window: u64,
    /// Returns true if the message is the expected response.
    pub(crate) is_answer: fn(&MessageRef<'_>) -> bool,
}

struct Client {
    speaker: Speaker,
    token: u32,
    /// The request that waits for an answer, and the time when it was sent; `None` if no request waits.
    waits: Option<(Question, Instant)>,
}

/// The protection of a client's requests, and the keys of the client.
enum Speaker {
    Plain,
    Dtls(Box<Session>),
    Oscore(Box<(Context, Option<Pending>)>),
}

impl Clients {
    pub(crate) fn new(process: &Process, way: Way, count: u32) -> Result<Self, Failure> {
        let mut stack = None;
        if way == Way::Dtls {
            let made = Ours::new(Config { suites: Suites::CCM_8_THEN_GCM, ..Config::default() })?;
            made.client.borrow_mut().node.key.copy_from_slice(KEY_TEXT.as_bytes());
            stack = Some(made);
        }
        let mut each = Vec::new();
        for index in 0..count {
            let speaker = match way {
                Way::Plain => Speaker::Plain,
                Way::Dtls => Speaker::Dtls(Box::new(stack.as_mut().ok_or_else(|| Failure::new("no stack"))?.client()?)),
                Way::Oscore => Speaker::Oscore(Box::new((context(index)?, None))),
            };
            each.push(Client { speaker, token: 0, waits: None });
        }
        Ok(Self {
            crowd: Crowd::new(process.address, POLL)?,
            inbound: Letters::new(),
            outbound: Letters::new(),
            each,
            stack,
            crypto: HostCrypto::from_os().map_err(failure)?,
            next: 0,
            message_id: 0,
            window: LETTERS_MAX as u64,
            is_answer: is_of_value,
        })
    }

    /// Gives each DTLS client its own name, which is the identity of its pre-shared key. `name` returns the name of a
    /// client.
    pub(crate) fn name(&mut self, name: impl Fn(u32) -> String) {
        for (number, client) in (0..).zip(&mut self.each) {
            if let Speaker::Dtls(session) = &mut client.speaker {
                session.identity = name(number).into();
            }
        }
    }

    /// Waits until the server has bound its port.
    pub(crate) fn await_server(&self, process: &Process) -> Result<(), Failure> {
        let begin = Instant::now();
        while std::net::UdpSocket::bind(process.address).is_ok() {
            if begin.elapsed() > START {
                return Err(Failure::new("the server does not start"));
            }
            std::thread::sleep(POLL);
        }
        // Some servers take the port before they read from it.
        std::thread::sleep(Duration::from_millis(300));
        Ok(())
    }

    /// Opens the DTLS sessions of the clients in the range `members`. Does nothing with any other protection.
    pub(crate) fn connect(&mut self, members: Range<u32>) -> Result<(), Failure> {
        if self.stack.is_none() {
            return Ok(());
        }
        let mut out = Outbox::new();
        let members: Vec<u32> = members.collect();
        for some in members.chunks(LETTERS_MAX / 2) {
            for &member in some {
                self.shake(member, None, &mut out)?;
            }
            self.crowd.send(&mut self.outbound)?;
            let mut begin = Instant::now();
            while some.iter().any(|&member| !self.is_connected(member)) {
                let mut inbound = std::mem::replace(&mut self.inbound, Letters::new());
                self.crowd.receive(&mut inbound)?;
                for (member, datagram) in inbound.iter() {
                    begin = Instant::now();
                    self.shake(member, Some(datagram), &mut out)?;
                }
                self.inbound = inbound;
                self.crowd.send(&mut self.outbound)?;
                if begin.elapsed() > START {
                    return Err(Failure::new("a handshake does not come to its end"));
                }
            }
        }
        Ok(())
    }

    fn is_connected(&self, member: u32) -> bool {
        let client = self.each.get(member as usize);
        client.is_none_or(|client| matches!(&client.speaker, Speaker::Dtls(session) if session.is_established()))
    }

    fn shake(&mut self, member: u32, datagram: Option<&[u8]>, out: &mut Outbox) -> Result<(), Failure> {
        let Some(Client { speaker: Speaker::Dtls(session), .. }) = self.each.get_mut(member as usize) else {
            return Ok(());
        };
        session.handshake(datagram, out)?;
        for datagram in out.iter() {
            self.crowd.push(&mut self.outbound, member, |room| Ok(put(room, datagram)))?;
        }
        out.clear();
        Ok(())
    }

    /// Lets the first client send a PUT with the value that all clients request later.
    pub(crate) fn put(&mut self) -> Result<(), Failure> {
        self.ask_first(&Question::of_value(Code::PUT, VALUE))
    }

    /// Lets the first client send a request. Sends it again until an answer arrives, because a server that is still
    /// starting can lose a request.
    pub(crate) fn ask_first(&mut self, question: &Question) -> Result<(), Failure> {
        let begin = Instant::now();
        let mut is_answered = false;
        while !is_answered {
            if begin.elapsed() > START {
                return Err(Failure::new("the server does not answer the first request"));
            }
            self.next = 0;
            self.ask(|_| question.clone())?;
            self.crowd.send(&mut self.outbound)?;
            let asked = Instant::now();
            while !is_answered && asked.elapsed() < FIRST {
                is_answered = self.take()? == 1;
            }
            self.each.iter_mut().for_each(|client| client.waits = None);
        }
        Ok(())
    }

    /// Lets each client in the range `members` request the value once. `method` gets the index of a client in this
    /// range, and returns the method of the client's request.
    pub(crate) fn each_once(&mut self, members: Range<u32>, method: impl Fn(u64) -> Code) -> Result<(), Failure> {
        let first = members.start;
        self.each_asks(members, |member| Question::of_value(method((member - first).into()), b""))
    }

    /// Lets each client in the range `members` send one request. At most [`Self::window`] requests wait for an answer
    /// at the same time.
    pub(crate) fn each_asks(&mut self, members: Range<u32>, question: impl Fn(u32) -> Question) -> Result<(), Failure> {
        self.next = members.start as usize;
        let count = members.len() as u64;
        let (mut asked, mut answered) = (0, 0);
        let begin = Instant::now();
        while answered < count {
            while asked - answered < self.window && asked < count {
                self.ask(&question)?;
                asked += 1;
            }
            self.crowd.send(&mut self.outbound)?;
            answered += self.take()?;
            if begin.elapsed() > 6 * START {
                return Err(Failure::new(format!("{answered} of {asked} first requests were answered")));
            }
        }
        Ok(())
    }

    /// Sends requests for `seconds` seconds, after a warm-up. Returns the number of answered requests for each CPU
    /// second of the server, and the number of requests without an answer.
    pub(crate) fn rate(
        &mut self,
        process: &Process,
        seconds: f64,
        question: &mut dyn FnMut(u32) -> Question,
    ) -> Result<(f64, u64), Failure> {
        self.run_with(WARM_UP, question)?;
        let cpu = process.cpu_nanoseconds()?;
        let ran = self.run_with(Duration::from_secs_f64(seconds), question)?;
        let cpu = process.cpu_nanoseconds()?.saturating_sub(cpu);
        match ran.answered {
            0 => Err(Failure::new("the server does not answer")),
            answered => Ok((answered as f64 * 1e9 / cpu as f64, ran.lost)),
        }
    }

    /// Keeps [`Self::window`] requests waiting for an answer during `duration`, and then waits for the last answers.
    pub(crate) fn run_with(
        &mut self,
        duration: Duration,
        question: &mut dyn FnMut(u32) -> Question,
    ) -> Result<Ran, Failure> {
        let mut ran = Ran::default();
        let mut in_flight = 0;
        let begin = Instant::now();
        loop {
            let is_over = begin.elapsed() >= duration;
            while !is_over && in_flight < self.window {
                self.ask(&mut *question)?;
                in_flight += 1;
            }
            self.crowd.send(&mut self.outbound)?;
            let answered = self.take()?;
            ran.answered += answered;
            in_flight = in_flight.saturating_sub(answered);
            if self.inbound.is_empty() {
                let given_up = self.give_up();
                ran.lost += given_up;
                in_flight = in_flight.saturating_sub(given_up);
            }
            if is_over && in_flight == 0 {
                return Ok(ran);
            }
        }
    }

    /// Sends a request of the next client that does not wait for an answer. `question` gets the number of this client,
    /// and returns the request.
    fn ask(&mut self, question: impl FnOnce(u32) -> Question) -> Result<(), Failure> {
        while self.each[self.next].waits.is_some() {
            self.next = (self.next + 1) % self.each.len();
        }
        let (at, count) = (self.next, self.each.len());
        self.next = (at + 1) % count;
        let (member, client) = (at as u32, &mut self.each[at]);
        self.message_id = self.message_id.wrapping_add(1);
        client.token = client.token.wrapping_add(1);
        let (message_id, token, crypto) = (self.message_id, client.token, &mut self.crypto);
        let (question, _) = client.waits.insert((question(member), Instant::now()));
        let mut room = [0; 256];
        let (code, rest) = (question.code, |builder: &mut Builder<'_, '_>| question.write(builder));
        let len = match &mut client.speaker {
            Speaker::Plain => request(&mut room, code, message_id, token, rest),
            Speaker::Dtls(session) => {
                let mut plain = [0; 192];
                let len = request(&mut plain, code, message_id, token, rest);
                let len = len.map_err(|error| Failure::new(format!("a request: {error:?}")))?;
                let mut out = Outbox::new();
                session.seal(&plain[..len], &mut out)?;
                Ok(out.iter().next().map_or(0, |record| put(&mut room, record)))
            }
            Speaker::Oscore(both) => {
                let (context, pending) = &mut **both;
                let mut frame = Frame::new(&mut room, OVERHEAD);
                let built = Builder::new(&mut frame, MessageType::Confirmable, code, message_id, &token.to_be_bytes())
                    .and_then(|mut builder| rest(&mut builder));
                built.map_err(|error| Failure::new(format!("a request: {error:?}")))?;
                let made = context.protect_request(crypto, &mut frame);
                *pending = Some(made.map_err(|error| Failure::new(format!("{error:?}")))?);
                let bytes = frame.bytes().to_vec();
                Ok(put(&mut room, &bytes))
            }
        };
        let len = len.map_err(|error| Failure::new(format!("a request: {error:?}")))?;
        self.crowd.push(&mut self.outbound, member, |letter| Ok(put(letter, &room[..len])))
    }

    /// Processes the datagrams that have arrived. Returns the number of requests that these datagrams answered.
    fn take(&mut self) -> Result<u64, Failure> {
        let Self { crowd, inbound, outbound, each, crypto, is_answer, .. } = self;
        crowd.receive(inbound)?;
        let mut answered = 0;
        for (member, datagram) in inbound.iter() {
            let Some(client) = each.get_mut(member as usize) else { continue };
            let Some((question, _)) = &client.waits else { continue };
            let mut room = [0; 2048];
            let len = put(&mut room, datagram);
            let mut opened = [0; 2048];
            let message = match &mut client.speaker {
                Speaker::Plain => MessageRef::parse(&room[..len]).ok(),
                Speaker::Dtls(session) => match session.open(&room[..len], &mut opened) {
                    Ok(len) => MessageRef::parse(&opened[..len]).ok(),
                    // A flight that the server sent again.
                    Err(_) => None,
                },
                Speaker::Oscore(both) => {
                    let (context, pending) = &mut **both;
                    let Some(pending) = pending else { continue };
                    context.unprotect_response(crypto, pending, &mut room[..len]).ok()
                }
            };
            let Some(message) = message.filter(|message| message.token() == client.token.to_be_bytes()) else {
                continue;
            };
            if !is_answer(&message) {
                let name = match &client.speaker {
                    Speaker::Dtls(session) => &session.identity,
                    Speaker::Plain | Speaker::Oscore(_) => "a client",
                };
                return Err(question.refused(name, &message));
            }
            // An echo server returns the request, which needs no acknowledgement.
            if message.message_type() == MessageType::Confirmable && !message.code().is_request() {
                let acknowledgement = empty_message(MessageType::Acknowledgement, message.message_id());
                let mut out = Outbox::new();
                let datagram = if let Speaker::Dtls(session) = &mut client.speaker {
                    session.seal(&acknowledgement, &mut out)?;
                    out.iter().next().unwrap_or_default()
                } else {
                    &acknowledgement[..]
                };
                crowd.push(outbound, member, |letter| Ok(put(letter, datagram)))?;
            }
            client.waits = None;
            answered += 1;
        }
        Ok(answered)
    }

    /// Gives up the requests that have waited longer than [`PATIENCE`] for an answer. Returns the number of these
    /// requests.
    fn give_up(&mut self) -> u64 {
        let is_late = |client: &&mut Client| client.waits.as_ref().is_some_and(|(_, sent)| sent.elapsed() > PATIENCE);
        self.each.iter_mut().filter(is_late).map(|client| client.waits = None).count() as u64
    }
}

fn is_of_value(message: &MessageRef<'_>) -> bool {
    match message.code() {
        Code::CONTENT => message.payload() == VALUE,
        // The value takes no POST; the server remembers it as any other.
        code => matches!(code, Code::CHANGED | Code::CREATED | Code::METHOD_NOT_ALLOWED),
    }
}

/// Copies `bytes` to the beginning of `room`. If `room` is too short, copies only the bytes that fit. Returns the
/// number of copied bytes.
fn put(room: &mut [u8], bytes: &[u8]) -> usize {
    let len = bytes.len().min(room.len());
    room[..len].copy_from_slice(&bytes[..len]);
    len
}

/// Makes the OSCORE context of the client with this index. The Sender ID and the Recipient ID contain the index.
fn context(index: u32) -> Result<Context, Failure> {
    let parameters = Parameters {
        master_secret: &SECRET,
        master_salt: &[],
        sender_id: &client_id(index),
        recipient_id: &server_id(index),
        id_context: None,
        aead: Aead::AesCcm16_64_128,
    };
    let mut context = Context::new::<HostCrypto>(&parameters).map_err(|error| Failure::new(format!("{error:?}")))?;
    // Sender sequence numbers begin at 0: the servers are new, so no number has been used.
    context.lease_mut().extend(u64::MAX);
    Ok(context)
}

/// Creates a directory with `count` OSCORE contexts for Tegmen's server. Returns the path of the directory.
fn context_directories(count: u32) -> Result<PathBuf, Failure> {
    let all = contexts_place(count)?;
    // Numbers that were used are not used again: each run begins with new directories.
    if all.exists() {
        fs::remove_dir_all(&all).map_err(failure)?;
    }
    for index in 0..count {
        let file = ContextFile {
            sender_id: server_id(index).into(),
            recipient_id: client_id(index).into(),
            master_secret: SECRET.to_vec().into(),
            master_salt: Vec::new(),
            id_context: None,
            aead: Aead::AesCcm16_64_128,
            created: std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs()),
            expires: None,
            allow: None,
            rederivation: false,
        };
        tegmen_host::contexts::create(&all.join(index.to_string()), &file).map_err(failure)?;
    }
    Ok(all)
}

/// Returns the path of the directory for `count` OSCORE contexts. The directory is in memory if the system has
/// `/dev/shm`, because the creation of ten thousand contexts on a disk takes a minute.
fn contexts_place(count: u32) -> Result<PathBuf, Failure> {
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { memory.to_owned() } else { target()? };
    Ok(place.join(format!("tegmen-bench-contexts-{count}")))
}

/// Writes the credentials file of Tegmen's server, with the pre-shared key. Returns the path of the file.
pub(crate) fn credentials() -> Result<PathBuf, Failure> {
    let file = target()?.join("bench-credentials.toml");
    fs::write(&file, format!("[[psk]]\nidentity = \"{IDENTITY}\"\nkey_text = \"{KEY_TEXT}\"\n")).map_err(failure)?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).map_err(failure)?;
    Ok(file)
}

fn client_id(index: u32) -> [u8; 5] {
    let [a, b, c, d] = index.to_be_bytes();
    [b'c', a, b, c, d]
}

fn server_id(index: u32) -> [u8; 5] {
    let [a, b, c, d] = index.to_be_bytes();
    [b's', a, b, c, d]
}

fn failure(error: impl std::fmt::Display) -> Failure {
    Failure::new(error.to_string())
}

/// The path of the value that clients request. The example server of libcoap has a value at this path. A client can
/// replace this value with PUT. The other servers serve a value at the same path. The value has 16 bytes.
pub(crate) const PATH: &str = "example_data";
/// The pre-shared key. It is text, because libcoap accepts no binary key.
pub(crate) const KEY_TEXT: &str = "0123456789abcdef";
/// The master secret of all OSCORE contexts. The contexts have different keys, because they have different IDs.
/// `Server.java` contains the same secret.
const SECRET: [u8; 16] = *b"bench of oscore!";
const POLL: Duration = Duration::from_millis(20);
const WARM_UP: Duration = Duration::from_millis(100);
/// The warm-up time of a server in a Java virtual machine, which compiles a function only after frequent use.
pub(crate) const WARM_UP_COMPILED: Duration = Duration::from_secs(8);
/// Maximum time for the start of a server, and for the first answers to its clients.
const START: Duration = Duration::from_secs(20);
/// Time after which the first request is sent again. It is long, because a Java virtual machine must load the code for
/// its first answer.
const FIRST: Duration = Duration::from_secs(2);
/// Time after which a request without an answer is given up.
const PATIENCE: Duration = Duration::from_secs(3);
