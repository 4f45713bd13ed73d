//! Runs the example `lights_group` as a test.
#![cfg(target_os = "linux")]

#[path = "../examples/lights_group.rs"]
mod lights_group;

#[tokio::test]
async fn three_lamps_answer_and_the_evicted_one_does_not() {
    let dir = std::env::temp_dir().join(format!("tegmen-lights-test-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let answers = lights_group::run(&dir).await.unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    assert_eq!(answers, (3, 2));
}
