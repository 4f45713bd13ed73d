//! Tests of delegated sessions between a device, its delegation server and its peers.

#![allow(unreachable_pub)] // the modules share one another's items

mod attacks;
mod handshakes;
mod image;
mod memory;
mod pages;
mod seeds;
mod world;
