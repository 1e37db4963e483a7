//! Has it come true yet, and does it stay true?
//!
//! All waiting of the stories goes through [`poll`]: it asks again and again, so that a story is as fast as the
//! system under test, and it always has a limit.

use std::future::Future;
use std::panic::Location;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval, timeout, timeout_at};

/// Short next to what a story waits for (seconds), long next to what a question costs (a request).
const ASK_EVERY: Duration = Duration::from_millis(50);

/// A last question that gets no answer for so long never will: the API server itself gives up after 60 s.
const LAST_ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// Waits until `ask` has an answer. Panics with `what` when the limit is reached, naming the line that waits.
#[track_caller]
pub fn until<T, F, Asking>(limit: Duration, what: &str, ask: F) -> impl Future<Output = T>
where
    F: FnMut() -> Asking,
    Asking: Future<Output = Option<T>>,
{
    let asked_at = Location::caller();
    async move {
        match poll(limit, ask).await {
            Some(answer) => answer,
            None => panic!("waited {limit:?} in vain until {what} ({asked_at})"),
        }
    }
}

/// Asserts that something is true now, all along `duration`, and at its end. Panics with what `ask` said was wrong.
#[track_caller]
pub fn holds_for<F, Asking>(duration: Duration, what: &str, mut ask: F) -> impl Future<Output = ()>
where
    F: FnMut() -> Asking,
    Asking: Future<Output = Result<(), String>>,
{
    let asked_at = Location::caller();
    async move {
        let began_at = Instant::now();
        let mut broken = poll(duration, || {
            let asking = ask();
            async { asking.await.err() }
        })
        .await;
        if broken.is_none() {
            // A question cut off by the end of the duration proves nothing, so one more is asked after it.
            broken = match timeout(LAST_ANSWER_WITHIN, ask()).await {
                Ok(answer) => answer.err(),
                Err(_) => Some(format!("no answer within {LAST_ANSWER_WITHIN:?}")),
            };
        }
        if let Some(wrong) = broken {
            let held_for = began_at.elapsed();
            panic!("should hold for {duration:?}: {what}; after {held_for:?}: {wrong} ({asked_at})");
        }
    }
}

/// Asks until there is an answer or the limit is reached. A question that hangs is given up at the limit too.
pub(crate) async fn poll<T, F, Asking>(limit: Duration, mut ask: F) -> Option<T>
where
    F: FnMut() -> Asking,
    Asking: Future<Output = Option<T>>,
{
    let give_up_at = Instant::now() + limit;
    let mut ticks = interval(ASK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match timeout_at(give_up_at, ask()).await {
            Ok(Some(answer)) => return Some(answer),
            Ok(None) if Instant::now() >= give_up_at => return None,
            Ok(None) => {}
            Err(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_ends_the_waiting() {
        let mut asked = 0;
        let answer = until(Duration::from_secs(5), "the third question", || {
            asked += 1;
            let asked = asked;
            async move { (asked == 3).then_some(asked) }
        })
        .await;
        assert_eq!(answer, 3);
    }

    #[tokio::test]
    #[should_panic(expected = "in vain until pigs fly")]
    async fn a_question_that_hangs_is_given_up() {
        until(Duration::from_millis(100), "pigs fly", std::future::pending::<Option<()>>).await;
    }

    #[tokio::test]
    #[should_panic(expected = "third time unlucky")]
    async fn what_breaks_half_way_does_not_hold() {
        let mut asked = 0;
        holds_for(Duration::from_secs(5), "luck", || {
            asked += 1;
            let wrong = asked == 3;
            async move { if wrong { Err("third time unlucky".to_owned()) } else { Ok(()) } }
        })
        .await;
    }
}
