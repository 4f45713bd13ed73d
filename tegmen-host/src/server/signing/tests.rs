use super::*;
use crate::server::key_operation::Asked;
use crate::x509::signer::{SignError, SignatureScheme, Signer};
use std::sync::Arc;
use tokio::sync::mpsc::unbounded_channel;

/// A private key that signs nothing.
struct Broken;

impl Signer for Broken {
    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::RSA_PKCS1_SHA256
    }

    fn public_key(&self) -> &[u8] {
        &[]
    }

    fn sign_digest(&self, _: &[u8; 32]) -> Result<Vec<u8>, SignError> {
        Err(SignError("broken".to_owned()))
    }
}

fn peer(number: u32) -> PeerId {
    PeerId::new(number, 2)
}

fn network(number: u8) -> IpAddr {
    IpAddr::from([10, 0, number, 1])
}

#[test]
fn where_too_many_wait_for_a_key_the_network_with_the_most_gives_way() {
    let mut signing = Signing::new(20, unbounded_channel().0, 0);
    let given_up: Vec<_> = (0..100).filter_map(|number| signing.wait(peer(number), network(1))).collect();
    assert_eq!(given_up, (0..84).map(peer).collect::<Vec<_>>(), "the oldest first");
    // The places of one network are left to others, up to as many as it has.
    let given_up: Vec<_> = (100..108).filter_map(|number| signing.wait(peer(number), network(2))).collect();
    assert_eq!(given_up, (84..92).map(peer).collect::<Vec<_>>());
    assert_eq!((signing.waiting(), signing.displaced), (16, 92));
    assert_eq!(signing.wait(peer(200), network(1)), Some(peer(92)), "then it displaces its own");
}

#[test]
fn the_worker_has_two_operations_at_a_time() {
    let (sender, jobs) = channel();
    let mut signing = Signing::new(0, unbounded_channel().0, 0);
    signing.worker = Some(sender);
    (0..4).for_each(|number| assert_eq!(signing.wait(peer(number), network(1)), None));
    while let Some(peer) = signing.next() {
        signing.begin(peer, Operation { key: Arc::new(Broken), asked: Asked::Sign([0; 32]) });
    }
    assert_eq!((jobs.try_iter().count(), signing.waiting()), (2, 2));
    signing.ended();
    assert_eq!(signing.next(), Some(peer(2)));
    assert_eq!((signing.done, signing.displaced), (1, 0));
}
