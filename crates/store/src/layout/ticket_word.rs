//! A LOCK word of tickets: a transaction that requests the lock takes a ticket number, and waits until all earlier
//! tickets are served.
//!
//! ```text
//! 63 … 48 writers served | 47 … 32 readers served | 31 … 16 writers come | 15 … 0 readers come
//! ```
//! Invariant: the word is changed by FAA, which adds one ticket or one service, and by CAS to 0 when no ticket is
//! waiting or held. The word contains no owner's tag. The word does not tell which transaction holds the lock. Each
//! transaction knows its turn from the word that it found when it took its ticket. A writer holds the lock once all
//! earlier tickets are served. A reader holds the lock once all earlier writers are served. No count exceeds twice
//! [`COUNT_MAX`]. If a transaction takes a ticket and finds a count at [`COUNT_MAX`], it returns its ticket. When a
//! transaction later finds that all tickets are served, it resets the word.
//!
//! The algorithm is from Yoon, Chowdhury, Mozafari, "Distributed Lock Management with RDMA: Decentralization
//! without Starvation", SIGMOD 2018, section 4.

/// The number of tickets after which the word is reset.
pub const COUNT_MAX: u16 = 1 << 15;

const READER_COMES: u32 = 0;
const WRITER_COMES: u32 = 16;
const READER_SERVED: u32 = 32;
const WRITER_SERVED: u32 = 48;

/// The kind of a ticket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ticket {
    /// A ticket for the shared lock of readers.
    Reader,
    /// A ticket for the exclusive lock.
    Writer,
}

impl Ticket {
    /// The number that is added to the word to take a ticket.
    #[inline]
    pub fn comes(self) -> u64 {
        1 << if self == Ticket::Reader { READER_COMES } else { WRITER_COMES }
    }

    /// The number that is added to the word to release the lock.
    #[inline]
    pub fn goes(self) -> u64 {
        1 << if self == Ticket::Reader { READER_SERVED } else { WRITER_SERVED }
    }
}

/// A LOCK word of tickets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TicketWord(pub u64);

impl TicketWord {
    #[inline]
    fn count(self, at: u32) -> u16 {
        (self.0 >> at) as u16
    }

    /// Whether all tickets that transactions have taken are served.
    #[inline]
    pub fn is_at_rest(self) -> bool {
        self.0 as u32 == (self.0 >> 32) as u32
    }

    /// Whether a writer has taken a ticket and has not released the lock yet.
    #[inline]
    pub fn has_writer(self) -> bool {
        self.count(WRITER_COMES) != self.count(WRITER_SERVED)
    }

    /// Whether no transaction may take a ticket any more, because a count has reached `count_max`.
    #[inline]
    pub fn is_over(self, count_max: u16) -> bool {
        self.count(READER_COMES) >= count_max || self.count(WRITER_COMES) >= count_max
    }

    /// Whether this word shows that a transaction with a ticket of the kind `ticket` holds the lock now. `came` is
    /// the word that the transaction found when it took its ticket.
    #[inline]
    pub fn is_turn(self, ticket: Ticket, came: TicketWord) -> bool {
        let writers = self.count(WRITER_SERVED) == came.count(WRITER_COMES);
        let readers = self.count(READER_SERVED) == came.count(READER_COMES);
        writers && (ticket == Ticket::Reader || readers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    /// The transactions whose tickets are not served yet. Each element has the kind of a ticket, and the word that
    /// the transaction found when it took the ticket.
    type Queue = VecDeque<(Ticket, TicketWord)>;

    fn holders(word: TicketWord, queue: &Queue) -> Vec<Ticket> {
        let has = |(ticket, came): &&(Ticket, TicketWord)| word.is_turn(*ticket, *came);
        queue.iter().filter(has).map(|(ticket, _)| *ticket).collect()
    }

    proptest! {
        #[test]
        fn tickets_admit_one_writer_or_readers_in_turn(
            steps in prop::collection::vec((0u8..4, any::<prop::sample::Index>()), 1..200),
        ) {
            let (mut word, mut queue) = (TicketWord::default(), Queue::new());
            for (step, which) in steps {
                match step {
                    0 | 1 => {
                        let ticket = if step == 0 { Ticket::Reader } else { Ticket::Writer };
                        queue.push_back((ticket, word));
                        word.0 += ticket.comes();
                    }
                    _ => {
                        let has: Vec<usize> = (0..queue.len())
                            .filter(|&at| word.is_turn(queue[at].0, queue[at].1))
                            .collect();
                        if !has.is_empty() {
                            let (ticket, _) = queue.remove(has[which.index(has.len())]).expect("there");
                            word.0 += ticket.goes();
                        }
                    }
                }
                let has = holders(word, &queue);
                let alone = has.len() == 1;
                prop_assert!(alone || has.iter().all(|ticket| *ticket == Ticket::Reader));
                prop_assert_eq!(has.is_empty(), queue.is_empty(), "somebody is always served");
                prop_assert_eq!(word.is_at_rest(), queue.is_empty());
            }
        }
    }

    #[test]
    fn counts_end_before_they_run_into_each_other() {
        let most = TicketWord(u64::from(COUNT_MAX) * (1 << 16 | 1));
        assert!(most.is_over(COUNT_MAX) && !TicketWord(most.0 - 0x10001).is_over(COUNT_MAX));
        let crowd = TicketWord(most.0 + u64::from(COUNT_MAX - 1) * Ticket::Reader.comes());
        assert_eq!(crowd.count(WRITER_COMES), COUNT_MAX, "as many may come and leave again");
    }
}
