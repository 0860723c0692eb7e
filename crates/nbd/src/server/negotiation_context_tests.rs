//! Metadata contexts in the handshake, against a reading of the protocol that knows neither the
//! parser nor its sets.

use super::*;
use proptest::prelude::*;
use std::cell::Cell;

/// Disks with bitmaps: `web` has three, `db` one of the same names, `many` has more than are
/// offered.
fn bitmaps_of(disk: &str) -> Vec<String> {
    match disk {
        "web" => ["monday", "tuesday", "a:b"].map(String::from).into(),
        "db" => vec!["tuesday".into()],
        "many" => (0..70).map(|i| format!("n{i}")).collect(),
        _ => Vec::new(),
    }
}

#[derive(Default)]
struct Disks {
    /// Whether the bitmaps are in the other order for those who open a disk.
    turned: Cell<bool>,
}

impl Catalog for Disks {
    type Handle = Vec<BitmapName>;

    fn list(&self) -> Vec<ExportName> {
        Vec::new()
    }

    fn open(&self, name: &str) -> Result<Opened<Vec<BitmapName>>, OpenError> {
        if !["web", "db", "many", "bare"].contains(&name) {
            return Err(OpenError::Unknown);
        }
        let mut handle: Vec<BitmapName> =
            bitmaps_of(name).iter().map(|name| name.parse().unwrap()).collect();
        if self.turned.get() {
            handle.reverse();
        }
        let writes = Writes::Refused;
        let export = Export { size: 1 << 20, block_size: 1, preferred: 4096, writes };
        Ok(Opened { name: name.into(), export, description: String::new(), handle })
    }

    fn bitmaps_of(&self, handle: &Vec<BitmapName>) -> Vec<BitmapName> {
        handle.clone()
    }
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat()
}

fn option(kind: u32, data: &[u8]) -> Vec<u8> {
    [&b"IHAVEOPT"[..], &kind.to_be_bytes(), &(data.len() as u32).to_be_bytes(), data].concat()
}

fn meta(kind: u32, disk: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = string(disk);
    data.extend((queries.len() as u32).to_be_bytes());
    queries.iter().for_each(|query| data.extend(string(query)));
    option(kind, &data)
}

const LIST: u32 = 9;
const SET: u32 = 10;

fn structured() -> Vec<u8> {
    option(8, &[])
}

fn go(disk: &str) -> Vec<u8> {
    option(7, &[string(disk), vec![0, 0]].concat())
}

/// One client's handshake.
struct Client<'a> {
    disks: &'a Disks,
    negotiation: Negotiation,
}

impl<'a> Client<'a> {
    fn new(disks: &'a Disks) -> Client<'a> {
        let mut client = Client { disks, negotiation: Negotiation::default() };
        client.say(&3u32.to_be_bytes());
        client.say(&structured());
        client
    }

    /// The answers to one message (type, payload), and what was agreed on if it was the last one.
    fn say(&mut self, message: &[u8]) -> (Vec<(u32, Vec<u8>)>, Option<Session>) {
        let mut out = Vec::new();
        let (used, step) = self.negotiation.poll(message, self.disks, &mut out).unwrap();
        assert_eq!(used, message.len());
        let (mut answers, mut rest) = (Vec::new(), &out[..]);
        while !rest.is_empty() {
            let word = |at: usize| u32::from_be_bytes(rest[at..at + 4].try_into().unwrap());
            let end = 20 + word(16) as usize;
            answers.push((word(12), rest[20..end].to_vec()));
            rest = &rest[end..];
        }
        let session = if let Step::Transmission(_, session) = step { Some(session) } else { None };
        (answers, session)
    }

    /// The contexts in the answer to a question about them: numbers and names. `None`: an error.
    fn ask(&mut self, kind: u32, disk: &str, queries: &[&str]) -> Option<Vec<(u32, String)>> {
        let (mut answers, _) = self.say(&meta(kind, disk, queries));
        let (last, payload) = answers.pop().unwrap();
        if last != 1 {
            assert!(last >> 31 == 1 && answers.is_empty());
            return None;
        }
        assert!(payload.is_empty());
        let context = |(kind, payload): (u32, Vec<u8>)| {
            assert_eq!(kind, 4);
            let name = String::from_utf8(payload[4..].to_vec()).unwrap();
            (u32::from_be_bytes(payload[..4].try_into().unwrap()), name)
        };
        Some(answers.into_iter().map(context).collect())
    }

    /// The numbers of the contexts that count for whoever enters transmission now.
    fn enter(&mut self, disk: &str) -> Vec<u32> {
        let (_, session) = self.say(&go(disk));
        session.expect("the disk can be opened").contexts.ids().map(ContextId::get).collect()
    }
}

/// All contexts of a disk with their numbers.
fn all(disk: &str) -> Vec<(u32, String)> {
    let bitmaps = bitmaps_of(disk).into_iter().take(62);
    let names = bitmaps.map(|name| "qemu:dirty-bitmap:".to_string() + &name);
    (1..).zip(["base:allocation".to_string()].into_iter().chain(names)).collect()
}

/// What the protocol says that a query names, of these.
fn is_named(kind: u32, query: &str, context: &str) -> bool {
    let wildcard =
        query.ends_with(':') && ["base:", "qemu:", "qemu:dirty-bitmap:"].contains(&query);
    query == context || (kind == LIST && wildcard && context.starts_with(query))
}

fn any_query() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "base:allocation",
        "base:",
        "base:other",
        "qemu:",
        "qemu:dirty-bitmap:",
        "qemu:dirty-bitmap:monday",
        "qemu:dirty-bitmap:tuesday",
        "qemu:dirty-bitmap:a:b",
        "qemu:dirty-bitmap:a",
        "qemu:dirty-bitmap:mondays",
        "qemu:dirty-bitmap",
        "qemu:allocation-depth",
        "qemu:dirty-bitmap:n0",
        "qemu:dirty-bitmap:n61",
        "qemu:dirty-bitmap:n62",
        "Base:allocation",
        "x-other:monday",
        ":",
        "plain",
        "",
    ])
}

type Question = (bool, &'static str, Vec<&'static str>);

fn any_question() -> impl Strategy<Value = Question> {
    let disk = prop::sample::select(vec!["web", "web", "db", "many", "bare", "nobody"]);
    (any::<bool>(), disk, prop::collection::vec(any_query(), 0..6))
}

proptest! {
    #[test]
    fn contexts_are_listed_and_selected_by_the_rules(
        questions in prop::collection::vec(any_question(), 1..6),
        last in prop::sample::select(vec!["web", "db", "many", "bare"]),
    ) {
        let disks = Disks::default();
        let mut client = Client::new(&disks);
        let mut counts: Option<(&str, Vec<u32>)> = None;
        for (selects, disk, queries) in questions {
            let kind = if selects { SET } else { LIST };
            let fails = disk == "nobody" || queries.iter().any(|query| !query.contains(':'));
            let mut named = all(disk);
            named.retain(|(_, name)| {
                (kind == LIST && queries.is_empty())
                    || queries.iter().any(|query| is_named(kind, query, name))
            });
            let ids = named.iter().map(|(id, _)| *id).collect();
            if kind == LIST {
                // Numbers have no meaning there.
                named.iter_mut().for_each(|(id, _)| *id = 0);
            }
            let answer = client.ask(kind, disk, &queries);
            prop_assert_eq!(answer, (!fails).then_some(named), "{} {} {:?}", kind, disk, queries);
            if selects {
                counts = (!fails).then_some((disk, ids));
            }
        }
        let expected = counts.filter(|(disk, _)| *disk == last).map(|(_, ids)| ids);
        prop_assert_eq!(client.enter(last), expected.unwrap_or_default());
    }
}

#[test]
fn of_many_bitmaps_the_first_are_offered() {
    let disks = Disks::default();
    let listed = Client::new(&disks).ask(LIST, "many", &[]).unwrap();
    assert_eq!(listed.len(), 63);
    assert_eq!(listed[62].1, "qemu:dirty-bitmap:n61");
    let every: Vec<String> = (0..70).map(|i| format!("qemu:dirty-bitmap:n{i}")).collect();
    let every: Vec<&str> = every.iter().map(String::as_str).chain(["base:allocation"]).collect();
    let mut client = Client::new(&disks);
    assert_eq!(client.ask(SET, "many", &every).unwrap(), all("many"));
    assert!(client.enter("many").into_iter().eq(1..=63));
}

#[test]
fn bitmaps_that_changed_after_they_were_selected_are_not_mixed_up() {
    for (queries, fits) in [
        (&["qemu:dirty-bitmap:monday"][..], false),
        (&["base:allocation", "qemu:dirty-bitmap:a:b"], false),
        // Still the second of three.
        (&["qemu:dirty-bitmap:tuesday"], true),
        (&["base:allocation"], true),
        (&[], true),
    ] {
        let disks = Disks::default();
        let mut client = Client::new(&disks);
        let count = client.ask(SET, "web", queries).unwrap().len();
        assert_eq!(count, queries.len());
        disks.turned.set(true);
        let (answers, session) = client.say(&go("web"));
        if fits {
            assert_eq!(session.unwrap().contexts.len(), count);
            continue;
        }
        assert!(session.is_none());
        assert_eq!(answers.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [(1 << 31) + 2]);
        // By the old way there is no answer that says no.
        let mut out = Vec::new();
        let old = client.negotiation.poll(&option(1, b"web"), &disks, &mut out);
        assert!(matches!(old, Err(NegotiationError::NoExport(OpenError::Refused(_)))));
        assert!(out.is_empty());
        // Who selects again is served.
        assert_eq!(client.ask(SET, "web", queries).unwrap().len(), count);
        assert_eq!(client.enter("web").len(), count);
    }
}

#[test]
fn contexts_need_structured_replies() {
    let disks = Disks::default();
    let mut client = Client { disks: &disks, negotiation: Negotiation::default() };
    client.say(&3u32.to_be_bytes());
    assert_eq!(client.ask(SET, "web", &["qemu:dirty-bitmap:monday"]), None);
    assert_eq!(client.ask(LIST, "web", &["qemu:"]).unwrap().len(), 3);
    assert!(client.enter("web").is_empty());
}
