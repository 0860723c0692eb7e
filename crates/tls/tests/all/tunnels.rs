//! What goes into a tunnel comes out of it.

use crate::support::{House, met};
use headgate_tls::{Secured, Tunnels};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

/// Both ends of a connection, each behind a tunnel.
fn ends(house: &House, tunnels: &Tunnels) -> (UnixStream, UnixStream) {
    let ((server, _), client) = met(house);
    let carry = |secured: Secured| {
        let plain = tunnels.carry(secured, u64::MAX).unwrap();
        plain.set_read_timeout(Some(PATIENCE)).unwrap();
        plain.set_write_timeout(Some(PATIENCE)).unwrap();
        plain
    };
    (carry(server), carry(client))
}

/// Bytes that no shift of them resembles.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn megabytes_cross_each_other_unchanged_in_pieces_of_any_size() {
    let house = House::new();
    let tunnels = Tunnels::start().unwrap();
    let (server, client) = ends(&house, &tunnels);
    let mut threads = Vec::new();
    for (seed, (from, to)) in [(&client, &server), (&server, &client)].into_iter().enumerate() {
        let sent = noise(seed as u64 + 7, 24 << 20);
        let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        let expected = sent.clone();
        threads.push(thread::spawn(move || {
            let (mut at, mut size) = (0, 1);
            while at < sent.len() {
                let end = (at + size).min(sent.len());
                from.write_all(&sent[at..end]).unwrap();
                (at, size) = (end, (size * 7 + 13) % 300_000 + 1);
            }
        }));
        threads.push(thread::spawn(move || {
            let mut got = vec![0; expected.len()];
            to.read_exact(&mut got).unwrap();
            assert!(got == expected, "other bytes came out");
        }));
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn an_end_is_told_after_all_that_was_said_before_it() {
    let house = House::new();
    let tunnels = Tunnels::start().unwrap();
    let (mut server, mut client) = ends(&house, &tunnels);
    client.write_all(b"the last words").unwrap();
    drop(client);
    let mut heard = Vec::new();
    server.read_to_end(&mut heard).unwrap();
    assert_eq!(heard, b"the last words");
    // And without any.
    let (server, mut client) = ends(&house, &tunnels);
    drop(server);
    assert_eq!(client.read(&mut [0; 8]).unwrap(), 0);
}

#[test]
fn a_peer_that_goes_without_a_word_ends_it_too() {
    let house = House::new();
    let tunnels = Tunnels::start().unwrap();
    let ((server, _), client) = met(&house);
    let mut plain = tunnels.carry(server, u64::MAX).unwrap();
    plain.set_read_timeout(Some(PATIENCE)).unwrap();
    // Its socket is closed without the end that TLS has.
    drop(client);
    assert_eq!(plain.read(&mut [0; 8]).unwrap(), 0);
}

#[test]
fn who_reads_nothing_is_waited_for_and_holds_up_nobody_else() {
    let house = House::new();
    let tunnels = Tunnels::start().unwrap();
    // More than there are threads.
    let mut stuck: Vec<_> = (0..8).map(|_| ends(&house, &tunnels)).collect();
    for (server, _) in &mut stuck {
        server.set_nonblocking(true).unwrap();
        let bytes = vec![1; 1 << 20];
        let mut taken = 0;
        // Until it takes no more, which it has to at some time.
        let mut quiet = 0;
        while quiet < 20 {
            match server.write(&bytes) {
                Ok(len) => (taken, quiet) = (taken + len, 0),
                Err(_) => {
                    quiet += 1;
                    thread::sleep(Duration::from_millis(5));
                }
            }
            assert!(taken < 64 << 20, "it holds any number of bytes for who does not read");
        }
    }
    let (mut server, mut client) = ends(&house, &tunnels);
    for byte in 0..100 {
        client.write_all(&[byte; 9000]).unwrap();
        let mut got = [0; 9000];
        server.read_exact(&mut got).unwrap();
        assert_eq!(got, [byte; 9000]);
    }
    // Whoever reads at last gets all of it.
    let (mut server, mut client) = stuck.pop().unwrap();
    let reading = thread::spawn(move || {
        let mut all = Vec::new();
        client.read_to_end(&mut all).unwrap();
        all
    });
    server.set_nonblocking(false).unwrap();
    server.write_all(b"end").unwrap();
    server.shutdown(Shutdown::Write).unwrap();
    let all = reading.join().unwrap();
    assert!(all.ends_with(b"\x01end") && all.len() > 1 << 16, "{}", all.len());
}

#[test]
fn threads_end_with_their_last_tunnel() {
    let house = House::new();
    let tunnels = Tunnels::start().unwrap();
    let (mut server, mut client) = ends(&house, &tunnels);
    drop(tunnels);
    client.write_all(b"still there").unwrap();
    let mut heard = [0; 11];
    server.read_exact(&mut heard).unwrap();
    drop(client);
    assert_eq!(server.read(&mut heard).unwrap(), 0);
}

#[test]
fn descriptors_that_are_not_for_clients_are_left_alone() {
    let house = House::new();
    let tunnels = Tunnels::start().unwrap();
    let ((server, _), mut client) = met(&house);
    // The lowest numbers are taken.
    assert!(tunnels.carry(server, 3).is_err());
    assert!(client.read(&mut [0]).is_err(), "it ends without a proper end");
}
