//! All that can happen to two members and a controller, to a depth: each order of requests, deliveries, restarts, evictions, joins
//! and epochs. A message may arrive at any time, again and again, or never.

use crate::scene::{Action, Mutant, Scene, Violation};
use std::collections::HashSet;
use tegmen::axiom::Suite;

/// Actions from the beginning.
type Path = Vec<Action>;

/// The result of an exploration.
struct Explored {
    states: usize,
    depth: usize,
    /// The first violation, and a shortest way to it.
    found: Option<(Path, Violation)>,
}

fn scene(mutant: Mutant) -> Scene {
    Scene::new((1, Suite::Ccm, mutant), (1, 2, 8), None)
}

/// The state after a path, and how many messages there were before its last action.
fn reach(mutant: Mutant, path: &[Action]) -> (Scene, usize) {
    let (mut scene, mut before) = (scene(mutant), 0);
    for action in path {
        before = scene.sent.len();
        assert_eq!(scene.act(*action), Ok(true), "{path:?}");
    }
    (scene, before)
}

/// The actions of a state.
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

/// The end at which an action happens, which orders actions, and the ends whose states it reads or changes. The controller is 2.
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

/// True if the actions lead to the same state in the other order, and that order is the one to explore. `before` is the number of
/// messages before the first of them.
fn comes_first(action: Action, last: Action, before: usize) -> bool {
    let ((end, touched), (last_end, last_touched)) = (ends(action), ends(last));
    let needs_message = matches!(action, Action::Deliver(at, _) if at >= before);
    end < last_end && !needs_message && touched.iter().all(|end| !last_touched.contains(end))
}

/// Breadth-first. A state is reached once, and left by each action; states are equal if all ends have the same histories. Of two
/// actions that lead to the same state in either order, one order is tried.
fn explore(mutant: Mutant, depth: usize) -> Explored {
    explore_with(mutant, depth, comes_first)
}

/// `skip` is true of an action that need not be tried after the last one.
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
