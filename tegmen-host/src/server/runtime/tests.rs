use super::*;
use std::sync::mpsc;

#[test]
fn a_shard_ends_although_a_look_up_of_a_name_does_not() {
    let (ends, look_up) = mpsc::channel::<()>();
    let (ended, end) = mpsc::channel();
    std::thread::spawn(move || {
        let shard = async {
            let (begun, begins) = tokio::sync::oneshot::channel();
            tokio::task::spawn_blocking(move || {
                begun.send(()).unwrap();
                look_up.recv()
            });
            begins.await.unwrap();
        };
        Runtime::new().unwrap().block_on(shard);
        ended.send(()).unwrap();
    });
    end.recv_timeout(Duration::from_secs(30)).unwrap();
    drop(ends);
}
