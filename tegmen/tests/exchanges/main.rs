//! Tests of the message layer with the storage of a mote. The crate for hosts runs the same modules with its own
//! storage.

mod messages;
mod network;

use tegmen::coap::Fixed;

type Storage = Fixed<2, 64, 8, 256>;

const fn storage() -> Storage {
    Fixed
}
