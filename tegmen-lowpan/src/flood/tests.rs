use super::*;
use proptest::prelude::*;

const HEADER: Header =
    Header { hops_left: 3, originator: LinkAddress::Short(1), destination: LinkAddress::BROADCAST, sequence: 9 };

#[test]
fn a_flood_takes_seven_bytes_between_short_addresses() {
    let mut out = [0; 20];
    let mut writer = Writer::new(&mut out);
    HEADER.write(&mut writer).unwrap();
    assert_eq!(writer.written(), [0xb3, 0, 1, 0xff, 0xff, 0x50, 9]);
}

#[test]
fn what_was_seen_is_not_new_until_it_is_forgotten() {
    let now = Instant::from_micros(5);
    let mut seen = Seen::<2>::new();
    assert!(seen.is_new(now, &HEADER));
    assert!(!seen.is_new(now, &HEADER));
    assert!(seen.is_new(now, &Header { sequence: 10, ..HEADER }));
    assert!(seen.is_new(now, &Header { originator: LinkAddress::Short(2), ..HEADER }));
    assert!(seen.is_new(now, &HEADER), "displaced by the two that came after");
    assert!(seen.is_new(now.after(MEMORY), &HEADER));
}

proptest! {
    #[test]
    fn what_was_written_is_read(hops_left: u8, short: (bool, bool), ids: ([u8; 8], [u8; 8]), sequence: u8) {
        let address = |short: bool, id: [u8; 8]| match short {
            true => LinkAddress::Short(u16::from_be_bytes([id[0], id[1]])),
            false => LinkAddress::Extended(id),
        };
        let header = Header {
            hops_left,
            originator: address(short.0, ids.0),
            destination: address(short.1, ids.1),
            sequence,
        };
        let mut out = [0; 24];
        let mut writer = Writer::new(&mut out);
        header.write(&mut writer).unwrap();
        let mut reader = Reader::new(writer.written());
        prop_assert_eq!(Header::read(&mut reader), Ok(Some(header)));
        prop_assert!(reader.rest().is_empty());
    }

    #[test]
    fn anything_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..30)) {
        let _ = Header::read(&mut Reader::new(&bytes));
    }
}
