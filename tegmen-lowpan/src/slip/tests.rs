use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use std::vec::Vec;

fn encoded(frame: &[u8]) -> Vec<u8> {
    encode(frame).collect()
}

fn decode(line: &[u8], max: usize) -> (Vec<Vec<u8>>, Dropped) {
    let mut storage = std::vec![0; max];
    let mut decoder = Decoder::new(&mut storage);
    let frames = line.iter().filter_map(|&byte| decoder.push(byte).map(|frame| frame.to_vec())).collect();
    (frames, decoder.dropped())
}

#[test]
fn delimiters_and_escapes_are_those_of_rfc_1055() {
    assert_eq!(encoded(&[1, 0xc0, 0xdb, 2]), [0xc0, 1, 0xdb, 0xdc, 0xdb, 0xdd, 2, 0xc0]);
}

#[test]
fn an_oversized_frame_is_dropped_counted_and_the_next_one_arrives() {
    let line = [encoded(&[7; 5]), encoded(&[7; 100]), encoded(&[8; 4])].concat();
    let dropped = Dropped { oversized: 2, malformed: 0 };
    assert_eq!(decode(&line, 4), (std::vec![std::vec![8; 4]], dropped));
}

#[test]
fn a_false_escape_drops_its_frame_only() {
    let dropped = Dropped { oversized: 0, malformed: 2 };
    let line = [END, 1, ESC, 2, 3, END, 4, ESC, END, 5, END];
    assert_eq!(decode(&line, 9), (std::vec![std::vec![5]], dropped));
}

#[test]
fn control_frames_are_never_taken_for_packets() {
    for first in [ASK, ANSWER] {
        assert_ne!(first >> 4, 6);
    }
    let mut packet = [0u8; 60];
    packet[0] = 0x60;
    assert_eq!(Control::parse(&packet).unwrap_err(), NotControl);
}

proptest! {
    #[test]
    fn frames_arrive_as_they_were_sent(frames in vec(vec(any::<u8>(), 1..80), 0..8)) {
        let line = frames.iter().flat_map(encode).collect::<Vec<_>>();
        prop_assert_eq!(decode(&line, 80), (frames, Dropped::default()));
    }

    #[test]
    fn a_frame_after_any_noise_arrives(noise: Vec<u8>, frame in vec(any::<u8>(), 1..40)) {
        let line = [noise, encoded(&frame)].concat();
        let (frames, _) = decode(&line, 40);
        prop_assert_eq!(frames.last(), Some(&frame));
    }

    #[test]
    fn a_writer_gets_the_same_bytes_or_is_full(frame: Vec<u8>, room in 0usize..300) {
        let mut storage = std::vec![0; room];
        let mut writer = Writer::new(&mut storage);
        let line = encoded(&frame);
        prop_assert!(line.len() <= max_encoded_len(frame.len()));
        match write(&frame, &mut writer) {
            Ok(()) => prop_assert_eq!(writer.written(), line),
            Err(Full) => prop_assert!(line.len() > room),
        }
    }

    #[test]
    fn control_frames_are_read_as_written(seed: [u8; 32], ip: [u8; 16], peer: Option<([u8; 16], u16)>) {
        let peer = peer.map(|(ip, port)| Address { ip, port, scope: 0 });
        let start = Control::Start(Start { seed: Secret::new(seed), ip, peer });
        for control in [Control::SeedPlease, start] {
            let mut storage = [0; Control::MAX_LEN];
            let mut writer = Writer::new(&mut storage);
            control.write(&mut writer).unwrap();
            match (Control::parse(writer.written()).unwrap(), control) {
                (Control::SeedPlease, Control::SeedPlease) => {}
                (Control::Start(read), Control::Start(sent)) => {
                    prop_assert_eq!(read.seed.expose(), sent.seed.expose());
                    prop_assert_eq!((read.ip, read.peer), (sent.ip, sent.peer));
                }
                _ => prop_assert!(false),
            }
            let mut longer = writer.written().to_vec();
            longer.push(0);
            prop_assert!(Control::parse(&longer).is_err());
        }
    }

    #[test]
    fn anything_can_be_parsed_as_control(frame in vec(any::<u8>(), 0..80), kind in 0usize..3) {
        let frame = [[b"?\x01", b"!\x01", &[0, 0]][kind].to_vec(), frame].concat();
        let _ = Control::parse(&frame);
    }
}
