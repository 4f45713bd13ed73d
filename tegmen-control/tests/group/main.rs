//! The key tree of a controller and its members: changes, attacks by name, all that can happen to a small group, and what happens to
//! larger ones over thousands of seeds.

mod attacks;
mod explore;
#[path = "../recorder/mod.rs"]
mod recorder;
mod scene;
mod simulation;
mod tree;
mod world;
