//! Cuts the power of a controller at each of its transactions.

use super::world::{Counting, Devices, LAMPS, Moment, Scene, config, member, wait};
use crate::recorder::Recording;
use tegmen_control::group::{Controller, GroupError};
use tegmen_store::StoreError;

/// A change that an operator makes.
#[derive(Clone, Copy, Debug)]
enum Step {
    Create,
    Admit(&'static str, u8, bool),
    Evict(&'static str),
    Rekey,
    Replica(&'static str),
    Retire(&'static str),
}

const STEPS: [Step; 15] = [
    Step::Create,
    Step::Admit("hall", 1, false),
    Step::Admit("switch", 2, true),
    Step::Admit("stairs", 3, false),
    Step::Evict("hall"),
    Step::Replica("north"),
    Step::Rekey,
    Step::Admit("porch", 1, true),
    Step::Admit("switch", 2, true),
    Step::Evict("switch"),
    Step::Replica("south"),
    Step::Admit("cellar", 4, true),
    Step::Retire("north"),
    Step::Admit("attic", 6, true),
    Step::Evict("stairs"),
];

type At<'c> = (&'c Controller<Counting, Recording>, &'c mut Devices);

/// Makes a change. Returns false if the store failed; it is then unknown if the change was made.
fn make(step: Step, (controller, devices): At<'_>) -> bool {
    let made = match step {
        Step::Create => return wait(controller.create(LAMPS, config(), &[])).is_ok(),
        Step::Replica(name) => return wait(controller.replica(LAMPS, name)).is_ok(),
        Step::Admit(name, host, sends) => wait(controller.admit(LAMPS, &member(name, host, sends))),
        Step::Evict(name) => wait(controller.evict(LAMPS, name)),
        Step::Retire(name) => wait(controller.retire(LAMPS, name)),
        Step::Rekey => wait(controller.rekey(LAMPS)),
    };
    let rekeying = match made {
        Ok(rekeying) => rekeying,
        Err(GroupError::Store(StoreError::Unavailable { .. })) => return false,
        Err(error) => panic!("{step:?}: {error}"),
    };
    // A member that is admitted again has left its old keys.
    if let Step::Evict(name) | Step::Admit(name, ..) = step {
        devices.evict(name);
    }
    devices.hear(controller, &rekeying);
    if let Step::Admit(name, ..) = step {
        devices.admit(controller, name);
    }
    true
}

/// Completes a change after a restart of the controller. It is unknown if the change was made, and if its messages were
/// sent.
fn repeat(step: Step, (controller, devices): At<'_>) {
    let is_made = match step {
        Step::Create => wait(controller.show(LAMPS)).is_ok(),
        Step::Evict(name) => {
            let is_gone = !wait(controller.show(LAMPS)).unwrap().members.iter().any(|(known, _)| known == name);
            if is_gone {
                devices.evict(name);
            }
            is_gone
        }
        Step::Retire(name) => !wait(controller.show(LAMPS)).unwrap().replicas.iter().any(|(known, _)| known == name),
        // A second one does no harm: a device asks again.
        Step::Admit(name, ..) => {
            devices.evict(name);
            false
        }
        Step::Rekey | Step::Replica(_) => false,
    };
    if !matches!(step, Step::Create) {
        let first = wait(controller.messages(LAMPS)).unwrap();
        devices.hear(controller, &first);
        let again = wait(controller.messages(LAMPS)).unwrap();
        assert_eq!(again.messages.len(), first.messages.len());
        for (one, other) in again.messages.iter().zip(&first.messages) {
            // Signatures of one content differ.
            let sealed = one.bytes.len().min(31);
            assert_eq!(one.bytes[..sealed], other.bytes[..sealed]);
        }
    }
    assert!(is_made || make(step, (controller, devices)), "{step:?}");
}

#[test]
fn a_controller_that_is_killed_repeats_no_number_and_loses_no_eviction() {
    for moment in [Moment::BeforeCommit, Moment::BeforeAnswer] {
        for cut in 0..STEPS.len() {
            let scene = Scene::new(&format!("crash-{moment:?}-{cut}"));
            let mut devices = Devices::new();
            let mut controller = devices.controller(Counting::new(scene.database(), Some((cut, moment))));
            let mut cuts = 0;
            for step in STEPS {
                if !make(step, (&controller, &mut devices)) {
                    cuts += 1;
                    drop(controller);
                    controller = devices.controller(Counting::new(scene.database(), None));
                    repeat(step, (&controller, &mut devices));
                }
            }
            assert_eq!(cuts, 1, "the power was cut once");
            let report = wait(controller.show(LAMPS)).unwrap();
            let names: Vec<_> = report.members.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, ["attic", "cellar", "porch"]);
            assert!(names.iter().all(|name| devices.has(name)));
            assert_eq!(report.replicas.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["south"]);
        }
    }
}

#[test]
fn a_restart_continues_with_the_same_keys() {
    let scene = Scene::new("restart");
    let mut devices = Devices::new();
    for step in STEPS {
        // The controller restarts before each step.
        let controller = devices.controller(Counting::new(scene.database(), None));
        assert!(make(step, (&controller, &mut devices)), "{step:?}");
    }
}
