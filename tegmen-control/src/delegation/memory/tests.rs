use super::*;
use crate::delegation::DeviceConfig;
use tegmen_delegation::{DeviceKey, PSK_LEN};
use tegmen_trust::provider::HostCrypto;

#[test]
fn a_row_does_not_acknowledge_a_refusal_that_the_device_has_lost() {
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
    let mut state = InMemory::new::<HostCrypto>(known);
    let tag = state.tag.unwrap();
    state.load_refused(vec![(tag, 1, true), (tag, 2, false)]);
    assert_eq!((state.told(), state.untold()), (1, vec![2]));
    state.is_forgotten();
    // Another server changed the device, so this server reads the rows again.
    state.load_refused(vec![(tag, 1, true), (tag, 2, false), (tag, 3, true)]);
    assert_eq!((state.told(), state.untold()), (1, vec![1, 2]));
}
