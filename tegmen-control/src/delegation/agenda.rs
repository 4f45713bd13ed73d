//! The times at which the server must contact its devices.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// The times of the next conversations with the devices. A conversation is one session in which the server sends the
/// requests that wait for a device. Each device is named by its number.
#[derive(Default)]
pub(super) struct Agenda {
    by_time: BTreeSet<(Instant, u32)>,
    entries: HashMap<u32, Entry>,
}

#[derive(Clone, Copy)]
struct Entry {
    /// The time of the next conversation; `None` while a conversation is in progress.
    at: Option<Instant>,
    /// The time before which the device is not contacted again, because it did not answer.
    not_before: Instant,
    /// The length of the last pause after a failed conversation; zero after a successful conversation.
    pause: Duration,
}

impl Agenda {
    /// Plans a conversation with a device: at `now`, or at the end of the pause after a failed conversation. If a
    /// conversation with the device is in progress, plans no other, because this conversation also sends the new
    /// requests.
    pub(super) fn want(&mut self, device: u32, now: Instant) {
        match self.entries.get(&device) {
            None => self.set(device, Entry { at: Some(now), not_before: now, pause: Duration::ZERO }),
            Some(Entry { at: None, .. }) => {}
            Some(entry) => {
                let wanted = now.max(entry.not_before);
                let at = entry.at.map(|at| at.min(wanted));
                self.set(device, Entry { at, ..*entry });
            }
        }
    }

    /// Records that no conversation is in progress, because the task that contacts devices begins again. Plans a
    /// conversation at `now` with each device whose conversation was cut off.
    pub(super) fn resume(&mut self, now: Instant) {
        let ended: Vec<_> = self.entries.iter().filter(|(_, entry)| entry.at.is_none()).map(|(id, _)| *id).collect();
        for device in ended {
            self.set(device, Entry { at: Some(now), not_before: now, pause: Duration::ZERO });
        }
    }

    /// Ends the pause after a failed conversation with a device.
    pub(super) fn end_pause(&mut self, device: u32) {
        if let Some(entry) = self.entries.get_mut(&device) {
            (entry.not_before, entry.pause) = (Instant::now(), Duration::ZERO);
        }
    }

    /// Takes the device whose conversation is due first, and returns its number. Returns `None` if no conversation is
    /// due at `now`.
    pub(super) fn take(&mut self, now: Instant) -> Option<u32> {
        let (_, device) = *self.by_time.first().filter(|(at, _)| *at <= now)?;
        let entry = *self.entries.get(&device)?;
        self.set(device, Entry { at: None, ..entry });
        Some(device)
    }

    /// Returns the time of the next conversation; `None` if no conversation is planned.
    pub(super) fn next(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Records that a conversation succeeded. Plans the next conversation after the time `every`. [`Self::want`] can
    /// plan an earlier one.
    pub(super) fn spoke(&mut self, device: u32, now: Instant, every: Duration) {
        let at = now.checked_add(every);
        self.set(device, Entry { at, not_before: now, pause: Duration::ZERO });
    }

    /// Records that a conversation failed. The server contacts the device again after a pause. The first pause is
    /// `first`. The pause doubles with each further failure, up to `longest`. Then the pause is made shorter: by
    /// nothing if `part` is 0, by a quarter if `part` is 1, and in proportion between these values.
    pub(super) fn failed(&mut self, device: u32, now: Instant, (first, longest): (Duration, Duration), part: f64) {
        let last = self.entries.get(&device).map_or(Duration::ZERO, |entry| entry.pause);
        let pause = last.saturating_mul(2).clamp(first, longest.max(first));
        let at = now.checked_add(pause.mul_f64(1.0 - part.clamp(0.0, 1.0) / 4.0)).unwrap_or(now);
        self.set(device, Entry { at: Some(at), not_before: at, pause });
    }

    fn set(&mut self, device: u32, entry: Entry) {
        let before = self.entries.insert(device, entry);
        if let Some(at) = before.and_then(|before| before.at) {
            self.by_time.remove(&(at, device));
        }
        if let Some(at) = entry.at {
            self.by_time.insert((at, device));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Agenda;
    use std::time::{Duration, Instant};

    const FIRST: Duration = Duration::from_secs(2);
    const LONGEST: Duration = Duration::from_secs(60);

    #[test]
    fn a_device_that_does_not_answer_is_tried_at_growing_intervals_also_if_more_waits_for_it() {
        let (mut agenda, mut now) = (Agenda::default(), Instant::now());
        agenda.want(1, now);
        let mut pauses = Vec::new();
        for _ in 0..8 {
            assert_eq!(agenda.take(now), Some(1));
            // Nobody speaks with it twice at the same time.
            agenda.want(1, now);
            assert_eq!((agenda.take(now), agenda.next()), (None, None));
            agenda.failed(1, now, (FIRST, LONGEST), 0.0);
            agenda.want(1, now);
            assert_eq!(agenda.take(now), None, "it waits");
            let next = agenda.next().unwrap();
            pauses.push((next - now).as_secs());
            now = next;
        }
        assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(agenda.take(now), Some(1));
        agenda.spoke(1, now, LONGEST);
        assert_eq!(agenda.next(), Some(now + LONGEST));
        agenda.want(1, now);
        assert_eq!(agenda.take(now), Some(1), "it answered: nothing waits");
    }

    #[test]
    fn conversations_that_were_cut_off_begin_again() {
        let (mut agenda, now) = (Agenda::default(), Instant::now());
        agenda.want(1, now);
        agenda.want(2, now + LONGEST);
        assert_eq!(agenda.take(now), Some(1));
        agenda.resume(now);
        assert_eq!((agenda.take(now), agenda.take(now)), (Some(1), None));
    }

    #[test]
    fn the_part_shortens_a_pause_by_a_quarter_at_most() {
        let (mut agenda, now) = (Agenda::default(), Instant::now());
        for (device, part, millis) in [(1, 0.0, 2000), (2, 1.0, 1500), (3, 7.0, 1500)] {
            agenda.failed(device, now, (FIRST, LONGEST), part);
            agenda.want(device, now);
            let at = now + Duration::from_millis(millis);
            assert!(agenda.by_time.contains(&(at, device)), "{device}");
        }
    }

    #[test]
    fn the_device_whose_time_came_first_is_first() {
        let (mut agenda, now) = (Agenda::default(), Instant::now());
        agenda.want(2, now + FIRST);
        agenda.want(1, now + LONGEST);
        agenda.want(3, now);
        assert_eq!((agenda.take(now + FIRST), agenda.take(now + FIRST)), (Some(3), Some(2)));
        assert_eq!((agenda.take(now + FIRST), agenda.next()), (None, Some(now + LONGEST)));
    }
}
