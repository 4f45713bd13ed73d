//! Tests of the key tree of a controller with its members: changes, attacks, an exploration of all short sequences of
//! actions in a small group, and simulations of larger groups with thousands of seeds.

mod attacks;
mod explore;
#[path = "../recorder/mod.rs"]
mod recorder;
mod scene;
mod simulation;
mod tree;
mod world;
