//! The sockets that a running server listens on, each with the exports that clients find there.
//! More can be added and taken away; the accepting thread learns of it by a bell.

use super::rights::Rule;
use super::secure::Secure;
use super::server::Exports;
use super::socket::Listener;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

/// A socket that is listened on.
pub(super) struct Entrance {
    pub(super) listener: Listener,
    pub(super) way: Way,
}

/// What a client finds behind the socket that it came by.
#[derive(Clone)]
pub(super) struct Way {
    pub(super) exports: Arc<Exports>,
    /// Who may use which of them, where that can change; else the socket's own rights decide.
    pub(super) rule: Option<Arc<Rule>>,
    /// It serves over TLS only, and what a client's certificate allows is the rule.
    pub(super) secure: Option<Arc<Secure>>,
}

enum Order {
    Add(Entrance),
    /// Said to the sender when the socket is no more.
    Remove(PathBuf, SyncSender<()>),
}

/// Where orders are given. Dropping it ends the server.
#[derive(Debug)]
pub(super) struct Desk {
    orders: Sender<Order>,
    bell: UnixStream,
}

impl Desk {
    /// Clients may come by this socket from now on.
    pub(super) fn add(&self, entrance: Entrance) {
        self.order(Order::Add(entrance));
    }

    /// Stops listening at a unix socket, and waits until it is no more.
    pub(super) fn remove(&self, path: &Path) {
        let (done, gone) = sync_channel(1);
        self.order(Order::Remove(path.to_owned(), done));
        // An error is a thread that has ended, and its sockets with it.
        let _ = gone.recv();
    }

    fn order(&self, order: Order) {
        // As above.
        let _ = self.orders.send(order);
        if let Err(e) = (&self.bell).write(&[1])
            && e.kind() != io::ErrorKind::WouldBlock
        {
            tracing::error!("the thread that accepts NBD clients cannot be told: {e}");
        }
    }
}

/// Whether the server goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outlook {
    Open,
    Closed,
}

/// The accepting thread's side. Its descriptor is readable when there are orders.
pub(super) struct Entrances {
    all: Vec<Entrance>,
    orders: Receiver<Order>,
    bell: UnixStream,
}

impl Entrances {
    /// These to begin with.
    pub(super) fn new(all: Vec<Entrance>) -> io::Result<(Desk, Entrances)> {
        let (rung, bell) = UnixStream::pair()?;
        rung.set_nonblocking(true)?;
        bell.set_nonblocking(true)?;
        let (giver, orders) = channel();
        Ok((Desk { orders: giver, bell: rung }, Entrances { all, orders, bell }))
    }

    /// All of them.
    pub(super) fn all(&self) -> &[Entrance] {
        &self.all
    }

    /// Does what was ordered.
    pub(super) fn take_orders(&mut self) -> io::Result<Outlook> {
        match self.bell.read(&mut [0; 64]) {
            Ok(0) => return Ok(Outlook::Closed),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Outlook::Open),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return Ok(Outlook::Open),
            Err(e) => return Err(e),
        }
        for order in self.orders.try_iter() {
            match order {
                Order::Add(entrance) => self.all.push(entrance),
                Order::Remove(path, done) => {
                    self.all.retain(|one| one.listener.path() != Some(&path));
                    // Nobody waits for it any more.
                    let _ = done.send(());
                }
            }
        }
        Ok(Outlook::Open)
    }
}

impl AsFd for Entrances {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
