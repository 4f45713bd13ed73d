//! Limits how often one member can join again, because each join begins an epoch.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tegmen_host::hash::Keys;

/// Maximum number of joins that one member of a group may make without a pause between them.
const AT_ONCE: u32 = 4;
/// Minimum number of entries in memory before entries without recent joins are removed.
const REMEMBERED: usize = 1024;

/// The limit for the joins of each member: [`AT_ONCE`] joins without a pause, and after them one join in each interval.
pub(super) struct Joins {
    interval: Duration,
    members: Mutex<Members>,
}

#[derive(Default)]
struct Members {
    /// The joins of each member: see [`key`].
    joined: HashMap<String, Joined, Keys>,
    /// The number of entries at which entries without recent joins are removed the next time.
    most: usize,
}

/// The joins of one member.
struct Joined {
    /// The time from which the member may again join [`AT_ONCE`] times without a pause.
    until: Instant,
    /// The epoch of the last clash after which the member joined again; `None` before the first such join.
    clash: Option<u16>,
}

impl Joins {
    /// Makes a limit that allows each member [`AT_ONCE`] joins without a pause, and from then on one join in each
    /// interval. An interval of zero means no limit.
    pub(super) fn new(interval: Duration) -> Self {
        Self { interval, members: Mutex::default() }
    }

    /// Counts a join of a member. The first join after a clash counts nothing: `clash` is the epoch that the report of
    /// the clash began, if the member has not joined since then. The report of the clash was counted, as a join of
    /// the member that reported it.
    ///
    /// # Errors
    /// The time that the member must wait before it may join, if it has reached the limit.
    pub(super) fn take(&self, group: &str, member: &str, clash: Option<u16>, now: Instant) -> Result<(), Duration> {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        let Members { joined, most } = &mut *members;
        if joined.len() >= (*most).max(REMEMBERED) {
            joined.retain(|_, joined| joined.until > now);
            *most = joined.len().saturating_mul(2);
        }
        let new = Joined { until: now, clash: None };
        let joined = joined.entry(key(group, member)).or_insert(new);
        if clash.is_some() && joined.clash != clash {
            joined.clash = clash;
            return Ok(());
        }
        let begin = joined.until.max(now);
        let ahead = begin.saturating_duration_since(now);
        let most_ahead = self.interval.saturating_mul(AT_ONCE.saturating_sub(1));
        if ahead > most_ahead {
            return Err(ahead.saturating_sub(most_ahead));
        }
        joined.until = begin.checked_add(self.interval).unwrap_or(begin);
        Ok(())
    }

    /// Uncounts a counted join that began no epoch.
    pub(super) fn give_back(&self, group: &str, member: &str) {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(joined) = members.joined.get_mut(&key(group, member)) {
            joined.until = joined.until.checked_sub(self.interval).unwrap_or(joined.until);
        }
    }
}

/// Returns the key of a member of a group: the name of the group, a slash and the name of the member. The name of a group
/// contains no slash.
fn key(group: &str, member: &str) -> String {
    [group, "/", member].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_joins_some_times_at_once_and_then_once_in_each_interval() {
        let (joins, now) = (Joins::new(Duration::from_secs(60)), Instant::now());
        let after = |seconds| now + Duration::from_secs(seconds);
        for _ in 0..AT_ONCE {
            assert_eq!(joins.take("lamps", "hall", None, now), Ok(()));
        }
        assert_eq!(joins.take("lamps", "hall", None, now), Err(Duration::from_secs(60)));
        assert_eq!(
            joins.take("lamps", "hall", None, after(20)),
            Err(Duration::from_secs(40)),
            "a refusal counts nothing"
        );
        assert_eq!(joins.take("lamps", "porch", None, now), Ok(()), "another member");
        assert_eq!(joins.take("doors", "hall", None, now), Ok(()), "another group");
        assert_eq!(joins.take("lamps", "hall", None, after(60)), Ok(()));
        assert!(joins.take("lamps", "hall", None, after(61)).is_err());
        for _ in 0..AT_ONCE {
            assert_eq!(joins.take("lamps", "hall", None, after(1000)), Ok(()));
        }
        assert!(joins.take("lamps", "hall", None, after(1000)).is_err());
        let unlimited = Joins::new(Duration::ZERO);
        assert!((0..1000).all(|_| unlimited.take("lamps", "hall", None, now).is_ok()));
    }

    #[test]
    fn the_first_join_after_each_clash_counts_nothing() {
        let (joins, now) = (Joins::new(Duration::from_secs(60)), Instant::now());
        for _ in 0..AT_ONCE {
            assert_eq!(joins.take("lamps", "switch", None, now), Ok(()));
        }
        for epoch in [7, 9] {
            assert_eq!(joins.take("lamps", "switch", Some(epoch), now), Ok(()));
            assert!(joins.take("lamps", "switch", Some(epoch), now).is_err(), "another join after the same clash");
            assert!(joins.take("lamps", "switch", None, now).is_err());
        }
    }

    #[test]
    fn a_join_that_began_no_epoch_is_given_back() {
        let (joins, now) = (Joins::new(Duration::from_secs(60)), Instant::now());
        for _ in 0..100 {
            assert_eq!(joins.take("lamps", "hall", None, now), Ok(()));
            joins.give_back("lamps", "hall");
        }
        for _ in 0..AT_ONCE {
            assert_eq!(joins.take("lamps", "hall", None, now), Ok(()));
        }
        assert!(joins.take("lamps", "hall", None, now).is_err());
        joins.give_back("lamps", "hall");
        assert_eq!(joins.take("lamps", "hall", None, now), Ok(()));
        assert!(joins.take("lamps", "hall", None, now).is_err());
    }

    #[test]
    fn members_whose_joins_are_long_ago_are_forgotten() {
        let (joins, now) = (Joins::new(Duration::from_secs(60)), Instant::now());
        let remembered = || joins.members.lock().unwrap().joined.len();
        for n in 0..REMEMBERED {
            joins.take("lamps", &n.to_string(), None, now).unwrap();
        }
        joins.take("lamps", "later", None, now + Duration::from_secs(61)).unwrap();
        assert_eq!(remembered(), 1);
    }
}
