use super::*;

#[test]
fn the_cpu_time_of_a_thread_that_has_ended_still_counts() -> Result<(), Failure> {
    let of_thread = std::thread::spawn(|| {
        let mut spent = 0;
        while spent < 100_000_000 {
            spent = cpu_nanoseconds(std::process::id())?;
        }
        Ok::<_, Failure>(spent)
    });
    let spent = of_thread.join().map_err(|_| Failure::new("the thread has panicked"))??;
    assert!(cpu_nanoseconds(std::process::id())? >= spent);
    Ok(())
}
