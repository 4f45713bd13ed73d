use super::*;
use crate::delegation::DeviceConfig;
use tegmen_delegation::{CHECK_LEN, DeviceKey, PSK_LEN};
use tegmen_trust::provider::HostCrypto;

/// Returns the state of a device in its first epoch.
fn in_first_epoch() -> InMemory {
    let config = DeviceConfig {
        tags: Vec::new(),
        address: "[fd00::1]:5684".parse().unwrap(),
        scopes: vec![vec!["GET /light".to_owned()]],
        places: 4,
        lifetime: 3600,
    };
    let party = config.party("lamp.example").unwrap();
    let mut known = Known::new(party, config, DeviceKey(Secret::new([1; PSK_LEN])), 0);
    known.present = known.present.next::<HostCrypto>(&Secret::new([2; PSK_LEN])).unwrap();
    InMemory::new::<HostCrypto>(known)
}

#[test]
fn a_row_does_not_acknowledge_a_refusal_that_the_device_has_lost() {
    let mut state = in_first_epoch();
    let tag = state.tag.unwrap();
    state.load_refused(vec![(tag, 1, true), (tag, 2, false)]);
    assert_eq!((state.told(), state.untold()), (1, vec![2]));
    state.is_forgotten();
    // Another server changed the device, so this server reads the rows again.
    state.load_refused(vec![(tag, 1, true), (tag, 2, false), (tag, 3, true)]);
    assert_eq!((state.told(), state.untold()), (1, vec![1, 2]));
}

#[test]
fn only_the_names_of_the_newest_peers_stay_in_memory() {
    let mut state = in_first_epoch();
    let tag = state.tag.unwrap();
    state.remember([0; CHECK_LEN], 0, "of another epoch".to_owned());
    state.remember(tag, 0, String::new());
    assert_eq!(state.names.len(), 0);
    for number in 0..=MOST_NAMES as u32 {
        state.remember(tag, number, format!("peer-{number}"));
    }
    assert_eq!(state.names.len(), MOST_NAMES);
    assert_eq!(state.take_name(1), None, "the connection belongs to the present epoch");
    let mut known = state.known.copy();
    let next = known.present.next::<HostCrypto>(&Secret::new([3; PSK_LEN])).unwrap();
    known.before = Some(std::mem::replace(&mut known.present, next));
    state.adopt::<HostCrypto>(known);
    assert_eq!((state.take_name(0), state.take_name(1)), (None, Some("peer-1".to_owned())));
    assert_eq!((state.take_name(1), state.names.len()), (None, MOST_NAMES - 1));
}
