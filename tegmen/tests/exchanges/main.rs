//! The message layer over the storage of a mote. Its modules run over the storage of a host, too.

mod messages;
mod network;

use tegmen::coap::Fixed;

type Storage = Fixed<2, 64, 8, 256>;

const fn storage() -> Storage {
    Fixed
}
