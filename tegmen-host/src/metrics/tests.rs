use super::*;

#[test]
fn every_line_is_one_of_openmetrics() {
    let mut totals = Totals { requests: 7, ..Totals::default() };
    totals.counters.replayed = 3;
    let groups = Some(GroupTotals { epochs: 4, messages: 9, failures: 5 });
    let delegation =
        Some(DelegationTotals { devices: 3, untold: 2, sealed: 7, epochs: 6, ..DelegationTotals::default() });
    let proxy = Some(ProxyCounts { hits: 8, entries: 2, ..ProxyCounts::default() });
    let operation = Operation {
        started: SystemTime::now(),
        ready: true,
        reloads: 2,
        reloads_refused: 1,
        groups,
        delegation,
        proxy,
    };
    let text = render(&totals, Some(&operation));
    assert!(text.ends_with("# EOF\n") && text.contains("\ntegmen_requests_total 7\n"));
    assert!(text.contains("\ntegmen_records_dropped_total{reason=\"replayed\"} 3\n"));
    assert!(text.contains("\ntegmen_ready 1\n") && text.contains("\ntegmen_reloads_total{result=\"refused\"} 1\n"));
    assert!(text.contains("\ntegmen_group_epochs_total 4\n") && text.contains("\ntegmen_group_failures_total 5\n"));
    let mut family = String::new();
    for line in text.lines().filter(|line| *line != "# EOF") {
        match line.strip_prefix("# ") {
            Some(rest) => {
                let (_, rest) = rest.split_once(' ').unwrap();
                family = rest.split(' ').next().unwrap().to_owned();
            }
            None => {
                assert!(line.starts_with(&family), "{line} belongs to {family}");
                assert!(line.rsplit(' ').next().unwrap().parse::<u64>().is_ok());
            }
        }
    }
}
