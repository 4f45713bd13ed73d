use super::*;
use crate::address::Address;
use crate::dtls::association::Rank;
use crate::dtls::state::Step;
use crate::endpoint::PeerArray;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use std::vec::Vec;

#[derive(Clone, Copy, Debug)]
enum Act {
    Insert { path: u8, rank: Rank, established: bool },
    SetPhase(usize, Phase),
    SetRank(usize, Rank),
    SetPath(usize, u8),
    Linger(usize),
    ReleaseHandshake(usize),
    Remove(usize),
    Schedule(usize, u64),
    TakeDue(u64),
}

fn acts() -> impl Strategy<Value = Act> {
    let rank = || select(&[Rank::Stranger, Rank::Authenticated, Rank::Ours][..]);
    let phase = || select(&[Phase::Handshaking, Phase::Established, Phase::Closing][..]);
    prop_oneof![
        (0..PATHS, rank(), any::<bool>()).prop_map(|(path, rank, established)| Act::Insert { path, rank, established }),
        (0..9usize, phase()).prop_map(|(id, phase)| Act::SetPhase(id, phase)),
        (0..9usize, rank()).prop_map(|(id, rank)| Act::SetRank(id, rank)),
        (0..9usize, 0..PATHS).prop_map(|(id, path)| Act::SetPath(id, path)),
        (0..9usize).prop_map(Act::Linger),
        (0..9usize).prop_map(Act::ReleaseHandshake),
        (0..9usize).prop_map(Act::Remove),
        (0..9usize, 0..5u64).prop_map(|(id, at)| Act::Schedule(id, at)),
        (0..5u64).prop_map(Act::TakeDue),
    ]
}

const PATHS: u8 = 3;

fn path(number: u8) -> Path {
    let address = |last| Address { ip: [last; 16], port: 1, scope: 0 };
    Path { local: address(200), remote: address(number) }
}

/// Applies `act` to the table. Returns a text with the result, and with the visible state of the table afterwards.
fn after(table: &mut impl Peers<Attached = u8>, ids: &mut Vec<PeerId>, act: Act) -> std::string::String {
    let id = |at: usize| ids.iter().rev().nth(at).copied().unwrap_or(PeerId::new(0, 0));
    let mut inserted = None;
    let mut due = None;
    match act {
        Act::Insert { path: number, rank, established } => {
            let phase = if established { Phase::Established } else { Phase::Handshaking };
            let (path, is_session) = (&path(number), true);
            inserted = Some(table.insert(&NewPeer { path, rank, phase, is_session, with_handshake: !established }));
        }
        Act::SetPhase(at, phase) => table.set_phase(id(at), phase),
        Act::SetRank(at, rank) => {
            if let Some(peer) = table.peer(id(at)) {
                peer.association.rank = rank;
            }
        }
        Act::SetPath(at, number) => table.set_path(id(at), &path(number)),
        Act::Linger(at) => {
            if let Some(handshake) = table.handshake(id(at)) {
                handshake.state.step = Step::Lingering;
            }
        }
        Act::ReleaseHandshake(at) => table.release_handshake(id(at)),
        Act::Remove(at) => table.remove(id(at)),
        Act::Schedule(at, micros) => table.schedule(id(at), Instant::from_micros(micros)),
        Act::TakeDue(micros) => due = table.take_due(Instant::from_micros(micros)),
    }
    if let Some(Ok(inserted)) = inserted {
        ids.push(inserted.id);
        if let Some(handshake) = table.handshake(inserted.id) {
            handshake.state.step = Step::AwaitClientKeyExchange;
        }
    }
    let found = (0..PATHS)
        .flat_map(|number| [Phase::Handshaking, Phase::Established].map(|phase| table.find(&path(number), phase)));
    let found = found.collect::<Vec<_>>();
    let known = ids.iter().map(|id| {
        let peer = table.peer(*id).map(|peer| (peer.phase, peer.rank(), peer.path));
        (peer, table.attached(*id).is_some(), table.handshake(*id).is_some())
    });
    let known = known.collect::<Vec<_>>();
    let rest = (table.next_alarm(), table.len(), table.can_spare_handshakes());
    std::format!("{inserted:?} {due:?} {found:?} {known:?} {rest:?}")
}

proptest! {
    /// `OnePeer` behaves in the same way as a `PeerArray` with one entry.
    #[test]
    fn one_peer_is_an_array_of_one(acts in vec(acts(), 0..60)) {
        let (mut one, mut array) = (OnePeer::<u8, 8, 8>::new(), PeerArray::<u8, 1, 1, 8, 8>::new());
        let (mut ids, mut ids_of_array) = (Vec::new(), Vec::new());
        for act in acts {
            let seen = after(&mut one, &mut ids, act);
            prop_assert_eq!(seen, after(&mut array, &mut ids_of_array, act));
        }
    }
}
