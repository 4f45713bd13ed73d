//! Obeys commands: the loops that are timed.

use crate::{
    Certificates, Command, DATAGRAM_MAX, Failure, Reply, Resumption, Stack,
    pair::{Pair, Tally, Wire},
    socket,
};
use nix::time::{ClockId, clock_gettime};
use std::{
    io::{self, BufRead, Write},
    process::ExitCode,
    time::Duration,
};

/// Runs the program of one stack: obeys the command in its arguments, or without arguments those on standard input
/// until it ends. With `client` or `server` it runs a session over a socket.
pub fn run<S: Stack>(stack: Result<S, Failure>) -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    run_with(stack, &words)
}

/// As [`run`], with `words` in place of the arguments: the words of one command, or none.
pub fn run_with<S: Stack>(stack: Result<S, Failure>, words: &[String]) -> ExitCode {
    let mut stack = stack;
    if let Ok(stack) = &mut stack
        && let Some(talked) = socket::talk(stack, words)
    {
        let failed = talked.inspect_err(|failure| println!("failed {failure}")).is_err();
        return if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    }
    let mut obey = |line: &str| match &mut stack {
        Ok(stack) => line.parse().and_then(|command| measure(stack, command)).unwrap_or_else(|e| Reply::Failed(e.0)),
        Err(reason) => Reply::Absent(reason.0.clone()),
    };
    if !words.is_empty() {
        let reply = obey(&words.join(" "));
        println!("{reply}");
        return if matches!(reply, Reply::Failed(_)) { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    }
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        let reply = obey(&line);
        let mut out = io::stdout().lock();
        if writeln!(out, "{reply}").and_then(|()| out.flush()).is_err() {
            break; // the driver is gone
        }
    }
    ExitCode::SUCCESS
}

fn measure<S: Stack>(stack: &mut S, command: Command) -> Result<Reply, Failure> {
    match command {
        Command::Version => Ok(Reply::Version(stack.version())),
        Command::Suites => Ok(Reply::Suites(stack.suites().join(" "))),
        Command::Handshakes(count) => handshakes(stack, count),
        Command::Resumptions(count) => resumptions(stack, count),
        Command::Certified(certificates, count) => {
            prove(stack, certificates)?;
            handshakes(stack, count)
        }
        Command::Held(certificates, sessions) => {
            prove(stack, certificates)?;
            held(stack, sessions)
        }
        Command::Records { count, size } => records(stack, count, size),
        Command::Heap(sessions) => held(stack, sessions),
        Command::Wire => wire(stack),
    }
}

/// Every session from here on shows certificates.
fn prove<S: Stack>(stack: &mut S, certificates: Certificates) -> Result<(), Failure> {
    let keys = certificates.public_keys()?;
    if certificates.remembered { stack.remember_chains(&keys) } else { stack.use_public_keys(&keys) }
}

fn handshakes<S: Stack>(stack: &mut S, count: u32) -> Result<Reply, Failure> {
    let (mut wire, mut tally) = (Wire::default(), Tally::default());
    for _ in 0..WARM_UP_HANDSHAKES {
        Pair::establish(stack, &mut wire, &mut tally)?;
    }
    let start = cpu_time()?;
    for _ in 0..count {
        Pair::establish(stack, &mut wire, &mut tally)?;
    }
    elapsed(start)
}

/// Every session from here on can be resumed, also where full handshakes are measured behind it.
fn resumptions<S: Stack>(stack: &mut S, count: u32) -> Result<Reply, Failure> {
    stack.use_resumption(Resumption::Ticket)?;
    let (mut wire, mut tally) = (Wire::default(), Tally::default());
    let mut pair = Pair::establish(stack, &mut wire, &mut tally)?;
    for _ in 0..WARM_UP_HANDSHAKES {
        pair = pair.resume(stack, &mut wire, &mut tally)?;
    }
    let start = cpu_time()?;
    for _ in 0..count {
        pair = pair.resume(stack, &mut wire, &mut tally)?;
    }
    elapsed(start)
}

fn records<S: Stack>(stack: &mut S, count: u32, size: usize) -> Result<Reply, Failure> {
    let (mut wire, mut tally) = (Wire::default(), Tally::default());
    let mut pair = Pair::establish(stack, &mut wire, &mut tally)?;
    let payload: Vec<u8> = (0..=u8::MAX).cycle().take(size).collect();
    let mut opened = vec![0; DATAGRAM_MAX];
    for _ in 0..WARM_UP_RECORDS {
        let len = pair.transfer(&mut wire, &mut tally, &payload, &mut opened)?;
        if opened[..len] != payload {
            return Err(Failure::new("a record came out changed"));
        }
    }
    let start = cpu_time()?;
    for _ in 0..count {
        let len = pair.transfer(&mut wire, &mut tally, &payload, &mut opened)?;
        if len != size {
            return Err(Failure::new("a record came out with another length"));
        }
    }
    elapsed(start)
}

/// Each session carries one record, so that no end keeps its last flight to send it again.
fn held<S: Stack>(stack: &mut S, sessions: u32) -> Result<Reply, Failure> {
    let (mut wire, mut tally) = (Wire::default(), Tally::default());
    let mut opened = vec![0; DATAGRAM_MAX];
    let mut pairs = Vec::with_capacity(sessions as usize + 1);
    for _ in 0..=sessions {
        let mut pair = Pair::establish(stack, &mut wire, &mut tally)?;
        pair.transfer(&mut wire, &mut tally, b"hold", &mut opened)?;
        pairs.push(pair);
        tally.count_heap = true; // what a stack allocates once, with the first session, is not of the others
    }
    let each = |heap: i64| u64::try_from(heap).unwrap_or(0) / u64::from(sessions.max(1));
    Ok(Reply::Heap { client: each(tally.client_heap), server: each(tally.server_heap) })
}

fn wire<S: Stack>(stack: &mut S) -> Result<Reply, Failure> {
    let mut tally = Tally::default();
    Pair::establish(stack, &mut Wire::default(), &mut tally)?;
    Ok(Reply::Wire { bytes: tally.bytes, datagrams: tally.datagrams })
}

fn elapsed(start: Duration) -> Result<Reply, Failure> {
    let spent = cpu_time()?.saturating_sub(start);
    Ok(Reply::Nanoseconds(u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX)))
}

/// CPU time of this thread: the machine may be busy with other things.
///
/// # Errors
/// The system has no such clock; the failure has the text of the system's error.
pub fn cpu_time() -> Result<Duration, Failure> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_err(|e| Failure::new(e.to_string()))?;
    Ok(Duration::from(time))
}

/// Constant, so that a difference of two instruction counts cancels them.
const WARM_UP_HANDSHAKES: u32 = 2;
const WARM_UP_RECORDS: u32 = 8;
