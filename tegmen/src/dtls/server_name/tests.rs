use super::read;
use crate::buf::Writer;
use proptest::prelude::*;
use std::vec::Vec;

/// Returns a list of names, each after its type and its length.
fn list(names: &[(u8, &[u8])]) -> Vec<u8> {
    let mut list = Vec::new();
    for (kind, name) in names {
        list.push(*kind);
        list.extend((name.len() as u16).to_be_bytes());
        list.extend(*name);
    }
    [&(list.len() as u16).to_be_bytes(), &list[..]].concat()
}

#[test]
fn the_name_of_dns_is_found_among_other_types() {
    assert_eq!(read(&list(&[(0, b"lamp.example")])), Ok(&b"lamp.example"[..]));
    assert_eq!(read(&list(&[(7, b"other"), (0, b"lamp.example"), (9, b"more")])), Ok(&b"lamp.example"[..]));
    assert_eq!(read(&list(&[(7, b"other")])), Ok(&b""[..]));
}

#[test]
fn malformed_lists_are_refused() {
    let good = list(&[(0, b"lamp.example")]);
    for len in 0..good.len() {
        assert!(read(&good[..len]).is_err(), "{len} bytes");
    }
    assert!(read(&[&good[..], &[0]].concat()).is_err());
    assert!(read(&list(&[])).is_err());
    assert!(read(&list(&[(0, b"")])).is_err());
    assert!(read(&list(&[(1, b"")])).is_err());
    assert!(read(&list(&[(0, b"a"), (0, b"b")])).is_err());
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(data in proptest::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(name) = read(&data) {
            prop_assert!(name.is_empty() || data.windows(name.len()).any(|part| part == name));
        }
    }

    #[test]
    fn a_name_that_was_written_is_read(name in proptest::collection::vec(any::<u8>(), 1..255)) {
        let mut room = [0; 300];
        let mut writer = Writer::new(&mut room);
        super::write(&mut writer, &name).unwrap();
        // Behind the type of the extension and its length.
        prop_assert_eq!(read(&writer.written()[4..]), Ok(&name[..]));
    }
}
