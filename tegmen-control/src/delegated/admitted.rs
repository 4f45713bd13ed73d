//! The connections whose sessions were resumed in the present epoch, and that have not expired.

use std::collections::HashMap;
use tegmen_delegation::Connection;

/// A table of connections. The device gives each connection an id, which identifies the peer in requests. No later
/// connection gets the same id, not even in another epoch.
#[derive(Default, Debug)]
pub(super) struct AdmittedConnections {
    next: u32,
    by_id: HashMap<u32, Admitted>,
    by_number: HashMap<u32, u32>,
    /// True if connections have ended since the last call of [`Self::take_ended`], so that their sessions may still be
    /// open.
    has_ended: bool,
}

/// A connection whose peer has the rights of a scope.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Admitted {
    pub(super) connection: Connection,
    /// The time at which the connection expires, in seconds since 1970.
    pub(super) expires: u32,
}

impl AdmittedConnections {
    /// Adds a connection, and returns the id that the device gives to it.
    pub(super) fn admit(&mut self, admitted: Admitted) -> u32 {
        let Self { next, by_id, by_number, .. } = self;
        let id = *by_number.entry(admitted.connection.number).or_insert_with(|| {
            *next = next.wrapping_add(1);
            *next
        });
        by_id.insert(id, admitted);
        id
    }

    /// Returns the connection with this id; `None` if the connection has ended.
    pub(super) fn get(&self, id: u32) -> Option<Admitted> {
        self.by_id.get(&id).copied()
    }

    /// Ends the connection to which the device's server gave this number.
    pub(super) fn end(&mut self, number: u32) {
        if let Some(id) = self.by_number.remove(&number) {
            self.by_id.remove(&id);
            self.has_ended = true;
        }
    }

    /// Ends all connections.
    pub(super) fn end_all(&mut self) {
        self.has_ended |= !self.by_id.is_empty();
        self.by_id.clear();
        self.by_number.clear();
    }

    /// Ends the connections that have expired. `time` is in seconds since 1970.
    pub(super) fn end_expired(&mut self, time: u32) {
        let expired = self.by_id.values().filter(|admitted| admitted.expires <= time);
        let numbers: Vec<u32> = expired.map(|admitted| admitted.connection.number).collect();
        numbers.into_iter().for_each(|number| self.end(number));
    }

    /// Returns true if connections have ended since the last call.
    pub(super) const fn take_ended(&mut self) -> bool {
        std::mem::replace(&mut self.has_ended, false)
    }
}

#[cfg(test)]
mod tests;
