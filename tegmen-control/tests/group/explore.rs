//! Explores all sequences of actions of two members and a controller, up to a maximum length. The actions are requests,
//! deliveries, restarts, evictions, joins and epochs, in each order. A message may arrive at any time, any number of
//! times, or never.

use crate::scene::{Action, Mutant, Scene, Violation};
use std::collections::HashSet;
use tegmen::axiom::Suite;

/// The actions that lead from the first state to another state, in their order.
type Path = Vec<Action>;

/// The result of an exploration.
struct Explored {
    states: usize,
    depth: usize,
    /// The first violation, with a shortest sequence of actions that leads to it; `None` if there is no violation.
    found: Option<(Path, Violation)>,
}

fn scene(mutant: Mutant) -> Scene {
    Scene::new((1, Suite::Ccm, mutant), (1, 2, 8), None)
}

/// Executes the actions of a path. Returns the scene after the path, and the number of messages before the last action.
fn reach(mutant: Mutant, path: &[Action]) -> (Scene, usize) {
    let (mut scene, mut before) = (scene(mutant), 0);
    for action in path {
        before = scene.sent.len();
        assert_eq!(scene.act(*action), Ok(true), "{path:?}");
    }
    (scene, before)
}

/// Returns the actions that can follow in this state.
fn actions(scene: &Scene) -> Vec<Action> {
    let mut all = vec![Action::Rekey];
    for who in 0..scene.devices.len() {
        all.extend([
            Action::Ask(who),
            Action::Restart(who),
            Action::CatchUp(who),
            Action::Evict(who),
            Action::Join(who),
        ]);
        all.extend((0..scene.sent.len()).map(|at| Action::Deliver(at, who)));
    }
    all
}

/// Returns two values: the party at which an action happens, and the parties whose states the action reads or changes.
/// The devices are the parties 0 and 1, and the controller is the party 2.
fn ends(action: Action) -> (usize, &'static [usize]) {
    const DEVICE: [[usize; 1]; 2] = [[0], [1]];
    const BOTH: [[usize; 2]; 2] = [[0, 2], [1, 2]];
    match action {
        Action::Ask(who) | Action::Deliver(_, who) | Action::Forget(who) => (who, &DEVICE[who]),
        Action::Restart(who) | Action::CatchUp(who) => (who, &BOTH[who]),
        Action::Evict(who) | Action::Join(who) => (2, &BOTH[who]),
        Action::Rekey => (2, &[2]),
    }
}

/// Returns true if `action` after `last` need not be explored: the two actions lead to the same state in the other
/// order, and the exploration tries that order. `before` is the number of messages before `last`.
fn comes_first(action: Action, last: Action, before: usize) -> bool {
    let ((end, touched), (last_end, last_touched)) = (ends(action), ends(last));
    let needs_message = matches!(action, Action::Deliver(at, _) if at >= before);
    end < last_end && !needs_message && touched.iter().all(|end| !last_touched.contains(end))
}

/// Explores the states by a breadth-first search. From each state the search tries each action once. Two states are
/// equal if all devices and the controller have the same histories. If two actions lead to the same state in both
/// orders, the search tries only one order.
fn explore(mutant: Mutant, depth: usize) -> Explored {
    explore_with(mutant, depth, comes_first)
}

/// Explores as [`explore`] does, with another rule for the actions that are left out. `skip` receives an action, the
/// last action of the path, and the number of messages before this last action. It returns true if the search must not
/// try the action.
fn explore_with(mutant: Mutant, depth: usize, skip: impl Fn(Action, Action, usize) -> bool) -> Explored {
    let first = scene(mutant);
    let mut seen = HashSet::from([first.state()]);
    let mut frontier: Vec<Path> = vec![Vec::new()];
    for level in 0..depth {
        let mut next = Vec::new();
        for path in frontier {
            let (mut scene, before) = reach(mutant, &path);
            for action in actions(&scene) {
                if path.last().is_some_and(|last| skip(action, *last, before)) {
                    continue;
                }
                let longer = || path.iter().copied().chain([action]).collect::<Path>();
                match scene.act(action) {
                    Err(violation) => {
                        let found = Some((longer(), violation));
                        return Explored { states: seen.len(), depth: level + 1, found };
                    }
                    // The message was dropped, and has changed nothing.
                    Ok(false) => {}
                    Ok(true) => {
                        if seen.insert(scene.state()) {
                            next.push(longer());
                        }
                        scene = reach(mutant, &path).0;
                    }
                }
            }
        }
        frontier = next;
    }
    Explored { states: seen.len(), depth, found: None }
}

#[test]
fn two_members_and_a_controller_to_a_depth() {
    let depth = std::env::var("TEGMEN_DEPTH").ok().and_then(|n| n.parse().ok()).unwrap_or(5);
    let Explored { states, depth, found } = explore(Mutant::None, depth);
    println!("explored {states} states to depth {depth}");
    assert_eq!(found, None);
}

#[test]
fn the_exploration_finds_each_mutant() {
    for mutant in [Mutant::NoStorage, Mutant::NoProof, Mutant::KeepsNodes] {
        let Explored { states, depth, found } = explore(mutant, 6);
        println!("{mutant:?}: {found:?} after {states} states at depth {depth}");
        assert!(found.is_some(), "{mutant:?}");
    }
}

#[test]
fn the_order_that_is_not_tried_leads_to_no_other_state() {
    let (one, both) = (explore(Mutant::None, 3), explore_with(Mutant::None, 3, |_, _, _| false));
    assert_eq!(one.states, both.states);
}
