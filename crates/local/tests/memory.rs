//! A key costs memory only while it is held or waited for.

use keylatch_local::{KeyedMutex, Options};

fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = status.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Everything in one test: it looks at the memory of the whole process.
#[test]
fn a_million_keys_leave_nothing_behind() {
    let locks: KeyedMutex<u64> = Options::new().ignore_reentry().build();
    let before = resident();

    // Short-lived, with overlapping readers.
    let mut last = None;
    for key in 0..1_000_000 {
        let reader = locks.lock_shared_blocking(key);
        let second = locks.lock_shared_blocking(key);
        drop(reader);
        last = Some(second);
        drop(locks.lock_blocking(key + 1));
    }
    drop(last);
    assert_eq!(locks.len(), 0);
    let short_lived = resident().saturating_sub(before);
    assert!(short_lived < 1 << 20, "{short_lived} bytes left of short-lived keys");

    // All at once.
    let held: Vec<_> = (0..1_000_000).map(|key| locks.lock_blocking(key)).collect();
    assert_eq!(locks.len(), 1_000_000);
    let most = resident() - before;
    drop(held);
    assert_eq!(locks.len(), 0);
    let left = resident().saturating_sub(before);
    assert!(left < most / 10, "{left} of {most} bytes left");
}
