//! Runs work on all processor cores, and returns the results in the order of the work.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Calls `work` with each item, on as many threads as there are processor cores. Calls `done` after each item with the
/// number of finished items. Returns the results in the order of the items.
pub fn each<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync, done: impl Fn(usize) + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(items.len().max(1));
    let (next, finished) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let results = Mutex::new(Vec::with_capacity(items.len()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let worker = || {
                while let Some((index, item)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    items.get(index).map(|item| (index, item))
                } {
                    let result = work(item);
                    if let Ok(mut results) = results.lock() {
                        results.push((index, result));
                    }
                    done(finished.fetch_add(1, Ordering::Relaxed) + 1);
                }
            };
            // If the thread cannot be started, this thread does the work.
            if std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, worker).is_err() {
                worker();
            }
        }
    });
    let mut results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Stack size of a thread in bytes. The table of a node with a thousand peers is made on the stack before it is moved
/// to the heap.
const STACK: usize = 64 << 20;

#[cfg(test)]
mod tests;
