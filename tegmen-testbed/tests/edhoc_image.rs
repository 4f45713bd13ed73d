//! Tests both ends of the session of the image `edhoc`, compiled for this machine. Their messages must be those in
//! `firmware/src/edhoc_messages.rs`.

#[path = "../../firmware/src/edhoc_ends.rs"]
pub mod edhoc_ends;
#[path = "../../firmware/src/edhoc_messages.rs"]
pub mod edhoc_messages;
#[path = "../../firmware/src/points.rs"]
pub mod points;
#[path = "recorded/mod.rs"]
mod recorded;

use edhoc_ends::{INITIATOR, RESPONDER};
use edhoc_messages::{MESSAGE_1, MESSAGE_2, MESSAGE_3, MESSAGE_4};
use recorded::stale;
use tegmen::crypto::Compact;
use tegmen_edhoc::{Initiator, Responder};

#[test]
fn the_messages_of_the_image_are_those_of_both_ends() {
    let [at_i, at_r] = &mut [INITIATOR.seed, RESPONDER.seed].map(|seed| Compact::new([seed; 32]));
    let [of_i, of_r] = [INITIATOR.identity().unwrap(), RESPONDER.identity().unwrap()];
    let (initiator, message_1) = Initiator::begin(at_i, INITIATOR.connection_id().unwrap()).unwrap();
    let begun = Responder::begin(at_r, message_1.as_bytes(), &of_r, |_| RESPONDER.connection_id());
    let (responder, message_2) = begun.unwrap();
    let finished = initiator.finish(at_i, message_2.as_bytes(), &of_i, |_| RESPONDER.credential());
    let (agreed, message_3, last) = finished.unwrap();
    let (same, message_4) = responder.finish(at_r, message_3.as_bytes(), |_| INITIATOR.credential()).unwrap();
    last.verify(at_i, message_4.as_bytes()).unwrap();
    assert_eq!(agreed.master_secret.expose(), same.master_secret.expose());
    let messages = [
        stale(message_1.as_bytes(), "MESSAGE_1", &MESSAGE_1),
        stale(message_2.as_bytes(), "MESSAGE_2", &MESSAGE_2),
        stale(message_3.as_bytes(), "MESSAGE_3", &MESSAGE_3),
        stale(message_4.as_bytes(), "MESSAGE_4", &MESSAGE_4),
    ];
    let stale: String = messages.into_iter().flatten().collect();
    assert!(stale.is_empty(), "edhoc_messages.rs is stale:\n{stale}");
}
