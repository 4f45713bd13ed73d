//! Measures Observe (RFC 7641). Ten thousand observers observe one resource, and a client changes the resource with
//! PUT. Each observer is a separate peer.
//!
//! A round begins with one PUT. It ends when every observer has received the new value, and has acknowledged each
//! confirmable notification. The observers send the acknowledgements in groups, after the last notification has
//! arrived. Each group ends with a GET, and the next group follows after the answer to this GET. If all
//! acknowledgements were sent at once over the loopback, they would overflow the socket of a server that is still
//! sending. The result would then measure retransmissions.
//!
//! The first result is the number of notifications for each CPU second of the server's process. This time includes the
//! processing of the acknowledgements. The second result is the time from the PUT to the last notification. Each pass
//! starts every server again, so that no pass depends on an earlier pass.

use crate::{
    Options,
    crowd::{Crowd, LETTERS_MAX, Letters, request},
    ours,
    report::{Absent, Confirmable, OURS, Report, Row, Samples, median},
    server::{Beside, Process},
};
use std::time::{Duration, Instant};
use tegmen::coap::observe::REGISTER;
use tegmen::coap::{Code, MessageRef, MessageType, OptionNumber, empty_message};
use tegmen_bench_line::Failure;

/// The measurements with all numbers of observers and all kinds of notifications.
pub(crate) struct Observe<'a> {
    beside: Beside<'a>,
    scenes: Vec<Scene>,
    absent: Vec<&'static str>,
}

/// One measurement, with its settings and its results. The settings are the number of observers, the number of rounds
/// (a PUT and its notifications), and the server options that select confirmable or non-confirmable notifications.
struct Scene {
    label: String,
    observers: u32,
    rounds: usize,
    /// True if every observer sends a request before each PUT that changes the resource. The server then knows that the
    /// observers are active, so PROBING_RATE delays no notification.
    heard: bool,
    our_words: &'static [&'static str],
    peer_words: &'static [&'static str],
    per_cpu: Samples,
    to_last: Samples,
    /// For each server: its name, its counts of notifications, and the minimum number of observers that it accepted in
    /// a pass.
    totals: Vec<(&'static str, Ran, usize)>,
}

impl<'a> Observe<'a> {
    /// Prepares the measurements. No server is started yet.
    pub(crate) fn new(options: &Options, beside: Beside<'a>) -> Self {
        let (many, few) = (options.observers, options.observers.div_ceil(10));
        const CONFIRMED: &[&str] = &["-d", "10"];
        const SIXTH: &[&str] = &["-d", "10", "-N"];
        let scene = |observers: u32, rounds, heard, manner, our_words, peer_words| {
            let label = format!("{observers} observers, {manner}");
            let per_cpu = Samples::new(format!("notifications, {label}"), "1/server CPU s", true);
            let to_last = Samples::new(format!("PUT to last, {label}"), "ms", false);
            Scene { label, observers, rounds, heard, our_words, peer_words, per_cpu, to_last, totals: Vec::new() }
        };
        let unconfirmed: &[&str] = &["--unconfirmed", "5"];
        let scenes = vec![
            // After five that are not confirmable, libcoap's server sends one that is.
            scene(many, 5, true, "not confirmable", unconfirmed, SIXTH),
            scene(many, 5, false, "not confirmable, ours with PROBING_RATE", unconfirmed, SIXTH),
            scene(many, 1, false, "confirmable", &[], CONFIRMED),
            scene(few, 6, false, "every sixth confirmable, ours with PROBING_RATE", unconfirmed, SIXTH),
            scene(few, 6, false, "confirmable", &[], CONFIRMED),
        ];
        Self { beside, scenes, absent: Vec::new() }
    }

    /// Measures each server once. Each pass begins with another server. If a server cannot be started, the report lists
    /// it as absent.
    pub(crate) fn pass(&mut self, pass: usize, report: &mut Report) -> Result<(), Failure> {
        for scene in &mut self.scenes {
            for turn in 0..2 {
                let (name, install) = match (pass + turn) % 2 {
                    0 => (OURS, "cargo build --release -p tegmen-cli"),
                    _ => (self.beside.name(), self.beside.install()),
                };
                if self.absent.contains(&name) {
                    continue;
                }
                match scene.start(name, self.beside) {
                    Ok((process, observers)) => scene.measure(name, &process, observers)?,
                    Err(Failure(reason)) => {
                        self.absent.push(name);
                        let reason = format!("observe: {reason}");
                        report.absent.push(Absent { name, reason, install: install.into() });
                    }
                }
            }
        }
        Ok(())
    }

    /// Adds the results of all passes to the report.
    pub(crate) fn finish(self, report: &mut Report) {
        for Scene { label, per_cpu, to_last, totals, .. } in &self.scenes {
            let share = |name| totals.iter().find(|(known, ..)| *known == name).map(|(_, ran, _)| ran.share());
            report.rows.extend([per_cpu.rows(), to_last.rows()].into_iter().flatten().map(|row| {
                let shares = share(OURS).zip(share(row.peer_name));
                let row = Row { confirmable: shares.map(|(ours, peer)| Confirmable { ours, peer }), ..row };
                // What the two servers do must be the same before it is compared.
                if shares.is_some_and(|(ours, peer)| ours == peer) { row.not_behind() } else { row }
            }));
            for (name, ran, accepted) in totals {
                let Ran { notified, repeated, missed, owing, .. } = ran;
                report.header.notes.push(format!(
                    "observe, {label}, {name}: {accepted} accepted; {notified} notifications came, {:.0} % of them \
                     confirmable, {repeated} came again, {missed} did not come in {} s; {owing} rounds were given up \
                     with acknowledgements under way",
                    100.0 * ran.share(),
                    PATIENCE.as_secs()
                ));
            }
        }
    }
}

impl Scene {
    /// Starts the server with this name, and registers the observers at it.
    fn start(&self, name: &str, beside: Beside<'_>) -> Result<(Process, Observers), Failure> {
        let process = if name == OURS {
            Process::start(|port| ours::serve_command(port, &["/observed=-"], self.our_words))
        } else {
            Process::start(|port| beside.command(port, &["/observed=-"], self.our_words, self.peer_words))
        }?;
        let mut observers = Observers::new(&process, self.observers)?;
        observers.register()?;
        Ok((process, observers))
    }

    fn measure(&mut self, name: &'static str, process: &Process, mut observers: Observers) -> Result<(), Failure> {
        let accepted = observers.accepted();
        let mut cpu = 0;
        let mut milliseconds = Vec::new();
        let mut ran = Ran::default();
        for _ in 0..self.rounds {
            if self.heard {
                observers.speak()?;
            }
            let before = process.cpu_nanoseconds()?;
            milliseconds.push(observers.round(&mut ran)?.as_secs_f64() * 1e3);
            cpu += process.cpu_nanoseconds()?.saturating_sub(before);
        }
        self.per_cpu.push(name, ran.notified as f64 * 1e9 / cpu as f64);
        self.to_last.push(name, median(&milliseconds).unwrap_or_default());
        match self.totals.iter_mut().find(|(known, ..)| *known == name) {
            Some((_, total, least)) => {
                total.add(&ran);
                *least = accepted.min(*least);
            }
            None => self.totals.push((name, ran, accepted)),
        }
        Ok(())
    }
}

/// The observers of one server, and the client that changes the observed resource.
struct Observers {
    crowd: Crowd,
    inbound: Letters,
    outbound: Letters,
    /// For each observer, the round in which it received its last notification; `None` if the server did not accept the
    /// observer.
    seen: Vec<Option<u32>>,
    round: u32,
    gets: u16,
}

/// Counts of notifications in all rounds. A round is a PUT with its notifications.
#[derive(Default)]
struct Ran {
    notified: u64,
    confirmable: u64,
    repeated: u64,
    missed: u64,
    owing: u64,
}

impl Ran {
    /// Returns the share of notifications that were confirmable, from 0 to 1.
    fn share(&self) -> f64 {
        self.confirmable as f64 / self.notified.max(1) as f64
    }

    const fn add(&mut self, other: &Self) {
        self.notified += other.notified;
        self.confirmable += other.confirmable;
        self.repeated += other.repeated;
        self.missed += other.missed;
        self.owing += other.owing;
    }
}

impl Observers {
    fn new(process: &Process, count: u32) -> Result<Self, Failure> {
        Ok(Self {
            crowd: Crowd::new(process.address, POLL)?,
            inbound: Letters::new(),
            outbound: Letters::new(),
            seen: vec![None; count as usize],
            round: 0,
            gets: 0,
        })
    }

    fn accepted(&self) -> usize {
        self.seen.iter().flatten().count()
    }

    /// Creates the resource, and registers all observers. An observer that the server does not accept in three attempts
    /// is left out.
    fn register(&mut self) -> Result<(), Failure> {
        let begin = Instant::now();
        while !self.put()? {
            if begin.elapsed() > Duration::from_secs(10) {
                return Err(Failure::new("the server does not take a value"));
            }
        }
        // A server can notify of this change a little later, and then notifies those that have registered meanwhile
        // too.
        while !self.inbound.is_empty() {
            self.crowd.receive(&mut self.inbound)?;
        }
        for attempt in 1..=3_u16 {
            let absent: Vec<_> = (0..).zip(&self.seen).filter(|(_, seen)| seen.is_none()).map(|(i, _)| i).collect();
            for some in absent.chunks(LETTERS_MAX) {
                for member in some {
                    self.crowd.push(&mut self.outbound, *member, |room| {
                        request(room, Code::GET, attempt, *member, |builder| {
                            builder.uint(OptionNumber::OBSERVE, REGISTER)?;
                            builder.path(PATH)
                        })
                    })?;
                }
                self.crowd.send(&mut self.outbound)?;
                let mut missing = some.len();
                while missing > 0 {
                    self.crowd.receive(&mut self.inbound)?;
                    if self.inbound.is_empty() {
                        break;
                    }
                    for (member, datagram) in self.inbound.iter() {
                        let Ok(message) = MessageRef::parse(datagram) else { continue };
                        let Some(seen) = self.seen.get_mut(member as usize) else { continue };
                        let is_accepted = message.option(OptionNumber::OBSERVE).is_some();
                        if message.message_type() == MessageType::Acknowledgement && is_accepted && seen.is_none() {
                            *seen = Some(self.round);
                        }
                        missing = missing.saturating_sub(1);
                    }
                }
            }
        }
        if self.accepted() == 0 { Err(Failure::new("the server accepts no observer")) } else { Ok(()) }
    }

    /// Stores the first value before any observer has registered. Returns true if the server answers 2.01 or 2.04.
    fn put(&mut self) -> Result<bool, Failure> {
        self.change()?;
        self.crowd.receive(&mut self.inbound)?;
        let is_done = |(_, datagram)| {
            MessageRef::parse(datagram).is_ok_and(|answer| matches!(answer.code(), Code::CHANGED | Code::CREATED))
        };
        Ok(self.inbound.iter().any(is_done))
    }

    /// Sends a PUT with the value of the next round.
    fn change(&mut self) -> Result<(), Failure> {
        self.round += 1;
        let (round, changer) = (self.round, self.seen.len() as u32);
        self.crowd.push(&mut self.outbound, changer, |room| {
            request(room, Code::PUT, round as u16, round, |builder| {
                builder.path(PATH)?;
                builder.payload(&value(round))
            })
        })?;
        self.crowd.send(&mut self.outbound)
    }

    /// Lets every observer send a GET to the observed resource, and waits for the responses. After that the server has
    /// a recent request from each observer.
    fn speak(&mut self) -> Result<(), Failure> {
        let (message_id, token) = (self.round as u16 | READS, self.round | GET_TOKENS);
        let members: Vec<_> = (0..self.seen.len() as u32).collect();
        for some in members.chunks(LETTERS_MAX) {
            for member in some {
                self.crowd.push(&mut self.outbound, *member, |room| {
                    request(room, Code::GET, message_id, token, |builder| builder.path(PATH))
                })?;
            }
            self.crowd.send(&mut self.outbound)?;
            let (begin, mut missing) = (Instant::now(), some.len());
            while missing > 0 {
                if begin.elapsed() > PATIENCE {
                    return Err(Failure::new("the server does not answer an observer"));
                }
                self.crowd.receive(&mut self.inbound)?;
                missing = missing.saturating_sub(self.inbound.iter().count());
            }
        }
        Ok(())
    }

    /// Changes the observed resource with a PUT. Waits until all accepted observers have received the new value, and
    /// until no more datagrams arrive. Returns the time from the PUT to the last notification.
    fn round(&mut self, ran: &mut Ran) -> Result<Duration, Failure> {
        let accepted = self.accepted();
        let begin = Instant::now();
        self.change()?;
        let (value, mut last, mut notified) = (value(self.round), begin, 0);
        let mut owed = Vec::new();
        let mut awaited = None;
        let mut is_complete = false;
        while begin.elapsed() < PATIENCE {
            self.crowd.receive(&mut self.inbound)?;
            let is_quiet = self.inbound.is_empty();
            is_complete = is_quiet && notified == accepted && owed.is_empty();
            if is_complete {
                break;
            }
            let now = Instant::now();
            for (member, datagram) in self.inbound.iter() {
                let Ok(message) = MessageRef::parse(datagram) else { continue };
                let is_confirmable = message.message_type() == MessageType::Confirmable;
                if is_confirmable {
                    owed.push((member, message.message_id()));
                }
                if awaited.is_some_and(|token: u32| message.token() == token.to_be_bytes()) {
                    awaited = None;
                }
                let Some(Some(seen)) = self.seen.get_mut(member as usize) else { continue };
                if message.message_type() == MessageType::Acknowledgement {
                    continue; // a registration that was asked for twice
                }
                if message.payload() != value || *seen == self.round {
                    ran.repeated += 1;
                    continue;
                }
                *seen = self.round;
                notified += 1;
                last = now;
                ran.confirmable += u64::from(is_confirmable);
            }
            if is_quiet || awaited.is_none() && (notified == accepted || begin.elapsed() > HOLD) {
                awaited = self.acknowledge(&mut owed)?;
            }
        }
        ran.owing += u64::from(!is_complete);
        ran.notified += notified as u64;
        ran.missed += (accepted - notified) as u64;
        Ok(last.duration_since(begin))
    }

    /// Acknowledges some of the notifications in `owed`, and then sends a GET. The answer to the GET shows that the
    /// server has processed the acknowledgements. Returns the token of the GET, or `None` if there is nothing to
    /// acknowledge.
    fn acknowledge(&mut self, owed: &mut Vec<(u32, u16)>) -> Result<Option<u32>, Failure> {
        if owed.is_empty() {
            return Ok(None);
        }
        for (member, message_id) in owed.drain(owed.len().saturating_sub(LETTERS_MAX - 1)..) {
            let acknowledgement = empty_message(MessageType::Acknowledgement, message_id);
            self.crowd.push(&mut self.outbound, member, |room| {
                room[..acknowledgement.len()].copy_from_slice(&acknowledgement);
                Ok(acknowledgement.len())
            })?;
        }
        self.gets = self.gets.wrapping_add(1);
        let (message_id, token) = (self.gets | GETS, u32::from(self.gets) | GET_TOKENS);
        self.crowd.push(&mut self.outbound, self.seen.len() as u32, |room| {
            request(room, Code::GET, message_id, token, |builder| builder.path(PATH))
        })?;
        self.crowd.send(&mut self.outbound)?;
        Ok(Some(token))
    }
}

/// Returns the 16 bytes that the PUT of the round `round` stores in the observed resource.
fn value(round: u32) -> [u8; 16] {
    let mut value = *b"round 0000000000";
    let mut rest = round;
    for digit in value[6..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    value
}

/// A bit that is set in the message IDs of the GETs that follow acknowledgements. It is not set in the message IDs of
/// PUTs.
const GETS: u16 = 1 << 15;
/// A bit that is set in the message IDs of the GETs that [`Observers::speak`] sends.
const READS: u16 = 1 << 14;
/// A bit that is set in the tokens of GETs. It is not set in the tokens of PUTs and of registrations.
const GET_TOKENS: u32 = 1 << 31;
const PATH: &str = "observed";
/// Time without a datagram after which no more datagrams are expected.
const POLL: Duration = Duration::from_millis(30);
/// Maximum time for which acknowledgements wait until all observers have their notification. It is less than
/// ACK_TIMEOUT.
const HOLD: Duration = Duration::from_millis(500);
/// Maximum time of a round. A round begins with a PUT, and ends when all observers have received and acknowledged the
/// new value.
const PATIENCE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_has_a_value_of_its_own() {
        assert_eq!(value(1), *b"round 0000000001");
        assert_eq!(value(4_294_967_295), *b"round 4294967295");
    }
}
