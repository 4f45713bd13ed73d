use super::*;

#[test]
fn a_flood_of_changes_is_one_command_and_one_entry_for_each_path() {
    let (commands, mut received) = mpsc::unbounded_channel();
    let notifier = Notifier { shards: Arc::new([Changes::new(commands)]) };
    for n in 0..10_000 {
        notifier.changed(if n % 2 == 0 { "a" } else { "b" });
    }
    assert_eq!(received.len(), 1);
    assert!(matches!(received.try_recv(), Ok(Command::Changed)));
    assert_eq!(notifier.shards[0].take().len(), 2);
    notifier.changed("a");
    assert_eq!(received.len(), 1, "what changes later is told later");
}
