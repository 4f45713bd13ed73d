use super::{MAX_NODES, NONCE_LEN, PathOrigin};

#[test]
fn an_origin_is_read_as_it_was_written() {
    for count in [1, 11, MAX_NODES] {
        let origin = PathOrigin { nonce: [0xa5; NONCE_LEN], count };
        let text = String::from(origin.clone());
        assert_eq!(text.len(), 34);
        assert_eq!(PathOrigin::try_from(text), Ok(origin));
    }
}

#[test]
fn an_origin_that_is_cut_or_longer_than_a_path_is_refused() {
    let text = |count: u8| format!("{}{count:02x}", "a5".repeat(NONCE_LEN));
    for wrong in [text(0), text(MAX_NODES + 1), text(1)[2..].to_owned(), text(1) + "00", text(1)[1..].to_owned()] {
        assert!(PathOrigin::try_from(wrong.clone()).is_err(), "{wrong}");
    }
}
