use headgate_units::Nanos;
use thiserror::Error;

/// For how long a lease is given, and how long before its end its holder stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    ttl: Nanos,
    margin: Nanos,
}

/// Terms that cannot be kept.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "a lease must last 3 s to 1 h, and its margin be at most half of it, not {ttl} and {margin}"
)]
pub struct TermsError {
    ttl: Nanos,
    margin: Nanos,
}

impl Terms {
    /// A lease of `ttl`, in whole seconds, whose holder stops `margin` before it ends.
    ///
    /// The margin has to cover the requests that are in flight when it stops, and what two clocks
    /// may differ by in one `ttl`.
    ///
    /// # Errors
    /// When they are out of range.
    pub fn new(ttl: Nanos, margin: Nanos) -> Result<Terms, TermsError> {
        let good =
            (Nanos::from_secs(3)..=Nanos::from_secs(3_600)).contains(&ttl) && margin.0 <= ttl.0 / 2;
        if good { Ok(Terms { ttl, margin }) } else { Err(TermsError { ttl, margin }) }
    }

    /// How long it lasts.
    pub fn ttl(&self) -> Nanos {
        self.ttl
    }
}

impl Default for Terms {
    /// 15 s, the last 5 of which the holder no longer uses.
    fn default() -> Terms {
        Terms { ttl: Nanos::from_secs(15), margin: Nanos::from_secs(5) }
    }
}

/// What the holder of a lease may do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// Serve.
    Serve {
        /// Prolong the lease then.
        renew_at: Nanos,
        /// Let out no more requests from then on.
        stop_at: Nanos,
    },
    /// Let out no request. If the lease is prolonged yet, go on: nobody else can have had it.
    Pause {
        /// The lease ends then.
        ends_at: Nanos,
    },
    /// Let out no request. Another may be the holder; the lease has to be asked for anew.
    Stop,
}

/// A lease as its holder sees it, by its own monotonic clock.
///
/// It counts from when it was asked for, not from when the answer came: the giver's count began in
/// between, so the holder's ends first, whatever the wall clocks say and however long answers take.
#[derive(Clone, Copy, Debug)]
pub struct Term {
    terms: Terms,
    /// When the last lease or renewal that was given was asked for. `None` once it is lost.
    asked: Option<Nanos>,
}

impl Term {
    /// Given, as asked for at `asked`.
    pub fn granted(terms: Terms, asked: Nanos) -> Term {
        Term { terms, asked: Some(asked) }
    }

    /// The giver prolonged it, as asked for at `asked`.
    pub fn renewed(&mut self, asked: Nanos) {
        self.asked = self.asked.map(|before| before.max(asked));
    }

    /// The giver says that it is no more.
    pub fn lost(&mut self) {
        self.asked = None;
    }

    /// What may be done at `now`. Once it said [`Duty::Stop`], it says so for ever.
    pub fn duty(&mut self, now: Nanos) -> Duty {
        let Some(asked) = self.asked else { return Duty::Stop };
        let ends_at = asked + self.terms.ttl;
        let stop_at = ends_at - self.terms.margin;
        match now {
            _ if now >= ends_at => {
                self.asked = None;
                Duty::Stop
            }
            _ if now >= stop_at => Duty::Pause { ends_at },
            _ => Duty::Serve { renew_at: asked + Nanos(self.terms.ttl.0 / 5), stop_at },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn s(s: u64) -> Nanos {
        Nanos::from_secs(s)
    }

    #[test]
    fn serves_pauses_and_stops() {
        let mut term = Term::granted(Terms::default(), s(100));
        assert_eq!(term.duty(s(100)), Duty::Serve { renew_at: s(103), stop_at: s(110) });
        term.renewed(s(104));
        assert_eq!(term.duty(s(113)), Duty::Serve { renew_at: s(107), stop_at: s(114) });
        assert_eq!(term.duty(s(114)), Duty::Pause { ends_at: s(119) });
        // An answer to a question of long ago.
        term.renewed(s(90));
        assert_eq!(term.duty(s(114)), Duty::Pause { ends_at: s(119) });
        term.renewed(s(113));
        assert!(matches!(term.duty(s(115)), Duty::Serve { .. }));
        assert_eq!(term.duty(s(128)), Duty::Stop);
        // Too late: another may have had it meanwhile.
        term.renewed(s(128));
        assert_eq!(term.duty(s(128)), Duty::Stop);
        let mut term = Term::granted(Terms::default(), s(100));
        term.lost();
        assert_eq!(term.duty(s(101)), Duty::Stop);
    }

    #[test]
    fn terms_that_cannot_be_kept_are_refused() {
        assert!(Terms::new(s(2), s(0)).is_err());
        assert!(Terms::new(s(10), s(6)).unwrap_err().to_string().contains("10.00 s and 6.00 s"));
        assert!(Terms::new(s(10), s(5)).is_ok());
    }

    /// The giver: it knows one holder and when that one ends, by a clock of its own.
    #[derive(Clone, Copy, Debug)]
    struct Giver {
        holder: Option<(usize, u64)>,
    }

    impl Giver {
        fn ask(&mut self, who: usize, clock: u64, ttl: u64) -> bool {
            if self.holder.is_some_and(|(_, end)| clock >= end) {
                self.holder = None;
            }
            let free = self.holder.is_none_or(|(holder, _)| holder == who);
            if free {
                self.holder = Some((who, clock + ttl));
            }
            free
        }

        fn renew(&mut self, who: usize, clock: u64, ttl: u64) -> bool {
            self.holder.is_some_and(|(holder, end)| holder == who && clock < end)
                && self.ask(who, clock, ttl)
        }
    }

    proptest! {
        /// Hosts whose clocks show anything and run up to 5 % fast or slow, messages that take any
        /// time or get lost: at no instant two of them may serve, and from when one may do so,
        /// every other has stopped for as long as the margin leaves.
        #[test]
        fn never_two_at_once(
            offsets in prop::array::uniform3(0u64..1_000_000),
            drifts in prop::array::uniform3(950u64..=1_050),
            steps in prop::collection::vec((0usize..3, 1u64..3_000, 0u64..4_000, prop::bool::weighted(0.2)), 1..400),
        ) {
            let terms = Terms::default();
            let ttl = terms.ttl().0 / 1_000_000;
            // Milliseconds.
            let clock = |who: usize, time: u64| Nanos::from_millis(offsets[who] + time * drifts[who] / 1_000);
            let mut terms_of: [Option<Term>; 3] = [None; 3];
            let mut giver = Giver { holder: None };
            let mut answers: Vec<(u64, usize, Nanos, bool)> = Vec::new();
            let mut time = 0u64;
            let mut stopped = [0u64; 3];
            for (who, passed, travel, lost) in steps {
                for _ in 0..passed / 50 + 1 {
                    time += 50;
                    answers.retain(|(at, who, asked, renewal)| {
                        if *at > time {
                            return true;
                        }
                        match &mut terms_of[*who] {
                            Some(term) if *renewal => term.renewed(*asked),
                            // An answer to whoever asked before it had given up.
                            _ if *renewal => {}
                            slot => *slot = Some(Term::granted(terms, *asked)),
                        }
                        false
                    });
                    let mut serving = Vec::new();
                    for host in 0..3 {
                        if let Some(term) = &mut terms_of[host] {
                            match term.duty(clock(host, time)) {
                                Duty::Serve { .. } => {
                                    serving.push(host);
                                    stopped[host] = time;
                                }
                                Duty::Pause { .. } => {}
                                Duty::Stop => terms_of[host] = None,
                            }
                        }
                    }
                    prop_assert!(serving.len() <= 1, "{serving:?} at {time}");
                    if let [one] = serving[..] {
                        for other in (0..3).filter(|other| *other != one && stopped[*other] > 0) {
                            // The margin, less what the clocks differ by.
                            prop_assert!(time - stopped[other] >= 4_000, "{other} stopped {} ms before", time - stopped[other]);
                        }
                    }
                }
                let asked = clock(who, time);
                let given = match terms_of[who] {
                    Some(_) => giver.renew(who, time + travel / 2, ttl),
                    None if answers.iter().any(|(_, other, ..)| *other == who) => false,
                    None => giver.ask(who, time + travel / 2, ttl),
                };
                if given && !lost {
                    answers.push((time + travel, who, asked, terms_of[who].is_some()));
                }
            }
        }
    }
}
