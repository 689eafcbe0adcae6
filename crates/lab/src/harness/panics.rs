//! Treats panics as errors that a seed found. If a run panics because an invariant is broken, only this run ends, and
//! the runs of other seeds go on.
//!
//! Invariant: outside of [`catch`], the program reports panics with the hook that was installed before.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// The message of the panic that is being caught on this thread; `None` outside of `catch`.
    static SAID: RefCell<Option<String>> = const { RefCell::new(None) };
}

static HOOK: Once = Once::new();

/// Runs `body`; returns the panic's message if `body` panicked.
pub(crate) fn catch<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    HOOK.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            let is_caught = SAID.with_borrow_mut(|said| match said {
                None => false,
                Some(said) => {
                    if said.is_empty() {
                        *said = panic.to_string();
                    }
                    true
                }
            });
            if !is_caught {
                before(panic);
            }
        }));
    });
    SAID.set(Some(String::new()));
    // A caught panic can leave only the state of this run half-changed, and that state is dropped with the run.
    let result = catch_unwind(AssertUnwindSafe(body));
    let said = SAID.take().unwrap_or_default();
    result.map_err(|_| said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_says_what_and_where() {
        assert_eq!(catch(|| 3), Ok(3));
        let said = catch(|| panic!("planted")).expect_err("it panics");
        assert!(said.contains("planted") && said.contains("panics.rs"), "{said}");
    }
}
