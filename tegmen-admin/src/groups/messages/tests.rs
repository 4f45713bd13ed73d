//! Tests of the shown configuration of a group.

use super::ShownConfig;
use tegmen_control::group::{GroupConfig, Protocol};

#[test]
fn the_group_id_of_a_group_oscore_group_is_null() {
    let shown = |protocol| {
        let config = GroupConfig { protocol, group_id: Some(1), ..GroupConfig::at("[ff15::1]:5684".parse().unwrap()) };
        ShownConfig::from(&config).group_id
    };
    assert_eq!(shown(Protocol::Axiom), Some(1));
    assert_eq!(shown(Protocol::Oscore), None, "an earlier version stored a GroupID");
}
