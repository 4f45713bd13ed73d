use super::*;
use proptest::prelude::*;
use tegmen_base::crypto::RustCrypto;

const BOUNDS: Bounds = Bounds { tokens: 1000, updates: 10, batch: 5 };

fn hash(number: u32) -> TokenHash {
    token_hash::<RustCrypto>(&number.to_be_bytes())
}

fn list() -> RevocationList {
    let mut list = RevocationList::new(BOUNDS);
    list.register("rs");
    list.register("other");
    list
}

fn diff(list: &RevocationList, wanted: u64, cursor: Option<u64>) -> Result<Answer, TrlError> {
    list.answer(Requester::Device("rs"), Query { diff: Some(wanted), cursor })
}

/// Returns three values of an answer with updates: the tokens that the updates add, the cursor, and the flag `more`.
fn added(answer: Result<Answer, TrlError>) -> (Vec<TokenHash>, Option<Cursor>, Option<bool>) {
    let Ok(Answer::Diff { updates, cursor, more }) = answer else { panic!("updates") };
    (updates.into_iter().flat_map(|update| update.added).collect(), cursor, more)
}

#[test]
fn a_hash_has_the_binary_format_of_rfc_6920() {
    let hash = token_hash::<RustCrypto>(b"");
    assert_eq!((hash.len(), hash[0], hash[1], hash[32]), (33, 1, 0xe3, 0x55));
}

/// The input of the hash is the text of the token in base64url, without padding (RFC 9770, section 4.2.1).
#[test]
fn a_hash_is_that_of_the_text_of_the_token() {
    let digest = |text: &str| [&[1][..], &digest::<RustCrypto, DIGEST_LEN>(&[text.as_bytes()])].concat();
    for (token, text) in [(&[0xfb, 0xff][..], "-_8"), (&[0xd0, 0x83, 0x44], "0INE"), (&[0x2a], "Kg")] {
        assert_eq!(token_hash::<RustCrypto>(token), digest(text), "{text}");
    }
}

#[test]
fn a_device_sees_the_tokens_that_concern_it_until_they_expire() {
    let mut list = list();
    assert_eq!(list.revoke(hash(1), 100, &["rs", "client"], 10), Ok(vec!["rs".to_owned()]));
    assert_eq!(list.revoke(hash(2), 50, &["other"], 10), Ok(vec!["other".to_owned()]));
    assert_eq!(list.revoke(hash(1), 100, &["rs"], 10), Ok(vec![]), "it is there already");
    assert_eq!(list.revoke(hash(3), 10, &["rs"], 10), Ok(vec![]), "it is expired");
    let full = |list: &RevocationList, requester| match list.answer(requester, Query::default()) {
        Ok(Answer::Full { hashes, .. }) => hashes.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!(full(&list, Requester::Device("rs")), 1);
    assert_eq!(full(&list, Requester::Administrator), 2);
    assert_eq!(full(&list, Requester::Device("client")), 0, "it is not registered");
    assert_eq!(list.expire(49), Vec::<String>::new());
    assert_eq!(list.expire(50), ["other"]);
    assert!(!list.is_revoked(&hash(2)) && list.is_revoked(&hash(1)));
    assert_eq!(full(&list, Requester::Device("rs")), 1);
    assert_eq!(list.expire(100), ["rs"]);
    let Ok(Answer::Diff { updates, .. }) = diff(&list, 1, None) else { panic!("updates") };
    assert_eq!(updates, [Update { removed: vec![hash(1)], added: vec![] }]);
}

/// Sections 9.2.1 to 9.2.3 of RFC 9770, with MAX_N 10 and MAX_DIFF_BATCH 5 as in appendix B of the RFC.
#[test]
fn a_token_whose_row_cannot_be_read_gets_its_devices_when_the_row_can_be_read() {
    let mut list = list();
    list.add_unreadable(hash(1));
    assert!(list.is_revoked(&hash(1)));
    assert_eq!(list.expired(u64::MAX, 1), Vec::<TokenHash>::new());
    assert_eq!(list.add(hash(1), 100, ["rs".to_owned()]), ["rs"]);
    assert_eq!(added(diff(&list, 0, None)).0, [hash(1)]);
    let Ok(Answer::Diff { updates, .. }) = list.answer(Requester::Administrator, Query { diff: Some(0), cursor: None })
    else {
        panic!("updates")
    };
    assert_eq!(updates.len(), 1, "administrators know the token already");
    list.add_unreadable(hash(1));
    assert_eq!(list.expired(100, 1), [hash(1)]);
}

#[test]
fn a_second_revocation_adds_its_devices_and_never_shortens_the_first() {
    let mut list = list();
    assert_eq!(list.revoke(hash(1), 100, &["other"], 0), Ok(vec!["other".to_owned()]));
    assert_eq!(list.revoke(hash(1), 200, &["rs", "other"], 0), Ok(vec!["rs".to_owned()]));
    assert_eq!(list.revoke(hash(1), 50, &["rs"], 0), Ok(vec![]), "it knows");
    assert_eq!(added(diff(&list, 0, None)).0, [hash(1)]);
    assert_eq!((list.expired(199, 1), list.expired(200, 1)), (vec![], vec![hash(1)]));
    let mut full = RevocationList::new(Bounds { tokens: 1, ..BOUNDS });
    full.revoke(hash(1), 100, &[], 0).expect("room");
    assert_eq!(full.revoke(hash(1), 200, &[], 0), Ok(vec![]), "a token on the list needs no room");
}

#[test]
fn a_cursor_goes_on_where_the_last_answer_ended() {
    let mut list = list();
    assert_eq!(added(diff(&list, 0, None)), (vec![], Some(Cursor::Null), Some(false)));
    assert_eq!(added(diff(&list, 8, Some(7))), (vec![], Some(Cursor::Null), Some(false)), "whatever the cursor");
    for number in 0..8 {
        list.revoke(hash(number), 100, &["rs"], 0).expect("room");
    }
    let hashes = |numbers: &[u32]| numbers.iter().map(|number| hash(*number)).collect::<Vec<_>>();
    assert_eq!(added(diff(&list, 3, None)), (hashes(&[7, 6, 5]), Some(Cursor::At(7)), Some(false)));
    assert_eq!(added(diff(&list, 0, None)), (hashes(&[4, 3, 2, 1, 0]), Some(Cursor::At(4)), Some(true)));
    assert_eq!(added(diff(&list, 0, Some(4))), (hashes(&[7, 6, 5]), Some(Cursor::At(7)), Some(false)));
    assert_eq!(added(diff(&list, 0, Some(7))), (vec![], Some(Cursor::At(7)), Some(false)));
    assert_eq!(added(diff(&list, 6, Some(0))), (hashes(&[6, 5, 4, 3, 2]), Some(Cursor::At(6)), Some(true)));
    let past = TrlError { error: TrlErrorId::OUT_OF_BOUND_CURSOR, cursor: None };
    assert_eq!(diff(&list, 0, Some(8)), Err(past));
    let none = TrlError { error: TrlErrorId::INVALID_VALUE, cursor: Some(Cursor::At(7)) };
    assert_eq!(diff(&list, 0, Some(u64::MAX)), Err(none));
    // Ten are kept: the updates 0 to 3 are lost with four more and six.
    for number in 8..14 {
        list.revoke(hash(number), 100, &["rs"], 0).expect("room");
    }
    assert_eq!(added(diff(&list, 0, Some(2))), (vec![], Some(Cursor::Null), Some(true)), "the whole list is needed");
    assert_eq!(added(diff(&list, 0, Some(3))).1, Some(Cursor::At(8)));
}

#[test]
fn a_full_list_says_so() {
    let mut list = RevocationList::new(Bounds { tokens: 1, ..BOUNDS });
    list.revoke(hash(1), 100, &[], 0).expect("room");
    assert_eq!(list.revoke(hash(2), 100, &[], 0), Err(ListFull));
    list.expire(100);
    assert!(list.revoke(hash(2), 200, &[], 100).is_ok());
}

/// Returns the list of the device, and its cursor.
fn full(list: &RevocationList) -> (BTreeSet<TokenHash>, Option<u64>) {
    match list.answer(Requester::Device("rs"), Query::default()) {
        Ok(Answer::Full { hashes, cursor: Some(Cursor::At(at)) }) => (hashes.into_iter().collect(), Some(at)),
        Ok(Answer::Full { hashes, cursor: Some(Cursor::Null) }) => (hashes.into_iter().collect(), None),
        other => panic!("{other:?}"),
    }
}

proptest! {
    /// A device that requests only updates knows the same list as the server after each request. The device requests
    /// updates at random times, and the maximum number of updates in an answer is random.
    #[test]
    fn updates_lead_to_the_list(
        steps in proptest::collection::vec((0_u32..30, 1_u64..40, any::<bool>(), any::<bool>()), 1..80),
        wanted in prop_oneof![Just(0_u64), 3_u64..5],
    ) {
        let mut list = RevocationList::new(Bounds { updates: 3, batch: 2, ..BOUNDS });
        list.register("rs");
        let (mut known, mut cursor) = full(&list);
        for (now, (number, lifetime, ours, asks)) in (0_u64..).zip(steps) {
            list.expire(now);
            let concerned = if ours { ["rs"] } else { ["other"] };
            list.revoke(hash(number), now + lifetime, &concerned, now).expect("room");
            if !asks {
                continue;
            }
            let mut more = true;
            while more {
                if cursor.is_none() {
                    (known, cursor) = full(&list);
                    break;
                }
                match diff(&list, wanted, cursor).expect("a cursor of the list") {
                    Answer::Diff { updates, cursor: Some(Cursor::At(at)), more: Some(further) } => {
                        for update in updates.into_iter().rev() {
                            known.retain(|hash| !update.removed.contains(hash));
                            known.extend(update.added);
                        }
                        (cursor, more) = (Some(at), further);
                    }
                    Answer::Diff { cursor: Some(Cursor::Null), more: Some(true), .. } => cursor = None,
                    other => panic!("{other:?}"),
                }
            }
            prop_assert_eq!(&known, &full(&list).0);
        }
    }
}

#[test]
fn a_cursor_from_before_a_restart_leads_to_the_whole_list() {
    let mut before = list();
    for number in 0..8 {
        before.revoke(hash(number), 100, &["rs"], 10).expect("space");
    }
    // The list of the restarted server: it knows the tokens, but not in which order they came.
    let mut after = RevocationList::starting_at(BOUNDS, 1000);
    after.register("rs");
    for number in (0..9).rev() {
        after.load(hash(number), 100, ["rs".to_owned()]);
    }
    for cursor in 0..8 {
        assert_eq!(added(diff(&after, 0, Some(cursor))), (vec![], Some(Cursor::Null), Some(true)), "cursor {cursor}");
    }
    let Ok(Answer::Full { hashes, cursor }) = after.answer(Requester::Device("rs"), Query::default()) else {
        panic!("the list")
    };
    assert_eq!((hashes.len(), cursor), (9, Some(Cursor::At(999))));
    assert_eq!(added(diff(&after, 0, Some(999))), (vec![], Some(Cursor::At(999)), Some(false)));
    after.revoke(hash(9), 100, &["rs"], 10).expect("space");
    assert_eq!(added(diff(&after, 0, Some(999))), (vec![hash(9)], Some(Cursor::At(1000)), Some(false)));
}

#[test]
fn a_list_with_space_for_one_token_is_not_half_full_before_it_has_a_token() {
    let mut list = RevocationList::new(Bounds { tokens: 1, ..BOUNDS });
    assert!(!list.is_half_full());
    list.load(hash(1), 100, []);
    assert!(list.is_half_full());
}
