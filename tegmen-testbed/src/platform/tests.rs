use super::*;

#[test]
fn all_platforms_are_read_and_found() {
    let names = Platform::names();
    assert!(names.len() >= 4, "{names:?}");
    assert!(names.iter().all(|name| Platform::find(name).is_some_and(|platform| platform.clock_hz >= 16_000_000)));
    assert!(Platform::find("abacus").is_none());
}

#[test]
fn the_board_of_the_blink_paper_draws_what_it_measured() {
    assert!((behind_resistor(0.764, 5.0, 32.8) - 98.668).abs() < 0.001);
    assert!((behind_resistor(0.645, 5.0, 32.8) - 85.639).abs() < 0.001);
    assert!((Platform::find("z1").unwrap().cpu_active_mw - 98.668).abs() < 1e-9);
}

#[test]
fn energy_is_power_over_time() {
    let platform = Platform {
        about: String::new(),
        clock_hz: 1,
        cpu_active_mw: 10.0,
        board_idle_mw: 0.0,
        tx_ma: 20.0,
        rx_ma: 10.0,
        volts: 3.0,
    };
    let activity = Activity { sending: 1_000, receiving: 2_000, overhearing: 500, ..Activity::default() };
    let energy = platform.energy(&activity, 500, 1_000_000);
    assert_eq!((energy.cpu_uj, energy.tx_uj, energy.rx_uj, energy.overheard_uj), (5.0, 60.0, 60.0, 15.0));
    assert!((energy.rx_always_on_uj - 29_970.0).abs() < 1e-6);
    assert!((energy.radio_by_frame() - 125.0).abs() < 1e-9);
}
