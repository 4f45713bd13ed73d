//! Executes commands, and measures the time of their loops.

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

/// Runs the program of a stack. Executes the command in the arguments of the program. Without arguments, executes the
/// commands on standard input until the input ends. With `client` or `server` as the first argument, runs a session
/// over a socket.
pub fn run<S: Stack>(stack: Result<S, Failure>) -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    run_with(stack, &words)
}

/// Does the same as [`run`], but with `words` as the arguments.
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

/// Lets all sessions from now on use these certificates.
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

/// Opens a session, and measures `count` resumptions. All later sessions of this program are also resumable, even if
/// full handshakes are measured afterwards.
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

/// Opens sessions, and measures the heap memory of each. Each session carries one record, so that no end keeps its last
/// flight for a retransmission.
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

/// Returns the CPU time of this thread, which does not depend on other work of the machine.
///
/// # Errors
/// If the system has no such clock. The message contains the error of the system.
pub fn cpu_time() -> Result<Duration, Failure> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_err(|e| Failure::new(e.to_string()))?;
    Ok(Duration::from(time))
}

/// Number of handshakes before the measurement. It is constant, so that these handshakes cancel out in the difference
/// of two instruction counts.
const WARM_UP_HANDSHAKES: u32 = 2;
const WARM_UP_RECORDS: u32 = 8;
