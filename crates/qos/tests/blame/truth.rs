//! The definition of `docs/blame.md`, written out: every request has a record, and at every instant
//! each one under way says what it waits for. It knows nothing of how the gate counts. Until when a
//! limit forbids it has from the scheduler, and holds that to what is dispatched.

use headgate_units::Nanos;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    Queue,
    Device { cost: u64 },
}

#[derive(Clone, Copy, Debug)]
struct Record {
    id: u64,
    disk: usize,
    at: At,
}

/// What the gate said when it was last asked to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The window is full.
    Full,
    /// There is room, and nothing goes.
    Room,
}

/// The time of one disk's requests, in request-nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Times {
    pub device: f64,
    pub limit: f64,
    pub own: f64,
    pub window: f64,
    /// By disk.
    pub neighbours: Vec<f64>,
}

impl Times {
    pub fn total(&self) -> f64 {
        let neighbours: f64 = self.neighbours.iter().sum();
        self.device + self.limit + self.own + self.window + neighbours
    }
}

pub struct Truth {
    now: u64,
    records: Vec<Record>,
    /// Until when limits forbid what each disk has queued.
    limits: Vec<u64>,
    answer: Answer,
    /// Requests, and millionths of a reference IO.
    window: (f64, f64),
    widest: (f64, f64),
    pub times: Vec<Times>,
}

impl Truth {
    pub fn new(disks: usize, window: (f64, f64)) -> Truth {
        let times = Times { neighbours: vec![0.0; disks], ..Times::default() };
        Truth {
            now: 0,
            records: Vec::new(),
            limits: vec![0; disks],
            answer: Answer::Room,
            window,
            widest: window,
            times: vec![times; disks],
        }
    }

    fn holds(&self, disk: usize, at: u64) -> bool {
        at < self.limits[disk]
    }

    /// Nothing happened until then, but that limits end.
    pub fn pass(&mut self, to: Nanos) {
        while self.now < to.0 {
            let ends = self.limits.iter().copied().filter(|&end| end > self.now);
            let until = ends.min().unwrap_or(u64::MAX).min(to.0);
            self.stretch((until - self.now) as f64);
            self.now = until;
        }
    }

    /// A stretch in which everything stays.
    fn stretch(&mut self, dt: f64) {
        let is_queued = |record: &&Record| record.at == At::Queue;
        let ready = |truth: &Truth, disk: usize| !truth.holds(disk, truth.now);
        let waiting =
            self.records.iter().filter(is_queued).filter(|record| ready(self, record.disk)).count();
        let mut work = vec![0.0; self.limits.len()];
        let mut at_device = 0.0;
        for record in &self.records {
            if let At::Device { cost } = record.at {
                work[record.disk] += cost as f64;
                at_device += 1.0;
            }
        }
        let all: f64 = work.iter().sum();
        let part_of_window = match self.answer {
            Answer::Room => 1.0,
            Answer::Full if at_device == 0.0 => 1.0,
            Answer::Full if self.window == self.widest => 0.0,
            Answer::Full => {
                let (slots, room) = self.widest;
                let more = (slots - at_device).min(at_device * (room - all) / all).max(0.0);
                (more / waiting as f64).min(1.0)
            }
        };
        for n in 0..self.records.len() {
            let Record { disk, at, .. } = self.records[n];
            let held = self.holds(disk, self.now);
            let times = &mut self.times[disk];
            match at {
                At::Device { .. } => times.device += dt,
                At::Queue if held => times.limit += dt,
                At::Queue => {
                    times.window += part_of_window * dt;
                    let rest = (1.0 - part_of_window) * dt;
                    for (other, work) in work.iter().enumerate().filter(|(_, work)| **work > 0.0) {
                        let blame = rest * work / all;
                        match other == disk {
                            true => times.own += blame,
                            false => times.neighbours[other] += blame,
                        }
                    }
                }
            }
        }
    }

    pub fn arrive(&mut self, id: u64, disk: usize) {
        self.records.push(Record { id, disk, at: At::Queue });
    }

    pub fn dispatch(&mut self, id: u64, cost: u64) {
        let record = self.records.iter_mut().find(|record| record.id == id).expect("it arrived");
        record.at = At::Device { cost };
        let disk = record.disk;
        assert!(!self.holds(disk, self.now), "a limit holds disk {disk}");
    }

    pub fn complete(&mut self, id: u64) {
        self.records.retain(|record| record.id != id);
    }

    /// What the gate said last. With room, whoever waits is held back by a limit.
    pub fn answered(&mut self, answer: Answer) {
        self.answer = answer;
        for record in self.records.iter().filter(|record| record.at == At::Queue) {
            let held = self.holds(record.disk, self.now);
            assert!(answer == Answer::Full || held, "disk {} is held by no limit", record.disk);
        }
    }

    /// Until when limits forbid what a disk has queued, as its scheduler says: that they do, and no
    /// longer, is seen by what it dispatches.
    pub fn limited(&mut self, disk: usize, until: Option<Nanos>) {
        self.limits[disk] = until.map_or(0, |until| until.0);
    }

    pub fn set_window(&mut self, window: (f64, f64)) {
        self.window = window;
        self.widest = (self.widest.0.max(window.0), self.widest.1.max(window.1));
    }
}
