use super::*;

#[test]
fn a_file_begins_with_its_headers() {
    let mut file = Vec::new();
    write(&[Captured { at: 3_000_002, from: 0, psdu: vec![1, 2, 3] }], &mut file).unwrap();
    assert_eq!(file.len(), 24 + 16 + 28 + 3);
    assert_eq!((file[20], file[21]), (27, 1));
    assert_eq!((file[24], file[28]), (3, 2));
    assert_eq!(f32::from_le_bytes([TAP[16], TAP[17], TAP[18], TAP[19]]), -60.0);
}
