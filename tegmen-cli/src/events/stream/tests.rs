use super::*;

const TEXT: &str =
    ": \nid: 7\n\nevent: changes\nid: 8\ndata: {\"a\":1}\n\nevent:end\r\ndata:b\r\ndata: c\nretry: 5\n\nid: 9\n";

#[test]
fn events_are_read_from_pieces_of_any_length() {
    let event = |id: Option<&str>, kind: &str, data: &str| Event {
        id: id.map(str::to_owned),
        kind: kind.to_owned(),
        data: data.to_owned(),
    };
    let expected = [event(Some("7"), "", ""), event(Some("8"), "changes", "{\"a\":1}"), event(None, "end", "b\nc")];
    for length in 1..=TEXT.len() {
        let mut events = Events::default();
        let read: Vec<Event> = TEXT.as_bytes().chunks(length).flat_map(|piece| events.read(piece).unwrap()).collect();
        assert_eq!(read, expected, "pieces of {length} bytes");
    }
}

#[test]
fn an_event_without_an_end_takes_bounded_memory() {
    let mut events = Events::default();
    let pieces = std::iter::repeat_n([b'a'; 4096], LONGEST / 4096 + 1);
    assert!(pieces.into_iter().any(|piece| events.read(&piece).is_err()));
    let mut events = Events::default();
    let pieces = std::iter::repeat_n(*b"data: abcdefghi\n", LONGEST / 9 + 1);
    assert!(pieces.into_iter().any(|piece| events.read(&piece).is_err()));
}
