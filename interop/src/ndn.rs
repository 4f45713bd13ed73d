//! Named Data Networking with python-ndn and with ndnd: packets, forwarders, consumers and producers of each project.

mod forwarding;
mod packets;
mod schemas;
mod trust;

use crate::cell::{Cell, Check, Role, Scene};
use crate::peers::{Built, Places};
use std::sync::Arc;

/// A peer and its version.
type Peer = (&'static str, &'static str);

const PYTHON: Peer = ("python-ndn", "0.5.2");
const NDND: Peer = ("ndnd", "1.5.3");

pub(crate) fn all(places: &Places) -> (Vec<Cell>, Vec<Arc<Built>>) {
    let python = places.python_peer("ndn_peer.py", "python-ndn==0.5.2");
    let library = places.go_peer("ndnd");
    let program = places.go_program("ndnd", "ndnd-program", "github.com/named-data/ndnd/cmd/ndnd");
    let mut cells = Vec::new();
    let mut add =
        |(name, version): Peer, built: &Arc<Built>, role, scenario: &str, play: fn(&Scene, &Built) -> Check| {
            let built = Arc::clone(built);
            cells.push(Cell::new(name, version, role, scenario, move |scene| {
                built.ready()?;
                play(&scene.with_new_deadline(), &built)
            }));
        };
    let equal = packets::scenario();
    add(PYTHON, &python, Role::Reader, &equal, |scene, built| packets::are_equal(scene, built, 300));
    // ndnd 1.5.3 encodes the length of a longer component as a NonNegativeInteger, where the format has another encoding.
    add(NDND, &library, Role::Reader, &equal, |scene, built| packets::are_equal(scene, built, 252));
    let schemas = trust::scenario();
    add(PYTHON, &python, Role::Reader, &schemas, |scene, built| trust::decide_equally(scene, built, true));
    // ndnd 1.5.3 ends at a function.
    add(NDND, &library, Role::Reader, &format!("{schemas}, without functions"), |scene, built| {
        trust::decide_equally(scene, built, false)
    });
    for (role, scenario, play) in trust::LIBRARY {
        add(NDND, &library, *role, scenario, *play);
    }
    for (role, scenario, play) in forwarding::NDND.iter().chain(trust::NDND) {
        add(NDND, &program, *role, scenario, *play);
    }
    for (role, scenario, play) in forwarding::PYTHON.iter().chain(trust::PYTHON) {
        add(PYTHON, &python, *role, scenario, *play);
    }
    (cells, vec![python, library, program])
}
