use super::*;
use proptest::prelude::*;

const ITEMS: [Item; 7] =
    [Item::Private, Item::Share, Item::PeerShare, Item::Agreed, Item::PeerKey, Item::Digest, Item::Ticket];

#[test]
fn what_is_forgotten_leaves_nothing() {
    let mut room = [0; 64];
    put(&mut room, 0, Item::Private, &[7; 20]).unwrap();
    put(&mut room, 0, Item::Share, b"share").unwrap();
    forget(&mut room, Item::Private);
    assert!(!room.contains(&7));
    assert_eq!(get(&room, Item::Share), b"share");
    clear(&mut room);
    assert_eq!(room, [0; 64]);
}

proptest! {
    #[test]
    fn items_are_found_as_they_were_put(
        room_len in 0usize..200,
        front in 0usize..100,
        steps in proptest::collection::vec((0usize..7, proptest::option::of(0usize..60)), 0..40),
    ) {
        let mut room = std::vec![0; room_len];
        let front = front.min(room_len);
        room[..front].fill(0xee);
        let mut known: [std::vec::Vec<u8>; 7] = Default::default();
        for (step, (which, len)) in steps.into_iter().enumerate() {
            match len {
                Some(len) => {
                    let bytes = std::vec![step as u8 | 1; len];
                    known[which] = match put(&mut room, front, ITEMS[which], &bytes) {
                        Ok(()) => bytes,
                        Err(_) => std::vec![],
                    };
                }
                None => {
                    forget(&mut room, ITEMS[which]);
                    known[which].clear();
                }
            }
            for (item, bytes) in ITEMS.into_iter().zip(&known) {
                prop_assert_eq!(get(&room, item), &bytes[..]);
            }
            prop_assert!(room[..front].iter().all(|byte| *byte == 0xee));
        }
        clear(&mut room);
        prop_assert!(room[front..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn any_room_is_total(mut room in proptest::collection::vec(any::<u8>(), 0..60)) {
        for item in ITEMS {
            let _ = get(&room, item);
            let _ = put(&mut room, 3, item, b"123");
            forget(&mut room, item);
        }
        clear(&mut room);
    }
}
