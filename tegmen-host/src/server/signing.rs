//! Private-key operations for clients without a proved identity. The operations run outside the shard's thread, and
//! their number in each second is limited, so that expensive handshakes do not slow down established sessions.

use super::command::Command;
use super::key_operation::Operation;
use crate::prefix::Shares;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use tegmen::identity::PeerId;
use tokio::sync::mpsc::UnboundedSender;

/// Maximum number of operations that the worker has at the same time. With two operations the worker need not wait for
/// the shard when one operation ends.
const AT_WORK: usize = 2;
/// The lowest and the highest limit for the number of waiting handshakes. Between these two values, the limit is the
/// number of private-key operations that the worker may execute in half a second, because a client repeats its
/// ClientHello after a second.
const WAITING: (usize, usize) = (16, 1024);
/// A time that limits bursts: after a pause without operations, the worker executes as many operations without delay as
/// its rate permits in 50 ms.
const CATCH_UP: Duration = Duration::from_millis(50);
/// The nice value of the worker. If there are fewer cores than threads, the shards run first.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

/// The handshakes of one shard that wait for a private-key operation.
pub(super) struct Signing {
    waiting: VecDeque<(PeerId, IpAddr)>,
    /// The number of waiting handshakes from each network prefix.
    shares: Shares,
    max_waiting: usize,
    at_work: usize,
    /// The channel to the worker, which starts with the first operation.
    worker: Option<Sender<(PeerId, Operation)>>,
    per_second: u32,
    commands: UnboundedSender<Command>,
    shard: usize,
    /// The number of completed operations.
    pub(super) done: u64,
    /// The number of handshakes that were given up because too many handshakes waited.
    pub(super) displaced: u64,
}

impl Signing {
    /// Returns the state for a worker that makes at most `per_second` operations in a second (0 sets no limit), and
    /// sends each result to `commands`.
    pub(super) fn new(per_second: u32, commands: UnboundedSender<Command>, shard: usize) -> Self {
        let max_waiting = match per_second {
            0 => WAITING.1,
            per_second => (per_second as usize / 2).clamp(WAITING.0, WAITING.1),
        };
        Self {
            waiting: VecDeque::new(),
            shares: Shares::new(),
            max_waiting,
            at_work: 0,
            worker: None,
            per_second,
            commands,
            shard,
            done: 0,
            displaced: 0,
        }
    }

    /// Returns the number of waiting handshakes.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Adds a waiting handshake. If too many handshakes wait, gives up one of them and returns its peer. It gives up
    /// the oldest handshake whose network prefix has more waiting handshakes than the prefix of the new handshake. If
    /// there is no such handshake, it gives up the oldest of all.
    pub(super) fn wait(&mut self, peer: PeerId, remote: IpAddr) -> Option<PeerId> {
        let given_up = if self.waiting.len() >= self.max_waiting {
            let mine = self.shares.held(remote);
            let greedy = self.waiting.iter().position(|(_, remote)| self.shares.held(*remote) > mine);
            self.waiting.remove(greedy.unwrap_or(0))
        } else {
            None
        };
        if let Some((_, remote)) = given_up {
            self.shares.give_back(remote);
            self.displaced += 1;
        }
        self.shares.take(remote);
        self.waiting.push_back((peer, remote));
        given_up.map(|(peer, _)| peer)
    }

    /// Removes the next handshake from the queue and returns its peer. Returns `None` if the worker cannot take another
    /// operation, or if no handshake waits.
    pub(super) fn next(&mut self) -> Option<PeerId> {
        if self.at_work >= AT_WORK {
            return None;
        }
        let (peer, remote) = self.waiting.pop_front()?;
        self.shares.give_back(remote);
        Some(peer)
    }

    /// Passes an operation to the worker.
    pub(super) fn begin(&mut self, peer: PeerId, operation: Operation) {
        let worker = self.worker.take().unwrap_or_else(|| self.start());
        if worker.send((peer, operation)).is_ok() {
            self.at_work += 1;
            self.worker = Some(worker);
        }
    }

    /// Starts a worker. If the system provides no thread, the worker takes no operation. The next operation then tries
    /// again to start a worker.
    fn start(&self) -> Sender<(PeerId, Operation)> {
        let (sender, jobs) = channel();
        let (per_second, commands) = (self.per_second, self.commands.clone());
        let thread = std::thread::Builder::new().name(format!("tegmen-keys-{}", self.shard));
        let _ = thread.spawn(move || work(per_second, &jobs, &commands));
        sender
    }

    /// Notes that the worker completed one operation.
    pub(super) fn ended(&mut self) {
        self.at_work = self.at_work.saturating_sub(1);
        self.done += 1;
    }
}

/// Executes the private-key operations of a shard until the shard ends. A separate thread (the worker) runs this
/// function.
fn work(per_second: u32, jobs: &Receiver<(PeerId, Operation)>, commands: &UnboundedSender<Command>) {
    #[cfg(target_os = "linux")]
    // Of this thread alone. Without it the server works all the same.
    let _ = rustix::process::nice(NICE);
    let every = Duration::from_secs(1).checked_div(per_second).unwrap_or_default();
    let mut due = Instant::now();
    while let Ok((peer, operation)) = jobs.recv() {
        let now = Instant::now();
        due = due.max(now.checked_sub(CATCH_UP).unwrap_or(now));
        std::thread::sleep(due.saturating_duration_since(now));
        due += every;
        let worked = operation.run();
        // The send fails if the server ended meanwhile, and then no shard needs the result.
        if commands.send(Command::Worked { peer, worked }).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
