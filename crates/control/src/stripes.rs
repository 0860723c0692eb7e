//! Disks that are striped over the exports of several NBD servers.
//!
//! Which export is which member of which disk is written on the exports themselves, in front of the
//! data: whoever connects them in another order or mixes two disks is told so.

use super::remote::{Found, check_export_name, uri};
use super::server_policy::next_epoch;
use super::{Control, ControlError, Model};
use crate::leases::Eviction;
use headgate_api::types::{DiskCreate, Force};
use headgate_model::{Backend, MemberContent, MemberProbe, RemoteRecord, StripeRecord};
use headgate_nbd::uri::Uri;
use headgate_stripe::{
    DATA_AT, Label, Layout, Lease, MEMBERS_MAX, Stage, StripeId, UNIT_MAX, UNIT_MIN,
};
use headgate_units::Bytes;

/// Of new disks, unless it is said otherwise: most requests of guests fit one server, and few
/// streams keep several busy.
pub(super) const UNIT_DEFAULT: Bytes = Bytes::from_kib(256);

/// What a disk has that is none yet: every disk has a size of whole blocks of this.
const SIZE_STEP: u64 = 4096;

/// Reads the servers of a datastore of striped disks.
pub(super) fn servers(texts: &[String]) -> Result<Vec<String>, ControlError> {
    if texts.is_empty() || texts.len() > usize::from(MEMBERS_MAX) {
        return Err(ControlError::invalid(
            format!("a disk cannot be striped over {} servers", texts.len()),
            format!("1 to {MEMBERS_MAX} servers"),
        ));
    }
    let mut servers = Vec::new();
    for text in texts {
        let server = super::remote::server(text)?;
        if servers.contains(&server) {
            return Err(ControlError::invalid(
                format!("server '{text}' is named twice"),
                "each server once: a disk has one export of each",
            ));
        }
        servers.push(server);
    }
    Ok(servers)
}

/// The datastore with further servers behind those that it has.
pub(super) fn with_servers(backend: Backend, more: &[String]) -> Result<Backend, ControlError> {
    let Backend::Stripe { servers: mut all, unit, connections } = backend else {
        return Err(ControlError::invalid(
            "only disks of a datastore that was added with --stripe lie on several servers",
            "no servers for this datastore, or one that was added with --stripe",
        ));
    };
    all.extend_from_slice(more);
    Ok(Backend::Stripe { servers: servers(&all)?, unit, connections })
}

/// Checks the unit of a datastore's new disks.
pub(super) fn check_unit(unit: Bytes) -> Result<Bytes, ControlError> {
    if unit.0.is_power_of_two() && (UNIT_MIN..=UNIT_MAX).contains(&unit) {
        return Ok(unit);
    }
    Err(ControlError::invalid(
        format!("a stripe unit of {} bytes cannot be", unit.0),
        format!("a power of two from {UNIT_MIN} to {UNIT_MAX}"),
    ))
}

/// An export, and what is known of it.
struct Member {
    uri: Uri,
    server: String,
    probe: MemberProbe,
}

impl Control {
    /// Looks at the exports that a new disk shall be striped over. Waits for the servers, up to a
    /// deadline for each.
    pub(super) fn find_stripe(
        &self,
        servers: &[String],
        unit: Bytes,
        request: &DiskCreate,
    ) -> Result<Found, ControlError> {
        let Some(export) = &request.export else {
            return Err(ControlError::invalid(
                "a striped disk is an export of each of its servers, and none is named",
                "the name that the export has at each server: --export NAME",
            ));
        };
        check_export_name(export)?;
        for server in servers {
            self.check_export_free(&self.model(), server, export)?;
        }
        let members = servers.iter().map(|server| {
            let uri = uri(server, export)?;
            let probe = self.plane.look_at_member(&uri)?;
            Ok(Member { uri, server: server.clone(), probe })
        });
        let members: Vec<Member> = members.collect::<Result<_, ControlError>>()?;
        let block_size = members.iter().map(|member| member.probe.block_size).max().unwrap_or(512);
        let known = match request.overwrite {
            Force::Yes => Known::None,
            Force::No => known(export, &members, self.leases.on_labels(0))?,
        };
        let (id, layout) = match known {
            Known::All(label) | Known::Remains(label) => {
                check_size(export, request.size, label.layout.size())?;
                (label.id, label.layout)
            }
            Known::None => new_stripe(export, unit, &members, request)?,
        };
        check_stripe_free(&self.model(), id)?;
        let found: Vec<_> =
            members.iter().map(|member| (member.server.clone(), member.probe.clone())).collect();
        let eviction = if request.evict == Force::Yes { Eviction::IfHeld } else { Eviction::Never };
        let lease = self.leases.next_on_labels(&request.name, &found, eviction, request.force)?;
        let stages: &[Stage] = match known {
            Known::All(_) => &[Stage::Made],
            Known::None | Known::Remains(_) => &[Stage::BeingMade, Stage::Made],
        };
        let of_stage = |stage: &Stage| {
            let stage = *stage;
            let label = move |(index, member): (u16, &Member)| {
                (member.uri.clone(), Label { id, index, layout, lease, stage })
            };
            (0..).zip(&members).map(label).collect::<Vec<_>>()
        };
        let to_label = stages.iter().flat_map(of_stage).collect();
        let (unit, servers) = (layout.unit(), servers.to_vec());
        let stripe = StripeRecord {
            id,
            unit,
            servers: servers.clone(),
            lease: lease.number,
            epoch: next_epoch(0),
        };
        Ok(Found {
            record: RemoteRecord { export: export.clone(), block_size, stripe: Some(stripe) },
            servers,
            size: layout.size(),
            session: None,
            to_label,
        })
    }
}

/// What the labels of exports are together.
#[derive(Clone, Copy, Debug)]
enum Known {
    /// There are none.
    None,
    /// All exports are the members of a disk, each in its place. This is the first one's.
    All(Label),
    /// This host began to make a disk of them, and did not come to the last one. Whatever is on
    /// those that have no label yet, nobody has written to the disk.
    Remains(Label),
}

/// What the exports are together, for a host that has this for a lease.
fn known(export: &str, members: &[Member], own: Lease) -> Result<Known, ControlError> {
    let label = |member: &Member| match member.probe.content {
        MemberContent::Labelled(label) => Some(label),
        MemberContent::Nothing | MemberContent::Other(_) => None,
    };
    let Some(first) = members.iter().find_map(label) else { return Ok(Known::None) };
    let is_begun = |found: &Label| found.stage == Stage::BeingMade && found.lease.host == own.host;
    let remains = members.iter().all(|member| match &member.probe.content {
        MemberContent::Labelled(found) => is_begun(found),
        MemberContent::Nothing => true,
        MemberContent::Other(_) => false,
    });
    let mut blank = 0;
    for (index, member) in (0..).zip(members) {
        let same = |found: &Label| Label { index, lease: found.lease, stage: found.stage, ..first };
        let why = match label(member) {
            None if remains => {
                blank += 1;
                continue;
            }
            None => format!("it has no label, and others have that of {}", disk_of(&first)),
            Some(found) => match found.check(&same(&found)) {
                Ok(()) => continue,
                Err(mismatch) => mismatch.to_string(),
            },
        };
        return Err(ControlError::Busy {
            error: format!(
                "export '{export}' of {} is no member of this disk: {why}",
                member.server
            ),
            hint: "name the exports of one disk, on a datastore with its servers in their order; \
                   or overwrite what the exports hold with --overwrite"
                .into(),
        });
    }
    if usize::from(first.layout.members()) != members.len() {
        return Err(ControlError::Busy {
            error: format!(
                "the exports '{export}' are members of a disk on {} servers, and the datastore \
                 has {}",
                first.layout.members(),
                members.len()
            ),
            hint: "use a datastore with all servers of that disk, in their order".into(),
        });
    }
    Ok(if blank > 0 { Known::Remains(first) } else { Known::All(first) })
}

/// What is said of a disk by the label of a member.
fn disk_of(label: &Label) -> String {
    match label.stage {
        Stage::Made => format!("striped disk {}", label.id),
        Stage::BeingMade => format!(
            "striped disk {}, which host '{}' began to make and did not finish",
            label.id, label.lease.name
        ),
    }
}

/// Two disks by the same labels would each write what the other has, by whatever addresses they
/// reach the exports.
pub(super) fn check_stripe_free(model: &Model, id: StripeId) -> Result<(), ControlError> {
    let is_it = |remote: Option<&RemoteRecord>| {
        remote.and_then(|remote| remote.stripe.as_ref()).is_some_and(|stripe| stripe.id == id)
    };
    let disks = model.disks.values().map(|disk| (&disk.record.name, disk.record.remote.as_ref()));
    let moves = model.moves.values().map(|one| (&one.record.disk, one.remote.as_ref()));
    match disks.chain(moves).find(|(_, remote)| is_it(*remote)) {
        None => Ok(()),
        Some((disk, _)) => Err(ControlError::Busy {
            error: format!("the exports are disk '{disk}' here already, by their labels"),
            hint: "name other exports, or remove that disk first (the servers keep its data)"
                .into(),
        }),
    }
}

/// A disk over exports that have no labels.
fn new_stripe(
    export: &str,
    unit: Bytes,
    members: &[Member],
    request: &DiskCreate,
) -> Result<(StripeId, Layout), ControlError> {
    for member in members {
        if let (MemberContent::Other(what), Force::No) = (&member.probe.content, request.overwrite)
        {
            return Err(ControlError::Busy {
                error: format!("export '{export}' of {} holds something: {what}", member.server),
                hint: "name an export of zeroes, or overwrite what it holds with --overwrite"
                    .into(),
            });
        }
    }
    let count = members.len() as u64;
    let room = members.iter().map(|member| member.probe.size.0.saturating_sub(DATA_AT.0)).min();
    let units = room.unwrap_or(0) / unit.0;
    let most = units.saturating_mul(unit.0).saturating_mul(count) / SIZE_STEP * SIZE_STEP;
    let size = request.size.unwrap_or(Bytes(most));
    let layout = Layout::new(unit, members.len() as u16, size).map_err(|e| {
        ControlError::invalid(e.to_string(), "a size that the exports have room for")
    })?;
    for member in members {
        if member.probe.size < layout.member_size() {
            return Err(ControlError::invalid(
                format!(
                    "export '{export}' of {} has {} bytes, and a disk of {} bytes needs {} of \
                     each server",
                    member.server,
                    member.probe.size.0,
                    size.0,
                    layout.member_size().0
                ),
                format!("a size of up to {most} bytes, or larger exports"),
            ));
        }
    }
    Ok((random_id()?, layout))
}

fn check_size(export: &str, asked: Option<Bytes>, found: Bytes) -> Result<(), ControlError> {
    match asked {
        Some(asked) if asked != found => Err(ControlError::invalid(
            format!(
                "the exports '{export}' are those of a striped disk of {} bytes, and {} were \
                 asked for",
                found.0, asked.0
            ),
            format!("no size, or {} bytes; or --overwrite for a new disk", found.0),
        )),
        _ => Ok(()),
    }
}

/// An id that no other disk has.
fn random_id() -> Result<StripeId, ControlError> {
    let mut bytes = [0; 16];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    match filled {
        Ok(16) => Ok(StripeId(bytes)),
        _ => Err(headgate_model::PlaneError::new("the system has no random numbers").into()),
    }
}

#[cfg(test)]
#[path = "stripe_making_tests.rs"]
mod tests_of_making;

#[cfg(test)]
mod tests {
    use crate::ControlError;
    use crate::testing::Bench;
    use headgate_api::placement::Created;
    use headgate_api::types::Disk;
    use headgate_model::MemberContent;
    use headgate_stripe::Label;
    use serde_json::{Value, json};

    /// A datastore over these hosts, in units of 64 KiB.
    fn add(bench: &Bench, name: &str, hosts: &[&str]) {
        let servers: Vec<String> = hosts.iter().map(|host| format!("nbd://{host}")).collect();
        let backend = json!({"stripe": servers, "stripe_unit": 65536});
        let request = json!({"name": name, "backend": backend});
        bench.control.add_datastore(serde_json::from_value(request).unwrap()).unwrap();
    }

    fn create(bench: &Bench, further: Value) -> Result<Created<Disk>, ControlError> {
        let mut request = json!({"name": "wide", "datastore": "abc", "export": "x"});
        let further = further.as_object().unwrap().clone();
        request.as_object_mut().unwrap().extend(further);
        bench.control.create_disk(serde_json::from_value(request).unwrap())
    }

    fn bench() -> Bench {
        let bench = Bench::new();
        add(&bench, "abc", &["a", "b", "c"]);
        bench
    }

    fn remove(bench: &Bench) {
        let name = "wide".parse().unwrap();
        let fate = headgate_api::types::ImageFate::Keep;
        bench.control.remove_disk(&name, Default::default(), fate).unwrap();
    }

    #[test]
    fn a_new_disk_takes_what_the_smallest_export_has_room_for_and_labels_all_in_order() {
        let bench = bench();
        let made = create(&bench, json!({})).unwrap().now;
        // 1 GiB less the first MiB, three times.
        assert_eq!(made.size.0, 3 * ((1 << 30) - (1 << 20)));
        let labels = bench.plane.labels();
        let places: Vec<(&str, u16, u16)> = labels
            .iter()
            .map(|(uri, label)| (uri.as_str(), label.index, label.layout.members()))
            .collect();
        let at = |host: &str| format!("nbd://{host}:10809/x");
        let expected = [at("a"), at("b"), at("c")];
        let expected: Vec<_> = expected.iter().map(String::as_str).zip(0..).collect();
        assert_eq!(places, expected.iter().map(|(uri, n)| (*uri, *n, 3)).collect::<Vec<_>>());
        let unit = labels.values().next().unwrap().layout.unit();
        assert_eq!(unit.0, 65536);
    }

    #[test]
    fn exports_of_one_disk_become_it_again_and_others_are_told_apart() {
        let bench = bench();
        create(&bench, json!({"size": 1 << 30})).unwrap();
        let labels = bench.plane.labels();
        remove(&bench);
        for (name, hosts) in [("bac", &["b", "a", "c"][..]), ("ab", &["a", "b"])] {
            add(&bench, name, hosts);
        }
        for (further, words) in [
            (json!({"datastore": "bac"}), "expected member 0"),
            (json!({"datastore": "ab"}), "a disk on 3 servers, and the datastore has 2"),
            (json!({"size": 1 << 20}), "of 1073741824 bytes, and 1048576 were asked for"),
        ] {
            let error = create(&bench, further).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        let again = create(&bench, json!({})).unwrap().now;
        // By a later lease.
        let found = bench.plane.labels();
        assert!(found.values().all(|label| label.lease.number == 2));
        let same = found.values().zip(labels.values()).all(|(found, label)| {
            let lease = label.lease;
            Label { lease, ..*found } == *label
        });
        assert_eq!((again.size.0, same), (1 << 30, true));
        remove(&bench);
        let new = create(&bench, json!({"overwrite": "yes"})).unwrap().now;
        assert!(new.size.0 > 1 << 30);
        assert_ne!(bench.plane.labels(), labels);
    }

    #[test]
    fn an_export_that_holds_something_is_left_alone_unless_it_is_to_be_overwritten() {
        let bench = bench();
        let held = MemberContent::Other("a file system".into());
        bench.plane.put_content("nbd://b:10809/x", held);
        let error = create(&bench, json!({"force": "yes"})).unwrap_err().to_string();
        assert!(error.contains("of nbd://b:10809/ holds something: a file system"), "{error}");
        assert!(bench.plane.labels().is_empty());
        create(&bench, json!({"overwrite": "yes"})).unwrap();
        assert_eq!(bench.plane.labels().len(), 3);
    }

    #[test]
    fn a_member_of_a_half_labelled_set_is_refused() {
        let bench = bench();
        create(&bench, json!({})).unwrap();
        remove(&bench);
        bench.plane.put_content("nbd://c:10809/x", MemberContent::Nothing);
        let error = create(&bench, json!({})).unwrap_err().to_string();
        assert!(error.contains("of nbd://c:10809/ is no member"), "{error}");
    }

    #[test]
    fn what_the_exports_have_no_room_for_is_refused_before_anything_is_labelled() {
        let bench = bench();
        let error = create(&bench, json!({"size": 4_u64 << 30})).unwrap_err();
        assert!(error.to_string().contains("needs 1432748032 of each server"), "{error}");
        assert!(bench.plane.labels().is_empty());
        let error = create(&bench, json!({"size": 4097})).unwrap_err().to_string();
        assert!(error.contains("expected a multiple of 4096"), "{error}");
        let error = create(&bench, json!({"export": null})).unwrap_err().to_string();
        assert!(error.contains("an export of each"), "{error}");
    }

    #[test]
    fn an_export_is_one_disk() {
        let bench = bench();
        create(&bench, json!({})).unwrap();
        add(&bench, "cd", &["c", "d"]);
        let backend = json!({"nbd": "nbd://a"});
        let single = json!({"name": "single", "backend": backend});
        bench.control.add_datastore(serde_json::from_value(single).unwrap()).unwrap();
        for store in ["cd", "single"] {
            let error = create(&bench, json!({"name": "other", "datastore": store})).unwrap_err();
            assert!(error.to_string().contains("is disk 'wide' already"), "{error}");
        }
        // After a restart too.
        let bench = bench.restart();
        let error = create(&bench, json!({"name": "other", "datastore": "cd"})).unwrap_err();
        assert!(error.to_string().contains("is disk 'wide' already"), "{error}");
    }

    #[test]
    fn a_server_more_is_used_by_new_disks_and_leaves_old_ones_where_they_are() {
        let bench = bench();
        create(&bench, json!({})).unwrap();
        let set = |name: &str, servers: Value| {
            let patch = serde_json::from_value(json!({"add_servers": servers})).unwrap();
            bench.control.set_datastore(&name.parse().unwrap(), patch)
        };
        for (servers, words) in [
            (json!(["nbd://b"]), "named twice"),
            (json!(["nbd://d/x"]), "names an export"),
            (json!(["/run/d"]), "no NBD URI"),
        ] {
            let error = set("abc", servers).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        let error = set("array", json!(["nbd://d"])).unwrap_err().to_string();
        assert!(error.contains("--stripe"), "{error}");
        set("abc", json!(["nbd://d"])).unwrap();
        create(&bench, json!({"name": "new", "export": "y"})).unwrap();
        let labels = bench.plane.labels();
        let members = |export: &str| -> Vec<u16> {
            let of_it = labels.iter().filter(|(uri, _)| uri.ends_with(export));
            of_it.map(|(_, label)| label.layout.members()).collect()
        };
        assert_eq!(members("/x"), [3; 3]);
        assert_eq!(members("/y"), [4; 4]);
        // After a restart the old one is opened on its own servers.
        let bench = bench.restart();
        let disks = bench.control.disks().unwrap();
        assert!(disks.iter().all(|disk| disk.reason.is_none()), "{disks:?}");
    }

    #[test]
    fn a_datastore_is_made_of_servers_that_can_be() {
        let bench = Bench::new();
        let add = |backend: Value| {
            let request = json!({"name": "s", "backend": backend});
            bench.control.add_datastore(serde_json::from_value(request).unwrap()).unwrap_err()
        };
        for (backend, words) in [
            (json!({"stripe": []}), "over 0 servers"),
            (json!({"stripe": ["nbd://a", "nbd://a:10809"]}), "named twice"),
            (json!({"stripe": ["nbd://a/x"]}), "names an export"),
            (json!({"stripe": ["nbd://a"], "stripe_unit": 5000}), "cannot be"),
            (json!({"stripe": ["nbd://a"], "dir": "/tmp"}), "exactly one kind"),
            (json!({"dir": "/tmp", "stripe_unit": 65536}), "only a datastore of striped disks"),
            (json!({}), "exactly one kind"),
        ] {
            let error = add(backend).to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
