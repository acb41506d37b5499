//! Whether it was us who were late.

use std::time::{Duration, Instant};

/// How often it is looked.
const BEAT: Duration = Duration::from_millis(50);
/// A beat that is late by so much says that this process does not get its turn.
const LATE: Duration = Duration::from_millis(250);

/// Runs `work`; its result, how long it took, and whether this process was kept from running meanwhile, so that the time says
/// nothing of the server.
pub(super) async fn timed<T>(work: impl Future<Output = T>) -> (T, Duration, bool) {
    let began = Instant::now();
    let mut is_late = false;
    tokio::pin!(work);
    loop {
        let beat = Instant::now();
        tokio::select! {
            biased;
            done = &mut work => {
                is_late |= beat.elapsed() > BEAT + LATE;
                return (done, began.elapsed(), is_late);
            }
            () = tokio::time::sleep(BEAT) => is_late |= beat.elapsed() > BEAT + LATE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_does_not_get_its_turn_is_late() {
        let (_, took, is_late) = timed(tokio::time::sleep(Duration::from_millis(120))).await;
        assert!(took >= Duration::from_millis(120) && (!is_late || took >= Duration::from_millis(400)));
        let (_, _, is_late) = timed(async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            std::thread::sleep(Duration::from_millis(600));
        })
        .await;
        assert!(is_late);
    }
}
