//! How the server in this process ends its connections, and itself.

use super::Server;
use std::net::Shutdown;

impl Server {
    /// Ends all connections; new ones are taken.
    pub fn hang_up(&self) {
        self.hang_up_on(|_| true);
    }

    /// The number of a connection that stands, by age.
    pub fn nth(&self, nth: usize) -> Option<usize> {
        let state = self.state();
        let standing: Vec<usize> = state
            .connections
            .iter()
            .map(|(number, _)| *number)
            .filter(|number| !state.stuck.contains(number))
            .collect();
        standing.get(nth).or(standing.last()).copied()
    }

    /// Ends a connection, by age.
    pub fn hang_up_on_nth(&self, nth: usize) {
        let which = self.nth(nth);
        self.hang_up_on(|number| Some(number) == which);
    }

    /// Ends these connections; new ones are taken.
    pub fn hang_up_on(&self, which: impl Fn(usize) -> bool) {
        self.state().connections.retain(|(number, connection)| {
            if which(*number) {
                let _ = connection.shutdown(Shutdown::Both);
            }
            !which(*number)
        });
    }

    /// Dies, and takes back what was not flushed.
    pub fn crash(&mut self) {
        self.crash_unnoticed_on(|_| false);
    }

    /// Dies with its host: nothing ends these connections.
    pub fn crash_unnoticed_on(&mut self, which: impl Fn(usize) -> bool) {
        std::fs::remove_file(&self.socket).unwrap();
        if let Some(listener) = self.listener.take() {
            // Wakes and ends the thread that accepts.
            // SAFETY: an open descriptor.
            unsafe { libc::shutdown(std::os::fd::AsRawFd::as_raw_fd(&listener), libc::SHUT_RDWR) };
        }
        let dead = self.state().connections.iter().map(|(number, _)| *number).collect::<Vec<_>>();
        self.state().stuck.extend(dead.into_iter().filter(|&number| which(number)));
        self.hang_up_on(|number| !which(number));
        let mut state = self.state();
        state.content = state.durable.clone();
    }
}
