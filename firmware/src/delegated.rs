//! The messages that the image `dtls_delegated` receives from its delegation server, and the content of the memory of
//! the device. The test `delegation` of `tegmen-delegation` compares the messages in this file with those of a server.

/// The address of the only node with which the device exchanges datagrams. This node acts as the delegation server, and
/// as the peer that resumes sessions.
pub const PEER: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
/// The first records in the flash memory of the device. They contain epoch 1: its number, its device key and its ticket
/// key.
pub const MEMORY: [u8; 84] = [
    34, 152, 42, 253, 234, 113, 208, 83, 207, 86, 110, 139, 228, 126, 122, 56, 182, 85, 11, 20, 207, 114, 71, 78, 30,
    70, 45, 69, 143, 118, 163, 87, 16, 228, 138, 149, 87, 99, 91, 101, 164, 171, 21, 110, 95, 229, 159, 61, 0, 1, 110,
    176, 207, 8, 132, 225, 170, 146, 179, 73, 143, 5, 164, 27, 43, 92, 206, 117, 75, 18, 63, 79, 162, 41, 128, 83, 228,
    139, 0, 0, 26, 192, 17, 2,
];
/// The payload of POST `/dlg/ep`: the time in epoch 1.
pub const SET_TIME: [u8; 14] = [0, 1, 101, 83, 241, 0, 221, 1, 238, 2, 58, 73, 122, 76];
/// The ticket of connection 1.
pub const TICKET: [u8; 89] = [
    0, 1, 150, 92, 244, 224, 59, 181, 101, 239, 143, 23, 189, 216, 78, 152, 247, 10, 6, 220, 214, 44, 48, 55, 65, 175,
    154, 171, 129, 90, 219, 66, 13, 16, 188, 37, 43, 102, 17, 153, 177, 133, 229, 100, 218, 167, 61, 37, 132, 17, 108,
    33, 175, 79, 149, 10, 88, 133, 97, 241, 86, 119, 182, 227, 232, 183, 139, 168, 19, 225, 46, 135, 62, 176, 129, 254,
    227, 50, 88, 9, 35, 79, 68, 103, 218, 66, 140, 158, 22,
];
/// The payload of POST `/dlg/ctx`: the session of connection 2, which the device opens.
pub const KEEP_TO_OPEN: [u8; 95] = [
    1, 192, 174, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2,
    2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 0, 0, 2, 0, 101, 83, 241, 0, 101, 83, 255, 16, 5, 5, 5, 5, 5, 5, 5, 5, 5,
    5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5,
];
/// The payload of POST `/dlg/go`: connection 2, and the address of the other endpoint.
pub const GO: [u8; 22] = [0, 0, 0, 2, 253, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 22, 52];
/// The payload of POST `/dlg/rl`: the revoked connection 1.
pub const REFUSE: [u8; 4] = [0, 0, 0, 1];
