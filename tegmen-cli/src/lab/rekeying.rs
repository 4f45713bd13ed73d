//! Measures for the laboratory how the controller of Tegmen rekeys groups. Rekeying gives all members the keys of a new
//! epoch.

use crate::output::Failure;
use std::time::Instant;
use tegmen::axiom::{KeyPath, Suite};
use tegmen::crypto::Crypto as _;
use tegmen_control::group::{Admitted, KeyTree, Refused, RekeyMessage};
use tegmen_host::group::groupcomm::{GroupKeys, JoinRequest};
use tegmen_host::provider::HostCrypto;
use tegmen_host::x509::signer::{Signer, SoftwareKey};
use tegmen_testbed::papers::axiom::{Change, Eviction, Joining, Rekeying, Repair};

/// Measures evictions in groups of several sizes, a join, and the repair after members have lost messages.
pub(super) fn rekeying() -> Result<Rekeying, Failure> {
    let pair = rcgen::KeyPair::generate().map_err(Failure::new)?;
    let signer = SoftwareKey::from_pem(pair.serialize_pem().as_bytes()).map_err(Failure::new)?;
    let controller = Controller { signer: &signer, public_key: rcgen::PublicKeyData::subject_public_key_info(&pair) };
    controller.rekeying().map_err(Failure::new)
}

/// A controller, with the key that signs its messages.
struct Controller<'s> {
    signer: &'s dyn Signer,
    public_key: Vec<u8>,
}

impl Controller<'_> {
    fn rekeying(&self) -> Result<Rekeying, Refused> {
        Ok(Rekeying {
            evictions: SIZES.iter().map(|members| self.eviction(*members)).collect::<Result<_, _>>()?,
            joining: self.joining()?,
            repairs: LOSSES.iter().map(|loss| self.repair(*loss)).collect::<Result<_, _>>()?,
            answer: self.answer(&tree(&mut HostCrypto::new([7; 32], 0), WITH_LOSS), first_leaf(WITH_LOSS))?,
        })
    }

    fn eviction(&self, members: u32) -> Result<Eviction, Refused> {
        Ok(Eviction {
            members,
            key_tree: evict(members, Some(self.signer), ROUNDS)?,
            point_to_point: evict(members, None, 1)?,
        })
    }

    /// Admits a member to a group. After the admission the group has as many members as the group in the Axiom paper.
    fn joining(&self) -> Result<Joining, Refused> {
        let mut crypto = HostCrypto::new([7; 32], 0);
        let mut tree = KeyTree::new(&mut crypto, levels(SIZES[0]), EPOCHS, SIZES[0] - 1);
        let request = JoinRequest {
            group: "lamps".into(),
            sends: false,
            control_uri: Some("coap://[fd00::2]/rekey".into()),
            checks_signatures: true,
            ..JoinRequest::default()
        };
        let change = tree.join(&mut crypto, true)?;
        let leaf = change.leaf().ok_or(Refused::NoMember)?;
        tree.apply(change);
        let messages = tree.messages(&mut crypto, Some(self.signer))?;
        Ok(Joining {
            session: [request.encode().to_vec(), self.answer(&tree, leaf)?],
            messages: messages.into_iter().map(|message| message.bytes).collect(),
        })
    }

    /// Evicts a member of a group. Each other member loses `loss` percent of the messages. Returns how many members
    /// miss the new epoch.
    fn repair(&self, loss: u8) -> Result<Repair, Refused> {
        let mut crypto = HostCrypto::new([loss; 32], 0);
        let mut tree = tree(&mut crypto, WITH_LOSS);
        let leaves = first_leaf(WITH_LOSS) + 1..first_leaf(WITH_LOSS) + WITH_LOSS;
        let admitted = leaves.map(|leaf| tree.admit::<HostCrypto>(leaf)).collect::<Result<Vec<_>, _>>()?;
        let change = tree.evict(&mut crypto, first_leaf(WITH_LOSS))?;
        tree.apply(change);
        let messages = tree.messages(&mut crypto, Some(self.signer))?;
        let alone = tree.messages(&mut crypto, None)?;
        let mut members = Members {
            admitted: &admitted,
            epoch: tree.epoch(),
            public_key: &self.public_key,
            link: Link { crypto, loss },
        };
        let missed = COPIES.iter().map(|copies| (*copies, members.missed(&messages, |_| *copies))).collect();
        // Retransmissions of the MAC carry what goes to one member alone.
        let copies = |message: &RekeyMessage| if message.to.is_some() { MAC_ATTEMPTS } else { 1 };
        let missed_point_to_point = members.missed(&alone, copies);
        let messages = messages.len() as u32;
        Ok(Repair { loss, members: WITH_LOSS - 1, messages, missed, missed_point_to_point })
    }

    /// Returns the answer of the controller (RFC 9594) to the member `leaf`, which joins or asks for its keys.
    fn answer(&self, tree: &KeyTree, leaf: u32) -> Result<Vec<u8>, Refused> {
        let admitted = tree.admit::<HostCrypto>(leaf)?;
        let admission = admitted.admission();
        let keys = GroupKeys {
            group: *admission.group,
            group_id: 1,
            address: ([0xff; 16], 5683),
            suite: Suite::Ccm,
            senders: 4,
            sender_id: None,
            own_address: [0xfd; 16],
            late: Vec::new(),
            epoch: admission.epoch,
            chain: *admission.chain,
            secret: tegmen::secret::Secret::new(*admission.secret),
            randoms: [[0; 32]; 2],
            leaf: admission.leaf,
            path: admission.path.to_vec().into(),
            controller: Some(self.public_key.clone()),
            signature: None,
            creds: None,
        };
        Ok(keys.encode().to_vec())
    }
}

/// Evicts members from a group one after the other. Returns the messages of the first eviction and the mean time of an
/// eviction. Without `signer`, each remaining member gets separate messages.
fn evict(members: u32, signer: Option<&dyn Signer>, rounds: u32) -> Result<Change, Refused> {
    let mut crypto = HostCrypto::new([7; 32], 0);
    let mut tree = tree(&mut crypto, members);
    let rounds = rounds.min(members / 2);
    let mut first: Option<Vec<RekeyMessage>> = None;
    let start = Instant::now();
    for round in 0..rounds {
        let change = tree.evict(&mut crypto, first_leaf(members) + round)?;
        tree.apply(change);
        let messages = tree.messages(&mut crypto, signer)?;
        first.get_or_insert(messages);
    }
    let milliseconds = start.elapsed().as_secs_f64() * 1e3 / f64::from(rounds);
    let messages = first.into_iter().flatten().map(|message| message.bytes).collect();
    Ok(Change { messages, milliseconds })
}

/// Members that receive messages over links with losses.
struct Members<'m> {
    admitted: &'m [Admitted],
    /// The number of the new epoch. The messages contain the keys of this epoch.
    epoch: u16,
    public_key: &'m [u8],
    link: Link,
}

impl Members<'_> {
    /// Returns the number of members that do not have the keys of the new epoch after these messages. `copies` returns
    /// how many times a message is sent.
    fn missed(&mut self, messages: &[RekeyMessage], copies: impl Fn(&RekeyMessage) -> u8) -> u32 {
        let mut crypto = HostCrypto::new([1; 32], 0);
        let mut missed = 0;
        for admitted in self.admitted {
            let mut keys = KeyPath::<PATH>::new(&admitted.admission()).expect("a path of a member");
            for message in messages {
                let is_for_another = message.to.is_some_and(|leaf| leaf != admitted.admission().leaf);
                if !is_for_another && self.link.carries(copies(message)) {
                    // Most messages to the group are for other members.
                    let _ = keys.open(&mut crypto, Some(self.public_key), &message.bytes);
                }
            }
            missed += u32::from(keys.epoch() != self.epoch);
        }
        missed
    }
}

/// A link that loses messages.
struct Link {
    crypto: HostCrypto,
    /// The share of lost messages in percent.
    loss: u8,
}

impl Link {
    /// Returns true if at least one of the copies of a message arrives.
    fn carries(&mut self, copies: u8) -> bool {
        let mut drawn = [0; 2];
        (0..copies).any(|_| {
            self.crypto.random(&mut drawn);
            u32::from(u16::from_be_bytes(drawn)) * 100 >= u32::from(self.loss) << 16
        })
    }
}

fn tree(crypto: &mut HostCrypto, members: u32) -> KeyTree {
    KeyTree::new(crypto, levels(members), EPOCHS, members)
}

fn first_leaf(members: u32) -> u32 {
    1 << levels(members)
}

fn levels(members: u32) -> u8 {
    members.next_power_of_two().ilog2() as u8
}

/// The sizes of the groups from which members are evicted one after the other, each as a number of members.
const SIZES: [u32; 8] = [4, 10, 30, 100, 255, 1000, 10_000, 100_000];
/// Number of evictions whose mean duration is computed.
const ROUNDS: u32 = 20;
/// Number of elements of the hash chain.
const EPOCHS: u16 = 1000;
/// Shares of messages that members lose, in percent.
const LOSSES: [u8; 3] = [1, 5, 20];
/// Number of members of the group in the measurement with lost messages.
const WITH_LOSS: u32 = 1000;
/// Number of keys on the path from the leaf of a member to the root of the key tree, in a group of [`WITH_LOSS`]
/// members.
const PATH: usize = 11;
/// The numbers of times that each message to the group is sent, one for each measurement. The last number is the
/// default of Tegmen (`rekey-repetitions`).
const COPIES: [u8; 3] = [1, 2, 4];
/// Number of transmissions of a frame by the MAC: the first transmission and its retransmissions (IEEE 802.15.4:
/// macMaxFrameRetries).
const MAC_ATTEMPTS: u8 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use tegmen_control::group::Pace;
    use tegmen_testbed::figure::{DIFFERS, table};
    use tegmen_testbed::papers::axiom::{self, Effort};

    #[test]
    fn the_plan_axiom_rekeys_with_the_controller_of_the_product() {
        let rekeying = rekeying().expect("randomness");
        assert_eq!(COPIES[2], Pace::default().repetitions + 1);
        for Repair { loss, members, missed, missed_point_to_point, .. } in &rekeying.repairs {
            let loss = f64::from(*loss) / 100.0;
            let near = |missed: u32, share: f64| (f64::from(missed) - f64::from(*members) * share).abs() < 50.0;
            // A member needs two messages, and one of them comes with retransmissions of the MAC.
            for (copies, missed) in missed {
                let both = (1.0 - loss.powi(i32::from(*copies))).powi(2);
                assert!(near(*missed, 1.0 - both), "{copies} copies: {:?}", rekeying.repairs);
            }
            assert!(near(*missed_point_to_point, loss), "{:?}", rekeying.repairs);
            assert!(missed.is_sorted_by(|one, next| one.1 >= next.1), "{:?}", rekeying.repairs);
        }
        let effort = Effort { seeds: 1, seeds_of_large: 1, listeners: &[3] };
        let figures = axiom::figures(&rekeying, effort, |_, _| {});
        let judged = figures.iter().filter(|figure| !figure.id.ends_with("/time"));
        assert!(judged.clone().all(|figure| figure.verdict != DIFFERS), "{}", table(&figures));
    }
}
