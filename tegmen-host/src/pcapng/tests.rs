use super::*;

#[test]
fn blocks_are_framed_by_their_length() {
    let mut bytes = Vec::new();
    let mut capture = Capture::new(&mut bytes).unwrap();
    capture.secrets("CLIENT_RANDOM 00 11\n").unwrap();
    let (a, b) = ("127.0.0.1:1".parse().unwrap(), "127.0.0.1:5684".parse().unwrap());
    capture.datagram(UNIX_EPOCH, a, b, b"odd").unwrap();
    let (mut at, mut kinds) = (0, Vec::new());
    while at < bytes.len() {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let len = word(at + 4) as usize;
        assert_eq!((len % 4, word(at + len - 4) as usize), (0, len));
        kinds.push(word(at));
        at += len;
    }
    assert_eq!(kinds, [SECTION_HEADER, INTERFACE, DECRYPTION_SECRETS, ENHANCED_PACKET]);
}

#[test]
fn checksums_of_both_headers_are_right() {
    let (a, b): (SocketAddr, SocketAddr) = ("10.0.0.1:1000".parse().unwrap(), "10.0.0.2:5684".parse().unwrap());
    let four = packet(a, b, b"odd");
    assert_eq!(checksum(&[&four[..20]]), 0);
    let pseudo = [&four[12..20], &[0, 17, 0, 11]].concat();
    assert_eq!(checksum(&[&pseudo, &four[20..]]), 0);
    let (a, b): (SocketAddr, SocketAddr) = ("[::1]:1000".parse().unwrap(), "[::1]:5684".parse().unwrap());
    let six = packet(a, b, b"even");
    let pseudo = [&six[8..40], &[0, 17, 0, 12]].concat();
    assert_eq!(checksum(&[&pseudo, &six[40..]]), 0);
}
