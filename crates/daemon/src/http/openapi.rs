//! The OpenAPI document of the API. A test generates it from the routes and their types and
//! compares it with the file that the daemon serves, so the generator is no part of the daemon.

/// The document as JSON.
pub const DOCUMENT: &str = include_str!("openapi.json");

#[cfg(test)]
mod tests {
    use super::super::terms::document::{OnTerms, find};
    use super::super::{
        balance, blame, classes, copies, events, fleet, imports, moves, nodes, operations, owners,
        removed, reports, routes, scrape, what_if,
    };
    use serde_json::Value;
    use std::collections::BTreeSet;
    use std::path::Path;
    use std::{env, fs};
    use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
    use utoipa::openapi::{self, Content, Ref, RefOr, ResponseBuilder, Schema};
    use utoipa::{Modify, OpenApi};

    #[derive(OpenApi)]
    #[openapi(
        info(
            title = "Headgate",
            description = "Virtual disks under mClock. Served on the unix socket headgate.sock of the state directory, \
                           and over TCP where serve --api-listen says so. \
                           Rates are normalised IOs per second, sizes bytes, bandwidths bytes per second. Every error has \
                           the form of ErrorBody."
        ),
        paths(
            routes::list_datastores,
            routes::add_datastore,
            routes::show_datastore,
            routes::set_datastore,
            routes::remove_datastore,
            routes::model_points,
            routes::datastore_history,
            routes::datastore_trace,
            routes::advice,
            routes::rules,
            routes::set_rules,
            routes::fit_constants,
            balance::set_automatic,
            balance::show_balance,
            balance::begin_balance,
            balance::stop_balance,
            balance::show_maintenance,
            balance::set_maintenance,
            routes::start_calibration,
            routes::show_calibration,
            routes::cancel_calibration,
            routes::list_disks,
            routes::create_disk,
            routes::show_disk,
            routes::set_disk,
            routes::take_over,
            routes::resume_disk,
            routes::remove_disk,
            routes::show_attachment,
            moves::resize,
            moves::migrate,
            moves::list_moves,
            moves::show_move,
            moves::set_move,
            moves::cancel_move,
            copies::copy,
            nodes::list_nodes,
            copies::list_copies,
            copies::show_copy,
            copies::set_copy,
            copies::cancel_copy,
            imports::list_imports,
            imports::show_import,
            imports::hear_of_import,
            imports::cancel_import,
            removed::list_removed,
            removed::restore_disk,
            removed::purge_removed,
            classes::list_classes,
            classes::show_class,
            classes::set_class,
            classes::remove_class,
            classes::apply,
            routes::list_vms,
            routes::show_vm,
            routes::set_vm,
            routes::reset_vm,
            owners::list_tenants,
            owners::show_tenant,
            owners::set_tenant,
            owners::remove_tenant,
            routes::list_exports,
            routes::add_export,
            routes::show_export,
            routes::set_export,
            routes::remove_export,
            fleet::list_hosts,
            fleet::fleet_disks,
            fleet::fleet_datastores,
            fleet::fleet_advice,
            events::events,
            blame::disk_blame,
            reports::disk_history,
            reports::report,
            reports::report_samples,
            what_if::what_if,
            routes::stats,
            routes::top,
            scrape::metrics,
            routes::healthz,
        ),
        components(schemas(headgate_api::types::ImageFate, headgate_api::terms::DryRun)),
        modifiers(&Access, &OnTerms, &NoDefaults)
    )]
    struct Document;

    /// Who may: what is shown over TCP, and what each operation takes.
    struct Access;

    impl Modify for Access {
        fn modify(&self, document: &mut openapi::OpenApi) {
            let token = Http::builder().scheme(HttpAuthScheme::Bearer).description(Some(
                "A token of the file of --api-tokens, over TCP on a loopback address",
            ));
            let certificate = SecurityScheme::MutualTls {
                description: Some("A client's certificate, over TCP with --api-tls".into()),
                extensions: None,
            };
            let components = document.components.get_or_insert_default();
            components.add_security_scheme("token", SecurityScheme::Http(token.build()));
            components.add_security_scheme("certificate", certificate);
            let none: [&str; 0] = [];
            document.security = Some(vec![
                // Over the unix socket the kernel says who asks.
                SecurityRequirement::default(),
                SecurityRequirement::new("token", none),
                SecurityRequirement::new("certificate", none),
            ]);
            for one in operations::ALL {
                let Some(operation) = find(document, one) else { continue };
                let takes = format!("It takes {}", one.allowed.roles());
                for (status, why) in [("401", "No token that is known was shown"), ("403", &takes)]
                {
                    let error = Content::new(Some(Ref::from_schema_name("ErrorBody")));
                    let response =
                        ResponseBuilder::new().description(why).content("application/json", error);
                    operation.responses.responses.insert(status.into(), response.build().into());
                }
            }
        }
    }

    /// A default that is an object says what its own fields' defaults say, and generators of
    /// clients leave out whatever has one.
    struct NoDefaults;

    impl Modify for NoDefaults {
        fn modify(&self, document: &mut openapi::OpenApi) {
            let components = document.components.get_or_insert_default();
            for schema in components.schemas.values_mut() {
                let RefOr::T(Schema::Object(object)) = schema else { continue };
                for property in object.properties.values_mut() {
                    if let RefOr::T(Schema::OneOf(one)) = property
                        && one.default.as_ref().is_some_and(Value::is_object)
                    {
                        one.default = None;
                    }
                }
            }
        }
    }

    /// `HEADGATE_UPDATE_OPENAPI=1 cargo test -p headgate-daemon openapi` writes the file anew.
    #[test]
    fn the_document_is_that_of_the_routes() {
        let mut text = Document::openapi().to_pretty_json().unwrap();
        text.push('\n');
        if env::var_os("HEADGATE_UPDATE_OPENAPI").is_some() {
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/http/openapi.json");
            fs::write(file, &text).unwrap();
            return;
        }
        let same = text.lines().eq(super::DOCUMENT.lines());
        let differs = text.lines().zip(super::DOCUMENT.lines()).find(|(now, file)| now != file);
        assert!(same, "openapi.json is not that of the routes, first here: {differs:?}");
    }

    fn served() -> Value {
        serde_json::from_str(super::DOCUMENT).unwrap()
    }

    /// The names in braces.
    fn names_in(path: &str) -> BTreeSet<&str> {
        path.split('{').skip(1).filter_map(|rest| Some(rest.split_once('}')?.0)).collect()
    }

    /// Every reference in it, at any depth.
    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str));
                fields.values().for_each(|one| references(one, found));
            }
            Value::Array(list) => list.iter().for_each(|one| references(one, found)),
            _ => {}
        }
    }

    /// Clients are generated from it: what a validator would refuse, they get wrong.
    #[test]
    fn parameters_are_where_they_are_declared_and_operations_have_names_of_their_own() {
        let document = served();
        let mut operations = BTreeSet::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                let id = operation["operationId"].as_str().unwrap();
                assert!(operations.insert(id), "{id} is there twice");
                let declared = operation["parameters"].as_array().map_or(&[][..], Vec::as_slice);
                let (in_path, elsewhere): (Vec<&Value>, Vec<&Value>) =
                    declared.iter().partition(|one| one["in"] == "path");
                let in_path: BTreeSet<&str> =
                    in_path.iter().map(|one| one["name"].as_str().unwrap()).collect();
                assert_eq!(in_path, names_in(path), "{method} {path}");
                let is_known = |one: &&Value| one["in"] == "query" || one["in"] == "header";
                assert!(elsewhere.iter().all(is_known), "{method} {path}");
            }
        }
        assert!(operations.len() > 30, "{operations:?}");
    }

    /// Who is not let in gets what the document says.
    #[test]
    fn every_operation_says_whom_it_is_for() {
        let document = served();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                let responses = &operation["responses"];
                let refused = responses["403"]["description"].as_str().unwrap_or_default();
                assert!(refused.starts_with("It takes role admin"), "{method} {path}: {refused}");
                assert!(responses["401"].is_object(), "{method} {path}");
            }
        }
        let schemes = &document["components"]["securitySchemes"];
        assert_eq!(schemes["token"]["scheme"], "bearer");
        assert_eq!(schemes["certificate"]["type"], "mutualTLS");
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let document = served();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(!found.is_empty());
        for reference in found {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
        }
    }
}
