use super::*;

/// Adds `count` members that wait. Returns true if all waiting members are then to be admitted.
fn add(state: &mut State, count: usize, now: Instant) -> bool {
    (0..count).fold(false, |_, _| state.add(now))
}

fn is_due(state: &State, now: Instant) -> bool {
    state.pause_end(now).is_none()
}

/// Returns the state after `count` members have joined at the same time.
fn after_crowd(count: usize, now: Instant) -> State {
    let mut state = State::default();
    add(&mut state, count, now);
    state.begin(count, 0);
    state.end(count, now);
    state
}

#[test]
fn a_member_that_joins_alone_does_not_wait() {
    let (mut state, now) = (State::default(), Instant::now());
    for _ in 0..100 {
        state.add(now);
        assert!(is_due(&state, now));
        state.begin(1, 0);
        state.end(1, now);
    }
}

#[test]
fn members_after_a_crowd_wait_for_as_many_as_the_crowd_had() {
    let now = Instant::now();
    let mut state = after_crowd(100, now);
    assert!(!add(&mut state, 99, now));
    assert!(!is_due(&state, now));
    assert!(state.add(now));
    assert!(is_due(&state, now));
    let mut state = after_crowd(3 * MOST_GATHERED, now);
    assert!(!add(&mut state, MOST_GATHERED - 1, now));
    assert!(state.add(now), "a full crowd does not wait for more joins");
}

#[test]
fn a_member_that_joins_alone_after_a_crowd_does_not_wait() {
    let now = Instant::now();
    let mut state = after_crowd(100, now);
    let later = now + Duration::from_secs(3600);
    state.add(later);
    assert!(is_due(&state, later));
    // A crowd whose admissions take long is not over.
    let mut state = after_crowd(100, now);
    state.add(now);
    state.begin(1, 0);
    state.add(later);
    assert!(!is_due(&state, later));
}

#[test]
fn groups_whose_admissions_end_one_after_the_other_are_one_crowd() {
    let (mut state, now) = (State::default(), Instant::now());
    add(&mut state, 100, now);
    (0..10).for_each(|_| state.begin(10, 0));
    for _ in 0..10 {
        assert!(!state.end(10, now));
        // Some members of the next crowd arrive before the last group has its admissions.
        add(&mut state, 5, now);
    }
    assert!(!add(&mut state, 49, now));
    assert!(state.add(now));
}

#[test]
fn a_call_that_was_dropped_does_not_wait() {
    let now = Instant::now();
    let mut state = after_crowd(100, now);
    add(&mut state, 100, now);
    state.begin(90, 10);
    state.end(90, now);
    assert!(!add(&mut state, 89, now));
    assert!(state.add(now));
}

#[test]
fn no_further_member_is_expected_after_a_pause() {
    let begin = Instant::now();
    let after = |millis| begin + Duration::from_millis(millis);
    let mut state = after_crowd(100, begin);
    state.add(after(1));
    assert_eq!(state.pause_end(after(2)), Some(after(1) + PAUSE));
    state.add(after(3));
    assert_eq!(state.pause_end(after(3)), Some(after(3) + PAUSE));
    // The members in progress get their answers first.
    state.begin(1, 0);
    assert_eq!(state.pause_end(after(100)), Some(after(100) + PAUSE));
}

#[tokio::test]
async fn all_calls_end_after_a_pause_and_the_next_member_does_not_wait() {
    let gathering = Gathering { state: Mutex::new(after_crowd(100, Instant::now())), due: Notify::new() };
    gathering.add();
    tokio::join!(gathering.due(), gathering.due());
    assert!(!gathering.lock().is_watched);
    drop(gathering.begin(1, 0));
    gathering.add();
    assert!(is_due(&gathering.lock(), Instant::now()));
}

#[tokio::test]
async fn a_waiting_call_ends_when_enough_members_wait() {
    let gathering = Gathering { state: Mutex::new(after_crowd(10, Instant::now())), due: Notify::new() };
    // While members are in progress, a pause does not end the wait.
    let in_progress = gathering.begin(0, 0);
    let all = async {
        (0..10).for_each(|_| gathering.add());
        drop(in_progress);
    };
    tokio::join!(gathering.due(), all);
}
