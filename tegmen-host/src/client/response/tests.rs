use super::*;

#[test]
fn options_come_back_in_order_whatever_their_length() {
    for lens in [&[][..], &[0], &[1, 2, 3], &[38, 0, 0], &[42], &[43], &[20, 18, 1], &[300, 0, 7]] {
        let values: Vec<(OptionNumber, Vec<u8>)> =
            lens.iter().enumerate().map(|(i, len)| (OptionNumber(i as u16 * 300), vec![i as u8 + 1; *len])).collect();
        let mut packed = PackedOptions::default();
        values.iter().for_each(|(number, value)| packed.push(*number, value));
        let back: Vec<_> = packed.iter().map(|(number, value)| (number, value.to_vec())).collect();
        assert_eq!(back, values);
    }
}
