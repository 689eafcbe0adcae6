//! Many coroutines on one thread: while one coroutine waits for its round trip, the others run.
//!
//! Invariant: no increment is lost, however many coroutines add to the same counter.
//!
//! `cargo run --release -p tarn --example counters`

use rand::RngExt as _;
use tarn::{Error, Executor, Row, Session, Table, Tarn, Text};

/// A counter of how often something was seen.
#[derive(Row)]
#[row(table = "counters", key(word))]
pub struct Counter {
    /// The thing that was seen.
    pub word: Text<8>,
    /// The number of times that it was seen.
    pub seen: u64,
}

const COROUTINES: usize = 16;
const INCREMENTS: u64 = 500;
const WORDS: [Text<8>; 4] =
    [Text::literal("north"), Text::literal("east"), Text::literal("south"), Text::literal("west")];

fn main() -> Result<(), Error> {
    let tarn = Tarn::embedded().table::<Counter>(WORDS.len() as u64).open()?;
    let counters = tarn.table::<Counter>()?;
    let mut session = tarn.session()?;
    for word in WORDS {
        session.run(async |tx| counters.put(tx, &Counter { word, seen: 0 }).await)?;
    }

    let failures = std::cell::RefCell::new(Vec::new());
    let mut executor = Executor::new();
    for _ in 0..COROUTINES {
        let (mut session, failures) = (session.sibling()?, &failures);
        executor.spawn(async move {
            if let Err(error) = count(&mut session, counters).await {
                failures.borrow_mut().push(error);
            }
        });
    }
    executor.run();
    drop(executor);
    if let Some(error) = failures.into_inner().pop() {
        return Err(error);
    }

    let mut sum = 0;
    for word in WORDS {
        let counter = session.run(async |tx| counters.find(tx, word).await)?;
        let seen = counter.map_or(0, |counter| counter.seen);
        println!("{word}: {seen}");
        sum += seen;
    }
    assert_eq!(sum, COROUTINES as u64 * INCREMENTS);
    Ok(())
}

async fn count(session: &mut Session, counters: Table<Counter>) -> Result<(), Error> {
    let mut rng = session.context().port.rng();
    for _ in 0..INCREMENTS {
        let word = WORDS[rng.random_range(0..WORDS.len())];
        session
            .transact(async |tx| {
                let record = counters.update(tx, word);
                tx.fetch().await?;
                let Some(mut counter) = counters.get(tx, record) else { return tx.abort() };
                counter.seen += 1;
                counters.set(tx, record, &counter);
                Ok(())
            })
            .await?;
    }
    Ok(())
}
