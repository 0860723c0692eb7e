//! What disks that are spread over several servers are due, from the definition.
//!
//! Source: Gulati, Merchant, Varman: *mClock*, OSDI 2010, sections 3.1 and 3.3. Disk i with
//! reservation r, limit l and shares w is due, of all servers together,
//!
//! ```text
//! x_i = clamp(w_i λ, r_i, l_i)
//! ```
//!
//! On one server λ is what makes the sum of all x_i its rate. On several, a client that routes the
//! part p_is of its requests to server s, and waits for answers, receives p_is x_i there: it has a
//! bounded number of requests outstanding, so none of its servers serves it faster than the slowest
//! answers. Server s carries `Σ p_is x_i <= C_s`. λ rises for all until a server is full; who uses
//! that one stays at what it then has, and λ goes on rising for the others, until every client uses
//! a full server or is at its limit (progressive filling: no client can have more without taking
//! from one that has less per share).
//!
//! Nothing here is known of tags, reports or servers' clocks.

/// One client: shares, reservation (0: none), limit (0: none), and weights of its routing.
#[derive(Clone, Debug)]
pub struct Spread {
    pub shares: u64,
    pub reservation: u64,
    pub limit: u64,
    pub route: Vec<u64>,
}

impl Spread {
    /// The part of its requests that goes to a server.
    pub fn part(&self, server: usize) -> f64 {
        self.route[server] as f64 / self.route.iter().sum::<u64>() as f64
    }

    fn at(&self, lambda: f64) -> f64 {
        let limit = if self.limit == 0 { f64::INFINITY } else { self.limit as f64 };
        (self.shares as f64 * lambda).max(self.reservation as f64).min(limit)
    }
}

/// Requests per second that each client is due. Reservations must fit.
pub fn due(clients: &[Spread], rates: &[u64]) -> Vec<f64> {
    let mut fixed: Vec<Option<f64>> = vec![None; clients.len()];
    let load = |fixed: &[Option<f64>], lambda: f64, server: usize| -> f64 {
        let each = clients.iter().zip(fixed);
        each.map(|(c, x)| c.part(server) * x.unwrap_or_else(|| c.at(lambda))).sum()
    };
    while fixed.iter().any(Option::is_none) {
        let fits = |lambda: f64| {
            (0..rates.len()).all(|s| load(&fixed, lambda, s) <= rates[s] as f64 * (1.0 + 1e-9))
        };
        assert!(fits(0.0), "reservations do not fit");
        let (mut low, mut high) = (0.0, 1e9);
        for _ in 0..200 {
            let middle = (low + high) / 2.0;
            if fits(middle) { low = middle } else { high = middle }
        }
        let full: Vec<bool> = (0..rates.len())
            .map(|s| load(&fixed, high * (1.0 + 1e-6), s) > rates[s] as f64)
            .collect();
        let before = fixed.iter().flatten().count();
        for (client, x) in clients.iter().zip(&mut fixed) {
            let stops = (0..rates.len()).any(|s| full[s] && client.route[s] > 0);
            if x.is_none() && (stops || low > 1e8) {
                *x = Some(client.at(low));
            }
        }
        assert!(fixed.iter().flatten().count() > before, "a full server stops somebody");
    }
    fixed.into_iter().flatten().collect()
}
