//! A simulated node that sends and receives the datagrams of a fixed exchange.
//!
//! The exchange is a list of turns. A turn consists of the datagrams that one node sends together, and the turns of two
//! nodes alternate. A turn is complete when all its datagrams have arrived. Then the other node sends its next turn. As
//! with the flights of DTLS (RFC 6347, section 4.2.4), a node sends its turn again in two cases: its timer fires before
//! the next turn arrives, or the first datagram of the previous turn arrives again. The timeout doubles with each
//! retransmission.

use super::{Mote, Wish};
use crate::sim::Micros;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use tegmen::address::Address;
use tegmen::time::{Duration, Instant};

/// A turn of an exchange: the datagrams that one node sends before the other node sends datagrams.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Turn {
    /// The datagrams that the node sends before the other node sends datagrams. No two datagrams of an exchange are
    /// equal.
    pub datagrams: Vec<Vec<u8>>,
    /// The time, in microseconds, from the arrival of the other node's datagrams (or the beginning of the exchange)
    /// until the node sends these datagrams. During this time the node computes, or waits for nodes that are not
    /// simulated.
    pub pause: Micros,
}

/// An exchange of two nodes.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// The turns in order. Each turn consists of the datagrams that one node sends together. The node that begins the
    /// exchange sends the first turn.
    pub turns: Arc<[Turn]>,
    /// The time after which a node sends its last datagrams again if the next datagrams of the other node have not
    /// arrived. Each retransmission doubles this time.
    pub timeout: Duration,
}

impl Exchange {
    /// Makes an exchange from datagrams. Successive datagrams of the same node become one turn. The first value of an
    /// entry identifies the node that sends the datagram. The second value has the bytes of the datagram. The third
    /// value is the time in microseconds that this node needs before it sends the datagram. The longest of these times
    /// becomes the pause of the turn.
    pub fn of(datagrams: Vec<(bool, Vec<u8>, Micros)>, timeout: Duration) -> Self {
        let turns = datagrams.chunk_by(|one, next| one.0 == next.0).map(|turn| Turn {
            datagrams: turn.iter().map(|(_, bytes, _)| bytes.clone()).collect(),
            pause: turn.iter().map(|(.., pause)| *pause).max().unwrap_or(0),
        });
        Self { turns: turns.collect(), timeout }
    }
}

/// One of the two nodes of an exchange.
pub struct Script {
    exchange: Exchange,
    /// The index in [`Exchange::turns`] of the datagrams for which this node waits. The other node sends them.
    hears: usize,
    /// For each datagram for which this node waits: true if the datagram has arrived.
    came: Vec<bool>,
    /// The time at which the node sends its [own datagrams](Self::own), for the first time or again; `None` if nothing
    /// is planned.
    due: Option<Instant>,
    /// The next timeout. After the node has sent its [own datagrams](Self::own), it waits this time for the next
    /// datagrams of the other node. If they do not arrive, the node sends its own datagrams again.
    timeout: Duration,
    peer: Option<Address>,
    /// The time when the exchange began; `None` if it has not begun. Both nodes share this value.
    began: Rc<Cell<Option<Instant>>>,
}

impl Script {
    /// Makes one node of an exchange: the node that begins if `begins` is true, and otherwise the other node. Both
    /// nodes must get the same `began`.
    pub fn new(exchange: &Exchange, begins: bool, began: &Rc<Cell<Option<Instant>>>) -> Self {
        let (exchange, timeout) = (exchange.clone(), exchange.timeout);
        let mut script =
            Self { exchange, hears: 0, came: Vec::new(), due: None, timeout, peer: None, began: Rc::clone(began) };
        script.await_turn(usize::from(begins));
        script
    }

    fn await_turn(&mut self, turn: usize) {
        self.hears = turn;
        self.came = vec![false; self.exchange.turns.get(turn).map_or(0, |turn| turn.datagrams.len())];
        self.timeout = self.exchange.timeout;
    }

    /// Returns the [`Turn`] (datagrams that are sent together) that this node sent last, or that it sends next. Returns
    /// `None` if the node waits for the first turn of the exchange.
    fn own(&self) -> Option<&Turn> {
        self.exchange.turns.get(self.hears.checked_sub(1)?)
    }

    /// Begins the pause before the node sends its [own datagrams](Self::own), and sets the alarm for the end of the
    /// pause. The node then sends the datagrams.
    fn send_after_pause(&mut self, now: Instant) {
        let pause = self.own().map_or(0, |turn| turn.pause);
        self.due = Some(now.after(Duration::from_micros(pause)));
    }

    fn send(&mut self, now: Instant, wishes: &mut Vec<Wish>) {
        let Some((to, turn)) = self.peer.zip(self.own()) else { return };
        wishes.extend(turn.datagrams.iter().map(|datagram| Wish::Send { to, datagram: datagram.clone() }));
        // Nothing follows the last turn.
        self.due = (self.hears < self.exchange.turns.len()).then(|| now.after(self.timeout));
        self.timeout = self.timeout.saturating_add(self.timeout).min(LONGEST_TIMEOUT);
    }
}

/// Maximum time between two transmissions of the same [`Turn`] (RFC 6347, section 4.2.4.1).
const LONGEST_TIMEOUT: Duration = Duration::from_secs(60);

impl Mote for Script {
    fn read(&mut self, now: Instant, to: Address, wishes: &mut Vec<Wish>) {
        self.began.set(Some(now));
        self.peer = Some(to);
        self.send_after_pause(now);
        self.poll(now, wishes);
    }

    fn receive(&mut self, now: Instant, from: Address, datagram: &mut [u8], wishes: &mut Vec<Wish>) {
        self.peer = Some(from);
        let is_in = |turn: &Turn| turn.datagrams.iter().position(|known| known == datagram);
        let turns = Arc::clone(&self.exchange.turns);
        if let Some(place) = turns.get(self.hears).and_then(is_in) {
            self.came[place] = true;
            if !self.came.iter().all(|came| *came) {
                return;
            }
            if self.hears + 1 == turns.len()
                && let Some(made) = self.began.get()
            {
                wishes.push(Wish::Answered { made, at_once: true });
                self.due = None;
            }
            self.await_turn(self.hears + 2);
            if self.hears <= turns.len() {
                self.send_after_pause(now);
            }
        } else if self.hears >= 2 && turns.get(self.hears - 2).and_then(is_in) == Some(0) {
            // The other node did not receive the datagrams of this node, and this node does not prepare them now.
            if self.due.is_none() || self.timeout > self.exchange.timeout {
                self.send(now, wishes);
            }
        }
        self.poll(now, wishes);
    }

    fn poll(&mut self, now: Instant, wishes: &mut Vec<Wish>) {
        if self.due.is_some_and(|due| due <= now) {
            self.send(now, wishes);
        }
    }

    fn next_alarm(&self) -> Option<Instant> {
        self.due
    }

    fn take_instructions(&mut self) -> u64 {
        0
    }

    // An exchange has neither restarts nor changes of address.
    fn reboot(&mut self, _: Instant) {}
    fn forget(&mut self, _: usize) {}
    fn moved(&mut self, _: Instant, _: Address, _: Address, _: &mut Vec<Wish>) {}
}

/// A node that begins the same exchange with each of many other nodes.
pub struct Scripts {
    exchange: Exchange,
    others: BTreeMap<Address, Script>,
}

impl Scripts {
    /// Makes a node that has not begun any exchange yet.
    pub fn new(exchange: &Exchange) -> Self {
        Self { exchange: exchange.clone(), others: BTreeMap::new() }
    }
}

impl Mote for Scripts {
    fn read(&mut self, now: Instant, to: Address, wishes: &mut Vec<Wish>) {
        let begins = || Script::new(&self.exchange, true, &Rc::default());
        self.others.entry(to).or_insert_with(begins).read(now, to, wishes);
    }

    fn receive(&mut self, now: Instant, from: Address, datagram: &mut [u8], wishes: &mut Vec<Wish>) {
        if let Some(script) = self.others.get_mut(&from) {
            script.receive(now, from, datagram, wishes);
        }
    }

    fn poll(&mut self, now: Instant, wishes: &mut Vec<Wish>) {
        self.others.values_mut().for_each(|script| script.poll(now, wishes));
    }

    fn next_alarm(&self) -> Option<Instant> {
        self.others.values().filter_map(Script::next_alarm).min()
    }

    fn take_instructions(&mut self) -> u64 {
        0
    }

    fn reboot(&mut self, _: Instant) {}
    fn forget(&mut self, _: usize) {}
    fn moved(&mut self, _: Instant, _: Address, _: Address, _: &mut Vec<Wish>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(turns: usize) -> Exchange {
        let turn = |number: usize| Turn { datagrams: (0..2).map(|n| vec![number as u8, n]).collect(), pause: 1000 };
        Exchange { turns: (0..turns).map(turn).collect(), timeout: Duration::from_secs(1) }
    }

    /// Runs an exchange that has this number of turns, with two datagrams in each turn. The first datagram has the
    /// number 1. A datagram is lost if `is_lost` returns true for its number. Returns true if the exchange ended, and
    /// the number of datagrams that were sent.
    fn play(turns: usize, is_lost: impl Fn(usize) -> bool) -> (bool, usize) {
        let (exchange, began) = (exchange(turns), Rc::default());
        let mut nodes = [true, false].map(|begins| Script::new(&exchange, begins, &began));
        let address = Address { ip: [0; 16], port: 1, scope: 0 };
        let (mut now, mut sent, mut ended) = (Instant::from_micros(1), 0, false);
        let mut wishes = [Vec::new(), Vec::new()];
        nodes[0].read(now, address, &mut wishes[0]);
        for _ in 0..1000 {
            for from in 0..2 {
                for wish in std::mem::take(&mut wishes[from]) {
                    match wish {
                        Wish::Send { mut datagram, .. } => {
                            sent += 1;
                            if !is_lost(sent) {
                                nodes[1 - from].receive(now, address, &mut datagram, &mut wishes[1 - from]);
                            }
                        }
                        _ => ended = true,
                    }
                }
            }
            now = now.after(Duration::from_millis(10));
            nodes.iter_mut().zip(&mut wishes).for_each(|(node, wishes)| node.poll(now, wishes));
        }
        (ended, sent)
    }

    #[test]
    fn an_exchange_ends_whichever_datagram_is_lost() {
        for turns in 2..7 {
            assert_eq!(play(turns, |_| false), (true, 2 * turns), "{turns} turns");
            for lost in 1..=2 * turns {
                let (ended, sent) = play(turns, |number| number == lost);
                assert!(ended && sent > 2 * turns, "{turns} turns without datagram {lost}: {sent}");
            }
            assert!(!play(turns, |number| number > 2).0, "nothing comes");
        }
    }
}
