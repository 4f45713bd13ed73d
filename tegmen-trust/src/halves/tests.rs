use super::*;

impl<V> Halves<V> {
    fn len(&self) -> usize {
        self.newer.len() + self.older.len()
    }
}

#[test]
fn it_is_bounded_and_keeps_what_is_asked_for() {
    let mut halves = Halves::new(8);
    for number in 0..200_u8 {
        halves.insert([number; 32], number);
        assert_eq!(halves.find(&[0; 32]), Some(0), "asked for each time");
        assert!(halves.len() <= 8);
    }
    assert_eq!(halves.find(&[150; 32]), None);
    halves.clear();
    assert_eq!(halves.find(&[0; 32]), None);
    let mut none = Halves::new(1);
    none.insert([0; 32], 0);
    assert_eq!(none.find(&[0; 32]), None);
}

#[test]
fn an_entry_is_taken_once_from_either_half() {
    let mut halves = Halves::new(4);
    for number in 0..4_u8 {
        halves.insert([number; 32], number);
    }
    for number in 0..4_u8 {
        assert_eq!([halves.take(&[number; 32]), halves.take(&[number; 32])], [Some(number), None]);
    }
    assert_eq!(halves.len(), 0);
}
