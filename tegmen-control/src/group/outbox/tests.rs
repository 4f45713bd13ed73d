use super::*;

const PACE: Pace = Pace { interval: Duration::ZERO, repetitions: 2, wait: Duration::from_secs(2) };

/// Returns a change with `messages` messages to the address of the group. Each message consists of the epoch and a
/// number.
fn rekeying(epoch: u16, messages: u8) -> Rekeying {
    let to = "[ff15::1]:5684".parse().unwrap();
    let message = |number| Outgoing { to, bytes: vec![epoch as u8, number] };
    Rekeying { epoch, messages: (0..messages).map(message).collect(), warning: None }
}

/// An outbox and a clock.
struct World {
    outbox: Outbox,
    now: Instant,
}

impl World {
    fn new() -> Self {
        Self { outbox: Outbox::default(), now: Instant::now() }
    }

    fn put(&self, group: &str, epoch: u16, messages: u8) {
        self.outbox.put(group, &rekeying(epoch, messages), self.now);
    }

    /// Removes all messages from the outbox that are due now. Reports to the outbox that the system sent these messages
    /// if `is_sent` is true, and that the system refused them if it is false. Returns the group, the epoch and the
    /// number of each message.
    fn send(&self, is_sent: bool) -> Vec<(String, u8, u8)> {
        let mut sent = Vec::new();
        while let Next::Message(due) = self.outbox.next(self.now) {
            self.outbox.sent(&due, is_sent, &PACE, self.now);
            sent.push((due.group.clone(), due.message.bytes[0], due.message.bytes[1]));
        }
        sent
    }

    /// Returns the seconds until the next work; `None` if the outbox is empty.
    fn next(&self) -> Option<u64> {
        match self.outbox.next(self.now) {
            Next::Nothing(until) => until.map(|until| (until - self.now).as_secs()),
            _ => panic!("something is due"),
        }
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }
}

fn of(group: &str, messages: &[(u8, u8)]) -> Vec<(String, u8, u8)> {
    messages.iter().map(|(epoch, number)| (group.to_owned(), *epoch, *number)).collect()
}

#[test]
fn messages_are_sent_in_order_and_again_at_growing_intervals() {
    let mut world = World::new();
    world.put("lamps", 2, 3);
    let all = of("lamps", &[(2, 0), (2, 1), (2, 2)]);
    assert_eq!((world.send(true), world.next()), (all.clone(), Some(2)));
    world.pass(2);
    assert_eq!((world.send(true), world.next()), (all.clone(), Some(4)));
    world.pass(4);
    assert_eq!((world.send(true), world.next()), (all, None));
    assert_eq!(world.outbox.counts(), GroupCounts { epochs: 0, messages: 9, failures: 0 });
}

#[test]
fn a_later_change_follows_the_first_time_of_one_and_replaces_its_repetitions() {
    let mut world = World::new();
    world.put("lamps", 2, 2);
    world.put("lamps", 3, 1);
    assert_eq!(world.send(true), of("lamps", &[(2, 0), (2, 1), (3, 0)]), "no member misses the epoch 2");
    world.pass(2);
    // While a repetition is on its way.
    let Next::Message(due) = world.outbox.next(world.now) else { panic!("a repetition") };
    world.put("lamps", 4, 2);
    world.outbox.sent(&due, true, &PACE, world.now);
    assert_eq!(world.send(true), of("lamps", &[(4, 0), (4, 1)]));
    world.pass(2);
    assert_eq!(world.send(true), of("lamps", &[(4, 0), (4, 1)]));
}

#[test]
fn groups_take_turns() {
    let world = World::new();
    world.put("lamps", 2, 2);
    world.put("doors", 7, 2);
    let sent: Vec<_> = world.send(true).into_iter().map(|(group, ..)| group).collect();
    assert_eq!(sent, ["lamps", "doors", "lamps", "doors"]);
}

#[test]
fn messages_that_the_system_refuses_are_sent_until_it_takes_them() {
    let mut world = World::new();
    world.put("lamps", 2, 1);
    for _ in 0..10 {
        assert_eq!((world.send(false).len(), world.next()), (1, Some(10)));
        world.pass(10);
    }
    assert_eq!((world.send(true).len(), world.next()), (1, Some(4)));
    assert_eq!(world.outbox.counts(), GroupCounts { epochs: 0, messages: 1, failures: 10 });
    // A later change does not wait for it.
    world.put("doors", 2, 1);
    world.put("doors", 3, 1);
    assert_eq!(world.send(false), of("doors", &[(2, 0), (3, 0)]));
    // A member that cannot be reached alone is no reason.
    let mut alone = rekeying(2, 1);
    alone.messages[0].to = "[fd00::1]:5684".parse().unwrap();
    world.outbox.put("gates", &alone, world.now);
    assert_eq!((world.send(false).len(), world.next()), (1, Some(2)));
}

#[test]
fn more_changes_than_wait_leave_out_the_oldest() {
    let world = World::new();
    for epoch in 0..=MOST_CHANGES as u16 {
        world.put("lamps", epoch, 1);
    }
    let sent = world.send(true);
    assert_eq!((sent.len(), &sent[0]), (MOST_CHANGES, &("lamps".to_owned(), 1, 0)));
    assert_eq!(world.outbox.counts().failures, 1);
}

#[test]
fn more_bytes_than_wait_leave_out_the_oldest_changes_and_never_the_newest() {
    let world = World::new();
    let large = |epoch, bytes| {
        let mut large = rekeying(epoch, 2);
        large.messages[1].bytes.resize(bytes, 0);
        large
    };
    // A change that is larger than the limit, as in a group with a message for each member.
    world.outbox.put("lamps", &large(2, MOST_BYTES), world.now);
    assert_eq!(world.outbox.counts().failures, 0);
    let mut waiting = waits(world.outbox.first_sent("lamps", 2));
    assert!(!waiting.is_over());
    for (epoch, bytes) in [(3, MOST_BYTES / 4), (4, MOST_BYTES / 2), (5, MOST_BYTES / 8)] {
        world.outbox.put("lamps", &large(epoch, bytes), world.now);
        assert_eq!(world.outbox.counts().failures, 1, "the first change is left out");
    }
    assert!(waiting.is_over(), "nobody waits for messages that are not sent");
    // Another group has space of its own.
    world.outbox.put("doors", &large(2, MOST_BYTES / 2), world.now);
    world.outbox.put("lamps", &large(6, MOST_BYTES / 2), world.now);
    assert_eq!(world.outbox.counts().failures, 3, "two more");
    let sent: Vec<_> = world.send(true).into_iter().filter(|(_, _, number)| *number == 0).collect();
    let epochs = |name| sent.iter().filter(|(group, ..)| group == name).map(|(_, epoch, _)| *epoch).collect::<Vec<_>>();
    assert_eq!((epochs("lamps"), epochs("doors")), (vec![5, 6], vec![2]));
}

#[test]
fn a_group_is_resumed_at_its_time_and_a_change_replaces_that() {
    let mut world = World::new();
    world.outbox.resume("lamps", world.now + Duration::from_secs(10));
    assert_eq!(world.next(), Some(10));
    world.pass(10);
    assert!(matches!(world.outbox.next(world.now), Next::FromRows(group) if group == "lamps"));
    assert_eq!(world.next(), None, "its owner puts the messages");
    // The first epoch has none.
    world.put("lamps", 1, 0);
    assert_eq!(world.next(), None);
    world.outbox.resume("lamps", world.now);
    world.put("lamps", 2, 1);
    assert_eq!(world.send(true), of("lamps", &[(2, 0)]));
}

#[test]
fn nothing_is_sent_for_a_group_that_is_forgotten() {
    let world = World::new();
    world.put("lamps", 2, 2);
    world.put("doors", 2, 1);
    let Next::Message(due) = world.outbox.next(world.now) else { panic!("a message") };
    let mut waiting = waits(world.outbox.first_sent("lamps", 2));
    assert!(!waiting.is_over());
    world.outbox.forget("lamps");
    assert!(waiting.is_over());
    // The first message is on its way.
    world.outbox.sent(&due, true, &PACE, world.now);
    assert_eq!(world.send(true), of("doors", &[(2, 0)]));
    world.outbox.resume("lamps", world.now);
    world.outbox.forget("lamps");
    assert_eq!(world.next(), Some(2), "the repetition of the other group");
    // Another group of this name.
    world.put("lamps", 2, 1);
    assert_eq!(world.send(true), of("lamps", &[(2, 0)]));
}

#[tokio::test]
async fn one_that_waits_goes_on_when_all_were_sent_once() {
    let world = World::new();
    world.outbox.first_sent("lamps", 2).await;
    world.put("lamps", 2, 2);
    let mut waiting = waits(world.outbox.first_sent("lamps", 2));
    assert!(!waiting.is_over());
    let Next::Message(first) = world.outbox.next(world.now) else { panic!("a message") };
    world.outbox.sent(&first, true, &PACE, world.now);
    assert!(!waiting.is_over());
    world.send(true);
    assert!(waiting.is_over());
}

/// A future that the test polls step by step.
struct Waits<F>(std::pin::Pin<Box<F>>);

fn waits<F: Future<Output = ()>>(future: F) -> Waits<F> {
    Waits(Box::pin(future))
}

impl<F: Future<Output = ()>> Waits<F> {
    fn is_over(&mut self) -> bool {
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        self.0.as_mut().poll(&mut cx).is_ready()
    }
}
