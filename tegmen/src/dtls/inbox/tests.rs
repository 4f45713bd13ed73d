use super::*;
use crate::dtls::handshake::{self, HEADER_LEN};
use crate::dtls::roles::Both;
use proptest::collection::vec;
use proptest::prelude::*;
use std::vec::Vec;

const TYPE: MessageType = MessageType::CLIENT_KEY_EXCHANGE;

fn header(total: usize, offset: usize, len: usize) -> [u8; HEADER_LEN] {
    handshake::header(TYPE, total as u32, 2, offset as u32, len as u32)
}

proptest! {
    /// The fragments of one message arrive in any order, with overlaps and repetitions, mixed with forged fragments.
    #[test]
    fn what_comes_together_is_the_message_or_nothing(
        message in vec(any::<u8>(), 2..60),
        pieces in vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<bool>()), 0..60),
        long: bool,
    ) {
        let mut room = [0; 72];
        let mut inbox = Inbox::new();
        let mut honest = true;
        for (start, end, forged) in pieces {
            let start = start.index(message.len());
            let end = start + end.index(message.len() - start + 1);
            let mut piece = message[start..end].to_vec();
            if forged {
                piece.iter_mut().for_each(|byte| *byte ^= 0xff);
                honest &= piece.is_empty();
            }
            let header = header(message.len(), start, piece.len());
            if let Ok(Some(len)) = inbox.add(&mut room, &Fragment { header: &header, body: &piece }, long) {
                prop_assert_eq!(len, message.len());
                // First wins: each byte is that of the message or that of the forger, who never overwrites.
                let whole = &room[..len];
                prop_assert!(whole.iter().zip(&message).all(|(is, was)| is == was || *is == was ^ 0xff));
                prop_assert!(!honest || whole == message);
                honest = true;
            }
        }
        // In each case the message in one piece is accepted, unless a forged fragment came first.
        if honest {
            let header = header(message.len(), 0, message.len());
            let whole = Fragment { header: &header, body: &message };
            prop_assert!(matches!(inbox.add(&mut room, &whole, long), Ok(Some(_))));
        }
    }

    #[test]
    fn what_waits_is_taken_as_it_was_kept(items in vec((any::<bool>(), any::<u16>(), vec(any::<u8>(), 0..40)), 0..12)) {
        let mut room = [0; 128];
        let mut inbox = Inbox::new();
        let mut kept: Vec<(bool, Vec<u8>)> = Vec::new();
        for (record, seq, body) in items {
            let [high, low] = seq.to_be_bytes();
            let header = [0, 0, 0, 0, high, low, 0, 0, 0, 0, 0, body.len() as u8];
            let kind = if record { Held::Record } else { Held::Fragment };
            let bytes = [&header[..], &body].concat();
            let fits = kept.iter().map(|(_, bytes)| bytes.len() + 3).sum::<usize>() + bytes.len() + 3 <= 128;
            let known = kept.iter().any(|(r, b)| *r == record && b.starts_with(&header) && b.len() == bytes.len());
            prop_assert_eq!(inbox.hold(&mut room, kind, &header, &body).is_ok(), fits || known);
            if fits && !known {
                kept.push((record, bytes));
            }
        }
        while let Some((at, len)) = inbox.take_record::<Both>(&mut room) {
            let found = kept.iter().position(|(record, bytes)| *record && bytes[..] == room[at..at + len]);
            kept.remove(found.unwrap());
        }
        for seq in kept.iter().map(|(_, bytes)| u16::from_be_bytes([bytes[4], bytes[5]])).collect::<Vec<_>>() {
            let (at, len) = inbox.take_fragment::<Both>(&mut room, seq).unwrap();
            let found = kept.iter().position(|(record, bytes)| !*record && bytes[..] == room[at..at + len]);
            kept.remove(found.unwrap());
        }
        prop_assert!(kept.is_empty());
    }

    #[test]
    fn any_fragments_in_any_room_are_total(
        room in 0usize..80,
        steps in vec((0u32..100, 0u32..100, vec(any::<u8>(), 0..50), any::<u8>()), 0..50),
        long: bool,
    ) {
        let mut room = std::vec![0; room];
        let mut inbox = Inbox::new();
        for (total, offset, body, step) in steps {
            let total = total.max(offset + body.len() as u32);
            let header = header(total as usize, offset as usize, body.len());
            let piece = Fragment { header: &header, body: &body };
            match step % 8 {
                0 => { let _ = inbox.hold(&mut room, Held::Record, &[step; 12], &body); }
                1 => { let _ = inbox.hold(&mut room, Held::Fragment, &[0, 0, 0, 0, 0, step, 0, 0, 0, 0, 0, 0], &body); }
                2 => { inbox.take_record::<Both>(&mut room); }
                3 => { inbox.take_fragment::<Both>(&mut room, u16::from(step)); }
                4 => inbox.forget_pieces(),
                5 if step > 250 => inbox.clear(),
                _ => if let Ok(Some(len)) = inbox.add(&mut room, &piece, long) { prop_assert!(len <= room.len()) },
            }
        }
    }
}
