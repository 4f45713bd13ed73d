use super::{KeyTree, MAX_NODES, NONCE_LEN, PathOrigin, Refused};
use tegmen::crypto::SignatureScheme;
use tegmen_trust::provider::HostCrypto;
use tegmen_trust::x509::signer::SoftwareKey;

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

/// Lets `count` new members join in one change, and returns the number of node messages of the change.
fn join(tree: &mut KeyTree, crypto: &mut HostCrypto, signer: &SoftwareKey, count: usize) -> usize {
    let joining: Vec<(u32, bool)> = tree.free_leaves(count).take(count).map(|leaf| (leaf, true)).collect();
    assert_eq!(joining.len(), count);
    let change = tree.admit_all(crypto, &joining).unwrap();
    tree.apply(change);
    tree.messages(crypto, Some(signer)).unwrap().len() - 1
}

#[test]
fn members_that_join_together_have_a_block_of_leaves_so_few_messages_are_necessary() {
    let mut crypto = HostCrypto::from_os().unwrap();
    let (signer, _) = SoftwareKey::draw(SignatureScheme::ECDSA_SECP256R1_SHA256).unwrap();
    let mut tree = KeyTree::new(&mut crypto, 10, 100, 0);
    let messages: Vec<usize> = (0..10).map(|_| join(&mut tree, &mut crypto, &signer, 10)).collect();
    // One message for each subtree of earlier blocks: the number of ones in the binary number of the block.
    assert_eq!(messages, [0, 1, 1, 2, 1, 2, 2, 3, 1, 2]);
}

#[test]
fn all_leaves_get_members_although_blocks_leave_some_free() {
    let mut crypto = HostCrypto::from_os().unwrap();
    let mut tree = KeyTree::new(&mut crypto, 6, 1000, 0);
    let mut members = 0;
    for count in [5, 1, 9, 2, 17, 1, 3, 12, 14] {
        let joining: Vec<(u32, bool)> = tree.free_leaves(count).take(count).map(|leaf| (leaf, true)).collect();
        let change = tree.admit_all(&mut crypto, &joining).unwrap();
        tree.apply(change);
        members += count;
        let mut free: Vec<u32> = tree.free_leaves(count).collect();
        free.sort_unstable();
        free.dedup();
        assert_eq!(free.len(), 64 - members);
        assert!(free.iter().all(|leaf| tree.admit::<HostCrypto>(*leaf).is_err()));
    }
    assert_eq!(members, 64);
    assert!(matches!(tree.join(&mut crypto, true), Err(Refused::Full)));
}

#[test]
fn a_single_member_gets_the_lowest_free_leaf() {
    let mut crypto = HostCrypto::from_os().unwrap();
    let mut tree = KeyTree::new(&mut crypto, 6, 1000, 3);
    let joining: Vec<(u32, bool)> = tree.free_leaves(4).take(4).map(|leaf| (leaf, true)).collect();
    assert_eq!(joining.first(), Some(&(68, true)));
    let change = tree.admit_all(&mut crypto, &joining).unwrap();
    tree.apply(change);
    assert_eq!(tree.join(&mut crypto, true).unwrap().leaf(), Some(67));
}
