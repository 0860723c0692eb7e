//! The state of the live view, and its keys.

use super::wide::READINGS;
use headgate_api::top::{Top, TopDatastore, TopDisk};
use headgate_model::Name;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

/// The order of disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Name,
    Iops,
    Bandwidth,
    QueueTime,
    DeviceTime,
    Reservation,
}

impl Sort {
    const ALL: [Sort; 6] = [
        Sort::Name,
        Sort::Iops,
        Sort::Bandwidth,
        Sort::QueueTime,
        Sort::DeviceTime,
        Sort::Reservation,
    ];

    pub(super) fn title(self) -> &'static str {
        match self {
            Sort::Name => "name",
            Sort::Iops => "IOPS",
            Sort::Bandwidth => "bandwidth",
            Sort::QueueTime => "queue time",
            Sort::DeviceTime => "device time",
            Sort::Reservation => "reservation",
        }
    }

    fn next(self) -> Sort {
        let at = Sort::ALL.iter().position(|sort| *sort == self).unwrap_or(0);
        Sort::ALL[(at + 1) % Sort::ALL.len()]
    }

    /// Largest first, and by name where equal.
    fn apply(self, disks: &mut [&TopDisk]) {
        let whole = |x: f64| x as u64;
        disks.sort_by_key(|disk| {
            let by = match self {
                Sort::Name => 0,
                Sort::Iops => whole(disk.load.iops),
                Sort::Bandwidth => whole(disk.load.bytes_per_sec),
                Sort::QueueTime => disk.load.queue_micros.map_or(0, |q| q.p99),
                Sort::DeviceTime => disk.load.device_micros.map_or(0, |d| d.p99),
                Sort::Reservation => disk.policy.reservation.map_or(0, |r| r.get()),
            };
            (Reverse(by), &disk.name)
        });
    }
}

/// The mode of keyboard input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    #[default]
    Watch,
    /// Typing the filter.
    Filter,
    Help,
}

/// What is shown of each disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum View {
    /// What it does.
    #[default]
    Load,
    /// What its requests wait for, and behind whom.
    Blame,
}

/// The action after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Go,
    Quit,
}

/// The state of the view.
#[derive(Default)]
pub(super) struct Screen {
    pub(super) top: Top,
    /// IOPS of each disk of late, the oldest first.
    pub(super) rates: BTreeMap<Name, VecDeque<f64>>,
    /// Why there is nothing new.
    pub(super) trouble: Option<String>,
    pub(super) sort: Sort,
    pub(super) filter: String,
    pub(super) mode: Mode,
    pub(super) view: View,
    /// Lines scrolled away.
    pub(super) offset: usize,
}

impl Screen {
    pub(super) fn on_top(&mut self, top: Top) {
        let mut before = std::mem::take(&mut self.rates);
        for disk in top.datastores.iter().flat_map(|store| &store.disks) {
            let rates = before.remove(&disk.name).unwrap_or_default();
            let rates = self.rates.entry(disk.name.clone()).or_insert(rates);
            if rates.len() == READINGS {
                rates.pop_front();
            }
            rates.push_back(disk.load.iops);
        }
        self.top = top;
        self.trouble = None;
    }

    pub(super) fn on_trouble(&mut self, trouble: String) {
        self.trouble = Some(trouble);
    }

    pub(super) fn on_key(&mut self, key: KeyEvent) -> Next {
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Next::Quit;
        }
        match self.mode {
            Mode::Help => self.mode = Mode::Watch,
            Mode::Filter => match key.code {
                KeyCode::Enter => self.mode = Mode::Watch,
                KeyCode::Esc => {
                    self.filter.clear();
                    self.mode = Mode::Watch;
                }
                KeyCode::Backspace => {
                    self.filter.pop();
                }
                KeyCode::Char(c) if self.filter.len() < 64 => self.filter.push(c),
                _ => {}
            },
            Mode::Watch => match key.code {
                KeyCode::Char('q') => return Next::Quit,
                KeyCode::Char('s') => self.sort = self.sort.next(),
                KeyCode::Char('n') => self.sort = Sort::Name,
                KeyCode::Char('i') => self.sort = Sort::Iops,
                KeyCode::Char('b') => {
                    self.view = match self.view {
                        View::Load => View::Blame,
                        View::Blame => View::Load,
                    };
                }
                KeyCode::Char('w') => self.sort = Sort::Bandwidth,
                KeyCode::Char('l') => self.sort = Sort::QueueTime,
                KeyCode::Char('d') => self.sort = Sort::DeviceTime,
                KeyCode::Char('r') => self.sort = Sort::Reservation,
                KeyCode::Char('/') => self.mode = Mode::Filter,
                KeyCode::Char('?' | 'h') => self.mode = Mode::Help,
                KeyCode::Esc => self.filter.clear(),
                KeyCode::Down | KeyCode::Char('j') => self.offset = self.offset.saturating_add(1),
                KeyCode::Up | KeyCode::Char('k') => self.offset = self.offset.saturating_sub(1),
                KeyCode::PageDown => self.offset = self.offset.saturating_add(10),
                KeyCode::PageUp => self.offset = self.offset.saturating_sub(10),
                KeyCode::Home => self.offset = 0,
                _ => {}
            },
        }
        Next::Go
    }

    /// The disks to show of a datastore, in order.
    pub(super) fn disks<'a>(&self, datastore: &'a TopDatastore) -> Vec<&'a TopDisk> {
        let matches = |disk: &&TopDisk| {
            let vm = disk.vm.as_ref().map_or("", |vm| vm.as_str());
            [disk.name.as_str(), vm, datastore.name.as_str()]
                .iter()
                .any(|text| text.contains(&self.filter))
        };
        let mut disks: Vec<&TopDisk> = datastore.disks.iter().filter(matches).collect();
        self.sort.apply(&mut disks);
        disks
    }
}
