//! Board and leases in a real etcd that shows and demands certificates, and knows its users.

mod common;
#[path = "common/etcd.rs"]
mod server;

use common::{host, report, secs};
use headgate_cluster::lease::{LeaseError, Terms};
use headgate_cluster::{Board, Client, EtcdBoard, EtcdError, EtcdLeases, Servers};
use headgate_tls::{Authority, Role, ServerCredentials, accept};
use headgate_units::Nanos;
use server::{Etcd, USER, etcd, until};
use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Two authorities, `good` and `bad`, and what they issue.
struct House(TempDir);

impl House {
    fn new() -> House {
        let house = House(tempfile::tempdir().unwrap());
        for name in ["good", "bad"] {
            Authority::create(&house.path(name)).unwrap();
        }
        for (authority, role, name, out) in [
            ("good", Role::Both, "127.0.0.1", "etcd"),
            ("good", Role::Both, "other.example", "other"),
            ("bad", Role::Both, "127.0.0.1", "impostor"),
            ("good", Role::Client, "host1.example", "own"),
            ("bad", Role::Client, "host1.example", "stranger"),
        ] {
            let authority = Authority::open(&house.path(authority)).unwrap();
            let (names, day) = ([name.to_owned()], Duration::from_secs(86_400));
            authority.issue(role, &names, day, &house.path(out)).unwrap();
        }
        house.login("login", &USER.join(":"));
        house
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn login(&self, name: &str, text: &str) -> PathBuf {
        fs::write(self.path(name), text).unwrap();
        self.path(name)
    }

    /// A directory with these files of others.
    fn mixed(&self, name: &str, files: &[(&str, &str)]) -> PathBuf {
        fs::create_dir_all(self.path(name)).unwrap();
        for (from, file) in files {
            fs::copy(self.path(from).join(file), self.path(name).join(file)).unwrap();
        }
        self.path(name)
    }

    /// A directory that believes one authority, and shows what another directory has.
    fn believes(&self, name: &str, authority: &str, own: &str) -> PathBuf {
        let [certificate, key] = Role::Client.files();
        self.mixed(name, &[(authority, "ca-cert.pem"), (own, certificate), (own, key)])
    }

    /// Arguments of an etcd that shows the certificate of this directory.
    fn shown(&self, dir: &str) -> Vec<String> {
        let [certificate, key] = Role::Server.files();
        let path = |name: &str| self.path(dir).join(name).display().to_string();
        vec!["--cert-file".into(), path(certificate), "--key-file".into(), path(key)]
    }

    /// The same, and that it demands one of its clients.
    fn demanded(&self, dir: &str) -> Vec<String> {
        let authority = self.path("good/ca-cert.pem").display().to_string();
        let demand = ["--client-cert-auth".into(), "--trusted-ca-file".into(), authority];
        self.shown(dir).into_iter().chain(demand).collect()
    }
}

/// What a certificate for another name is said to be.
const NOT_FOR_NAME: &str = "not valid for name";

/// A monotonic clock.
fn clock() -> impl Fn() -> Nanos + Copy {
    let start = Instant::now();
    move || Nanos::from(start.elapsed())
}

fn leases(client: Client) -> EtcdLeases {
    EtcdLeases::new(client, &host(1, 1), Terms::new(secs(60), secs(5)).unwrap())
}

/// Why this client gets no lease.
fn refusal(client: Client) -> String {
    match leases(client).acquire(Nanos::ZERO, "db").unwrap_err() {
        LeaseError::Etcd(error) => error.to_string(),
        other => panic!("{other}"),
    }
}

/// Until it has elected itself and this client can use it. Each attempt by another name: one that
/// was given up may have been carried out, and its lease lasts for a minute.
fn ready(client: impl Fn() -> Client) {
    let mut attempts = 0..;
    until("an election", || {
        let probe = format!("probe-{}", attempts.next()?);
        let mut leases = leases(client());
        leases.acquire(Nanos::ZERO, &probe).ok()?;
        leases.release(&probe).ok()
    });
}

/// A board and leases work.
fn works(client: impl Fn() -> Client) {
    let mut boards = [1, 2].map(|n| EtcdBoard::new(client(), "gold", host(n, n)).unwrap());
    for at in [0, 4, 8] {
        for board in &mut boards {
            board.exchange(secs(at), &report(1)).unwrap();
        }
    }
    let view = boards[0].exchange(secs(12), &report(1)).unwrap();
    assert_eq!(view.peers.len(), 1, "{view:?}");
    boards.iter_mut().for_each(|board| board.leave().unwrap());
    let now = clock();
    let mut leases = leases(client());
    leases.acquire(now(), "db").unwrap();
    assert!(leases.renew(now()).unwrap().is_empty());
    leases.release("db").unwrap();
}

#[test]
fn over_tls_hosts_meet_and_hold_leases() {
    let Some(mut etcd) = etcd() else { return };
    let house = House::new();
    etcd.restart("https", &house.demanded("etcd"));
    let client = || etcd.client_with(Some(&house.path("own")), None);
    ready(client);
    works(client);
    // Where it demands none, none is needed.
    etcd.restart("https", &house.shown("etcd"));
    let client = || etcd.client_with(Some(&house.path("good")), None);
    ready(client);
    works(client);
}

#[test]
fn who_is_not_believed_is_told_why() {
    let Some(mut etcd) = etcd() else { return };
    let house = House::new();
    etcd.restart("https", &house.demanded("etcd"));
    ready(|| etcd.client_with(Some(&house.path("own")), None));
    let refused = |etcd: &Etcd, dir: &Path, words: &[&str]| {
        let error = refusal(etcd.client_with(Some(dir), None));
        let named = format!("no TLS with etcd at {}", etcd.endpoint());
        for words in [&[named.as_str()], words].concat() {
            assert!(error.contains(words), "{error}, not {words}");
        }
    };
    // Another authority's server.
    let other = house.believes("believes-other", "bad", "own");
    let expected = format!("expected one for '127.0.0.1' of an authority in {}", other.display());
    refused(&etcd, &other, &["its certificate is not accepted", "UnknownIssuer", &expected]);
    // No certificate of ours, and one of another authority.
    let missing = house.mixed("missing", &[("good", "ca-cert.pem")]);
    let stranger = house.believes("is-strange", "good", "stranger");
    for dir in [&missing, &stranger] {
        let words = format!("client-cert.pem (with client-key.pem) in {}", dir.display());
        refused(&etcd, dir, &[&words]);
    }

    // A client that goes on takes the right certificate as soon as it is there.
    let mut held = leases(etcd.client_with(Some(&stranger), None));
    held.acquire(Nanos::ZERO, "db").unwrap_err();
    house.believes("is-strange", "good", "own");
    held.acquire(Nanos::ZERO, "db").unwrap();

    // Another host's certificate; no TLS at the other end, and none at ours.
    etcd.restart("https", &house.shown("other"));
    let own = house.path("own");
    until("a certificate for another name", || {
        let error = refusal(etcd.client_with(Some(&own), None));
        error.contains(NOT_FOR_NAME).then_some(())
    });
    refused(&etcd, &own, &["its certificate is not accepted", "for '127.0.0.1'"]);
    etcd.restart("http", &[]);
    let endpoint = etcd.endpoint().to_string().replace("http://", "https://").parse().unwrap();
    let servers = Servers::new(vec![endpoint], Some(own), None).unwrap();
    let error = refusal(Client::new(servers, Duration::from_secs(5)).unwrap());
    assert!(error.contains("expected an etcd with --cert-file and --key-file"), "{error}");
}

/// What a client says that is not to believe a server with the certificate of `dir`.
fn overheard(house: &House, dir: &str, client: &Path) -> (Result<Vec<u8>, String>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("https://127.0.0.1:{}", listener.local_addr().unwrap().port());
    let credentials = ServerCredentials::read(&house.path(dir)).unwrap();
    let heard = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let deadline = Instant::now() + Duration::from_secs(5);
        let met = accept(&credentials, stream, deadline).map_err(|e| e.to_string());
        met.map(|(mut secured, _)| {
            let mut heard = vec![0; 4096];
            let length = secured.read(&mut heard).unwrap_or(0);
            heard.truncate(length);
            heard
        })
    });
    let servers = Servers::new(
        vec![endpoint.parse().unwrap()],
        Some(client.to_owned()),
        Some(house.path("login")),
    );
    let error = refusal(Client::new(servers.unwrap(), Duration::from_secs(5)).unwrap());
    (heard.join().unwrap(), error)
}

#[test]
fn nothing_is_said_to_a_server_that_is_not_believed() {
    let house = House::new();
    // The impostor would take the client's certificate, the other one's server as well.
    let trusting = house.believes("trusting", "good", "stranger");
    for (dir, client, why) in [
        ("impostor", trusting, "its certificate is not accepted"),
        ("other", house.path("own"), NOT_FOR_NAME),
    ] {
        let (heard, error) = overheard(&house, dir, &client);
        assert!(
            heard.is_err(),
            "{dir}: {:?}",
            heard.map(|h| String::from_utf8_lossy(&h).into_owned())
        );
        assert!(error.contains(why), "{error}");
    }
    // One that is believed hears it: the server above was none that hears nothing.
    let (heard, error) = overheard(&house, "etcd", &house.path("own"));
    let heard = String::from_utf8(heard.unwrap()).unwrap();
    assert!(heard.starts_with("POST /v3/auth/authenticate "), "{heard}");
    assert!(!error.contains(USER[1]), "{error}");
}

#[test]
fn users_are_let_in_by_their_passwords_and_others_are_told_why_not() {
    let Some(mut etcd) = etcd() else { return };
    let house = House::new();
    etcd.add_users();
    etcd.enable_users();
    works(|| etcd.client_with(None, Some(&house.path("login"))));
    // Beside certificates that it demands, too.
    etcd.restart("https", &house.demanded("etcd"));
    let client = || etcd.client_with(Some(&house.path("own")), Some(&house.path("login")));
    ready(client);
    works(client);
    etcd.restart("http", &[]);
    ready(|| etcd.client_with(None, Some(&house.path("login"))));
    for (text, words) in [
        ("hg:wrong", "does not let user 'hg' in"),
        ("hg:wrong", "expected a user of etcd's and its password in the file of --etcd-cred"),
        ("nobody:wrong", "does not let user 'nobody' in"),
        ("idle:top:secret", "permission denied"),
    ] {
        let error = refusal(etcd.client_with(None, Some(&house.login("tried", text))));
        assert!(error.contains(words), "{error}, not {words}");
        assert!(!error.contains("wrong") && !error.contains("secret"), "{error}");
    }
    let error = refusal(etcd.client());
    assert!(error.contains("wants to know who this is"), "{error}");
    assert!(error.contains("give --etcd-credentials FILE"), "{error}");
    // A file that is no use any more.
    let tried = house.login("tried", "hg:wrong");
    let client = || etcd.client_with(None, Some(&tried));
    let mut board = EtcdBoard::new(client(), "gold", host(1, 1)).unwrap();
    board.exchange(secs(0), &report(1)).unwrap_err();
    house.login("tried", "nonsense");
    let error = board.exchange(secs(4), &report(1)).unwrap_err().to_string();
    assert!(error.contains("holds no user and password") && error.contains("tried"), "{error}");
    // And one that is right now.
    house.login("tried", &USER.join(":"));
    board.exchange(secs(8), &report(1)).unwrap();
    let printed = format!("{board:?} {board:#?}");
    assert!(printed.contains("Token(..)") && !printed.contains(USER[1]), "{printed}");
}

#[test]
fn a_token_that_is_no_use_any_more_is_renewed_without_a_failed_call() {
    let Some(mut etcd) = etcd() else { return };
    let house = House::new();
    etcd.add_users();
    etcd.enable_users();
    let arguments = [house.shown("etcd"), vec!["--auth-token-ttl".into(), "1".into()]].concat();
    etcd.restart("https", &arguments);
    let (own, login) = (house.path("own"), house.path("login"));
    let client = |etcd: &Etcd| etcd.client_with(Some(&own), Some(&login));
    ready(|| client(&etcd));
    let now = clock();
    let mut holder = leases(client(&etcd));
    let token = holder.acquire(now(), "db").unwrap();
    // Its time is up.
    for _ in 0..2 {
        thread::sleep(Duration::from_secs(4));
        assert!(holder.renew(now()).unwrap().is_empty());
    }
    // A server that starts again knows none but those that it gave after the last write.
    let longer = house.shown("etcd");
    let forget = |etcd: &mut Etcd| {
        ready(|| client(etcd));
        thread::sleep(Duration::from_secs(1));
        etcd.restart("https", &longer);
    };
    for _ in 0..2 {
        forget(&mut etcd);
        ready(|| client(&etcd));
        assert!(holder.renew(now()).unwrap().is_empty());
    }
    assert_eq!(holder.disks().collect::<Vec<_>>(), [("db", token)]);
    // Nobody is let in by a password that has changed.
    forget(&mut etcd);
    house.login("login", "hg:wrong");
    let error = until("a refusal", || match holder.renew(now()) {
        Err(error @ EtcdError::Login { .. }) => Some(error),
        _ => None,
    });
    assert!(error.to_string().contains("user 'hg'"), "{error}");
}

#[test]
fn a_server_that_begins_to_ask_for_users_gets_an_answer() {
    let Some(etcd) = etcd() else { return };
    let house = House::new();
    let now = clock();
    let mut holder = leases(etcd.client_with(None, Some(&house.path("login"))));
    until("an election", || holder.acquire(now(), "db").ok());
    etcd.add_users();
    assert!(holder.renew(now()).unwrap().is_empty());
    etcd.enable_users();
    assert!(holder.renew(now()).unwrap().is_empty());
}
