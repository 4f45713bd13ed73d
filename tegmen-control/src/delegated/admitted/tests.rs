use super::*;

fn connection(number: u32, expires: u32) -> Admitted {
    Admitted { connection: Connection::new(number, 3).unwrap(), expires }
}

#[test]
fn a_number_that_ended_is_never_that_of_another_connection() {
    let mut admitted = AdmittedConnections::default();
    let (first, second) = (admitted.admit(connection(5, 100)), admitted.admit(connection(6, 200)));
    assert_eq!(admitted.admit(connection(5, 100)), first, "the same connection again");
    assert!(first != second && !admitted.take_ended());
    admitted.end(5);
    assert!(admitted.get(first).is_none() && admitted.get(second) == Some(connection(6, 200)));
    assert!(admitted.take_ended() && !admitted.take_ended());
    admitted.end_expired(199);
    assert!(admitted.get(second).is_some() && !admitted.take_ended());
    admitted.end_expired(200);
    assert!(admitted.get(second).is_none() && admitted.take_ended());
    // A connection with the same number in another epoch.
    let third = admitted.admit(connection(5, 300));
    admitted.end_all();
    let fourth = admitted.admit(connection(5, 300));
    assert!(![first, second, third].contains(&fourth) && admitted.get(third).is_none());
}
