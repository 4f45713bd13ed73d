//! Limits how often one member can join again, because each join begins an epoch.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

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
    /// The time from which a member may again join [`AT_ONCE`] times without a pause. The key has the name of the group
    /// and the name of the member.
    free: HashMap<(String, String), Instant>,
    /// The number of entries at which entries without recent joins are removed the next time.
    most: usize,
}

impl Joins {
    /// Makes a limit that allows each member [`AT_ONCE`] joins without a pause, and from then on one join in each
    /// interval. An interval of zero means no limit.
    pub(super) fn new(interval: Duration) -> Self {
        Self { interval, members: Mutex::default() }
    }

    /// Counts a join of a member.
    ///
    /// # Errors
    /// The time that the member must wait before it may join, if it has reached the limit.
    pub(super) fn take(&self, group: &str, member: &str, now: Instant) -> Result<(), Duration> {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        let Members { free, most } = &mut *members;
        if free.len() >= (*most).max(REMEMBERED) {
            free.retain(|_, until| *until > now);
            *most = free.len().saturating_mul(2);
        }
        let until = free.entry((group.to_owned(), member.to_owned())).or_insert(now);
        let begin = (*until).max(now);
        let ahead = begin.saturating_duration_since(now);
        let most_ahead = self.interval.saturating_mul(AT_ONCE.saturating_sub(1));
        if ahead > most_ahead {
            return Err(ahead.saturating_sub(most_ahead));
        }
        *until = begin.checked_add(self.interval).unwrap_or(begin);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_joins_some_times_at_once_and_then_once_in_each_interval() {
        let (joins, now) = (Joins::new(Duration::from_secs(60)), Instant::now());
        let after = |seconds| now + Duration::from_secs(seconds);
        for _ in 0..AT_ONCE {
            assert_eq!(joins.take("lamps", "hall", now), Ok(()));
        }
        assert_eq!(joins.take("lamps", "hall", now), Err(Duration::from_secs(60)));
        assert_eq!(joins.take("lamps", "hall", after(20)), Err(Duration::from_secs(40)), "a refusal counts nothing");
        assert_eq!(joins.take("lamps", "porch", now), Ok(()), "another member");
        assert_eq!(joins.take("doors", "hall", now), Ok(()), "another group");
        assert_eq!(joins.take("lamps", "hall", after(60)), Ok(()));
        assert!(joins.take("lamps", "hall", after(61)).is_err());
        for _ in 0..AT_ONCE {
            assert_eq!(joins.take("lamps", "hall", after(1000)), Ok(()));
        }
        assert!(joins.take("lamps", "hall", after(1000)).is_err());
        let unlimited = Joins::new(Duration::ZERO);
        assert!((0..1000).all(|_| unlimited.take("lamps", "hall", now).is_ok()));
    }

    #[test]
    fn members_whose_joins_are_long_ago_are_forgotten() {
        let (joins, now) = (Joins::new(Duration::from_secs(60)), Instant::now());
        let remembered = || joins.members.lock().unwrap().free.len();
        for n in 0..REMEMBERED {
            joins.take("lamps", &n.to_string(), now).unwrap();
        }
        joins.take("lamps", "later", now + Duration::from_secs(61)).unwrap();
        assert_eq!(remembered(), 1);
    }
}
