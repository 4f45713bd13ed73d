//! Sessions that ended in a fatal alert, which are not resumed (RFC 5246, section 7.2.2).

use std::collections::HashMap;
use std::time::Duration;
use tegmen::dtls::Fatal;

/// True if `reason` means that a fatal alert of one of the peers ended the session.
pub(crate) const fn ended_in_alert(reason: Fatal) -> bool {
    !matches!(reason, Fatal::Closed | Fatal::KeyExhausted | Fatal::Idle | Fatal::TimedOut { .. } | Fatal::NoCredentials)
}

/// Maximum number of clients.
const MOST: usize = 1 << 14;

/// The clients whose sessions ended in a fatal alert, each with the time of the last alert in seconds since 1970. The
/// server resumes no session that such a client opened at this time or before it.
#[derive(Default)]
pub(super) struct Ended {
    by_client: HashMap<Vec<u8>, u32>,
    /// The server resumes no session that any client opened at this time or before it: the time of the last alert of the
    /// clients that were removed from `by_client`, because there were too many. `None` if no client was removed.
    everybody: Option<u32>,
}

impl Ended {
    /// Adds a client, or replaces the time of its last alert. Removes the clients whose sessions cannot be resumed any
    /// more, because the time `lifetime` has passed. If there are still too many clients, removes the half with the
    /// earlier alerts, and then resumes no session that any client opened before the last of these alerts.
    pub(super) fn add(&mut self, client: Vec<u8>, now: u32, lifetime: Duration) {
        if self.by_client.len() >= MOST {
            self.by_client.retain(|_, at| u64::from(now.saturating_sub(*at)) <= lifetime.as_secs());
        }
        if self.by_client.len() >= MOST {
            let mut times: Vec<u32> = self.by_client.values().copied().collect();
            let (_, &mut newest, _) = times.select_nth_unstable(MOST / 2 - 1);
            self.by_client.retain(|_, at| *at > newest);
            self.everybody = self.everybody.max(Some(newest));
        }
        self.by_client.insert(client, now);
    }

    /// Returns true if a session of this client, which was opened at the time `since`, must not be resumed.
    pub(super) fn has(&self, client: &[u8], since: u32) -> bool {
        let at = self.by_client.get(client).copied().max(self.everybody);
        at.is_some_and(|at| since <= at)
    }
}

#[cfg(test)]
mod tests;
