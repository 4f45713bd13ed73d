use super::*;
use proptest::prelude::*;

impl Links for Vec<Link> {
    fn link(&mut self, index: u32) -> &mut Link {
        &mut self[index as usize]
    }
}

proptest! {
    #[test]
    fn every_alarm_rings_once_and_never_early(
        alarms in proptest::collection::vec(0u64..1 << 40, 1..200),
        steps in proptest::collection::vec(0u64..1 << 36, 1..100),
    ) {
        let mut links = vec![Link::new(); alarms.len()];
        let mut wheel = Wheel::new();
        for (index, at) in alarms.iter().enumerate() {
            wheel.set(&mut links, index as u32, Instant::from_micros(*at));
        }
        let (mut now, mut rang) = (0, vec![false; alarms.len()]);
        for step in steps.into_iter().chain([1 << 41]) {
            now += step;
            while let Some(index) = wheel.take_due(&mut links, Instant::from_micros(now)) {
                let index = index as usize;
                prop_assert!(!rang[index]);
                prop_assert!(alarms[index] <= now);
                rang[index] = true;
            }
            let earliest = alarms.iter().zip(&rang).filter(|(_, rang)| !**rang).map(|(at, _)| *at).min();
            match (wheel.next(), earliest) {
                (None, None) => {}
                (Some(next), Some(earliest)) => {
                    // A tick and a bit: alarms ring at the end of the tick that they fall into.
                    prop_assert!(next.as_micros() <= earliest + 2048, "{next:?} {earliest}");
                    prop_assert!(earliest + 2048 > now);
                }
                other => prop_assert!(false, "{other:?}"),
            }
        }
        prop_assert!(rang.iter().all(|rang| *rang));
    }

    #[test]
    fn a_cleared_alarm_never_rings(alarms in proptest::collection::vec(0u64..1 << 30, 2..100)) {
        let mut links = vec![Link::new(); alarms.len()];
        let mut wheel = Wheel::new();
        for (index, at) in alarms.iter().enumerate() {
            wheel.set(&mut links, index as u32, Instant::from_micros(*at));
        }
        for index in (0..alarms.len() as u32).step_by(2) {
            wheel.clear(&mut links, index);
        }
        let mut rang = 0;
        while let Some(index) = wheel.take_due(&mut links, Instant::from_micros(1 << 31)) {
            prop_assert!(index % 2 == 1);
            rang += 1;
        }
        prop_assert_eq!(rang, alarms.len() / 2);
    }
}
