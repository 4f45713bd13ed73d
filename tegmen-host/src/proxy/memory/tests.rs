use super::*;

const ALICE: Owner = Owner::Principal(1);
const BOB: Owner = Owner::Principal(2);

/// Returns a memory for `all` responses in total, and `each` responses of one client.
fn memory(all: usize, each: usize) -> Memory {
    let len = Place::bytes(2, 10);
    Memory::new(Bounds { all: all * len, each: each * len })
}

fn put(memory: &mut Memory, key: &[u8; 2], owner: Owner) -> bool {
    memory.put(key, 1, owner, Stored { response: &[7; 10], until: Instant::NEVER })
}

/// Returns the keys of the stored responses. This does not count as a use.
fn keys(memory: &Memory) -> Vec<&[u8]> {
    let mut keys: Vec<_> = memory.by_key.keys().map(|key| &**key).collect();
    keys.sort_unstable();
    keys
}

#[test]
fn the_response_that_was_not_used_for_longest_goes() {
    let mut memory = memory(3, 3);
    for key in [b"aa", b"ab", b"ac"] {
        assert!(put(&mut memory, key, ALICE));
    }
    assert!(memory.find(b"aa").is_some());
    assert!(put(&mut memory, b"ad", BOB));
    assert_eq!(keys(&memory), [b"aa", b"ac", b"ad"]);
}

#[test]
fn a_client_displaces_its_own_responses_where_its_share_ends() {
    let mut memory = memory(4, 2);
    assert!(put(&mut memory, b"aa", BOB));
    for key in [b"ab", b"ac", b"ad", b"ae"] {
        assert!(put(&mut memory, key, ALICE));
    }
    assert_eq!(keys(&memory), [b"aa", b"ad", b"ae"]);
}

#[test]
fn a_response_that_is_longer_than_a_share_is_not_stored() {
    let mut memory = memory(4, 1);
    assert!(put(&mut memory, b"aa", ALICE));
    assert!(!memory.put(b"aa", 1, ALICE, Stored { response: &[7; 11], until: Instant::NEVER }));
    assert_eq!((memory.len(), memory.bytes()), (0, 0));
}

#[test]
fn the_responses_of_a_resource_go_together() {
    let mut memory = memory(9, 9);
    for key in [b"aa", b"ba", b"ab", b"bb", b"ac"] {
        assert!(put(&mut memory, key, ALICE));
    }
    memory.remove_resource(b"a");
    assert_eq!(keys(&memory), [b"ba", b"bb"]);
    memory.remove_resource(b"x");
    memory.remove_resource(b"b");
    assert_eq!((memory.len(), memory.bytes()), (0, 0));
    assert!(memory.owners.is_empty() && memory.resources.is_empty());
}

#[test]
fn the_bytes_never_exceed_the_bounds() {
    let mut memory = memory(8, 5);
    let bounds = memory.bounds;
    let mut state = 1u32;
    for _ in 0..20_000 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let [a, b, owner, what] = state.to_be_bytes().map(|byte| byte % 7);
        match what {
            0 => memory.remove(&[a, b]),
            1 => memory.remove_resource(&[a]),
            2 => drop(memory.find(&[a, b])),
            _ => {
                let response = vec![0; usize::from(b) * 40];
                memory.put(
                    &[a, b],
                    1,
                    Owner::Principal(owner.into()),
                    Stored { response: &response, until: Instant::NEVER },
                );
            }
        }
        assert!(memory.bytes() <= bounds.all);
        assert!(memory.owners.values().all(|share| share.bytes <= bounds.each && share.bytes > 0));
        let sum: usize = memory.places.iter().flatten().map(Place::len).sum();
        assert_eq!((sum, memory.len()), (memory.bytes(), memory.places.iter().flatten().count()));
        assert_eq!(sum, memory.owners.values().map(|share| share.bytes).sum::<usize>());
    }
}
