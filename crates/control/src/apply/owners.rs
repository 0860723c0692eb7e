//! What is different of tenants, and of what virtual machines are promised. Pure.

use super::difference::{Problem, fields, problem};
use headgate_api::apply::{Act, Apply, Prune, ThingChange, WantedTenant, WantedVm};
use headgate_model::{GroupPolicy, Name, Quota, TenantRecord, VmPromise, VmRecord};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// What there is.
#[derive(Debug, Default)]
pub(super) struct Owners {
    pub(super) tenants: BTreeMap<Name, TenantRecord>,
    pub(super) vms: BTreeMap<Name, VmRecord>,
}

/// What documents make of it.
#[derive(Debug, Default, PartialEq)]
pub(super) struct OwnersDifference {
    pub(super) tenants: Vec<TenantRecord>,
    pub(super) gone_tenants: Vec<Name>,
    pub(super) vms: Vec<VmRecord>,
    pub(super) things: Vec<ThingChange>,
}

fn of_group(policy: &GroupPolicy) -> [Value; 3] {
    let GroupPolicy { reservation, limit, shares } = *policy;
    [json!(reservation), json!(limit), json!(shares)]
}

fn tenant_view(tenant: &TenantRecord) -> Value {
    let [reservation, limit, shares] = of_group(&tenant.policy);
    let Quota { max_disks, max_space, max_reserved } = tenant.quota;
    json!({
        "reservation": reservation, "limit": limit, "shares": shares,
        "max_disks": max_disks, "max_space": max_space, "max_reserved": max_reserved,
    })
}

fn vm_view(promise: &VmPromise) -> Value {
    let [reservation, limit, shares] = of_group(&promise.policy);
    let tenant = &promise.tenant;
    json!({"tenant": tenant, "reservation": reservation, "limit": limit, "shares": shares})
}

/// The difference. What a document does not say of a thing that it names, the thing has not.
pub(super) fn owners(known: &Owners, wanted: &Apply) -> Result<OwnersDifference, Problem> {
    let mut out = OwnersDifference::default();
    wanted.tenants.iter().for_each(|one| tenant(known, wanted, one, &mut out));
    wanted.vms.iter().try_for_each(|one| vm(known, wanted, one, &mut out))?;
    if wanted.prune != Prune::Nothing {
        prune(known, wanted, &mut out)?;
    }
    Ok(out)
}

fn tell(out: &mut OwnersDifference, kind: &str, name: &Name, act: Act, views: [Value; 2]) {
    let [before, now] = views;
    let (kind, name, fields) = (kind.to_owned(), name.clone(), fields(before, now));
    out.things.push(ThingChange { kind, name, act, fields, by_class: None });
}

fn tenant(known: &Owners, wanted: &Apply, one: &WantedTenant, out: &mut OwnersDifference) {
    let before = known.tenants.get(&one.name);
    let applied_by = match before {
        Some(before) => before.applied_by.clone(),
        None => Some(wanted.set.clone()),
    };
    let WantedTenant { name, policy, quota, at: _ } = one.clone();
    let now = TenantRecord { name, policy, quota, applied_by };
    if before == Some(&now) {
        return;
    }
    let act = if before.is_some() { Act::Change } else { Act::Create };
    let was = before.map_or(Value::Null, tenant_view);
    tell(out, "tenant", &one.name, act, [was, tenant_view(&now)]);
    out.tenants.push(now);
}

fn vm(
    known: &Owners,
    wanted: &Apply,
    one: &WantedVm,
    out: &mut OwnersDifference,
) -> Result<(), Problem> {
    if let Some(tenant) = &one.tenant
        && !known.tenants.contains_key(tenant)
        && !wanted.tenants.iter().any(|other| other.name == *tenant)
    {
        let names: Vec<&str> = known.tenants.keys().map(Name::as_str).collect();
        return problem(
            one.at.as_ref(),
            format!("virtual machine '{}' has tenant '{tenant}', which is nowhere", one.name),
            format!("a tenant of the documents, or one of: {}", names.join(", ")),
        );
    }
    let before = known.vms.get(&one.name).cloned();
    let before = before.unwrap_or_else(|| VmRecord::unset(one.name.clone()));
    let is_new = before.promise == VmPromise::default();
    let applied_by = match is_new {
        true => Some(wanted.set.clone()),
        false => before.promise.applied_by.clone(),
    };
    let promise = VmPromise { tenant: one.tenant.clone(), policy: one.policy, applied_by };
    if promise == before.promise {
        return Ok(());
    }
    let act = if is_new { Act::Create } else { Act::Change };
    tell(out, "vm", &one.name, act, [vm_view(&before.promise), vm_view(&promise)]);
    out.vms.push(VmRecord { promise, ..before });
    Ok(())
}

/// What these documents made, and do not name any more. A virtual machine keeps what else was set
/// for it.
fn prune(known: &Owners, wanted: &Apply, out: &mut OwnersDifference) -> Result<(), Problem> {
    let is_ours = |owner: &Option<Name>| owner.as_ref() == Some(&wanted.set);
    let named: BTreeSet<&Name> = wanted.vms.iter().map(|one| &one.name).collect();
    let ours = known.vms.values().filter(|one| is_ours(&one.promise.applied_by));
    let gone: Vec<VmRecord> = ours.filter(|one| !named.contains(&one.name)).cloned().collect();
    for vm in gone {
        let nothing = VmPromise::default();
        tell(out, "vm", &vm.name, Act::Change, [vm_view(&vm.promise), vm_view(&nothing)]);
        out.vms.push(VmRecord { promise: nothing, ..vm });
    }
    let named: BTreeSet<&Name> = wanted.tenants.iter().map(|one| &one.name).collect();
    let ours = known.tenants.values().filter(|one| is_ours(&one.applied_by));
    let gone: Vec<Name> =
        ours.filter(|one| !named.contains(&one.name)).map(|one| one.name.clone()).collect();
    let changed: BTreeMap<Name, VmRecord> =
        out.vms.iter().map(|vm| (vm.name.clone(), vm.clone())).collect();
    for tenant in gone {
        let there = known.vms.values().filter(|vm| !changed.contains_key(&vm.name));
        let with_it = there.chain(changed.values());
        let with_it: Vec<&Name> = with_it
            .filter(|vm| vm.promise.tenant.as_ref() == Some(&tenant))
            .map(|vm| &vm.name)
            .collect();
        if !with_it.is_empty() {
            return problem(
                None,
                format!(
                    "tenant '{tenant}' is in the documents no more, and {} virtual machine(s) \
                     belong to it: {}",
                    with_it.len(),
                    crate::classes::some(with_it.into_iter())
                ),
                "another tenant for these machines, or the tenant in the documents",
            );
        }
        tell(out, "tenant", &tenant, Act::Remove, [Value::Null, Value::Null]);
        out.gone_tenants.push(tenant);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn wanted(value: Value) -> Apply {
        serde_json::from_value(value).unwrap()
    }

    /// Applied to what there is, as a transaction would be.
    fn applied(mut known: Owners, wanted: &Apply) -> (Owners, Vec<String>) {
        let found = owners(&known, wanted).unwrap();
        known.tenants.retain(|name, _| !found.gone_tenants.contains(name));
        known.tenants.extend(found.tenants.into_iter().map(|one| (one.name.clone(), one)));
        known.vms.extend(found.vms.into_iter().map(|one| (one.name.clone(), one)));
        let told =
            found.things.iter().map(|one| format!("{:?} {} {}", one.act, one.kind, one.name));
        (known, told.collect())
    }

    #[test]
    fn what_is_the_same_is_no_difference_and_what_is_not_said_is_taken_away() {
        let documents = wanted(json!({"set": "site",
            "tenants": [{"name": "red", "policy": {"reservation": 500}, "quota": {"max_disks": 4}}],
            "vms": [{"name": "web", "tenant": "red", "policy": {"limit": 90}}]}));
        let (known, told) = applied(Owners::default(), &documents);
        assert_eq!(told, ["Create tenant red", "Create vm web"]);
        assert_eq!(known.vms[&name("web")].promise.applied_by, Some(name("site")));
        let (known, told) = applied(known, &documents);
        assert_eq!(told, [""; 0]);
        let fewer = wanted(json!({"set": "other", "tenants": [{"name": "red"}],
            "vms": [{"name": "web", "policy": {"limit": 90}}]}));
        let (known, told) = applied(known, &fewer);
        assert_eq!(told, ["Change tenant red", "Change vm web"]);
        let red =
            TenantRecord { applied_by: Some(name("site")), ..TenantRecord::unset(name("red")) };
        assert_eq!(known.tenants[&name("red")], red, "it stays whose it was");
        assert_eq!(known.vms[&name("web")].promise.tenant, None);
    }

    #[test]
    fn only_what_a_set_made_is_pruned_and_no_tenant_from_its_machines() {
        let documents =
            wanted(json!({"set": "site", "tenants": [{"name": "red"}, {"name": "blue"}],
            "vms": [{"name": "web", "tenant": "red"}]}));
        let (mut known, _) = applied(Owners::default(), &documents);
        let none = wanted(json!({"set": "site", "prune": "empty"}));
        let other = wanted(json!({"set": "other", "prune": "empty"}));
        assert_eq!(owners(&known, &other).unwrap(), OwnersDifference::default());
        // A machine that was given to a tenant by hand.
        let mut lone = VmRecord::unset(name("lone"));
        lone.promise.tenant = Some(name("blue"));
        known.vms.insert(name("lone"), lone);
        let refused = owners(&known, &none).unwrap_err();
        assert!(refused.error.contains("'blue' is in the documents no more"), "{refused:?}");
        known.vms.remove(&name("lone"));
        let (known, told) = applied(known, &none);
        assert_eq!(told, ["Change vm web", "Remove tenant blue", "Remove tenant red"]);
        assert_eq!(known.vms[&name("web")].promise, VmPromise::default());
    }

    #[test]
    fn a_tenant_that_is_nowhere_is_said_with_its_line() {
        let documents = wanted(json!({"set": "site", "vms": [{"at": "x:3", "name": "web",
            "tenant": "red"}]}));
        let refused = owners(&Owners::default(), &documents).unwrap_err();
        assert_eq!(refused.at.as_deref(), Some("x:3"));
        assert!(refused.error.contains("tenant 'red', which is nowhere"), "{refused:?}");
    }
}
