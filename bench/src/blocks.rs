//! Measures block-wise transfers (RFC 7959). Clients GET and PUT bodies of 64 KiB in blocks of 1,024 bytes. A client
//! requests the next block when the previous block has arrived.
//!
//! The result is the number of transferred body bytes for each CPU second of the server's process. Every received block
//! is compared with the body that the client stored at the server before.

use crate::{
    Options,
    crowd::{Crowd, Letters, request},
    ours,
    report::{Absent, OURS, Report, Row, Samples},
    server::{Beside, Process},
};
use std::time::{Duration, Instant};
use tegmen::coap::{Block, Builder, Code, MessageRef, OptionNumber};
use tegmen_bench_line::Failure;

/// The servers that are measured, and the results.
pub(crate) struct Blocks {
    servers: Vec<Server>,
    samples: Vec<(Way, usize, Samples)>,
    again: u64,
}

/// The direction of the body: from the server to the client (GET), or from the client to the server (PUT).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Get,
    Put,
}

struct Server {
    name: &'static str,
    process: Process,
    clients: Clients,
}

impl Blocks {
    /// Starts Tegmen's server and the server of the peer. If one of the servers cannot be started, the report lists it
    /// as absent.
    pub(crate) fn start(beside: Beside<'_>, report: &mut Report) -> Self {
        let names: Vec<_> = (0..CLIENTS_MAX).map(|number| format!("/{}=-", path(number))).collect();
        let values: Vec<_> = names.iter().map(String::as_str).collect();
        let ours = |port| ours::serve_command(port, &values, &[]);
        let other = |port| beside.command(port, &values, &[], &["-d", "100"]);
        let mut servers = Vec::new();
        let mut add = |name, process: Result<Process, Failure>, install: &str| {
            let server = process.and_then(|process| {
                let mut clients = Clients::new(&process)?;
                clients.prepare().map(|()| Server { name, process, clients })
            });
            match server {
                Ok(server) => servers.push(server),
                Err(Failure(reason)) => {
                    report.absent.push(Absent { name, reason: format!("blocks: {reason}"), install: install.into() });
                }
            }
        };
        add(OURS, Process::start(ours), "cargo build --release -p tegmen-cli");
        add(beside.name(), Process::start(other), beside.install());
        let samples = [(Way::Get, 1), (Way::Get, CLIENTS_MAX), (Way::Put, 1), (Way::Put, CLIENTS_MAX)];
        let samples = samples.map(|(way, clients)| {
            let name = if way == Way::Get { "GET" } else { "PUT" };
            let crowd = if clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") };
            let operation = format!("{name} of 64 KiB in blocks of 1,024 bytes, {crowd}");
            (way, clients, Samples::new(operation, "bytes/server CPU s", true))
        });
        Self { servers, samples: samples.into(), again: 0 }
    }

    /// Measures each server once. Each pass begins with another server.
    pub(crate) fn pass(&mut self, pass: usize, options: &Options) -> Result<(), Failure> {
        let count = self.servers.len();
        for (way, clients, samples) in &mut self.samples {
            for turn in 0..count {
                let Server { name, process, clients: all } = &mut self.servers[(pass + turn) % count];
                all.run(*way, *clients, WARM_UP)?;
                let cpu = process.cpu_nanoseconds()?;
                let ran = all.run(*way, *clients, Duration::from_secs_f64(options.seconds / 2.0))?;
                let cpu = process.cpu_nanoseconds()?.saturating_sub(cpu);
                self.again += ran.again;
                samples.push(name, ran.bytes as f64 * 1e9 / cpu as f64);
            }
        }
        Ok(())
    }

    /// Adds the results of all passes to the report.
    pub(crate) fn finish(self, report: &mut Report) {
        report.rows.extend(self.samples.iter().flat_map(|(_, _, samples)| samples.rows()).map(Row::not_behind));
        report.header.notes.push(format!(
            "blocks: one block in flight for each client, {} requests sent again in all passes",
            self.again
        ));
    }
}

/// The clients of one server. Each client transfers a body at its own path.
struct Clients {
    crowd: Crowd,
    inbound: Letters,
    outbound: Letters,
    each: Vec<Client>,
    body: Vec<u8>,
}

/// A client, and the block that it transfers.
#[derive(Clone, Copy)]
struct Client {
    number: u32,
    token: u32,
    /// The time when the current request was sent; `None` if no request waits for an answer.
    sent: Option<Instant>,
}

/// The counts of one run.
#[derive(Default)]
struct Ran {
    bytes: u64,
    again: u64,
}

impl Clients {
    fn new(process: &Process) -> Result<Self, Failure> {
        Ok(Self {
            crowd: Crowd::new(process.address, POLL)?,
            inbound: Letters::new(),
            outbound: Letters::new(),
            each: vec![Client { number: 0, token: 0, sent: None }; CLIENTS_MAX],
            // The period is a prime, so that no block is like the previous one.
            body: (0..BODY_LEN).map(|i| (i % 251) as u8).collect(),
        })
    }

    /// Waits until the server answers. Then stores the body of every client at the server.
    fn prepare(&mut self) -> Result<(), Failure> {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(10) {
            let ran = self.run(Way::Put, CLIENTS_MAX, Duration::ZERO)?;
            if ran.bytes == (CLIENTS_MAX * BODY_LEN) as u64 {
                return Ok(());
            }
        }
        Err(Failure::new("the server does not take the bodies"))
    }

    /// Lets `clients` clients transfer bodies during `duration`, each client one body after the other. Transfers that
    /// have begun before the end are completed, and are counted.
    fn run(&mut self, way: Way, clients: usize, duration: Duration) -> Result<Ran, Failure> {
        let Self { crowd, inbound, outbound, each, body } = self;
        let each = &mut each[..clients];
        let mut ran = Ran::default();
        let begin = Instant::now();
        for (number, client) in each.iter_mut().enumerate() {
            client.number = 0;
            client.next();
            client.ask(way, number, body, crowd, outbound)?;
        }
        crowd.send(outbound)?;
        while each.iter().any(|client| client.sent.is_some()) && begin.elapsed() < duration + PATIENCE {
            crowd.receive(inbound)?;
            for (number, datagram) in inbound.iter() {
                let number = number as usize;
                let Some(client) = each.get_mut(number).filter(|client| client.sent.is_some()) else { continue };
                if !client.is_answered(way, body, datagram)? {
                    continue;
                }
                ran.bytes += BLOCK as u64;
                client.number = (client.number + 1) % BLOCKS;
                if client.number == 0 && begin.elapsed() >= duration {
                    client.sent = None;
                    continue;
                }
                client.next();
                client.ask(way, number, body, crowd, outbound)?;
            }
            if inbound.is_empty() {
                for (number, client) in each.iter_mut().enumerate() {
                    if client.sent.is_some_and(|sent| sent.elapsed() > RETRANSMIT) {
                        ran.again += 1;
                        client.ask(way, number, body, crowd, outbound)?;
                    }
                }
            }
            crowd.send(outbound)?;
        }
        Ok(ran)
    }
}

impl Client {
    /// Chooses a new token for the next request. A retransmission keeps the token of its request.
    const fn next(&mut self) {
        self.token = self.token.wrapping_add(1);
    }

    /// Returns true if the datagram is the answer for which the client waits. Returns false if it has another token.
    ///
    /// # Errors
    /// If the answer has a wrong code, payload or block number.
    fn is_answered(&self, way: Way, body: &[u8], datagram: &[u8]) -> Result<bool, Failure> {
        let Ok(message) = MessageRef::parse(datagram) else { return Ok(false) };
        if message.token() != self.token.to_be_bytes() {
            return Ok(false);
        }
        let option = if way == Way::Get { OptionNumber::BLOCK2 } else { OptionNumber::BLOCK1 };
        let block = message.block(option).ok().flatten().filter(|block| block.number == self.number);
        let is_last = self.number + 1 == BLOCKS;
        let is_right = match (way, block) {
            (Way::Get, Some(block)) => {
                let expected = &body[self.number as usize * BLOCK..][..BLOCK];
                message.code() == Code::CONTENT && message.payload() == expected && block.more != is_last
            }
            (Way::Put, _) if is_last => matches!(message.code(), Code::CHANGED | Code::CREATED),
            (Way::Put, Some(_)) => message.code() == Code::CONTINUE,
            _ => false,
        };
        if is_right {
            return Ok(true);
        }
        Err(Failure::new(format!("the answer for block {} is not it: {:?}", self.number, message.code())))
    }

    /// Adds the request for the current block of the client to the datagrams that are sent next.
    fn ask(
        &mut self,
        way: Way,
        client: usize,
        body: &[u8],
        crowd: &Crowd,
        outbound: &mut Letters,
    ) -> Result<(), Failure> {
        self.sent = Some(Instant::now());
        let Self { number, token, .. } = *self;
        let block = Block { number, more: way == Way::Put && number + 1 < BLOCKS, ..Block::first(BLOCK) };
        let rest = |builder: &mut Builder<'_, '_>| {
            builder.path(&path(client))?;
            if way == Way::Get {
                return builder.uint(OptionNumber::BLOCK2, block.value());
            }
            builder.uint(OptionNumber::BLOCK1, block.value())?;
            builder.uint(OptionNumber::SIZE1, BODY_LEN as u32)?;
            builder.payload(&body[block.offset()..][..BLOCK])
        };
        let code = if way == Way::Get { Code::GET } else { Code::PUT };
        crowd.push(outbound, client as u32, |room| request(room, code, token as u16, token, rest))
    }
}

fn path(client: usize) -> String {
    format!("blocks{client}")
}

const BODY_LEN: usize = 64 << 10;
const BLOCK: usize = 1024;
const BLOCKS: u32 = (BODY_LEN / BLOCK) as u32;
/// Maximum number of transfers at the same time. Each transfer belongs to another client.
const CLIENTS_MAX: usize = 16;
const POLL: Duration = Duration::from_millis(20);
const WARM_UP: Duration = Duration::from_millis(50);
/// Time after which a request without an answer is sent again.
const RETRANSMIT: Duration = Duration::from_millis(500);
/// Maximum time for which a run continues to complete the transfers that have begun.
const PATIENCE: Duration = Duration::from_secs(3);
