use super::*;

fn row(rows: &[Row], id: &str) -> u64 {
    rows.iter().find(|row| row.id == id).unwrap_or_else(|| panic!("no row {id}")).ours
}

#[test]
fn every_row_of_the_paper_is_equal() {
    let rows = blink_bytes();
    let paper: Vec<_> = rows.iter().filter(|row| row.paper.is_some()).collect();
    let plan = plan();
    assert_eq!((paper.len(), plan.table2.len() + plan.table3.len()), (13, 13));
    for row in paper {
        assert_eq!(row.paper, Some(row.ours), "{}", row.id);
    }
}

#[test]
fn the_costs_of_the_extensions_add_up() {
    let rows = blink_bytes();
    for (hello, parts) in [
        ("client_hello", &["renegotiation_info_scsv", "length_of_extensions", "extended_master_secret"][..]),
        ("server_hello_and_done", &["length_of_extensions", "extended_master_secret", "renegotiation_info"]),
    ] {
        let sum: u64 = parts.iter().map(|part| row(&rows, &format!("default/{hello}/{part}"))).sum();
        assert_eq!(sum, row(&rows, &format!("default/{hello}/all_extensions")));
        let minimal = row(&rows, &format!("table3/{hello}"));
        assert_eq!(minimal + sum, row(&rows, &format!("default/{hello}")));
    }
}

#[test]
fn the_whole_handshake_is_the_sum_of_its_datagrams() {
    let rows = blink_bytes();
    let sum: u64 = rows.iter().filter(|row| row.id.starts_with("table3/")).map(|row| row.ours).sum();
    assert_eq!((row(&rows, "minimal/handshake"), row(&rows, "minimal/handshake_datagrams")), (sum, 9));
    // Two hellos with 8 bytes more each and one with 11; the datagrams of a flight are one.
    let default = (row(&rows, "default/handshake"), row(&rows, "default/handshake_datagrams"));
    assert_eq!(default, (sum + 8 + 8 + 11, 6));
}

#[test]
fn every_row_is_a_figure_and_none_differs() {
    let figures = figures();
    assert_eq!(figures.len(), blink_bytes().len());
    assert!(figures.iter().all(|figure| figure.verdict != crate::figure::DIFFERS && !figure.unit.is_empty()));
}
