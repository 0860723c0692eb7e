//! The events that tenants may read: those whose disks all belonged to machines of theirs, without
//! what they say of others.

use super::app::App;
use super::caller::{Right, Tenant};
use super::error::ApiError;
use super::events;
use headgate_api::events::{Event, EventPage};
use headgate_events::{Filter, Who};
use std::collections::BTreeSet;

/// Who may only what a tenant may, or has that right beside another.
pub(super) fn tenant(right: &Right) -> Option<Tenant> {
    match right {
        Right::Own(tenant) | Right::Read(Some(tenant)) => Some(tenant.clone()),
        Right::Change | Right::Read(None) | Right::Nothing | Right::NoToken => None,
    }
}

/// Those of these events that are a tenant's, as they may see them.
pub(super) async fn of(app: &App, tenant: &Tenant, events: Vec<Event>) -> Vec<Event> {
    let machines: BTreeSet<String> = match tenant {
        Tenant::Process(peer) => {
            app.control.machines_of(peer).into_iter().map(|name| name.to_string()).collect()
        }
        Tenant::Machines { .. } => BTreeSet::new(),
    };
    let is_theirs = |machine: &String| match tenant {
        Tenant::Process(_) => machines.contains(machine),
        Tenant::Machines { rights, .. } => rights.has_machine(machine),
    };
    let of_theirs = |event: &Event| {
        let machines = &event.entry.machines;
        !machines.is_empty() && !event.entry.disks.is_empty() && machines.iter().all(is_theirs)
    };
    events.into_iter().filter(of_theirs).map(|event| shown(event, tenant)).collect()
}

fn is_me(by: &Who, tenant: &Tenant) -> bool {
    match (by, tenant) {
        (Who::Process { user, .. }, Tenant::Process(peer)) => *user == peer.user,
        (by, Tenant::Machines { who, .. }) => by.without_instance() == who.without_instance(),
        _ => false,
    }
}

/// An event without what is nothing for a tenant: who else it was, what they asked for, and texts,
/// which may name disks of others.
fn shown(mut event: Event, tenant: &Tenant) -> Event {
    let entry = &mut event.entry;
    if is_me(&entry.by, tenant) {
        return event;
    }
    if entry.by != Who::Daemon {
        entry.by = Who::Unknown { address: None };
    }
    (entry.why, entry.asked, entry.unwritten) = (None, None, 0);
    event
}

/// A page of them. Neither its numbers nor its errors say how much others do.
pub(super) async fn page(
    app: &App,
    tenant: &Tenant,
    mut filter: Filter,
    limit: usize,
) -> Result<EventPage, ApiError> {
    let mut found = Vec::new();
    let mut newest = filter.after;
    loop {
        let read = events::page(app, filter.clone(), limit).await?;
        let last = read.events.last().map(|event| event.id);
        found.extend(of(app, tenant, read.events).await);
        match last.filter(|_| !read.is_last && found.len() <= limit) {
            Some(last) => filter.after = last,
            None => {
                let is_last = read.is_last && found.len() <= limit;
                found.truncate(limit);
                newest = found.last().map_or(newest, |event: &Event| event.id);
                return Ok(EventPage { events: found, is_last, newest, damaged: 0 });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ApiGroups;
    use super::super::testing::Bench;
    use serde_json::{Value, json};
    use std::path::Path;
    use std::process::Command;

    const RED: u32 = 4701;
    const BLUE: u32 = 4702;

    /// A member of the tenants' group, by user; the status and what was said in a second.
    fn ask(socket: &Path, user: u32, path: &str, headers: &[&str]) -> (u16, String) {
        use std::os::unix::process::CommandExt;
        let mut curl = Command::new("curl");
        curl.args(["-s", "-N", "-m", "2", "-w", "\n%{http_code}", "--unix-socket"]).arg(socket);
        for header in headers {
            curl.args(["-H", header]);
        }
        let said = curl.arg(format!("http://x{path}")).uid(user).gid(4810).output().unwrap();
        let said = String::from_utf8(said.stdout).unwrap();
        let (body, status) = said.rsplit_once('\n').unwrap();
        (status.parse().unwrap(), body.to_owned())
    }

    fn told(body: &str) -> Vec<String> {
        let page: Value = serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {body}"));
        let of = |event: &Value| {
            format!(
                "{} {}",
                event["operation"].as_str().unwrap(),
                event["disks"][0].as_str().unwrap()
            )
        };
        page["events"].as_array().unwrap().iter().map(of).collect()
    }

    /// What a tenant hears of, and every way in which they could hear of others.
    #[test]
    fn tenants_hear_of_their_own_disks_and_of_nothing_else() {
        let has_curl = Command::new("curl").arg("--version").output().is_ok();
        if !rustix::process::geteuid().is_root() || !has_curl {
            eprintln!("SKIPPED: needs root and curl, to be other users");
            return;
        }
        let bench = Bench::new();
        let groups = ApiGroups { change: 4801, read: None, tenants: Some(4810) };
        bench.serve_to(groups, |api, socket| {
            let send = |method: &str, path: &str, body: Value| {
                let (status, answer) = api.send(method, path, &body.to_string());
                assert!((200..300).contains(&status), "{method} {path}: {answer}");
            };
            for (vm, user) in [("red", RED), ("blue", BLUE)] {
                send("PATCH", &format!("/v1/vms/{vm}"), json!({"socket_user": user.to_string()}));
            }
            let disk = |name: &str, vm: Value| {
                let disk = json!({"name": name, "size": 1 << 20, "datastore": "default", "vm": vm});
                send("POST", "/v1/disks", disk);
            };
            // A name that was another's before.
            disk("a", json!("blue"));
            send("DELETE", "/v1/disks/a?image=purge", Value::Null);
            disk("a", json!("red"));
            disk("b", json!("blue"));
            disk("n", Value::Null);
            send("PATCH", "/v1/disks/a", json!({"limit": 700}));
            send("PATCH", "/v1/disks/b", json!({"limit": 800}));
            send("PATCH", "/v1/disks/n", json!({"limit": 900}));
            // From one to the other: it is both's, and so nobody's to hear.
            disk("c", json!("red"));
            send("PATCH", "/v1/disks/c", json!({"vm": "blue"}));
            send("PATCH", "/v1/disks/c", json!({"limit": 999}));
            // A refusal says what others have.
            let (status, _) = api.send("PATCH", "/v1/disks/a", r#"{"reservation": 9, "limit": 5}"#);
            assert_eq!(status, 422);
            let (status, body) = ask(socket, RED, "/v1/events", &[]);
            let all = ["disk create a", "disk set a", "disk create c", "disk set a"];
            assert_eq!((status, told(&body)), (200, all.map(str::to_owned).to_vec()), "{body}");
            for other in
                ["blue", "\"b\"", "\"n\"", "800", "900", "999", "\"user\":0", "reservation of 9"]
            {
                assert!(!body.contains(other), "{other}: {body}");
            }
            assert!(body.contains("\"policy.limit\":700"), "what is set of theirs: {body}");
            let (_, blue) = ask(socket, BLUE, "/v1/events", &[]);
            let all =
                ["disk create a", "disk remove a", "disk create b", "disk set b", "disk set c"];
            assert_eq!(told(&blue), all, "{blue}");
            // Asked for by a disk's name, and from beyond the last, it is no more.
            assert_eq!(told(&ask(socket, RED, "/v1/events?disk=b", &[]).1), [""; 0]);
            assert_eq!(
                told(&ask(socket, RED, "/v1/events?disk=a&limit=1", &[]).1),
                ["disk create a"]
            );
            let (status, none) = ask(socket, RED, "/v1/events?after=99999", &[]);
            assert_eq!((status, told(&none)), (200, vec![]));
            let (_, nobody) = ask(socket, 4799, "/v1/events", &[]);
            assert_eq!(told(&nobody), [""; 0], "a member who has no machine");
            // As they come, too.
            let (_, stream) = ask(socket, RED, "/v1/events", &["Accept: text/event-stream"]);
            assert_eq!(stream.matches("data: ").count(), 4, "{stream}");
            assert!(!stream.contains("blue") && !stream.contains("900"), "{stream}");
        });
    }
}
